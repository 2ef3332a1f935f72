"""Starting a server: everything that can be wrong is found before the port opens, and said in words.

    serve(Settings(bundle="run/bundle", ledger="sqlite:///ledger.db", config=ServeConfig(...)))

A campaign that is new to the ledger gets its caps from the settings. One that is not keeps the caps that the ledger
has, which an administrator may have changed; limits per user come from the settings at every start.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from msgspec.structs import replace

from outlay.core.errors import OutlayError
from outlay.server.clock import Clock
from outlay.server.config import ServeConfig
from outlay.server.gate import is_loopback
from outlay.server.ledger import Caps, Ledger, LedgerError
from outlay.server.reload import Ready, Serving, introduce, prepare
from outlay.server.store import open_ledger

BACKLOG = 2_048  # connections that wait to be taken
COLLECT = 50_000, 50, 100  # thresholds of the garbage collector: a group of requests makes thousands of objects
UVICORN: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "ws": "none",
    "timeout_keep_alive": 75,  # seconds: longer than the minute for which proxies keep theirs
    "timeout_graceful_shutdown": 5,  # seconds for requests under way when the server is told to end
}
HANDED_DOWN = "OUTLAY_SERVE_SETTINGS"  # names the file that the launcher leaves to its workers
TOKEN_HANDED_DOWN = "OUTLAY_SERVE_TOKEN"
ENDS = signal.SIGTERM, signal.SIGINT

log = logging.getLogger("outlay.serve")


@dataclass(frozen=True)
class Settings:
    """What to serve and how.

    Attributes:
        bundle: its folder.
        ledger: `sqlite:///path` (relative to the working folder; four slashes: absolute) or `postgresql://…`.
        config: of serve.toml, with `--cap`.
        host: to listen on.
        port: to listen on; 0 takes a free one.
        workers: processes.
        token: of the bearer, from OUTLAY_TOKEN.
        pointer: file in which workers tell one another of bundles, or None.
    """

    bundle: Path
    ledger: str
    config: ServeConfig
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = None
    pointer: Path | None = None


def serve(settings: Settings, say: Callable[[str], None] = lambda _words: None) -> None:
    """Serve until interrupted.

    Args:
        settings: what and how.
        say: called with what is served and where, once the port is open.

    Raises:
        OutlayError: if the bundle, the ledger, the port or the token is not as it must be.
    """
    if not is_loopback(settings.host) and not settings.token:
        raise OutlayError(
            f"is {settings.host}: other machines could spend the budget, and there is no token.", where="--host",
            way_out="Set OUTLAY_TOKEN to a long random text, or listen on 127.0.0.1.",
        )  # fmt: skip
    ready = prepare(settings.bundle, settings.config)
    with closing(open_ledger(settings.ledger)) as ledger:
        words = adopt(ledger, ready, settings.config)
    with listening(settings.host, settings.port) as listener:
        settings = dataclasses.replace(settings, port=listener.getsockname()[1])
        say(f"bundle {ready.bundle.id} of campaign {ready.campaign} on http://{settings.host}:{settings.port}")
        for line in words:
            say(line)
        if settings.workers == 1:
            with suppress(KeyboardInterrupt):
                uvicorn.Server(uvicorn.Config(application(settings), **UVICORN)).run(sockets=[listener])
        else:
            _run_workers(settings, listener)


def adopt(ledger: Ledger, ready: Ready, config: ServeConfig) -> list[str]:
    """Bring the settings into the ledger, and their caps where it does not know better. What to tell the operator.

    Raises:
        LedgerError: if the ledger cannot be reached or written.
        OutlayError: if the settings do not fit what the ledger holds.
    """
    wanted, now = _caps(ready, config), Clock(config.timezone).now()
    try:
        kept = ledger.totals(ready.campaign).caps
    except LedgerError:  # a campaign that it does not know; a ledger that is out of reach says so in the next line
        ledger.set_caps(ready.campaign, wanted)
        words = [] if wanted.total is not None else ["there is no total cap: nothing limits the spend. Give --cap."]
        return words + introduce(ledger, ready, config, now)
    words = introduce(ledger, ready, config, now)
    ledger.set_caps(ready.campaign, replace(wanted, total=kept.total, day=kept.day, arms=kept.arms))
    if (kept.total, kept.day, dict(kept.arms)) != (wanted.total, wanted.day, dict(wanted.arms)):
        total = "none" if kept.total is None else f"{ready.money.units(kept.total):g} {ready.money.unit}"
        words.append(f"the ledger keeps the caps that it has (total {total}). Change them with POST /v1/admin/caps.")
    return words


def application(settings: Settings) -> FastAPI:
    """The application of one worker."""
    # After the launcher has named the folder of the metrics: prometheus_client looks for it when it is loaded.
    from outlay.server.app import create_app
    from outlay.server.metrics import Metrics
    from outlay.server.service import Service

    async def start() -> Service:
        ready = prepare(settings.bundle, settings.config)
        ledger = await _reached(settings.ledger)
        serving = Serving(ready, settings.config, settings.pointer)
        # What is loaded by now stays; looking through it for garbage again and again costs a quarter of the time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        return Service(serving, ledger, Clock(settings.config.timezone), Metrics())

    return create_app(start, token=settings.token, everywhere=not is_loopback(settings.host))


async def _reached(url: str) -> Ledger:
    """The ledger, as soon as it can be reached: the launcher has found it, so it will come back.

    A worker that gave up would take the launcher and all other workers with it.
    """
    kept = {number: signal.signal(number, signal.SIG_DFL) for number in ENDS}  # it serves nobody yet
    try:
        while True:
            try:
                return await asyncio.to_thread(open_ledger, url)
            except LedgerError as error:
                log.error("the ledger cannot be reached: %s", error)
            await asyncio.sleep(1)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def worker() -> FastAPI:
    """The application of one of several workers: the launcher left the settings in a file."""
    settings: Settings = pickle.loads(Path(os.environ[HANDED_DOWN]).read_bytes())
    if (launcher := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(launcher,), daemon=True).start()
    return application(dataclasses.replace(settings, token=os.environ.get(TOKEN_HANDED_DOWN)))


def _end_with(launcher: Any) -> None:
    """Without its launcher, a worker would hold the port and go on spending for ever."""
    launcher.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _run_workers(settings: Settings, listener: socket.socket) -> None:
    with tempfile.TemporaryDirectory() as folder:  # only this user may read it
        file, meters = Path(folder) / "settings", Path(folder) / "meters"
        # The token is no matter for the disk: the folder stays behind where the launcher is killed.
        left = dataclasses.replace(settings, pointer=Path(folder) / "bundle.json", token=None)
        file.write_bytes(pickle.dumps(left))
        meters.mkdir()
        os.environ |= {HANDED_DOWN: str(file), "PROMETHEUS_MULTIPROC_DIR": str(meters)}
        if settings.token is not None:
            os.environ[TOKEN_HANDED_DOWN] = settings.token
        workers: dict[str, Any] = {"factory": True, "workers": settings.workers, "fd": listener.fileno()}
        uvicorn.run("outlay.server.launch:worker", **workers, **UVICORN)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OutlayError if it may not."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise OutlayError(
            f"cannot listen on {host}:{port} ({error}).", where="--port", way_out="Give another --port or --host."
        ) from None
    # Connections inherit it. Without it an answer in two packets waits 40 ms for the first one's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _caps(ready: Ready, config: ServeConfig) -> Caps:
    def exact(amount: float | None) -> int | None:
        return None if amount is None else ready.money.exact(amount)

    arms = {"policy": exact(config.caps.policy), "random": exact(config.random.cap)}
    return Caps(
        total=exact(config.caps.total),
        day=exact(config.caps.day),
        arms={name: cap for name, cap in arms.items() if cap is not None},
        user_amount=exact(config.user.amount),
        user_offers=config.user.decisions,
        user_day_amount=exact(config.user.amount_per_day),
        user_day_offers=config.user.decisions_per_day,
    )
