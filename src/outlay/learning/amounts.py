"""In which amounts inform each other: smooth ones, unless the log contradicts it.

    offers 0 to 7 are amounts:    12, 15, 17, 19, 20, 21, 21, 21 a day      smooth: six functions of the amount
    they are numbers of offers:   12, 15, 17, 18, 21, 23, 15, 16            not smooth: each offer on its own

A polynomial through the second line is flattest where the best offer stands, so learners would take its neighbour. The
mean outcomes m of the actions are known well even where the effects on single users are not, so they are asked:

    t = Z m,   χ² = tᵀ (Z C Zᵀ)⁻¹ t         Z: what is orthogonal to the smooth functions; C: of m, with users as units

The basis is given up where χ² is not chance for an outcome and what it leaves of the variance between actions, less
noise, matters. Means are weighted by 1/propensity where the log has propensities. Where it has none and offers were
aimed, who got an offer may look like what it does; then actions are learned on their own, which is less precise but
not wrong.

Source: Wald's test with clustered errors, Liang and Zeger (1986).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr

from outlay.core.transitions import Transitions
from outlay.ops.action_basis import ActionBasis, smooth_basis
from outlay.ops.intervals import BY_CHANCE

LEFT = 0.02  # share of the variance between actions that a smooth basis may leave, less noise
LEAST = 0.01  # propensities below are taken as this
MOST_ROWS = 1_000_000  # rows that are asked, about
TINY = 1e-12

Matrix = NDArray[np.float64]


def action_basis(data: Transitions, degree: int, rows: NDArray[np.int64]) -> ActionBasis | None:
    """The smooth basis of the amounts; None, each action on its own, where `rows` `[n]` of the log contradict it."""
    basis = smooth_basis(data.actions, data.campaign.names.degree(degree), data.campaign.none)
    if basis is None:
        return None
    rows = rows[~np.asarray(data.forced[rows])]
    users, user = np.unique(data.user[rows], return_inverse=True)
    every = -(-len(rows) // MOST_ROWS) if len(rows) else 1
    rows, user = rows[user % every == 0], user[user % every == 0] // every
    action = np.asarray(data.action[rows])
    outcome = np.asarray(data.outcome[rows], np.float64)
    weight = np.ones(len(rows))
    if data.propensity is not None:
        weight /= np.maximum(np.asarray(data.propensity[rows], np.float64), LEAST)
    smooth = np.asarray(basis)
    rough = len(users) > 0 and any(_contradicts(x, action, user, weight, smooth) for x in outcome.T)
    return None if rough else basis


def _contradicts(
    outcome: Matrix, action: NDArray[np.int64], user: NDArray[np.int64], weight: Matrix, basis: Matrix
) -> bool:
    """Whether mean outcomes `[K]` of the actions are not smooth, by more than chance and by so much that it matters.

    Args:
        outcome: `[n]`.
        action: `[n]`.
        user: `[n]` from 0.
        weight: `[n]`.
        basis: `[R, K]`.
    """
    count = np.bincount(action, weight, basis.shape[1])
    kinds = np.flatnonzero(count > 0)
    place = np.searchsorted(kinds, action)
    count, size = count[kinds], len(kinds)
    mean = np.bincount(place, weight * outcome, size) / count
    units = int(user.max()) + 1
    own = np.bincount(user * size + place, weight * (outcome - mean[place]), units * size).reshape(units, size) / count
    noise = own.T @ own
    # What is orthogonal to the smooth functions among the actions that were given, in proportion to how often.
    share = np.sqrt(count / count.sum())
    left, values, _ = np.linalg.svd((basis[:, kinds] * share).T)
    rank = int((values > TINY * values[0]).sum())
    across = left[:, rank:].T * share
    freedom = len(across)
    if freedom == 0 or units <= size:
        return False
    rest, spread = across @ mean, across @ noise @ across.T
    between = share**2 @ (mean - share**2 @ mean) ** 2
    if between <= TINY * max(1.0, share**2 @ mean**2) or np.trace(spread) <= 0:
        return False
    statistic = rest @ np.linalg.pinv(spread, hermitian=True) @ rest
    matters = rest @ rest - np.trace(spread) > LEFT * between
    return bool(matters and chdtrc(freedom, statistic) < 2 * ndtr(-BY_CHANCE))
