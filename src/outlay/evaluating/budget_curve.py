"""What every budget buys: the result of `outlay frontier`. The page, the terminal and frontier.json take it as it is.

Costs and limits are as in the campaign file: a floor is not negated. Tuples `[m]` follow the order of the budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from outlay.core.campaign import BudgetLimit
from outlay.core.shown import Shown
from outlay.estimators.certificate import CONDITION, Certificate
from outlay.estimators.windowed import Window
from outlay.evaluating.holding import Holding
from outlay.evaluating.totals import BudgetTotals, CurveTotals
from outlay.evaluating.verdict import Verdict

PER_BUDGET = ("multiplier", "spend", "spend_low", "spend_high", "bounds")  # fields of points, `[m]`


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveMember:
    """One policy of a mixture.

    Attributes:
        multiplier: `[m]` its λ.
        weight: share of the users, in (0, 1].
        fold: whose users had no part in it.
    """

    multiplier: tuple[float, ...]
    weight: float
    fold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What one budget buys, as measured on *select* users.

    Attributes:
        budget: limit of the money budget, in its unit.
        value: the objective of the mixture; `low`, `high`: its interval.
        spend: `[m]` costs in their budgets' units; `spend_low`, `spend_high`: their intervals.
        marginal: the marginal reward, of one more unit of the money budget: the slope of the objective just above the
            budget, as mixtures are chosen by it. Where states are not counted it includes what lasts beyond the log.
        marginal_low, marginal_high: its interval, by the errors of what is measured on the log's days.
        margin: by how much the limit was lowered when choosing.
        slack: whether more is allowed than the most expensive useful policy spends.
        members: the policies of the mixture.
        certified: whether all limits are, by the look at the *certify* users; None before it, as are the next six.
        confidence: of its bounds: the mixture that the run serves has another share of the look than all others.
        certificate: the same in words.
        bounds: `[m]` of the costs, in their budgets' units.
        gain: objective less that of the old policy, on *certify* users.
        gain_bound: its lower bound.
        gain_most: its upper bound: below 0 the budget is sure to bring less than the old policy.
        held: whether what is not certified is held while serving.
        withheld: whether the log cannot tell what it would bring, so that there are no bounds.
        totals: what it brings and costs all users on their first days; None where that is not told.
        times: decisions that a unit of the objective is about, for each that the money limit is about: those of a user
            where the objective is a total per user, and the limit per decision; else 1.
    """

    budget: float
    value: float
    low: float
    high: float
    spend: tuple[float, ...]
    spend_low: tuple[float, ...]
    spend_high: tuple[float, ...]
    marginal: float
    marginal_low: float
    marginal_high: float
    margin: float
    slack: bool
    members: tuple[CurveMember, ...]
    certified: bool | None = None
    confidence: float | None = None
    certificate: str | None = None
    bounds: tuple[float | None, ...] | None = None
    gain: float | None = None
    gain_bound: float | None = None
    gain_most: float | None = None
    held: bool = False
    withheld: bool = False
    totals: BudgetTotals | None = None
    times: float = 1.0

    @property
    def loses(self) -> bool:
        """Whether the budget is sure to bring less than the old policy."""
        return self.gain_most is not None and self.gain_most < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SinglePolicy:
    """One measured policy of the frontier: its λ `[m]`, its fold, its objective and its costs `[m]`."""

    multiplier: tuple[float, ...]
    fold: int
    value: float
    spend: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldPolicy:
    """The log's policy: its objective with the interval, and its costs `[m]`."""

    value: float
    low: float
    high: float
    spend: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveBand:
    """The look at the *certify* users that certifies the whole curve.

    Attributes:
        users: certify users.
        policies: mixtures whose bounds hold together.
        confidence: with which they do.
        factor: standard errors from the estimate to the bound.
        look: number of the look.
        old: the objective of the log's policy there; None where it could not be measured.
    """

    users: int
    policies: int
    confidence: float
    factor: float
    look: int
    old: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedBundle:
    """The bundle of one budget: its folder and identity, the look that certifies it, its verdict and certificate."""

    path: str
    id: str
    budget: float
    look: int
    verdict: Verdict
    certificate: Certificate


