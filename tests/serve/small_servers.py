"""A server of the small bundle on a ledger in a file, asked without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import ledger_waits  # noqa: F401  (for what it sets)
from starlette.routing import Router

from outlay.bundles.decide import Bundle
from outlay.experiments.design import Experiment
from outlay.serve.clock import Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.experiment import load_experiment
from outlay.serve.handlers.metrics import Metrics
from outlay.serve.handlers.service import Service
from outlay.serve.handlers.state import ServingState
from outlay.serve.http.app import create_app
from outlay.serve.http.tokens import Tokens
from outlay.serve.ledger.caps import Totals
from outlay.serve.ledger.clock import HERE, Machine
from outlay.serve.ledger.ledger import LedgerError
from outlay.serve.ledger.records import Proposal, Recorded
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.shared_settings import agree_settings
from patience import PATIENCE

RESERVE = {"0": 0.0, "1.5": 1.5, "3": 3.0}
USE_TOKEN, ADMIN_TOKEN = "the-application-s", "the-administrator-s"
USE, ADMIN = ({"Authorization": f"Bearer {token}"} for token in (USE_TOKEN, ADMIN_TOKEN))
STATE = {"level": 1, "city": "Ulm", "spend": 12.5}
T = TypeVar("T")


class BrokenLedger(SqliteLedger):
    """Out of reach as soon as `broken` is set."""

    broken = False

    def record(self, proposals: Sequence[Proposal]) -> list[Recorded]:
        """As usual, or not at all."""
        self._check()
        return super().record(proposals)

    def totals(self, campaign: str) -> Totals:
        """As usual, or not at all."""
        self._check()
        return super().totals(campaign)

    def outcomes(self, events: Any) -> Any:
        """As usual, or not at all."""
        self._check()
        return super().outcomes(events)

    def _check(self) -> None:
        if self.broken:
            raise LedgerError("the disk is full.")


class Client:
    """Asks an application in an event loop of its own, which stands still between the questions."""

    def __init__(self, app: Router, state: Mapping[str, Any], runner: asyncio.Runner) -> None:
        self.service: Service = state["service"]
        self._runner = runner

        async def served(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": state}, receive, send)  # as uvicorn does

        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://server")

    def get(self, path: str, **more: Any) -> httpx.Response:
        """GET."""
        return self._runner.run(self._http.get(path, **more))

    def post(self, path: str, **more: Any) -> httpx.Response:
        """POST."""
        return self._runner.run(self._http.post(path, **more))

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Any method."""
        return self._runner.run(self._http.request(method, path, **more))

    def post_together(self, path: str, bodies: Iterable[Any], every: float = 0.0, **more: Any) -> list[httpx.Response]:
        """POST all of them at once, or one after so many seconds, whether or not the others have their answers."""

        async def one(body: Any, after: float) -> httpx.Response:
            await asyncio.sleep(after)
            return await self._http.post(path, json=body, **more)

        async def ask() -> list[httpx.Response]:
            return await asyncio.gather(*(one(body, every * number) for number, body in enumerate(bodies)))

        return self._runner.run(ask())

    def play(self, story: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
        """Ask in any order, while the application runs."""

        async def play() -> T:
            return await story(self._http)

        return self._runner.run(play())


@contextmanager
def server(
    bundle: Bundle | Path,
    ledger: Path,
    *,
    use: str | None = None,
    admin: str | None = ADMIN_TOKEN,
    clock: Clock | None = None,
    machine: Machine = HERE,
    change: bool = True,
    experiment: Experiment | None = None,
    history: Path | None = None,
    **settings: Any,
) -> Iterator[Client]:
    config = ServeConfig.parse({"reserve": RESERVE, "ledger_seconds": PATIENCE, **settings})
    loaded = prepare_bundle(bundle if isinstance(bundle, Path) else bundle.folder, config, history=history)
    trial = None if experiment is None else load_experiment(experiment, loaded, config, history)

    async def start() -> Service:
        kept = BrokenLedger(ledger, machine)
        agree_settings(kept, loaded, config, trial, clock, change=change)
        own = clock or Clock(config.timezone, kept.clock.seconds)
        state = ServingState(loaded, config, trial=trial, history=history)
        state.begin(kept)
        return Service(state, kept, own, Metrics())

    app = create_app(start, Tokens(use, admin))
    lifespan = app.lifespan_context(app)
    with asyncio.Runner() as runner:
        state = runner.run(lifespan.__aenter__())
        assert state is not None
        try:
            yield Client(app, state, runner)
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


def request(number: int = 0, **changes: Any) -> dict[str, Any]:
    return {"request_id": f"r{number}", "user_id": f"user-{number}", "features": STATE} | changes
