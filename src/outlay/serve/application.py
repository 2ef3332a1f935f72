"""One process that serves: from the options of a server to its ASGI application."""

from __future__ import annotations

import asyncio
import atexit
import gc
import ipaddress
import logging
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from starlette.routing import Router

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment
from outlay.serve.clock import Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import LoadedBundle, prepare_bundle
from outlay.serve.experiment import ServedExperiment, load_experiment
from outlay.serve.handlers.state import ServingState
from outlay.serve.http.tokens import Tokens
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.rehearsal import clock_of

# Thresholds of the garbage collector: a group of requests makes thousands of objects. What is loaded is frozen, so the
# oldest generation is small, and garbage in it waits for two million objects and not for more memory than there is.
COLLECT = 50_000, 20, 2
STOP_SIGNALS = signal.SIGTERM, signal.SIGINT

log = logging.getLogger("outlay.serve")


@dataclass(frozen=True)
class ServerOptions:
    """What to serve and how.

    Attributes:
        bundle: folder of the bundle.
        ledger: `sqlite:///path` (relative to the working folder; four slashes: absolute) or `postgresql://…`.
        config: settings of serve.toml, with `--cap`.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        workers: number of processes.
        tokens: the secrets of callers, from OUTLAY_TOKEN and OUTLAY_ADMIN_TOKEN.
        experiment: the A/B test to serve, or None.
        rehearse: seconds that a day lasts; None: days are real.
        history: a log or a DATA folder with the past of users before the ledger began, or None.
        campaign: that of the bundle; known once the launcher has loaded it.
        shared: a folder in which the workers share vocabularies; None: there is one process.
        change: whether settings and bundle become those of all servers of the ledger.
    """

    bundle: Path
    ledger: str = field(repr=False)
    config: ServeConfig
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    tokens: Tokens = field(default_factory=Tokens)
    experiment: Experiment | None = None
    rehearse: float | None = None
    history: Path | None = None
    campaign: str = ""
    shared: Path | None = None
    change: bool = False

    def load_experiment(self, loaded: LoadedBundle) -> ServedExperiment | None:
        """Return the A/B test to serve beside the bundle. Raises OutlayError if the two do not fit."""
        if self.experiment is None:
            return None
        return load_experiment(self.experiment, loaded, self.config, self.history, self.shared)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def application(options: ServerOptions) -> Router:
    """Return the application of one worker."""
    # After the launcher has named the folder of the metrics: prometheus_client looks for it when it is imported.
    from outlay.serve.handlers.metrics import Metrics
    from outlay.serve.handlers.service import Service
    from outlay.serve.http.app import create_app

    async def start() -> Service:
        with _stopped_by_signals():
            state = await _load(options)
            ledger, clock = await _reach_ledger(options.ledger, state)
        # What is loaded by now stays; searching it for garbage again and again takes a quarter of the time.
        gc.collect()
        gc.freeze()
        gc.collect()  # for its count of what is left: the oldest generation waits until there is a quarter more
        atexit.register(gc.unfreeze)  # or extensions that count their objects at exit would report all that is frozen
        gc.set_threshold(*COLLECT)
        return Service(state, ledger, clock, Metrics())

    return create_app(start, options.tokens)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let signals end the process at once while it serves nobody yet, so that it does not keep the port open."""
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


async def _load(options: ServerOptions) -> ServingState:
    """Return the state with the bundle and the test of the options, or with the bundle that is in service by now.

    The launcher has loaded them, so a worker that cannot is one that was started again later, when the folder was gone
    or being replaced. It tries again every second: if it gave up, the launcher would stop all other workers. The same
    error is logged once.
    """
    told = ""
    while True:
        try:
            loaded = _loaded(options)
            trial = options.load_experiment(loaded)
            return ServingState(loaded, options.config, trial, options.history, options.shared)
        except OutlayError as error:
            if options.workers == 1:
                raise
            if str(error) != told:
                told = str(error)
                log.error("this worker cannot load what it is to serve, and will try every second: %s", told)
        await asyncio.sleep(1)


def _loaded(options: ServerOptions) -> LoadedBundle:
    prepare = partial(prepare_bundle, config=options.config, history=options.history, shared=options.shared)
    try:
        return prepare(options.bundle)
    except OutlayError:
        with closing(open_ledger(options.ledger, create=False)) as ledger:
            kept = ledger.config(options.campaign)
        if kept is None or not kept.bundle or Path(kept.path) == options.bundle.absolute():
            raise
        loaded = prepare(kept.path, campaign=options.campaign)
        if loaded.bundle.id != kept.bundle:  # another bundle is in that folder by now
            raise
        return loaded


async def _reach_ledger(url: str, state: ServingState) -> tuple[Ledger, Clock]:
    """Return the ledger and its clock once it can be reached; the launcher has reached it, so it will come back.

    All that a worker asks the ledger before it serves is asked here: a worker that gave up would end the launcher and
    all other workers.
    """
    while True:
        try:
            return await asyncio.to_thread(_open_ledger, url, state)
        except LedgerError as error:
            log.error("the ledger cannot be reached: %s", error)
        await asyncio.sleep(1)


def _open_ledger(url: str, state: ServingState) -> tuple[Ledger, Clock]:
    ledger = open_ledger(url, create=False)  # the launcher has created it: if it is gone, a new one would be empty
    try:
        state.begin(ledger)
        return ledger, clock_of(ledger, state.loaded.campaign, state.config.timezone)
    except LedgerError:
        ledger.close()
        raise
