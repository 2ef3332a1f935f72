"""A bundle's policies as pacing uses them: what each earns and costs, and which mixture fits the money.

    weights     max αᵀr   s.t.   κ αᵀc ≤ money per decision, and all other limits              (`ops/mixture_lp.py`)
    spend       of a mixture at a price ρ: the cost of the policies on the frontier whose own price is ρ times as high

κ is actual over predicted cost. If there is less money than the cheapest policy costs, the cheapest policy serves and
only the price is left to steer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.pool import Pool

ROUNDING = 1e-6  # smaller weights count as 0

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class PolicyPool:
    """P policies and m budgets.

    Attributes:
        reward: `[P]`.
        cost: `[P, m]` in ≤ form; the money budget's in minor units per decision.
        limits: `[m]`, in the same units.
        money: which budget is money.
        own: `[P]` weights of the mixture that is served while nothing is known of the money per decision.
        fold: `[P]` the fold whose users each policy was not learned from, if there are folds; −1: any fold.
    """

    reward: Vector
    cost: Vector
    limits: Vector
    money: int
    own: Vector
    fold: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, pool: Pool, minor: int, own: Vector | None = None) -> PolicyPool:
        """Return a bundle's policies as they were measured, with `minor` minor units in a unit of money.

        `own` is by default the bundle's own mixture.
        """
        budgets = pool.bundle.manifest.budgets
        money = next(i for i, budget in enumerate(budgets) if budget.money)
        sign = np.array([float(budget.sign) for budget in budgets])
        sign[money] = 1.0  # even if the campaign has a floor on money: the plan says how much to spend
        unit = np.ones(len(budgets))
        days = pool.bundle.campaign.meta.horizon_days
        unit[money] = minor / (days if budgets[money].per == "user" else 1)
        limits = sign * unit * [budget.limit for budget in budgets]
        fold = np.array([entry.fold for entry in pool.entries])
        costs = pool.measurements[:, 1:] * sign * unit
        return cls(pool.measurements[:, 0], costs, limits, money, pool.weights if own is None else own, fold)

    def mixture(self, limit: float, factor: float) -> Vector:
        """Return `[P]` weights for `limit` minor units per decision, if policies cost `factor` times their measurement.

        If the policies were learned in folds, the policies of each fold are mixed separately, as in training.
        """
        from outlay.ops.mixture_lp import solve_mixture  # SciPy's solvers take half a second to load: only for a plan

        costs, limits = self.cost.copy(), self.limits.copy()
        costs[:, self.money] *= factor
        limits[self.money] = limit
        scale = np.maximum(np.abs(costs).max(axis=0), np.finfo(np.float64).tiny)
        fold = np.zeros(len(self.reward), np.int64) if self.fold is None else self.fold
        folds, weights = np.unique(fold[fold >= 0]), np.zeros(len(fold))
        for k in folds if len(folds) else [-1]:
            live = (fold == k) | (fold == -1)
            best = solve_mixture(np.column_stack([self.reward, costs])[live], limits, scale).weights
            weights[live] += best / max(1, len(folds))
        weights = np.where(weights > ROUNDING, weights, 0.0)
        solved: Vector = weights / weights.sum()
        return solved

    def spend(self, weights: Vector, price: float) -> float:
        """Return the measured cost of a mixture at a price, in minor units per decision."""
        cost = float(weights @ self.cost[:, self.money])
        costs, slopes = self._slopes
        if len(costs) < 2:
            return cost
        # A mixture on the frontier that costs this much has this slope; at the price ρ it is ρ times as steep.
        log_slope = float(np.interp(cost, costs, slopes))
        here, there = (float(np.interp(-log_slope - log, -slopes, costs)) for log in (0.0, np.log(price)))
        return cost * there / here if here > 0 else cost

    def elasticity(self, weights: Vector) -> float:
        """Return the fall of log spend per rise of log price; 1 if the policies do not show it."""
        dear, cheap = self.spend(weights, 0.5), self.spend(weights, 2.0)
        return float(np.log(dear / cheap) / np.log(4.0)) if dear > cheap > 0 else 1.0

    @cached_property
    def _slopes(self) -> tuple[Vector, Vector]:
        """The frontier's edges: cost at the midpoint, ascending, and log of reward per cost, descending."""
        order = np.lexsort((-self.reward, self.cost[:, self.money]))
        corners: list[tuple[float, float]] = []
        for cost, reward in zip(self.cost[order, self.money].tolist(), self.reward[order].tolist(), strict=True):
            if corners and (reward <= corners[-1][1] or cost <= corners[-1][0]):
                continue
            while len(corners) > 1 and _slope(corners[-1], (cost, reward)) >= _slope(corners[-2], corners[-1]):
                corners.pop()
            corners.append((cost, reward))
        edges = list(pairwise(corners))
        middle = [(one[0] + other[0]) / 2 for one, other in edges]
        return np.array(middle), np.log([_slope(*edge) for edge in edges])


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])
