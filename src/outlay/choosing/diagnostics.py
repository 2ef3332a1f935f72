"""What an evaluation rests on: propensities, overlap by segment, paths that match, estimators that agree.

Everything here is data for tables and JSON; its consequences (a number withheld, or shown and not recommended) are
drawn where the numbers are made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.target import Target
from outlay.estimators.fitted import Fitted
from outlay.estimators.importance import Weighted
from outlay.ops.importance import effective_size, ratios
from outlay.ops.intervals import std_error

LEAST_SHARE = 0.01  # of the choices: a smaller segment is no part of the table of actions


def paths(weighed: Weighted, days: tuple[int, ...]) -> list[dict[str, Any]]:
    """How much of the log goes the policy's way, by number of days.

    Args:
        weighed: plain importance sampling of the policy.
        days: k.

    Returns:
        For each k: users whose k days the log tells, the share of them that match for all k days, the effective number
        of users, the share of weights at which the clip binds, and the share of all weight that the heaviest user has.
    """
    found = []
    for k in days:
        at = weighed.column(str(Target("reward", k)))
        mass = weighed.mass[:, at]
        found.append({
            "days": k,
            "users": int(weighed.covered[at]),
            "matched": float(weighed.matched[at]),
            "ess": float(weighed.ess[at]),
            "clipped": float(weighed.clipped[at]),
            "heaviest": float(mass.max() / mass.sum()) if mass.sum() > 0 else None,
        })  # fmt: skip
    return found


def overlap(at: Measure, subject: EvaluatedPolicy, propensity: NDArray[np.float64]) -> list[dict[str, Any]]:
    """One step of the policy against the log, by segment, over rows with a choice.

    Returns:
        For each segment with choices: their number, the share in which the log gave what the policy may give, the
        effective number of them, the mean of π(a)/p(a) with its standard error by user (1, if propensities are right),
        and the actions that the policy gives there and the log never gave, with the policy's share of them.
    """
    panel, data, segment, free = at.panel, at.data, *_segments(at)
    logged = _given(at, None, segment, free)
    ratio, given, gives = np.zeros(len(free)), np.zeros(len(free), np.bool_), np.zeros(logged.shape)
    for part, weight in zip(subject.parts, subject.weights, strict=True):
        chance = panel.follow(part).of(panel.action)
        one = ratios(chance, propensity, panel.forced)[free]
        ratio += weight * one
        given |= one > 0
        gives += weight * _given(at, part, segment, free)
    found = []
    for s, name in enumerate(data.segments):
        rows = np.flatnonzero(segment == s)
        if len(rows) == 0:
            continue
        here = ratio[rows]
        by_user = np.bincount(panel.user[free[rows]], here - 1, panel.num_users) * panel.num_users / len(rows)
        unseen = np.flatnonzero((logged[s] == 0) & (gives[s] > 0))
        found.append({
            "segment": name,
            "choices": len(rows),
            "matched": float(given[rows].mean()),
            "ess": float(effective_size(here)),
            "mean_ratio": float(here.mean()),
            "mean_ratio_error": _finite(float(std_error(by_user))),
            "unseen": data.actions[unseen].tolist(),
            "unseen_share": float(gives[s, unseen].sum() / gives[s].sum()),
        })  # fmt: skip
    return found


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def daily(policy: str, fitted: Fitted) -> list[dict[str, Any]]:
    """Means of each day per user whose window reaches it, up to the first that is withheld.

    `[{policy, day, reward, costs}]`.
    """
    rows: list[dict[str, Any]] = []
    for day, today in enumerate(fitted.daily, start=1):
        if not np.isfinite(today).all():
            break
        rows.append({"policy": policy, "day": day, "reward": float(today[0]), "costs": today[1:].tolist()})
    return rows


def shares(at: Measure, subject: EvaluatedPolicy) -> list[dict[str, Any]]:
    """How often each action is given in each segment, in the states of the log, by the old policy and the subject.

    Segments with hardly any choices are left out.
    """
    data, segment, free = at.data, *_segments(at)
    tables = {"old": _given(at, None, segment, free)}
    tables["new"] = np.sum(
        [w * _given(at, part, segment, free) for part, w in zip(subject.parts, subject.weights, strict=True)], axis=0
    )
    return [
        {"segment": data.segments[s], "policy": policy, "action": float(data.actions[a]),
         "share": float(table[s, a] / table[s].sum())}
        for policy, table in tables.items()
        for s in range(len(data.segments))
        if tables["old"][s].sum() > LEAST_SHARE * len(segment)
        for a in range(data.num_actions)
    ]  # fmt: skip


def _segments(at: Measure) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The segment of each row with a choice, and those rows."""
    free = np.flatnonzero(~at.panel.forced)
    segment = at.data.users["segment"][at.data.user[at.panel.rows[free]]].astype(np.int64)
    return segment, free


def _given(
    at: Measure, part: NDArray[Any] | None, segment: NDArray[np.int64], free: NDArray[np.intp]
) -> NDArray[np.float64]:
    """`[segments, K]` how many rows with a choice are given each action."""
    target = at.panel.follow(part)
    kinds, size = len(target.table), len(at.data.segments)
    count = np.bincount(segment * kinds + target.kind[free], minlength=size * kinds).reshape(size, kinds)
    given: NDArray[np.float64] = count @ target.table
    return given
