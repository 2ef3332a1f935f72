"""The rows of one split, with their own numbering, and what a policy does in each: what every estimator reads.

    panel = Panel.of(data, CERTIFY)
    actions = panel.follow(policy)         # what it does in each row: its choice, the logged action where forced

Row i of a panel is row `panel.rows[i]` of the transitions; users are numbered in the order of `data.users_of(split)`. A
policy is one of D distributions over the K actions in each row:

    kind `[n]`, table `[D, K]`             π(a | row) = table[kind[row], a]

The first K distributions give one action each, so for a deterministic policy the kind is the action. Rows in which a
policy does the same share a distribution, so that rows that are alike for it can be counted together
(`regression.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.actions import named
from outlay.core.cached import cached_property
from outlay.core.errors import LogError
from outlay.core.transitions import SPLITS, Transitions
from outlay.estimators.clusters import Clusters

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class TargetPolicy:
    """A policy on n rows.

    Attributes:
        kind: `[n]` which distribution a row has.
        table: `[D, K]` the distributions; the first K are those that give one action.
    """

    kind: Index
    table: Array

    @classmethod
    def fixed(cls, action: Index, actions: int) -> TargetPolicy:
        """Always the action `[n]`."""
        return cls(action, np.eye(actions))

    @classmethod
    def drawn(cls, probability: Array, action: Index, forced: NDArray[np.bool_], state: Index | None) -> TargetPolicy:
        """Actions drawn anew in each row.

        Args:
            probability: `[n, K]`.
            action: `[n]` what is done where `forced`.
            forced: `[n]` rows without a choice.
            state: `[n]` where states are counted; it saves a sort where the policy looks at nothing else.
        """
        free, actions = ~forced, probability.shape[1]
        kind = action.copy()
        some = None if state is None or not free.any() else _by_state(probability[free], state[free])
        table, of = some or _distinct(probability[free])
        kind[free] = actions + of
        return cls(kind, np.vstack([np.eye(actions), table]))

    @property
    def pure(self) -> bool:
        """Return whether it takes one action in each row."""
        return bool(len(self.table) == self.table.shape[1])

    def of(self, action: Index) -> Array:
        """`[n]` its probability of an action `[n]`."""
        given: Array = self.table[self.kind, action]
        return given


def _by_state(probability: Array, state: Index) -> tuple[Array, Index] | None:
    """Distributions and which a row has, where all rows of a state have the same; else None."""
    size = int(state.max()) + 1
    row = np.full(size, -1)
    row[state] = np.arange(len(state))
    met = np.flatnonzero(row >= 0)
    if not np.array_equal(probability, probability[row[state]]):
        return None
    number = np.zeros(size, np.intp)
    number[met] = np.arange(len(met))
    return probability[row[met]], number[state]


def _distinct(probability: Array) -> tuple[Array, Index]:
    table, of = np.unique(probability, axis=0, return_inverse=True)
    return table, of.ravel()


ROUNDING = 1e-6  # by which probabilities may fail to sum to 1


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
        following: `[n]` panel row of the user's next row; −1 where there is none, or the user left.
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
        clusters: of the U users; None where every user is independent.
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
    clusters: Clusters | None = None

    @classmethod
    def of(cls, data: Transitions, split: int, most_users: int | None = None) -> Panel:
        """Return the rows of LEARN, SELECT or CERTIFY; of at most `most_users` of its users, evenly spread.

        Raises:
            LogError: if no user fell into the split.
        """
        rows, members = data.rows_of(split), data.users_of(split)
        if len(members) == 0:
            raise LogError(
                f"no user fell into the split {SPLITS[split]!r}.",
                where="train.shares",
                way_out="Give that split a larger share, or take a log with more users.",
            )
        if most_users is not None and len(members) > most_users:
            members = members[np.linspace(0, len(members) - 1, most_users).astype(np.int64)]
            rows = rows[np.isin(data.user[rows], members)]
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
            clusters=Clusters.among(data.cluster, members),
        )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_users(self) -> int:
        """U."""
        return len(self.first)

    def follow(self, policy: NDArray[Any] | None) -> TargetPolicy:
        """Return what a policy does in every row; in forced rows it takes the logged action.

        Args:
            policy: `[n]` an action index for every row; or `[n, K]` the probability of each action, drawn anew in
                every row; None: the log's own policy.

        Raises:
            ValueError: if the shape is wrong.
            LogError: if it takes an action that does not exist or is not allowed in a row, or its probabilities are
                none.
        """
        if policy is None:
            return TargetPolicy.fixed(self.action, self.data.num_actions)
        if policy.ndim == 2:
            return self._drawn(np.asarray(policy, np.float64))
        if policy.shape != self.rows.shape:
            raise ValueError(f"policy has shape {policy.shape}; expected {self.rows.shape}: an action for every row.")
        action = np.where(self.forced, self.action, policy.astype(np.intp))
        wrong = (action < 0) | (action >= self.data.num_actions)
        if not wrong.any() and self.data.eligible is not None:
            wrong = ~self._allowed[np.arange(len(self)), action] & ~self.forced
        if wrong.any():
            row = int(wrong.argmax())
            raise self._not_allowed(f"takes action index {action[row]}", row, int(wrong.sum()))
        return TargetPolicy.fixed(action, self.data.num_actions)

    def _drawn(self, probability: NDArray[np.float64]) -> TargetPolicy:
        if probability.shape != (len(self), self.data.num_actions):
            raise ValueError(f"policy has shape {probability.shape}; expected {(len(self), self.data.num_actions)}.")
        free = ~self.forced
        wrong = free & ~((probability >= 0).all(axis=1) & (np.abs(probability.sum(axis=1) - 1) <= ROUNDING))
        if wrong.any():
            row = int(wrong.argmax())
            raise LogError(
                f"its probabilities in row {self.rows[row]} are {np.round(probability[row], 6).tolist()} "
                f"({wrong.sum()} rows in all).",
                where="policy",
                way_out="Give numbers of 0 or more that sum to 1 in every row with a choice.",
            )
        if self.data.eligible is not None:
            wrong = ((probability > 0) & ~self._allowed).any(axis=1) & free
            if wrong.any():
                row = int(wrong.argmax())
                action = int(((probability[row] > 0) & ~self._allowed[row]).argmax())
                words = f"gives {named(self.data.given(action))} a probability of {probability[row, action]:g}"
                raise self._not_allowed(words, row, int(wrong.sum()))
        return TargetPolicy.drawn(probability, self.action, self.forced, self.state)

    def _not_allowed(self, words: str, row: int, count: int) -> LogError:
        return LogError(
            f"the policy {words}, which is not allowed in row {self.rows[row]} ({count} rows in all).",
            where="policy",
            way_out="Choose among the eligible actions of each row.",
        )

    @cached_property
    def _allowed(self) -> NDArray[np.bool_]:
        """`[n, K]`, kept, as every policy is checked against it."""
        return self.data.allowed(self.rows)

    def covers(self, days: int) -> NDArray[np.bool_]:
        """Return `[U]` the users whose totals of `days` days the log shows: what can be observed.

        These are the users whose window covers k days. If all others have ended (a terminal row), nothing comes after
        that, and everybody counts; adding only those who ended would choose them by their outcome.
        """
        inside = self.window >= days
        everybody: NDArray[np.bool_] = inside | self._ended
        return everybody if everybody.all() else inside

    def known_until(self, days: int) -> NDArray[np.int64]:
        """Return `[n]` the first of a user's days that is not known after a row, for means over the first `days` days.

        All are known after a row if the window goes on for longer than any gap between rows: the next row, an end, or
        that the user stayed away for good. Later rows are left out by their window alone; to take those of them that
        have a next row or end would choose them by their outcome. Inside the window, days without a row bring 0.
        """
        if self.covers(days).all():
            return np.full(len(self), days)
        window = self.window[self.user]
        return np.where(window > self.day + self._longest_gap, np.maximum(window, days), window)

    def at_risk(self, days: int) -> NDArray[np.float64]:
        """Return `[days, U]` whether a user's window is such that what follows a row of each day is known."""
        if self.covers(days).all():
            return np.ones((days, self.num_users))
        day = np.arange(days)[:, None]
        return np.asarray((self.window > day + self._longest_gap) | (self.window >= days), np.float64)

    @cached_property
    def _longest_gap(self) -> int:
        return int(self.gap[self.following >= 0].max(initial=1))

    @cached_property
    def _ended(self) -> NDArray[np.bool_]:
        """`[U]` users with a terminal row."""
        return np.bincount(self.user, self.terminal, self.num_users) > 0

    def by_user(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums `[U, T]` over the rows of each user, from `[n, T]`."""
        return np.stack([np.bincount(self.user, column, self.num_users) for column in values.T], axis=1)

    def by_day(self, values: NDArray[np.float64], days: int, absent: float) -> NDArray[np.float64]:
        """`[U, days, …]`: the values `[n, …]` of the first days of each user; `absent` on days without a row."""
        grid = np.full((self.num_users * days, *values.shape[1:]), absent)
        early = slice(None) if int(self.day.max(initial=0)) < days else self.day < days
        grid[self.user[early] * days + self.day[early]] = values[early]
        return grid.reshape(self.num_users, days, *values.shape[1:])
