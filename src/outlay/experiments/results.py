"""What a test has shown, as typed values: the page, the terminal's tables and `--json` all take an `Analysis`.

Days are counted from 1 here: after day 7 means at the end of the first week. A difference is an arm less the control.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from outlay.core.errors import OutlayError
from outlay.core.shown import Shown
from outlay.core.wording import days
from outlay.experiments.design import WEEK, Experiment
from outlay.experiments.lift import ArmDifference, IntervalEstimate, Lift, Withheld
from outlay.experiments.words import ExperimentNote, NoteKind

# What a comparison came to. blocked: the arms cannot be compared; better, worse: a planned decision crossed its bound;
# undecided: the test is over and none did; harm: before the end, the interval that holds on any day shows that the
# metric has moved the wrong way; open: before the end, anything else.
Outcome = Literal["better", "worse", "undecided", "harm", "open", "blocked"]

# How the effect changed from the first week to the weeks after it; reversed: from one side of 0 to the other.
Trend = Literal["steady", "growing", "fading", "reversed"]

RATIO_P = 0.001  # below it, the sample ratio is wrong, and no other number of the arm is to be trusted


@dataclass(frozen=True)
class ArmState:
    """One arm so far.

    Attributes:
        name, kind: as in experiment.toml.
        users: so far.
        planned_share, share: of all users in the test.
        budget: of this arm alone, for the whole test; None for a holdout.
        spent: so far; None if the log has no column of money.
        spent_by_day: `[day]` spent in total after each day; empty if the log does not tell days apart.
    """

    name: str
    kind: str
    users: int
    planned_share: float
    share: float
    budget: float | None
    spent: float | None
    spent_by_day: list[float]

    @property
    def budget_used(self) -> float:
        """The share of the budget that has been spent; 0 without a budget."""
        return self.spent / self.budget if self.spent is not None and self.budget else 0.0


@dataclass(frozen=True)
class RatioCheck:
    """Whether an arm has the users that were planned, compared with the control.

    Attributes:
        arm: its name.
        of: which users: `assigned` or `in the log`.
        part: the part of the users that was counted: `who came on 2026-03-04`, `in the segment 'new'`; empty for all.
        control, treatment: numbers of users.
        planned: users of the arm for each user in the control.
        p_value: of the difference if chance alone assigned; multiplied by the number of days or segments that were
            checked, if it is about one of them (Bonferroni).
    """

    arm: str
    of: str
    part: str
    control: int
    treatment: int
    planned: float
    p_value: float

    @property
    def passed(self) -> bool:
        """Whether chance can explain the difference."""
        return self.p_value >= RATIO_P


@dataclass(frozen=True, kw_only=True)
class PlannedDecision(ArmDifference):
    """A planned decision that was reached; its intervals hold over all planned decisions together.

    Attributes:
        day: after which it was due.
        z: the difference in standard errors.
        bound: on |z|.
    """

    day: int
    z: float
    bound: float

    @property
    def side(self) -> int:
        """+1: the metric is higher, −1: lower, 0: the bound is not crossed."""
        return int(self.z >= self.bound) - int(self.z <= -self.bound)


@dataclass(frozen=True, kw_only=True)
class CoursePoint(ArmDifference):
    """A metric after a day: with the interval of a single look, and the one that holds on all days at once."""

    day: int
    always: IntervalEstimate
    always_relative: IntervalEstimate | None

    @property
    def on_all_days(self) -> ArmDifference:
        """The difference with the interval that holds on all days at once."""
        return ArmDifference(self.always, self.always_relative)

    @property
    def side(self) -> int:
        """+1 or −1 if the interval for all days lies above or below 0, else 0."""
        return self.always.side


@dataclass(frozen=True)
class Course:
    """A metric day by day.

    What the interval for all days excluded on a day stays excluded for the totals up to that day, but not for today's:
    an effect may wear off, so the days' intervals are not intersected.

    Attributes:
        metric: its name.
        wanted: the direction that is wanted: +1 up, −1 down, 0 if experiment.toml does not say.
        points: the days on which there is a number.
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
        """+1 or −1: the side of the last day on which the interval for all days excluded 0; 0 if it never did."""
        return next((point.side for point in reversed(self.points) if point.side), 0)

    @property
    def seen(self) -> tuple[int, int] | None:
        """The first and the last day on that side, or None."""
        days = [point.day for point in self.points if point.side and point.side == self.moved]
        return (days[0], days[-1]) if days else None

    @property
    def harmful(self) -> bool:
        """Whether it lies on the wrong side on the last day."""
        return bool(self.wanted) and self.now == -self.wanted


