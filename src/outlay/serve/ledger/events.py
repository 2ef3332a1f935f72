"""What happened after decisions, and what became of it."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from outlay.serve.ledger.ids import check_amount, check_ids
from outlay.serve.ledger.money import LARGEST


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
        campaign: that the decision must be of; None: of any. Not kept.

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
            raise ValueError(f"value is {self.value}; it must be finite")
        if abs(self.ts) > LARGEST:
            raise ValueError(f"ts is {self.ts}; it must be epoch milliseconds")


Status = Literal["kept", "settled", "late", "overrun", "refunded", "refused", "unknown", "conflict"]


class Settled(Struct, frozen=True, kw_only=True):
    """What became of an outcome.

    Attributes:
        status: "kept" (moved no money), "settled", "late" (settled after the release, and the caps had room for it),
            "overrun" (settled, and some of it is excess), "refunded", "refused" (kept and flagged: redeemed before,
            or a refund of more than was settled), "unknown" (no such decision; not kept) or "conflict" (the event id
            has another value; nothing changed).
        amount: minor units that moved.
        excess: the part of `amount` that no reservation covered (`settlement`); of a refund, what it gave back of that.
        replayed: the same event came before; this is the answer that it got.
    """

    decision_id: str
    kind: str
    event_id: str
    status: Status
    amount: int
    excess: int
    replayed: bool
