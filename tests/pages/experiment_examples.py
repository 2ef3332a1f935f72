"""Analyses of a test as the page takes them: won, lost, undecided, blocked, with several arms."""

from __future__ import annotations

import datetime
import math
from typing import Any

from outlay.experiments.design import Experiment
from outlay.experiments.lift import ArmDifference, IntervalEstimate, Lift, Withheld
from outlay.experiments.results import (
    Analysis,
    ArmComparison,
    ArmState,
    Course,
    CoursePoint,
    Outcome,
    PlannedDecision,
    Promise,
    RatioCheck,
    Segment,
)
from outlay.experiments.words import NoteKind

REASON = NoteKind.SAMPLE_RATIO(found="the arm “new” has 5,506 users where 6,006 were planned", parts="")


def effect(value: float, half: float, unit: float = 5.0) -> ArmDifference:
    """A relative change of `value` ± `half` on a control of `unit`."""
    relative = IntervalEstimate(value, value - half, value + half)
    return ArmDifference(IntervalEstimate(unit * value, unit * relative.low, unit * relative.high), relative)


def lift(metric: str, value: float, half: float = 0.01, unit: float = 5.0, covariate: bool = False) -> Lift:
    """The same as one look shows it."""
    x = effect(value, half, unit)
    return Lift(
        x.absolute,
        x.relative,
        metric=metric,
        control=unit,
        treatment=unit * (1 + value),
        std_error=unit * half / 2,
        log_error=half / 2,
        p_value=0.01,
        covariate=covariate,
        cautious=False,
    )


def point(day: int, look: ArmDifference, always: ArmDifference) -> CoursePoint:
    return CoursePoint(look.absolute, look.relative, day=day, always=always.absolute, always_relative=always.relative)


def course(metric: str, value: float, half: float, days: int, wanted: int = 0) -> Course:
    """An effect whose interval narrows to `half` by the last day."""
    wide = [half * math.sqrt(days / day) for day in range(1, days + 1)]
    points = [point(day, effect(value, w), effect(value, 1.5 * w)) for day, w in enumerate(wide, start=1)]
    return Course(metric, wanted, points)


def decision(day: int, z: float, bound: float, value: float, half: float) -> PlannedDecision:
    x = effect(value, half)
    return PlannedDecision(x.absolute, x.relative, day=day, z=z, bound=bound)


def compared(
    arm: str = "new", outcome: Outcome | None = "better", value: float = 0.031, day: int = 14
) -> ArmComparison:
    """An arm whose effect on `active` is `value` ± 1%, `cost` lower, `redemption` unmoved."""
    side = int(math.copysign(1, value)) if outcome in ("better", "blocked", "worse") else 0
    wanted = int(math.copysign(1, value)) if outcome == "better" else 1
    lifts: list[Lift | Withheld] = [
        lift("active", value, covariate=True),
        lift("cost", -0.025, unit=4.0),
        Withheld("redemption", NoteKind.FEW_UNITS(count=12, units="users", needed=30)),
    ]
    found = ArmComparison(
        arm=arm,
        contestant=outcome is not None,
        over=day >= 14,
        lifts=lifts,
        exposed=[],
        saved={"active": 0.6},
        decisions=[
            decision(d, side * z or 0.5, bound, value, half)
            for d, z, bound, half in ((7, 3.4, 2.96, 0.021), (14, 6.1, 1.97, 0.01))
            if d <= day
        ],
        change=None,
        courses=[
            course("active", value, 0.01, day, wanted),
            course("cost", -0.025, 0.01, day, -1),
            course("redemption", 0.01, 0.02, day),
        ],
        segments=[Segment(name, 3000, lifts) for name in ("lapsed", "regular")],
        detectable=0.0142,
        blocked=[REASON] if outcome == "blocked" else [],
    )
    assert found.outcome == outcome
    return found


def example(*comparisons: ArmComparison, day: int = 14, **meta: Any) -> Analysis:
    """A test of two weeks, by default of one arm that has won."""
    comparisons = comparisons or (compared(),)
    names = ["old", *(comparison.arm for comparison in comparisons)]
    blocked = {comparison.arm for comparison in comparisons if comparison.blocked}
    experiment = Experiment.parse(
        {
            "experiment": {
                "name": "spring",
                "campaign": "habit",
                "start": datetime.date(2026, 3, 2),
                "days": 14,
                "metric": "active",
                "guardrails": ["cost", "redemption"],
                "decisions": [7, 14],
            }
            | meta,
            "ramp": [{"day": 0, "coverage": 0.1}, {"day": 2, "coverage": 1.0}],
            "arm": [
                {
                    "name": name,
                    "kind": "bundle",
                    "bundle": "bundle",
                    "share": 1 / len(names),
                    "budget": 30_000.0 - 1000 * i,
                }
                for i, name in enumerate(names)
            ],
        }
    )
    arms = [
        ArmState(
            name=arm.name,
            kind=arm.kind,
            users=6000 - 500 * (arm.name in blocked),
            planned_share=arm.share,
            share=arm.share,
            budget=arm.budget,
            spent=1500.0 * day,
            spent_by_day=[1500.0 * d for d in range(1, day + 1)],
        )
        for arm in experiment.arms
    ]
    return Analysis(
        experiment=experiment,
        day=day,
        observed=16,
        alpha=0.05 / len(comparisons),
        arms=arms,
        ratios=[
            RatioCheck(
                arm=arm.name,
                of="in the log",
                part="",
                control=6000,
                treatment=arm.users,
                planned=1.0,
                p_value=1e-6 if arm.name in blocked else 0.37,
            )
            for arm in arms[1:]
        ],
        comparisons=list(comparisons),
        promised=(
            Promise(
                arm=names[1],
                metric="active",
                days=3,
                estimator="fqe",
                promised=IntervalEstimate(0.02, 0.0, 0.04),
                happened=IntervalEstimate(0.01, -0.01, 0.03),
                agrees=True,
                caution=None,
            ),
            Promise(
                arm=names[1],
                metric="active",
                days=7,
                estimator="fqe",
                promised=IntervalEstimate(0.09, 0.08, 0.10),
                happened=IntervalEstimate(0.031, 0.01, 0.052),
                agrees=False,
                caution="the clip binds",
            ),
        ),
        notes=(NoteKind.LATER_DAYS(observed=16, day=day),),
    )
