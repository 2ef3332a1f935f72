"""A value as a mean over users of weighted sums along their rows: totals of k days, or discounted from start rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.panel import Panel
from outlay.estimators.target import Index

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Paths:
    """The r rows with a weight that enter one value.

    Attributes:
        days: of the total; None: discounted.
        rows: `[r]` where the weight before the row is above 0.
        user: `[r]` of each.
        before: `[r]` that weight, discounted.
        after: `[r]` the weight after the row, discounted; 0 in rows that close their path.
        left: `[r]` days left, the row's included; 0: discounted.
        closes: `[r]` bool, truncated rows, after which nothing is known.
        share: `[U]` of each user in the value.
        mass: `[U]` the weight of each user after the k days; discounted: the discounted mean of the weights.
    """

    days: int | None
    rows: Index
    user: Index
    before: Array
    after: Array
    left: Index
    closes: NDArray[np.bool_]
    share: Array
    mass: Array

    @classmethod
    def total(cls, panel: Panel, days: int, weights: tuple[Array, Array], members: NDArray[np.bool_]) -> Paths:
        """The first k days of the members whose days the log tells (`Panel.covers`).

        `weights` are `[n]` before and after each row.
        """
        counts = members & panel.covers(days)
        before, after = weights
        rows = np.flatnonzero((before > 0) & (panel.day < days) & counts[panel.user])
        user, following = panel.user[rows], panel.following[rows]
        last = (following < 0) | (panel.day[following] >= days)
        return cls(
            days=days,
            rows=rows,
            user=user,
            before=before[rows],
            after=after[rows],
            left=days - panel.day[rows],
            closes=np.zeros(len(rows), np.bool_),
            share=counts / max(1, counts.sum()),
            mass=np.bincount(user[last], after[rows[last]], panel.num_users).astype(np.float64),
        )

    @classmethod
    def discounted(cls, panel: Panel, weights: tuple[Array, Array], members: NDArray[np.bool_]) -> Paths:
        """All rows of the members from their start rows on."""
        before, after = weights
        rows = np.flatnonzero((before > 0) & members[panel.user])
        user = panel.user[rows]
        fade = panel.discount ** (panel.day[rows] - panel.day[panel.start[user]]).astype(np.float64)
        rows, user, fade = rows[fade > 0], user[fade > 0], fade[fade > 0]
        closes = (panel.following[rows] < 0) & ~panel.terminal[rows] & (panel.discount > 0)
        known = np.where(closes, 0, fade * after[rows])
        # Each row weighs for the time up to the next, and the last one for all time after it.
        span = np.where(panel.following[rows] < 0, 1, 1 - panel.discount ** panel.gap[rows].astype(np.float64))
        weight = np.where(closes, fade * before[rows], span * known)
        return cls(
            days=None,
            rows=rows,
            user=user,
            before=fade * before[rows],
            after=known,
            left=np.zeros(len(rows), np.intp),
            closes=closes,
            share=members / max(1, members.sum()),
            mass=np.bincount(user, weight, panel.num_users).astype(np.float64),
        )
