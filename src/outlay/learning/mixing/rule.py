"""The contract of a mixing rule, and what all rules share: the constraints, and the order of better and worse.

A rule takes policies one at a time, each with its measurement vector x(π), and can give a mixture at any time. It is a
module of pure functions; the state is a value, and holds no policy that the rule has dropped.

    state = rule.init(constraints(limits))
    state = rule.step(state, member, measurement)      # once for each policy
    mixture = rule.mixture(state)

Better means less scaled violation, where up to 1e-9 counts as none; where that is equal, more reward.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.mixture import Mixture
from outlay.ops.mixture_lp import FEASIBLE, scaled_violation

Floats = NDArray[np.float64]
FinalWeights = Literal["solved again", "one policy", "as found"]


class Constraints(NamedTuple):
    """The constraints on a mixture.

    Attributes:
        limits: `[m]` in ≤ form (a floor is negated, with its cost), in the unit of the measurements.
        scale: `[m]` > 0, one unit of violation of each limit.
        spares: how many policies a rule may keep beside those of its mixture; None: as many as it likes.
    """

    limits: Floats
    scale: Floats
    spares: int | None = None


@runtime_checkable
class Rule(Protocol):
    """A mixing rule. The state is the rule's own; a member is anything: a network, a number, a λ."""

    @property
    def FINAL_WEIGHTS(self) -> FinalWeights:  # noqa: N802 - a constant of the module
        """What a training serves once a fitted evaluation has measured the members.

        `solved again`: the best mixture of them by those figures; `one policy`: the best one of them; `as found`: the
        rule's own mixture.
        """

    def init(self, constraints: Constraints) -> Any:
        """Return the state before the first policy."""

    def step(self, state: Any, member: Any, measurement: ArrayLike) -> Any:
        """Return the state after one more policy with x(π) `[1+m]`: reward first, then costs in ≤ form."""

    def mixture(self, state: Any) -> Mixture[Any]:
        """Return the mixed policy. Raises ValueError before the first policy."""

    def members(self, state: Any) -> tuple[Any, ...]:
        """Return all policies that the rule may still use; the others may be freed."""


@runtime_checkable
class PricingRule(Rule, Protocol):
    """A rule whose mixture is the best of all policies that it holds, and which can prove it: column generation."""

    def duals(self, state: Any) -> Floats:
        """Return `[m]` λ ≥ 0, the prices to ask the next best response for."""

    def lower(self, state: Any) -> float:
        """Return the reward of the mixture, −∞ while it does not keep the limits."""

    def violation(self, state: Any) -> float:
        """Return the scaled violation of the mixture, ∞ before the first policy."""

    def reduced_cost(self, state: Any, measurements: Floats) -> Floats:
        """Return `[n]` how much policies measured as `[n, 1+m]` promise: 0 or less cannot improve the mixture."""


def constraints(limits: ArrayLike, scale: ArrayLike | None = None, *, spares: int | None = None) -> Constraints:
    """Return checked constraints.

    Args:
        limits: `[m]` finite, in ≤ form.
        scale: `[m]` finite and > 0; default |limit|, or 1 where the limit is 0.
        spares: 0 or more; None: no bound.

    Raises:
        ValueError: if one of them has the wrong shape or an impossible value.
    """
    bounds = np.array(limits, dtype=np.float64)
    if bounds.ndim != 1:
        raise ValueError(f"limits: expected a list of m numbers, found shape {bounds.shape}.")
    bounds = finite("limits", bounds, len(bounds))
    if spares is not None and spares < 0:
        raise ValueError(f"spares: expected 0 or more, found {spares}.")
    if scale is None:
        units = np.abs(bounds)
        units[units == 0.0] = 1.0
        return Constraints(bounds, units, spares)
    units = finite("scale", scale, len(bounds))
    if (units <= 0.0).any():
        raise ValueError(f"scale: expected numbers above 0, found {units.tolist()}.")
    return Constraints(bounds, units, spares)


def checked(constraints: Constraints, measurement: ArrayLike) -> Floats:
    """Return a measurement as floats `[1+m]`.

    Raises:
        ValueError: if it has the wrong length or is not finite.
    """
    return finite("measurement", measurement, 1 + len(constraints.limits))


def finite(name: str, values: ArrayLike, length: int) -> Floats:
    """Return a copy of `values` as floats `[length]`.

    Raises:
        ValueError: saying which, what was expected and what was found.
    """
    array = np.array(values, dtype=np.float64)
    if array.shape != (length,):
        raise ValueError(f"{name}: expected {length} numbers, found shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, found {array.tolist()}.")
    return array


def violation(constraints: Constraints, measurement: Floats) -> float:
    """Return the scaled violation of a measurement `[1+m]`; it has no unit."""
    return scaled_violation(measurement[1:], constraints.limits, constraints.scale)


def feasible(constraints: Constraints, measurement: Floats) -> bool:
    """Return whether a measurement `[1+m]` keeps the limits."""
    return violation(constraints, measurement) <= FEASIBLE


def badness(constraints: Constraints, measurement: Floats) -> tuple[float, float]:
    """Return what all rules order policies by, less being better: scaled violation, then the negative reward."""
    exceeded = violation(constraints, measurement)
    return (0.0 if exceeded <= FEASIBLE else exceeded, -float(measurement[0]))


def no_policy_yet() -> ValueError:
    """Return the error when a mixture is requested before the first step."""
    return ValueError("mixture: expected at least one policy, found none. Call step first.")
