"""AIM-greedy: each new policy moves the mixture to the best point of the segment between the two.

    xₜ = best of { x(μₜ₋₁) + θ (x(πₜ) − x(μₜ₋₁)) : 0 ≤ θ ≤ 1 }     least scaled violation first, then reward

Source: the paper's Algorithm AIM-greedy, with the whole segment searched also where neither end is feasible (there the
paper keeps the nearer end, and its minimum over λ is −∞). Never worse than single-best on the same measurements: each
point chosen is at least as good as both ends, in one order for both rules. It does not look back at policies it has
dropped; `lp` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from outlay.learning.mixing import rule
from outlay.learning.mixing.aim_mean import FINAL_WEIGHTS, AimState, advance, init, members, mixture
from outlay.ops.mixture_lp import FEASIBLE

__all__ = ["FINAL_WEIGHTS", "best_point", "init", "members", "mixture", "step"]


def step(state: AimState, member: Any, measurement: ArrayLike) -> AimState:
    """Move to the best point between the mixture and the new policy."""
    newest = rule.checked(state.constraints, measurement)
    if state.rounds == 0:
        return advance(state, member, newest, 1.0, newest)
    share, target = best_point(state.constraints, state.target, newest)
    if share == 0.0:
        return state._replace(rounds=state.rounds + 1)
    return advance(state, member, newest, share, target)


def best_point(constraints: rule.Constraints, current: rule.Floats, newest: rule.Floats) -> tuple[float, rule.Floats]:
    """Return the best point from `current` to `newest`, both `[1+m]`: θ in [0, 1], of equals the least, and x `[1+m]`.

    The squared violation is convex and, between the θ at which a limit is met exactly, quadratic. Its least value and
    the ends of the part that keeps all limits are therefore among those θ, the two ends and one stationary point.
    """
    start = (current[1:] - constraints.limits) / constraints.scale
    slope = (newest[1:] - constraints.limits) / constraints.scale - start
    moves = slope != 0.0
    met = -start[moves] / slope[moves]
    shares = np.concatenate([(0.0, 1.0), met[(met > 0.0) & (met < 1.0)]])
    shares.sort()
    derivative = np.maximum(start + shares[:, None] * slope, 0.0) @ slope
    after = int((derivative < 0.0).sum())  # it never falls
    if 0 < after < len(shares):
        part = derivative[after - 1] / (derivative[after - 1] - derivative[after])
        stationary = shares[after - 1] + part * (shares[after] - shares[after - 1])
        shares = np.concatenate([shares[:after], (stationary,), shares[after:]])
    points = current + shares[:, None] * (newest - current)
    points[-1] = newest
    # Judged at the points themselves, as rounded: so no end is ever better than what is chosen.
    exceeded = np.maximum((points[:, 1:] - constraints.limits) / constraints.scale, 0.0)
    violation = np.sqrt((exceeded * exceeded).sum(axis=1))
    violation[violation <= FEASIBLE] = 0.0
    best = int(np.lexsort((-points[:, 0], violation))[0])
    return float(shares[best]), points[best]
