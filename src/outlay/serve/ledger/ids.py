"""What a ledger can hold: ids and names of some length, amounts of some size, finite numbers.

What cannot be held is refused where it is made, so that it never comes into a group with others.
"""

from __future__ import annotations

import secrets

from outlay.serve.ledger.money import LARGEST

ID_LENGTH = 256  # characters of an id, a name or a kind at most: an index of PostgreSQL holds 2,704 bytes


def new_decision_id(ts: int) -> str:
    """A new id: 48 bits of epoch ms and 80 random bits, as 32 hex digits, so that ids sort by time."""
    return f"{ts:012x}{secrets.token_hex(10)}"


def new_decision_ids(ts: int, count: int) -> list[str]:
    """Many new ids; the system is asked for all their random bits at once."""
    bits = secrets.token_hex(10 * count)
    return [f"{ts:012x}{bits[i : i + 20]}" for i in range(0, len(bits), 20)]


def check_ids(**texts: str) -> None:
    """Raise ValueError if one of the texts cannot be an id or a name."""
    for name, text in texts.items():
        if not text or len(text) > ID_LENGTH or "\0" in text:
            raise ValueError(f"{name} must have 1 to {ID_LENGTH} characters, none of them NUL")


def check_amount(name: str, amount: int) -> None:
    """Raise ValueError if `amount` minor units cannot be held."""
    if not 0 <= amount <= LARGEST:
        raise ValueError(f"{name} is {amount}; it must be from 0 to {LARGEST} minor units")
