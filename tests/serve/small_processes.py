"""Real `outlay serve` processes for tests, and what they said before they ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]

from patience import PATIENCE, wait_until

TOKEN = "the-administrator-s"
HERE = Path(__file__).parent
RESERVES = """
[reserve]
"0" = 0.0
"1.5" = 1.5
"3" = 3.0
"""
CONFIG = f"ledger_seconds = {PATIENCE}{RESERVES}"
AHEAD = """
import time
_time, _time_ns = time.time, time.time_ns
time.time, time.time_ns = (lambda: _time() + {ahead}), (lambda: _time_ns() + int({ahead} * 1e9))
"""
RUN = f"""
import sys
sys.path[:0] = ["{HERE}", "{HERE.parent}"]
import patient
from outlay.cli.main import run
run()
"""


class Process:
    """One `outlay serve` with its workers.

    Attributes:
        errors: file of all that it said.
    """

    def __init__(self, command: list[str], errors: Path, limits: Mapping[str, Any] | None = None) -> None:
        self.errors = errors
        environment = os.environ | {
            "OUTLAY_ADMIN_TOKEN": TOKEN,
            "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": str(errors.parent),
        }
        environment.pop("OUTLAY_TOKEN", None)
        environment["LIMITS"] = json.dumps(limits or {})
        with errors.open("wb") as file:
            self.popen = subprocess.Popen(command, stderr=file, stdout=file, env=environment)

    @cached_property
    def url(self) -> str:
        """Where it listens, once it does."""
        wait_until(lambda: " on http://" in self.said() or self.popen.poll() is not None)
        assert self.popen.poll() is None, self.said()
        return self.said().split(" on ", 1)[1].split()[0]

    @cached_property
    def http(self) -> httpx.Client:
        """Connections to it."""
        return httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False)

    def said(self) -> str:
        """Everything on stdout and stderr until now."""
        return self.errors.read_text(errors="replace")

    def get(self, path: str) -> httpx.Response:
        """GET."""
        return self.http.get(path)

    def post(self, path: str, body: Any) -> httpx.Response:
        """POST, on a new connection, so that any of the workers may take it."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Connection": "close"}
        return self.http.post(path, json=body, headers=headers)

    def decide(self, body: Any) -> Any:
        """The answer to a request for decisions."""
        answer = self.post("/v1/decisions", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stop(self) -> int:
        """SIGTERM; the exit code. It has to end without a word about errors of its own."""
        self.popen.send_signal(signal.SIGTERM)
        code = self.popen.wait(PATIENCE)
        assert "Traceback" not in self.said(), self.said()
        return code

    def kill(self) -> None:
        """SIGKILL to all of it that still runs, and give everything back."""
        with suppress(psutil.NoSuchProcess):
            for worker in psutil.Process(self.popen.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    worker.kill()
        self.popen.kill()
        self.popen.wait(PATIENCE)
        if "http" in self.__dict__:
            self.http.close()


@contextmanager
def outlay_serve(
    bundle: Path,
    ledger: str,
    folder: Path,
    *options: str,
    config: str = CONFIG,
    ahead: float = 0.0,
    limits: Mapping[str, Any] | None = None,
) -> Iterator[Process]:
    """A server on `ledger`, whose machine's clock is so many seconds ahead; `folder` gets its files.

    `limits` are those that the test is about, by module and name (`patient.py`).
    """
    name = f"serve-{time.monotonic_ns()}"
    settings = folder / f"{name}.toml"
    settings.write_text(config)
    command = [
        sys.executable,
        "-c",
        AHEAD.format(ahead=ahead) + RUN,
        "serve",
        str(bundle),
        "--ledger",
        ledger,
        "--config",
        str(settings),
    ]
    process = Process([*command, "--port", "0", *options], folder / f"{name}.txt", limits)
    try:
        yield process
    finally:
        process.kill()


def free_port() -> int:
    """On which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def workers(process: Process) -> list[psutil.Process]:
    """Those that answer, and not the one that looks after what Python's processes share."""
    found = []
    for child in psutil.Process(process.popen.pid).children():
        with suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def all_workers(process: Process, number: int) -> list[psutil.Process]:
    """The workers, once there are that many of them."""
    found: list[psutil.Process] = []

    def there() -> bool:
        found[:] = workers(process)
        return len(found) == number

    wait_until(there)
    return found
