"""From the sums of a log to an analysis: lifts, decisions, guardrails and the verdict.

    analysis = analyze(sums, experiment, metrics, day=14, money="cost")

There are three kinds of interval: of a single look (tables, segments), of the planned decisions (spending bounds; they
alone give a verdict), and of every day at once (confidence sequences; guardrails and the curve). If several arms are
compared with the control, each gets its share of the verdict's error (Bonferroni); guardrails each have their own.

What an off-policy estimate promised is set against what happened in the test (`--promised`):

    promised   (x_policy − x_old) / x_old, totals of k days, from a log of the time before
    happened   the arm's relative lift after k days of the test

They agree if the difference is within both errors, taken as independent: the assignment to arms is random, although the
users may be the same. Each total has its own 95%, so one in twenty that are right disagrees. The error of x_old is
left out of the promise; it counts r times as much as that of the difference, where r is the lift. The two need not
agree: the test has other days, users whom the log did not have, and after a ramp, users who were in it for fewer days.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outlay.core.errors import OutlayError
from outlay.core.estimate import Target
from outlay.experiments.checks import change_since, contradictions, log_reasons, ratio_reasons, sample_ratios
from outlay.experiments.design import Arm, Experiment
from outlay.experiments.lift import IntervalEstimate, Lift, Withheld, lift
from outlay.experiments.moments import Metric, UserMoments
from outlay.experiments.power import last_alpha
from outlay.experiments.results import (
    Analysis,
    ArmComparison,
    ArmState,
    Course,
    CoursePoint,
    LateOutcomes,
    PlannedDecision,
    Promise,
    RatioCheck,
    Segment,
)
from outlay.experiments.sequential import obrien_fleming, sequence_half_width, spending_bounds, tuned_rho
from outlay.experiments.sums import DailySums
from outlay.experiments.words import ExperimentNote, NoteKind, verdict
from outlay.ops.intervals import quantile, student

ESTIMATES = "Give RUN/estimates.json, or what outlay evaluate --json printed"


def analyze(
    sums: DailySums,
    experiment: Experiment,
    metrics: Sequence[Metric],
    day: int,
    *,
    money: str | None,
    late: LateOutcomes | None = None,
    names: Mapping[str, str] | None = None,
) -> Analysis:
    """Analyze a test after `day` days.

    Args:
        sums: of its log; of clusters, if arms are drawn by cluster (`sums.py`).
        experiment: the test.
        metrics: the first is the verdict's; those named in `guardrails` are followed day by day.
        day: 1 … the planned days.
        money: the column that is money, if the log has one.
        late: which days are ripe, if outcomes can come later; `sums` are those of ripe days.
        names: {metric: what sentences call it}.
    """
    ratios = sample_ratios(sums, experiment, day)
    analysis = Analysis(
        experiment=experiment,
        day=day,
        observed=sums.observed,
        alpha=experiment.alpha,
        arms=_arms(sums, experiment, day, money),
        ratios=ratios,
        comparisons=[
            _compare(_Look(sums, experiment, metrics, day, place), ratios) for place in range(1, len(experiment.arms))
        ],
        late=late,
        names=names or {},
    )
    return replace(analysis, verdict=verdict(analysis))


@dataclass(frozen=True)
class _Look:
    """The arm at `place` beside the control, after `day` days; the first metric is the verdict's."""

    sums: DailySums
    experiment: Experiment
    metrics: Sequence[Metric]
    day: int
    place: int

    @property
    def arm(self) -> Arm:
        return self.experiment.arms[self.place]

    def after(self, day: int, segment: str | None = None) -> tuple[UserMoments, UserMoments]:
        """The control and the arm after so many days."""
        arms = self.sums.until(day, segment)
        return arms[0], arms[self.place]

    def lifts(self, arms: tuple[UserMoments, UserMoments], *, adjust: bool = True) -> list[Lift | Withheld]:
        """Every metric at a single look."""
        confidence = self.experiment.meta.confidence
        found = [lift(metric, *arms, confidence, adjust=adjust) for metric in self.metrics]
        return [replace(x, relative=x.consistent().relative) if isinstance(x, Lift) else x for x in found]


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


