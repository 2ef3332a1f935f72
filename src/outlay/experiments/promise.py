"""What the model promised against what happened: an off-policy estimate beside the test.

    promised   (x_policy − x_old) / x_old, totals of k days, from a log of the time before
    happened   the arm's relative lift after k days of the test

They agree where the difference is within both errors, taken as independent: the draw of arms is, the users may be the
same. Each total has its own 95 %, so of twenty that are right one disagrees. The error of x_old is left out of the
promise, where it counts for r times as much as that of the difference, r the lift. They need not agree: the test has
other days, users whom the log did not have, and after a ramp users who were in it for less than k days.

Source: ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlay.core.target import Target
from outlay.experiments.findings import ArmComparison
from outlay.experiments.lift import IntervalEstimate
from outlay.ops.intervals import quantile


@dataclass(frozen=True)
class Promise:
    """A relative lift that an estimate gave, and the one that the test shows.

    Attributes:
        metric: of the test.
        days: of the total.
        estimator: which gave it.
        promised, happened: over the old policy, and over the control.
        agrees: whether their difference is within both errors.
        caution: why the estimate is not relied on, or None.
    """

    metric: str
    days: int
    estimator: str
    promised: IntervalEstimate
    happened: IntervalEstimate
    agrees: bool
    caution: str | None


def promises(
    estimates: Mapping[str, Any], comparison: ArmComparison, reward: str, cost: str | None, confidence: float
) -> list[Promise]:
    """Every k-day total that both the estimate and the test can tell; the largest k first told is the longest.

    Args:
        estimates: what `outlay evaluate --json` printed, or RUN/estimates.json.
        comparison: of the arm that the estimate is about.
        reward: the metric that the estimate calls `reward`.
        cost: the metric that is money, or None.
        confidence: of the test's intervals.

    Raises:
        KeyError, TypeError: if the document is no evaluation.
    """
    budgets = dict.fromkeys(Target.parse(row["target"]).name for row in estimates["differences"])
    money = next((name for name in budgets if name != "reward"), None)
    named = {"reward": reward} | ({money: cost} if money is not None and cost is not None else {})
    found = []
    for target in dict.fromkeys(row["target"] for row in estimates["differences"]):
        name, days = (parsed := Target.parse(target)).name, parsed.days
        if name not in named or days is None:
            continue
        told = _best(estimates["differences"], target, "old")
        old = _best(estimates["beside"], target, None)
        happened = _happened(comparison, named[name], days)
        if told is None or old is None or happened is None or not old["value"] > 0:
            continue
        promised = IntervalEstimate(*(told[end] / old["value"] for end in ("value", "low", "high")))
        errors = [
            (x.high - x.low) / 2 / quantile(0.5 + level / 2)
            for x, level in ((promised, estimates["confidence"]), (happened, confidence))
        ]
        apart = abs(promised.value - happened.value) / math.hypot(*errors)
        agrees = apart <= quantile(0.5 + confidence / 2)
        found.append(Promise(named[name], days, told["estimator"], promised, happened, agrees, told["caution"]))
    return found


def _best(rows: Sequence[Mapping[str, Any]], target: str, against: str | None) -> Mapping[str, Any] | None:
    """The number to take: a recommended one, else the first; of the old policy where `against` is None."""
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
    course = comparison.course(metric)
    return next((p.relative for p in course.points if p.day == days), None) if course else None
