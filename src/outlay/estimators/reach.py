"""How far a user's costs may deviate from their mean, which a sample with few events cannot show.

    known_a   0 where the cost is the action's own: no row of the log with a differs, and a costs something, or is 0
              the stated largest cost of a (`reserve` of the budget), where no row of the log is above it
              the amount a, where every row of the log costs 0 or its own amount, as `coupon * active`
              +∞ else
    M         U · max_u mass_u / Σ mass · days · max_a known_a      of the users' weights, a over what the policy gives
    beyond    U · max_u mass_u / Σ mass · days · (record − shown)₊  what a user may add to the largest influence seen

record is the largest cost that is stated, known or on record: of a user of the whole log, the mean of the rows in
which that user cost anything, given what the policy gives. shown is the same of the users who are measured, where the
policy's action was logged. Means, as a firm is a firm on all its days, and one dear day among many is none.

Of clusters of users (`clusters.py`), U and mass are of clusters.

For a floor it is a cost of 0 that takes away most, so that M is known where no cost is negative. Of the reward, it is
its size that counts, as a gain may be wrong on both sides.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.campaign import Campaign
from outlay.core.estimate import Target
from outlay.core.inequalities import Inequalities
from outlay.core.transitions import Transitions
from outlay.estimators.joint import Joint
from outlay.estimators.units import days_counted, objective
from outlay.ops.intervals import FEWEST

Array = NDArray[np.float64]

ROUNDING = 1e-6  # of the largest outcome: less is what 32 bits leave


@dataclass(frozen=True)
class Reach:
    """How far users may go beyond what those who were measured have shown, of one policy.

    In the units of a row's outcomes or, from `largest`, as the influence of a user.

    Attributes:
        known: `[m]` the most by which a cost can leave its mean towards the limit; +∞ where nothing says it.
        record: `[1+m]` the largest reward, by its size, and costs that are on record or possible.
        shown: `[1+m]` the largest that those who were measured have shown.
        unbelieved: `[m]` rows of the log that cost more than the campaign file states as the largest cost.
    """

    known: Array
    record: Array
    shown: Array
    unbelieved: NDArray[np.int64]

    @property
    def beyond(self) -> Array:
        """`[1+m]` by how much those on record or possible exceed what was shown."""
        return np.maximum(self.record - self.shown, 0.0)

    @classmethod
    def unknown(cls, budgets: int) -> Reach:
        """Return that of a policy of which nothing is known, or on record, but what was measured."""
        zeros = np.zeros(1 + budgets)
        return cls(np.full(budgets, np.inf), zeros, zeros, np.zeros(budgets, np.int64))

    @classmethod
    def mixed(cls, parts: Sequence[Reach], weights: ArrayLike) -> Reach:
        """Return that of the mixture of policies with weights above 0, measured on the same users."""
        share = np.asarray(weights, np.float64)
        together = cls.pooled(parts)
        lacking = share @ np.array([np.maximum(together.record - part.shown, 0.0) for part in parts])
        return replace(together, shown=together.record - lacking)

    @classmethod
    def pooled(cls, parts: Sequence[Reach]) -> Reach:
        """Return that of policies which were measured each on users of its own."""
        return cls(
            known=np.max([part.known for part in parts], axis=0),
            record=np.max([part.record for part in parts], axis=0),
            shown=np.max([part.shown for part in parts], axis=0),
            unbelieved=parts[0].unbelieved,
        )


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


def above_stated(data: Transitions, campaign: Campaign, stated: ArrayLike) -> NDArray[np.int64]:
    """`[m]` rows of the log that cost more than is stated `[K, m]` of their action; 0 where nothing is stated."""
    at_most, action = np.asarray(stated, np.float64), np.asarray(data.action, np.intp)
    counts = np.zeros(len(campaign.budgets), np.int64)
    for j, budget in enumerate(campaign.budgets):
        if budget.sign > 0 and not np.isnan(at_most[:, j]).all():
            most = at_most[:, j] + ROUNDING * np.abs(at_most[:, j])
            counts[j] = np.count_nonzero(np.asarray(data.outcome[:, 1 + j], np.float64) > most[action])
    return counts


def towards(outcome: Array, campaign: Campaign) -> Array:
    """`[n, 1+m]` how far the outcomes of rows go: the size of the reward, and costs towards their limits."""
    far: Array = outcome * np.append(1.0, Inequalities.of(campaign.budgets).signs)
    far[:, 0] = np.abs(far[:, 0])
    return far


def largest_mean(user: NDArray[np.integer], far: Array) -> Array:
    """`[C]` the largest mean of a user's rows in which `far` `[n, C]` is above 0; 0 where it never is."""
    if not len(user):
        return np.zeros(far.shape[1])
    most = []
    for column in far.T:
        rows = np.bincount(user, column > 0)
        most.append(float((np.bincount(user, np.maximum(column, 0)) / np.maximum(rows, 1)).max()))
    return np.array(most)


def largest(joint: Joint, campaign: Campaign, reach: Reach) -> Reach:
    """Return how far a user, or cluster, may go in influence on the objective and the budgets' coordinates, in ≤ form.

    Args:
        joint: whose masses say how much one user may weigh.
        campaign: its budgets.
        reach: of the policy, by row.
    """
    horizon = campaign.meta.horizon_days
    heaviest = [days_counted(campaign) * _heaviest(joint, objective(campaign))]
    for budget in campaign.budgets:
        days, target = (horizon, Target(budget.name, horizon)) if budget.per == "user" else (1, Target(budget.name))
        heaviest.append(days * _heaviest(joint, str(target)))
    weights = np.array(heaviest)
    return replace(reach, known=weights[1:] * reach.known, record=weights * reach.record, shown=weights * reach.shown)


def _heaviest(joint: Joint, target: str) -> float:
    """The largest weight of a user, or cluster, in multiples of the mean."""
    mass = joint.mass[:, joint.column(target)]
    if joint.clusters is not None:
        mass = joint.clusters.sums(mass)
    return len(mass) * float(mass.max()) / total if (total := float(mass.sum())) > 0 else 1.0


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
