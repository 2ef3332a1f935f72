"""What a test has shown: arms, sample ratios, and each arm against the control."""

from __future__ import annotations

from dataclasses import dataclass

from outlay.experiments.lift import Interval, Lift, Withheld

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
    """Does an arm have as many users for each one in the control as was planned? `of` says which users."""

    arm: str
    of: str
    control: int
    treatment: int
    p_value: float

    @property
    def passed(self) -> bool:
        """Whether the difference may be chance."""
        return self.p_value >= RATIO_P


@dataclass(frozen=True)
class Decision:
    """A planned decision: z against its bound, and the interval that keeps its level over all planned decisions."""

    day: int
    z: float
    bound: float
    absolute: Interval
    relative: Interval | None

    @property
    def side(self) -> int:
        """+1: better, −1: worse, 0: the bound is not crossed."""
        return int(self.z >= self.bound) - int(self.z <= -self.bound)


@dataclass(frozen=True)
class Point:
    """A metric after a day: its interval at one look, and the one that holds on all days at once."""

    day: int
    absolute: Interval
    relative: Interval | None
    always: Interval
    always_relative: Interval | None

    @property
    def side(self) -> int:
        """+1, −1 where the interval for all days lies above or below 0."""
        return int(self.always.low > 0) - int(self.always.high < 0)


@dataclass(frozen=True)
class Course:
    """A metric day by day.

    Attributes:
        metric: its name.
        points: the days on which it could be told.
        moved: +1 or −1 where the interval for all days has ever excluded 0, as on the last such day; else 0.
        since: the first day of that side, or None.
    """

    metric: str
    points: list[Point]
    moved: int
    since: int | None


@dataclass(frozen=True)
class Segment:
    """The lifts among the users of one segment, each at one look: to understand, not to decide by."""

    name: str
    users: int
    lifts: list[Lift | Withheld]


@dataclass(frozen=True)
class Comparison:
    """An arm against the control.

    Attributes:
        arm: its name.
        contestant: whether it gets a verdict.
        lifts: every metric, at one look.
        saved: metric → share of the variance that the time before the start explains away.
        decisions: the planned ones so far.
        courses: the metric of the verdict and the guardrails by day.
        segments: by segment, where there is more than one.
        detectable: the smallest relative lift that a test as precise as this would find with the planned power.
        blocked: why no verdict may be given, or empty.
    """

    arm: str
    contestant: bool
    lifts: list[Lift | Withheld]
    saved: dict[str, float]
    decisions: list[Decision]
    courses: list[Course]
    segments: list[Segment]
    detectable: float | None
    blocked: list[str]

    @property
    def decided(self) -> Decision | None:
        """The first planned decision that crossed its bound."""
        return next((decision for decision in self.decisions if decision.side), None)

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
    comparisons: list[Comparison]
