"""What a policy does in each row of a panel: one of D distributions over the K actions.

    kind `[n]`, table `[D, K]`        π(a | row) = table[kind[row], a]

The first K distributions give one action each, so for a deterministic policy the kind is the action. Rows in which a
policy does the same share a distribution, so that rows that are alike for it can be counted together (`cells.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
        found, of = some or _distinct(probability[free])
        kind[free] = actions + of
        return cls(kind, np.vstack([np.eye(actions), found]))

    @property
    def pure(self) -> bool:
        """Whether it takes one action in each row."""
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
    found, of = np.unique(probability, axis=0, return_inverse=True)
    return found, of.ravel()
