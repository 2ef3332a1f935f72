"""Fewest points whose convex combination is still the target (Carathéodory, one pivot at a time).

    given  Σ wᵢ xᵢ = x,  w a distribution         find  n ≠ 0 with  Σ nᵢ xᵢ = 0,  Σ nᵢ = 0
    w ← w + θ n,   θ = min { −wᵢ / nᵢ : nᵢ < 0 }  until the points that keep a weight are affinely independent

Adding a policy to a mixed policy is this with the new point last. If the new point lies outside the affine hull of the
old ones there is no such n and it stays; else n is turned so that the new point's weight falls, and the first weight to
reach 0 is either its own (the target lies inside the old simplex: only new weights) or that of a vertex that is not on
the facet which the way from the old point to the target crosses.

Source: the paper's Algorithm AIM-mean. Its three cases and `RemoveOneVertex` (its Eq. for θ, with the minimum and not
its argument, over αₜ < 0) are this one ratio test. Unlike the paper we never solve for barycentric coordinates: θ n is
bounded however thin the simplex is, so a pivot does not lose the target where a solve would.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

INDEPENDENT = 1e-11
"""Points count as affinely independent if the least singular value of the scaled `[1; x]` is above this. A dependent
set moves the target by at most 2k times this when it loses a point, which must stay well below 1e-9."""

_ZERO_WEIGHT = 1e-15
_LEAST_SPREAD = 0.1  # of the largest coordinate: points apart by less than 1e-12 of it then count as one
_DRIFT = 1e-12


def reduce_support(points: Floats, weights: Floats, target: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Drop points until the rest are affinely independent and still reproduce the target.

    Args:
        points: `[n, d]`, the newest last: it is the one to leave where there is a choice.
        weights: `[n]` a distribution with weights @ points = target up to rounding.
        target: `[d]` the truth; what rounding has moved weights @ points away from it is put right.

    Returns:
        Rows that stay, ascending `[k]`, k ≤ d + 1, and their weights `[k]`, all positive with sum 1.
    """
    kept, weights = independent_support(_homogeneous(points, target), weights)
    return kept, _put_right(_homogeneous(points[kept], target), weights / weights.sum())


def independent_support(columns: Floats, weights: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Drop columns until the rest are linearly independent, with columns @ weights as it is and weights ≥ 0.

    Args:
        columns: `[d, n]` of lengths about 1, for each null vector n of which n and −n both have a negative entry.
        weights: `[n]` ≥ 0.

    Returns:
        Columns that stay, ascending `[k]`, k ≤ d, and their weights `[k]` > 0.
    """
    kept = np.flatnonzero(weights > _ZERO_WEIGHT)
    weights = weights[kept]
    rank_limit = len(columns)
    while True:
        size = len(kept)
        _, singular, right = np.linalg.svd(columns[:, kept])
        if size <= rank_limit and singular[-1] > INDEPENDENT:
            return kept, weights
        null = right[-1]
        if null[-1] > 0.0:
            null = -null
        falls = np.flatnonzero(null < -_ZERO_WEIGHT)
        ratios = weights[falls] / -null[falls]
        first = int(ratios.argmin())
        weights = weights + ratios[first] * null
        weights[falls[first]] = 0.0
        stays = weights > _ZERO_WEIGHT
        kept, weights = kept[stays], weights[stays]
        # Without column i the least singular value is at least |nᵢ| times the least one off the null vector, so a
        # second decomposition is mostly not needed.
        off_null = singular[-1] if size > rank_limit else singular[-2]
        if size <= rank_limit + 1 and off_null * -null[falls[first]] > INDEPENDENT:
            return kept, weights


def _homogeneous(points: Floats, target: Floats) -> Floats:
    """`[1+d, n]`: a row of ones over the points, centred at the target, each coordinate scaled to [−1, 1].

    The scale is the spread of the points at hand, not of all ever seen: one early outlier must not blur what follows.
    A spread of a coordinate's last digits is rounding, and must not pass for a direction of its own.
    """
    centred = points - target
    spread = np.maximum(np.abs(centred).max(axis=0), _LEAST_SPREAD * np.abs(points).max(axis=0))
    spread[spread == 0.0] = 1.0
    matrix = np.ones((points.shape[1] + 1, len(points)))
    matrix[1:] = (centred / spread).T
    return matrix


def _put_right(matrix: Floats, weights: Floats) -> Floats:
    """Weights moved, where that helps, so that the centred points average to 0: rounding must not add up."""
    drift = matrix @ weights
    drift[0] = 0.0
    if np.abs(drift).max() <= _DRIFT:
        return weights
    # Thin directions are left alone: what they would correct is smaller than what they would disturb.
    correction = np.linalg.lstsq(matrix, drift, rcond=1e-6)[0]
    corrected = np.maximum(weights - correction, 0.0)
    corrected /= corrected.sum()
    left = matrix @ corrected
    # Only if no coordinate is worse off: in one whose spread is mere rounding there is nothing to gain.
    better = (np.abs(left[1:]) <= np.maximum(np.abs(drift[1:]), _DRIFT)).all() and corrected.min() > 0.0
    return corrected if better else weights
