"""Which days claims are about: all days to come, discounted, or the first k days of a user, which the log shows.

days = window_of(data)         # None, or k
claims_window(data)            # None, or a Window with the sentence that pages show
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outlay.choosing.folds import siblings
from outlay.core.campaign import Campaign
from outlay.core.transitions import CERTIFY, SELECT, Transitions
from outlay.estimators.windowed import LITTLE

LEAST_ROWS = 4  # for each state and action: with fewer most are thin, and counts say nothing
COVERED = 0.5  # of the users who joined late, whose windows cover the days that claims are about


@dataclass(frozen=True)
class Window:
    """What claims are about where the log cannot carry discounted values.

    Attributes:
        days: k.
        beyond: share γ^k of the discounted weight that lies after them.
        words: sentences that say so.
    """

    days: int
    beyond: float
    words: str


def window_of(data: Transitions) -> int | None:
    """The days k that claims are about where the log cannot carry discounted values; None where it can.

    It can where states are counted: a fixed point of counts is a fixed point of the log. Between features it is
    extrapolated: nothing holds the values of the days after the log to those that were seen. There k is as many days as
    hold all but `LITTLE` of the discounted weight, or as the log shows, if these are fewer: those that the windows of
    half the users cover who joined after its first day, if more than `LITTLE` of all did. Claims are about all users
    (`estimators/sequential.py`), and users who joined late may be of a kind of their own. Without a tail (discount 0,
    or every path ends in a terminal row) there is nothing to extrapolate.
    """
    discount = data.campaign.meta.discount
    if discount == 0 or all(counted(data, split) for split in (SELECT, CERTIFY)):
        return None
    if not ((np.asarray(data.next_row) < 0) & ~np.asarray(data.terminal)).any():
        return None
    windows = np.sort(np.asarray(data.users["window"], np.int64))[::-1]
    late = windows[windows < windows[0]]
    shown = late if len(late) > LITTLE * len(windows) else windows[:1]
    covered = int(shown[int(np.ceil(COVERED * len(shown))) - 1])
    return max(1, min(covered, int(np.ceil(np.log(LITTLE) / np.log(discount)))))


def counted(data: Transitions, split: int) -> bool:
    """Whether the states of a split are few, and each met often enough that its rows can speak for it.

    Of a fold: whether they are so in all folds, which are then measured alike.
    """
    return all(_counted(view, split) for view in siblings(data))


def _counted(data: Transitions, split: int) -> bool:
    if data.states is None or data.state is None:
        return False
    rows = data.rows_of(split)
    met = len(np.unique(np.asarray(data.state[rows])))
    return len(rows) >= LEAST_ROWS * met * data.num_actions


def claimed(campaign: Campaign, days: int | None) -> int | None:
    """The days that a certificate is about; None where those are all days, or the horizon of budgets per user."""
    return days if all(budget.per == "decision" for budget in campaign.budgets) else None


def claims_window(data: Transitions) -> Window | None:
    """Return the days that claims are about, with the sentence that pages show; None where values are discounted."""
    days, campaign = window_of(data), data.campaign
    if days is None:
        return None
    beyond = campaign.meta.discount**days
    least, most = (np.asarray(bound) for bound in (data.outcome.min(axis=0), data.outcome.max(axis=0)))
    names = (campaign.reward_label, *(budget.name for budget in campaign.budgets))
    seen = ", ".join(f"{name} {low:g} to {high:g}" for name, low, high in zip(names, least, most, strict=True))
    span = "first day" if days == 1 else f"first {days} days"
    what = "Claims" if claimed(campaign, days) else "Means per day and per decision"
    late = float((windows < windows.max()).mean()) if len(windows := np.asarray(data.users["window"])) else 0.0
    joined = (
        f" They are of all users, {late:.0%} of whom joined after the log's first day: the mean over all rows of the "
        "log is another figure, in which these have fewer rows."
        if late > LITTLE
        else ""
    )
    words = (
        f"{what} are about a user's {span} in the log, each weighing the same: the states are too many to count, and "
        f"what comes after is not claimed. {100 * beyond:.2g}% of the discounted weight (discount "
        f"{campaign.meta.discount:g}) lies there, where the log gives no more than the range of a row ({seen}).{joined}"
    )
    return Window(days, beyond, words)
