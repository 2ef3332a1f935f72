"""Handling of decision requests: choose actions, reserve the money in the ledger, and answer.

    request ─▶ encoded ─┐
    request ─▶ encoded ─┼─ group: choices ─▶ guards ─▶ proposals ─▶ one transaction ─▶ answers
    request ─▶ encoded ─┘

Requests have to wait for the disk anyway, so they are decided in groups: a request in a group of 64 costs a tenth of a
single one. An answer is sent only after the ledger has written it to disk. If the ledger cannot be reached in time, the
answer is "no incentive" without a decision id: this attempt was not written, but an earlier one may have been, so only
an answer with a decision id is final. If this attempt may still be written, an UndecidedError is raised instead.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outlay.core.actions import ActionNames, named
from outlay.serve.clock import Clock
from outlay.serve.deciding.decider import Decider, EncodedRequest, decode_draw, encode_draw, value_refusal
from outlay.serve.deciding.features import (
    EncodedRow,
    FeatureValueError,
    PastDay,
    PastError,
    Summaries,
    check_past,
    value_text,
)
from outlay.serve.deciding.loaded_bundle import ARM_BUNDLE, BUNDLE, LoadedBundle, every_action, noted_bundle
from outlay.serve.experiment import Enrolment, ServedArm, ServedExperiment
from outlay.serve.handlers.commit import GroupCommit
from outlay.serve.handlers.messages import (
    BadRequestError,
    DecisionAnswer,
    DecisionRequest,
    DecisionState,
    Problem,
    cluster_text,
    time_text,
)
from outlay.serve.handlers.metrics import Metrics
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.ledger import Ledger, LedgerError, UndecidedError
from outlay.serve.ledger.records import Proposal, Recorded, State, new_decision_ids
from outlay.serve.user_days.ledger_past import LedgerPast

LEDGER_UNAVAILABLE = "ledger_unavailable"
HOUR = 3_600_000  # milliseconds
STATES: dict[State, DecisionState] = {
    "free": "none",
    "reserved": "reserved",
    "settled": "redeemed",
    "released": "expired",
}

log = logging.getLogger("outlay.serve")
_canonical = msgspec.json.Encoder(order="deterministic")
_json = msgspec.json.Encoder()


class PendingRequest(NamedTuple):
    """A request waiting to be decided in a group, encoded for the bundle and for the arm that may decide it.

    Attributes:
        request: the request as received.
        encoded: the request, encoded for `loaded`.
        loaded: the bundle that was in service when it was received.
        features: JSON, as they are recorded; without the summaries of the user's past.
        entry: the user's enrolment in the A/B test; None: never enrolled.
        encoded_for_arm: the request, encoded for the arm's own bundle; None if the arm has none.
        cluster: the user's cluster, if the test draws its arms by it.
    """

    request: DecisionRequest
    encoded: EncodedRequest
    loaded: LoadedBundle
    features: bytes
    entry: Enrolment | None = None
    encoded_for_arm: EncodedRequest | None = None
    cluster: str | None = None

    def arm(self, day: int) -> ServedArm | None:
        """Return the arm that decides on this day of the server's clock; None: the bundle in service decides."""
        return self.entry.arm if self.entry is not None and self.entry.holds(day) else None


def not_recorded(answers: Sequence[DecisionAnswer | Problem]) -> bool:
    """Return whether the decisions of a body were not recorded; either all of them are, or none."""
    return any(isinstance(first, DecisionAnswer) and first.decision_id is None for first in answers[:1])


