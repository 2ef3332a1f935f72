"""The regression behind a fitted value: alike rows counted once, which of them are usable, and which pairs are thin.

    cells of the log         rows with the same state, action, next state and gap: alike for every policy
    cells of one policy      those, split by what the policy does in the next row

Rows of a cell differ in their outcomes alone, and outcomes enter the systems by their sums: where states are counted,
millions of rows form a few thousand cells. Where they are not, every row is a cell of its own, and nothing is saved or
lost.

Leverage φᵀG⁻¹φ is one over the number of rows behind a pair: 1/count where states are counted, and the same idea
between features. Above 1/`least_rows` a pair is thin and takes the state-free mean of its action.

Source: Hoaglin & Welsch (1978) for leverage; the rule for thin pairs: ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outlay.core.cached import cached_property
from outlay.estimators.basis import Array, Basis, Matrix, Solver, StateActions
from outlay.estimators.panel import Index, Panel, TargetPolicy

LARGE = 2**26  # numbers: a table of 9 bytes for each takes less time than a sort


@dataclass(frozen=True)
class Cells:
    """C cells of the n rows of a panel.

    Attributes:
        rows: `[C]` a row of each cell, which stands for all of them.
        count: `[C]` rows in it.
        of: `[n]` the cell of each row.
    """

    rows: Index
    count: Array
    of: Index

    @classmethod
    def single(cls, n: int) -> Cells:
        """Every row by itself."""
        return cls(np.arange(n), np.ones(n), np.arange(n))

    @classmethod
    def alike(cls, key: NDArray[np.int64]) -> Cells:
        """Rows with the same key `[n]`."""
        _, rows, of, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        return cls(rows, count.astype(np.float64), of)

    def counting(self, rows: NDArray[np.bool_]) -> Cells:
        """Return the same cells, counted over some rows `[n]` only."""
        return replace(self, count=np.bincount(self.of[rows], minlength=len(self.rows)).astype(np.float64))

    def split(self, by: NDArray[np.integer], kinds: int) -> Cells:
        """The cells, each split by a number `[n]` from 0 to kinds − 1; 600 MB at most while it works, or a sort."""
        if len(self.rows) == len(self.of):
            return self
        key = self.of * kinds + by
        if len(self.rows) * kinds > LARGE:
            return Cells.alike(key)
        met = np.zeros(len(self.rows) * kinds, np.bool_)
        met[key] = True
        used = np.flatnonzero(met)
        number = np.empty(len(met), np.intp)
        number[used] = np.arange(len(used))
        of = number[key]
        rows = np.empty(len(used), np.intp)
        rows[of] = np.arange(len(of))
        return Cells(rows, np.bincount(of).astype(np.float64), of)


@dataclass(frozen=True)
class LogCells:
    """The cells of the log, which all policies share.

    Attributes:
        cells: rows that are alike for every policy.
        states: rows in the same state.
        open: `[C]` the cells of truncated rows, after which nothing is known.
        left: `[C]` days of log from the row on, itself included; where `open`.
    """

    cells: Cells
    states: Cells
    open: NDArray[np.bool_]
    left: NDArray[np.int64]

    @classmethod
    def of(cls, panel: Panel, state: Index | None) -> LogCells:
        """The cells of a panel, by the index `[n]` of each row's state; None where states are not counted."""
        on = panel.following >= 0
        open_ = ~on & ~panel.terminal
        left = panel.window[panel.user] - panel.day
        if state is None:
            cells = states = Cells.single(len(panel))
        else:
            states = Cells.alike(state)
            key = state * panel.data.num_actions + panel.action
            following = np.where(on, state[panel.following] + 1, 0)
            for part in (following, np.where(on, panel.gap, 0), np.where(open_, left, 0)):
                key = key * (int(part.max(initial=0)) + 1) + part
            cells = Cells.alike(key)
        return cls(cells, states, open_[cells.rows], left[cells.rows])


