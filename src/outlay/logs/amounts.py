"""Amounts that differ only by rounding are one action.

A log may hold 0.30000000000000004 where 0.3 is meant, and people list an action as it is printed, with six digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

AS_PRINTED = 5e-6  # relative: numbers that print alike with six digits differ by no more
NOISE = 1e-9  # relative: what sums and products of floats leave


def nearest_amounts(values: Iterable[float], known: Iterable[float] | None) -> dict[float, float]:
    """Which values stand for another one.

    Args:
        values: distinct amounts of the log.
        known: the amounts there are. A value that is not among them stands for the nearest one if both print alike.
            None: values that differ by the noise of floats are one amount, and the one that is written shortest
            stands for all.

    Returns:
        value → the amount it stands for, for those that are not themselves that amount.
    """
    values = sorted(set(values))
    if known is None:
        groups: list[list[float]] = []
        for value in values:
            if groups and _close(value, groups[-1][-1], NOISE):
                groups[-1].append(value)
            else:
                groups.append([value])
        shortest = [min(group, key=lambda v: (len(repr(v)), v)) for group in groups]
        return {v: s for group, s in zip(groups, shortest, strict=True) for v in group if v != s}
    listed = sorted(set(known))
    found: dict[float, float] = {}
    for value in values:
        near = min(listed, key=lambda amount: abs(amount - value), default=value)
        if value != near and _close(value, near, AS_PRINTED):
            found[value] = near
    return found


def exactly(value: float) -> str:
    """A number with as many digits as it takes to write it again: 2, 0.3333333333333333."""
    return short if float(short := f"{value:g}") == value else repr(value)


def _close(a: float, b: float, tolerance: float) -> bool:
    return math.isfinite(a - b) and abs(a - b) <= tolerance * max(abs(a), abs(b))
