"""Intervals from per-user influence values: what each user adds to the error of an estimate.

    se = std(ψ) / √U        interval = value ± z·se        ψ_(X/Y) = (ψ_X − (X/Y)·ψ_Y) / Y

The influence of a linear combination is the combination of the influences, so mixtures, differences and ratios of
estimates made from the same users have exact joint covariance without a covariance matrix. Claims rest on one-sided
bounds, which regard the skewness of the error as well (`skewed.py`).

Where users come in few clusters (`estimators/clusters.py`), every multiple of a standard error is that of Student's t.

Source: textbook (delta method); Hampel (1974) for the influence function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit

Array = NDArray[np.float64]

MANY_CLUSTERS = 100  # from which on the normal quantile is used: that of Student's t is at most 1.3% larger


def quantile(probability: float) -> float:
    """The point z below which a standard normal falls with this probability, in (0, 1)."""
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}; it must lie strictly between 0 and 1.")
    return float(ndtri(probability))


def degrees(clusters: float) -> float:
    """Return the degrees of freedom of a standard error from this many clusters; +∞ from MANY_CLUSTERS on."""
    return float("inf") if clusters >= MANY_CLUSTERS else float(max(clusters - 1, 1))


def student(factor: float, freedom: float) -> float:
    """The point that Student's t exceeds as often as a standard normal exceeds `factor`; the same for +∞ degrees."""
    return factor if np.isinf(freedom) else -float(stdtrit(freedom, ndtr(-factor)))


def std_error(influence: ArrayLike) -> Array:
    """Standard errors `[…]` of estimates with influence `[U, …]` per user; NaN for fewer than two users."""
    psi = np.asarray(influence, np.float64)
    if len(psi) < 2:
        return np.full(psi.shape[1:], np.nan)
    spread: Array = np.asarray(psi.std(axis=0, ddof=1) / np.sqrt(len(psi)))
    return spread


def interval(
    value: ArrayLike, error: ArrayLike, confidence: float, freedom: float = float("inf")
) -> tuple[Array, Array]:
    """Two-sided interval: lower and upper ends, of the shape of `value`; normal, or Student's t with few `freedom`."""
    factor = student(quantile(0.5 + confidence / 2), freedom)
    centre, half = np.asarray(value, np.float64), factor * np.asarray(error, np.float64)
    return centre - half, centre + half


def ratio(above: float, above_influence: Array, below: float, below_influence: Array) -> tuple[float, Array]:
    """Above / below and its influence `[U]` by the delta method; NaN where `below` is not positive."""
    if not below > 0:
        return float("nan"), np.full(len(above_influence), np.nan)
    value = above / below
    return value, (above_influence - value * below_influence) / below
