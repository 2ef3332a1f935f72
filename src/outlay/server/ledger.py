"""The ledger: every decision and the money behind it, in one transaction.

    proposal ──record──▶ decision (amount reserved) ──redeemed──▶ settled ──refund──▶ given back
                              └──────────expiry────▶ released ──redeemed──▶ settled late, or kept unfunded

Promises, whatever the concurrency, the retries and the crashes:

* At no time does a scope hold more than its cap: reserved + settled ≤ cap for the campaign, the day, the arm, the user
  and the user's day. Settled money counts for ever, reserved money until its release. Refused money is never spent.
* The decision row *is* the reservation. What `record` returned is on disk.
* One request id of a campaign spends once and always gets the stored answer; with another body it is a conflict.
* One event (decision, kind, event id) moves money once and always gets the stored answer.
* Counters equal the sums of the rows at every moment that a reader can see; `check` computes both.

Money is whole minor units (`server/money.py`). Times are the server's clock, epoch milliseconds; a request's own time
decides nothing here. A cap that is lowered below what is committed takes nothing back and gives nothing more.

Five tables: `campaign` (caps, pause), `decision` (append-only but for `state`, `held` and `paid`: what is reserved and
settled now), `entry` (append-only: every later movement of a decision's money), `outcome` (every event, with the answer
it got), `counter` (a row per scope, with the caps as CHECK constraints).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct, field

from outlay.core.errors import OutlayError
from outlay.server.money import LARGEST

ID_LENGTH = 256  # characters of an id, a name or a kind at most: an index of PostgreSQL holds 2,704 bytes

# Why the ledger turned a proposal into "no incentive", in the order in which it asks.
PAUSED = "paused"
USER_LIMIT = "user_limit"
DAY_CAP = "day_cap"
ARM_CAP = "arm_cap"
TOTAL_CAP = "total_cap"


class LedgerError(OutlayError):
    """The ledger cannot be reached, cannot write, or is not ours. Whether the group in flight was written is not known:

    ask again with the same ids.
    """


class Proposal(Struct, frozen=True, kw_only=True):
    """A decision that the server would like to give, and what to give instead if the money does not allow it.

    Attributes:
        campaign: the campaign that pays.
        request_id: the caller's id, unique in its campaign.
        body: hash of the request, to tell a retry from another request under the same id.
        decision_id: from `new_decision_id(ts)`.
        ts: server clock, epoch ms.
        day: the server's day number at `ts`.
        arm: of the experiment; the random slice is an arm of its own.
        user: who asks.
        episode: the days within which a user keeps one member.
        bundle: content hash of the bundle that decided.
        member: of the mixture, or None where no member decided.
        action: the value given.
        action_index: its position in the campaign's actions.
        amount: minor units to reserve; 0 needs no counter and is always granted.
        probability: of `action`, over the draw of the member.
        members: JSON, the actions of all members.
        features: JSON, what the decision was made from.
        reason: "policy", "fallback", "random", or the guard that answered.
        expires: when the reservation is released, epoch ms by the server's clock.
        forced: a guard answered, there was no choice.
        none_action: the value that means "no incentive".
        none_index: its position in the campaign's actions; −1 where it is not one of them.

    Raises:
        ValueError: if a ledger cannot hold it, so that it never comes into a group with others.
    """

    campaign: str
    request_id: str
    body: str
    decision_id: str
    ts: int
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
    none_action: float
    none_index: int

    def __post_init__(self) -> None:
        _ids(campaign=self.campaign, request_id=self.request_id, arm=self.arm, user=self.user, episode=self.episode)
        _amount("amount", self.amount)
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


class Outcome(Struct, frozen=True, kw_only=True):
    """Something that happened after a decision.

    Attributes:
        decision_id: the decision it belongs to.
        kind: "redeemed" settles the reservation, "refund" gives settled money back, others are only kept.
        event_id: the caller's id, unique in its decision and kind.
        ts: when it happened, by the caller's clock, epoch ms.
        received: when the server heard of it, epoch ms.
        value: as the caller gave it, in the caller's unit.
        amount: minor units to settle or give back; None: all there is. Not read for other kinds.

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

    def __post_init__(self) -> None:
        _ids(decision_id=self.decision_id, kind=self.kind, event_id=self.event_id)
        if self.amount is not None:
            _amount("amount", self.amount)
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"value is {self.value}; it must be finite")
        if abs(self.ts) > LARGEST:
            raise ValueError(f"ts is {self.ts}; it must be epoch milliseconds")


Status = Literal["kept", "settled", "late", "unfunded", "refunded", "refused", "unknown", "conflict"]


