"""What an outcome does to a decision's money, and what its expiry does.

    reserved ──redeemed x ≤ amount──▶ settled x, the rest is free again
    reserved ──expiry───────────────▶ released, all is free again
    released ──redeemed x ≤ amount──▶ settled x, if the caps allow it; else unfunded
    settled  ──refund x ≤ settled───▶ settled less x

A decision settles once. Money that moves leaves an entry; an outcome that moves none is kept with the reason. Pure, as
`admission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from outlay.server.ledger.admission import Counter, Key, limits, refusal
from outlay.server.ledger.caps import Caps
from outlay.server.ledger.events import Outcome, Status


class Position(Struct):
    """A decision's money now: `held` is reserved, `paid` is settled, in minor units."""

    decision_id: str
    campaign: str
    day: int
    arm: str
    user: str
    amount: int
    state: str
    held: int
    paid: int


class Entry(NamedTuple):
    """One movement of a decision's money; `reserved` and `settled` are signed minor units."""

    decision_id: str
    kind: str
    event_id: str
    ts: int
    reserved: int
    settled: int


def settle(
    event: Outcome, position: Position, caps: Caps, counters: Mapping[Key, Counter]
) -> tuple[Status, int, Entry | None]:
    """Apply an outcome that has not come before; position and counters are moved.

    Returns:
        What became of it, the minor units that moved, and the entry to write if any did.
    """
    if event.kind == "redeemed":
        return _redeem(event, position, caps, counters)
    if event.kind == "refund":
        amount = position.paid if event.amount is None else event.amount
        if position.state != "settled" or amount > position.paid:
            return "refused", 0, None
        entry = Entry(event.decision_id, "refund", event.event_id, event.received, 0, -amount)
        return "refunded", amount, _move(entry, position, caps, counters)
    return "kept", 0, None


def release(position: Position, caps: Caps, counters: Mapping[Key, Counter], now: int) -> Entry:
    """Free what a reservation holds."""
    position.state = "released"
    entry = Entry(position.decision_id, "release", "", now, -position.held, 0)
    return _move(entry, position, caps, counters)


def _redeem(
    event: Outcome, position: Position, caps: Caps, counters: Mapping[Key, Counter]
) -> tuple[Status, int, Entry | None]:
    amount = position.amount if event.amount is None else event.amount
    if amount > position.amount or position.state == "settled":
        return "refused", 0, None
    if position.state == "free":
        return "kept", 0, None
    late = position.state == "released"
    if late and refusal(limits(caps, position), counters, amount):
        return "unfunded", 0, None
    position.state = "settled"
    kind = "late" if late else "settle"
    entry = Entry(event.decision_id, kind, event.event_id, event.received, -position.held, amount)
    _move(entry, position, caps, counters)
    if late:
        for limit in limits(caps, position):
            counters[limit.key].cap = limit.cap
    return ("late" if late else "settled"), amount, entry


def _move(entry: Entry, position: Position, caps: Caps, counters: Mapping[Key, Counter]) -> Entry:
    for limit in limits(caps, position):
        counters[limit.key].move(entry.reserved, entry.settled)
    position.held += entry.reserved
    position.paid += entry.settled
    return entry
