"""What all requests share, and what a server does beside answering.

Every second reservations that have expired are released, the bundle that the ledger has goes into service, a
test has the coverage that the ledger knows, and the price is corrected if it is time.

Reservations end only where the ledger's clock and the machine's agree, so that no single clock that is wrong can free
them: neither this machine's nor the ledger's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from outlay.core.errors import OutlayError
from outlay.serve.clock import Clock, Moment
from outlay.serve.deciding.loaded_bundle import LoadedBundle
from outlay.serve.handlers.complaints import RepeatFilter
from outlay.serve.handlers.decisions import DecisionHandler
from outlay.serve.handlers.metrics import Metrics
from outlay.serve.handlers.outcomes import OutcomeHandler
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.caps import Totals
from outlay.serve.ledger.clock import TOLERANCE
from outlay.serve.ledger.ledger import Ledger

EVERY = 1.0  # seconds
T = TypeVar("T")

log = logging.getLogger("outlay.serve")


class Service:
    """A server of one campaign. Asks the ledger nothing before it is asked itself.

    Attributes:
        state: the bundle in service and the settings; its kinds of outcomes are declared.
        ledger: for what is not in a hurry.
        clock: the server's.
        metrics: are raised with every answer.
        decisions: answers requests for decisions.
        outcomes: takes outcomes.
    """

    def __init__(self, state: ServingState, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self.state = state
        self.ledger = ledger
        self.clock = clock
        self.metrics = metrics
        self._complaints = RepeatFilter()
        self._touching: asyncio.Future[None] | None = None
        self._told: list[str] = []  # troubles that are in the log already
        log.addFilter(self._complaints)
        state.pace(ledger)
        self.decisions = DecisionHandler(state, ledger, clock, metrics)
        self.outcomes = OutcomeHandler(state, ledger, clock, metrics)
        metrics.bundle_in_service(state.loaded.bundle.id)

    async def call(self, method: Callable[..., T], *values: Any) -> T:
        """A method of the ledger, in a thread. Raises LedgerError, or TimeoutError if it takes too long."""
        async with asyncio.timeout(self.state.config.ledger_seconds):
            return await asyncio.to_thread(method, *values)

    def troubles(self) -> list[str]:
        """Why it is not ready, in words; empty where it is."""
        found = [words for words in (self.state.outdated, self.state.behind) if words]
        ahead = self.ledger.clock.ahead()
        if abs(ahead) <= TOLERANCE:
            return found
        side = "ahead of" if ahead > 0 else "behind"
        return [
            *found,
            f"this machine's clock is {abs(ahead) / 1000:,.0f} seconds {side} the ledger's; they may differ by "
            f"{TOLERANCE / 1000:g}. Decisions go by the ledger's, and this server ends no reservation meanwhile. Set "
            "the wrong one right.",
        ]

    async def totals(self) -> Totals:
        """The campaign's money. Raises as `call`."""
        return await self.call(self.ledger.totals, self.state.loaded.campaign)

    async def check_writable(self) -> None:
        """Commit a write that changes nothing; whoever asks meanwhile waits for the same. Raises as `call`."""
        if self._touching is None or self._touching.done():
            self._touching = asyncio.ensure_future(asyncio.to_thread(self.ledger.touch))
            self._touching.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # if nobody waits for it
        async with asyncio.timeout(self.state.config.ledger_seconds):
            await asyncio.shield(self._touching)

    async def close(self) -> None:
        """Write what is waiting and give the ledger back."""
        await self.decisions.close()
        await self.outcomes.close()
        await asyncio.to_thread(self.ledger.close)
        log.removeFilter(self._complaints)

    async def look_after(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            _try(self.metrics.features, self.state.loaded.decider.encoder)
            await asyncio.to_thread(self.tend)

    async def load(self, path: str) -> LoadedBundle:
        """Put another bundle into service. Raises as `Serving.load`."""
        try:
            loaded = await asyncio.to_thread(self.state.load, path, self.ledger, self.clock.now())
        except OutlayError as error:
            log.error("bundle %s does not go into service: %s", path, error)
            raise
        self._in_service(loaded)
        return loaded

    def tend(self) -> None:
        """Once; slow, so call it from a thread. What fails is said in the log and keeps no other duty undone."""
        now = self.clock.now()
        for duty in (self._follow, self._steer, self._release):  # a whole day's reservations may wait for release
            _try(duty, now)
        self.metrics.clock(self.ledger.clock.ahead() / 1000)

    def _release(self, now: int) -> None:
        troubles = self.troubles()
        if new := [words for words in troubles if words not in self._told]:
            log.error("not ready: %s", " ".join(new))
        elif self._told and not troubles:
            log.warning("ready again")
        self._told = troubles
        if abs(self.ledger.clock.ahead()) <= TOLERANCE:
            self.ledger.release(self.state.loaded.campaign, now)

    def _steer(self, now: int) -> None:
        self.state.tend(self.ledger, Moment.of(now, self.state.config.zone).day, now)
        self.metrics.prices(self.state.prices)

    def _follow(self, now: int) -> None:
        if (loaded := self.state.follow(self.ledger, now)) is not None:
            self._in_service(loaded)

    def _in_service(self, loaded: LoadedBundle) -> None:
        self.metrics.bundle_in_service(self.state.loaded.bundle.id)  # two swaps may be told in the other order
        log.warning("bundle %s is in service", loaded.bundle.id)


def _try(duty: Callable[[T], object], value: T) -> None:
    try:
        duty(value)
    except OutlayError as error:  # of the ledger, or of an announced bundle
        log.error("looking after the server failed: %s", error)
    except Exception:  # it has to go on: without it nothing expires
        log.exception("looking after the server failed")
