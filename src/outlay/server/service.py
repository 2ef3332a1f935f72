"""What all requests share, and what a server does beside answering.

Every second reservations that have expired are released, the pause is read (another server may have been told), and a
bundle that another worker announced goes into service.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from outlay.core.errors import OutlayError
from outlay.server.clock import Clock
from outlay.server.decisions import DecisionDesk
from outlay.server.ledger import Ledger, LedgerError, Totals
from outlay.server.metrics import Metrics
from outlay.server.outcomes import OutcomeDesk
from outlay.server.reload import Serving

EVERY = 1.0  # seconds
T = TypeVar("T")

log = logging.getLogger("outlay.serve")


class Service:
    """A server of one campaign.

    Attributes:
        serving: the bundle in service and the settings.
        ledger: for what is not in a hurry.
        clock: the server's.
        metrics: are raised with every answer.
        decisions: answers requests for decisions.
        outcomes: takes outcomes.
    """

    def __init__(self, serving: Serving, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self.serving = serving
        self.ledger = ledger
        self.clock = clock
        self.metrics = metrics
        self.decisions = DecisionDesk(serving, ledger, clock, metrics)
        self.outcomes = OutcomeDesk(serving, ledger, clock, metrics)
        metrics.serving(serving.ready.bundle.id)

    async def call(self, method: Callable[..., T], *values: Any) -> T:
        """A method of the ledger, in a thread. Raises LedgerError, or TimeoutError if it takes too long."""
        async with asyncio.timeout(self.serving.config.ledger_seconds):
            return await asyncio.to_thread(method, *values)

    async def totals(self) -> Totals:
        """The campaign's money. Raises as `call`."""
        return await self.call(self.ledger.totals, self.serving.ready.campaign)

    async def close(self) -> None:
        """Write what is waiting and give the ledger back."""
        await self.decisions.close()
        await self.outcomes.close()
        await asyncio.to_thread(self.ledger.close)

    async def look_after(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.ledger.release, self.clock.now())
                self.decisions.paused = (await self.totals()).paused
                self.metrics.features(self.serving.ready.decider.encoder)
                if (path := self.serving.announced()) is not None:
                    await self.load(path)
            except (LedgerError, TimeoutError) as error:
                log.error("the ledger cannot be reached: %s", error or "it took too long")
            except Exception:  # it has to go on: without it nothing expires
                log.exception("looking after the server failed")
            await asyncio.sleep(EVERY)

    async def load(self, path: str) -> OutlayError | None:
        """Put another bundle into service. What was wrong with it, if it was not; the old one then stays."""
        try:
            ready = await asyncio.to_thread(self.serving.load, path)
        except OutlayError as error:
            log.error("bundle %s does not go into service: %s", path, error)
            return error
        self.metrics.serving(ready.bundle.id)
        log.warning("bundle %s is in service", ready.bundle.id)
        return None
