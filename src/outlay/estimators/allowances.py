"""What the errors of figures are widened by, beyond what users tell: one kind of doubt, one allowance.

    wide = allow(allowances, estimate, 0.95)                 # an estimate with a wider interval
    low, high = ends(allowances, target, (value, low, high), 0.95)

An allowance is what an evaluation measured of a kind of error that estimates do not have in their influence, such as
shocks that all users of a day share (`day_effects.py`). Each is added to what the others left, in the order of the
registry (`choosing/allowances.py`), and every figure that is shown, and every bound that decides, goes through all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from outlay.core.estimate import Estimate, Target
from outlay.core.reasons import Reason
from outlay.estimators.certificate import Bounds, BudgetBound

Interval = tuple[float, float, float]


class Allowance(Protocol):
    """What may be wrong with every figure."""

    def error(self, target: Target, value: float, /) -> float:
        """The standard error that it adds to a figure, in quadrature and in the figure's unit."""

    def ends(self, target: Target, interval: Interval, confidence: float, /, *, gain: bool) -> tuple[float, float]:
        """Both ends of an interval (value, low, high) of two-sided confidence, with what it adds to them.

        `gain` says that the figure is a difference between policies.
        """

    @property
    def reason(self) -> Reason:
        """Why a limit is not kept that the bound kept without it."""


Allowances = Mapping[str, Allowance]


def ends(
    allowances: Allowances, target: Target, interval: Interval, confidence: float, *, gain: bool = False
) -> tuple[float, float]:
    """Return both ends of an interval with all that is allowed for."""
    value, low, high = interval
    for allowance in allowances.values():
        low, high = allowance.ends(target, (value, low, high), confidence, gain=gain)
    return low, high


def allow(allowances: Allowances, estimate: Estimate, confidence: float) -> Estimate:
    """Return an estimate with all that is allowed for in its interval, of this confidence, and its standard error."""
    if estimate.value is None or estimate.std_error is None:
        return estimate
    assert estimate.low is not None
    assert estimate.high is not None
    target, value = Target.parse(estimate.target), estimate.value
    low, high = ends(allowances, target, (value, estimate.low, estimate.high), confidence)
    errors = [allowance.error(target, value) for allowance in allowances.values()]
    return replace(estimate, low=low, high=high, std_error=float(np.hypot.reduce([estimate.std_error, *errors])))


def allow_bounds(allowances: Allowances, bounds: Bounds) -> Bounds:
    """Return the bounds of a certificate with all that is allowed for."""
    both = 2 * bounds.confidence - 1
    for allowance in allowances.values():
        bounds = bounds._replace(lines=tuple(_line(allowance, line, both) for line in bounds.lines))
        reason = bounds.reason
        if reason is None and not bounds.kept:
            reason = allowance.reason
        gain, least, most = bounds.gain, bounds.gain_bound, bounds.gain_most
        if gain is not None and least is not None and most is not None:
            least, most = allowance.ends(Target("reward", bounds.window), (gain, least, most), both, gain=True)
        bounds = bounds._replace(reason=reason, gain_bound=least, gain_most=most)
    return bounds


def _line(allowance: Allowance, line: BudgetBound, both: float) -> BudgetBound:
    if line.value is None or line.bound is None:
        return line
    low, high = allowance.ends(Target(line.budget), (line.value, line.bound, line.bound), both, gain=False)
    bound = low if line.floor else high
    return replace(line, bound=bound, kept=line.kept and line.keeps(bound))
