"""`outlay experiment analyze --report`: fill the page of a test from its analysis, and write it."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from outlay.core.errors import OutlayError
from outlay.core.files import new_file
from outlay.core.version import __version__
from outlay.experiments import findings
from outlay.experiments.design import Experiment
from outlay.experiments.findings import ArmComparison as Compared
from outlay.experiments.findings import Change, Course, PlannedDecision
from outlay.experiments.lift import IntervalEstimate as Ends
from outlay.experiments.lift import Lift, Withheld
from outlay.jobs.analyze_experiment import AnalyzeResult
from outlay.pages.content import Interval
from outlay.pages.experiment import render
from outlay.pages.experiment_content import (
    ArmComparison,
    ArmLine,
    ChangeLine,
    CourseDay,
    CourseLine,
    DecisionLine,
    Effect,
    ExperimentContent,
    GroupLine,
    MetricLine,
    PromiseLine,
    RatioLine,
)


def write_experiment_report(result: AnalyzeResult, path: str | Path) -> Path:
    """Write the page of a test: one self-contained HTML file, replaced whole if it is there.

    Raises:
        OutlayError: if `path` is no file that ends in .html.
    """
    path = check_report_path(path)
    with new_file(path) as temporary:
        temporary.write_text(render(content(result)), encoding="utf-8")
    return path


def check_report_path(path: str | Path) -> Path:
    """The path, if a page may be written there; to be asked before the log is read.

    Raises:
        OutlayError: as `write_experiment_report`.
    """
    path = Path(path)
    if path.suffix != ".html" or path.is_dir():
        raise OutlayError(f"is {str(path)!r}.", where="--report", way_out="Give a file that ends in .html.")
    return path


def content(result: AnalyzeResult) -> ExperimentContent:
    """What the page of a test shows."""
    experiment, found = result.experiment, result.findings
    meta = experiment.meta
    shares = {arm.name: arm.share / experiment.control.share for arm in experiment.arms}
    return ExperimentContent(
        name=meta.name,
        campaign=meta.campaign,
        metric=meta.metric,
        start=meta.start,
        day=found.day,
        days=meta.days,
        decisions=meta.decisions,
        unit=meta.unit,
        confidence=meta.confidence,
        arm_confidence=1 - found.alpha,
        power=meta.power,
        arms=tuple(
            ArmLine(name=arm.name, kind=arm.kind, users=arm.users, planned=arm.planned_share, share=arm.share,
                    budget=arm.budget, spent=arm.spent,
                    spent_by_day=tuple(arm.spent_by_day) if len(arm.spent_by_day) == found.day else ())
            for arm in found.arms
        ),
        pace=_pace(experiment),
        ratios=tuple(
            RatioLine(arm=check.arm, of=check.of, part=check.part, control=check.control, treatment=check.treatment,
                      planned=shares[check.arm], p_value=check.p_value, passed=check.passed)
            for check in found.ratios
        ),
        comparisons=tuple(_comparison(each, experiment) for each in found.comparisons),
        promised=tuple(
            PromiseLine(arm=arm, metric=p.metric, days=p.days, estimator=p.estimator, promised=_interval(p.promised),
                        happened=_interval(p.happened), agrees=p.agrees, caution=p.caution)
            for arm, told in result.promised.items()
            for p in told
        ),
        notes=tuple(result.notes),
        settings=_settings(experiment),
    )  # fmt: skip


def _pace(experiment: Experiment) -> tuple[float, ...]:
    """An arm's users come in by the ramp, and each of their days is worth the same money."""
    due = list(accumulate(experiment.coverage(day) for day in range(experiment.meta.days)))
    return tuple(part / due[-1] for part in due)


def _comparison(found: Compared, experiment: Experiment) -> ArmComparison:
    courses = [_course(course) for course in found.courses if course.points]
    return ArmComparison(
        arm=found.arm,
        outcome=found.outcome,
        metrics=tuple(_metric(x, found.saved.get(x.metric)) for x in found.lifts),
        exposed=tuple(_metric(x) for x in found.exposed),
        decisions=tuple(_decision(decision) for decision in found.decisions),
        change=None if found.change is None else _change(found.change),
        course=next((line for line in courses if line.metric == experiment.meta.metric), None),
        guardrails=tuple(line for line in courses if line.metric != experiment.meta.metric),
        groups=tuple(
            GroupLine(name=segment.name, users=segment.users, metrics=tuple(_metric(x) for x in segment.lifts))
            for segment in found.segments
        ),
        detectable=found.detectable,
        blocked=tuple(_quoted(reason, experiment) for reason in found.blocked),
    )


def _quoted(reason: str, experiment: Experiment) -> str:
    """The arms' names as the page writes them."""
    for arm in experiment.arms:
        reason = reason.replace(repr(arm.name), f"“{arm.name}”")
    return reason


def _metric(x: Lift | Withheld, saved: float | None = None) -> MetricLine:
    if isinstance(x, Withheld):
        return MetricLine(name=x.metric, withheld=x.reason)
    return MetricLine(
        name=x.metric, control=x.control, treatment=x.treatment, effect=_effect(x.absolute, x.relative), saved=saved,
        cautious=x.cautious,
    )  # fmt: skip


def _decision(x: PlannedDecision) -> DecisionLine:
    return DecisionLine(day=x.day, z=x.z, bound=x.bound, effect=_effect(x.absolute, x.relative), side=x.side)


def _change(x: Change) -> ChangeLine:
    first, since = (_effect(each.absolute, each.relative) for each in (x.first, x.since))
    return ChangeLine(weeks=x.weeks, first=first, since=since, p_value=x.p_value, trend=x.trend)


def _course(x: Course) -> CourseLine:
    return CourseLine(
        metric=x.metric, days=tuple(_day(p) for p in x.points), now=x.now, moved=x.moved, seen=x.seen, harmful=x.harmful
    )


def _day(p: findings.CoursePoint) -> CourseDay:
    return CourseDay(day=p.day, look=_effect(p.absolute, p.relative), always=_effect(p.always, p.always_relative))


def _effect(absolute: Ends, relative: Ends | None) -> Effect:
    return Effect(_interval(absolute), None if relative is None else _interval(relative))


def _interval(x: Ends) -> Interval:
    return Interval(x.value, x.low, x.high)


def _settings(experiment: Experiment) -> dict[str, dict[str, object]]:
    meta = experiment.meta
    test: dict[str, object] = meta.model_dump(exclude={"seal"}, exclude_none=True)
    return {
        "test": {**test, "seal": experiment.seal(), "outlay": __version__},
        "ramp": {f"from day {step.day}": f"{100 * step.coverage:g} % of every arm" for step in experiment.ramp},
        "arms": {arm.name: arm.model_dump(exclude={"name"}, exclude_none=True) for arm in experiment.arms},
    }
