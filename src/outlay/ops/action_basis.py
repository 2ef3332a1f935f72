"""The action basis: actions are amounts, and their effects are assumed to be smooth in the amount.

    f(s, a) = Σ_r B[r, a] β_r(s)

B holds the first Chebyshev polynomials of the amount, and one more row for the value that means no incentive, which may
be a step apart. So similar amounts inform each other: R coefficients to learn for a state instead of K.

Source: textbook (Chebyshev polynomials); its use for amounts: ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ActionBasis = tuple[tuple[float, ...], ...]  # R rows of K


def smooth_basis(values: NDArray[np.float64], degree: int, none: float | None) -> ActionBasis | None:
    """The action basis of amounts `[K]`, ascending: polynomials up to `degree`, and a column for `none`.

    Returns:
        R rows of K; None, the identity, for degree 0 or where it would be no larger.
    """
    place = 2 * (values - values[0]) / (values[-1] - values[0]) - 1
    rows = np.polynomial.chebyshev.chebvander(place, degree).T
    if none is not None and np.isclose(values, none).any():
        rows = np.vstack([rows, np.isclose(values, none)])
    if degree == 0 or len(rows) >= len(values):
        return None
    return tuple(map(tuple, rows.tolist()))
