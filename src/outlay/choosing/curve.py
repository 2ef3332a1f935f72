"""The curve of a training for every budget: what any limit of the money budget buys, and with which mixture.

    curve = Curve(Stored.read(run.folder / "frontier"), campaign, data)
    point = curve.point(1.5)

The budget that moves is the money budget; the others keep their limits. Training solved the mixtures of a grid of
budgets (`budget_grid.py`), and those of other budgets lie between. Every one leaves room for its certificate: one look
at the certify users, for all mixtures together (`certify_frontier.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.write import BundleSpec
from outlay.choosing.folds import views
from outlay.choosing.stored import AGAIN, Stored
from outlay.choosing.window import window_of
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, InfeasibleError
from outlay.core.transitions import Transitions
from outlay.ops.intervals import interval

ROOM = 1e-7  # of a budget: less is what rounding leaves

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """What one budget buys, as measured on *select* users.

    Attributes:
        budget: limit of the money budget, in its unit.
        value: the objective of the mixture; `low`, `high`: its interval.
        spend: `[m]` costs in their budgets' units; `spend_low`, `spend_high`: their intervals.
        marginal: what one more unit of the money budget buys of the objective: the slope just above the budget of what
            mixtures are chosen by, which counts what lasts beyond the log where states are not counted.
        margin: by how much the limit was lowered when choosing.
        slack: whether more is allowed than the dearest useful policy spends.
        members: `[{multiplier [m], weight, fold}]`.
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


class Curve:
    """Mixtures under any limit of the money budget.

    Attributes:
        stored: policies and measurements.
        campaign: limits and confidence. Mixtures stay those that training chose, with the room of its confidence.
        data: the transitions.
        money: the budget that moves.
    """

    def __init__(self, stored: Stored, campaign: Campaign, data: Transitions) -> None:
        """Prepare for one campaign.

        Args:
            stored: policies and measurements.
            campaign: limits and confidence.
            data: the transitions.

        Raises:
            InfeasibleError: if the other limits cannot be kept however much is spent.
            FolderError: if an older version measured the policies, which extrapolated between features.
        """
        if stored.manifest["window"] != window_of(views(data, len(stored.shares))[0]):
            raise FolderError("was measured by an older version, whose discounted figures are extrapolated here.",
                              file=stored.folder, way_out=AGAIN)  # fmt: skip
        if not len(stored.budgets):
            raise InfeasibleError(stored.manifest["no_curve"], file=stored.folder,
                                  way_out="Change the limits in the campaign file, and train again.")  # fmt: skip
        self.stored, self.campaign, self.data = stored, campaign, data
        self.money = campaign.budgets[campaign.money]

    @property
    def least(self) -> float:
        """The least limit that can be kept, margin included."""
        return float(self.stored.budgets[0])

    @property
    def most(self) -> float:
        """What is spent, margin included, where money is no object."""
        return float(self.stored.budgets[-1])

    def under(self, budget: float) -> Campaign:
        """The campaign with this limit of the money budget."""
        return self.campaign.with_money_limit(budget)

    def point(self, budget: float) -> Point:
        """What a budget buys.

        Raises:
            InfeasibleError: if no mixture keeps the limits.
        """
        between, stored = self.between(budget), self.stored
        weights = between @ stored.weights
        value, error = stored.points.shown(between, self.campaign)
        low, high = interval(value, error, self.campaign.train.confidence)
        slack = budget > self.most * (1 + ROOM)
        return Point(
            budget=float(budget),
            value=float(value[0]), low=float(low[0]), high=float(high[0]),
            spend=value[1:].tolist(), spend_low=low[1:].tolist(), spend_high=high[1:].tolist(),
            marginal=0.0 if slack else self._slope(budget),
            margin=float(between @ stored.room) / self._decisions(between),
            slack=slack,
            members=[{"multiplier": stored.multiplier[i].tolist(), "weight": float(weights[i]),
                      "fold": int(stored.fold[i])} for i in np.flatnonzero(weights)],
        )  # fmt: skip

    def spec(self, budget: float) -> BundleSpec:
        """The bundle for a budget: the networks with the heads of the members alone, and all policies beside them.

        Raises:
            InfeasibleError: if no mixture keeps the limits.
        """
        campaign = self.under(budget)
        spec = self.stored.spec(self.between(budget) @ self.stored.weights, campaign, self.data)
        return replace(spec, frontier=self.stored.policies(campaign))

    def between(self, budget: float) -> Vector:
        """`[G]` shares of the mixtures of the grid in that for a budget: of the two next to it.

        Raises:
            InfeasibleError: if it lies below the curve.
        """
        if budget < self.least * (1 - ROOM):
            others = "" if len(self.campaign.budgets) == 1 else " that keeps the other limits"
            raise InfeasibleError(
                f"lies below the curve: the cheapest mixture{others} needs {self.money.name} {self.least:.4g} per "
                f"{self.money.per}, the margin for the certificate included.",
                file=self.stored.folder, where=f"budget {budget:g}", way_out=f"Give {_above(self.least)} or more.",
            )  # fmt: skip
        budgets = self.stored.budgets
        return np.array([np.interp(budget, budgets, one) for one in np.eye(len(budgets))])

    def _slope(self, budget: float) -> float:
        budgets = self.stored.budgets
        if len(budgets) < 2:
            return 0.0
        place = min(int(np.searchsorted(budgets, budget, side="right")), len(budgets) - 1)
        step = np.zeros(len(budgets))
        step[[place, place - 1]] = 1, -1
        return max(0.0, float(step @ self.stored.aim) / float(step @ budgets))

    def _decisions(self, between: Vector) -> float:
        """x_1 of a mixture where limits are per decision: an excess in the coordinate is x_1 times that in the cost."""
        return float(between @ self.stored.points.value[:, -1]) if self.money.per == "decision" else 1.0


def _above(value: float) -> str:
    """0, or the next number of four digits, so that what is advised is enough."""
    if value <= 0:
        return "0"
    size = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{(math.floor(value / size) + 1) * size:.6g}"
