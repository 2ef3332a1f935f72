"""What the page of an A/B test shows: plain data, unrounded, without a word on how it looks.

The first arm is the control. An effect is an arm less the control; its relative form is missing where one of the two is
not positive. Days are counted from 1: day 7 is the end of the first week.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from outlay.pages.content import Interval

Outcome = Literal["better", "worse", "undecided", "harm", "open", "blocked"]
Trend = Literal["steady", "growing", "fading", "reversed"]


class Effect(NamedTuple):
    """A difference with its interval, in the metric's unit per user and as a share of the control."""

    absolute: Interval
    relative: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLine:
    """One arm so far.

    Attributes:
        name, kind: as in the test's file.
        users: so far.
        planned, share: of all users in the test.
        budget: its own, for the whole test; None for a holdout.
        spent: None where the log says nothing of money.
        spent_by_day: `[day]` in total after each day; empty where days are not told apart.
    """

    name: str
    kind: str
    users: int
    planned: float
    share: float
    budget: float | None
    spent: float | None
    spent_by_day: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioLine:
    """Whether an arm has as many users for each one in the control as was planned.

    Attributes:
        arm: its name.
        of: which users: `assigned` or `in the log`.
        part: where only some of them were counted: `who came on 2026-03-04`; else empty.
        control, treatment: numbers of users.
        planned: of the arm, for one in the control.
        p_value: of the difference, if the draw alone decided; corrected where many parts were looked at.
        passed: whether the difference may be chance.
    """

    arm: str
    of: str
    control: int
    treatment: int
    planned: float
    p_value: float
    passed: bool
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLine:
    """One metric at one look.

    Attributes:
        name: as in the test's file.
        control, treatment: the two values; None where withheld.
        effect: None where withheld.
        saved: share of the variance that the time before the start explains (CUPED); None where it was not used.
        cautious: whether the interval is wider than the arms' own variances make it, since an arm is too small to know
            its own.
        withheld: why there is no number, or None.
    """

    name: str
    control: float | None = None
    treatment: float | None = None
    effect: Effect | None = None
    saved: float | None = None
    cautious: bool = False
    withheld: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """A planned decision that was reached.

    Attributes:
        day: after which it was due.
        z, bound: the difference in standard errors, and how many were needed.
        effect: with the interval that keeps its level over all planned decisions.
        side: +1 the metric is higher, −1 lower, 0 the bound was not crossed.
    """

    day: int
    z: float
    bound: float
    effect: Effect
    side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseDay:
    """A metric after a day: the effect with its interval at one look, and with the one that holds on all days."""

    day: int
    look: Effect
    always: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseLine:
    """A metric day by day.

    Attributes:
        metric: its name.
        days: those on which it could be told.
        now: +1 or −1 where the last day's interval for all days lies above or below 0; else 0.
        moved: the same of the last day on which it did; 0 where it never did.
        seen: the first and the last day of that side, or None.
        harmful: whether `now` is the wrong side for this metric.
    """

    metric: str
    days: tuple[CourseDay, ...]
    now: int = 0
    moved: int = 0
    seen: tuple[int, int] | None = None
    harmful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """The effects among the users of one segment, at one look."""

    name: str
    users: int
    metrics: tuple[MetricLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseLine:
    """A relative lift that an off-policy estimate gave of an arm before the test, and the one that the test shows."""

    arm: str
    metric: str
    days: int
    estimator: str
    promised: Interval
    happened: Interval
    agrees: bool
    caution: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLine:
    """The effect in the first week and since, per user and day, each at one look.

    Attributes:
        weeks: those after the first, in words.
        first, since: the two effects.
        p_value: of no change.
        trend: what became of the effect.
    """

    weeks: str
    first: Effect
    since: Effect
    p_value: float
    trend: Trend


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmComparison:
    """One arm against the control.

    Attributes:
        arm: its name.
        outcome: the verdict; None for an arm that is there to learn from (a random slice, a holdout).
        metrics: at one look; the verdict's first.
        exposed: the same among users with at least one row; empty where all have some.
        decisions: the planned ones so far.
        change: the effect in the first week and since; None before two whole weeks, or where days are not told apart.
        course: of the verdict's metric; None where it could not be told.
        guardrails: those that could be told, day by day.
        groups: by segment, where there is more than one.
        detectable: the smallest relative lift that a test as precise as this finds with the planned power.
        blocked: why no verdict may be given.
    """

    arm: str
    outcome: Outcome | None
    metrics: tuple[MetricLine, ...]
    exposed: tuple[MetricLine, ...] = ()
    decisions: tuple[DecisionLine, ...] = ()
    change: ChangeLine | None = None
    course: CourseLine | None = None
    guardrails: tuple[CourseLine, ...] = ()
    groups: tuple[GroupLine, ...] = ()
    detectable: float | None = None
    blocked: tuple[str, ...] = ()

    @property
    def decided(self) -> DecisionLine | None:
        """The first decision that crossed its bound."""
        return next((decision for decision in self.decisions if decision.side), None)

    @property
    def told(self) -> DecisionLine | None:
        """The decision whose numbers are told: the last, unless it went back behind the bound that was crossed."""
        if self.decided is None or self.decisions[-1].side == self.decided.side:
            return self.decisions[-1] if self.decisions else None
        return self.decided

    def favours(self, decision: DecisionLine) -> int:
        """+1: for this arm, −1: against it, 0: no bound was crossed, or no verdict is given."""
        if self.decided is None or self.outcome not in ("better", "worse"):
            return 0
        return decision.side * self.decided.side * (1 if self.outcome == "better" else -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentContent:
    """One test, after `day` of its `days`.

    Attributes:
        name, campaign: of the test.
        metric: of the verdict: its total per user over the days so far.
        start: its first day.
        day, days: looked at, and planned.
        decisions: the planned days.
        unit: of money, in words.
        confidence: of all intervals; of a verdict where one arm is tested.
        arm_confidence: of each arm's verdict: higher where several are tested.
        power: planned.
        arms: the control first.
        pace: `[days]` the share of a budget that is due by the end of each day, where a user's days are worth the same.
        ratios: the checks of the arms' sizes.
        comparisons: each arm with the control.
        promised: what estimates said of arms, beside what happened.
        notes: what else a reader should know, a sentence each.
        settings: {group: {name: value}}.
    """

    name: str
    campaign: str
    metric: str
    start: datetime.date
    day: int
    days: int
    decisions: tuple[int, ...]
    confidence: float
    arm_confidence: float
    power: float
    arms: tuple[ArmLine, ...]
    pace: tuple[float, ...]
    ratios: tuple[RatioLine, ...]
    comparisons: tuple[ArmComparison, ...]
    promised: tuple[PromiseLine, ...] = ()
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    unit: str = "money"

    @property
    def control(self) -> str:
        """The arm that the others are compared with."""
        return self.arms[0].name

    def doubted(self, arm: str) -> bool:
        """Whether an arm has not the users that were planned, so that nothing about it can be believed."""
        return any(check.arm == arm and not check.passed for check in self.ratios)

    @property
    def contestants(self) -> tuple[ArmComparison, ...]:
        """The arms that get a verdict."""
        return tuple(comparison for comparison in self.comparisons if comparison.outcome is not None)
