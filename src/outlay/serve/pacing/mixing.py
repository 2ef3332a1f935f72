"""The policies of a bundle as pacing sees them: what each earns and costs, and which mixture fits the money.

    weights     max αᵀr   s.t.   κ αᵀc ≤ money per decision, all other limits kept            (`ops/mixture_lp.py`)
    spend       of a mixture at a price ρ: what the policies on the frontier cost whose own price is ρ times as high

κ is what was spent over what was promised. Below the cheapest policy there is only the cheapest, and the price.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.pool import Pool

ROUNDING = 1e-6  # a smaller weight is none

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class PolicyPool:
    """P policies and m budgets.

    Attributes:
        reward: `[P]`.
        cost: `[P, m]` in ≤ form; the money budget's in minor units per decision.
        limits: `[m]`, in the same units.
        money: which budget is money.
        own: `[P]` weights of the bundle's own mixture.
        fold: `[P]` whose users had no part in each, where they were learned in folds; −1: of any fold.
    """

    reward: Vector
    cost: Vector
    limits: Vector
    money: int
    own: Vector
    fold: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, pool: Pool, minor: int) -> PolicyPool:
        """As they were measured, with so many minor units in a unit of money."""
        budgets = pool.bundle.manifest["budgets"]
        money = next(i for i, budget in enumerate(budgets) if budget["money"])
        sign = np.array([float(budget["sign"]) for budget in budgets])
        sign[money] = 1.0  # whatever the campaign wants to be spent at least: a plan says how much
        unit = np.ones(len(budgets))
        days = pool.bundle.manifest["campaign"]["campaign"]["horizon_days"]
        unit[money] = minor / (days if budgets[money]["per"] == "user" else 1)
        limits = sign * unit * [budget["limit"] for budget in budgets]
        fold = np.array([entry.get("fold", -1 if "file" in entry else 0) for entry in pool.entries])
        costs = pool.measurements[:, 1:] * sign * unit
        return cls(pool.measurements[:, 0], costs, limits, money, pool.weights, fold)

    def mixture(self, limit: float, factor: float) -> Vector:
        """`[P]` weights for so much money per decision, where policies cost `factor` times what was measured.

        Of policies that were learned in folds each fold's are mixed by themselves, as training does.
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
        """Minor units per decision that a mixture at a price is measured to cost."""
        cost = float(weights @ self.cost[:, self.money])
        costs, slopes = self._slopes
        if len(costs) < 2:
            return cost
        # A mixture of the frontier that costs this much has this slope; ρ times as steep is where ρ leads.
        log_slope = float(np.interp(cost, costs, slopes))
        here, there = (float(np.interp(-log_slope - log, -slopes, costs)) for log in (0.0, np.log(price)))
        return cost * there / here if here > 0 else cost

    def elasticity(self, weights: Vector) -> float:
        """By how much more the spend falls, in logs, than the price rises; 1 where the policies cannot tell."""
        dear, cheap = self.spend(weights, 0.5), self.spend(weights, 2.0)
        return float(np.log(dear / cheap) / np.log(4.0)) if dear > cheap > 0 else 1.0

    @cached_property
    def _slopes(self) -> tuple[Vector, Vector]:
        """Of the frontier's edges: cost in the middle, ascending, and log of reward per cost, descending."""
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