@dataclass(frozen=True)
class PolicyMoves:
    """The log as one policy goes through it: C cells, Q points, P pairs.

    A point is a state with what the policy does there; it has a pair for each action that it may take.

    Attributes:
        cells: rows that are alike for this policy.
        origin: `[C]` the cell of `Log.cells` that each was split from.
        logged: `[C]` their pairs.
        gap: `[C]` time units to the next row.
        following: `[C]` point of the next row; −1 where there is none.
        taken: `[P]` the pairs of all points, in their order.
        begin: `[Q + 1]` the first pair of each point.
        chance: `[P]` probability of each pair at its point.
        point: `[n]` point of each row.
        start: `[U]` point of each user's start row.
        first: `[U]` point of each user's first row.
    """

    cells: Cells
    origin: Index
    logged: StateActions
    gap: NDArray[np.int64]
    following: Index
    taken: StateActions
    begin: Index
    chance: Array
    point: Index
    start: Index
    first: Index

    @classmethod
    def of(cls, panel: Panel, log: LogCells, target: TargetPolicy) -> PolicyMoves:
        """Return the moves of a policy."""
        kinds = len(target.table)
        points = log.states.split(target.kind, kinds)
        cells = log.cells.split(np.where(panel.following >= 0, target.kind[panel.following], 0), kinds)
        rows = cells.rows
        following = panel.following[rows]
        taken, begin, chance = _pairs(points.rows, target)
        return cls(
            cells=cells,
            origin=log.cells.of[rows],
            logged=StateActions(rows, panel.action[rows]),
            gap=panel.gap[rows],
            following=np.where(following >= 0, points.of[following], -1),
            taken=taken,
            begin=begin,
            chance=chance,
            point=points.of,
            start=points.of[panel.start],
            first=points.of[panel.first],
        )

    @property
    def num_points(self) -> int:
        """Q."""
        return len(self.begin) - 1

    @property
    def pure(self) -> bool:
        """Return whether each point has one pair."""
        return self.num_points == len(self.taken)

    def expand(self, points: Index) -> tuple[Index, Index]:
        """All pairs of `points` `[…]`: the place in `points` of each, and the pair."""
        if self.pure:
            return np.arange(len(points)), points
        count = np.diff(self.begin)[points]
        place = np.repeat(np.arange(len(points)), count)
        nth = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
        return place, self.begin[points[place]] + nth

    def mean(self, values: Array) -> Array:
        """`[Q, T]` means over the pairs of each point, from `[P, T]`."""
        if self.pure:
            return values
        total: Array = np.add.reduceat(self.chance[:, None] * values, self.begin[:-1], axis=0)
        return total

    def spread(self, mass: Array) -> Array:
        """`[P, T]` what arrives at points `[Q, T]`, over their pairs."""
        return mass if self.pure else self.chance[:, None] * np.repeat(mass, np.diff(self.begin), axis=0)


def _pairs(rows: Index, target: TargetPolicy) -> tuple[StateActions, Index, Array]:
    """`taken`, `begin` and `chance` of the points in these rows."""
    kind = target.kind[rows]
    if target.pure:
        return StateActions(rows, kind), np.arange(len(rows) + 1), np.ones(len(rows))
    distribution, action = np.nonzero(target.table)
    size = np.bincount(distribution, minlength=len(target.table))
    count = size[kind]
    begin = np.concatenate([[0], np.cumsum(count)])
    entry = np.repeat((np.cumsum(size) - size)[kind] - begin[:-1], count) + np.arange(begin[-1])
    chance = target.table[distribution[entry], action[entry]]
    return StateActions(np.repeat(rows, count), action[entry]), begin, chance


@dataclass(frozen=True)
class Regression:
    """The parts, shared by all policies, of regressing outcomes on φ over the usable rows.

    Attributes:
        usable: `[B]` cells of the log whose rows are used.
        gram: `[P, P]` Σ φφᵀ, and below it the equations of the state-free coordinates.
        outcome: `[P, T]` Σ φ xᵀ.
        inflation: `[B]` 1/√(1 − leverage), the leverage of a row counted as one half at most; 1 where not usable.
        seen: `[K]` actions that some usable row took.
    """

    usable: NDArray[np.bool_]
    gram: Matrix
    outcome: Array
    inflation: Array
    seen: NDArray[np.bool_]

    @cached_property
    def solver(self) -> Solver:
        """The solver of the Gram matrix, factorised at first use."""
        return Solver(self.gram)


