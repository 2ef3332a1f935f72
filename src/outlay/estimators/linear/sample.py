"""The usable rows of a regression, of all users of a panel or of some: the part that no policy changes.

sample = Sample.of(panel, basis)
others = sample.only(~fold)             # the same cells, counted over the rows of other users
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.linear.basis import Array, Basis
from outlay.estimators.linear.cells import LogCells, PolicyMoves
from outlay.estimators.linear.recursion import Backward
from outlay.estimators.linear.regression import Regression, Stage, regress
from outlay.estimators.panel import Panel

IMPOSSIBLE = 0.1  # how far, in ranges of the outcome, a value may lie beyond what outcomes can add up to
UNSTABLE = "the fitted value lies outside what the outcomes can add up to: the system is unstable"
NOTHING_FOLLOWS = "no row has a next row or a terminal end, so the log does not show what follows a decision"


@dataclass(frozen=True)
class Sample:
    """Usable rows and the regressions over them, each computed once.

    Attributes:
        panel: all rows.
        basis: over the same rows.
        log: the cells of all rows, counted over the usable ones.
        outcome: `[n, T]` reward, costs, and 1 per decision where policies differ in that.
        usable: `[n]` bool; None: every row.
    """

    panel: Panel
    basis: Basis
    log: LogCells
    outcome: Array
    usable: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, panel: Panel, basis: Basis) -> Sample:
        """Every row of a panel."""
        outcome = panel.outcome if panel.data.steady else np.column_stack([panel.outcome, ~panel.forced])
        return cls(panel, basis, LogCells.of(panel, basis.alike), np.asfortranarray(outcome))

    def only(self, users: NDArray[np.bool_]) -> Sample:
        """The rows of some users `[U]`."""
        usable = users[self.panel.user]
        log = replace(self.log, cells=self.log.cells.counting(usable))
        return Sample(self.panel, self.basis, log, self.outcome, usable)

    @property
    def names(self) -> tuple[str, ...]:
        """`[T]` of the outcomes."""
        return self.panel.names if self.panel.data.steady else (*self.panel.names, "decisions")

    def regression(self, left: int | None) -> Regression:
        """Return the regression of values with `left` days left; None: of discounted values."""
        log = self.log
        usable = ~log.open | (self.panel.discount == 0 if left is None else log.left >= left)
        usable &= log.cells.count > 0
        # Usable rows only shrink as the horizon grows, so their number says which set it is.
        key = int(usable.sum())
        if key not in self._regressions:
            self._regressions[key] = regress(self.panel, self.basis, log.cells, self._sums, usable)
        return self._regressions[key]

    def stages(self, moves: PolicyMoves, lefts: Iterable[int | None], least_rows: int) -> list[Stage]:
        """A policy's moves, as these rows count them, in the regression of each of `lefts`."""
        counted = moves if self.usable is None else replace(moves, cells=moves.cells.counting(self.usable))
        known: dict[int, Stage] = {}
        stages = []
        for left in lefts:
            reg = self.regression(left)
            if id(reg) not in known:
                known[id(reg)] = Stage.of(reg, self.basis, counted, least_rows)
            stages.append(known[id(reg)])
        return stages

    def errors(self, moves: PolicyMoves, back: Backward, k: int) -> Array:
        """Return `[U, T']` what the usable rows of each user add to the error of value k of `back`."""
        rows = slice(None) if self.usable is None else self.usable
        user, of, slope = self.panel.user[rows], moves.cells.of[rows], back.slope[:, k]
        slopes, offsets = slope[of], np.ascontiguousarray(back.offset[:, k].T)
        sums = [
            np.bincount(user, slopes * x[rows] + offset[of], self.panel.num_users)
            for x, offset in zip(self.outcome.T, offsets, strict=False)  # totals leave `decisions` out
        ]
        return np.stack(sums, axis=1)

    def possible(self, value: Array, rows_at_most: int) -> NDArray[np.bool_]:
        """Return `[T']` whether the outcomes of at most `rows_at_most` rows can add up to a value, with some slack."""
        low, high = self._range[0][: len(value)], self._range[1][: len(value)]
        slack = IMPOSSIBLE * (high - low) + 1e-9
        possible: NDArray[np.bool_] = (value / rows_at_most >= low - slack) & (value / rows_at_most <= high + slack)
        return possible

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        """Least and most `[T]` that a row can bring."""
        return np.minimum(self.outcome.min(axis=0), 0), np.maximum(self.outcome.max(axis=0), 0)

    @cached_property
    def _sums(self) -> Array:
        """`[B, T]` outcomes, summed over the usable rows of each cell of the log."""
        cells, usable = self.log.cells, slice(None) if self.usable is None else self.usable
        of = cells.of[usable]
        return np.stack([np.bincount(of, x[usable], len(cells.rows)) for x in self.outcome.T], axis=1)

    @cached_property
    def _regressions(self) -> dict[int, Regression]:
        return {}