def _compare(look: _Look, ratios: Sequence[RatioCheck]) -> ArmComparison:
    """The arm against the control."""
    sums, experiment, day, meta = look.sums, look.experiment, look.day, look.experiment.meta
    now = look.after(day)
    lifts, by_day = look.lifts(now), _by_day(look)
    decisions = _decisions(look, by_day[look.metrics[0].name])
    change = change_since(sums, meta.metric, day, look.place, meta.confidence)
    segments = sums.segments if len(sums.segments) > 1 else ()
    return ArmComparison(
        arm=look.arm.name,
        contestant=look.arm in experiment.contestants,
        over=day >= meta.days,
        lifts=lifts,
        exposed=_exposed(look),
        saved=_saved(lifts, look.lifts(now, adjust=False)),
        decisions=decisions,
        change=change,
        courses=[_course(look, name, known) for name, known in by_day.items()],
        segments=[
            Segment(name, sum(part.users for part in arms), look.lifts(arms))
            for name, arms in ((name, look.after(day, name)) for name in segments)
        ],
        detectable=_detectable(experiment, lifts[0]),
        blocked=[*_blocked(look, lifts[0], ratios), *contradictions(meta.metric, decisions, change)],
    )


def _by_day(look: _Look) -> dict[str, dict[int, Lift]]:
    """The verdict's metric and the guardrails: name → day → lift, where there is one."""
    meta = look.experiment.meta
    followed = [look.metrics[0], *(metric for metric in look.metrics[1:] if metric.name in meta.guardrails)]
    found: dict[str, dict[int, Lift]] = {metric.name: {} for metric in followed}
    for day in range(1, look.day + 1) if look.sums.daily else (look.day,):
        arms = look.after(day)
        for metric in followed:
            if isinstance(x := lift(metric, *arms, meta.confidence), Lift):
                found[metric.name][day] = x
    return found


def _saved(adjusted: Sequence[Lift | Withheld], plain: Sequence[Lift | Withheld]) -> dict[str, float]:
    """Metric → the share of the variance that the days before the start explain, where they are used."""
    return {
        x.metric: 1 - (x.std_error / y.std_error) ** 2
        for x, y in zip(adjusted, plain, strict=True)
        if isinstance(x, Lift) and isinstance(y, Lift) and x.covariate
    }


def _exposed(look: _Look) -> list[Lift | Withheld]:
    """Among users with a row: the others' totals are 0, so only the numbers of users differ."""
    sums, day = look.sums, look.day
    if sums.people is not None:  # clusters have users with and without rows
        return []
    came = replace(sums, users=sums.seen).until(day)
    if all(some.users == everyone.users for some, everyone in zip(came, sums.until(day), strict=True)):
        return []
    return look.lifts((came[0], came[look.place]), adjust=False)


def _decisions(look: _Look, known: Mapping[int, Lift]) -> list[PlannedDecision]:
    """The planned decisions so far, each against the bound that the errors seen by then allow.

    Information is about the effect of a day in the test, since totals grow with the days. A log without days says
    nothing about earlier decisions: their information is taken as proportional to the days.

    Args:
        look: at the test.
        known: day → lift of the verdict's metric.
    """
    sums, experiment = look.sums, look.experiment
    planned = [d for d in experiment.meta.decisions if d <= look.day and (d in known or not sums.daily)]
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


def _course(look: _Look, metric: str, known: Mapping[int, Lift]) -> Course:
    meta = look.experiment.meta
    alpha = 1 - meta.confidence
    rho = tuned_rho(meta.days, alpha)
    points = []
    for d, x in known.items():
        always = x.widened(float(sequence_half_width(1.0, d, rho, alpha))).consistent()
        points.append(
            CoursePoint(x.absolute, x.relative, day=d, always=always.absolute, always_relative=always.relative)
        )
    return Course(metric, look.experiment.wanted(look.arm, metric), points)


def _detectable(experiment: Experiment, main: Lift | Withheld) -> float | None:
    if isinstance(main, Withheld) or not main.control > 0:
        return None
    errors = student(quantile(1 - last_alpha(experiment) / 2), main.freedom) + quantile(experiment.meta.power)
    return errors * main.std_error / main.control


def _blocked(look: _Look, main: Lift | Withheld, ratios: Sequence[RatioCheck]) -> list[ExperimentNote]:
    """Why the arm cannot be compared with the control."""
    names = look.experiment.control.name, look.arm.name
    empty = [name for name, part in zip(names, look.after(look.day), strict=True) if part.users == 0]
    if empty:
        return [NoteKind.NO_USERS(arm=name) for name in empty]
    reasons = ratio_reasons(ratios, look.experiment, look.place)
    reasons += log_reasons(look.sums, look.experiment, look.day)
    if isinstance(main, Withheld):
        reasons.append(NoteKind.NOT_COMPARED(metric=main.metric, reason=main.reason.words))
    return reasons


