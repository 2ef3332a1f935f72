"""The effect of an outcome, or of expiry, on a decision's money.

    reserved ──redeemed x──▶ settled x            the rest of the reservation is free again
    reserved ──expiry──────▶ released             all of it is free again
    released ──redeemed x──▶ settled x
    free     ──redeemed x──▶ settled x > 0       no offer was made, so all of it is excess
    settled  ──refund y────▶ settled x − y        for y ≤ x; excess is refunded first

A redemption reports the amount paid, so all of x counts as spent and reduces what may still be granted. The part that
no reservation covered is its *excess*: x − amount if x is larger than the amount; all of x if the reservation was
released and the caps have no room for x. Excess may take a scope over its cap; then nothing is granted there until
there is room again.

A decision settles once: a second redemption with another event id is stored but moves nothing, since it may be the
first one reported twice. So is one that would make a sum too large to be counted. Every movement of money adds an
entry; an outcome that moves none is stored with the reason.
Pure, like `admission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from outlay.serve.ledger.admission import Counter, Key, limits, refusal
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.money import LARGEST_SUM
from outlay.serve.ledger.records import Outcome, Status


class Position(Struct):
    """A decision's money now, in minor units: `held` is reserved, `paid` is settled, `excess` is a part of `paid`."""

    decision_id: str
    campaign: str
    day: int
    arm: str
    user: str
    amount: int
    state: str
    held: int
    paid: int
    excess: int


class LedgerEntry(NamedTuple):
    """One movement of a decision's money, in signed minor units; `excess` is a part of `settled`."""

    decision_id: str
    kind: str
    event_id: str
    ts: int
    reserved: int
    settled: int
    excess: int


def settle(
    event: Outcome, position: Position, caps: Caps, counters: Mapping[Key, Counter]
) -> tuple[Status, LedgerEntry | None]:
    """Apply an outcome that is new to the ledger; the position and the counters are updated.

    Returns:
        Its status, and the entry to write if money moved.
    """
    if event.kind == "redeemed":
        return _redeem(event, position, caps, counters)
    if event.kind == "refund":
        amount = position.paid if event.amount is None else event.amount
        if position.state != "settled" or amount > position.paid:
            return "refused", None
        excess = min(amount, position.excess)
        entry = LedgerEntry(event.decision_id, "refund", event.event_id, event.received, 0, -amount, -excess)
        return "refunded", _move(entry, position, caps, counters)
    return "kept", None


def release(position: Position, caps: Caps, counters: Mapping[Key, Counter], now: int) -> LedgerEntry:
    """Release a reservation; return the entry to write."""
    position.state = "released"
    entry = LedgerEntry(position.decision_id, "release", "", now, -position.held, 0, 0)
    return _move(entry, position, caps, counters)


def _redeem(
    event: Outcome, position: Position, caps: Caps, counters: Mapping[Key, Counter]
) -> tuple[Status, LedgerEntry | None]:
    amount = position.amount if event.amount is None else event.amount
    if position.state == "settled":
        return "refused", None
    if position.state == "free" and not amount:
        return "kept", None
    if any(counters[limit.key].settled + amount > LARGEST_SUM for limit in limits(caps, position)):
        return "refused", None
    late = position.state == "released"
    fits = not late or refusal(limits(caps, position), counters, amount) is None
    excess = max(amount - position.amount, 0) if fits else amount
    position.state = "settled"
    kind = "late" if late else "settle"
    entry = LedgerEntry(event.decision_id, kind, event.event_id, event.received, -position.held, amount, excess)
    _move(entry, position, caps, counters)
    for limit in limits(caps, position):
        if late and fits:
            counters[limit.key].cap = limit.cap
        elif excess:
            counters[limit.key].overrun()
    return ("overrun" if excess else "late" if late else "settled"), entry


def _move(entry: LedgerEntry, position: Position, caps: Caps, counters: Mapping[Key, Counter]) -> LedgerEntry:
    for limit in limits(caps, position):
        counters[limit.key].move(entry.reserved, entry.settled, entry.excess)
    position.held += entry.reserved
    position.paid += entry.settled
    position.excess += entry.excess
    return entry
