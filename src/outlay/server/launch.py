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
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from msgspec.structs import replace

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment
from outlay.server.arms import Trial, prepare_trial
from outlay.server.clock import Clock
from outlay.server.config import ServeConfig
from outlay.server.decider import POLICY, RANDOM
from outlay.server.gate import is_loopback
from outlay.server.ledger import Caps, Ledger, LedgerError
from outlay.server.ready import Ready, introduce, prepare
from outlay.server.rehearsal import check_rehearsal, clock_of, new_rehearsal, note_rehearsal
from outlay.server.reload import Serving
from outlay.server.standing import check_trial, enter, others_live
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
        experiment: the A/B test to serve, or None.
        rehearse: seconds that a day lasts; None: days are real.
        pointer: file in which workers tell one another of bundles, or None.
    """

    bundle: Path
    ledger: str
    config: ServeConfig
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = None
    experiment: Experiment | None = None
    rehearse: float | None = None
    pointer: Path | None = None


def serve(settings: Settings, say: Callable[[str], None] = lambda _words: None) -> None:
    """Serve until interrupted.

    Args:
        settings: what and how.
        say: called with what is served and where, once the port is open.

    Raises:
        OutlayError: if the bundle, the test, the ledger, the port or the token is not as it must be.
    """
    if not is_loopback(settings.host) and not settings.token:
        raise OutlayError(
            f"is {settings.host}: other machines could spend the budget, and there is no token.", where="--host",
            way_out="Set OUTLAY_TOKEN to a long random text, or listen on 127.0.0.1.",
        )  # fmt: skip
    ready = prepare(settings.bundle, settings.config)
    trial = _trial(settings, ready)
    zone = settings.config.timezone
    wanted = None if settings.rehearse is None else new_rehearsal(settings.rehearse, zone)
    with closing(open_ledger(settings.ledger)) as ledger:
        rehearsal = check_rehearsal(ledger, ready.campaign, wanted)
        clock = Clock(zone) if rehearsal is None else Clock(zone, rehearsal.time)
        words = adopt(ledger, ready, settings.config, trial, clock)
        if rehearsal is not None:
            words = [*note_rehearsal(ledger, ready.campaign, rehearsal), *words]
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


def adopt(
    ledger: Ledger, ready: Ready, config: ServeConfig, trial: Trial | None = None, clock: Clock | None = None
) -> list[str]:
    """Bring the settings into the ledger, and their caps where it does not know better. What to tell the operator.

    Args:
        ledger: may not know the campaign.
        ready: about to be served.
        config: settings of the server.
        trial: the A/B test, or None.
        clock: the server's; None: the real one.

    Raises:
        LedgerError: if the ledger cannot be reached or written.
        OutlayError: if the settings or the test do not fit what the ledger holds.
    """
    clock = clock or Clock(config.timezone)
    day = clock.day(now := clock.now())
    budgets = trial.budgets if trial is not None and check_trial(ledger, trial, day) else {}
    words = _set_caps(ledger, ready, config, budgets)
    words += introduce(ledger, ready, config, now)
    if trial is not None:
        enter(ledger, trial, now)
        words += _told(trial, ledger.totals(ready.campaign).caps, ready, day)
    for other in others_live(ledger, ready.campaign, None if trial is None else trial.name, day):
        words.append(f"the test {other.meta.name!r} of this ledger is not served: its users are as all others.")
    return words


def _set_caps(ledger: Ledger, ready: Ready, config: ServeConfig, budgets: Mapping[str, int]) -> list[str]:
    """Caps of a new campaign, limits of users, and the budgets of arms that are new."""
    wanted, found = _caps(ready, config), list[Caps | None]()

    def change(kept: Caps | None) -> Caps:
        found.append(kept)
        if kept is None:
            return replace(wanted, arms={**wanted.arms, **budgets})
        return replace(wanted, total=kept.total, day=kept.day, arms={**kept.arms, **budgets})

    ledger.change_caps(ready.campaign, change)
    kept = found[-1]
    if kept is None:
        return [] if wanted.total is not None else ["there is no total cap: nothing limits the spend. Give --cap."]
    own = {name: kept.arms[name] for name in (POLICY, RANDOM) if name in kept.arms}
    if (kept.total, kept.day, own) == (wanted.total, wanted.day, dict(wanted.arms)):
        return []
    total = "none" if kept.total is None else f"{ready.money.units(kept.total):g} {ready.money.unit}"
    return [f"the ledger keeps the caps that it has (total {total}). Change them with POST /v1/admin/caps."]


def _told(trial: Trial, caps: Caps, ready: Ready, day: int) -> list[str]:
    """What the operator should know of the test."""
    meta, today = trial.experiment.meta, day - trial.first
    if today < 0:
        when = f"begins on {meta.start}: until then nobody is in it"
    elif day >= trial.end:
        when = "is over: nobody is in it any more"
    else:
        when = f"is on day {today} of {meta.days}, with a coverage of {trial.experiment.coverage(today):g}"
    words = [f"the test {trial.name!r} ({', '.join(arm.name for arm in trial.arms)}) {when}."]
    purses = sum(caps.arms.get(name, 0) for name in trial.budgets)
    if caps.total is not None and purses > caps.total:
        total, together = (f"{ready.money.units(amount):g} {ready.money.unit}" for amount in (caps.total, purses))
        words.append(
            f"the arms may spend {together} together, and the total cap is {total}: they will starve one another."
        )
    return words


def _trial(settings: Settings, ready: Ready) -> Trial | None:
    return None if settings.experiment is None else prepare_trial(settings.experiment, ready, settings.config)


def application(settings: Settings) -> FastAPI:
    """The application of one worker."""
    # After the launcher has named the folder of the metrics: prometheus_client looks for it when it is loaded.
    from outlay.server.app import create_app
    from outlay.server.metrics import Metrics
    from outlay.server.service import Service

    async def start() -> Service:
        ready = prepare(settings.bundle, settings.config)
        trial = _trial(settings, ready)
        ledger, clock = await _reached(settings.ledger, ready.campaign, settings.config.timezone)
        serving = Serving(ready, settings.config, settings.pointer, trial)
        # What is loaded by now stays; looking through it for garbage again and again costs a quarter of the time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        return Service(serving, ledger, clock, Metrics())

    return create_app(start, token=settings.token, everywhere=not is_loopback(settings.host))


async def _reached(url: str, campaign: str, timezone: str) -> tuple[Ledger, Clock]:
    """The ledger with its clock, as soon as it can be reached: the launcher has found it, so it will come back.

    A worker that gave up would take the launcher and all other workers with it.
    """
    kept = {number: signal.signal(number, signal.SIG_DFL) for number in ENDS}  # it serves nobody yet
    try:
        while True:
            try:
                return await asyncio.to_thread(_opened, url, campaign, timezone)
            except LedgerError as error:
                log.error("the ledger cannot be reached: %s", error)
            await asyncio.sleep(1)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _opened(url: str, campaign: str, timezone: str) -> tuple[Ledger, Clock]:
    ledger = open_ledger(url)
    try:
        return ledger, clock_of(ledger, campaign, timezone)
    except LedgerError:
        ledger.close()
        raise


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

    arms = {POLICY: exact(config.caps.policy), RANDOM: exact(config.random.cap)}
    return Caps(
        total=exact(config.caps.total),
        day=exact(config.caps.day),
        arms={name: cap for name, cap in arms.items() if cap is not None},
        user_amount=exact(config.user.amount),
        user_offers=config.user.decisions,
        user_day_amount=exact(config.user.amount_per_day),
        user_day_offers=config.user.decisions_per_day,
    )
