"""Which proposals the money allows: the guards that need counters, in their order.

    granted  ⇔  for every scope of the decision: reserved + settled + amount ≤ cap  and  offers + 1 ≤ offers cap

The first scope that says no turns the proposal into "no incentive" with its reason: the user's day and the user, the
day, the arm, the campaign. Pure: whoever calls holds the campaign's lock, has read the counters, and writes them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from outlay.server.ledger import ARM_CAP, DAY_CAP, PAUSED, TOTAL_CAP, USER_LIMIT, Caps, Proposal, Recorded

Key = tuple[str, str, str, str]  # campaign, scope, the arm or user, the day; "" where the scope is of all
Request = tuple[str, str]  # campaign and request id


class Counter(Struct):
    """Money of one scope, and the caps in force when it was last raised."""

    cap: int | None = None
    offers_cap: int | None = None
    reserved: int = 0
    settled: int = 0
    offers: int = 0
    touched: bool = False

    def move(self, reserved: int, settled: int) -> None:
        """Add to both sides; what is given back is negative."""
        self.reserved += reserved
        self.settled += settled
        self.touched = True


class Limit(NamedTuple):
    """What one scope allows."""

    key: Key
    reason: str
    cap: int | None
    offers_cap: int | None


class Standing(NamedTuple):
    """What the ledger knows of a campaign."""

    caps: Caps
    paused: bool


class Placed(Protocol):
    """A decision, as far as its scopes go."""

    @property
    def campaign(self) -> str:
        """Who pays."""

    @property
    def day(self) -> int:
        """When it was made, as the server's day number."""

    @property
    def arm(self) -> str:
        """Of the experiment."""

    @property
    def user(self) -> str:
        """Who got it."""


def scopes(decision: Placed) -> tuple[Key, Key, Key, Key, Key]:
    """The counters that a decision's money stands in: the user's day, the user, the day, the arm, the campaign."""
    campaign, day, user = decision.campaign, str(decision.day), decision.user
    return (
        (campaign, "user", user, day),
        (campaign, "user", user, ""),
        (campaign, "day", "", day),
        (campaign, "arm", decision.arm, ""),
        (campaign, "total", "", ""),
    )


def limits(caps: Caps, decision: Placed) -> tuple[Limit, ...]:
    """What the caps say of each of these scopes, in the order in which they are asked."""
    user_day, user, day, arm, total = scopes(decision)
    return (
        Limit(user_day, USER_LIMIT, caps.user_day_amount, caps.user_day_offers),
        Limit(user, USER_LIMIT, caps.user_amount, caps.user_offers),
        Limit(day, DAY_CAP, caps.day, None),
        Limit(arm, ARM_CAP, caps.arms.get(decision.arm), None),
        Limit(total, TOTAL_CAP, caps.total, None),
    )


def refusal(asked: Iterable[Limit], counters: Mapping[Key, Counter], amount: int, offers: int = 0) -> str | None:
    """Why `amount` more is not allowed, or None. Without offers, the limits on offers are not asked."""
    for limit in asked:
        counter = counters[limit.key]
        if limit.cap is not None and counter.reserved + counter.settled + amount > limit.cap:
            return limit.reason
        if offers and limit.offers_cap is not None and counter.offers + offers > limit.offers_cap:
            return limit.reason
    return None


def admit(
    proposals: Sequence[Proposal],
    stored: dict[Request, tuple[str, Recorded]],
    campaigns: Mapping[str, Standing],
    counters: Mapping[Key, Counter],
) -> tuple[list[Recorded], list[Proposal]]:
    """Answer a group.

    Args:
        proposals: in the order in which they came.
        stored: body and answer of the requests that are known; the new ones are added.
        campaigns: caps and pause of every campaign in the group.
        counters: of every scope in the group; raised by what is granted.

    Returns:
        The answers, in order, and the decisions to write, as they are given.
    """
    answers, given = [], []
    for proposal in proposals:
        request = proposal.campaign, proposal.request_id
        if request in stored:
            body, answer = stored[request]
            answers.append(replace(answer, status="replay" if body == proposal.body else "conflict"))
            continue
        decision = _guarded(proposal, campaigns[proposal.campaign], counters)
        answer = _answer(decision)
        stored[request] = proposal.body, answer
        answers.append(answer)
        given.append(decision)
    return answers, given


def _guarded(proposal: Proposal, campaign: Standing, counters: Mapping[Key, Counter]) -> Proposal:
    """The proposal, with its money reserved in the counters; or no incentive in its place."""
    if not proposal.amount:
        return proposal
    asked = limits(campaign.caps, proposal)
    reason = PAUSED if campaign.paused else refusal(asked, counters, proposal.amount, offers=1)
    if reason:
        return replace(
            proposal,
            action=proposal.none_action,
            action_index=proposal.none_index,
            amount=0,
            probability=1.0,
            reason=reason,
            forced=True,
        )
    for limit in asked:
        counter = counters[limit.key]
        counter.move(proposal.amount, 0)
        counter.offers += 1
        counter.cap, counter.offers_cap = limit.cap, limit.offers_cap
    return proposal


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
    )
