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


class State(NamedTuple):
    """Everything seen."""

    terms: rule.Terms
    members: tuple[Any, ...]
    measurements: tuple[rule.Floats, ...]


def init(limits: ArrayLike, scale: ArrayLike | None = None) -> State:
    """State before the first policy."""
    return State(rule.terms(limits, scale), (), ())


def step(state: State, member: Any, measurement: ArrayLike) -> State:
    """One more policy."""
    vector = rule.checked(state.terms, measurement)
    return State(state.terms, (*state.members, member), (*state.measurements, vector))


def mixture(state: State) -> Mixture[Any]:
    """All policies, equal weights."""
    count = len(state.members)
    if not count:
        raise rule.no_policy_yet()
    return Mixture(state.members, np.full(count, 1.0 / count), np.array(state.measurements))
