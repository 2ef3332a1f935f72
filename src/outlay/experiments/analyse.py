"""What a test has shown by a day: from sums to lifts, decisions and guardrails.

    found = analyse(sums, experiment, metrics, day=14)

Three kinds of interval stand side by side and are told apart: at one look (tables, segments), at the planned decisions
(spending bounds; they alone give a verdict), and on every day at once (confidence sequences; guardrails and the curve).
Where several arms stand against the control, each has its share of the error of the verdict (Bonferroni); guardrails
each have their own level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from outlay.experiments import doubts, lasting
from outlay.experiments.design import Arm, Experiment
from outlay.experiments.findings import (
    ArmComparison,
    ArmState,
    Course,
    CoursePoint,
    Findings,
    PlannedDecision,
    RatioCheck,
    Segment,
)
from outlay.experiments.lift import IntervalEstimate, Lift, Withheld, lift
from outlay.experiments.moments import Metric, UserMoments
from outlay.experiments.power import last_alpha
from outlay.experiments.ratios import reasons as ratio_reasons
from outlay.experiments.ratios import sample_ratios
from outlay.experiments.sequential import obrien_fleming, sequence_half_width, spending_bounds, tuned_rho
from outlay.experiments.sums import DailySums
from outlay.ops.intervals import quantile


def analyse(
    sums: DailySums, experiment: Experiment, metrics: Sequence[Metric], day: int, *, money: str | None
) -> Findings:
    """Analyse a test after `day` days.

    Args:
        sums: of its log.
        experiment: its design.
        metrics: the first is the verdict's; those named in `guardrails` are followed day by day.
        day: 1 … the planned days.
        money: the column that is money, if the log has one.
    """
    ratios = sample_ratios(sums, experiment, day)
    comparisons = [_compare(sums, experiment, metrics, day, i, ratios) for i in range(1, len(experiment.arms))]
    return Findings(day, _alpha(experiment), _arms(sums, experiment, day, money), ratios, comparisons)


def _alpha(experiment: Experiment) -> float:
    """The error that each contestant's verdict may spend."""
    return (1 - experiment.meta.confidence) / len(experiment.contestants)


def _arms(sums: DailySums, experiment: Experiment, day: int, money: str | None) -> list[ArmState]:
    now, shares = sums.until(day), [arm.share for arm in experiment.arms]
    everybody = max(sum(part.users for part in now), 1)
    found = []
    for i, (arm, part) in enumerate(zip(experiment.arms, now, strict=True)):
        spent: list[float] = []
        if money is not None:
            by_day = sums.first[: day if sums.daily else 1, i, :, sums.names.index(money)].sum(axis=1)
            spent = [float(x) for x in np.cumsum(by_day)]
        found.append(
            ArmState(
                name=arm.name,
                kind=arm.kind,
                users=part.users,
                planned_share=arm.share / sum(shares),
                share=part.users / everybody,
                budget=arm.budget,
                spent=spent[-1] if spent else None,
                spent_by_day=spent,
            )
        )
    return found


def _compare(
    sums: DailySums,
    experiment: Experiment,
    metrics: Sequence[Metric],
    day: int,
    place: int,
    ratios: Sequence[RatioCheck],
) -> ArmComparison:
    """The arm at `place` against the control."""
    meta, arm, alpha = experiment.meta, experiment.arms[place], _alpha(experiment)

    def at(d: int, segment: str | None = None) -> tuple[UserMoments, UserMoments]:
        parts = sums.until(d, segment)
        return parts[0], parts[place]

    lifts = [_shown(lift(metric, *at(day), meta.confidence)) for metric in metrics]
    plain = [lift(metric, *at(day), meta.confidence, adjust=False) for metric in metrics]
    followed = [metrics[0], *(m for m in metrics[1:] if m.name in meta.guardrails)]
    days = range(1, day + 1) if sums.daily else (day,)
    courses = {m.name: [(d, lift(m, *at(d), meta.confidence)) for d in days] for m in followed}
    told = {d: x for d, x in courses[metrics[0].name] if isinstance(x, Lift)}
    segments = [
        Segment(s, sum(p.users for p in at(day, s)), [_shown(lift(m, *at(day, s), meta.confidence)) for m in metrics])
        for s in (sums.segments if len(sums.segments) > 1 else ())
    ]
    decisions = _decisions(sums, told, experiment, day, alpha)
    change = lasting.change(sums, meta.metric, day, place, meta.confidence)
    return ArmComparison(
        arm=arm.name,
        contestant=arm in experiment.contestants,
        over=day >= meta.days,
        lifts=lifts,
        exposed=_exposed(sums, metrics, day, place, meta.confidence),
        saved={
            x.metric: 1 - (x.std_error / y.std_error) ** 2
            for x, y in zip(lifts, plain, strict=True)
            if isinstance(x, Lift) and isinstance(y, Lift) and x.covariate
        },
        decisions=decisions,
        change=change,
        courses=[_course(experiment, arm, name, found) for name, found in courses.items()],
        segments=segments,
        detectable=_detectable(experiment, lifts[0]),
        blocked=[
            *_blocked(sums, experiment, day, place, lifts[0], ratios),
            *lasting.reasons(meta.metric, decisions, change),
        ],
    )


