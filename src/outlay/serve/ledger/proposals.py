"""What a server asks of the ledger, and what stands there for a request."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from outlay.serve.ledger.ids import check_amount, check_ids

# Why the ledger turned a proposal into "no incentive", in the order in which it asks. `Proposal.refused` comes third.
PAUSED = "paused"
USER_LIMIT = "user_limit"
DAY_CAP = "day_cap"
ARM_CAP = "arm_cap"
TOTAL_CAP = "total_cap"

TIME_LENGTH = 64  # characters of a request's own time at most


class Decided(Struct, frozen=True, kw_only=True):
    """What a proposal and its row in the ledger share.

    Attributes:
        campaign: the campaign that pays.
        request_id: the caller's id, unique in its campaign.
        decision_id: from `new_decision_id(ts)`.
        ts: server clock, epoch ms.
        time: the request's own, as it was given; decides nothing.
        day: the server's day number at `ts`.
        arm: of the experiment; the random slice is an arm of its own.
        user: who asks.
        episode: the days within which a user keeps one member.
        bundle: content hash of the bundle that decided.
        member: of the mixture, or None where no member decided.
        action: the value given.
        action_index: its position in the campaign's actions.
        amount: minor units to reserve; 0 is always granted, but in a pause.
        probability: of `action`, over the draw of the member.
        members: JSON, the actions of all members.
        features: JSON, what the decision was made from.
        reason: "policy", "fallback", "random", or the guard that answered.
        expires: when the reservation is released, epoch ms by the server's clock.
        forced: a guard answered, there was no choice.
    """

    campaign: str
    request_id: str
    decision_id: str
    ts: int
    time: str | None = None
    day: int
    arm: str
    user: str
    episode: str
    bundle: str
    member: int | None
    action: float
    action_index: int
    amount: int
    probability: float
    members: str
    features: str
    reason: str
    expires: int
    forced: bool


class Proposal(Decided, frozen=True, kw_only=True):
    """A decision that the server would like to give, and what to give instead if the money does not allow it.

    Attributes:
        body: hash of the request, to tell a retry from another request under the same id.
        none_action: the value that means "no incentive".
        none_index: its position in the campaign's actions; −1 where it is not one of them.
        refused: the server's own reason to give no incentive, which counts where the user's limits have none; `amount`
            is then what would have been reserved.

    Raises:
        ValueError: if a ledger cannot hold it, so that it never comes into a group with others.
    """

    body: str
    none_action: float
    none_index: int
    refused: str | None = None

    def __post_init__(self) -> None:
        check_ids(
            campaign=self.campaign, request_id=self.request_id, arm=self.arm, user=self.user, episode=self.episode
        )
        if self.time is not None and (len(self.time) > TIME_LENGTH or "\0" in self.time):
            raise ValueError(f"time must have at most {TIME_LENGTH} characters, none of them NUL")
        check_amount("amount", self.amount)
        if len(self.decision_id) != 32 or self.decision_id[:12] != f"{self.ts:012x}":
            raise ValueError(f"decision_id is {self.decision_id!r}; it must come from new_decision_id({self.ts})")
        if not (math.isfinite(self.action) and math.isfinite(self.none_action) and 0 <= self.probability <= 1):
            raise ValueError(f"action {self.action}, none {self.none_action} or probability {self.probability} is none")


class Recorded(Struct, frozen=True, kw_only=True):
    """What stands in the ledger for a request.

    Attributes:
        status: "new", "replay" (the stored answer to a retry) or "conflict" (the id belongs to another request; the
            fields are that other request's, and nothing was written).
        forced: a guard answered; `probability` is then 1.
        amount: minor units reserved at the decision.
        others: as in `Proposal`.
    """

    status: Literal["new", "replay", "conflict"]
    request_id: str
    decision_id: str
    action: float
    action_index: int
    member: int | None
    probability: float
    bundle: str
    reason: str
    arm: str
    amount: int
    forced: bool
