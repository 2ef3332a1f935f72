"""How much of a log is about a policy: paths that match it, overlap by segment, actions given, means of each day.

Everything here is a result for tables and JSON. Its consequences (a number is withheld, or shown and not recommended)
are drawn where the numbers are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.actions import Given
from outlay.core.estimate import Target
from outlay.core.wording import small
from outlay.estimators.clusters import by_cluster
from outlay.estimators.fitted import Fitted
from outlay.estimators.importance import Weighted
from outlay.estimators.panel import Panel
from outlay.logs.quality import ABSENT
from outlay.ops.importance import effective_size, ratios
from outlay.ops.intervals import std_error

LEAST_SHARE = 0.01  # of the choices: a smaller segment is left out of the table of actions


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchingPaths:
    """How many users were given what the policy gives, on all of their first days.

    Attributes:
        days: how many days.
        users: users whose window covers them.
        matched: share of those users whose logged actions are the policy's on all of these days.
        ess: effective number of users: what the weights of the matching ones are worth.
        clipped: share of the weights at which the clip of importance sampling binds.
        heaviest: share of all weight that one user has; None without a match.
    """

    days: int
    users: int
    matched: float
    ess: float
    clipped: float
    heaviest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingDays:
    """Days between a user's rows that have no row, and count as 0 in totals.

    Attributes:
        share: of the users' days from the first row to the last.
        words: what that means, without a full stop.
    """

    share: float
    words: str

    @property
    def many(self) -> bool:
        """Whether so many that they are to be told beside the first figures."""
        return self.share >= ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOverlap:
    """Single decisions of the policy against the log, in one segment, over rows with a choice.

    Attributes:
        segment: its name.
        choices: rows with a choice.
        matched: share of them in which the log gave an action that the policy may give.
        ess: effective number of them.
        mean_ratio: mean of π/p; 1 where propensities are right.
        mean_ratio_error: its standard error, by cluster; None for a single user.
        unseen: actions that the policy gives there and the log never gave.
        unseen_share: their share of what the policy gives.
    """

    segment: str
    choices: int
    matched: float
    ess: float
    mean_ratio: float
    mean_ratio_error: float | None
    unseen: tuple[Given, ...]
    unseen_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayMeans:
    """Means per user on one day of a policy, not discounted.

    Attributes:
        policy: `old` or the name of the evaluated policy.
        day: day of the user, from 1: that of the first row.
        reward: mean reward.
        costs: `[m]` mean costs, in the unit of each budget.
    """

    policy: str
    day: int
    reward: float
    costs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionShare:
    """How often a policy gives an action in a segment.

    Attributes:
        segment: its name; `all users` where the campaign has no segments.
        policy: `old` or `new`.
        action: the value given.
        share: of the segment's decisions, in [0, 1]; the shares of a segment and policy sum to 1.
    """

    segment: str
    policy: str
    action: Given
    share: float


def matching_paths(weighed: Weighted, days: tuple[int, ...]) -> tuple[MatchingPaths, ...]:
    """Return a line for each number of `days`; `weighed` is plain importance sampling of the policy."""
    lines = []
    for k in days:
        place = weighed.column(str(Target("reward", k)))
        mass = weighed.mass[:, place]
        lines.append(
            MatchingPaths(
                days=k,
                users=int(weighed.covered[place]),
                matched=float(weighed.matched[place]),
                ess=float(weighed.ess[place]),
                clipped=float(weighed.clipped[place]),
                heaviest=float(mass.max() / mass.sum()) if mass.sum() > 0 else None,
            )
        )
    return tuple(lines)


def missing_days(panel: Panel) -> MissingDays | None:
    """Return how many days between users' rows have none; None where none is missing."""
    gap = panel.gap[panel.following >= 0]
    absent = int((gap // max(1, int(np.gcd.reduce(gap))) - 1).sum())  # rows may lie evenly some days apart
    if not absent:
        return None
    share = absent / (len(panel) + absent)
    words = (
        f"{small(share)} of the days between users' rows have no row, and count as 0 in totals: if rows were lost, "
        "totals of every policy are too low by about as much, and shares of a gain are not"
    )
    return MissingDays(share=share, words=words)


def overlap(measure: Measure, policy: EvaluatedPolicy, propensity: NDArray[np.float64]) -> tuple[SegmentOverlap, ...]:
    """Return a line for each segment that has rows with a choice; `propensity` `[n]` is of the logged actions."""
    panel, data, segment, free = measure.panel, measure.data, *_segments(measure)
    logged = _given(measure, None, segment, free)
    ratio, given, gives = np.zeros(len(free)), np.zeros(len(free), np.bool_), np.zeros(logged.shape)
    for part, weight in zip(policy.parts, policy.weights, strict=True):
        chance = panel.follow(part).of(panel.action)
        one = ratios(chance, propensity, panel.forced)[free]
        ratio += weight * one
        given |= one > 0
        gives += weight * _given(measure, part, segment, free)
    lines = []
    for s, name in enumerate(data.segments):
        rows = np.flatnonzero(segment == s)
        if len(rows) == 0:
            continue
        here = ratio[rows]
        off = here - 1 if panel.clusters is None else here - here.mean()
        by_user = np.bincount(panel.user[free[rows]], off, panel.num_users) * panel.num_users / len(rows)
        error = float(std_error(by_cluster(by_user, panel.clusters)))
        unseen = np.flatnonzero((logged[s] == 0) & (gives[s] > 0))
        lines.append(
            SegmentOverlap(
                segment=name,
                choices=len(rows),
                matched=float(given[rows].mean()),
                ess=float(effective_size(here)),
                mean_ratio=float(here.mean()),
                mean_ratio_error=error if np.isfinite(error) else None,
                unseen=tuple(map(data.given, unseen.tolist())),
                unseen_share=float(gives[s, unseen].sum() / gives[s].sum()),
            )
        )
    return tuple(lines)


def daily(policy: str, fitted: Fitted) -> tuple[DayMeans, ...]:
    """Return the means of each day per user, up to the first day that is withheld."""
    days = []
    for day, today in enumerate(fitted.daily, start=1):
        if not np.isfinite(today).all():
            break
        days.append(DayMeans(policy=policy, day=day, reward=float(today[0]), costs=tuple(today[1:].tolist())))
    return tuple(days)


def shares(measure: Measure, policy: EvaluatedPolicy) -> tuple[ActionShare, ...]:
    """Return how often the old and the evaluated policy give each action, by segment, in the states of the log.

    Segments with hardly any choices are left out.
    """
    data, segment, free = measure.data, *_segments(measure)
    tables = {"old": _given(measure, None, segment, free)}
    tables["new"] = np.sum(
        [w * _given(measure, part, segment, free) for part, w in zip(policy.parts, policy.weights, strict=True)], axis=0
    )
    return tuple(
        ActionShare(
            segment=data.segments[s],
            policy=name,
            action=data.given(a),
            share=float(table[s, a] / table[s].sum()),
        )
        for name, table in tables.items()
        for s in range(len(data.segments))
        if tables["old"][s].sum() > LEAST_SHARE * len(segment)
        for a in range(data.num_actions)
    )


def _segments(measure: Measure) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the segment of each row with a choice, and the numbers of those rows."""
    free = np.flatnonzero(~measure.panel.forced)
    segment = measure.data.users["segment"][measure.data.user[measure.panel.rows[free]]].astype(np.int64)
    return segment, free


def _given(
    measure: Measure, part: NDArray[Any] | None, segment: NDArray[np.int64], free: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return `[segments, K]` how many rows with a choice are given each action."""
    target = measure.panel.follow(part)
    kinds, size = len(target.table), len(measure.data.segments)
    count = np.bincount(segment * kinds + target.kind[free], minlength=size * kinds).reshape(size, kinds)
    given: NDArray[np.float64] = count @ target.table
    return given
