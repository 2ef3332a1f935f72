"""Can the log be trusted? Sample ratios, days and users that are missing, and whether the arms are those of the file.

**Sample ratio.** Do the arms have the users that were drawn: in all, by the day on which they came, and by segment? For
the whole, a mismatch says that something is wrong; for a day or a segment it also says where to look: a release on one
day, an app that loses the rows of one kind of users. Each of the three may err once in 1,000 tests.

**Missing rows.** A day without a row counts as a day on which nothing was done. For one user that is right; if nobody
has a row, the day was not recorded or not exported. If no row has an outcome of 0 and many days have no row, the log
keeps rows only where something was done. Then users who never did anything are missing, and the others count only from
the first day on which they did, both of which depend on the arm: a lift of 10% shrank to 6.4%. A list of assigned
users repairs that.

**Assignment.** A sample of users is drawn again. If the arms are the file's, a user's first row in an arm may not be
from before the ramp let the user in; and if nearly all users come a day too early or a day late, the log's days are
wrong. If the arms are not the file's, another system has assigned them, which is allowed and noted.

Source: Fabijan et al. 2019 (sample ratio mismatch), with Bonferroni over days and over segments; the rest is ours.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.core.wording import number, percent
from outlay.experiments.design import Experiment
from outlay.experiments.lift import sample_ratio
from outlay.experiments.results import RatioCheck
from outlay.experiments.rows import Run
from outlay.experiments.split import OUTSIDE, entries
from outlay.experiments.sums import UNSEEN, DailySums
from outlay.experiments.words import quoted

Counts = NDArray[np.int64]

CAUSE = "something other than chance decides who is seen"
ASSIGNED, LOGGED = "assigned", "in the log"
RAREST = 1_000_000  # tests: what is rarer than once in as many is "not by chance"
MOST_PARTS = 3  # days, and segments, that are named for an arm: the worst

THIN = 0.5  # of the rows of the median day: with fewer, the last day was probably exported before it ended
LIST = "--assigned arms.parquet, as outlay experiment assign writes it for the last day"
MOST_RUNS = 5  # of days that are named

SAMPLE = 20_000  # users that are drawn again, about
OURS = 0.99  # share of them in the file's arm from which on the file has assigned them
SHIFTED = 0.9  # share of the early users who are early by one day from which on the days are shifted
ENOUGH = 30  # users who came the day after, and none on the day: if days were right, a chance of 1 in 2^30
QUESTION = "Are days counted from 1, or in another time zone?"


def sample_ratios(sums: DailySums, experiment: Experiment, day: int) -> list[RatioCheck]:
    """For every arm the checks of all users; of days and segments only those that failed, the worst first.

    Assigned users and users in the log are checked separately if not all of them have rows.
    """
    days = slice(0, day if sums.daily else 1)
    users, seen = sums.users[days], sums.seen[days]
    same = np.array_equal(users.sum(axis=(0, 2)), seen.sum(axis=(0, 2)))
    whole = {LOGGED: seen} if same else {ASSIGNED: users, LOGGED: seen}
    came = [f"who came on {experiment.meta.start + datetime.timedelta(days=d)}" for d in range(len(users))]
    by_day = list(zip(came, users.sum(axis=2), strict=True))
    by_segment = [
        (f"in the segment {name!r}", seen[..., i].sum(axis=0)) for i, name in enumerate(sums.segments) if name != UNSEEN
    ]
    checks: list[RatioCheck] = []
    for place in range(1, len(experiment.arms)):
        for of, counts in whole.items():
            checks += _ratio_checks(experiment, place, of, [("", counts.sum(axis=(0, 2)))])
        for of, parts in ((LOGGED if same else ASSIGNED, by_day), (LOGGED, by_segment)):
            failed = [check for check in _ratio_checks(experiment, place, of, parts) if not check.passed]
            checks += sorted(failed, key=lambda check: check.p_value)[:MOST_PARTS]
    return checks


def _ratio_checks(
    experiment: Experiment, place: int, of: str, parts: Sequence[tuple[str, Counts]]
) -> Iterator[RatioCheck]:
    """The arm at `place` in every part (`[A]` users by arm) that has users; none if one part is the whole."""
    arm, control = experiment.arms[place], experiment.control
    counted = [(part, int(n[0]), int(n[place])) for part, n in parts if n[0] + n[place] > 0]
    if len(counted) == 1 and counted[0][0]:
        return
    planned = arm.share / control.share
    for part, old, new in counted:
        yield RatioCheck(
            arm.name, of, part, old, new, planned, min(1.0, len(counted) * sample_ratio(old, new, planned))
        )


def ratio_reasons(checks: Sequence[RatioCheck], experiment: Experiment, place: int) -> list[str]:
    """Why the arm at `place` gets no verdict, by the checks that failed; empty if none did."""
    arm, control = experiment.arms[place], experiment.control
    units = "users" if experiment.meta.cluster is None else "clusters"
    failed = [check for check in checks if check.arm == arm.name and not check.passed]
    whole = [
        f"{check.treatment:,} {units} of {quoted(arm.name)} and {check.control:,} of {quoted(control.name)} are "
        f"{check.of}, although shares of {arm.share:g} and {control.share:g} were planned ({_chance(check.p_value)})"
        for check in failed
        if not check.part
    ]
    parts = ", ".join(
        f"{check.part} ({check.treatment:,} of {quoted(arm.name)}, {check.control:,} of {quoted(control.name)}; "
        f"{_chance(check.p_value)})"
        for check in failed
        if check.part
    )
    if whole:
        return [f"{' and '.join(whole)}: {CAUSE}{f', above all among {units} {parts}' if parts else ''}"]
    if parts:
        return [f"the arms have the planned {units} in all, but not among {units} {parts}: {CAUSE}"]
    return []


def _chance(p_value: float) -> str:
    often = 1 / max(p_value, 1e-300)
    return f"chance does this in 1 of {often:,.0f} tests" if often < RAREST else "not by chance"


def log_reasons(sums: DailySums, experiment: Experiment, day: int) -> list[str]:
    """Why the log allows no verdict after `day` days."""
    sums, reasons = sums.people or sums, []
    if days := _unrecorded(sums, experiment, day):
        reasons.append(f"the log has no row of any user on {days}, which would count as a day without any outcome")
    if sums.daily and _outcomes_only(sums, experiment, day):
        reasons.append(
            f"the log has rows only where {experiment.meta.metric} is not 0 ({percent(_filled(sums, day))} of its "
            "users' days), so users without any are missing, and how many they are depends on the arm. Say who was "
            f"assigned: {LIST}"
        )
    return reasons


def log_notes(sums: DailySums, experiment: Experiment, day: int, money: str | None) -> list[str]:
    """What a reader should know about the log.

    Args:
        sums: of the log.
        experiment: the test.
        day: of the look, 1 … the planned days.
        money: the metric that is money, if the log has one.
    """
    sums, notes = sums.people or sums, []
    if days := _unrecorded(sums, experiment, day):
        notes.append(
            f"The log has no row of any user on {days}. Were they exported? If nothing happened then, give the log a "
            "row of 0 for any user on such a day."
        )
    *before, last = sums.rows[:day]
    if sums.daily and before and 0 < last < THIN * median(before):
        notes.append(
            f"The last day, {experiment.meta.start + datetime.timedelta(days=day - 1)}, has {last:,} rows; the median "
            f"day before it has {median(before):,.0f}. Was it exported before it ended?"
        )
    if not sums.daily and _outcomes_only(sums, experiment, day):
        notes.append(
            f"No user in the log has 0 of {experiment.meta.metric}. If users without any are left out, how many they "
            f"are depends on the arm, and the effects shown are biased. Say who was assigned: {LIST}."
        )
    if money is not None and sums.least[money] < 0:
        notes.append(negative_money(money, sums.least[money]))
    return notes


def negative_money(money: str, least: float) -> str:
    """The note that some rows have less than no money."""
    return f"{money} is below 0 in some rows, down to {least:.4g}. Are these refunds, or is the sign wrong?"


def _unrecorded(sums: DailySums, experiment: Experiment, day: int) -> str:
    """The days up to the look on which the log has no row, in words; may be empty."""
    empty = [d for d, rows in enumerate(sums.rows[:day]) if sums.daily and rows == 0]
    return spans(empty, lambda d: str(experiment.meta.start + datetime.timedelta(days=d)))


def _outcomes_only(sums: DailySums, experiment: Experiment, day: int) -> bool:
    """Whether rows without an outcome, and users who have no others, seem to be left out of the log.

    A list of assigned users puts that right.
    """
    least = sums.least.get(experiment.meta.metric, 0.0)
    return not sums.listed and least > 0 and (not sums.daily or _filled(sums, day) < 1)


def _filled(sums: DailySums, day: int) -> float:
    """The share of days with a row, over users and their days in the test."""
    inside = sums.users[:day].sum(axis=(1, 2)).cumsum()
    return float(sums.shown[:day].sum() / max(inside.sum(), 1))


def spans(days: Sequence[int], text: Callable[[int], str]) -> str:
    """Ascending days in words, with runs of them joined: `4 to 6, 9`."""
    if not days:
        return ""
    starts = [days[0], *(b for a, b in pairwise(days) if b > a + 1)]
    ends = [*(a for a, b in pairwise(days) if b > a + 1), days[-1]]
    runs = [text(a) if a == b else f"{text(a)} to {text(b)}" for a, b in zip(starts, ends, strict=True)]
    more = f" and other days, {len(days)} in all" if len(runs) > MOST_RUNS else ""
    return ", ".join(runs[:MOST_RUNS]) + more


def check_assignment(run: Run, experiment: Experiment) -> list[str]:
    """Compare a sample of users with the arms that the file draws; return notes about who assigned them.

    Reads the view `test_rows` that `read_sums` made.

    Raises:
        LogError: if the file has assigned the users, and some have outcomes from before the ramp let them in, or all
            have none on the day on which it did.
    """
    rows = run('SELECT approx_count_distinct("user") FROM test_rows')[0][0]
    every = max(1, rows // SAMPLE)
    sample = run(
        'SELECT "user", any_value(arm), min(day), min(day) FILTER (NOT marker) FROM test_rows '
        f'WHERE hash("user") % {every} = 0 GROUP BY "user"'
    )
    if not sample:
        return []
    users, arms, first, came = zip(*sample, strict=True)
    names = [arm.name for arm in experiment.arms]
    drawn, since = entries(experiment, users)
    ours = [d != OUTSIDE and names[d] == arm for d, arm in zip(drawn, arms, strict=True)]
    wrong = len(users) - sum(ours)
    if wrong > (1 - OURS) * len(users):
        share = number(100 * sum(ours) / len(users), 1)
        return [
            f"Of the users in a sample, {share}% are in the arm that the experiment file draws, so "
            "another system has assigned them. Its shares and its ramp must be those of the file."
        ]
    notes = [] if not wrong else [
        f"{wrong:,} of {len(users):,} users in a sample are in another arm than the file draws, for example user "
        f"{users[ours.index(False)]!r}: what put them there may not have been chance."
    ]  # fmt: skip
    early = [k for k in range(len(users)) if ours[k] and first[k] < since[k]]
    if early:
        k = early[0]
        shifted = sum(first[k] == since[k] - 1 for k in early) >= SHIFTED * len(early)
        raise LogError(
            f"{len(early):,} of {len(users):,} users in a sample have outcomes from before they were assigned, for "
            f"example user {users[k]!r} on day {first[k]}, whom the ramp lets in on day {since[k]}"
            f"{f'; nearly all are a day early. {QUESTION}' if shifted else '.'}", where="day" if shifted else "arm",
            way_out=_shift("+") if shifted else "Leave the arm empty in rows from before a user was let in.",
        )  # fmt: skip
    late = [came[k] - since[k] for k in range(len(users)) if ours[k] and came[k] is not None]
    if 0 not in late and late.count(1) >= ENOUGH:
        raise LogError(
            f"none of {len(late):,} users in a sample has a row on the day on which the ramp lets them in, and "
            f"{late.count(1):,} have their first row on the day after. {QUESTION}", where="day",
            way_out=f"{_shift('-')} If nothing happens on such a day, give the users rows of 0.",
        )  # fmt: skip
    return notes


def _shift(sign: str) -> str:
    return f'If so, shift them: --column "day=day {sign} 1".'
