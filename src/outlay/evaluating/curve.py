"""Mixtures for any limit of the money budget, and what they are expected to bring.

    mixtures = BudgetMixtures(Stored.read(run.folder / "frontier"), campaign, data)
    point = mixtures.point(1.5)

The budget that moves is the money budget; the others keep their limits. Training solved the mixtures of a grid of
budgets (`budget_grid.py`), and those of other budgets lie between. Every one leaves room for its certificate, or is
held while serving (`holding.py`): one look at the certify users, for all mixtures together (`certify.py`), after which
its figures are those of that look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.write import BundleSpec
from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.errors import InfeasibleError
from outlay.core.estimate import Target
from outlay.core.progress import Progress
from outlay.core.transitions import Transitions
from outlay.core.wording import advised, four, plain
from outlay.estimators.allowances import ends
from outlay.estimators.frontier import Points, shown
from outlay.estimators.units import objective
from outlay.estimators.windowed import claims_window
from outlay.evaluating.budget_curve import BudgetCurve, CurveBand, CurveMember, CurvePoint, OldPolicy, SinglePolicy
from outlay.evaluating.certify import Certified
from outlay.evaluating.goals import Asked, of_a_page, reached
from outlay.evaluating.holding import holding_of
from outlay.evaluating.totalling import all_lost, budget_totals, curve_totals
from outlay.ops.intervals import interval

BUDGETS = 101  # of the curve
ROUNDING = 1e-7  # of a budget: a smaller difference is none

Vector = NDArray[np.float64]


class BudgetMixtures:
    """Mixtures under any limit of the money budget.

    Attributes:
        stored: policies and measurements.
        campaign: limits and confidence. Mixtures stay those that training chose, with the room of its confidence.
        data: the transitions.
        money: the budget that moves.
    """

    def __init__(self, stored: StoredFrontier, campaign: Campaign, data: Transitions) -> None:
        """Check that the stored frontier has a curve.

        Args:
            stored: policies and measurements.
            campaign: limits and confidence.
            data: the transitions.

        Raises:
            InfeasibleError: if the other limits cannot be kept however much is spent.
        """
        if not len(stored.budgets):
            raise InfeasibleError(
                stored.manifest["no_curve"],
                file=stored.folder,
                way_out="Change the limits in the campaign file, and train again.",
            )
        self.stored, self.campaign, self.data = stored, campaign, data
        self.money = campaign.budgets[campaign.money]

    @property
    def least(self) -> float:
        """The least limit that can be kept, margin included."""
        return float(self.stored.budgets[0])

    @property
    def most(self) -> float:
        """What the most expensive useful mixture spends, margin included."""
        return float(self.stored.budgets[-1])

    def under(self, budget: float) -> Campaign:
        """Return the campaign with this limit of the money budget."""
        return self.campaign.with_money_limit(budget)

    def point(self, budget: float) -> CurvePoint:
        """Return what a budget buys.

        Raises:
            InfeasibleError: if no mixture keeps the limits.
        """
        between, stored = self.between(budget), self.stored
        weights = between @ stored.weights
        value, error = stored.points.shown(between, self.campaign)
        low, high = self.ends(value, error, stored.points)
        marginal, least, most = self._slope(budget)
        slack = budget > self.most * (1 + ROUNDING)
        return CurvePoint(
            budget=float(budget),
            value=float(value[0]),
            low=float(low[0]),
            high=float(high[0]),
            spend=tuple(value[1:].tolist()),
            spend_low=tuple(low[1:].tolist()),
            spend_high=tuple(high[1:].tolist()),
            marginal=0.0 if slack else marginal,
            marginal_low=0.0 if slack else least,
            marginal_high=0.0 if slack else most,
            margin=float(between @ stored.margin) / self._decisions(between),
            slack=slack,
            times=self.times,
            members=tuple(
                CurveMember(
                    multiplier=tuple(stored.multiplier[i].tolist()), weight=float(weights[i]), fold=int(stored.fold[i])
                )
                for i in np.flatnonzero(weights)
            ),
        )

    def spec(self, budget: float) -> BundleSpec:
        """Return the bundle for a budget: networks with the heads of the members alone, and all policies beside them.

        It has the mixture that spends the budget as well, which a server takes behind a cap, unless the run forces one.

        Raises:
            InfeasibleError: if no mixture keeps the limits.
        """
        stored, campaign = self.stored, self.under(budget)
        weights = self.between(budget) @ stored.weights
        return stored.beside(stored.spec(weights, campaign, self.data, stored.capped(campaign)))

    def between(self, budget: float) -> Vector:
        """Return `[G + 1]` shares of the stored mixtures in the one for a budget, which lies between two of the grid.

        The budget that the run was trained for has the mixture that it serves, which comes last.

        Raises:
            InfeasibleError: if it lies below the curve.
        """
        if budget != self.stored.own and budget < self.least * (1 - ROUNDING):
            others = "" if len(self.campaign.budgets) == 1 else " that keeps the other limits"
            margin = "" if any(self.campaign.held) else ", the margin for the certificate included"
            raise InfeasibleError(
                f"lies below the curve: the cheapest mixture{others} needs {self.money.name} {four(self.least)} per "
                f"{self.money.per}{margin}.",
                file=self.stored.folder,
                where=f"budget {plain(budget)}",
                way_out=f"Give {advised(self.least)} or more.",
            )
        return self.stored.between(budget, own=True)

    @property
    def names(self) -> list[str]:
        """`[1+m]` of the objective and the budgets."""
        return [objective(self.campaign), *(budget.name for budget in self.campaign.budgets)]

    def ends(self, value: Vector, error: Vector, points: Points) -> tuple[Vector, Vector]:
        """Return `[1+m]` both ends of the intervals of objective and costs, with all that is allowed for."""
        confidence = self.campaign.train.confidence
        low, high = interval(value, error, confidence, points.freedom)
        for j, name in enumerate(self.names):
            low[j], high[j] = ends(self.stored.allowances, Target.parse(name), (value[j], low[j], high[j]), confidence)
        return low, high

    def _slope(self, budget: float) -> tuple[float, float, float]:
        """Return the marginal reward above a budget, and both ends of its interval: it is a gain over a little less."""
        budgets, points = self.stored.budgets, self.stored.points
        if len(budgets) < 2:
            return 0.0, 0.0, 0.0
        place = min(int(np.searchsorted(budgets, budget, side="right")), len(budgets) - 1)
        step = np.zeros(len(budgets) + 1)
        step[[place, place - 1]] = 1, -1
        step /= budgets[place] - budgets[place - 1]
        value, confidence = float(step @ self.stored.aim), self.campaign.train.confidence
        error = float(np.sqrt(max(points.mixture(step)[1][0, 0], 0.0)))
        low, high = (float(end) for end in interval(value, error, confidence, points.freedom))
        aim = Target.parse(objective(self.campaign))
        return max(0.0, value), *ends(self.stored.allowances, aim, (value, low, high), confidence, gain=True)

    @cached_property
    def times(self) -> float:
        """Return the mean number of rows that the objective adds up where limits are per decision; else 1."""
        days = Target.parse(objective(self.campaign)).days
        if not days or self.money.per == "user":
            return 1.0
        rows = np.diff(np.append(self.data.users["start_row"], len(self.data)))
        return float(np.minimum(rows, days).mean())

    def _decisions(self, between: Vector) -> float:
        """Return x₁ of a mixture where limits are per decision: a coordinate is x₁ times the cost."""
        return float(between @ self.stored.points.value[:, -1]) if self.money.per == "decision" else 1.0


def curve_of(
    mixtures: BudgetMixtures,
    budgets: Sequence[float],
    known: Certified | None,
    report: Progress,
    questions: Sequence[Asked] | None = (),
) -> BudgetCurve:
    """Return the whole curve, and the mixtures for some budgets.

    Args:
        mixtures: of a stored frontier.
        budgets: limits of the money budget, in its unit.
        known: what a look at the certify users has certified, or None.
        report: called with the fraction done and what is being done.
        questions: goals to reach (`goals.asked`); None: those of a page.
    """
    stored, campaign = mixtures.stored, mixtures.campaign

    totals = curve_totals(known, campaign, mixtures.data)
    lost = all_lost(None if totals is None else totals.reward, mixtures.data)

    def measured(budget: float) -> CurvePoint:
        return _bounded(mixtures.point(budget), mixtures, known, lost)

    curve = BudgetCurve(
        campaign=campaign.meta.name,
        unit=campaign.meta.unit,
        reward_label=campaign.reward_label,
        objective=objective(campaign),
        money=campaign.budgets[campaign.money].name,
        budgets=campaign.limits,
        least=mixtures.least,
        most=mixtures.most,
        confidence=campaign.train.confidence,
        users=stored.points.users if known is None else known.curve.points.users,
        curve=tuple(_points(mixtures, measured, report)),
        requested=tuple(map(measured, budgets)),
        old=_old(mixtures, known),
        policies=tuple(
            SinglePolicy(
                multiplier=tuple(multiplier.tolist()),
                fold=int(fold),
                value=float(figures[0]),
                spend=tuple(figures[1:].tolist()),
            )
            for multiplier, fold, figures in zip(
                stored.multiplier, stored.fold, (shown(value, campaign) for value in stored.value), strict=True
            )
        ),
        folds=len(stored.shares),
        check=stored.manifest["check"],
        band=None if known is None else _band(known),
        window=claims_window(mixtures.data),
        holding=holding_of(stored, campaign, _own_gain(mixtures, known)),
        totals=totals,
    )
    wanted = of_a_page(curve) if questions is None else questions
    return replace(curve, goals=reached(curve, wanted, measured)) if wanted else curve


def _own_gain(mixtures: BudgetMixtures, known: Certified | None) -> float | None:
    """The gain of what the run serves over the old policy; None where it is not known."""
    stored, own = mixtures.stored, np.eye(len(mixtures.stored.weights))[-1]
    if known is not None:
        return known.certificate(own, mixtures.campaign).gain
    gain = float(own @ stored.points.value[:, 0] - stored.old.value[0, 0])
    return gain if np.isfinite(gain) else None


def _points(
    mixtures: BudgetMixtures, measured: Callable[[float], CurvePoint], report: Progress
) -> Iterator[CurvePoint]:
    """Yield the points from the least budget to the most."""
    for i, budget in enumerate(np.linspace(mixtures.least, mixtures.most, BUDGETS)):
        report(i / BUDGETS, f"budget {i + 1} of {BUDGETS}")
        yield measured(float(budget))


def _old(mixtures: BudgetMixtures, known: Certified | None) -> OldPolicy | None:
    if known is not None:
        whole, *costs = known.curve.old_estimates(mixtures.campaign)
        if whole.value is None or whole.low is None or whole.high is None or any(each.value is None for each in costs):
            return None
        spend = tuple(float(each.value or 0) for each in costs)
        return OldPolicy(value=whole.value, low=whole.low, high=whole.high, spend=spend)
    old = mixtures.stored.old
    value, error = old.shown(np.ones(1), mixtures.campaign)
    if not np.isfinite([*value, *error]).all():
        return None
    low, high = mixtures.ends(value, error, old)
    return OldPolicy(value=float(value[0]), low=float(low[0]), high=float(high[0]), spend=tuple(value[1:].tolist()))


def _band(known: Certified) -> CurveBand:
    band, old = known.curve, float(known.curve.points.value[-1, 0])
    return CurveBand(
        users=band.points.users,
        policies=len(band),
        confidence=band.confidence,
        factor=band.factor,
        look=known.look,
        old=old if np.isfinite(old) else None,
    )


def _bounded(point: CurvePoint, mixtures: BudgetMixtures, known: Certified | None, lost: float) -> CurvePoint:
    """Put what the look at the certify users measured in place of what chose the mixture, with its certificate."""
    if known is None:
        return point
    between, campaign = mixtures.between(point.budget), mixtures.under(point.budget)
    certificate = known.certificate(between, campaign)
    point = replace(
        point,
        certified=certificate.certified,
        held=certificate.held is not None,
        withheld=certificate.withheld is not None,
        confidence=certificate.confidence,
        certificate=certificate.words,
        gain=certificate.gain,
        gain_bound=certificate.gain_bound,
        gain_most=certificate.gain_most,
        bounds=tuple(line.bound for line in certificate.budgets),
        totals=budget_totals(
            point.budget,
            known.totals_of(between, campaign),
            campaign,
            campaign.meta.users or len(mixtures.data.users),
            lost,
        ),
    )
    whole, *costs = [(e.value, e.low, e.high) for e in known.estimates(between, campaign)]
    if None in whole or any(None in cost for cost in costs):
        return point
    spend, low, high = (tuple(float(cost[end] or 0) for cost in costs) for end in range(3))
    return replace(
        point,
        value=float(whole[0] or 0),
        low=float(whole[1] or 0),
        high=float(whole[2] or 0),
        spend=spend,
        spend_low=low,
        spend_high=high,
    )