class DecisionHandler:
    """Answers requests for decisions."""

    def __init__(self, state: ServingState, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self._state = state
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._past = LedgerPast(ledger, state.config, clock)
        if (summaries := state.loaded.summaries) is not None:
            self._past.unknown(state.loaded, summaries)  # loads DuckDB before the first request needs it
        self._called: dict[str, ActionNames] = {}  # of bundles that are not in service
        self._group = GroupCommit(self.answer_group, state.config.ledger_seconds)

    async def decide(self, requests: Sequence[DecisionRequest], *, many: bool = True) -> list[DecisionAnswer | Problem]:
        """Return one answer per request, in order; a Problem if the id belongs to another request.

        Args:
            requests: each is decided on its own, in this order.
            many: whether the body has a list `requests` or is itself the request; determines paths in errors.

        Raises:
            BadRequestError: 422 if a request cannot be decided; then none of them is.
            UndecidedError: if it is not known how their transaction ended. A retry returns what was decided.
        """
        pending = self._pending(requests, many=many)
        try:
            answers = await self._group(pending)
        except UndecidedError:
            self._metrics.ledger_errors.inc()
            raise
        except (LedgerError, TimeoutError) as error:
            return self._unreachable(pending, error)
        if not many:
            return answers
        return [
            replace(answer, where=f"$.requests[{i}].request_id") if isinstance(answer, Problem) else answer
            for i, answer in enumerate(answers)
        ]

    def answer_group(self, group: Sequence[PendingRequest]) -> list[DecisionAnswer | Problem]:
        """Decide and record a group of requests, in the writing thread. Raises UndecidedError."""
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
        return [_answer(each, self._names(each.bundle)) for each in recorded]

    def _names(self, bundle: str) -> ActionNames:
        """What the actions of a bundle are called that is or was in service. Raises LedgerError."""
        if bundle == self._state.loaded.bundle.id:
            return self._state.loaded.bundle.names
        if bundle not in self._called:
            notes = (
                note for kind in (BUNDLE, ARM_BUNDLE) for note in self._ledger.notes(self._state.loaded.campaign, kind)
            )
            self._called |= {note.key: ActionNames.of_file(noted_bundle(note.content).campaign) for note in notes}
        return self._called[bundle]

    async def close(self) -> None:
        """Write waiting requests and accept no more."""
        await self._group.close()

    def _pending(self, requests: Sequence[DecisionRequest], *, many: bool) -> list[PendingRequest]:
        """Return the requests of a body, in order. Raises BadRequestError (422) if one of them cannot be decided."""
        loaded, trial = self._state.loaded, self._state.trial
        paths = [f"$.requests[{i}]" for i in range(len(requests))] if many else ["$"]
        most = self._state.config.limits.features_bytes
        pending = [
            PendingRequest(request, _encoded(request, loaded, path), loaded, _recorded(request, most, path))
            for request, path in zip(requests, paths, strict=True)
        ]
        if trial is not None:
            if (column := trial.cluster) is not None:
                pending = [
                    each._replace(cluster=cluster_text(each.request, column, path))
                    for each, path in zip(pending, paths, strict=True)
                ]
            entries = trial.entries([each.cluster or each.encoded.user for each in pending])
            pending = [_entered(each, entry, path) for each, entry, path in zip(pending, entries, paths, strict=True)]
        for each, path in zip(pending, paths, strict=True):
            self._check_past(each, _possible_arms(each, trial, path), path)
        return pending

    def _proposals(self, group: Sequence[PendingRequest], now: int, day: int) -> list[Proposal]:
        """Return a proposal for each, in order; requests for the same bundle or arm are decided together."""
        if (trial := self._state.trial) is not None and trial.cluster is not None:
            group = self._in_first_clusters(group, trial, day)
        first = group[0].loaded
        if trial is None and all(each.loaded is first for each in group):
            return self._proposed(group, now, day)
        groups: defaultdict[ServedArm | LoadedBundle, list[int]] = defaultdict(
            list
        )  # two bundles only while one replaces the other
        for i, each in enumerate(group):
            groups[each.arm(day) or each.loaded].append(i)
        proposals: dict[int, Proposal] = {}
        for places in groups.values():
            proposals.update(zip(places, self._proposed([group[i] for i in places], now, day), strict=True))
        return [proposals[i] for i in range(len(group))]

    def _in_first_clusters(
        self, group: Sequence[PendingRequest], trial: ServedExperiment, day: int
    ) -> list[PendingRequest]:
        """Return the requests in the arms of their users' first clusters; before and after the test, without any."""
        if not trial.is_on(day):
            return [each._replace(cluster=None) for each in group]
        given = [(each.encoded.user, each.cluster or "") for each in group]
        clusters = self._past.first_clusters(self._state.loaded.campaign, given, trial.first, day)
        self._metrics.moved_clusters.inc(sum(own != first for (_, own), first in zip(given, clusters, strict=True)))
        entries = trial.entries(clusters)
        return [
            each if each.cluster == cluster else _entered(each._replace(cluster=cluster), entry, "$")
            for each, cluster, entry in zip(group, clusters, entries, strict=True)
        ]

    def _proposed(self, group: Sequence[PendingRequest], now: int, day: int) -> list[Proposal]:
        """Return the proposals for requests that one bundle or one arm decides."""
        arm = group[0].arm(day)
        loaded = group[0].loaded if arm is None else arm.loaded
        episode = self._state.episode(day, arm)
        config = self._state.config
        encoded = [each.encoded if arm is None else each.encoded_for_arm or each.encoded for each in group]
        features = [each.features for each in group]
        if (summaries := loaded.summaries) is not None:
            found = summaries.recorded(summaries.values(self._pasts(group, loaded, summaries, day), day))
            encoded = [
                each._replace(row=summaries.extended(each.row, values))
                for each, values in zip(encoded, found, strict=True)
            ]
            features = [
                _json.encode({**each.request.features, **values}) for each, values in zip(group, found, strict=True)
            ]
        choices = self._state.choices(loaded, arm, encoded, episode, now)
        self._metrics.unseen_states.inc(sum(choice.unseen for choice in choices))
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
                user=user,
                episode=episode,
                bundle=bundle,
                member=choice.member,
                action=choice.action,
                action_index=choice.index,
                amount=loaded.amount(choice.index),
                probability=min(choice.probability, 1.0),  # a sum of weights may be above 1 by rounding
                members=choice.members if cluster is None else _drawn_by(choice.members, cluster),
                features=known.decode(),
                reason=choice.reason,
                expires=expires,
                forced=choice.forced,
                none_action=none,
                none_index=loaded.none_index,
                refused=value_refusal(config.values, choice.action, none, loaded.bundle.names),
            )
            for (request, (_, user, _, _), _, _, _, _, cluster), known, choice, decision_id in zip(
                group, features, choices, ids, strict=True
            )
        ]

    def _pasts(
        self, group: Sequence[PendingRequest], loaded: LoadedBundle, summaries: Summaries, day: int
    ) -> list[list[PastDay]]:
        """Return the past days of each request's user: those in the request, or else the ledger's."""
        users = [each.encoded.user for each in group if each.request.past is None]
        known = iter(self._past.of(loaded, summaries, users, day) if users else ())
        return [
            next(known) if each.request.past is None else _given_past(each.request, loaded, summaries, day)
            for each in group
        ]

    def _check_past(self, pending: PendingRequest, arms: Sequence[ServedArm], path: str) -> None:
        """Check the past of a request for the bundles that may decide it. Raises BadRequestError (422)."""
        request = pending.request
        bundles = [pending.loaded, *(arm.loaded for arm in arms)]
        every = [(loaded, loaded.summaries) for loaded in bundles if loaded.summaries is not None]
        for loaded, summaries in every:
            if (name := summaries.check_features(request.features)) is not None:
                problem = Problem(
                    error="is a summary of the user's past, which the server computes.",
                    where=f"{path}.features.{name}",
                    way_out="Leave it out; give the past itself under `past` if the ledger does not know it.",
                )
                raise BadRequestError(422, problem)
            if request.past is None and (columns := self._past.unknown(loaded, summaries)):
                problem = Problem(
                    error=f"is absent, and the policy looks at past values of {columns[0]!r}, which the ledger does "
                    "not record.",
                    where=f"{path}.past",
                    way_out="Give the user's past in the request.",
                )
                raise BadRequestError(422, problem)
        if request.past is not None and every:
            try:
                names = pending.loaded.bundle.names
                check_past(request.past, [summaries.history for _, summaries in every], names)
            except PastError as error:
                problem = Problem(error=error.problem, where=f"{path}.past{error.where}")
                raise BadRequestError(422, problem) from None

    def _unreachable(self, group: Sequence[PendingRequest], error: Exception) -> list[DecisionAnswer | Problem]:
        """Answer "no incentive" to every request; nothing was written."""
        self._metrics.ledger_errors.inc()
        log.error("decisions were not written: %s", str(error) or "the ledger took too long")
        day = self._clock.day(self._clock.now())
        return [self._unavailable(each, day) for each in group]

    def _unavailable(self, pending: PendingRequest, day: int) -> DecisionAnswer:
        arm = pending.arm(day)
        loaded = pending.loaded if arm is None else arm.loaded
        name = loaded.decider.arm_of(pending.encoded, self._state.episode(day)) if arm is None else arm.name
        self._metrics.decided(loaded.campaign, name, None, LEDGER_UNAVAILABLE).inc()
        return DecisionAnswer(
            decision_id=None,
            **_called(loaded.bundle.names, loaded.decider.none),
            action_index=None if loaded.none_index < 0 else loaded.none_index,
            member=None,
            probability=1.0,
            bundle=loaded.bundle.id,
            reason=LEDGER_UNAVAILABLE,
            arm=name,
            state="none",
            expires_at=None,
        )