def promised_files(given: Mapping[str, str | Path] | str | Path | None, experiment: Experiment) -> dict[str, Path]:
    """Arm → file. A file without an arm is for the only arm that gets a verdict.

    Raises:
        OutlayError: if it is not clear which arm a file is for, or the file does not exist.
    """
    if given is None:
        return {}
    if isinstance(given, str | Path):
        names = [arm.name for arm in experiment.contestants]
        if len(names) > 1:
            way_out = f"Give {names[0]}={given}, or another arm."
            raise OutlayError(f"does not say which arm {given} is for.", where="promised", way_out=way_out)
        given = {names[0]: given}
    known = [arm.name for arm in experiment.arms[1:]]
    for name, file in given.items():
        if name not in known:
            raise OutlayError(
                f"{name!r} is not an arm that is compared with the control.",
                where="promised",
                way_out=f"The arms that are: {', '.join(known)}.",
            )
        if not Path(file).is_file():
            raise OutlayError("does not exist.", file=Path(file), where="promised", way_out=f"{ESTIMATES}.")
    return {name: Path(file) for name, file in given.items()}


def read_promises(files: Mapping[str, Path], analysis: Analysis, money: str | None) -> tuple[Promise, ...]:
    """What the estimates promised of their arms, and what happened.

    Raises:
        OutlayError: if a file is not an evaluation.
    """
    found: list[Promise] = []
    for arm, file in files.items():
        comparison = next(each for each in analysis.comparisons if each.arm == arm)
        meta = analysis.experiment.meta
        try:
            estimates = json.loads(file.read_text(encoding="utf-8"))
            found += promises(estimates, comparison, meta.metric, money, meta.confidence)
        except (OSError, ValueError, KeyError, TypeError):
            raise OutlayError("is not an evaluation.", file=file, where="promised", way_out=f"{ESTIMATES}.") from None
    return tuple(found)


def promise_notes(
    files: Mapping[str, Path], found: Sequence[Promise], sums: DailySums, experiment: Experiment
) -> list[ExperimentNote]:
    """Why promises may differ from what happened, or cannot be compared with it."""
    compared = {promise.arm for promise in found}
    notes = [NoteKind.NO_COMMON_TOTAL(arm=arm) for arm in files if arm not in compared]
    longest = max((promise.days for promise in found), default=0)
    if longest:
        notes.append(NoteKind.OTHER_CONTROL(control=experiment.control.name))
    if longest and experiment.last_growth:
        notes.append(NoteKind.RAMP_OF_PROMISE(days=longest, inside=sums.days_per_user(longest)))
    return notes


def promises(
    estimates: Mapping[str, Any], comparison: ArmComparison, reward: str, cost: str | None, confidence: float
) -> list[Promise]:
    """Every k-day total that both the estimate and the test have.

    Args:
        estimates: what `outlay evaluate --json` printed, or RUN/estimates.json.
        comparison: of the arm that the estimate is for.
        reward: the metric that the estimate calls `reward`.
        cost: the metric that is money, or None.
        confidence: of the test's intervals.

    Raises:
        KeyError, TypeError: if the document is not an evaluation.
    """
    budgets = dict.fromkeys(
        Target.parse(row["target"]).name for row in estimates["differences"] if row["target"] != "reward"
    )
    money = next((name for name in budgets if name != "reward"), None)
    metrics = {"reward": reward} | ({money: cost} if money is not None and cost is not None else {})
    found = []
    for target in dict.fromkeys(row["target"] for row in estimates["differences"]):
        parsed = Target.parse(target)
        name, days = parsed.name, parsed.days
        if name not in metrics or days is None:
            continue
        metric = metrics[name]
        difference = _best(estimates["differences"], target, "old")
        old = _best(estimates["beside"], target, None)
        happened = _happened(comparison, metric, days)
        if difference is None or old is None or happened is None or not old["value"] > 0:
            continue
        promised = IntervalEstimate(*(difference[end] / old["value"] for end in ("value", "low", "high")))
        errors = [
            (x.high - x.low) / 2 / quantile(0.5 + level / 2)
            for x, level in ((promised, estimates["confidence"]), (happened, confidence))
        ]
        apart = abs(promised.value - happened.value) / math.hypot(*errors)
        agrees = apart <= quantile(0.5 + confidence / 2)
        caution = difference["caution"] and difference["caution"]["words"]
        found.append(
            Promise(comparison.arm, metric, days, difference["estimator"], promised, happened, agrees, caution)
        )
    return found


def _best(rows: Sequence[Mapping[str, Any]], target: str, against: str | None) -> Mapping[str, Any] | None:
    """The recommended estimate, or else the first one; that of the old policy if `against` is None."""
    usable = [
        row
        for row in rows
        if row["target"] == target
        and row["value"] is not None
        and row["low"] is not None
        and (row["policy"] == "old" if against is None else row["against"] == against)
    ]
    return next((row for row in usable if row["recommended"]), usable[0] if usable else None)


def _happened(comparison: ArmComparison, metric: str, days: int) -> IntervalEstimate | None:
    course = comparison.course_of(metric)
    return next((p.relative for p in course.points if p.day == days), None) if course else None
