"""The result of a comparison: figures of every method under each control, and which methods lead.

    leaders(rows, "reward@7", "truth", limits)    # the best method that keeps every limit, and those that tie with it

A method leads where no other is ahead of it by more than two standard deviations of the difference over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from outlay.core.campaign import BudgetLimit
from outlay.core.shown import Shown

CONTROLS = {"immediate": "equal spend on day one", "total": "the campaign's limits"}
RE_SOLVED = ", re-solved"  # ends the name of a rule whose weights were solved again on the fitted figures
CAPTURED = "captured share"  # (value − best constants) / (optimum − best constants), at the policy's own true spend
TOLERANCE = 1e-3  # of a limit: a mixture that was chosen to lie on the limit may exceed it by this much
ORIGINAL = "original method"  # keeps every policy that it meets

Kind = Literal["value", "truth"]


@dataclass(frozen=True)
class SeedMean:
    """One figure of one row: the mean over seeds.

    Attributes:
        value: estimated; None where it is withheld.
        low, high: interval of the mean over seeds; None where there is none.
        sd: standard deviation over seeds; None for one seed.
        truth: true mean over seeds; None where it is not known.
        truth_sd: its standard deviation over seeds.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    truth: float | None = None
    truth_sd: float | None = None

    def number(self, kind: Kind) -> float | None:
        """The estimate (`value`) or the truth."""
        return self.value if kind == "value" else self.truth

    def spread(self, kind: Kind) -> float | None:
        """The standard deviation over seeds of the estimate or of the truth."""
        return self.sd if kind == "value" else self.truth_sd


@dataclass(frozen=True)
class MethodRow:
    """A method under one control.

    Attributes:
        name: of the method.
        group: `log`, `constant`, `two-stage` or `rl`.
        control: `immediate`, `total`, or `none` for the log's policy.
        oracle, rule, label_days: of the method; None where it has none. The rule of a frontier is `frontier`, and its
            oracle is `tabular` if it counts; a rule's name ends in `, re-solved` where its weights were solved again.
        figures: by target: `reward@7`, `coupon_cost`, ….
        stored_parameters, seconds: means over seeds; None where nothing was learned.
        refused: why there are no figures, if there are none.
    """

    name: str
    group: str
    control: str
    oracle: str | None = None
    rule: str | None = None
    label_days: int | None = None
    figures: dict[str, SeedMean] = field(default_factory=dict)
    stored_parameters: float | None = None
    seconds: float | None = None
    refused: str | None = None

    @property
    def re_solved(self) -> bool:
        """Whether it is a rule whose weights were solved again."""
        return self.rule is not None and self.rule.endswith(RE_SOLVED)

    @property
    def mixing(self) -> str:
        """The mixing rule, whose weights may have been solved again; empty where there is none."""
        return (self.rule or "").removesuffix(RE_SOLVED)

    def number(self, target: str, kind: Kind) -> float | None:
        """A figure of the row; None where it is withheld or unknown."""
        figure = self.figures.get(target)
        return None if figure is None else figure.number(kind)

    def keeps(self, limits: Sequence[BudgetLimit], kind: Kind) -> bool:
        """Whether every cost is known and within its limit."""
        costs = [self.number(limit.name, kind) for limit in limits]
        return all(
            cost is not None and not breaks_limit(cost, limit) for cost, limit in zip(costs, limits, strict=True)
        )


@dataclass(frozen=True)
class StoredCount:
    """How many parameters a method had in store at one gradient step: the mean over seeds and its deviation."""

    step: int
    mean: float
    sd: float | None


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Methods side by side; comparison.json holds the same.

    Attributes:
        campaign: its name.
        unit, reward_label, money: the unit of money, the reward's label, the name of the money budget.
        budgets: the limits.
        immediate: the most that day one costs per user under immediate control, in `unit`.
        report_days: days of the totals that are reported.
        horizon_days: days of the totals that budgets per user limit.
        seeds: trainings of each method.
        confidence: of intervals.
        users: certify users.
        rows: old policy, constants, then methods under each control.
        stored: {method: its parameters in store over training}, and `original method`; of a frontier what its bundle
            stores, at both ends of the training. The last mean is the one that the rows have.
        names: {budget: what sentences call it}.
    """

    campaign: str
    unit: str
    reward_label: str
    money: str
    budgets: tuple[BudgetLimit, ...]
    immediate: float
    report_days: tuple[int, ...]
    horizon_days: int
    seeds: int
    confidence: float
    users: int
    rows: tuple[MethodRow, ...]
    stored: dict[str, tuple[StoredCount, ...]]
    names: Mapping[str, str] = field(default_factory=dict)

    def called(self, budget: str) -> str:
        """What sentences call a budget."""
        return self.names.get(budget, budget)

    def headline(self) -> str:
        """Who is compared, and how."""
        names = ", ".join(dict.fromkeys(row.name for row in self.rows))
        return f"{names} in {self.campaign}, {self.seeds} trainings of each."

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """A row per method and control."""
        return {"rows": self.rows}

    @property
    def knows_truth(self) -> bool:
        """Whether the truth is known of any figure."""
        return any(figure.truth is not None for row in self.rows for figure in row.figures.values())

    def under(self, control: str) -> list[MethodRow]:
        """The rows of one control and the log's policy."""
        return [row for row in self.rows if row.control in ("none", control)]

    def limits(self, control: str) -> tuple[BudgetLimit, ...]:
        """The campaign's limits where the control holds them."""
        return self.budgets if control == "total" else ()


def breaks_limit(cost: float | None, limit: BudgetLimit) -> bool:
    """Whether a cost breaks a limit by more than rounding. An unknown cost does not."""
    return cost is not None and limit.sign * (cost - limit.limit) > TOLERANCE * abs(limit.limit)


def decided_by(rows: Sequence[MethodRow], target: str) -> Kind:
    """The truth where it is known of all rows, else the estimate: numbers of two kinds are never compared."""
    return "truth" if all(row.number(target, "truth") is not None for row in rows) else "value"


def leaders(rows: Sequence[MethodRow], target: str, kind: Kind, limits: Sequence[BudgetLimit]) -> list[int]:
    """The best row that keeps every limit, then all that tie with it, by falling value: places in `rows`.

    A row ties with the best if it is not behind by more than two standard deviations of the difference over seeds.
    """
    known = {}
    for place, row in enumerate(rows):
        figure = row.figures.get(target)
        if figure is not None and (value := figure.number(kind)) is not None and row.keeps(limits, kind):
            known[place] = value, figure.spread(kind) or 0.0
    if not known:
        return []
    best, spread = max(known.values())
    tied = [place for place, (value, sd) in known.items() if best - value <= 2 * math.hypot(spread, sd)]
    return sorted(tied, key=lambda place: -known[place][0])
