"""Single best: the feasible policy of the highest reward, else the one of least scaled violation.

Source: the heuristic of Le et al. (2019) and Xiao et al. (2019). One policy to store; it cannot spend a budget that
lies between two policies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from outlay.core.mixture import Mixture
from outlay.learning.mixing import rule


class State(NamedTuple):
    """The best policy so far; `measurement` is None before the first."""

    terms: rule.Terms
    member: Any
    measurement: rule.Floats | None


def init(limits: ArrayLike, scale: ArrayLike | None = None) -> State:
    """State before the first policy."""
    return State(rule.terms(limits, scale), None, None)


def step(state: State, member: Any, measurement: ArrayLike) -> State:
    """Keep the better one; of equals the older."""
    vector = rule.checked(state.terms, measurement)
    best = state.measurement
    if best is not None and rule.badness(state.terms, best) <= rule.badness(state.terms, vector):
        return state
    return State(state.terms, member, vector)


def mixture(state: State) -> Mixture[Any]:
    """The best policy, with weight 1."""
    if state.measurement is None:
        raise rule.no_policy_yet()
    return Mixture((state.member,), np.ones(1), state.measurement[None])
