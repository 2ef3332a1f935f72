"""The mixture whose costs are raised by the margin that it needs itself: one margin for every policy of the pool.

    needed(w(m)) = m          w(m): the best weights with every cost raised by m

A margin of its own for every policy would choose by it. Where a few dear users make the errors, margins of single
policies differ by luck alone, and the mixture is made of distant policies that happen to have small ones.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

ENOUGH = 1e-3  # of a margin: less that it lacks, or has too much, is rounding
STEPS = 20  # half of the way each, to where a margin is what its mixture needs

Vector = NDArray[np.float64]


def with_own_margin(
    solve: Callable[[Vector], Vector | None], needed: Callable[[Vector], Vector]
) -> tuple[Vector, Vector] | None:
    """Return weights and their margin `[m]`; None where no mixture keeps the limits with the margin that it needs.

    Args:
        solve: a margin `[m]`, or 0 → the best weights with all costs raised by it; None where none keeps the limits.
        needed: weights → `[m]` the margin that they need.
    """
    weights = solve(np.zeros(1))
    if weights is None:
        return None
    margin = whole = needed(weights)
    for _ in range(STEPS):
        found = solve(margin)
        if found is None:
            break
        needs = needed(found)
        if _enough(margin, needs) and _enough(needs, margin):
            return found, margin
        margin, whole = (margin + needs) / 2, np.maximum(whole, needs)
    return _along(whole, solve, needed)


def _along(
    whole: Vector, solve: Callable[[Vector], Vector | None], needed: Callable[[Vector], Vector]
) -> tuple[Vector, Vector] | None:
    """The same with a share of one margin `[m]`, by bisection where needs jump."""
    kept: dict[float, Vector] = {}

    @cache
    def left(share: float) -> float:
        """By how much a share of that margin is more than enough."""
        found = solve(share * whole)
        if found is None:
            return 1.0
        needs = needed(found)
        if _enough(share * whole, needs):
            kept[share] = found
        return float(np.where(whole > 0, share - needs / np.where(whole > 0, whole, 1.0), -needs).min())

    if left(0.0) < 0 < left(1.0):
        brentq(left, 0.0, 1.0, xtol=ENOUGH)
    least = min(kept, default=None)
    return None if least is None else (kept[least], least * whole)


def _enough(margin: Vector, needs: Vector) -> bool:
    return bool((needs <= margin * (1 + ENOUGH)).all())