GoalKind = Literal["least money", "same money", "gain", "worth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The budget that reaches a goal (`goals.py`).

    Attributes:
        kind: as much as today for the least money; what today's money buys; so much more than today; or all that
            costs no more than it is worth.
        asked: the gain, as a share; or what one more unit of the reward is worth, in money; None of the first two.
        point: the budget, by estimate; None where the curve does not reach the goal, or today's is not known.
        sure: the budget that is sure to; None where no bound is so high, and of money and a worth.
    """

    kind: GoalKind
    asked: float | None
    point: CurvePoint | None
    sure: CurvePoint | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BudgetCurve(Shown):
    """The frontier of a run.

    Attributes:
        campaign, unit, reward_label: its name, the unit of money, the reward's label.
        objective: `reward`, per decision, or `reward@30`, a total per user.
        money: name of the budget that moves.
        budgets: the limits of the campaign file.
        least, most: spend of the cheapest mixture that keeps the other limits, margin included, and of the most
            expensive useful one.
        confidence: of the intervals.
        users: select users that it rests on.
        curve: from the least budget to the most.
        requested: for the budgets that were requested; else for the campaign's own, or the least where that is above.
        old: the log's policy; None where it could not be measured.
        policies: measured, one λ each.
        folds: in which users took turns to certify; 1: they did not.
        check: whether costs fall as λ grows, in words.
        band: the look at the *certify* users; None before it.
        window: where the figures are means over a window of the log; else None.
        condition: what "certified" rests on.
        export: the bundle that was written, if one was.
        holding: how the money budget is kept, and what that costs; None where it is not known.
        totals: what the totals of its points are about; None where they are not told, as before the look.
        goals: the budgets that reach what was asked for.
    """

    campaign: str
    unit: str
    reward_label: str
    objective: str
    money: str
    budgets: tuple[BudgetLimit, ...]
    least: float
    most: float
    confidence: float
    users: int
    curve: tuple[CurvePoint, ...]
    requested: tuple[CurvePoint, ...]
    old: OldPolicy | None
    policies: tuple[SinglePolicy, ...]
    folds: int
    check: str
    band: CurveBand | None = None
    window: Window | None = None
    condition: str = CONDITION
    export: ExportedBundle | None = None
    holding: Holding | None = None
    totals: CurveTotals | None = None
    goals: tuple[Goal, ...] = ()

    def headline(self) -> str:
        """What the curve spans."""
        span = f"{self.least:.3g} to {self.most:.3g} {self.unit}"
        return f"what {self.money} buys of {self.reward_label} in {self.campaign}, from {span} per decision."

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """The curve, the budgets that were asked for, those that reach goals, and the policies behind it."""
        tables = {"curve": self.curve, "requested": self.requested, "goals": self.goals, "policies": self.policies}
        return {name: rows for name, rows in tables.items() if rows or name != "goals"}

    def _columns(self, row: Any) -> dict[str, Any]:
        """The fields of a row; one that has a number for each budget is a column for each: `spend_coupon_cost`."""
        told: dict[str, Any] = {}
        for name, value in asdict(row).items():
            if name in PER_BUDGET:
                numbers = [None] * len(self.budgets) if value is None else value
                told |= {f"{name}_{b.name}": number for b, number in zip(self.budgets, numbers, strict=True)}
            else:
                told[name] = value
        return told

    @property
    def place(self) -> int:
        """Place of the money budget among the budgets."""
        return [budget.name for budget in self.budgets].index(self.money)

    @property
    def money_limit(self) -> BudgetLimit:
        """The money budget as the campaign file has it."""
        return self.budgets[self.place]
