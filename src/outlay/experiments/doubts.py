"""What makes a log's outcomes doubtful: days that nobody has, no outcome of 0, a last day that is thin, money below 0.

A day without a row counts as a day on which nothing was done. Of one user that is right; of everyone it says that the
day was not recorded, or not exported. Where no row has an outcome of 0 and days without a row are many, rows are kept
only where something was done. Then users who never did anything are missing, and the others count only from the first
day on which they did, both of which depend on the arm: a lift of 10 % shrank to 6.4 %. A list of the assigned
repairs that.

Source: ours.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

from outlay.experiments.design import Experiment
from outlay.experiments.sums import DailySums

THIN = 0.5  # of the rows of the median day before: the last day has hardly ended with fewer
LIST = "--assigned arms.parquet, as outlay experiment assign writes it for the last day"
MOST = 5  # runs of days that are told


def unrecorded(sums: DailySums, experiment: Experiment, day: int) -> str:
    """The days up to the look of which the log has no row of anyone, in words; empty where there are none."""
    empty = [d for d, rows in enumerate(sums.rows[:day]) if sums.daily and rows == 0]
    return spans(empty, lambda d: str(experiment.meta.start + datetime.timedelta(days=d)))


def reasons(sums: DailySums, experiment: Experiment, day: int) -> list[str]:
    """Why there can be no verdict after `day` days."""
    found = []
    if days := unrecorded(sums, experiment, day):
        found.append(f"the log has no row of anyone on {days}, which would count as a day without any outcome")
    if sums.daily and outcomes_only(sums, experiment, day):
        found.append(
            f"the log has rows only where {experiment.meta.metric} is not 0 ({filled(sums, day):.0%} of its users' "
            "days), so that users who had none are missing, and how many they are depends on the arm. Say who was "
            f"assigned: {LIST}"
        )
    return found


def outcomes_only(sums: DailySums, experiment: Experiment, day: int) -> bool:
    """Whether rows without an outcome, and the users who have no other, seem to be left out of the log.

    Not where a list says who was assigned, which puts that right.
    """
    least = sums.least.get(experiment.meta.metric, 0.0)
    return not sums.listed and least > 0 and (not sums.daily or filled(sums, day) < 1)


def filled(sums: DailySums, day: int) -> float:
    """The share of days, of users who are in the test on them, that have a row."""
    inside = sums.users[:day].sum(axis=(1, 2)).cumsum()
    return float(sums.shown[:day].sum() / max(inside.sum(), 1))


def notes(sums: DailySums, experiment: Experiment, day: int, money: str | None) -> list[str]:
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
    if not sums.daily and outcomes_only(sums, experiment, day):
        found.append(
            f"No user in the log has 0 of {experiment.meta.metric}. If users without any are left out, how many they "
            f"are depends on the arm, and effects are not what they seem. Say who was assigned: {LIST}."
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
