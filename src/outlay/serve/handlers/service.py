"""The objects that all requests share, and the maintenance of a server.

Every second, expired reservations are released, the ledger's bundle goes into service, the A/B test gets its coverage
from the ledger, and the price is corrected if it is time.

Reservations are released only while the ledger's clock and the machine's agree, so that neither alone can free them if
it is wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from outlay.core.errors import OutlayError
from outlay.serve.clock import Clock, Moment
from outlay.serve.deciding.loaded_bundle import LoadedBundle
from outlay.serve.handlers.decisions import DecisionHandler
from outlay.serve.handlers.metrics import Metrics
from outlay.serve.handlers.outcomes import OutcomeHandler
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.caps import Totals
from outlay.serve.ledger.clock import TOLERANCE
from outlay.serve.ledger.ledger import Ledger, LedgerError

INTERVAL = 1.0  # seconds between two rounds of maintenance
T = TypeVar("T")

log = logging.getLogger("outlay.serve")


class Service:
    """A server of one campaign.

    Attributes:
        state: the bundle in service and the settings; its kinds of outcomes are declared.
        ledger: the ledger, for calls that are not grouped.
        clock: the server's clock.
        metrics: counts every answer.
        decisions: answers requests for decisions.
        outcomes: records outcomes.
    """

    def __init__(self, state: ServingState, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self.state = state
        self.ledger = ledger
        self.clock = clock
        self.metrics = metrics
        self._touch: asyncio.Future[None] | None = None
        self._untouched: BaseException | None = None  # why the last one failed
        self._logged: list[str] = []  # troubles that are in the log already
        self._failed: dict[str, str] = {}  # tasks of maintenance that what the ledger holds keeps from working
        state.set_pacers(ledger)
        self.decisions = DecisionHandler(state, ledger, clock, metrics)
        self.outcomes = OutcomeHandler(state, ledger, clock, metrics)
        metrics.bundle_in_service(state.loaded.bundle.id)

    async def call(self, method: Callable[..., T], *values: Any) -> T:
        """Call a method of the ledger in a thread. Raises LedgerError, or TimeoutError if it takes too long."""
        async with asyncio.timeout(self.state.config.ledger_seconds):
            return await asyncio.to_thread(method, *values)

    def troubles(self) -> list[str]:
        """Return the reasons why the server is not ready; empty if it is."""
        troubles = [words for words in (self.state.outdated, self.state.behind, *self._failed.values()) if words]
        ahead = self.ledger.clock.ahead()
        if abs(ahead) > TOLERANCE:
            side = "ahead of" if ahead > 0 else "behind"
            troubles.append(
                f"this machine's clock is {abs(ahead) / 1000:,.0f} seconds {side} the ledger's; must be within "
                f"{TOLERANCE / 1000:g}. Decisions use the ledger's clock, and this server releases no reservations "
                "meanwhile. Correct the wrong clock; if it is that of a ledger in a file, start with --change-settings."
            )
        return troubles

    async def totals(self) -> Totals:
        """Return the campaign's money. Raises as `call`."""
        return await self.call(self.ledger.totals, self.state.loaded.campaign)

    async def check_writable(self) -> None:
        """Commit a write that changes nothing, as a decision would; all callers share one. Raises as `call`."""
        if self._touch is None or self._touch.done():
            self._touch = asyncio.ensure_future(asyncio.to_thread(self.ledger.touch, self.state.loaded.campaign))
            self._touch.add_done_callback(self._touched)
        try:
            async with asyncio.timeout(self.state.config.ledger_seconds):
                await asyncio.shield(self._touch)
        except TimeoutError:
            if isinstance(self._untouched, LedgerError):  # the one before took so long that it could say why
                raise self._untouched from None
            raise

    def _touched(self, done: asyncio.Future[None]) -> None:
        self._untouched = None if done.cancelled() else done.exception()

    async def close(self) -> None:
        """Write waiting requests and close the ledger."""
        await self.decisions.close()
        await self.outcomes.close()
        await asyncio.to_thread(self.ledger.close)

    async def run_maintenance(self) -> None:
        """Maintain the server every second, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            self._attempt(self.metrics.features, self.state.loaded.decider.encoder)
            await asyncio.to_thread(self.maintain)

    async def load(self, path: str) -> LoadedBundle:
        """Put another bundle into service. Raises as `ServingState.load`."""
        try:
            loaded = await asyncio.to_thread(self.state.load, path, self.ledger, self.clock.now())
        except OutlayError as error:
            log.error("bundle %s does not go into service: %s", path, error)
            raise
        self._in_service(loaded)
        return loaded

    def maintain(self) -> None:
        """Do one round of maintenance; slow, so call it from a thread.

        A failed task is logged, and the others still run. If it fails at what the ledger holds, such as a test that
        only a newer version can read, the server is not ready until it succeeds.
        """
        now = self.clock.now()
        for task in (self._follow, self._update, self._release):  # releasing a whole day's reservations takes long
            self._attempt(task, now)
        self.metrics.clock(self.ledger.clock.ahead() / 1000)

    def _attempt(self, task: Callable[[T], object], value: T) -> None:
        try:
            task(value)
            self._failed.pop(task.__name__, None)
        except LedgerError as error:
            log.error("maintenance of the server failed: %s", error)
        except OutlayError as error:
            log.error("maintenance of the server failed: %s", error)
            self._failed[task.__name__] = str(error)
        except Exception:  # maintenance has to continue: without it no reservation expires
            log.exception("maintenance of the server failed")

    def _release(self, now: int) -> None:
        troubles = self.troubles()
        if new := [words for words in troubles if words not in self._logged]:
            log.error("not ready: %s", " ".join(new))
        elif self._logged and not troubles:
            log.warning("ready again")
        self._logged = troubles
        if abs(self.ledger.clock.ahead()) <= TOLERANCE:
            self.ledger.release(self.state.loaded.campaign, now)

    def _update(self, now: int) -> None:
        self.state.update(self.ledger, Moment.of(now, self.state.config.zone).day, now)
        self.metrics.prices(self.state.prices)

    def _follow(self, now: int) -> None:
        if (loaded := self.state.follow(self.ledger, now)) is not None:
            self._in_service(loaded)

    def _in_service(self, loaded: LoadedBundle) -> None:
        self.metrics.bundle_in_service(self.state.loaded.bundle.id)  # two swaps may be reported in the other order
        log.warning("bundle %s is in service", loaded.bundle.id)
