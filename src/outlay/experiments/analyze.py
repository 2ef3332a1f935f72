"""From the sums of a log to an analysis: lifts, decisions, guardrails and the verdict.

    analysis = analyze(sums, experiment, metrics, day=14, money="cost")

There are three kinds of interval: of a single look (tables, segments), of the planned decisions (spending bounds; they
alone give a verdict), and of every day at once (confidence sequences; guardrails and the curve). If several arms are
compared with the control, each gets its share of the verdict's error (Bonferroni); guardrails each have their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from outlay.experiments.checks import change_since, contradictions, log_reasons, ratio_reasons, sample_ratios
from outlay.experiments.design import Arm, Experiment
from outlay.experiments.lift import Lift, Withheld, lift
from outlay.experiments.moments import Metric
from outlay.experiments.notes import Note, NoteKind
from outlay.experiments.power import last_alpha
from outlay.experiments.results import (
    Analysis,
    ArmComparison,
    ArmState,
    Course,
    CoursePoint,
    LateOutcomes,
    PlannedDecision,
    RatioCheck,
    Segment,
)
from outlay.experiments.sequential import obrien_fleming, sequence_half_width, spending_bounds, tuned_rho
from outlay.experiments.sums import DailySums
from outlay.experiments.words import verdict
from outlay.ops.intervals import quantile, student


def analyze(
    sums: DailySums,
    experiment: Experiment,
    metrics: Sequence[Metric],
    day: int,
    *,
    money: str | None,
    late: LateOutcomes | None = None,
) -> Analysis:
    """Analyze a test after `day` days.

    Args:
        sums: of its log; of clusters, if arms are drawn by cluster (`sums.py`).
        experiment: the test.
        metrics: the first is the verdict's; those named in `guardrails` are followed day by day.
        day: 1 … the planned days.
        money: the column that is money, if the log has one.
        late: which days are ripe, if outcomes can come later; `sums` are those of ripe days.
    """
    ratios = sample_ratios(sums, experiment, day)
    analysis = Analysis(
        experiment=experiment,
        day=day,
        observed=sums.observed,
        alpha=experiment.alpha,
        arms=_arms(sums, experiment, day, money),
        ratios=ratios,
        comparisons=[_compare(sums, experiment, metrics, day, i, ratios) for i in range(1, len(experiment.arms))],
        late=late,
    )
    return replace(analysis, verdict=verdict(analysis))


def _arms(sums: DailySums, experiment: Experiment, day: int, money: str | None) -> list[ArmState]:
    sums = sums.people or sums
    users = [part.users for part in sums.until(day)]
    shares = [arm.share for arm in experiment.arms]
    spent: list[list[float]] = [[] for _ in users]
    if money is not None:
        added = sums.first[: day if sums.daily else 1, ..., sums.names.index(money)].sum(axis=2)
        spent = np.cumsum(added, axis=0).T.tolist()
    return [
        ArmState(
            name=arm.name,
            kind=arm.kind,
            users=count,
            planned_share=arm.share / sum(shares),
            share=count / max(sum(users), 1),
            budget=arm.budget,
            spent=by_day[-1] if by_day else None,
            spent_by_day=by_day if sums.daily else [],
        )
        for arm, count, by_day in zip(experiment.arms, users, spent, strict=True)
    ]


def _compare(
    sums: DailySums,
    experiment: Experiment,
    metrics: Sequence[Metric],
    day: int,
    place: int,
    ratios: Sequence[RatioCheck],
) -> ArmComparison:
    """The arm at `place` against the control."""
    meta, arm = experiment.meta, experiment.arms[place]
    lifts = _lifts(sums, metrics, day, place, meta.confidence)
    by_day = _by_day(sums, experiment, metrics, day, place)
    decisions = _decisions(sums, by_day[metrics[0].name], experiment, day)
    change = change_since(sums, meta.metric, day, place, meta.confidence)
    return ArmComparison(
        arm=arm.name,
        contestant=arm in experiment.contestants,
        over=day >= meta.days,
        lifts=lifts,
        exposed=_exposed(sums, metrics, day, place, meta.confidence),
        saved=_saved(lifts, _lifts(sums, metrics, day, place, meta.confidence, adjust=False)),
        decisions=decisions,
        change=change,
        courses=[_course(experiment, arm, name, known) for name, known in by_day.items()],
        segments=_segments(sums, metrics, day, place, meta.confidence),
        detectable=_detectable(experiment, lifts[0]),
        blocked=[
            *_blocked(sums, experiment, day, place, lifts[0], ratios),
            *contradictions(meta.metric, decisions, change),
        ],
    )


def _lifts(
    sums: DailySums,
    metrics: Sequence[Metric],
    day: int,
    place: int,
    confidence: float,
    *,
    segment: str | None = None,
    adjust: bool = True,
) -> list[Lift | Withheld]:
    """Every metric at a single look, among all users or those of a segment."""
    arms = sums.until(day, segment)
    return [_consistent(lift(metric, arms[0], arms[place], confidence, adjust=adjust)) for metric in metrics]


def _by_day(
    sums: DailySums, experiment: Experiment, metrics: Sequence[Metric], day: int, place: int
) -> dict[str, dict[int, Lift]]:
    """The verdict's metric and the guardrails: name → day → lift, where there is one."""
    followed = [metrics[0], *(m for m in metrics[1:] if m.name in experiment.meta.guardrails)]
    found: dict[str, dict[int, Lift]] = {metric.name: {} for metric in followed}
    for d in range(1, day + 1) if sums.daily else (day,):
        arms = sums.until(d)
        for metric in followed:
            x = lift(metric, arms[0], arms[place], experiment.meta.confidence)
            if isinstance(x, Lift):
                found[metric.name][d] = x
    return found


