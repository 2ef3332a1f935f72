"""When λ has settled: from then on candidates count.

λ begins at 0 and has to find its place, and a step of 1/√t is large at first: λ jumps between prices at which nothing
is spent and prices at which far too much is. It meets policies on the way that nobody would serve, and a rule that
searches the segment between its mixture and the newest policy (AIM-greedy) never forgets one that it once found useful.
λ has settled when, over the second half of its steps so far,

    it was on both sides:  the limit was broken in some of them and kept in some;   max λ − min λ ≤ mean λ
    or it rests:           λ was 0 and the limit kept in all of them

for every limit. Both sides have the unit of λ, and the window grows with the steps, so nothing depends on a scale.

What a rule guarantees, it guarantees on the candidates that it was given: AIM-greedy is never worse than the best
single one *of these* (`mixing/aim_greedy.py`), whichever they are.

Source: ours. To leave out the beginning is usual for averages of gradient steps: Rakhlin, Shamir & Sridharan (2012)
take the second half, and so does a game whose λ has not settled by then.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def settled(multipliers: Vector, excess: Vector) -> bool:
    """Whether λ has settled at every limit.

    Args:
        multipliers: `[T, m]` λ of each step so far, in any unit.
        excess: `[T, m]` x_c − limit in ≤ form of the policy that acted under it.
    """
    late = len(multipliers) // 2
    return all(_one(*pair) for pair in zip(multipliers[late:].T, excess[late:].T, strict=True))


def _one(multiplier: Vector, excess: Vector) -> bool:
    """The same of one limit over the steps that are looked at, both `[T]`."""
    over = excess > 0
    if not over.any():
        return not multiplier.any()
    return not over.all() and bool(multiplier.max() - multiplier.min() <= multiplier.mean())