def _exposed(
    sums: DailySums, metrics: Sequence[Metric], day: int, place: int, confidence: float
) -> list[Lift | Withheld]:
    """Among users with a row: the others' totals are 0, so only the numbers of users differ."""
    came = replace(sums, users=sums.seen).until(day)
    if all(few.users == all_of_them.users for few, all_of_them in zip(came, sums.until(day), strict=True)):
        return []
    return [_shown(lift(metric, came[0], came[place], confidence, adjust=False)) for metric in metrics]


def _decisions(
    sums: DailySums, told: Mapping[int, Lift], experiment: Experiment, day: int, alpha: float
) -> list[PlannedDecision]:
    """The planned decisions so far, each against the bound that the errors seen by then allow.

    Information is about the effect of a day in the test, since totals grow with the days. A log without days says
    nothing of the decisions before: their information is taken as proportional to the days.
    """
    planned = [d for d in experiment.meta.decisions if d <= day and (d in told or not sums.daily)]
    if sums.daily:
        information = [(sums.days_per_user(d) / told[d].std_error) ** 2 for d in planned]
    else:
        information = [float(d) for d in planned]
    bounds = spending_bounds(information, obrien_fleming(np.array(planned) / experiment.meta.days, alpha))
    return [
        PlannedDecision(d, told[d].z, float(bound), *_of_one_mind(*told[d].widened(float(bound))))
        for d, bound in zip(planned, bounds, strict=True)
        if d in told
    ]


def _course(experiment: Experiment, arm: Arm, metric: str, found: Sequence[tuple[int, Lift | Withheld]]) -> Course:
    alpha = 1 - experiment.meta.confidence
    rho = tuned_rho(experiment.meta.days, alpha)
    points = []
    for d, x in found:
        if isinstance(x, Lift):
            errors = float(sequence_half_width(1.0, d, rho, alpha))
            points.append(CoursePoint(d, x.absolute, x.relative, *_of_one_mind(*x.widened(errors))))
    return Course(metric, experiment.wanted(arm, metric), points)


def _of_one_mind(
    absolute: IntervalEstimate, relative: IntervalEstimate | None
) -> tuple[IntervalEstimate, IntervalEstimate | None]:
    """Without the relative one, which is made on the logarithm, where only one of the two holds 0."""
    if relative is None or (absolute.low > 0) != (relative.low > 0) or (absolute.high > 0) != (relative.high > 0):
        return absolute, None
    return absolute, relative


def _shown(found: Lift | Withheld) -> Lift | Withheld:
    if isinstance(found, Withheld):
        return found
    return replace(found, relative=_of_one_mind(found.absolute, found.relative)[1])


def _detectable(experiment: Experiment, main: Lift | Withheld) -> float | None:
    if isinstance(main, Withheld) or not main.control > 0:
        return None
    errors = quantile(1 - last_alpha(experiment) / 2) + quantile(experiment.meta.power)
    return errors * main.std_error / main.control


def _blocked(
    sums: DailySums,
    experiment: Experiment,
    day: int,
    place: int,
    main: Lift | Withheld,
    ratios: Sequence[RatioCheck],
) -> list[str]:
    now = sums.until(day)
    empty = [experiment.arms[i].name for i in (0, place) if now[i].users == 0]
    if empty:
        return [f"the arm {name!r} has no users" for name in empty]
    found = [*ratio_reasons(ratios, experiment, place), *doubts.reasons(sums, experiment, day)]
    if isinstance(main, Withheld):
        found.append(f"{main.metric} cannot be compared: {main.reason}")
    return found
