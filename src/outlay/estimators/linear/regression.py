"""The regression behind a fitted value: which rows are usable, and which pairs have too few rows behind them.

Leverage φᵀG⁻¹φ is one over the number of rows behind a pair: 1/count where states are counted, and the same idea
between features. Above 1/`least_rows` a pair is thin and takes the state-free mean of its action.

Source: Hoaglin & Welsch (1978) for leverage; the rule for thin pairs: ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.linear.basis import Array, Basis, Matrix, Solver, StateActions
from outlay.estimators.linear.cells import Cells, PolicyMoves
from outlay.estimators.panel import Index, Panel


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


def supported(pairs: StateActions, reg: Regression, basis: Basis, least_rows: int) -> StateActions:
    """Return the pairs, with those made state-free that have too few rows behind them in a regression."""
    thin = basis.leverage(pairs, reg.gram) > (1 + 1e-6) / least_rows
    return StateActions(np.where(thin, -1, pairs.rows), pairs.actions)


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
    def of(cls, reg: Regression, basis: Basis, moves: PolicyMoves, least_rows: int) -> Stage:
        """Return the stage of `moves`."""
        cells = np.flatnonzero(reg.usable[moves.origin])
        return cls(
            reg=reg,
            cells=cells,
            logged=moves.logged[cells],
            count=moves.cells.count[cells],
            inflation=reg.inflation[moves.origin[cells]],
            gap=moves.gap[cells],
            following=moves.following[cells],
            taken=supported(moves.taken, reg, basis, least_rows),
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


class Need:
    """How many of a policy's paths meet a thin pair, by action; a path met later counts γ^t.

    A path that meets one is worth the state-free mean from there on, so the share bounds the part of the value that the
    log does not support: visits after that are not counted again.
    """

    def __init__(self, actions: Array) -> None:
        self._values = actions
        self._paths = np.zeros(len(actions))
        self._never = np.zeros(len(actions), np.bool_)

    def add(self, stage: Stage, points: Index, mass: Array) -> None:
        """Visits with `mass` `[…]` arrive at `points` `[…]`, where the policy acts."""
        place, pair = stage.moves.expand(points)
        thin = stage.thin[pair]
        place, pair = place[thin], pair[thin]
        paths = np.bincount(stage.taken.actions[pair], mass[place] * stage.moves.chance[pair], len(self._paths))
        self._paths += paths
        self._never |= (paths > 0) & ~stage.reg.seen

    def arrive(self, stage: Stage, mass: Array) -> None:
        """Add visits with mass `[Q]`, one number for every point."""
        points = np.flatnonzero(mass)
        self.add(stage, points, mass[points])

    @property
    def share(self) -> float:
        """Share of the policy's paths, at most 1."""
        return min(1.0, float(self._paths.sum()))

    def reason(self, support: float) -> str | None:
        """Return why no number can be given, or None."""
        if self._never.any():
            action = self._values[int(np.argmax(self._paths * self._never))]
            return f"the policy gives {action:g}, which these users were never given in a row that can be used"
        if self.share <= support:
            return None
        action = self._values[int(np.argmax(self._paths))]
        return (
            f"{self.share:.1%} of the policy's paths meet states in which these users were hardly ever given what it "
            f"gives (most often {action:g}); at most {support:.1%} may"
        )
