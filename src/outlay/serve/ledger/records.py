"""Records exchanged with the ledger: proposals and decisions, outcomes and their results.

An id, amount or number that a ledger cannot store is refused when the record is created, so that it never makes a whole
group fail.
"""

from __future__ import annotations

import math
import secrets
from typing import Literal

from msgspec import Struct

from outlay.serve.ledger.money import LARGEST

ID_LENGTH = 256  # maximum characters of an id, a name or a kind: PostgreSQL can index 2,704 bytes
LARGEST_VALUE = 2.0**63  # of an outcome that is not money: sums of any number of them are finite
TIME_LENGTH = 64  # maximum characters of a request's own time


def new_decision_id(ts: int) -> str:
    """Return a new id: 48 bits of epoch ms and 80 random bits, as 32 hex digits, so that ids sort by time."""
    return f"{ts:012x}{secrets.token_hex(10)}"


def new_decision_ids(ts: int, count: int) -> list[str]:
    """Return many new ids; one system call gets all their random bits."""
    bits = secrets.token_hex(10 * count)
    return [f"{ts:012x}{bits[i : i + 20]}" for i in range(0, len(bits), 20)]


def check_ids(**texts: str) -> None:
    """Raise ValueError if one of the texts cannot be an id or a name."""
    for name, text in texts.items():
        if not text or len(text) > ID_LENGTH or "\0" in text:
            raise ValueError(f"{name} must have 1 to {ID_LENGTH} characters, none of them NUL")


def check_amount(name: str, amount: int) -> None:
    """Raise ValueError if `amount` minor units cannot be stored."""
    if not 0 <= amount <= LARGEST:
        raise ValueError(f"{name} is {amount}; must be from 0 to {LARGEST} minor units")


# Reasons why the ledger replaces a proposal by "no incentive", in the order checked; `Proposal.refused` is third.
PAUSED = "paused"
USER_LIMIT = "user_limit"
DAY_CAP = "day_cap"
ARM_CAP = "arm_cap"
TOTAL_CAP = "total_cap"
EXPIRED = "expired"  # the reason in the answer to a retry that comes too late


class DecisionFields(Struct, frozen=True, kw_only=True):
    """The fields that a proposal and its row in the ledger share.

    Attributes:
        campaign: the campaign that pays.
        request_id: the caller's id, unique in its campaign.
        decision_id: from `new_decision_id(ts)`.
        ts: epoch ms by the server's clock.
        time: as given in the request; it has no effect.
        day: the server's day number at `ts`.
        arm: of the experiment; the random slice is an arm of its own.
        user: the user's id.
        episode: the days within which a user keeps one member.
        bundle: content hash of the bundle that decided.
        member: of the mixture; None if no member decided.
        action: the value given.
        action_index: its position in the campaign's actions.
        amount: minor units to reserve.
        probability: of `action`, over the draw of the member.
        members: JSON, the actions of all members.
        features: JSON, the features that the decision is based on.
        reason: "policy", "fallback", "random", or the guard that answered.
        expires: when the reservation is released, epoch ms by the server's clock.
        forced: a guard decided; there was no choice.
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


class Proposal(DecisionFields, frozen=True, kw_only=True):
    """A decision that a server proposes, and the action to give if the caps do not allow it.

    Attributes:
        body: hash of the request, which distinguishes a retry from another request with the same id.
        none_action: the value that means "no incentive".
        none_index: its position in the campaign's actions; −1 if it is not one of them.
        refused: the server's own reason to give no incentive, used if the user's limits give none; `amount` is then
            the amount that would have been reserved.

    Raises:
        ValueError: if a ledger cannot store it.
    """

    body: str
    none_action: float
    none_index: int
    refused: str | None = None

    @property
    def offer(self) -> bool:
        """Whether it gives an incentive, whatever that reserves: limits on offers count it, and guards are asked."""
        return self.action != self.none_action

    def __post_init__(self) -> None:
        check_ids(
            campaign=self.campaign, request_id=self.request_id, arm=self.arm, user=self.user, episode=self.episode
        )
        if self.time is not None and (len(self.time) > TIME_LENGTH or "\0" in self.time):
            raise ValueError(f"time must have at most {TIME_LENGTH} characters, none of them NUL")
        check_amount("amount", self.amount)
        if len(self.decision_id) != 32 or self.decision_id[:12] != f"{self.ts:012x}":
            raise ValueError(f"decision_id is {self.decision_id!r}; must come from new_decision_id({self.ts})")
        if not (math.isfinite(self.action) and math.isfinite(self.none_action) and 0 <= self.probability <= 1):
            raise ValueError(
                f"action is {self.action}, none_action {self.none_action} and probability {self.probability}; must be "
                "finite, and the probability from 0 to 1"
            )


State = Literal["free", "reserved", "settled", "released"]


class Recorded(Struct, frozen=True, kw_only=True):
    """The ledger's record of a request.

    Attributes:
        status: "new", "replay" (the stored answer to a retry, or "no incentive" if what was offered has expired) or
            "conflict" (the id belongs to another request; the fields are of that other request, and nothing was
            written).
        forced: a guard decided; `probability` is then 1.
        amount: minor units reserved at the decision; 0 once it has expired.
        state: as in `ledger.DecisionRow`; "released" as soon as it has expired.
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
    expires: int
    state: State
    forced: bool


class Outcome(Struct, frozen=True, kw_only=True):
    """An event that followed a decision.

    Attributes:
        decision_id: the decision it belongs to.
        kind: "redeemed" settles the reservation, "refund" returns settled money, others are only stored.
        event_id: the caller's id, unique per decision and kind.
        ts: when it happened, epoch ms by the caller's clock.
        received: when the server received it, epoch ms.
        value: as given by the caller, in the caller's unit.
        amount: minor units to settle or refund; None: the full amount. Ignored for other kinds.
        campaign: the campaign that the decision must belong to; None: any. Not stored.

    Raises:
        ValueError: if a ledger cannot hold it.
    """

    decision_id: str
    kind: str
    event_id: str
    ts: int
    received: int
    value: float | None = None
    amount: int | None = None
    campaign: str | None = None

    def __post_init__(self) -> None:
        check_ids(decision_id=self.decision_id, kind=self.kind, event_id=self.event_id)
        if self.amount is not None:
            check_amount("amount", self.amount)
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"value is {self.value}; must be finite")
        if abs(self.ts) > LARGEST:
            raise ValueError(f"ts is {self.ts}; must be epoch milliseconds")


Status = Literal["kept", "settled", "late", "overrun", "refunded", "refused", "unknown", "conflict"]


class OutcomeResult(Struct, frozen=True, kw_only=True):
    """The result of an outcome.

    Attributes:
        status: "kept" (stored, moved no money), "settled", "late" (settled after the release, and the caps had room),
            "overrun" (settled, with some excess), "refunded", "refused" (stored and flagged: redeemed before,
            a refund of more than was settled, or a sum beyond `LARGEST_SUM`), "unknown" (no such decision; not stored)
            or "conflict" (the event id was used with another value; nothing changed).
        amount: minor units that moved.
        excess: the part of `amount` that no reservation covered (`settlement`); for a refund, the part of the excess
            that it returned.
        replayed: the event is a repetition; this is the stored answer.
    """

    decision_id: str
    kind: str
    event_id: str
    status: Status
    amount: int
    excess: int
    replayed: bool
