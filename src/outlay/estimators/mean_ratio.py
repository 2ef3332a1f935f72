"""Do the propensities fit? The mean of ρ = π(a)/p(a) over the rows with a choice is 1 for every policy, but for noise.

Source: textbook.
"""

from __future__ import annotations

import numpy as np

from outlay.estimators.basis import Array
from outlay.estimators.panel import Panel
from outlay.ops.intervals import ratio as quotient
from outlay.ops.intervals import std_error

MISFIT = 4.0  # standard errors by which the mean ratio may leave 1
ROUNDING = 1e-6  # propensities are logged as float32


def off_one(mean: float, error: float) -> str | None:
    """Why the propensities cannot be right, or None."""
    if abs(mean - 1) <= MISFIT * error + ROUNDING:
        return None
    return f"π/p has mean {mean:.3f} ± {error:.3f}, where right propensities give 1"


def mean_ratio(panel: Panel, ratio: Array) -> tuple[float, float]:
    """Mean of ρ `[n]` over the rows with a choice, and its standard error by user; 1 and 0 where no row has one."""
    if panel.forced.all():
        return 1.0, 0.0
    free = ~panel.forced
    sums = panel.by_user(np.stack([ratio * free, free], axis=1))
    value, influence = quotient(sums[:, 0].mean(), sums[:, 0], sums[:, 1].mean(), sums[:, 1])
    return value, float(std_error(influence))
