"""What a test has shown: arms, sample ratios, and each arm against the control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlay.experiments.design import WEEK
from outlay.experiments.lift import IntervalEstimate, Lift, Withheld

# What a comparison came to: blocked; a bound was crossed (better, worse); the end without one (undecided); before the
# end, and the metric has moved the wrong way on an interval that holds on any day (harm); else open.
Outcome = Literal["better", "worse", "undecided", "harm", "open", "blocked"]

# Of an effect from the first week to the weeks after it; reversed is seen on one side of 0, then on the other.
Trend = Literal["steady", "growing", "fading", "reversed"]

RATIO_P = 0.001  # below it the arms' numbers of users are not what was drawn, and nothing else is believed


@dataclass(frozen=True)
class ArmState:
    """One arm so far: users planned and seen (as shares of all users in the test), money planned and spent."""

    name: str
    kind: str
    users: int
    planned_share: float
    share: float
    budget: float | None
    spent: float | None
    spent_by_day: list[float]


@dataclass(frozen=True)
class RatioCheck:
    """Does an arm have as many users for each one in the control as was planned?

    Attributes:
        arm: its name.
        of: which users: `assigned` or `in the log`.
        part: where only some of them were counted: `who came on 2026-03-04`, `in the segment 'new'`; else empty.
        control, treatment: numbers of users.
        p_value: of the difference, if the draw alone decided; times the number of days or segments that were looked
            at, where it is of one of them (Bonferroni).
    """

    arm: str
    of: str
    part: str
    control: int
    treatment: int
    p_value: float

    @property
    def passed(self) -> bool:
        """Whether the difference may be chance."""
        return self.p_value >= RATIO_P


@dataclass(frozen=True)
class PlannedDecision:
    """A planned decision: z against its bound, and the interval that keeps its level over all planned decisions."""

    day: int
    z: float
    bound: float
    absolute: IntervalEstimate
    relative: IntervalEstimate | None

    @property
    def side(self) -> int:
        """+1: the metric is higher, −1: lower, 0: the bound is not crossed."""
        return int(self.z >= self.bound) - int(self.z <= -self.bound)


@dataclass(frozen=True)
class CoursePoint:
    """A metric after a day: its interval at one look, and the one that holds on all days at once."""

    day: int
    absolute: IntervalEstimate
    relative: IntervalEstimate | None
    always: IntervalEstimate
    always_relative: IntervalEstimate | None

    @property
    def side(self) -> int:
        """+1, −1 where the interval for all days lies above or below 0."""
        return _side(self.always)


@dataclass(frozen=True)
class Course:
    """A metric day by day.

    An interval that holds on all days says of each day what the totals by then differ by. What it once excluded stays
    excluded of the totals by that day, not of today's: an effect may wear off, so days are not intersected.

    Attributes:
        metric: its name.
        wanted: which way it should go: +1 up, −1 down, 0 where that is not known.
        points: the days on which it could be told.
    """

    metric: str
    wanted: int
    points: list[CoursePoint]

    @property
    def now(self) -> int:
        """The side of the last day."""
        return self.points[-1].side if self.points else 0

    @property
    def moved(self) -> int:
        """+1 or −1 where the interval for all days has ever excluded 0, as on the last such day; else 0."""
        return next((point.side for point in reversed(self.points) if point.side), 0)

    @property
    def seen(self) -> tuple[int, int] | None:
        """The first and the last day on which it lay on that side, or None."""
        days = [point.day for point in self.points if point.side and point.side == self.moved]
        return (days[0], days[-1]) if days else None

    @property
    def harmful(self) -> bool:
        """Whether it lies on the wrong side on the last day."""
        return bool(self.wanted) and self.now == -self.wanted


@dataclass(frozen=True)
class Change:
    """The effect in the first week beside that of the whole weeks since, per user and day.

    Attributes:
        day: the last one that counts.
        users: of both arms, who came in the first week; the others are left out.
        first, since: the two effects, each at one look.
        z: of the change, in standard errors; + where the metric has risen under the arm, against the control.
        p_value: two-sided, of no change, at one look.
        alpha: below it a change is told.
    """

    day: int
    users: int
    first: Lift
    since: Lift
    z: float
    p_value: float
    alpha: float

    @property
    def side(self) -> int:
        """+1: the effect has risen, −1: it has fallen, 0: no change shows."""
        return 0 if self.p_value >= self.alpha else 1 if self.z > 0 else -1

    @property
    def trend(self) -> Trend:
        """What became of the effect; one that the first week did not show, and that came later, is growing."""
        first = _side(self.first.absolute)
        if not self.side:
            return "steady"
        if self.side != -first:
            return "growing"
        return "reversed" if _side(self.since.absolute) == -first else "fading"

    @property
    def weeks(self) -> str:
        """Those after the first: `week 2`, `weeks 2 to 4`."""
        last = self.day // WEEK
        return "week 2" if last == 2 else f"weeks 2 to {last}"

    def shows(self, side: int) -> bool:
        """Whether the weeks since, alone, show an effect on a side of 0."""
        return _side(self.since.absolute) == side


@dataclass(frozen=True)
class Segment:
    """The lifts among the users of one segment, each at one look: to understand, not to decide by."""

    name: str
    users: int
    lifts: list[Lift | Withheld]


@dataclass(frozen=True)
class ArmComparison:
    """An arm against the control.

    Attributes:
        arm: its name.
        contestant: whether it gets a verdict.
        over: whether the last planned decision has come.
        lifts: every metric, at one look.
        exposed: the same among users with at least one row, without CUPED; empty where all users have some.
        saved: metric → share of the variance that the time before the start explains away.
        decisions: the planned ones so far.
        change: the effect of the first week and since; None before two whole weeks, or where days are not told apart.
        courses: by day: first the metric of the verdict, then the guardrails.
        segments: by segment, where there is more than one.
        detectable: the smallest relative lift that a test as precise as this would find with the planned power.
        blocked: why no verdict may be given, or empty.
    """

    arm: str
    contestant: bool
    over: bool
    lifts: list[Lift | Withheld]
    exposed: list[Lift | Withheld]
    saved: dict[str, float]
    decisions: list[PlannedDecision]
    change: Change | None
    courses: list[Course]
    segments: list[Segment]
    detectable: float | None
    blocked: list[str]

    @property
    def outcome(self) -> Outcome | None:
        """What it came to; None for an arm that is there to learn from."""
        if not self.contestant:
            return None
        if self.blocked:
            return "blocked"
        if self.decided is not None:
            return "better" if self.decided.side == self.courses[0].wanted else "worse"
        if self.over:
            return "undecided"
        return "harm" if self.courses[0].harmful else "open"

    @property
    def decided(self) -> PlannedDecision | None:
        """The first planned decision that crossed its bound."""
        return next((decision for decision in self.decisions if decision.side), None)

    @property
    def told(self) -> PlannedDecision | None:
        """The decision whose numbers are told: the last, which knows most, unless it went back behind its bound.

        The intervals hold over all decisions together, so the last is as sound as the one that decided; an effect is
        overstated on the day on which it first crosses a bound.
        """
        if self.decided is None or self.decisions[-1].side == self.decided.side:
            return self.decisions[-1] if self.decisions else None
        return self.decided

    def lift(self, metric: str) -> Lift | None:
        """A metric's lift, if it could be told."""
        return next((x for x in self.lifts if isinstance(x, Lift) and x.metric == metric), None)

    def course(self, metric: str) -> Course | None:
        """A metric's course, if it has one."""
        return next((x for x in self.courses if x.metric == metric), None)


@dataclass(frozen=True)
class Findings:
    """A test after `day` days: arms, sample ratios, and each arm against the control."""

    day: int
    alpha: float
    arms: list[ArmState]
    ratios: list[RatioCheck]
    comparisons: list[ArmComparison]


def _side(x: IntervalEstimate) -> int:
    """+1, −1 where an interval lies above or below 0."""
    return int(x.low > 0) - int(x.high < 0)
