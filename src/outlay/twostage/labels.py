"""What a row brought within k days: the labels that response models learn.

    label(row) = [ Σ reward, Σ costs over the days t … t+k−1 of its user, costs of day t ]

A row has a label where the log covers all k days, or the user's story ended within them (nothing follows). Days without
a row bring nothing. After day t the log's own policy goes on: that is what a k-day label means, and its limit.

Source: Cai et al. (WSDM 2023), section 6, "the corresponding user's DAU over the next 1/3/7 days"; the costs: ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError, OutlayError
from outlay.core.transitions import Transitions

BLOCK_ROWS = 1 << 18  # bounds the memory beside the labels themselves


class Heads(NamedTuple):
    """Which column of labels and predictions is what; H = 1+m for one day, 1+2m for more.

    Attributes:
        reward: over the k days.
        costs: over the k days, m columns.
        immediate: costs of the first day, m columns; for k = 1 they are `costs`.
        width: H.
    """

    reward: int
    costs: slice
    immediate: slice
    width: int


def heads(days: int, num_costs: int) -> Heads:
    """The columns of k-day labels in a campaign with m costs."""
    costs = slice(1, 1 + num_costs)
    if days == 1:
        return Heads(0, costs, costs, 1 + num_costs)
    return Heads(0, costs, slice(1 + num_costs, 1 + 2 * num_costs), 1 + 2 * num_costs)


def k_day_labels(
    data: Transitions, days: int, rows: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Labels of the rows that have a choice and k whole days of log.

    Forced rows get no label: what they were given tells nothing about the other actions. They do count in the totals
    of earlier rows.

    Args:
        data: the transitions.
        days: k ≥ 1, the row's own day included.
        rows: `[N']` rows to look at; default all.

    Returns:
        rows `[n]`, in the given order, and labels `[n, H]`; columns as `heads` says.

    Raises:
        OutlayError: if `days` is below 1.
        LogError: if no row has a choice, or none has k days of log.
    """
    if days < 1:
        raise OutlayError(f"is {days}.", where="label days", way_out="Give 1 or more.")
    rows = np.arange(len(data)) if rows is None else rows
    rows = rows[~data.forced[rows]]
    if len(rows) == 0:
        raise LogError(
            "no row has a choice: there is nothing to learn a response from.",
            where="log.forced",
            way_out="Take a log in which incentives were chosen.",
        )
    kept, labels = [], []
    longest = 0
    for begin in range(0, len(rows), BLOCK_ROWS):
        block = rows[begin : begin + BLOCK_ROWS]
        total, ended = _totals(data, block, days)
        left = data.users["window"][data.user[block]] - data.day[block]
        longest = max(longest, int(left.max()))
        complete = ended | (left >= days)
        if days > 1:
            total = np.concatenate([total, data.outcome[block, 1:]], axis=1)
        kept.append(block[complete])
        labels.append(total[complete].astype(np.float32))
    if not any(len(part) for part in kept):
        raise LogError(
            f"no row has {days} days of log, itself included; the most is {longest}.",
            where="label days",
            way_out=f"Take labels of at most {longest} days, or a longer log.",
        )
    return np.concatenate(kept), np.concatenate(labels)


def _totals(data: Transitions, rows: NDArray[np.int64], days: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Totals `[b, 1+m]` over the k days, and whether the story ended within them, by walking along the links."""
    total = data.outcome[rows].astype(np.float64)
    ended = np.array(data.terminal[rows])
    last = data.day[rows].astype(np.int64) + days - 1
    place, at = np.arange(len(rows)), data.next_row[rows].astype(np.int64)
    for _ in range(days - 1):
        place, at = place[at >= 0], at[at >= 0]
        inside = data.day[at] <= last[place]
        place, at = place[inside], at[inside]
        if len(place) == 0:
            break
        total[place] += data.outcome[at]
        ended[place] = data.terminal[at]
        at = data.next_row[at].astype(np.int64)
    return total, ended
