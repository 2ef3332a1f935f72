"""How far a user's costs may deviate from their mean, which a sample with few events cannot show.

    known_a   0 where the cost is the action's own: no row of the log with a differs, and a costs something, or is 0
              the stated largest cost of a (`reserve` of the budget), where no row of the log is above it
              the amount a, where every row of the log costs 0 or its own amount, as `coupon * active`
              +∞ else
    M         U · max_u mass_u / Σ mass · days · max_a known_a      of the users' weights, a over what the policy gives

Of clusters of users (`clusters.py`), M is G · max_g mass_g / Σ mass · days · max_a known_a.

For a floor it is a cost of 0 that takes away most, so that M is known where no cost is negative.

Source: ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.campaign import Campaign
from outlay.core.target import Target
from outlay.core.transitions import Transitions
from outlay.estimators.joint import Joint
from outlay.ops.skewed import FEWEST

Array = NDArray[np.float64]

ROUNDING = 1e-6  # of the largest outcome: less is what 32 bits leave


def varies(data: Transitions) -> NDArray[np.bool_]:
    """`[K, 1+m]` whether reward and costs, as logged, differ among the rows with an action."""
    least, most = _ends(data)
    return most - least > ROUNDING * np.maximum(np.abs(least), np.abs(most))


def known_costs(data: Transitions, campaign: Campaign, stated: ArrayLike) -> Array:
    """`[K, m]` how far a cost may leave its mean towards the limit in a row with each action; +∞ where not known.

    Args:
        data: the log, all of it.
        campaign: its budgets.
        stated: `[K, m]` the largest cost of a row, as the campaign file says; NaN where it does not.
    """
    least, most = _ends(data)
    differs, at_most, given = varies(data), np.asarray(stated, np.float64), np.isfinite(most[:, 0])
    action = np.asarray(data.action, np.intp)
    costs = np.full((data.num_actions, len(campaign.budgets)), np.inf)
    for j, budget in enumerate(campaign.budgets):
        x = np.asarray(data.outcome[:, 1 + j], np.float64)
        top, bottom = most[given, 1 + j], least[given, 1 + j]
        if budget.sign < 0:
            if bottom.min() >= 0:
                rows = np.bincount(action, minlength=data.num_actions)
                costs[:, j] = np.bincount(action, x, data.num_actions) / np.maximum(rows, 1)
        elif (top <= at_most[given, j] * (1 + ROUNDING)).all():
            costs[:, j] = at_most[:, j]
        elif _amounts(x, data.actions[action]):
            costs[:, j] = data.actions
        own = ~differs[:, 1 + j] & ((most[:, 1 + j] != 0) | (data.actions == 0))
        costs[own & given, j] = 0.0
    return costs


def largest(joint: Joint, campaign: Campaign, known: Array) -> Array:
    """`[m]` the largest influence of a user, or cluster, on the budgets' coordinates, in ≤ form; +∞ where not known.

    Args:
        joint: whose masses say how much one user may weigh.
        campaign: its budgets.
        known: `[m]` the largest of `known_costs` over the actions that the policy gives.
    """
    influences = []
    for budget, most in zip(campaign.budgets, known, strict=True):
        days = campaign.meta.horizon_days if budget.per == "user" else 1
        mass = joint.mass[:, joint.column(str(Target(budget.name, days)) if budget.per == "user" else budget.name)]
        if joint.clusters is not None:
            mass = joint.clusters.sums(mass)
        weight = len(mass) * float(mass.max()) / total if (total := float(mass.sum())) > 0 else 1.0
        influences.append(weight * days * float(most))
    return np.array(influences)


def _ends(data: Transitions) -> tuple[Array, Array]:
    """`[K, 1+m]` the least and the largest outcome of each action; ±∞ where it was never given."""
    shape = data.num_actions, data.outcome.shape[1]
    least, most = np.full(shape, np.inf), np.full(shape, -np.inf)
    action = np.asarray(data.action, np.intp)
    for a in range(data.num_actions):
        rows = np.flatnonzero(action == a)
        if len(rows):
            x = np.asarray(data.outcome[rows], np.float64)
            least[a], most[a] = x.min(axis=0), x.max(axis=0)
    return least, most


def _amounts(cost: Array, amount: Array) -> bool:
    """Return whether every cost is 0 or the amount that was given, and more than a few were paid."""
    paid = cost != 0
    alike = np.abs(cost[paid] - amount[paid]) <= ROUNDING * np.abs(amount[paid])
    return bool(paid.sum() >= FEWEST and alike.all())