def _recorded(request: DecisionRequest, most: int, path: str) -> bytes:
    """Return the features as they are recorded, whether or not the policy knows them."""
    features = _json.encode(request.features)
    if len(features) > most:
        problem = Problem(
            error=f"take {len(features)} bytes as JSON; at most {most} are recorded.",
            where=f"{path}.features",
            way_out="Leave out what neither this policy nor the next needs, or raise features_bytes under [limits].",
        )
        raise BadRequestError(422, problem)
    return features


def _encoded(request: DecisionRequest, loaded: LoadedBundle, path: str) -> EncodedRequest:
    user = value_text(request.user_id)
    if user is None:
        raise BadRequestError(
            422, Problem(error=f"{request.user_id!r} is not a valid user id.", where=f"{path}.user_id")
        )
    eligible: NDArray[np.bool_] | None = None
    if request.eligible is not None:
        eligible = np.zeros(len(loaded.amounts), np.bool_)
        for i, action in enumerate(request.eligible):
            value = loaded.bundle.names.allowed(action)
            index = -1 if value is None else loaded.decider.index_of(value)
            if index < 0 and value != loaded.decider.none:
                words = f"{named(action)} is not one of the actions {every_action(loaded.bundle)}."
                raise BadRequestError(422, Problem(error=words, where=f"{path}.eligible[{i}]"))
            if index >= 0:
                eligible[index] = True
    return EncodedRequest(request.request_id, user, _row(request, loaded.decider, path), eligible)


