"""One process that serves: from settings to an application."""

from __future__ import annotations

import asyncio
import atexit
import gc
import ipaddress
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.routing import Router

from outlay.experiments.design import Experiment
from outlay.serve.clock import Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import LoadedBundle, prepare_bundle
from outlay.serve.experiment.arms import ServedExperiment, load_experiment
from outlay.serve.experiment.rehearsal import clock_of
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.ledger import Ledger, LedgerError

COLLECT = 50_000, 50, 100  # thresholds of the garbage collector: a group of requests makes thousands of objects
ENDS = signal.SIGTERM, signal.SIGINT

log = logging.getLogger("outlay.serve")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class ServerOptions:
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
        change: settings and bundle are to be those of all servers of the ledger.
    """

    bundle: Path
    ledger: str = field(repr=False)
    config: ServeConfig
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = field(default=None, repr=False)
    experiment: Experiment | None = None
    rehearse: float | None = None
    change: bool = False

    def trial(self, loaded: LoadedBundle) -> ServedExperiment | None:
        """The A/B test beside the bundle. Raises OutlayError if the two do not go together."""
        return None if self.experiment is None else load_experiment(self.experiment, loaded, self.config)


def application(settings: ServerOptions) -> Router:
    """The application of one worker."""
    # After the launcher has named the folder of the metrics: prometheus_client looks for it when it is loaded.
    from outlay.serve.handlers.metrics import Metrics
    from outlay.serve.handlers.service import Service
    from outlay.serve.http.app import create_app

    async def start() -> Service:
        with _ends_at_once():
            loaded = prepare_bundle(settings.bundle, settings.config)
            trial = settings.trial(loaded)
            state = ServingState(loaded, settings.config, trial)
            ledger, clock = await _reached(settings.ledger, state)
        # What is loaded by now stays; looking through it for garbage again and again costs a quarter of the time.
        gc.collect()
        gc.freeze()
        atexit.register(gc.unfreeze)  # extensions that count their objects at the end would tell of all that is kept
        gc.set_threshold(*COLLECT)
        return Service(state, ledger, clock, Metrics())

    return create_app(start, token=settings.token, everywhere=not is_loopback(settings.host))


@contextmanager
def _ends_at_once() -> Iterator[None]:
    """What is told to end while it serves nobody yet does so, and does not keep the port open until it is ready."""
    kept = {number: signal.signal(number, signal.SIG_DFL) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


async def _reached(url: str, state: ServingState) -> tuple[Ledger, Clock]:
    """The ledger with its clock, as soon as it can be reached: the launcher has found it, so it will come back.

    All that a worker asks the ledger before it serves is asked here, since one that gave up would take the launcher and
    all other workers with it.
    """
    while True:
        try:
            return await asyncio.to_thread(_opened, url, state)
        except LedgerError as error:
            log.error("the ledger cannot be reached: %s", error)
        await asyncio.sleep(1)


def _opened(url: str, state: ServingState) -> tuple[Ledger, Clock]:
    ledger = open_ledger(url)
    try:
        state.declare_kinds(ledger)
        return ledger, clock_of(ledger, state.loaded.campaign, state.config.timezone)
    except LedgerError:
        ledger.close()
        raise
