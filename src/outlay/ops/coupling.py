"""Several distributions as one over tuples, with as few tuples as needed.

    Σ over tuples with places[j, k] = i of weights[j]  =  α_k[i]          for each distribution k and each option i

A line of length 1 is cut where the cumulative weights of any distribution end: each piece is a tuple. So there are at
most 1 + Σ (options − 1) of them.

Source: the north-west corner rule; textbook.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-12  # a shorter piece is none

Vector = NDArray[np.float64]


def coupled(distributions: Sequence[Vector]) -> tuple[list[list[int]], Vector]:
    """Tuples `[J, K]` of options, and their weights `[J]`.

    Args:
        distributions: K, each of positive weights that sum to 1.
    """
    ends = [np.append(np.cumsum(alpha)[:-1], 1.0) for alpha in distributions]
    cuts = np.unique(np.concatenate(ends))
    cuts = cuts[np.append(np.diff(cuts) > ROUNDING, True)]
    starts = np.concatenate([[0.0], cuts[:-1]])
    middle = (starts + cuts) / 2
    places = np.stack([np.searchsorted(each, middle) for each in ends], axis=1)
    return places.tolist(), cuts - starts
