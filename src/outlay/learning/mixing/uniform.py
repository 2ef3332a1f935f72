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
from outlay.learning.mixing.growing import Growing, GrowingRows


class State(NamedTuple):
    """Everything seen: k members and their measurements `[k, 1+m]`."""

    terms: rule.Terms
    members: Growing
    measurements: GrowingRows


def init(limits: ArrayLike, scale: ArrayLike | None = None) -> State:
    """State before the first policy."""
    held_to = rule.terms(limits, scale)
    return State(held_to, Growing(), GrowingRows(np.empty((0, 1 + len(held_to.limits)))))


def step(state: State, member: Any, measurement: ArrayLike) -> State:
    """One more policy."""
    vector = rule.checked(state.terms, measurement)
    return State(state.terms, state.members.appended(member), state.measurements.appended(vector))


def mixture(state: State) -> Mixture[Any]:
    """All policies, equal weights."""
    count = len(state.members)
    if not count:
        raise rule.no_policy_yet()
    return Mixture(tuple(state.members), np.full(count, 1.0 / count), state.measurements.array)
