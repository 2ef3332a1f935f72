"""Admission of proposals: the guards that need counters, in order.

    granted  ⇔  for every scope of the decision: reserved + settled + amount ≤ cap  and  offers + 1 ≤ offers cap

The first guard that refuses turns the proposal into "no incentive" with its reason: a pause, the user's day and the
user, the server's own reason, the day, the arm, the campaign. They are asked for every offer, also for one that
reserves nothing: it fits wherever the cap is not exceeded already. "No incentive" is only checked for a pause and the
server's own reason. Pure: the caller holds the campaign's lock, has read the counters, and writes them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.records import ARM_CAP, DAY_CAP, EXPIRED, PAUSED, TOTAL_CAP, USER_LIMIT, Proposal, Recorded

Key = tuple[str, str, str, str]  # campaign, scope, the arm or user, the day; "" if the scope has no arm, user or day
Request = tuple[str, str]  # campaign and request id


class Counter(Struct):
    """Money and decisions of one scope; `excess` is a part of `settled`. For the caps, see `tables`."""

    cap: int | None = None
    offers_cap: int | None = None
    reserved: int = 0
    settled: int = 0
    excess: int = 0
    offers: int = 0
    decisions: int = 0
    granted: int = 0
    touched: bool = False

    def move(self, reserved: int, settled: int, excess: int = 0) -> None:
        """Add amounts; money that is returned is negative."""
        self.reserved += reserved
        self.settled += settled
        self.excess += excess
        self.touched = True

    def overrun(self) -> None:
        """Raise the cap so that what was paid without a reservation passes the CHECK constraint, and no more."""
        if self.cap is not None:
            self.cap = max(self.cap, self.reserved + self.settled)

    def grant(self, amount: int, limit: ScopeLimit) -> None:
        """Reserve an offer's money under a limit."""
        self.move(amount, 0)
        self.granted += amount
        self.offers += 1
        self.cap, self.offers_cap = limit.cap, limit.offers_cap

    def count(self) -> None:
        """Add a decision."""
        self.decisions += 1
        self.touched = True


class ScopeLimit(NamedTuple):
    """The caps of one scope, and the reason for a refusal."""

    key: Key
    reason: str
    cap: int | None
    offers_cap: int | None


class Admitted(NamedTuple):
    """A decision to be written, and the room that the limits left for it (`ledger.DecisionRow.room`)."""

    decision: Proposal
    room: int | None


class CampaignState(NamedTuple):
    """A campaign's caps, and whether it is paused."""

    caps: Caps
    paused: bool


class ScopedDecision(Protocol):
    """The fields of a decision that determine its scopes."""

    @property
    def campaign(self) -> str:
        """The campaign that pays."""

    @property
    def day(self) -> int:
        """The server's day number when it was made."""

    @property
    def arm(self) -> str:
        """The arm of the experiment."""

    @property
    def user(self) -> str:
        """The user who gets it."""


def user_limits(caps: Caps, decision: ScopedDecision) -> list[ScopeLimit]:
    """Return the limits on the decision's user, if there are any: for the day, then for the campaign."""
    limits_of_user: list[ScopeLimit] = []
    if caps.by_user_day:
        key = decision.campaign, "user", decision.user, str(decision.day)
        limits_of_user.append(ScopeLimit(key, USER_LIMIT, caps.user_day_amount, caps.user_day_offers))
    if caps.by_user:
        key = decision.campaign, "user", decision.user, ""
        limits_of_user.append(ScopeLimit(key, USER_LIMIT, caps.user_amount, caps.user_offers))
    return limits_of_user


def shared_limits(caps: Caps, decision: ScopedDecision) -> tuple[ScopeLimit, ...]:
    """Return the limits on the day, the arm and the campaign; and the arm's day, which has no cap but is counted."""
    arm_cap = caps.arms.get(decision.arm)
    return _shared_limits(decision.campaign, str(decision.day), decision.arm, caps.day, arm_cap, caps.total)


@lru_cache(maxsize=1024)  # few days and arms, and thousands of decisions in each
def _shared_limits(
    campaign: str, day: str, arm: str, day_cap: int | None, arm_cap: int | None, total_cap: int | None
) -> tuple[ScopeLimit, ...]:
    return (
        ScopeLimit((campaign, "day", "", day), DAY_CAP, day_cap, None),
        ScopeLimit((campaign, "arm", arm, ""), ARM_CAP, arm_cap, None),
        ScopeLimit((campaign, "total", "", ""), TOTAL_CAP, total_cap, None),
        ScopeLimit((campaign, "arm", arm, day), ARM_CAP, None, None),
    )


def limits(caps: Caps, decision: ScopedDecision) -> list[ScopeLimit]:
    """Return all limits on a decision; their keys are the counters that its money is in."""
    return [*user_limits(caps, decision), *shared_limits(caps, decision)]


