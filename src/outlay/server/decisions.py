"""From requests to answers: decide, ask the ledger, say what it wrote.

    request ─▶ case ─┐
    request ─▶ case ─┼─ group: choices ─▶ guards ─▶ proposals ─▶ one transaction ─▶ decisions
    request ─▶ case ─┘

Requests wait for the disk anyway, so those that wait together are decided together: a row among sixty-four costs a
tenth of a row alone. An answer leaves only after the ledger has it on disk. Where the ledger cannot be reached in time
the answer is none, free of charge, and names no decision; the same request id may then be asked again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outlay.server.border import BadRequestError
from outlay.server.clock import Clock
from outlay.server.commit import GroupCommit
from outlay.server.decider import Case
from outlay.server.features import WrongFeatureError, value_text
from outlay.server.guards import value_refusal
from outlay.server.ids import new_decision_ids
from outlay.server.ledger import Ledger, LedgerError, Proposal, Recorded
from outlay.server.messages import Decision, DecisionRequest, Problem, time_text
from outlay.server.metrics import Metrics
from outlay.server.reload import Ready, Serving

LEDGER_UNAVAILABLE = "ledger_unavailable"
HOUR = 3_600_000  # milliseconds

log = logging.getLogger("outlay.serve")
_canonical = msgspec.json.Encoder(order="deterministic")
_json = msgspec.json.Encoder()


class Asked(NamedTuple):
    """A request on its way into a group.

    Attributes:
        request: as it came.
        case: of this request, encoded for `ready`.
        ready: the bundle that was in service when it came.
    """

    request: DecisionRequest
    case: Case
    ready: Ready


class DecisionDesk:
    """Answers requests for decisions."""

    def __init__(self, serving: Serving, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self._serving = serving
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._group = GroupCommit(self.answer_group, serving.config.ledger_seconds)

    async def decide(self, requests: Sequence[DecisionRequest], *, many: bool = True) -> list[Decision | Problem]:
        """One answer per request, in order; a Problem where the id belongs to another request.

        Args:
            requests: are decided alone, in this order.
            many: they came under `requests`; else the one is the body itself. For paths in errors.

        Raises:
            BadRequestError: 422 if a request cannot be decided; then none of them is.
        """
        ready = self._serving.ready
        asked = [
            Asked(request, _case(request, ready, f"$.requests[{i}]" if many else "$"), ready)
            for i, request in enumerate(requests)
        ]
        try:
            answers = await self._group(asked)
        except (LedgerError, TimeoutError) as error:
            return self._unreachable(asked, error)
        if not many:
            return answers
        return [
            replace(answer, where=f"$.requests[{i}].request_id") if isinstance(answer, Problem) else answer
            for i, answer in enumerate(answers)
        ]

    def answer_group(self, group: Sequence[Asked]) -> list[Decision | Problem]:
        """Decide and record what came together. Runs in the thread that writes."""
        now = self._clock.now()
        day = self._clock.day(now)
        proposals: list[Proposal] = []
        try:
            for _, alike in groupby(group, key=lambda asked: id(asked.ready)):  # two only while a bundle is swapped
                proposals += self._proposals(list(alike), now, day)
            start = time.perf_counter()
            recorded = self._ledger.record(proposals)
        except LedgerError as error:
            return self._unreachable(group, error)
        self._metrics.ledger_seconds.observe(time.perf_counter() - start)
        new = Counter((r.arm, r.member, r.reason) for r in recorded if r.status == "new")
        campaign = self._serving.ready.campaign
        for (arm, member, reason), count in new.items():
            self._metrics.decided(campaign, arm, member, reason).inc(count)
        return [self._answer(answer) for answer in recorded]

    async def close(self) -> None:
        """Write what waits; nothing more is taken."""
        await self._group.close()

    def _proposals(self, group: list[Asked], now: int, day: int) -> list[Proposal]:
        ready = group[0].ready
        episode = self._serving.episode(day)
        config = self._serving.config
        decider = self._serving.decider(ready, episode, now)
        choices = decider.decide([asked.case for asked in group], episode)
        expires = now + int(config.expiry_hours * HOUR)
        campaign, bundle, none = ready.campaign, ready.bundle.id, ready.decider.none
        ids = new_decision_ids(now, len(group))
        return [
            Proposal(
                campaign=campaign,
                request_id=request.request_id,
                body=hashlib.blake2b(_canonical.encode(request), digest_size=16).hexdigest(),
                decision_id=decision_id,
                ts=now,
                time=time_text(request.time),
                day=day,
                arm=choice.arm,
                user=case.user,
                episode=episode,
                bundle=bundle,
                member=choice.member,
                action=choice.action,
                action_index=choice.index,
                amount=ready.amount(choice.index),
                probability=min(choice.probability, 1.0),  # a sum of weights may be a rounding above
                members=choice.members,
                features=_json.encode(request.features).decode(),
                reason=choice.reason,
                expires=expires,
                forced=choice.forced,
                none_action=none,
                none_index=ready.none_index,
                refused=value_refusal(config.values, choice.action, none),
            )
            for (request, case, _), choice, decision_id in zip(group, choices, ids, strict=True)
        ]

    def _unreachable(self, group: Sequence[Asked], error: Exception) -> list[Decision | Problem]:
        """None for everyone, and nothing is kept."""
        log.error("the ledger cannot be reached: %s", str(error) or "it took too long")
        self._metrics.ledger_errors.inc()
        episode = self._serving.episode(self._clock.day(self._clock.now()))
        return [self._unrecorded(asked.ready, asked.ready.decider.arm_of(asked.case, episode)) for asked in group]

    def _unrecorded(self, ready: Ready, arm: str) -> Decision:
        self._metrics.decided(ready.campaign, arm, None, LEDGER_UNAVAILABLE).inc()
        return Decision(
            decision_id=None,
            action=ready.decider.none,
            action_index=None if ready.none_index < 0 else ready.none_index,
            member=None,
            probability=1.0,
            bundle=ready.bundle.id,
            reason=LEDGER_UNAVAILABLE,
            arm=arm,
        )

    def _answer(self, recorded: Recorded) -> Decision | Problem:
        if recorded.status == "conflict":
            return Problem(
                error=f"the request id {recorded.request_id!r} belongs to another request.",
                where="$.request_id",
                way_out="Give every decision an id of its own; a retry repeats the whole request.",
            )
        return Decision(
            decision_id=recorded.decision_id,
            action=recorded.action,
            action_index=None if recorded.action_index < 0 else recorded.action_index,
            member=recorded.member,
            probability=recorded.probability,
            bundle=recorded.bundle,
            reason=recorded.reason,
            arm=recorded.arm,
        )


def _case(request: DecisionRequest, ready: Ready, path: str) -> Case:
    user = value_text(request.user_id)
    if user is None:
        raise BadRequestError(422, Problem(error=f"{request.user_id!r} names no user.", where=f"{path}.user_id"))
    eligible: NDArray[np.bool_] | None = None
    if request.eligible is not None:
        eligible = np.zeros(len(ready.amounts), np.bool_)
        for i, action in enumerate(request.eligible):
            index = ready.decider.index_of(action)
            if index < 0 and action != ready.decider.none:
                raise BadRequestError(
                    422,
                    Problem(
                        error=f"{action:g} is not one of the actions {ready.bundle.actions.tolist()}.",
                        where=f"{path}.eligible[{i}]",
                    ),
                )
            if index >= 0:
                eligible[index] = True
    try:
        row = ready.decider.encoder.encode(request.features)
    except WrongFeatureError as error:
        problem = Problem(error=f"{error.found}.", where=f"{path}.features.{error.name}")
        raise BadRequestError(422, problem) from None
    return Case(request.request_id, user, row, eligible)
