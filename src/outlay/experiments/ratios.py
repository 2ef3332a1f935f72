"""Do the arms have the users that were drawn? In all, by the day on which they came, and by segment.

Of the whole, a difference says that something is wrong; of a day or a segment, also where to look: a release on one
day, an app that loses the rows of one kind of users. Each of the three may err once in 1,000 tests.

Source: Fabijan et al. 2019 (sample ratio mismatch); Bonferroni over days and over segments.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from outlay.experiments.design import Experiment
from outlay.experiments.findings import RatioCheck
from outlay.experiments.lift import sample_ratio
from outlay.experiments.sums import UNSEEN, DailySums

Counts = NDArray[np.int64]

CAUSE = "something other than the draw decides who is seen"
ASSIGNED, LOGGED = "assigned", "in the log"
RAREST = 1_000_000  # in so many tests: rarer is told in words
MOST = 3  # days, and segments, that are told of an arm; the worst


def sample_ratios(sums: DailySums, experiment: Experiment, day: int) -> list[RatioCheck]:
    """Of every arm the checks of all users; of days and segments only those that failed, the worst first.

    Users who were assigned and those in the log are told apart where not all have rows.
    """
    days = slice(0, day if sums.daily else 1)
    users, seen = sums.users[days], sums.seen[days]
    same = np.array_equal(users.sum(axis=(0, 2)), seen.sum(axis=(0, 2)))
    whole = {LOGGED: seen} if same else {ASSIGNED: users, LOGGED: seen}
    came = [f"who came on {experiment.meta.start + datetime.timedelta(days=d)}" for d in range(len(users))]
    groups = [(f"in the segment {name!r}", seen[..., i].sum(axis=0)) for i, name in enumerate(sums.segments)]
    found: list[RatioCheck] = []
    for place in range(1, len(experiment.arms)):
        for of, counts in whole.items():
            found += _checks(experiment, place, of, [("", counts.sum(axis=(0, 2)))])
        entered = list(zip(came, users.sum(axis=2), strict=True))
        told = [part for part, name in zip(groups, sums.segments, strict=True) if name != UNSEEN]
        for of, parts in ((LOGGED if same else ASSIGNED, entered), (LOGGED, told)):
            failed = [check for check in _checks(experiment, place, of, parts) if not check.passed]
            found += sorted(failed, key=lambda check: check.p_value)[:MOST]
    return found


def reasons(checks: Sequence[RatioCheck], experiment: Experiment, place: int) -> list[str]:
    """Why the arm at `place` gets no verdict, by the checks that failed; empty where none did."""
    arm, control = experiment.arms[place], experiment.control
    failed = [check for check in checks if check.arm == arm.name and not check.passed]
    whole = [
        f"{check.treatment:,} users of {arm.name!r} and {check.control:,} of {control.name!r} are {check.of}, where "
        f"shares of {arm.share:g} and {control.share:g} were planned ({_chance(check.p_value)})"
        for check in failed
        if not check.part
    ]
    parts = ", ".join(
        f"{check.part} ({check.treatment:,} of {arm.name!r}, {check.control:,} of {control.name!r}; "
        f"{_chance(check.p_value)})"
        for check in failed
        if check.part
    )
    if whole:
        return [f"{' and '.join(whole)}: {CAUSE}{f', most of all for users {parts}' if parts else ''}"]
    if parts:
        return [f"the arms have the users that were planned in all, but not among users {parts}: {CAUSE}"]
    return []


def _chance(p_value: float) -> str:
    often = 1 / max(p_value, 1e-300)
    return f"chance does this in 1 of {often:,.0f} tests" if often < RAREST else "not by chance"


def _checks(experiment: Experiment, place: int, of: str, parts: Sequence[tuple[str, Counts]]) -> Iterator[RatioCheck]:
    """The arm at `place` in every part (`[A]` users by arm) that has users; none where one part is the whole."""
    arm, control = experiment.arms[place], experiment.control
    counted = [(part, int(n[0]), int(n[place])) for part, n in parts if n[0] + n[place] > 0]
    if len(counted) == 1 and counted[0][0]:
        return
    for part, old, new in counted:
        p_value = min(1.0, len(counted) * sample_ratio(old, new, arm.share / control.share))
        yield RatioCheck(arm.name, of, part, old, new, p_value)