def regress(panel: Panel, basis: Basis, cells: Cells, sums: Array, usable: NDArray[np.bool_]) -> Regression:
    """The regression over the rows of the `usable` `[B]` cells, with outcomes that sum to `sums` `[B, T]` in them."""
    rows, count = cells.rows[usable], cells.count[usable]
    logged = StateActions(rows, panel.action[rows])
    # The last K equations: a state-free coordinate is the mean of φᵀθ over the rows that took the action.
    gram = basis.regular(
        basis.moment(logged, logged, count)
        + basis.moment(logged.state_free, logged.state_free, count)
        - basis.moment(logged.state_free, logged, count)
    )
    inflation = np.ones(len(usable))
    inflation[usable] = 1 / np.sqrt(1 - np.minimum(basis.leverage(logged, gram), 0.5))
    return Regression(
        usable=usable,
        gram=gram,
        outcome=basis.project(logged, sums[usable]),
        inflation=inflation,
        seen=np.bincount(logged.actions, minlength=panel.data.num_actions) > 0,
    )


def supported(
    pairs: StateActions, reg: Regression, basis: Basis, least_rows: int, among: NDArray[np.bool_] | None = None
) -> StateActions:
    """Return the pairs, with those made state-free that have too few rows behind them in a regression.

    Args:
        pairs: `[P]`.
        reg: the regression.
        basis: of its coordinates.
        least_rows: how many rows are enough.
        among: `[P]` which pairs may have fewer; default all.
    """
    at = np.arange(len(pairs)) if among is None else np.flatnonzero(among)
    if not len(at):
        return pairs
    rows = pairs.rows.copy()
    rows[at[basis.leverage(pairs[at], reg.gram) > (1 + 1e-6) / least_rows]] = -1
    return StateActions(rows, pairs.actions)


@dataclass(frozen=True)
class Stage:
    """A policy's moves in one regression.

    Attributes:
        reg: the regression.
        cells: `[c]` the cells of the policy whose rows it uses.
        logged: `[c]` their pairs.
        count: `[c]` their rows.
        inflation: `[c]`.
        gap: `[c]` as in Moves.
        following: `[c]` as in Moves.
        taken: `[P]` the pairs of the points; thin ones are state-free.
        moves: of the policy.
    """

    reg: Regression
    cells: Index
    logged: StateActions
    count: Array
    inflation: Array
    gap: NDArray[np.int64]
    following: Index
    taken: StateActions
    moves: PolicyMoves

    @classmethod
    def of(
        cls,
        reg: Regression,
        basis: Basis,
        moves: PolicyMoves,
        least_rows: int,
        among: NDArray[np.bool_] | None = None,
    ) -> Stage:
        """Return the stage of `moves`; `among` as for `supported`."""
        cells = np.flatnonzero(reg.usable[moves.origin])
        return cls(
            reg=reg,
            cells=cells,
            logged=moves.logged[cells],
            count=moves.cells.count[cells],
            inflation=reg.inflation[moves.origin[cells]],
            gap=moves.gap[cells],
            following=moves.following[cells],
            taken=supported(moves.taken, reg, basis, least_rows, among),
            moves=moves,
        )

    @property
    def thin(self) -> NDArray[np.bool_]:
        """`[P]` pairs about which too little is known."""
        return self.taken.rows < 0

    def values(self, basis: Basis, theta: Array) -> Array:
        """`[Q, T]` of the points."""
        return self.moves.mean(basis.evaluate(self.taken, theta))

    def arrivals(self, basis: Basis, mass: Array) -> Array:
        """`[P, T]` Σ φ over what arrives at the points `[Q, T]`: the transpose of `values`."""
        return basis.project(self.taken, self.moves.spread(mass))
