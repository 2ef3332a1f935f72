"""The days before a row: a user's history as DIN reads it.

    history.gather(data, rows)      # the last L rows of the same user, latest first

The links are turned round once (one number per row of the log); the L rows before are looked up for the rows asked for,
so nothing of size N × L is ever made. Of a past day its own outcome is told, which was known by today; never a label.

Source: ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.response import Past
from outlay.core.transitions import Transitions


@dataclass(frozen=True)
class PreviousRows:
    """Who came before whom in a log of N rows.

    Attributes:
        previous: `[N]` row of the user's row before; −1 where there is none.
        length: L, the days looked back at most.
        spread: `[1+m]` units of the outcomes.
    """

    previous: NDArray[Any]
    length: int
    spread: NDArray[np.float64]

    @classmethod
    def of(cls, data: Transitions, length: int, spread: NDArray[np.float64]) -> PreviousRows:
        """Turn the links of a log round."""
        linked = np.flatnonzero(data.next_row[:] >= 0)
        previous = np.full(len(data), -1, data.next_row.dtype)
        previous[data.next_row[linked]] = linked
        return cls(previous, length, spread)

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[B]` → `[B, L]` the rows before, latest first; −1 where there are no more."""
        before = np.empty((len(rows), self.length), np.int64)
        at = rows
        for place in range(self.length):
            # Without the mask, row −1 would be taken for the last row of the log.
            before[:, place] = at = np.where(at >= 0, self.previous[at], -1)
        return before

    def gather(self, data: Transitions, rows: NDArray[np.int64]) -> Past:
        """Return the past of rows of any shape; missing days hold zeros, and their age is −1."""
        shape = (*rows.shape, self.length)
        before = self.rows(rows.ravel()).ravel()
        present = before >= 0
        before = np.where(present, before, 0)
        today = np.repeat(data.day[rows.ravel()], self.length)
        codes, numbers = data.features(before)
        past = Past(
            codes=codes,
            numbers=numbers,
            action=data.action[before].astype(np.int32),
            outcome=(data.outcome[before] / self.spread).astype(np.float32),
            age=np.where(present, today - data.day[before], -1).astype(np.int32),
        )
        for column in past[:-1]:
            column[~present] = 0
        return Past(*(column.reshape(*shape, *column.shape[1:]) for column in past))