@dataclass(frozen=True)
class Change:
    """The effect in the first week and in the whole weeks since, per user and day.

    Attributes:
        day: the last one that counts.
        users: of both arms who came in the first week; the others are left out.
        first, since: the two effects, each at a single look.
        z: the change in standard errors; positive if the effect has risen.
        p_value: two-sided, at a single look, under no change.
        alpha: a change is reported if the p-value is below it.
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
        """+1: the effect has risen, −1: it has fallen, 0: neither can be shown."""
        return 0 if self.p_value >= self.alpha else 1 if self.z > 0 else -1

    @property
    def trend(self) -> Trend:
        """How the effect has changed; an effect that only shows after the first week is growing."""
        first = self.first.absolute.side
        if not self.side:
            return "steady"
        if self.side != -first:
            return "growing"
        return "reversed" if self.since.absolute.side == -first else "fading"

    @property
    def weeks(self) -> str:
        """The weeks after the first: `week 2`, `weeks 2 to 4`."""
        last = self.day // WEEK
        return "week 2" if last == 2 else f"weeks 2 to {last}"


@dataclass(frozen=True)
class Segment:
    """The lifts among the users of one segment, each at a single look: for understanding, not for deciding."""

    name: str
    users: int
    lifts: list[Lift | Withheld]


@dataclass(frozen=True)
class ArmComparison:
    """One arm against the control.

    Attributes:
        arm: its name.
        contestant: whether it gets a verdict.
        over: whether the last planned decision has been reached.
        lifts: every metric at a single look; the verdict's comes first.
        exposed: the same among users with at least one row, without CUPED; empty if all users have rows.
        saved: metric → share of the variance that the days before the start explain.
        decisions: the planned ones so far.
        change: the effect in the first week and since; None before two whole weeks, or if days are not told apart.
        courses: day by day, first the verdict's metric, then the guardrails.
        segments: empty if there is only one.
        detectable: the smallest relative lift that a test as precise as this one detects with the planned power.
        blocked: the reasons why there can be no verdict; may be empty.
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
    blocked: list[ExperimentNote]

    @property
    def outcome(self) -> Outcome | None:
        """What it came to; None for an arm that gets no verdict."""
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
    def reported(self) -> PlannedDecision | None:
        """The decision whose size is reported: the last, unless it went back inside the bound that was crossed.

        The intervals hold over all decisions together, so the last is as valid as the one that decided, and it knows
        more; an effect is overstated on the day on which it first crosses a bound.
        """
        if self.decided is None or self.decisions[-1].side == self.decided.side:
            return self.decisions[-1] if self.decisions else None
        return self.decided

    @property
    def course(self) -> Course | None:
        """The verdict's metric day by day; None if it has no number on any day."""
        return self.courses[0] if self.courses and self.courses[0].points else None

    @property
    def guardrails(self) -> list[Course]:
        """The guardrails that have a number."""
        return [course for course in self.courses[1:] if course.points]

    def favours(self, decision: PlannedDecision) -> int:
        """+1: for this arm, −1: against it, 0: no bound was crossed, or there is no verdict."""
        if self.decided is None or self.outcome not in ("better", "worse"):
            return 0
        return decision.side * self.decided.side * (1 if self.outcome == "better" else -1)

    def lift(self, metric: str) -> Lift | None:
        """A metric's lift, if it has one."""
        return next((x for x in self.lifts if isinstance(x, Lift) and x.metric == metric), None)

    def course_of(self, metric: str) -> Course | None:
        """A metric's course, if it has one."""
        return next((x for x in self.courses if x.metric == metric), None)

    def to_dict(self) -> dict[str, Any]:
        """All fields, and what follows from them."""
        change = self.change and asdict(self.change) | {"side": self.change.side, "trend": self.change.trend}
        return asdict(self) | {
            "outcome": self.outcome,
            "decided": self.decided.day if self.decided else None,
            "change": change,
            "courses": [asdict(x) | {"now": x.now, "moved": x.moved, "seen": x.seen} for x in self.courses],
        }


@dataclass(frozen=True)
class Promise:
    """A relative lift that an off-policy estimate gave, and the one that the test shows.

    Attributes:
        arm: the estimate is about.
        metric: of the test.
        days: that the total covers.
        estimator: of the estimate.
        promised, happened: relative to the old policy, and to the control.
        agrees: whether their difference is within both errors.
        caution: why the estimate is not relied on, or None.
    """

    arm: str
    metric: str
    days: int
    estimator: str
    promised: IntervalEstimate
    happened: IntervalEstimate
    agrees: bool
    caution: str | None


