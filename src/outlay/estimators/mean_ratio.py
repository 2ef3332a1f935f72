"""Do the propensities fit? The mean of ρ = π(a)/p(a) over the log is 1 for every policy, but for noise.

    overall      mean of ρ over the rows with a choice
    by action    Σ ρ over the rows that took it / Σ π(action) over all

For a policy that always gives one action both are that action's share over its stated probability.

Source: textbook.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.basis import Array
from outlay.estimators.importance import check_propensity
from outlay.estimators.panel import Panel
from outlay.ops.importance import ratios
from outlay.ops.intervals import ratio as quotient
from outlay.ops.intervals import std_error


def mean_ratio(panel: Panel, ratio: Array) -> tuple[float, float]:
    """Mean of ρ `[n]` over the rows with a choice, and its standard error by user; 1 and 0 where no row has one."""
    if panel.forced.all():
        return 1.0, 0.0
    return _mean(panel, ratio, np.ones(len(panel)))


def mean_ratios(panel: Panel, policy: NDArray[Any], propensity: NDArray[np.floating]) -> tuple[Array, Array]:
    """By action `[K]`: the mean ratio of the rows that took it, and its standard error; NaN where π is always 0.

    Args:
        panel: the rows.
        policy: as `Panel.follow` takes it.
        propensity: `[n]` of the logged action.

    Raises:
        LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
    """
    target, given = panel.follow(policy), np.asarray(propensity, np.float64)
    check_propensity(panel, given)
    ratio = ratios(target.of(panel.action), given, panel.forced)
    found = [
        _mean(panel, ratio * (panel.action == action), target.table[target.kind, action])
        for action in range(panel.data.num_actions)
    ]
    means, errors = np.array(found).T
    return means, errors


def _mean(panel: Panel, above: Array, below: Array) -> tuple[float, float]:
    """Σ above / Σ below over the rows with a choice, and its standard error."""
    sums = panel.by_user(np.stack([above, below], axis=1) * ~panel.forced[:, None])
    value, influence = quotient(sums[:, 0].mean(), sums[:, 0], sums[:, 1].mean(), sums[:, 1])
    return value, float(std_error(influence))
