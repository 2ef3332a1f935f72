"""AIM-mean: the mean of all policies so far, as a mixture of at most m + 2 affinely independent ones.

    xₜ = xₜ₋₁ + (x(πₜ) − xₜ₋₁) / t

Source: the paper's Algorithm AIM-mean; the geometry, and where it differs, is in `ops/simplex.py`. The mean itself is
carried, with the digits that rounding takes, and not Xα.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from outlay.core.mixture import Mixture
from outlay.learning.mixing import rule
from outlay.ops.simplex import reduce_support

FINAL_WEIGHTS: rule.FinalWeights = "solved again"


class AimState(NamedTuple):
    """A mixed policy of constant size.

    Attributes:
        constraints: of the mixture.
        members: k ≤ m + 2 policies.
        measurements: `[k, 1+m]`, affinely independent.
        weights: `[k]` a distribution.
        target: `[1+m]` x(μ) as carried; weights @ measurements is the same to 1e-9 of the scale of the measurements.
        carry: `[1+m]` what rounding took from `target`.
        rounds: policies seen.
    """

    constraints: rule.Constraints
    members: tuple[Any, ...]
    measurements: rule.Floats
    weights: rule.Floats
    target: rule.Floats
    carry: rule.Floats
    rounds: int


def init(constraints: rule.Constraints) -> AimState:
    """Return the state before the first policy."""
    size = 1 + len(constraints.limits)
    return AimState(constraints, (), np.empty((0, size)), np.empty(0), np.zeros(size), np.zeros(size), 0)


def step(state: AimState, member: Any, measurement: ArrayLike) -> AimState:
    """Add a policy to the mean."""
    vector = rule.checked(state.constraints, measurement)
    share = 1.0 / (state.rounds + 1)
    move = state.carry + share * ((vector - state.target) - state.carry)
    target = state.target + move
    # Knuth's two-sum: what the addition above rounded away.
    taken = target - state.target
    carry = (state.target - (target - taken)) + (move - taken)
    return advance(state, member, vector, share, target)._replace(carry=carry)


def advance(state: AimState, member: Any, measurement: rule.Floats, share: float, target: rule.Floats) -> AimState:
    """Move `share` of the way, in (0, 1], to a policy with x(π) `[1+m]`, which leads to `target`; drop spare ones."""
    measurements = np.concatenate([state.measurements, measurement[None]])
    weights = np.append((1.0 - share) * state.weights, share)
    kept, weights = reduce_support(measurements, weights, target)
    members = (*state.members, member)
    return state._replace(
        members=tuple(members[i] for i in kept),
        measurements=measurements[kept],
        weights=weights,
        target=target,
        rounds=state.rounds + 1,
    )


def mixture(state: AimState) -> Mixture[Any]:
    """Return the kept policies with their weights."""
    if not state.members:
        raise rule.no_policy_yet()
    return Mixture(state.members, state.weights, state.measurements)


def members(state: AimState) -> tuple[Any, ...]:
    """Return the kept policies."""
    return state.members
