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

from outlay.experiments import lasting
from outlay.experiments.checks import log_reasons, ratio_reasons, sample_ratios
from outlay.experiments.design import Arm, Experiment
from outlay.experiments.late import LateOutcomes
from outlay.experiments.lift import Lift, Withheld, lift
from outlay.experiments.moments import Metric, UserMoments
from outlay.experiments.power import last_alpha
from outlay.experiments.results import (
    Analysis,
    ArmComparison,
    ArmState,
    Course,
    CoursePoint,
    PlannedDecision,
    RatioCheck,
    Segment,
)
from outlay.experiments.sequential import obrien_fleming, sequence_half_width, spending_bounds, tuned_rho
from outlay.experiments.sums import DailySums
from outlay.experiments.words import quoted, verdict
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
        sums: of its log; of clusters, if arms are drawn by cluster (`by_cluster.py`).
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
        alpha=_alpha(experiment),
        arms=_arms(sums, experiment, day, money),
        ratios=ratios,
        comparisons=[_compare(sums, experiment, metrics, day, i, ratios) for i in range(1, len(experiment.arms))],
        late=late,
    )
    return replace(analysis, verdict=verdict(analysis))


def _alpha(experiment: Experiment) -> float:
    """The error that each contestant's verdict may spend."""
    return (1 - experiment.meta.confidence) / len(experiment.contestants)


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

    def after(d: int, segment: str | None = None) -> tuple[UserMoments, UserMoments]:
        parts = sums.until(d, segment)
        return parts[0], parts[place]

    def lifts(segment: str | None = None) -> list[Lift | Withheld]:
        return [_consistent(lift(metric, *after(day, segment), meta.confidence)) for metric in metrics]

    all_lifts = lifts()
    plain = [lift(metric, *after(day), meta.confidence, adjust=False) for metric in metrics]
    followed = [metrics[0], *(m for m in metrics[1:] if m.name in meta.guardrails)]
    days = range(1, day + 1) if sums.daily else (day,)
    by_day = {
        m.name: {d: x for d in days if isinstance(x := lift(m, *after(d), meta.confidence), Lift)} for m in followed
    }
    decisions = _decisions(sums, by_day[metrics[0].name], experiment, day)
    change = lasting.change(sums, meta.metric, day, place, meta.confidence)
    return ArmComparison(
        arm=arm.name,
        contestant=arm in experiment.contestants,
        over=day >= meta.days,
        lifts=all_lifts,
        exposed=_exposed(sums, metrics, day, place, meta.confidence),
        saved={
            x.metric: 1 - (x.std_error / y.std_error) ** 2
            for x, y in zip(all_lifts, plain, strict=True)
            if isinstance(x, Lift) and isinstance(y, Lift) and x.covariate
        },
        decisions=decisions,
        change=change,
        courses=[_course(experiment, arm, name, known) for name, known in by_day.items()],
        segments=[
            Segment(name, sum(part.users for part in after(day, name)), lifts(name))
            for name in (sums.segments if len(sums.segments) > 1 else ())
        ],
        detectable=_detectable(experiment, all_lifts[0]),
        blocked=[
            *_blocked(sums, experiment, day, place, all_lifts[0], ratios),
            *lasting.reasons(meta.metric, decisions, change),
        ],
    )


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
    spent = obrien_fleming(np.array(planned) / experiment.meta.days, _alpha(experiment))
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
) -> list[str]:
    """Why the arm at `place` cannot be compared with the control."""
    now = sums.until(day)
    empty = [experiment.arms[i].name for i in (0, place) if now[i].users == 0]
    if empty:
        return [f"the arm {quoted(name)} has no users" for name in empty]
    reasons = [*ratio_reasons(ratios, experiment, place), *log_reasons(sums, experiment, day)]
    if isinstance(main, Withheld):
        reasons.append(f"{main.metric} cannot be compared: {main.reason}")
    return reasons