def _entered(pending: PendingRequest, entry: Enrolment | None, path: str) -> PendingRequest:
    """Return the request with the user's enrolment in the test."""
    if entry is None or entry.arm.decider is None:
        return pending._replace(entry=entry)
    row = _row(pending.request, entry.arm.decider, path)
    return pending._replace(entry=entry, encoded_for_arm=pending.encoded._replace(row=row))


def _possible_arms(pending: PendingRequest, trial: ServedExperiment | None, path: str) -> Sequence[ServedArm]:
    """Return the arms that may decide a request; all, if the ledger may know another cluster of the user.

    Raises BadRequestError (422) if one of them cannot read the features.
    """
    if trial is None or trial.cluster is None:
        return () if pending.entry is None else (pending.entry.arm,)
    for arm in trial.arms:
        if arm.decider is not None:
            _row(pending.request, arm.decider, path)
    return trial.arms


def _drawn_by(members: str, cluster: str) -> str:
    """Return the draw of a decision with the cluster by which the arm was drawn."""
    return encode_draw(replace(decode_draw(members), cluster=cluster))


def _row(request: DecisionRequest, decider: Decider, path: str) -> EncodedRow | None:
    try:
        return decider.encoder.encode(request.features)
    except FeatureValueError as error:
        problem = Problem(error=f"{error.problem}.", where=f"{path}.features.{error.name}")
        raise BadRequestError(422, problem) from None


def _given_past(request: DecisionRequest, loaded: LoadedBundle, summaries: Summaries, day: int) -> list[PastDay]:
    """Return the past in a request; an action in it that is one of the bundle's is exactly that."""
    past = summaries.given(request.past or (), day, loaded.bundle.names)
    if "action" not in summaries.history.columns:
        return past
    at = summaries.history.columns.index("action")
    for each in past:
        if (index := loaded.decider.index_of(each.values[at])) >= 0:
            each.values[at] = float(loaded.bundle.actions[index])
    return past


def _called(names: ActionNames, action: float) -> dict[str, Any]:
    """An action in an answer: what it is called, and its amount where it has both."""
    amount = names.amount(action)
    return {"action": names.given(action), **({} if amount is None else {"amount": amount})}


def _answer(recorded: Recorded, names: ActionNames) -> DecisionAnswer | Problem:
    if recorded.status == "conflict":
        return Problem(
            error=f"the request id {recorded.request_id!r} belongs to another request.",
            where="$.request_id",
            way_out="Give every decision its own id; a retry repeats the whole request.",
        )
    return DecisionAnswer(
        decision_id=recorded.decision_id,
        **_called(names, recorded.action),
        action_index=None if recorded.action_index < 0 else recorded.action_index,
        member=recorded.member,
        probability=recorded.probability,
        bundle=recorded.bundle,
        reason=recorded.reason,
        arm=recorded.arm,
        state=STATES[recorded.state],
        expires_at=None
        if recorded.state == "free"
        else datetime.datetime.fromtimestamp(recorded.expires / 1000, datetime.UTC),
    )