def _saved(adjusted: Sequence[Lift | Withheld], plain: Sequence[Lift | Withheld]) -> dict[str, float]:
    """Metric → the share of the variance that the days before the start explain, where they are used."""
    return {
        x.metric: 1 - (x.std_error / y.std_error) ** 2
        for x, y in zip(adjusted, plain, strict=True)
        if isinstance(x, Lift) and isinstance(y, Lift) and x.covariate
    }


def _segments(sums: DailySums, metrics: Sequence[Metric], day: int, place: int, confidence: float) -> list[Segment]:
    if len(sums.segments) < 2:
        return []
    found = []
    for name in sums.segments:
        arms = sums.until(day, name)
        lifts = _lifts(sums, metrics, day, place, confidence, segment=name)
        found.append(Segment(name, arms[0].users + arms[place].users, lifts))
    return found


def _consistent(x: Lift | Withheld) -> Lift | Withheld:
    return replace(x, relative=x.consistent().relative) if isinstance(x, Lift) else x


def _exposed(
    sums: DailySums, metrics: Sequence[Metric], day: int, place: int, confidence: float
) -> list[Lift | Withheld]:
    """Among users with a row: the others' totals are 0, so only the numbers of users differ."""
    if sums.people is not None:  # clusters have users with and without rows
        return []
    came = replace(sums, users=sums.seen).until(day)
    if all(some.users == everyone.users for some, everyone in zip(came, sums.until(day), strict=True)):
        return []
    return [_consistent(lift(metric, came[0], came[place], confidence, adjust=False)) for metric in metrics]


def _decisions(sums: DailySums, known: Mapping[int, Lift], experiment: Experiment, day: int) -> list[PlannedDecision]:
    """The planned decisions so far, each against the bound that the errors seen by then allow.

    Information is about the effect of a day in the test, since totals grow with the days. A log without days says
    nothing about earlier decisions: their information is taken as proportional to the days.

    Args:
        sums: of the log.
        known: day → lift of the verdict's metric.
        experiment: the test.
        day: of the look.
    """
    planned = [d for d in experiment.meta.decisions if d <= day and (d in known or not sums.daily)]
    if sums.daily:
        information = [(sums.days_per_user(d) / known[d].std_error) ** 2 for d in planned]
    else:
        information = [float(d) for d in planned]
    spent = obrien_fleming(np.array(planned) / experiment.meta.days, experiment.alpha)
    decisions = []
    for d, bound in zip(planned, spending_bounds(information, spent).tolist(), strict=True):
        if d in known:
            x = known[d].widened(bound).consistent()
            decisions.append(PlannedDecision(x.absolute, x.relative, day=d, z=known[d].z, bound=bound))
    return decisions


def _course(experiment: Experiment, arm: Arm, metric: str, known: Mapping[int, Lift]) -> Course:
    alpha = 1 - experiment.meta.confidence
    rho = tuned_rho(experiment.meta.days, alpha)
    points = []
    for d, x in known.items():
        always = x.widened(float(sequence_half_width(1.0, d, rho, alpha))).consistent()
        points.append(
            CoursePoint(x.absolute, x.relative, day=d, always=always.absolute, always_relative=always.relative)
        )
    return Course(metric, experiment.wanted(arm, metric), points)


def _detectable(experiment: Experiment, main: Lift | Withheld) -> float | None:
    if isinstance(main, Withheld) or not main.control > 0:
        return None
    errors = student(quantile(1 - last_alpha(experiment) / 2), main.freedom) + quantile(experiment.meta.power)
    return errors * main.std_error / main.control


def _blocked(
    sums: DailySums,
    experiment: Experiment,
    day: int,
    place: int,
    main: Lift | Withheld,
    ratios: Sequence[RatioCheck],
) -> list[Note]:
    """Why the arm at `place` cannot be compared with the control."""
    now = sums.until(day)
    empty = [experiment.arms[i].name for i in (0, place) if now[i].users == 0]
    if empty:
        return [NoteKind.NO_USERS(arm=name) for name in empty]
    reasons = [*ratio_reasons(ratios, experiment, place), *log_reasons(sums, experiment, day)]
    if isinstance(main, Withheld):
        reasons.append(NoteKind.NOT_COMPARED(metric=main.metric, reason=main.reason.words))
    return reasons
