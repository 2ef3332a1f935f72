"""The effect of the first day's action on the totals after k days, by segment.

    effect = ȳ(higher) − ȳ(lower)      ȳ(a) = Σ wᵢ yᵢ / Σ wᵢ over users whose first action is a
    wᵢ = 1 / pᵢ where propensities are stated, else 1      se² = Σ_a Σ wᵢ² (yᵢ − ȳ(a))² / (Σ wᵢ)² · n/(n−1)

y is the reward summed over a user's first k days; days without a row count 0. Only users whose window covers the k days
and who had a choice in their first row are compared. Without stated propensities this is a plain difference of means:
an effect only if the action was given at random.

The interval is that of Student's t with as many degrees of freedom as the smaller arm has, (Σ wᵢ)² / Σ wᵢ² − 1: two
users who happen to be alike say little. Users of an arm who are all alike are taken to differ as those of the other do.

Source: Hájek (1971) for the ratio; Kish (1965) for the users that weights leave; the degrees of freedom bound those of
Welch (1947) from below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlay.logs.quality import Facts
from outlay.logs.roles import Log, last_time
from outlay.ops.intervals import degrees, quantile, student

CONFIDENCE = 0.95
MIN_USERS = 2  # in each arm, for an interval
ALL = "all"


@dataclass(frozen=True)
class Effect:
    """Effect on the total reward after `days` days, in units of reward per user, with its interval."""

    segment: str
    days: int
    effect: float
    low: float
    high: float
    users: int


@dataclass(frozen=True)
class GivenAction:
    """Users with one first action: their mean, the variance of one user, the users that weights leave, their number."""

    mean: float
    variance: float
    worth: float
    users: int


def half_width(arm: GivenAction, other: GivenAction) -> float:
    """Half the width of the interval of the difference of two means; 0 where all users are alike."""
    error = math.hypot(
        *(math.sqrt((mine.variance or its.variance) / mine.worth) for mine, its in ((arm, other), (other, arm)))
    )
    return student(quantile(0.5 + CONFIDENCE / 2), degrees(min(arm.worth, other.worth))) * error


def contrast(log: Log, facts: Facts) -> tuple[float, float] | None:
    """The pair of actions compared, lower first: as the campaign file says, else the lowest and highest given."""
    if log.campaign.log.contrast:
        low, high = sorted(log.campaign.names.value(each) or 0.0 for each in log.campaign.log.contrast)
        return low, high
    given = [action.value for action in facts.actions if action.choices]
    return (given[0], given[-1]) if len(given) > 1 else None


def effects(log: Log, low: float, high: float) -> list[Effect]:
    """The effect table, `all` users first; without entries where an arm has fewer than MIN_USERS users."""
    days = sorted(set(log.campaign.meta.report_days))
    totals = ", ".join(f"coalesce(sum(r.reward) FILTER (l.day < {k}), 0) AS y{k}" for k in days)
    weight = "1 / f.propensity" if log.campaign.log.propensity else "1"
    valid = "AND f.propensity > 0" if log.campaign.log.propensity else ""
    log.source.run(f"""
        CREATE OR REPLACE TABLE arms AS
        SELECT coalesce(CAST(f.segment AS VARCHAR), 'missing') AS segment, f.action = {high!r} AS higher,
            {weight} AS w, {last_time(log)} - u.first_time + 1 AS span, t.*
        FROM users u JOIN roles f ON f.row = u.first_row
        JOIN (SELECT l.id, {totals} FROM links l JOIN roles r ON r.row = l.row
              WHERE l.day < {max(days)} GROUP BY l.id) t ON t.id = u.id
        WHERE NOT f.forced AND f.action IN ({low!r}, {high!r}) {valid}""")
    table: list[Effect] = []
    for k in days:
        sums = log.source.run(f"""
            SELECT segment, higher, count(*), sum(w), sum(w * y{k}), sum(w * w), sum(w * w * y{k}),
                sum(w * w * y{k} * y{k})
            FROM arms WHERE span >= {k} GROUP BY GROUPING SETS ((segment, higher), (higher)) ORDER BY ALL""")
        arms: dict[str | None, dict[bool, GivenAction]] = {}
        grouped = log.campaign.log.segment is not None
        for segment, higher, n, w, wy, ww, wwy, wwyy in sums:
            if segment is not None and not grouped:
                continue  # one segment, which is all
            mean = wy / w
            # Divided one after the other: weights of tiny probabilities have squares beyond what a float holds.
            spread = max(wwyy / w - 2 * mean * (wwy / w) + mean * mean * (ww / w), 0.0) / w
            worth = w / (ww / w)
            if not math.isfinite(spread * worth):
                continue  # nor can their interval be told
            arms.setdefault(segment, {})[bool(higher)] = GivenAction(
                mean, spread * worth * n / max(n - 1, 1), worth, int(n)
            )
        for segment, arm in arms.items():
            if len(arm) < 2 or min(each.users for each in arm.values()) < MIN_USERS:
                continue
            effect, half = arm[True].mean - arm[False].mean, half_width(arm[True], arm[False])
            if half == 0:
                continue  # a handful of users who are all alike tell no interval
            users = arm[True].users + arm[False].users
            table.append(Effect(ALL if segment is None else segment, k, effect, effect - half, effect + half, users))
    return sorted(table, key=lambda e: (e.segment != ALL, e.segment, e.days))
