"""What an off-policy estimate promised against what happened in the test (`analyze --promised`).

    promised   (x_policy − x_old) / x_old, totals of k days, from a log of the time before
    happened   the arm's relative lift after k days of the test

They agree if the difference is within both errors, taken as independent: the assignment to arms is random, although the
users may be the same. Each total has its own 95%, so one in twenty that are right disagrees. The error of x_old is
left out of the promise; it counts r times as much as that of the difference, where r is the lift. The two need not
agree: the test has other days, users whom the log did not have, and after a ramp, users who were in it for fewer days.

Source: ours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outlay.core.errors import OutlayError
from outlay.core.target import Target
from outlay.experiments.design import Experiment
from outlay.experiments.lift import IntervalEstimate
from outlay.experiments.notes import Note, NoteKind
from outlay.experiments.results import Analysis, ArmComparison, Promise
from outlay.experiments.sums import DailySums
from outlay.ops.intervals import quantile

ESTIMATES = "Give RUN/estimates.json, or what outlay evaluate --json printed"


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
            raise OutlayError(
                f"does not say which arm {given} is for.",
                where="promised",
                way_out=f"Give {names[0]}={given}, or another arm.",
            )
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
) -> list[Note]:
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
        estimator, caution = difference["estimator"], difference["caution"]
        found.append(Promise(comparison.arm, metric, days, estimator, promised, happened, agrees, caution))
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
