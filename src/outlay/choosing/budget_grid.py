"""Mixtures for a grid of budgets, from the least that can be kept to the most that is useful: the curve, solved once.

Each fold solves its own linear program at every budget of the grid, from the measurements on its own select users, with
the margin that a certificate on all users will need (none, where a cap holds the budget while serving); the mixture for
a budget is the mean over folds. Between two budgets of the grid their mixtures are mixed in proportion. So every
mixture of the curve is one of the grid's or lies between two, and one look at the certify users bounds them all
(`certify.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.errors import InfeasibleError
from outlay.estimators.frontier import Points

BUDGETS = 51  # of the grid
ROUNDING = 1e-9  # a smaller weight is none
HALVINGS = 50  # of the interval that holds the least budget
REFININGS = 5  # of the margin at the largest useful budget, which depends on that budget a little

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class GridProblem:
    """The linear program of one fold, for any limit of the money budget.

    Attributes:
        points: its L policies, measured on its *select* users.
        aim: `[L]` the objective that mixtures are chosen by (`units.chosen_by`).
        campaign: the limits; that of the money budget moves.
        scale: `[m]` one unit of violation of each limit.
        alpha: of the look that will certify the whole curve.
        certify_users: users that the look will rest on, of all folds.
        folds: how many.
        further: `[L, m]` how much more the estimate that assumes less errs (`estimates.further_errors`).
        rare: whether margins allow for what rare users may cost (`choose.SolvedMixture`).
    """

    points: Points
    aim: Vector
    campaign: Campaign
    scale: Vector
    alpha: float
    certify_users: int
    folds: int
    further: Vector | float = 0.0
    rare: bool = True

    def solve(self, budget: float) -> tuple[Vector, float] | None:
        """Return weights `[L]` for a budget and their margin below it, or None where no mixture keeps the limits."""
        campaign = self.campaign.with_money_limit(budget)
        margin = self._margin(campaign)
        solution = self.points.solve(self.aim, campaign, self.scale, margin)
        weights = np.where(solution.weights > ROUNDING, solution.weights, 0)
        weights /= weights.sum()
        return (weights, float(weights @ margin[:, campaign.money])) if solution.feasible else None

    @cached_property
    def least(self) -> float:
        """The least budget that can be kept."""
        if self.solve(0.0) is not None:
            return 0.0
        low, high = 0.0, max(self.most, float(self.scale[self.campaign.money]))
        while self.solve(high) is None:
            high *= 2
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.solve(middle) is not None else (middle, high)
            if high - low <= ROUNDING * high:
                break
        return high

    @cached_property
    def most(self) -> float:
        """What is spent, the margin included, where money is unlimited.

        Raises:
            InfeasibleError: if the other limits cannot be kept however much is spent.
        """
        campaign, place = self.campaign, self.campaign.money
        free = self.solve(1e3 * float(np.abs(self.points.value[:, 1 + place]).max() + 1))
        if free is None:
            raise InfeasibleError(
                "no mixture keeps the other limits with room for the certificate of every budget.",
                file=campaign.path,
                where="[[budget]]",
                way_out="Loosen them, or take a larger log.",
            )
        weights, _ = free
        budget = spend = float(self.points.shown(weights, campaign)[0][1 + place])
        decisions = float(weights @ self.points.value[:, -1]) if campaign.budgets[place].per == "decision" else 1.0
        for _ in range(REFININGS):
            needed = weights @ self._margin(campaign.with_money_limit(budget))
            budget = spend + float(needed[place]) / decisions
        return budget

    def _margin(self, campaign: Campaign) -> Vector:
        return self.points.margins(
            campaign,
            factor=self._factor,
            certify_users=self.certify_users,
            folds=self.folds,
            further=self.further,
            rare=self.rare,
        )

    @cached_property
    def _factor(self) -> float:
        return self.points.factor(self.campaign, self.alpha)


def solve_grid(problems: Sequence[GridProblem]) -> tuple[Vector, list[Vector], list[Vector]]:
    """Return the budgets `[G]`, and for each fold its weights `[G, L]` and their margins `[G]`."""
    least, most = (max(getattr(problem, end) for problem in problems) for end in ("least", "most"))
    budgets = np.unique(np.linspace(least, max(least, most), BUDGETS))
    weights: list[Vector] = []
    margins: list[Vector] = []
    for problem in problems:
        solved = [problem.solve(float(budget)) for budget in budgets]
        # The least budget lies at the edge of what can be solved.
        kept = [one if one is not None else next(later for later in solved if later is not None) for one in solved]
        weights.append(np.array([solution for solution, _ in kept]))
        margins.append(np.array([margin for _, margin in kept]))
    return budgets, weights, margins
