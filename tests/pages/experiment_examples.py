"""Contents of a test's page as an analysis would fill them: won, lost, undecided, blocked, with several arms."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace
from itertools import accumulate

from outlay.pages.content import Interval
from outlay.pages.experiment_content import (
    ArmComparison,
    ArmLine,
    CourseDay,
    CourseLine,
    DecisionLine,
    Effect,
    ExperimentContent,
    GroupLine,
    MetricLine,
    Outcome,
    PromiseLine,
    RatioLine,
)

REASON = "the arm 'new' has 5,506 users where 6,006 were planned (p = 3e-06)"


def effect(value: float, half: float, unit: float = 5.0) -> Effect:
    """A relative change of `value` ± `half` on a control of `unit`."""
    relative = Interval(value, value - half, value + half)
    return Effect(Interval(*(unit * (end or 0.0) for end in relative)), relative)


def course(metric: str, value: float, half: float, days: int, moved: int = 0, since: int = 1) -> CourseLine:
    """An effect whose interval narrows to `half` by the last day; where it moved, it stayed so from a day on."""
    wide = [half * math.sqrt(days / day) for day in range(1, days + 1)]
    told = (
        CourseDay(day=day, look=effect(value, w), always=effect(value, 1.5 * w)) for day, w in enumerate(wide, start=1)
    )
    return CourseLine(metric=metric, days=tuple(told), now=moved, moved=moved, seen=(since, days) if moved else None)


def compared(
    arm: str = "new", outcome: Outcome | None = "better", value: float = 0.031, day: int = 14
) -> ArmComparison:
    """An arm whose effect on `active` is `value` ± 1 %, `cost` lower, `redemption` unmoved."""
    side = {"better": 1, "blocked": 1, "worse": -1}.get(outcome or "", 0)
    metrics = (
        MetricLine(name="active", control=5.0, treatment=5 * (1 + value), effect=effect(value, 0.01), saved=0.6),
        MetricLine(name="cost", control=4.0, treatment=3.9, effect=effect(-0.025, 0.01, 4.0)),
        MetricLine(name="redemption", withheld="an arm has 12 users; 30 are needed"),
    )
    return ArmComparison(
        arm=arm,
        outcome=outcome,
        metrics=metrics,
        decisions=tuple(
            DecisionLine(day=d, z=z, bound=bound, effect=effect(value, half), side=side)
            for d, z, bound, half in ((7, 3.4, 2.96, 0.021), (14, 6.1, 1.97, 0.01))
            if d <= day
        ),
        course=course("active", value, 0.01, day),
        guardrails=(
            course("cost", -0.025, 0.01, day, moved=-1, since=4),
            course("redemption", 0.01, 0.02, day),
        ),
        groups=tuple(
            GroupLine(name=name, users=3000, metrics=tuple(replace(m, saved=None) for m in metrics))
            for name in ("lapsed", "regular")
        ),
        detectable=0.0142,
        blocked=(REASON,) if outcome == "blocked" else (),
    )


def example(*comparisons: ArmComparison, day: int = 14) -> ExperimentContent:
    """A test of two weeks, by default of one arm that has won."""
    comparisons = comparisons or (compared(),)
    names = ["old", *(comparison.arm for comparison in comparisons)]
    blocked = {comparison.arm for comparison in comparisons if comparison.blocked}
    due = list(accumulate([0.1, 0.1, *[1.0] * 12]))
    arms = tuple(
        ArmLine(name=name, kind="bundle", users=6000 - 500 * (name in blocked), planned=1 / len(names),
                share=1 / len(names), budget=30_000.0 - 1000 * i, spent=1500.0 * day,
                spent_by_day=tuple(1500.0 * d for d in range(1, day + 1)))
        for i, name in enumerate(names)
    )  # fmt: skip
    return ExperimentContent(
        name="spring",
        campaign="habit",
        metric="active",
        start=datetime.date(2026, 3, 2),
        day=day,
        days=14,
        decisions=(7, 14),
        confidence=0.95,
        arm_confidence=1 - 0.05 / len(comparisons),
        power=0.8,
        arms=arms,
        pace=tuple(x / due[-1] for x in due),
        ratios=tuple(
            RatioLine(arm=arm.name, of="in the log", control=6000, treatment=arm.users, planned=1.0,
                      p_value=1e-6 if arm.name in blocked else 0.37, passed=arm.name not in blocked)
            for arm in arms[1:]
        ),
        comparisons=comparisons,
        promised=(
            PromiseLine(arm=names[1], metric="active", days=3, estimator="fqe", promised=Interval(0.02, 0.0, 0.04),
                        happened=Interval(0.01, -0.01, 0.03), agrees=True),
            PromiseLine(arm=names[1], metric="active", days=7, estimator="fqe", promised=Interval(0.09, 0.08, 0.10),
                        happened=Interval(0.031, 0.01, 0.052), agrees=False, caution="the clip binds"),
        ),
        notes=("The log has 16 days.",),
        settings={"test": {"name": "spring", "decisions": (7, 14)}},
    )  # fmt: skip
