"""Least squares by a concave function.

    f(x) = a + b x − Σ_k θ_k (x − x_k)₊        θ ≥ 0;  x_k: all points but the first and the last

Source: Hildreth (1954), concave regression, as non-negative least squares on hinges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

BENT = 1e-9  # of the largest: a smaller bend is none

Vector = NDArray[np.float64]


def concave_fit(x: Vector, y: Vector, weight: Vector) -> Vector:
    """Return `[n, n]` the linear map that takes `y` to the fit at `x`, as it is with the bends that `y` asks for.

    Args:
        x: `[n]` in any order.
        y: `[n]`.
        weight: `[n]` above 0.
    """
    at = (x - x.min()) / max(float(np.ptp(x)), np.finfo(float).tiny)
    bends = -np.maximum(at[:, None] - np.unique(at)[None, 1:-1], 0)
    columns, root = np.hstack([np.ones((len(x), 1)), at[:, None], bends]), np.sqrt(weight / weight.max())
    least = np.append([-np.inf] * 2, np.zeros(bends.shape[1]))
    height = (y - y.mean()) / max(float(np.ptp(y)), np.finfo(float).tiny)  # tolerances of the solver are absolute
    found = lsq_linear(columns * root[:, None], height * root, bounds=(least, np.inf), method="bvls").x
    kept = np.append([True] * 2, found[2:] > BENT * np.abs(found[2:]).max(initial=0))
    onto: Vector = columns[:, kept] @ np.linalg.pinv(columns[:, kept] * root[:, None]) * root
    return onto
