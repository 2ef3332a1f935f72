"""Handling of outcomes: redeemed settles a decision's money, refund returns it, other kinds are stored."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Sequence

from outlay.serve.clock import Clock
from outlay.serve.config import MONEY_KINDS
from outlay.serve.handlers.commit import GroupCommit
from outlay.serve.handlers.messages import BadRequestError, EventTime, NotFound, OutcomeAnswer, OutcomeRequest, Problem
from outlay.serve.handlers.metrics import Metrics
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.ledger import Ledger
from outlay.serve.ledger.money import MoneyError
from outlay.serve.ledger.records import Outcome, OutcomeResult
from outlay.serve.user_days.campaign_history import nearest_outcome_kind

OVERRUNS = 3  # of one group of outcomes that are logged one by one

log = logging.getLogger("outlay.serve")


class OutcomeHandler:
    """Records outcomes."""

    def __init__(self, state: ServingState, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self._state = state
        self._clock = clock
        self._metrics = metrics
        self._group = GroupCommit(ledger.outcomes, state.config.ledger_seconds)

    async def settle(self, requests: Sequence[OutcomeRequest], *, many: bool = True) -> list[OutcomeAnswer | Problem]:
        """Return one answer per outcome, in order; a Problem if there is no such decision or the event id is another's.

        Args:
            requests: outcomes, recorded in this order.
            many: whether the body has a list `outcomes` or is itself the outcome; determines paths in errors.

        Raises:
            BadRequestError: 422 if a kind is not declared, or a value is not an amount of money where it has to be;
                then none of them is recorded.
            LedgerError: if the ledger cannot be reached. They can be sent again: no event moves money twice.
            TimeoutError: the same, if the ledger took too long.
        """
        now = self._clock.now()
        paths = [f"$.outcomes[{i}]" for i in range(len(requests))] if many else ["$"]
        events = [self._event(request, now, path) for request, path in zip(requests, paths, strict=True)]
        settled = await self._group(events)
        self._warn([each for each in settled if each.status == "overrun" and not each.replayed])
        return [self._answer(answer, path) for answer, path in zip(settled, paths, strict=True)]

    async def close(self) -> None:
        """Write waiting outcomes and accept no more."""
        await self._group.close()

    def _event(self, request: OutcomeRequest, now: int, path: str) -> Outcome:
        if request.kind not in self._state.kinds:
            raise BadRequestError(422, _undeclared(request.kind, self._state.kinds, path))
        amount = None
        if request.kind in MONEY_KINDS and request.value is not None:
            try:
                amount = self._state.loaded.money.exact(request.value)
            except MoneyError as error:
                raise BadRequestError(
                    422, Problem(error=error.found, where=f"{path}.value", way_out=error.way_out)
                ) from None
        return Outcome(
            decision_id=request.decision_id,
            kind=request.kind,
            event_id=request.event_id,
            ts=now if request.time is None else _milliseconds(request.time),
            received=now,
            value=request.value,
            amount=amount,
            campaign=self._state.loaded.campaign,
        )

    def _warn(self, overruns: Sequence[OutcomeResult]) -> None:
        """Log what exceeds reservations: a caller may send a thousand such outcomes at once."""
        units = self._state.loaded.money.units
        for each in overruns[:OVERRUNS]:
            log.warning(
                "decision %s was redeemed for %s, of which %s exceed the reservation; they count as spent",
                each.decision_id,
                units(each.amount),
                units(each.excess),
            )
        if more := overruns[OVERRUNS:]:
            log.warning(
                "%d more decisions were redeemed for %s in all, of which %s exceed their reservations",
                len(more),
                units(sum(each.amount for each in more)),
                units(sum(each.excess for each in more)),
            )

    def _answer(self, settled: OutcomeResult, path: str) -> OutcomeAnswer | Problem:
        units = self._state.loaded.money.units
        if not settled.replayed:
            self._metrics.outcome(settled.kind, settled.status)
        if settled.status == "unknown":
            return NotFound(error=f"there is no decision {settled.decision_id}.", where=f"{path}.decision_id")
        if settled.status == "conflict":
            return Problem(
                error=f"the event id {settled.event_id!r} was used before with another value.",
                where=f"{path}.event_id",
                way_out="Give every event its own id; a retry repeats the whole outcome.",
            )
        return OutcomeAnswer(
            decision_id=settled.decision_id,
            kind=settled.kind,
            event_id=settled.event_id,
            status=settled.status,
            amount=units(settled.amount),
            excess=units(settled.excess),
            replayed=settled.replayed,
        )


def _undeclared(kind: str, declared: tuple[str, ...], path: str) -> Problem:
    near = nearest_outcome_kind(kind, declared)
    guess = "" if near is None else f" Did you mean {near!r}?"
    return Problem(
        error=f"is {kind!r}, which is not a declared kind of outcome.{guess}",
        where=f"{path}.kind",
        way_out=f"The declared kinds are {', '.join(declared)}. Declare another one in serve.toml: "
        f"outcomes = [{json.dumps(kind, ensure_ascii=False)}].",
    )


def _milliseconds(moment: EventTime) -> int:
    if isinstance(moment, datetime.datetime):
        return int(moment.timestamp() * 1000)
    return int((moment or 0) * 1000)
