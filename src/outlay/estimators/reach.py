"""What a sample without events cannot say: how far the outcomes of a user may leave their mean, by the whole log.

    reach_a = max over users of  Σ_{rows with action a} ±(x − x̄_a) / rows of the user        x̄_a: mean over the log

0 where an outcome is the action's own, as the amount that was given: then no user can differ, and ±0 is an error. Else
±0 comes of a sample that has missed the events, and a bound has to say what they may have been (`ops/skewed.py`).

Source: ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.estimators.joint import Joint

Array = NDArray[np.float64]

ROUNDING = 1e-6  # of the largest outcome: less is what 32 bits leave


def reaches(data: Transitions) -> Array:
    """`[K, 1+m, 2]` of reward and costs as logged, up and down, by action."""
    width, users = data.outcome.shape[1], len(data.users)
    rows = np.maximum(np.bincount(data.user, minlength=users), 1)
    found = np.zeros((data.num_actions, width, 2))
    for a in range(data.num_actions):
        given = np.flatnonzero(data.action == a)
        if not len(given):
            continue
        user = data.user[given]
        for t in range(width):
            x = np.asarray(data.outcome[given, t], np.float64)
            sums = np.bincount(user, x - x.mean(), minlength=users) / rows
            least = ROUNDING * float(np.abs(x).max())
            found[a, t] = [far if far > least else 0.0 for far in (sums.max(), -sums.min())]
    return found


def of_costs(joint: Joint, campaign: Campaign, most: Array) -> Array:
    """`[m]` the largest influence of one user on the budgets' coordinates, in ≤ form.

    Args:
        joint: whose effective users say how much one user may weigh.
        campaign: its budgets.
        most: `[1+m, 2]` the reach of the actions that the policy takes.
    """
    found = []
    for j, budget in enumerate(campaign.budgets, start=1):
        days = campaign.meta.horizon_days if budget.per == "user" else 1
        name = f"{budget.name}@{days}" if budget.per == "user" else budget.name
        effective = float(joint.ess[joint.column(name)])
        weight = len(joint.influence) / effective if effective > 0 else 1.0
        found.append(weight * days * float(most[j, 0 if budget.sign > 0 else 1]))
    return np.array(found)
