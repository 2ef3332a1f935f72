"""The rows that speak in a regression: all of a panel's, or those of some of its users; what no policy changes.

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

IMPOSSIBLE = 0.1  # how far, in ranges of the outcome, a value may leave what outcomes can add up to
UNSTABLE = "the fitted value lies outside what the outcomes can add up to: the system is unstable"
NOTHING_FOLLOWS = "no row has a next row or a terminal end, so the log does not say what follows a decision"


@dataclass(frozen=True)
class Sample:
    """Rows that speak, and the regressions over them, each computed once.

    Attributes:
        panel: all rows.
        basis: over the same rows.
        log: the cells of all rows, counted over those that speak.
        outcome: `[n, T]` reward, costs, and 1 per decision where policies differ in that.
        speaks: `[n]` bool; None: every row.
    """

    panel: Panel
    basis: Basis
    log: LogCells
    outcome: Array
    speaks: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, panel: Panel, basis: Basis) -> Sample:
        """Every row of a panel."""
        outcome = panel.outcome if panel.data.steady else np.column_stack([panel.outcome, ~panel.forced])
        return cls(panel, basis, LogCells.of(panel, basis.alike), np.asfortranarray(outcome))

    def only(self, users: NDArray[np.bool_]) -> Sample:
        """The rows of some users `[U]`."""
        speaks = users[self.panel.user]
        log = replace(self.log, cells=self.log.cells.counting(speaks))
        return Sample(self.panel, self.basis, log, self.outcome, speaks)

    @property
    def names(self) -> tuple[str, ...]:
        """`[T]` of the outcomes."""
        return self.panel.names if self.panel.data.steady else (*self.panel.names, "decisions")

    def regression(self, left: int | None) -> Regression:
        """Of values with so many days left; None for discounted values."""
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
        heard = moves if self.speaks is None else replace(moves, cells=moves.cells.counting(self.speaks))
        known: dict[int, Stage] = {}
        found = []
        for left in lefts:
            reg = self.regression(left)
            if id(reg) not in known:
                known[id(reg)] = Stage.of(reg, self.basis, heard, least_rows)
            found.append(known[id(reg)])
        return found

    def errors(self, moves: PolicyMoves, back: Backward, k: int) -> Array:
        """`[U, T']` what the rows of each user that speak add to the error of value k of `back`."""
        rows = slice(None) if self.speaks is None else self.speaks
        user, of, slope = self.panel.user[rows], moves.cells.of[rows], back.slope[:, k]
        slopes, offsets = slope[of], np.ascontiguousarray(back.offset[:, k].T)
        sums = [
            np.bincount(user, slopes * x[rows] + offset[of], self.panel.num_users)
            for x, offset in zip(self.outcome.T, offsets, strict=False)  # totals leave `decisions` out
        ]
        return np.stack(sums, axis=1)

    def possible(self, value: Array, rows_at_most: int) -> NDArray[np.bool_]:
        """`[T']` which sums of at most so many rows the first outcomes can add up to, with some slack."""
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
        """`[B, T]` outcomes, summed over the rows of each cell of the log that speak."""
        cells, speaks = self.log.cells, slice(None) if self.speaks is None else self.speaks
        of = cells.of[speaks]
        return np.stack([np.bincount(of, x[speaks], len(cells.rows)) for x in self.outcome.T], axis=1)

    @cached_property
    def _regressions(self) -> dict[int, Regression]:
        return {}
