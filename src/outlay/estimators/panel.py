"""The rows of one split, with their own numbering: what every estimator reads.

    panel = Panel.of(data, CERTIFY)
    policy = panel.follow(target)          # the action taken in each row: the target's, the logged one where forced

Row i of a panel is row `panel.rows[i]` of the transitions; users are numbered in the order of `data.users_of(split)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.core.transitions import SPLITS, Transitions


@dataclass(frozen=True)
class Panel:
    """n rows of U users.

    Attributes:
        data: the transitions they come from.
        rows: `[n]` row numbers in `data`, ascending.
        names: `reward`, then the names of the m budgets.
        discount: γ per time unit.
        action: `[n]` index of the logged action.
        outcome: `[n, 1+m]` reward and costs as logged (no signs).
        following: `[n]` panel row of the user's next row; −1 where there is none, or the story ended.
        gap: `[n]` time units to the next row.
        day: `[n]` time units since the user's first row.
        user: `[n]` panel user.
        forced: `[n]` bool.
        terminal: `[n]` bool.
        propensity: `[n]` of the logged action, or None.
        state: `[n]` index of the state, or None.
        window: `[U]` time units from the first row to the end of the log, both included.
        first: `[U]` panel row of each user's first row.
        start: `[U]` panel row of each user's start row (the start population of discounted values).
    """

    data: Transitions
    rows: NDArray[np.int64]
    names: tuple[str, ...]
    discount: float
    action: NDArray[np.intp]
    outcome: NDArray[np.float64]
    following: NDArray[np.intp]
    gap: NDArray[np.int64]
    day: NDArray[np.int64]
    user: NDArray[np.intp]
    forced: NDArray[np.bool_]
    terminal: NDArray[np.bool_]
    propensity: NDArray[np.float64] | None
    state: NDArray[np.intp] | None
    window: NDArray[np.int64]
    first: NDArray[np.intp]
    start: NDArray[np.intp]

    @classmethod
    def of(cls, data: Transitions, split: int) -> Panel:
        """The rows of LEARN, SELECT or CERTIFY.

        Raises:
            LogError: if no user fell into the split.
        """
        rows, members = data.rows_of(split), data.users_of(split)
        if len(members) == 0:
            raise LogError(f"no user fell into the split {SPLITS[split]!r}.", where="train.shares",
                           way_out="Give that split a larger share, or take a log with more users.")  # fmt: skip
        users = data.users[members]
        linked = np.asarray(data.next_row[rows], np.int64)
        terminal = np.asarray(data.terminal[rows], np.bool_)
        goes_on = (linked >= 0) & ~terminal
        return cls(
            data=data,
            rows=rows,
            names=("reward", *(budget.name for budget in data.campaign.budgets)),
            discount=data.campaign.meta.discount,
            action=np.asarray(data.action[rows], np.intp),
            outcome=np.asarray(data.outcome[rows], np.float64),
            following=np.where(goes_on, np.searchsorted(rows, linked), -1),
            gap=np.asarray(data.gap[rows], np.int64),
            day=np.asarray(data.day[rows], np.int64),
            user=np.searchsorted(members, data.user[rows]),
            forced=np.asarray(data.forced[rows], np.bool_),
            terminal=terminal,
            propensity=None if data.propensity is None else np.asarray(data.propensity[rows], np.float64),
            state=None if data.state is None else np.asarray(data.state[rows], np.intp),
            window=np.asarray(users["window"], np.int64),
            first=np.searchsorted(rows, users["first_row"]),
            start=np.searchsorted(rows, users["start_row"]),
        )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_users(self) -> int:
        """U."""
        return len(self.first)

    def follow(self, target: NDArray[np.integer] | None) -> NDArray[np.intp]:
        """The action taken in every row `[n]` by a policy that takes `target` `[n]`; None is the log's own policy.

        Forced rows take the logged action.

        Raises:
            ValueError: if the shape is wrong.
            LogError: if it takes an action that does not exist or is not allowed in a row.
        """
        if target is None:
            return self.action
        if target.shape != self.rows.shape:
            raise ValueError(f"target has shape {target.shape}; expected {self.rows.shape}: an action for every row.")
        policy = np.where(self.forced, self.action, target.astype(np.intp))
        wrong = (policy < 0) | (policy >= self.data.num_actions)
        if not wrong.any() and self.data.eligible is not None:
            wrong = ~self._allowed[np.arange(len(self)), policy] & ~self.forced
        if wrong.any():
            row = int(wrong.argmax())
            raise LogError(
                f"the policy takes action index {policy[row]}, which is not allowed in row {self.rows[row]} "
                f"({wrong.sum()} rows in all).",
                where="policy",
                way_out="Choose among the eligible actions of each row.",
            )
        return policy

    @cached_property
    def _allowed(self) -> NDArray[np.bool_]:
        """`[n, K]`, kept: every policy is held against it."""
        return self.data.allowed(self.rows)

    def by_user(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums `[U, T]` over the rows of each user, from `[n, T]`."""
        return np.stack([np.bincount(self.user, column, self.num_users) for column in values.T], axis=1)

    def by_day(self, values: NDArray[np.float64], days: int, absent: float) -> NDArray[np.float64]:
        """`[U, days, …]`: the values `[n, …]` of the first days of each user; `absent` on days without a row."""
        grid = np.full((self.num_users, days, *values.shape[1:]), absent)
        early = self.day < days
        grid[self.user[early], self.day[early]] = values[early]
        return grid
