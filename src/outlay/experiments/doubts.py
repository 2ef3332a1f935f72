"""What makes a log's outcomes doubtful: days that nobody has, a last day that is thin, money below 0.

A day without a row counts as a day on which nothing was done. Of one user that is right; of everyone it says that the
day was not recorded, or not exported.

Source: ours.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

from outlay.experiments.design import Experiment
from outlay.experiments.sums import Sums

THIN = 0.5  # of the rows of the median day before: the last day has hardly ended with fewer
MOST = 5  # runs of days that are told


def unrecorded(sums: Sums, experiment: Experiment, day: int) -> str:
    """The days up to the look of which the log has no row of anyone, in words; empty where there are none."""
    empty = [d for d, rows in enumerate(sums.rows[:day]) if sums.daily and rows == 0]
    return spans(empty, lambda d: str(experiment.meta.start + datetime.timedelta(days=d)))


def reasons(sums: Sums, experiment: Experiment, day: int) -> list[str]:
    """Why there can be no verdict after `day` days."""
    days = unrecorded(sums, experiment, day)
    return [f"the log has no row of anyone on {days}, which would count as a day without any outcome"] if days else []


def notes(sums: Sums, experiment: Experiment, day: int, money: str | None) -> list[str]:
    """What a reader should know.

    Args:
        sums: of the log.
        experiment: its design.
        day: of the look, 1 … the planned days.
        money: the metric that is money, if the log has one.
    """
    found = []
    if days := unrecorded(sums, experiment, day):
        found.append(
            f"The log has no row of anyone on {days}. Were they exported? If nothing happened then, give the log a row "
            "that says so, of any user."
        )
    *before, last = sums.rows[:day]
    if sums.daily and before and 0 < last < THIN * median(before):
        found.append(
            f"The last day, {experiment.meta.start + datetime.timedelta(days=day - 1)}, has {last:,} rows, the median "
            f"day before it {median(before):,.0f}. Was it exported before it had ended?"
        )
    if money is not None and sums.least[money] < 0:
        found.append(below_zero(money, sums.least[money]))
    return found


def below_zero(money: str, least: float) -> str:
    """About money that was less than nothing."""
    return f"{money} is below 0 in some rows, down to {least:.4g}. Are these refunds, or is the sign wrong?"


def spans(days: Sequence[int], told: Callable[[int], str]) -> str:
    """Ascending days in words, runs of them together: `4 to 6, 9`."""
    if not days:
        return ""
    starts = [days[0], *(b for a, b in pairwise(days) if b > a + 1)]
    ends = [*(a for a, b in pairwise(days) if b > a + 1), days[-1]]
    runs = [told(a) if a == b else f"{told(a)} to {told(b)}" for a, b in zip(starts, ends, strict=True)]
    more = f" and other days, {len(days)} in all" if len(runs) > MOST else ""
    return ", ".join(runs[:MOST]) + more