class Settled(Struct, frozen=True, kw_only=True):
    """What became of an outcome.

    Attributes:
        status: "kept" (moved no money), "settled", "late" (settled after the release, since the caps allowed it),
            "unfunded" (kept and flagged: after the release, and the caps did not allow it), "refunded", "refused" (kept
            and flagged: more than was reserved or settled, or redeemed before), "unknown" (no such decision; not kept)
            or "conflict" (the event id has another value; nothing changed).
        amount: minor units that moved.
        replayed: the same event came before; this is the answer that it got.
    """

    decision_id: str
    kind: str
    event_id: str
    status: Status
    amount: int
    replayed: bool


class Caps(Struct, frozen=True, kw_only=True):
    """Hard limits of a campaign. Amounts are minor units, offers are decisions with an amount above 0; None: no limit.

    Attributes:
        total: over the whole campaign.
        day: over the decisions of one day.
        arms: over one arm; an arm that is not named has no cap of its own.
        user_amount: for one user over the campaign.
        user_offers: the same, in offers; a released offer was still made and counts.
        user_day_amount: for one user on one day.
        user_day_offers: the same, in offers.
    """

    total: int | None = None
    day: int | None = None
    arms: Mapping[str, int] = field(default_factory=dict)
    user_amount: int | None = None
    user_offers: int | None = None
    user_day_amount: int | None = None
    user_day_offers: int | None = None

    def __post_init__(self) -> None:
        _ids(**{f"arm {position}": name for position, name in enumerate(self.arms)})
        for name in self.__struct_fields__:
            if name != "arms" and getattr(self, name) is not None:
                _amount(name, getattr(self, name))
        for name, cap in self.arms.items():
            _amount(f"arms.{name}", cap)


class Tally(Struct, frozen=True, kw_only=True):
    """Money of one scope, in minor units: its cap now, what is reserved, what is settled, and the offers made."""

    cap: int | None
    reserved: int
    settled: int
    offers: int


class Totals(Struct, frozen=True, kw_only=True):
    """A campaign's money by scope."""

    campaign: str
    caps: Caps
    paused: bool
    total: Tally
    days: dict[int, Tally]
    arms: dict[str, Tally]


class Row(Struct, frozen=True, kw_only=True):
    """A decision as it stands, with its outcomes in the order in which they came.

    Attributes:
        state: "free" (amount 0), "reserved", "settled" or "released".
        held: minor units reserved now.
        paid: minor units settled now.
        outcomes: each with the answer that it got.
        others: as in `Proposal`.
    """

    campaign: str
    request_id: str
    decision_id: str
    ts: int
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
    state: str
    held: int
    paid: int
    outcomes: tuple[tuple[Outcome, Settled], ...]


class Ledger(Protocol):
    """What both ledgers do. Every method may be called from any thread; each raises `LedgerError` when it cannot."""

    def record(self, proposals: Sequence[Proposal]) -> list[Recorded]:
        """Decide and write a group in one transaction; the answers come in the order of the proposals."""
        ...

    def outcomes(self, events: Sequence[Outcome]) -> list[Settled]:
        """Keep a group of outcomes and move their money in one transaction; the answers come in their order."""
        ...

    def release(self, now: int) -> int:
        """Release what was reserved until `now` (epoch ms) or earlier; how many reservations that were."""
        ...

    def set_caps(self, campaign: str, caps: Caps) -> None:
        """Replace a campaign's caps, from the next decision on. The first call makes the campaign."""
        ...

    def pause(self, campaign: str) -> None:
        """Answer "no incentive" from the next decision on, on every server, until `resume`."""
        ...

    def resume(self, campaign: str) -> None:
        """End a pause."""
        ...

    def totals(self, campaign: str) -> Totals:
        """The campaign's money by scope."""
        ...

    def rows(self, campaign: str, after: int, until: int) -> Iterator[Row]:
        """Decisions with after ≤ ts < until (epoch ms), in the order of their ids."""
        ...

    def check(self) -> list[str]:
        """Compare counters, reservations and caps with the sums of the rows; what does not agree, in words."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


def new_decision_id(ts: int) -> str:
    """A new id: 48 bits of epoch ms and 80 random bits, as 32 hex digits, so that ids sort by time."""
    return f"{ts:012x}{secrets.token_hex(10)}"


def _ids(**texts: str) -> None:
    for name, text in texts.items():
        if not text or len(text) > ID_LENGTH or "\0" in text:
            raise ValueError(f"{name} must have 1 to {ID_LENGTH} characters, none of them NUL")


def _amount(name: str, amount: int) -> None:
    if not 0 <= amount <= LARGEST:
        raise ValueError(f"{name} is {amount}; it must be from 0 to {LARGEST} minor units")
