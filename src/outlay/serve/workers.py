"""Processes that serve one port: this one, or several that end with their launcher."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.routing import Router
from uvicorn.supervisors import Multiprocess

from outlay.serve.application import ServerOptions, application
from outlay.serve.http.connections import Connection

UVICORN: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "ws": "none",
    "http": Connection,
    "timeout_keep_alive": 75,  # seconds: longer than the minute for which proxies keep theirs
    "timeout_graceful_shutdown": 5,  # seconds for requests under way when the server is told to end
}
HANDED_DOWN = "OUTLAY_SERVE_SETTINGS"  # names the file that the launcher leaves to its workers
TOKEN_HANDED_DOWN, LEDGER_HANDED_DOWN = "OUTLAY_SERVE_TOKEN", "OUTLAY_SERVE_LEDGER"


def run(settings: ServerOptions, listener: socket.socket) -> None:
    """Serve on a socket until interrupted."""
    if settings.workers > 1:
        _run_workers(settings, listener)
        return
    with suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(application(settings), **UVICORN)).run(sockets=[listener])


def worker() -> Router:
    """The application of one of several workers: the launcher left the settings in a file."""
    settings: ServerOptions = pickle.loads(Path(os.environ[HANDED_DOWN]).read_bytes())
    if (launcher := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(launcher,), daemon=True).start()
    token, ledger = os.environ.get(TOKEN_HANDED_DOWN), os.environ[LEDGER_HANDED_DOWN]
    return application(dataclasses.replace(settings, token=token, ledger=ledger))


class _Launcher(Multiprocess):
    """Closes the port before its workers do: nobody would take who came after the last of them."""

    def terminate_all(self) -> None:
        """Tell all workers to end."""
        for shared in self.sockets:
            shared.close()
        super().terminate_all()


def _end_with(launcher: Any) -> None:
    """Without its launcher, a worker would hold the port and go on spending for ever."""
    launcher.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _run_workers(settings: ServerOptions, listener: socket.socket) -> None:
    with tempfile.TemporaryDirectory() as folder:  # only this user may read it
        file, meters = Path(folder) / "settings", Path(folder) / "meters"
        # Token and password are no matter for the disk: the folder stays behind where the launcher is killed.
        left = dataclasses.replace(settings, token=None, ledger="")
        file.write_bytes(pickle.dumps(left))
        meters.mkdir()
        os.environ |= {
            HANDED_DOWN: str(file),
            LEDGER_HANDED_DOWN: settings.ledger,
            "PROMETHEUS_MULTIPROC_DIR": str(meters),
        }
        if settings.token is not None:
            os.environ[TOKEN_HANDED_DOWN] = settings.token
        served = "outlay.serve.workers:worker"
        _Launcher(uvicorn.Config(served, factory=True, workers=settings.workers, **UVICORN), [listener]).run()
