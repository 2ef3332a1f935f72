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

FINAL_WEIGHTS: rule.FinalWeights = "one policy"


class SingleBestState(NamedTuple):
    """The best policy so far; `measurement` is None before the first."""

    constraints: rule.Constraints
    member: Any
    measurement: rule.Floats | None


def init(constraints: rule.Constraints) -> SingleBestState:
    """Return the state before the first policy."""
    return SingleBestState(constraints, None, None)


def step(state: SingleBestState, member: Any, measurement: ArrayLike) -> SingleBestState:
    """Keep the better policy; of equals the older."""
    vector = rule.checked(state.constraints, measurement)
    best = state.measurement
    if best is not None and rule.badness(state.constraints, best) <= rule.badness(state.constraints, vector):
        return state
    return SingleBestState(state.constraints, member, vector)


def mixture(state: SingleBestState) -> Mixture[Any]:
    """Return the best policy, with weight 1."""
    if state.measurement is None:
        raise rule.no_policy_yet()
    return Mixture((state.member,), np.ones(1), state.measurement[None])


def members(state: SingleBestState) -> tuple[Any, ...]:
    """Return the best policy."""
    return () if state.measurement is None else (state.member,)
