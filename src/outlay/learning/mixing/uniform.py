"""Uniform: every policy so far with the same weight; x(μ) is the plain mean.

Source: the original mixed-policy method (Le et al. 2019, the paper's Algorithm 1). Converges, but keeps every policy:
use it as the yardstick for aim-mean, which has the same x(μ) with at most m + 2 policies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from outlay.core.mixture import Mixture
from outlay.learning.mixing import rule

FINAL_WEIGHTS: rule.FinalWeights = "as found"


class UniformState(NamedTuple):
    """Everything seen: k members and their measurements `[k, 1+m]`."""

    constraints: rule.Constraints
    members: tuple[Any, ...]
    measurements: rule.Floats


def init(constraints: rule.Constraints) -> UniformState:
    """Return the state before the first policy."""
    return UniformState(constraints, (), np.empty((0, 1 + len(constraints.limits))))


def step(state: UniformState, member: Any, measurement: ArrayLike) -> UniformState:
    """Add a policy."""
    vector = rule.checked(state.constraints, measurement)
    return UniformState(state.constraints, (*state.members, member), np.vstack([state.measurements, vector]))


def mixture(state: UniformState) -> Mixture[Any]:
    """Return all policies with equal weights."""
    count = len(state.members)
    if not count:
        raise rule.no_policy_yet()
    return Mixture(state.members, np.full(count, 1.0 / count), state.measurements)


def members(state: UniformState) -> tuple[Any, ...]:
    """Return all policies."""
    return state.members
