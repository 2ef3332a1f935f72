"""The curve of a training for every budget: what any limit of the money budget buys, and with which mixture.

    curve = Curve(Stored.read(run.folder / "frontier"), campaign, data)
    point = curve.point(1.5)

The budget that moves is the money budget; the others keep their limits. Every mixture leaves room for its certificate:
one look at the certify users, for all mixtures together (`certify_frontier.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.write import BundleSpec
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, InfeasibleError
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.frontier import solve
from outlay.jobs.frontier_folder import AGAIN, Stored
from outlay.jobs.looks import alpha_of
from outlay.jobs.window import window_of
from outlay.ops.intervals import interval

ROUNDING = 1e-9  # a smaller weight is none
ROOM = 1e-7  # in scaled units: less is what rounding leaves
HALVINGS = 50  # of the interval that holds the least budget
REFININGS = 5  # of the margin at the dearest useful budget, which depends on that budget a little
STEP = 1e-4  # of a budget, over which slopes are taken

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """What one budget buys, as measured on *select* users.

    Attributes:
        budget: limit of the money budget, in its unit.
        value: the objective of the mixture; `low`, `high`: its interval.
        spend: `[m]` costs in their budgets' units; `spend_low`, `spend_high`: their intervals.
        marginal: what one more unit of the money budget buys of the objective: the dual just above the budget.
        margin: by how much the limit was lowered when choosing.
        slack: whether more is allowed than the dearest useful policy spends.
        members: `[{multiplier [m], weight}]`.
        certified: whether all limits are, by the look at the *certify* users; None before it, as are the next five.
        certificate: the same in words.
        bounds: `[m]` of the costs, in their budgets' units.
        gain: objective less that of the old policy, on *certify* users.
        gain_bound: its lower bound.
        gain_most: its upper bound: below 0 the budget is sure to bring less than the old policy.
    """

    budget: float
    value: float
    low: float
    high: float
    spend: list[float]
    spend_low: list[float]
    spend_high: list[float]
    marginal: float
    margin: float
    slack: bool
    members: list[dict[str, Any]]
    certified: bool | None = None
    certificate: str | None = None
    bounds: list[float | None] | None = None
    gain: float | None = None
    gain_bound: float | None = None
    gain_most: float | None = None


class _Solved(NamedTuple):
    """The best mixture under a limit.

    Attributes:
        feasible: whether it keeps the limits.
        weights: `[L]`.
        dual: of the money budget, per unit of its coordinate.
        margin: `[L]` by which the money budget's coordinate of each policy was raised.
    """

    feasible: bool
    weights: Vector
    dual: float
    margin: Vector


class Curve:
    """Mixtures under any limit of the money budget.

    Attributes:
        stored: policies and measurements.
        campaign: limits, confidence and margin.
        data: the transitions.
        money: the budget that moves.
    """

    def __init__(self, stored: Stored, campaign: Campaign, data: Transitions) -> None:
        """Prepare for one campaign.

        Args:
            stored: policies and measurements.
            campaign: limits, confidence and margin.
            data: the transitions.

        Raises:
            InfeasibleError: if the other limits cannot be kept however much is spent.
            FolderError: if an older version measured the policies, which extrapolated between features.
        """
        if stored.manifest["window"] != window_of(data):
            raise FolderError("was measured by an older version, whose discounted figures are extrapolated here.",
                              file=stored.folder, way_out=AGAIN)  # fmt: skip
        self.stored, self.campaign, self.data = stored, campaign, data
        self.money = campaign.budgets[campaign.money]
        self._certify_users = len(data.users_of(CERTIFY))
        alpha = alpha_of(stored.manifest["look"], campaign.train.confidence)
        self._factor = stored.points.factor(campaign, alpha)
        unbounded = 1e3 * float(np.abs(stored.points.value[:, 1 + campaign.money]).max() + 1)
        self._free = self._solve(unbounded)
        if not self._free.feasible:
            raise InfeasibleError("no mixture keeps the other limits.", file=stored.folder,
                                  way_out="Change them in the campaign file, and train again.")  # fmt: skip

    @cached_property
    def least(self) -> float:
        """The least limit that can be kept, margin included."""
        if self._solve(0.0).feasible:
            return 0.0
        low, high = 0.0, max(self._useful, float(self.stored.scale[self.campaign.money]))
        while not self._solve(high).feasible:
            high *= 2
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._solve(middle).feasible else (middle, high)
        return high

    @cached_property
    def most(self) -> float:
        """What is spent, margin included, where money is no object."""
        return max(self._useful, self.least)

    def under(self, budget: float) -> Campaign:
        """The campaign with this limit of the money budget."""
        return self.campaign.with_money_limit(budget)

    def point(self, budget: float) -> Point:
        """What a budget buys.

        Raises:
            InfeasibleError: if no mixture keeps the limits.
        """
        solved = self._solution(budget)
        weights, stored, place = solved.weights, self.stored, self.campaign.money
        value, error = stored.points.shown(weights, self.campaign)
        low, high = interval(value, error, self.campaign.train.confidence)
        decisions = self._decisions(weights)
        margin = float(weights @ solved.margin) / decisions
        slack = bool(budget - value[1 + place] - margin > ROOM * max(stored.scale[place], budget))
        step = STEP * max(budget, float(stored.scale[place]))
        above = self._solve(budget + step)  # where the curve bends, one more unit buys what lies above
        widens = float(weights @ (above.margin - solved.margin)) / step
        return Point(
            budget=float(budget),
            value=float(value[0]), low=float(low[0]), high=float(high[0]),
            spend=value[1:].tolist(), spend_low=low[1:].tolist(), spend_high=high[1:].tolist(),
            marginal=0.0 if slack else above.dual * (decisions - widens),
            margin=margin,
            slack=slack,
            members=[{"multiplier": stored.multiplier[i].tolist(), "weight": float(weights[i])}
                     for i in np.flatnonzero(weights)],
        )  # fmt: skip

    def spec(self, budget: float) -> BundleSpec:
        """The bundle for a budget: the network with the heads of the members alone, and all policies beside it.

        Raises:
            InfeasibleError: if no mixture keeps the limits.
        """
        campaign = self.under(budget)
        spec = self.stored.spec(self.weights(budget), campaign, self.data)
        return replace(spec, frontier=self.stored.policies(campaign))

    def weights(self, budget: float) -> Vector:
        """The mixture `[L]` for a budget.

        Raises:
            InfeasibleError: if no mixture keeps the limits.
        """
        return self._solution(budget).weights

    def _solve(self, budget: float) -> _Solved:
        solution, margin = solve(self.stored.points, self.under(budget), self.stored.scale,
                                 factor=self._factor, certify_users=self._certify_users)  # fmt: skip
        weights, place = np.where(solution.weights > ROUNDING, solution.weights, 0), self.campaign.money
        return _Solved(solution.feasible, weights / weights.sum(), float(solution.duals[place]), margin[:, place])

    def _solution(self, budget: float) -> _Solved:
        if (solved := self._solve(budget)).feasible:
            return solved
        others = "" if len(self.campaign.budgets) == 1 else " that keeps the other limits"
        raise InfeasibleError(
            f"lies below the curve: the cheapest mixture{others} needs {self.money.name} {self.least:.4g} per "
            f"{self.money.per}, the margin for the certificate included.",
            file=self.stored.folder, where=f"budget {budget:g}", way_out=f"Give {_above(self.least)} or more.",
        )  # fmt: skip

    @cached_property
    def _useful(self) -> float:
        """What the mixture spends that is best where money is no object, margin included."""
        weights = self._free.weights
        budget = spend = float(self.stored.points.shown(weights, self.campaign)[0][1 + self.campaign.money])
        for _ in range(REFININGS):
            budget = spend + float(weights @ self._solve(budget).margin) / self._decisions(weights)
        return budget

    def _decisions(self, weights: Vector) -> float:
        """x_1 of a mixture where limits are per decision: an excess in the coordinate is x_1 times that in the cost."""
        return float(weights @ self.stored.points.value[:, -1]) if self.money.per == "decision" else 1.0


def _above(value: float) -> str:
    """0, or the next number of four digits, so that what is advised is enough."""
    if value <= 0:
        return "0"
    size = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{(math.floor(value / size) + 1) * size:.6g}"
