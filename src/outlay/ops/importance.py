"""Importance weights of whole paths, a column a day.

    w_t = min(clip, Π_{s ≤ t} ρ_s)        ρ = π(a | s) / p(a | s)        PDIS = Σ_t w_t x_t
    self-normalised: Σ_t (Σ_u w_ut x_ut) / (Σ_u w_ut)

A path that left the policy has weight 0 for good. Days without a row and forced rows have ratio 1.

Source: Precup, Sutton & Singh (2000) for the per-decision weights; the clip is the seed paper's (20).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MATTERS = 0.05  # relative: a value moves as far as weights are off; two decimals are nearer if p ≥ 0.1


def ratios(chance: Array, propensity: Array, forced: NDArray[np.bool_]) -> Array:
    """ρ `[n]`: π(a)/p(a) of the logged action a, from both `[n]`; 1 in forced rows."""
    ratio: Array = np.where(forced, 1.0, chance / np.where(forced, 1.0, propensity))
    return ratio


def path_weights(ratio: Array, clip: float) -> tuple[Array, NDArray[np.bool_]]:
    """Weights `[U, k]` after each day, and where the clip bound, from ratios `[U, k]` per user and day.

    The clip acts on the weight that is used; the product itself runs on unclipped, so that a weight is the same
    however many days follow it.
    """
    product = np.cumprod(ratio, axis=1)
    return np.minimum(product, clip), product > clip


def row_weights(ratio: Array, following: NDArray[np.intp], begin: NDArray[np.intp]) -> tuple[Array, Array]:
    """Weights `[n]` before and after each row of paths that begin in the rows `begin` `[U]`; 0 in rows before those.

    Args:
        ratio: `[n]` of each row.
        following: `[n]` the next row of the path, −1 after its last.
        begin: `[U]` the first row of each path.
    """
    before, after = np.zeros(len(ratio)), np.zeros(len(ratio))
    rows, weight = begin, np.ones(len(begin))
    while len(rows):
        before[rows] = weight
        weight = weight * ratio[rows]
        after[rows] = weight
        rows = following[rows]
        on = (rows >= 0) & (weight > 0)
        rows, weight = rows[on], weight[on]
    return before, after


def per_decision(weights: Array, outcome: Array) -> Array:
    """PDIS `[U, 1+m]` per user, from weights `[U, k]` and outcomes `[U, k, 1+m]`."""
    total: Array = np.einsum("uk,ukx->ux", weights, outcome)
    return total


def self_normalised(weights: Array, outcome: Array) -> tuple[Array, Array]:
    """Self-normalised PDIS: value `[1+m]` and influence `[U, 1+m]`; NaN where a day has no positive weight."""
    mass = weights.mean(axis=0)
    if not (mass > 0).all():
        return np.full(outcome.shape[2], np.nan), np.full((len(outcome), outcome.shape[2]), np.nan)
    share = weights / mass
    daily = np.einsum("uk,ukx->kx", share, outcome) / len(outcome)
    return daily.sum(axis=0), per_decision(share, outcome - daily)


def effective_size(weights: Array) -> Array:
    """Kish's effective sample size (Σw)² / Σw² of `[U, …]` weights, by column; 0 where all weights are 0."""
    square = (weights**2).sum(axis=0)
    size: Array = np.divide(weights.sum(axis=0) ** 2, square, out=np.zeros_like(square), where=square > 0)
    return size
