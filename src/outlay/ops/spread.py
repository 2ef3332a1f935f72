"""The unit that an outcome is learned in: its spread.

An outcome that hardly varies relative to its size (a fee that is the same in every row) has a spread of rounding errors
alone: in that unit a network would have to predict numbers of a million, and would learn nothing else. Source: ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST = 1e-2  # of its mean size: an outcome that varies by less is learned in units of this


def spreads(outcome: NDArray[np.floating]) -> NDArray[np.float64]:
    """`[H]` above 0: the standard deviation of each column of `[N, H]`, at least `LEAST` of its mean absolute value.

    1 where a column is 0 throughout.
    """
    size = np.abs(outcome).mean(axis=0, dtype=np.float64)
    spread: NDArray[np.float64] = np.maximum(outcome.std(axis=0, dtype=np.float64), LEAST * size)
    return np.where(size > 0, spread, 1.0)
