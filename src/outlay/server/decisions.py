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
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outlay.server.arms import Arm, Entry
from outlay.server.border import BadRequestError
from outlay.server.clock import Clock
from outlay.server.commit import GroupCommit
from outlay.server.decider import Case, Decider
from outlay.server.features import Row, WrongFeatureError, value_text
from outlay.server.guards import value_refusal
from outlay.server.ids import new_decision_ids
from outlay.server.ledger import Ledger, LedgerError, Proposal, Recorded
from outlay.server.messages import Decision, DecisionRequest, Problem, time_text
from outlay.server.metrics import Metrics
from outlay.server.ready import Ready
from outlay.server.reload import Serving

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
        entry: where the user is in the test that is served; None: never in it.
        inside: the case as the arm's own bundle reads it; None where the arm has none.
    """

    request: DecisionRequest
    case: Case
    ready: Ready
    entry: Entry | None = None
    inside: Case | None = None

    def arm(self, day: int) -> Arm | None:
        """What decides on this day of the server's clock; None: the bundle in service."""
        return self.entry.arm if self.entry is not None and self.entry.holds(day) else None


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
        if self._serving.trial is not None:
            entries = self._serving.trial.entries([each.case.user for each in asked])
            asked = [
                _entered(each, entry, f"$.requests[{i}]" if many else "$")
                for i, (each, entry) in enumerate(zip(asked, entries, strict=True))
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
        try:
            proposals = self._proposals(group, now, day)
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

    def _proposals(self, group: Sequence[Asked], now: int, day: int) -> list[Proposal]:
        """What is proposed for each, in order; those whom one bundle or one arm decides about are decided together."""
        first = group[0].ready
        if self._serving.trial is None and all(asked.ready is first for asked in group):
            return self._proposed(group, now, day)
        alike: defaultdict[int, list[int]] = defaultdict(list)  # two bundles only while one is swapped
        for i, asked in enumerate(group):
            alike[id(asked.arm(day) or asked.ready)].append(i)
        found: dict[int, Proposal] = {}
        for places in alike.values():
            found.update(zip(places, self._proposed([group[i] for i in places], now, day), strict=True))
        return [found[i] for i in range(len(group))]

    def _proposed(self, group: Sequence[Asked], now: int, day: int) -> list[Proposal]:
        arm = group[0].arm(day)
        ready = group[0].ready if arm is None else arm.ready
        episode = self._serving.episode(day, arm)
        config = self._serving.config
        cases = [asked.case if asked.inside is None or arm is None else asked.inside for asked in group]
        choices = self._serving.choices(ready, arm, cases, episode, now)
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
            for (request, case, _, _, _), choice, decision_id in zip(group, choices, ids, strict=True)
        ]

    def _unreachable(self, group: Sequence[Asked], error: Exception) -> list[Decision | Problem]:
        """None for everyone, and nothing is kept."""
        log.error("the ledger cannot be reached: %s", str(error) or "it took too long")
        self._metrics.ledger_errors.inc()
        day = self._clock.day(self._clock.now())
        return [self._unrecorded(asked, day) for asked in group]

    def _unrecorded(self, asked: Asked, day: int) -> Decision:
        served = asked.arm(day)
        ready = asked.ready if served is None else served.ready
        arm = ready.decider.arm_of(asked.case, self._serving.episode(day)) if served is None else served.name
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
    return Case(request.request_id, user, _row(request, ready.decider, path), eligible)


def _entered(asked: Asked, entry: Entry | None, path: str) -> Asked:
    if entry is None or entry.arm.decider is None:
        return asked._replace(entry=entry)
    row = _row(asked.request, entry.arm.decider, path)
    return asked._replace(entry=entry, inside=asked.case._replace(row=row))


def _row(request: DecisionRequest, decider: Decider, path: str) -> Row | None:
    try:
        return decider.encoder.encode(request.features)
    except WrongFeatureError as error:
        problem = Problem(error=f"{error.found}.", where=f"{path}.features.{error.name}")
        raise BadRequestError(422, problem) from None
