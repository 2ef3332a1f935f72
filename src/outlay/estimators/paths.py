"""What the paths of a log tell, whatever the policy: what the days before a row say, and what many incentives change.

People get used to incentives: what the fifth in a row does is not five times what the second changes, and a policy may
give its users many more than the log did. In rows with an incentive, next to days and summaries of the days before:

    e_t  = max(n_t − n̄_d, 0)²                  n_t incentives on the days before, n̄_d on average in the log
    b    = slope of x − E[x | s, a] in f_t e_t   taken as alike in all states and for all amounts
    f_t  = 1 for the reward, E[cost | s_t, a_t] for a cost

x is what a row brings: its outcomes, and the value of the state that comes next. So b is linear in outcomes and values,
and all of it but those is the log's alone and serves every policy. What a policy changes is b times how much more e it
brings about, by the moves of its counted states (`path_bias.py`). Where hardly any user of the log had so many, the
error of b is large.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from outlay.core.cached import cached_property
from outlay.estimators.panel import Panel
from outlay.estimators.row_features import before

Array = NDArray[np.float64]
Moves = Mapping[int, tuple[sparse.csc_matrix, sparse.csc_matrix]]


@dataclass(frozen=True)
class Slope:
    """b by what each user adds to it, for outcomes and for the values of next states.

    Attributes:
        now: `[U, 1+m]` of the outcomes.
        later: by days to the next row. For each outcome a row's weight at its user and next state `[U, S]` and at its
            user and cell `[U, C]`; then the share of each next state in a cell `[C, S]`.
    """

    now: Array
    later: Mapping[int, tuple[list[sparse.csr_matrix], list[sparse.csr_matrix], sparse.csr_matrix]]

    def of(self, now: float, values: Mapping[int, Array]) -> Array:
        """`[U, 1+m]` of `now` times the outcomes, plus values `[S, 1+m]` of states that come so many days later."""
        total = now * self.now
        for gap, value in values.items():
            by_state, by_cell, shares = self.later[gap]
            for j, column in enumerate(value.T):
                total[:, j] += by_state[j] @ column - by_cell[j] @ (shares @ column)
        return total


@dataclass(frozen=True)
class Paths:
    """What the log's paths tell of every policy.

    Attributes:
        panel: the n rows; their states are counted.
        past: `[n, q]` summaries of the days before each (`row_features.days_before`).
    """

    panel: Panel
    past: NDArray[np.floating]

    @cached_property
    def states(self) -> int:
        """Their number."""
        assert self.panel.state is not None
        return int(self.panel.state.max()) + 1

    @cached_property
    def cells(self) -> int:
        """Number of states times that of actions."""
        return self.states * self.panel.data.num_actions

    def told(self, change: Array) -> Array:
        """`[n]` what of `change` the summaries tell beside state and day: by least squares on all rows of each day."""
        told = np.zeros(len(change))
        for rows, off, solve in self._days:
            told[rows] = off @ (solve @ (change[rows] @ off))
        return told

    @cached_property
    def _days(self) -> list[tuple[NDArray[np.intp], NDArray[np.floating], Array]]:
        """By day, from the second: rows, their summaries less the mean of their state, and what solves for a slope."""
        panel = self.panel
        assert panel.state is not None
        order, found = np.argsort(panel.day, kind="stable"), []
        for rows in np.split(order, np.bincount(panel.day).cumsum()[:-1])[1:]:
            state, off = panel.state[rows], self.past[rows].astype(np.float64)
            number = np.maximum(np.bincount(state), 1)
            for column in off.T:
                column -= (np.bincount(state, column) / number)[state]
            solve = np.asarray(np.linalg.pinv(off.T @ off, rcond=1e-9, hermitian=True))
            found.append((rows, off.astype(self.past.dtype), solve))
        return found

    @cached_property
    def given(self) -> NDArray[np.bool_]:
        """`[n]` whether an incentive is given."""
        return np.asarray(self.panel.data.actions[self.panel.action] > self.panel.data.actions.min())

    @cached_property
    def usual(self) -> Array:
        """`[D]` mean number of incentives before each day, of all users of the log."""
        day = self.panel.day
        return np.asarray(np.bincount(day, self._number) / np.maximum(np.bincount(day), 1))

    @cached_property
    def excess(self) -> Array:
        """`[n]` e."""
        return _beyond_usual(self._number, self.usual[self.panel.day])

    @cached_property
    def scale(self) -> Array:
        """`[n, 1+m]` f; 0 in rows without an incentive."""
        rows = np.flatnonzero(self.given)
        scale = np.zeros_like(self.panel.outcome)
        scale[rows, 0] = 1.0
        cell = self.cell[rows]
        count = np.maximum(np.bincount(cell), 1)
        for j in range(1, scale.shape[1]):
            scale[rows, j] = (np.bincount(cell, self.panel.outcome[rows, j]) / count)[cell]
        return scale

    @cached_property
    def cell(self) -> NDArray[np.intp]:
        """`[n]` number of state and action."""
        assert self.panel.state is not None
        return self.panel.state * self.panel.data.num_actions + self.panel.action

    @cached_property
    def closed(self) -> NDArray[np.bool_]:
        """`[n]` whether the log says what comes after the row."""
        return (self.panel.following >= 0) | self.panel.terminal

    @cached_property
    def slope(self) -> Slope:
        """The slope over the rows of which the log says what comes after."""
        return self._slope(self.closed)

    @cached_property
    def slope_of_one_day(self) -> Slope:
        """The slope over all rows, of the outcomes alone."""
        return self._slope(np.ones_like(self.closed))

    @cached_property
    def _number(self) -> Array:
        return before(self.panel, self.given[:, None], total=True)[:, 0]

    def _slope(self, known: NDArray[np.bool_]) -> Slope:
        panel = self.panel
        assert panel.state is not None
        rows = np.flatnonzero(known & self.given)
        user, cell, following = panel.user[rows], self.cell[rows], panel.following[rows]
        weight = self._weights(rows)
        count = np.maximum(np.bincount(cell, minlength=self.cells), 1)
        now = np.empty((panel.num_users, weight.shape[1]))
        for j, outcome in enumerate(panel.outcome[rows].T):
            off = outcome - (np.bincount(cell, outcome, self.cells) / count)[cell]
            now[:, j] = np.bincount(user, weight[:, j] * off, panel.num_users)
        later = {}
        gaps = panel.gap[rows]
        by_cell = [sparse.csr_matrix((w, (user, cell)), shape=(panel.num_users, self.cells)) for w in weight.T]
        for gap in np.unique(gaps[following >= 0]).tolist():
            goes = (following >= 0) & (gaps == gap)
            there = panel.state[following[goes]]
            by_state = [
                sparse.csr_matrix((w, (user[goes], there)), shape=(panel.num_users, self.states))
                for w in weight[goes].T
            ]
            shares = sparse.csr_matrix((1 / count[cell[goes]], (cell[goes], there)), shape=(self.cells, self.states))
            later[gap] = by_state, by_cell, shares
        return Slope(now, later)

    def _weights(self, rows: NDArray[np.intp]) -> Array:
        """`[r, 1+m]` weights of rows whose sum of residuals is b: least squares, as if variances were as means are."""
        columns, day = np.column_stack([self.excess[rows], self.past[rows]]), self.panel.day[rows]
        columns /= np.maximum(np.abs(columns).max(axis=0, initial=0), 1e-300)
        one = np.eye(columns.shape[1])[0] / max(float(self.excess[rows].max(initial=0)), 1e-300)
        scale = self.scale[rows]
        found = np.empty_like(scale)
        for j, each in enumerate(scale.T):
            base = np.abs(each)
            total = np.maximum(np.bincount(day, base), 1e-300)
            off = columns - np.stack([np.bincount(day, base * x) / total for x in columns.T], axis=1)[day]
            found[:, j] = np.sign(each) * (off @ np.linalg.lstsq((off * base[:, None]).T @ off, one, rcond=1e-9)[0])
        return found

    def expected(self, start: NDArray[np.intp], days: int, scale: Array, moves: Moves) -> Array:
        """`[≤ days, 1+m]` means of e, weighted by f, on each day of the log under a policy.

        Args:
            start: states of the first day.
            days: how many at most.
            scale: `[1+m, S]` f of the policy in each state.
            moves: from a state, the column, to the next, so many days later: without an incentive, and with one.
        """
        days = min(days, len(self.usual))
        users = np.zeros((days, scale.shape[1], days + 1))  # in a state, with so many incentives before
        users[0, :, 0] = np.bincount(start, minlength=scale.shape[1])
        means = np.zeros((days, len(scale)))
        for day in range(days):
            for gap, (without, one_more) in moves.items():
                if day + gap < days:
                    users[day + gap] += without @ users[day]
                    users[day + gap, :, 1:] += one_more @ users[day, :, :-1]
            number = scale @ users[day]
            excess = _beyond_usual(np.arange(days + 1.0), self.usual[day])
            means[day] = number @ excess / np.maximum(number.sum(axis=1), 1e-300)
        return means


def _beyond_usual(number: Array, usual: Array | float) -> Array:
    """e: square of how many more than usual; 0 where there are no more."""
    return np.asarray(np.maximum(number - usual, 0.0) ** 2)