@dataclass(frozen=True)
class LateOutcomes:
    """What of a test is ripe.

    Attributes:
        delay: d, in days.
        start: the first day of the test.
        planned: days of the test.
        collected: days of the test of which outcomes were collected, T + 1; may be more than were planned.
        rows: of any user, on days of the test that are not ripe; they are left out.
    """

    delay: int
    start: datetime.date
    planned: int
    collected: int
    rows: int

    @property
    def ripe(self) -> int:
        """The days of the test that are ripe."""
        return min(self.collected - self.delay, self.planned)

    def due(self, day: int) -> datetime.date:
        """The date until which outcomes have to be collected for a look after `day` days."""
        return self.start + datetime.timedelta(days=day - 1 + self.delay)

    def refuse(self, day: int) -> None:
        """Check that the days of a look are ripe.

        Raises:
            OutlayError: if not.
        """
        if day > self.ripe:
            found = f"is {day}, and of the test only {days(self.ripe)} {'is' if self.ripe == 1 else 'are'} ripe"
            raise OutlayError(
                f"{found}: outcomes can come up to {days(self.delay)} later (log.delays).",
                where="day",
                way_out=f"Look after day {self.ripe} at the latest, or when outcomes have "
                f"been collected until {self.due(day)}.",
            )

    def notes(self) -> list[ExperimentNote]:
        """What was left out, and when the verdict is due."""
        if self.ripe == self.planned:
            return []
        return [
            NoteKind.UNRIPE(
                delay=days(self.delay),
                ripe=f"{days(self.ripe)} of the test {'is' if self.ripe == 1 else 'are'}",
                left_out=f" The {self.rows:,} rows of later days are left out." if self.rows else "",
                planned=self.planned,
                due=str(self.due(self.planned)),
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        dates = {"start": self.start.isoformat(), "due": self.due(self.planned).isoformat()}
        return asdict(self) | dates | {"ripe": self.ripe, "final": self.ripe == self.planned}


@dataclass(frozen=True)
class LiftRow:
    """A row of the table of lifts: one metric of one arm, at a single look.

    Attributes:
        arm, metric: their names.
        control, treatment: the two means or ratios, not adjusted.
        relative, low, high: the lift with its interval, as a share of the control's; None where there is none.
    """

    arm: str
    metric: str
    control: float
    treatment: float
    relative: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, arm: str, lift: Lift) -> LiftRow:
        """The row of a lift."""
        size = lift.relative
        ends = (None, None, None) if size is None else (size.value, size.low, size.high)
        return cls(arm, lift.metric, lift.control, lift.treatment, *ends)


@dataclass(frozen=True, repr=False)
class Analysis(Shown):
    """An A/B test after `day` days.

    Attributes:
        experiment: the test.
        day: of the look.
        observed: days of the test that the log has.
        alpha: the error that the verdict on each arm may make.
        arms: the control first.
        ratios: checks of the arms' numbers of users.
        comparisons: each other arm against the control.
        verdict: what to do, in words.
        promised: what estimates said of arms, beside what happened.
        notes: what else a reader should know.
        late: which days are ripe, if outcomes can come later; None if the campaign declares no delay.
        names: {metric: what sentences call it}, where the campaign file says so.
        segment_names: the same of segments.
    """

    experiment: Experiment
    day: int
    observed: int
    alpha: float
    arms: list[ArmState]
    ratios: list[RatioCheck]
    comparisons: list[ArmComparison]
    verdict: str = ""
    promised: tuple[Promise, ...] = ()
    notes: tuple[ExperimentNote, ...] = ()
    late: LateOutcomes | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    segment_names: Mapping[str, str] = field(default_factory=dict)

    def called(self, metric: str) -> str:
        """What sentences call a metric."""
        return self.names.get(metric, metric)

    def headline(self) -> str:
        """The verdict."""
        return self.verdict or f"{self.experiment.meta.name}, after day {self.day}."

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """Every arm's lifts at a single look, the arms, and their ratios."""
        lifts = [(each.arm, lift) for each in self.comparisons for lift in each.lifts if isinstance(lift, Lift)]
        return {"lifts": [LiftRow.of(*each) for each in lifts], "arms": self.arms, "ratios": self.ratios}

    @property
    def control(self) -> str:
        """The arm that the others are compared with."""
        return self.arms[0].name

    @property
    def contestants(self) -> list[ArmComparison]:
        """The arms that get a verdict."""
        return [comparison for comparison in self.comparisons if comparison.outcome is not None]

    def doubted(self, arm: str) -> bool:
        """Whether an arm lacks the users that were planned, so that none of its numbers is to be trusted."""
        return any(check.arm == arm and not check.passed for check in self.ratios)

    def to_dict(self) -> dict[str, Any]:
        """JSON; numbers that are not finite are null."""
        meta = self.experiment.meta
        content: dict[str, Any] = _plain(
            {
                "verdict": self.verdict,
                "experiment": meta.name,
                "metric": meta.metric,
                "better": meta.better,
                "unit": meta.unit,
                "confidence": meta.confidence,
                "days": meta.days,
                "observed": self.observed,
                "control": self.control,
                "day": self.day,
                "alpha": self.alpha,
                "arms": [asdict(arm) for arm in self.arms],
                "ratios": [asdict(check) for check in self.ratios],
                "comparisons": [each.to_dict() for each in self.comparisons],
                "promised": [asdict(promise) for promise in self.promised],
                "notes": [note.to_dict() for note in self.notes],
                "late": self.late and self.late.to_dict(),
            }
        )
        return content


def _plain(value: Any) -> Any:
    """JSON: kinds by name, numbers that are not finite as null."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, NoteKind):
        return value.named
    return None if isinstance(value, float) and not math.isfinite(value) else value
