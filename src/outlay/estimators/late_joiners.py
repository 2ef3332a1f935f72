"""Whether users whose window ends early have their like among those whose window goes on.

Means over days take users whose window ends before the others' into account by users like them whose days the log goes
on to show (`sequential.py`). That needs such users. At every day, rows after which nothing is known are told from rows
after which something is, by the line in their features that does it best:

    e(f)      least squares of "goes on" on features f and a constant, from every other user, for the users between
    unlike    an ending row whose e(f) is below that of all but `FEW` of the rows that go on

Of all users, the share of those whose window ended in such a row is summed over days. Where gaps between rows are
long, a user may have several rows after which nothing is known: only the first of them counts. New users of whom none
has as many days as old users is what this is to see, where some feature tells new from old.

Source: overlap (positivity) of censoring as in Robins & Rotnitzky (1992); the measure is ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.panel import Panel

Array = NDArray[np.float64]

FEW = 0.01  # of the rows that go on: so many may be unlike all others
MOST_UNLIKE = 0.05  # of the users: as much may rest on users who are not like them
RIDGE = 1.0  # rows, in features of spread 1


def unlike(panel: Panel, features: NDArray[np.floating], members: NDArray[np.bool_], days: int) -> Array:
    """Share `[days]` of members `[U]` whose window ended before each day, and who were unlike all who went on."""
    ended, until = np.zeros(days), panel.known_until(days)
    short = np.flatnonzero((until < days) & members[panel.user])
    short = short[np.unique(panel.user[short], return_index=True)[1]]  # the first row of each user
    for day in np.unique(panel.day[short]):
        ends = short[panel.day[short] == day]
        rows = np.flatnonzero((panel.day == day) & (until >= days) & members[panel.user])
        odd = _odd(features[ends], features[rows], panel.user[ends] % 2, panel.user[rows] % 2)
        ended += np.bincount(until[ends[odd]], minlength=days)[:days]
    share: Array = ended.cumsum() / max(1, members.sum())
    return share


def why_not(unlike: Array) -> str | None:
    """Return why sums over some days are not given: users who joined late are unlike all who did not; or None."""
    worst = float(unlike.max(initial=0.0))
    if worst <= MOST_UNLIKE:
        return None
    return (
        f"{worst:.0%} of the users joined so late that the log ends before these days, and their features are unlike "
        f"those of all users whose days it shows (at most {MOST_UNLIKE:.0%} may be): take fewer days, or a longer log"
    )


def _odd(
    ends: NDArray[np.floating], goes: NDArray[np.floating], ends_half: NDArray[np.intp], goes_half: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """`[e]` which of the ending rows `[e, p]` are unlike the rows that go on `[g, p]`; halves tell each other."""
    odd = np.ones(len(ends), np.bool_)
    for half in (0, 1):
        mine, here, there = ends_half == half, goes[goes_half == half], goes[goes_half != half]
        if not len(here) or not len(there):
            continue
        told = np.concatenate([ends[~mine], there]).astype(np.float64)
        centre = told.mean(axis=0)
        told -= centre
        gram = told.T @ told + RIDGE * np.eye(told.shape[1])
        line = np.linalg.solve(gram, told[len(told) - len(there) :].sum(axis=0))
        least = np.quantile((here - centre) @ line, FEW, method="lower")
        odd[mine] = (ends[mine] - centre) @ line < least - 1e-9 * (1 + abs(least))
    return odd