def keys(decisions: Iterable[ScopedDecision], campaigns: Mapping[str, CampaignState]) -> set[Key]:
    """Return the keys of the decisions' counters."""
    return {limit.key for decision in decisions for limit in limits(campaigns[decision.campaign].caps, decision)}


def refusal(
    scope_limits: Iterable[ScopeLimit], counters: Mapping[Key, Counter], amount: int, offers: int = 0
) -> str | None:
    """Return why `amount` more is not allowed, or None. With `offers` 0, limits on offers are not checked."""
    for limit in scope_limits:
        counter = counters[limit.key]
        if limit.cap is not None and counter.reserved + counter.settled + amount > limit.cap:
            return limit.reason
        if offers and limit.offers_cap is not None and counter.offers + offers > limit.offers_cap:
            return limit.reason
    return None


def admit(
    proposals: Sequence[Proposal],
    stored: dict[Request, tuple[str, Recorded]],
    campaigns: Mapping[str, CampaignState],
    counters: Mapping[Key, Counter],
) -> tuple[list[Recorded], list[Admitted]]:
    """Admit or refuse each proposal of a group.

    Args:
        proposals: in order of arrival.
        stored: bodies and answers of requests that are recorded already; new ones are added.
        campaigns: caps and pause of every campaign in the group.
        counters: counters of every scope in the group; they are updated.

    Returns:
        The answers, in the same order, and the decisions to write.
    """
    answers, given = [], []
    for proposal in proposals:
        request = proposal.campaign, proposal.request_id
        if request in stored:
            body, answer = stored[request]
            answers.append(_again(proposal, body, answer))
            continue
        new = _guarded(proposal, campaigns[proposal.campaign], counters)
        answer = _answer(new.decision)
        stored[request] = proposal.body, answer
        answers.append(answer)
        given.append(new)
    return answers, given


def _guarded(proposal: Proposal, campaign: CampaignState, counters: Mapping[Key, Counter]) -> Admitted:
    """Return the proposal, with its money reserved in the counters, or "no incentive" in its place."""
    own, shared = user_limits(campaign.caps, proposal), shared_limits(campaign.caps, proposal)
    for limit in shared:
        counters[limit.key].count()
    room = None if campaign.paused else _room((*own, *shared), counters)
    if reason := _refusal(proposal, campaign.paused, own, shared, counters):
        none = replace(
            proposal,
            action=proposal.none_action,
            action_index=proposal.none_index,
            amount=0,
            probability=1.0,
            reason=reason,
            forced=True,
        )
        return Admitted(none, room)
    if proposal.offer:
        for limit in (*own, *shared):
            counters[limit.key].grant(proposal.amount, limit)
    return Admitted(proposal, room)


def _room(scope_limits: Iterable[ScopeLimit], counters: Mapping[Key, Counter]) -> int | None:
    """Return the most that one offer may cost; negative if no offer is allowed, None if nothing limits it."""
    left = []
    for limit in scope_limits:
        counter = counters[limit.key]
        if limit.cap is not None:
            left.append(limit.cap - counter.reserved - counter.settled)
        if limit.offers_cap is not None and counter.offers >= limit.offers_cap:
            left.append(-1)
    return min(left, default=None)


def _refusal(
    proposal: Proposal,
    paused: bool,
    own: Iterable[ScopeLimit],
    shared: Iterable[ScopeLimit],
    counters: Mapping[Key, Counter],
) -> str | None:
    if paused:
        return PAUSED
    if not proposal.offer:
        return proposal.refused
    return (
        refusal(own, counters, proposal.amount, offers=1)
        or proposal.refused
        or refusal(shared, counters, proposal.amount, offers=1)
    )


def _again(proposal: Proposal, body: str, answer: Recorded) -> Recorded:
    """Return the answer to a request whose id is stored; an offer is gone once it has expired, released yet or not."""
    if body != proposal.body:
        return replace(answer, status="conflict")
    if answer.state == "released" or (answer.state == "reserved" and answer.expires <= proposal.ts):
        return replace(
            answer,
            status="replay",
            action=proposal.none_action,
            action_index=proposal.none_index,
            amount=0,
            probability=1.0,
            reason=EXPIRED,
            forced=True,
            state="released",
        )
    return replace(answer, status="replay")


def _answer(decision: Proposal) -> Recorded:
    return Recorded(
        status="new",
        request_id=decision.request_id,
        decision_id=decision.decision_id,
        action=decision.action,
        action_index=decision.action_index,
        member=decision.member,
        probability=decision.probability,
        bundle=decision.bundle,
        reason=decision.reason,
        arm=decision.arm,
        amount=decision.amount,
        forced=decision.forced,
        expires=decision.expires,
        state="reserved" if decision.offer else "free",
    )
