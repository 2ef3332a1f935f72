"""The factor k of bounds that hold together: truth ≤ estimate + k·se for a whole family, with probability 1 − α.

    P(maxᵢ tᵢ > k) = α        tᵢ = (truthᵢ − estimateᵢ) / seᵢ,  t ~ N(0, R)        (one-sided sup-t)

A normal vector is a direction and an independent length, and the maximum grows in proportion to the length. So only
directions u are drawn, and the length is integrated exactly, which makes tails far smaller than 1 / draws accurate:

    t = ρ·A u,  A Aᵀ = R of rank r,  ρ² ~ χ²_r        P(max t > k) = E_u[ P(χ²_r > (k / max(A u))²) ]

A family may be a cone: all of xᵢ + b·xⱼ, b ≥ 0, each with its own standard error. In the plane of its two errors the
largest of those t is the length of the point where it lies between the ends of the cone (Scheffé), else the larger of
the two ends. Quantities without an error are their own bounds and are left out.

Source: Scheffé (1953) for all directions at once; Naiman & Priebe (2001) use such conditioning for tails of maxima;
sup-t bands are textbook (Montiel Olea & Plagborg-Møller 2019).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import chdtrc, chdtri

from outlay.ops.intervals import quantile

Array = NDArray[np.float64]

DRAWS = 65_536  # directions, each taken with its opposite: k to ±0.004, α to about 1% of itself
CHUNK = 4_096  # of them at a time: 4,096 × n numbers in memory
NONE = 1e-12  # an error smaller than this share of the largest is none but rounding
FLAT = 1e-10  # less of a variance of 1, or of a cone's plane, is rounding


def critical_value(covariance: Array, alpha: float, cones: NDArray[np.intp] | None = None) -> float:
    """The k of one-sided bounds that all hold with probability 1 − α.

    Args:
        covariance: `[n, n]` of the estimates; it may be singular, and variances may be 0.
        alpha: in (0, 0.5).
        cones: `[F, 2]` places (i, j): every xᵢ + b·xⱼ with b ≥ 0 is in the family; (i, i): xᵢ alone, which is what each
            of the n is by default.

    Returns:
        k, at least the normal quantile of 1 − α, which is what one quantity alone needs.
    """
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha is {alpha}; it must lie strictly between 0 and 0.5.")
    least = quantile(1 - alpha)
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    known = error > NONE * error.max(initial=0.0)
    one, other = (np.tile(np.arange(len(error)), (2, 1)) if cones is None else np.asarray(cones).T).astype(np.intp)
    # A side of a cone that has no error leaves the other side alone.
    one, other = np.where(known[one], one, other), np.where(known[other], other, one)
    pairs = np.unique(np.sort(np.column_stack([one, other])[known[one]], axis=1), axis=0)
    if not len(pairs):
        return least
    used = np.unique(pairs)
    axes = _axes(covariance[np.ix_(used, used)] / np.outer(error[used], error[used]))
    reach, rank = _reach(axes, np.searchsorted(used, pairs)), axes.shape[1]

    def excess(k: float) -> float:
        # In the logarithm the tail is nearly a parabola, which takes half as many steps.
        broken = chdtrc(rank, (k / reach) ** 2).sum() / (2 * DRAWS)
        return float(np.log(max(broken, 1e-300) / alpha))

    most = float(np.sqrt(chdtri(2.0, alpha / len(pairs))))  # Bonferroni, as if each were a whole plane
    return least if excess(least) <= 0 else float(brentq(excess, least, most, xtol=1e-6))


def _axes(correlation: Array) -> Array:
    """`[n, r]` A with A Aᵀ = R, rows of length 1.

    By Cholesky's method in the order given, not by eigenvectors: those turn at will where eigenvalues are close, and
    k must not move by its noise because of rounding in R.
    """
    left, columns = correlation.copy(), []
    for i in range(len(left)):
        if left[i, i] > FLAT:
            columns.append(left[:, i] / np.sqrt(left[i, i]))
            left -= np.outer(columns[-1], columns[-1])
    axes: Array = np.stack(columns, axis=1)
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    return axes


def _reach(axes: Array, pairs: NDArray[np.intp]) -> Array:
    """The largest t per unit of length, in the directions where it is positive."""
    alone = pairs[:, 0] == pairs[:, 1]
    single, (one, other) = pairs[alone, 0], pairs[~alone].T
    cosine = (axes[one] * axes[other]).sum(axis=1)
    flat = 1 - cosine**2 < FLAT  # the two sides are one line, and the ends are all there is
    plane = np.where(flat, 1.0, 1 - cosine**2)
    rng, reaches = np.random.default_rng(0), []
    for _ in range(0, DRAWS, CHUNK):
        direction = rng.standard_normal((CHUNK, axes.shape[1]))
        t = direction / np.linalg.norm(direction, axis=1, keepdims=True) @ axes.T
        for side in (t, -t):
            largest = np.full(CHUNK, -np.inf)
            if len(single):
                largest = side[:, single].max(axis=1)
            if len(one):
                a, b = side[:, one], side[:, other]
                between = (a > cosine * b) & (b > cosine * a) & ~flat
                length = np.sqrt(np.maximum(a**2 + b**2 - 2 * cosine * a * b, 0.0) / plane)
                largest = np.maximum(largest, np.where(between, length, np.maximum(a, b)).max(axis=1))
            reaches.append(largest[largest > 0])
    return np.concatenate(reaches)
