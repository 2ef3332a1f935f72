"""The contract of a mixing rule, and what all rules share: limits, their scale, the order of better and worse.

A rule takes policies one at a time, each with its measurement vector x(π), and can always give a mixture. It is a
module with three pure functions; the state is a value, and what a rule has dropped its state no longer holds.

    state = rule.init(limits)
    state = rule.step(state, member, measurement)      # as often as there are policies
    mixture = rule.mixture(state)

Better means: less scaled violation, where up to 1e-9 counts as none; where that is equal, more reward.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.mixture import Mixture
from outlay.ops.mixture_lp import FEASIBLE, scaled_violation

Floats = NDArray[np.float64]


class Terms(NamedTuple):
    """What a mixture is held to.

    Attributes:
        limits: `[m]` in ≤ form (a floor is negated, with its cost), in the unit of the measurements.
        scale: `[m]` > 0, one unit of violation of each limit.
    """

    limits: Floats
    scale: Floats


class Rule(Protocol):
    """A mixing rule. The state is the rule's own; a member is anything: a network, a handle, a λ."""

    def init(self, limits: ArrayLike, scale: ArrayLike | None = None) -> Any:
        """State before the first policy."""

    def step(self, state: Any, member: Any, measurement: ArrayLike) -> Any:
        """State after one more policy with x(π) `[1+m]`: reward first, then costs in ≤ form."""

    def mixture(self, state: Any) -> Mixture[Any]:
        """The mixed policy. Raises ValueError before the first policy."""


def terms(limits: ArrayLike, scale: ArrayLike | None = None) -> Terms:
    """Limits with their scale, checked.

    Args:
        limits: `[m]` finite, in ≤ form.
        scale: `[m]` finite and > 0; default |limit|, or 1 where the limit is 0.

    Raises:
        ValueError: if either has the wrong shape or an impossible value.
    """
    bounds = np.array(limits, dtype=np.float64)
    if bounds.ndim != 1:
        raise ValueError(f"limits: expected a list of m numbers, found shape {bounds.shape}.")
    bounds = finite("limits", bounds, len(bounds))
    if scale is None:
        units = np.abs(bounds)
        units[units == 0.0] = 1.0
        return Terms(bounds, units)
    units = finite("scale", scale, len(bounds))
    if (units <= 0.0).any():
        raise ValueError(f"scale: expected numbers above 0, found {units.tolist()}.")
    return Terms(bounds, units)


def checked(state_terms: Terms, measurement: ArrayLike) -> Floats:
    """`[1+m]` measurement as floats.

    Raises:
        ValueError: if it has the wrong length or is not finite.
    """
    return finite("measurement", measurement, 1 + len(state_terms.limits))


def finite(name: str, values: ArrayLike, length: int) -> Floats:
    """A copy of `values` as floats `[length]`.

    Raises:
        ValueError: saying which, what was expected and what was found.
    """
    array = np.array(values, dtype=np.float64)
    if array.shape != (length,):
        raise ValueError(f"{name}: expected {length} numbers, found shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, found {array.tolist()}.")
    return array


def violation(state_terms: Terms, measurement: Floats) -> float:
    """Scaled violation of a measurement `[1+m]`, no unit."""
    return scaled_violation(measurement[1:], state_terms.limits, state_terms.scale)


def feasible(state_terms: Terms, measurement: Floats) -> bool:
    """Whether a measurement `[1+m]` keeps the limits."""
    return violation(state_terms, measurement) <= FEASIBLE


def badness(state_terms: Terms, measurement: Floats) -> tuple[float, float]:
    """The order that all rules share: less is better. Scaled violation, then reward with its sign turned."""
    exceeded = violation(state_terms, measurement)
    return (0.0 if exceeded <= FEASIBLE else exceeded, -float(measurement[0]))


def no_policy_yet() -> ValueError:
    """The error of a mixture that is asked for before the first step."""
    return ValueError("mixture: expected at least one policy, found none. Call step first.")
