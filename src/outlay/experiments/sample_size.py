"""How many units a test needs to detect an effect, by the formula for two means.

    n = (z_{1−α/2} + z_power)² · σ² · (1/s + 1/(1 − s)) / effect²        units of both arms; s: the share of one arm

These are the numbers of `power.py` with `lift`, for evaluations, which do without tea-tasting.
"""

from __future__ import annotations

from math import ceil

from outlay.ops.intervals import quantile


def units_needed(variance: float, effect: float, *, alpha: float, power: float, share: float = 0.5) -> int:
    """Users, or clusters, of both arms that detect an effect.

    Args:
        variance: of the metric between units, the same in both arms.
        effect: difference of the means, not 0, in the unit of the metric.
        alpha: two-sided error.
        power: probability of detecting the effect.
        share: of one of the arms.
    """
    reach = quantile(1 - alpha / 2) + quantile(power)
    return ceil(reach**2 * variance * (1 / share + 1 / (1 - share)) / effect**2)
