"""From requests to answers: decide, ask the ledger, say what it wrote.

    request ─▶ case ─┐
    request ─▶ case ─┼─ group: choices ─▶ guards ─▶ proposals ─▶ one transaction ─▶ decisions
    request ─▶ case ─┘

Requests wait for the disk anyway, so those that wait together are decided together: a row among sixty-four costs a
tenth of a row alone. An answer leaves only after the ledger has it on disk. Where the ledger cannot be reached in time
it is none for now, free of charge, and names no decision: this try is not written, but an earlier one may be, or is on
its way to the ledger, so only an answer that names a decision is the last word. Where it may still be written there is
no answer, but an UndecidedError.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from outlay.serve.clock import Clock
from outlay.serve.deciding.guards import value_refusal
from outlay.serve.handlers.asked import PendingRequest, pending_requests
from outlay.serve.handlers.commit import GroupCommit
from outlay.serve.handlers.messages import DecisionAnswer, DecisionRequest, Problem, time_text
from outlay.serve.handlers.metrics import Metrics
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.ledger import Ledger, LedgerError, UndecidedError
from outlay.serve.ledger.records import Proposal, Recorded, new_decision_ids

LEDGER_UNAVAILABLE = "ledger_unavailable"
HOUR = 3_600_000  # milliseconds

log = logging.getLogger("outlay.serve")
_canonical = msgspec.json.Encoder(order="deterministic")
_json = msgspec.json.Encoder()


def unrecorded(answers: Sequence[DecisionAnswer | Problem]) -> bool:
    """Whether the answers to a body are none for now; what comes in one body is written, or not, as one."""
    return any(isinstance(first, DecisionAnswer) and first.decision_id is None for first in answers[:1])


class DecisionHandler:
    """Answers requests for decisions."""

    def __init__(self, state: ServingState, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self._state = state
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._group = GroupCommit(self.answer_group, state.config.ledger_seconds)

    async def decide(self, requests: Sequence[DecisionRequest], *, many: bool = True) -> list[DecisionAnswer | Problem]:
        """One answer per request, in order; a Problem where the id belongs to another request.

        Args:
            requests: are decided alone, in this order.
            many: they came under `requests`; else the one is the body itself. For paths in errors.

        Raises:
            BadRequestError: 422 if a request cannot be decided; then none of them is.
            UndecidedError: if their transaction has no known end. Asked again, they get what was decided.
        """
        asked = pending_requests(requests, self._state.loaded, self._state.trial, many=many)
        try:
            answers = await self._group(asked)
        except UndecidedError:
            self._metrics.ledger_errors.inc()
            raise
        except (LedgerError, TimeoutError) as error:
            return self._unreachable(asked, error)
        if not many:
            return answers
        return [
            replace(answer, where=f"$.requests[{i}].request_id") if isinstance(answer, Problem) else answer
            for i, answer in enumerate(answers)
        ]

    def answer_group(self, group: Sequence[PendingRequest]) -> list[DecisionAnswer | Problem]:
        """Decide and record what came together. Runs in the thread that writes. Raises UndecidedError."""
        now = self._clock.now()
        day = self._clock.day(now)
        try:
            if self._state.outdated:
                raise LedgerError(self._state.outdated, way_out="Start this server again with the ledger's settings.")
            proposals = self._proposals(group, now, day)
            start = time.perf_counter()
            recorded = self._ledger.record(proposals)
        except UndecidedError:
            raise
        except LedgerError as error:
            return self._unreachable(group, error)
        self._metrics.ledger_seconds.observe(time.perf_counter() - start)
        new = Counter((r.arm, r.member, r.reason) for r in recorded if r.status == "new")
        campaign = self._state.loaded.campaign
        for (arm, member, reason), count in new.items():
            self._metrics.decided(campaign, arm, member, reason).inc(count)
        return [self._answer(answer) for answer in recorded]

    async def close(self) -> None:
        """Write what waits; nothing more is taken."""
        await self._group.close()

    def _proposals(self, group: Sequence[PendingRequest], now: int, day: int) -> list[Proposal]:
        """What is proposed for each, in order; those whom one bundle or one arm decides about are decided together."""
        first = group[0].loaded
        if self._state.trial is None and all(asked.loaded is first for asked in group):
            return self._proposed(group, now, day)
        alike: defaultdict[int, list[int]] = defaultdict(list)  # two bundles only while one is swapped
        for i, asked in enumerate(group):
            alike[id(asked.arm(day) or asked.loaded)].append(i)
        found: dict[int, Proposal] = {}
        for places in alike.values():
            found.update(zip(places, self._proposed([group[i] for i in places], now, day), strict=True))
        return [found[i] for i in range(len(group))]

    def _proposed(self, group: Sequence[PendingRequest], now: int, day: int) -> list[Proposal]:
        arm = group[0].arm(day)
        loaded = group[0].loaded if arm is None else arm.loaded
        episode = self._state.episode(day, arm)
        config = self._state.config
        cases = [asked.case if asked.inside is None or arm is None else asked.inside for asked in group]
        choices = self._state.choices(loaded, arm, cases, episode, now)
        expires = now + int(config.expiry_hours * HOUR)
        campaign, bundle, none = loaded.campaign, loaded.bundle.id, loaded.decider.none
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
                amount=loaded.amount(choice.index),
                probability=min(choice.probability, 1.0),  # a sum of weights may be a rounding above
                members=choice.members,
                features=_json.encode(request.features).decode(),
                reason=choice.reason,
                expires=expires,
                forced=choice.forced,
                none_action=none,
                none_index=loaded.none_index,
                refused=value_refusal(config.values, choice.action, none),
            )
            for (request, case, _, _, _), choice, decision_id in zip(group, choices, ids, strict=True)
        ]

    def _unreachable(self, group: Sequence[PendingRequest], error: Exception) -> list[DecisionAnswer | Problem]:
        """None for everyone, for now: nothing is written by this try."""
        self._metrics.ledger_errors.inc()
        log.error("decisions were not written: %s", str(error) or "the ledger took too long")
        day = self._clock.day(self._clock.now())
        return [self._unrecorded(asked, day) for asked in group]

    def _unrecorded(self, asked: PendingRequest, day: int) -> DecisionAnswer:
        served = asked.arm(day)
        loaded = asked.loaded if served is None else served.loaded
        arm = loaded.decider.arm_of(asked.case, self._state.episode(day)) if served is None else served.name
        self._metrics.decided(loaded.campaign, arm, None, LEDGER_UNAVAILABLE).inc()
        return DecisionAnswer(
            decision_id=None,
            action=loaded.decider.none,
            action_index=None if loaded.none_index < 0 else loaded.none_index,
            member=None,
            probability=1.0,
            bundle=loaded.bundle.id,
            reason=LEDGER_UNAVAILABLE,
            arm=arm,
        )

    def _answer(self, recorded: Recorded) -> DecisionAnswer | Problem:
        if recorded.status == "conflict":
            return Problem(
                error=f"the request id {recorded.request_id!r} belongs to another request.",
                where="$.request_id",
                way_out="Give every decision an id of its own; a retry repeats the whole request.",
            )
        return DecisionAnswer(
            decision_id=recorded.decision_id,
            action=recorded.action,
            action_index=None if recorded.action_index < 0 else recorded.action_index,
            member=recorded.member,
            probability=recorded.probability,
            bundle=recorded.bundle,
            reason=recorded.reason,
            arm=recorded.arm,
        )
