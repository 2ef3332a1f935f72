"""V of the log's policy for each half of the users, linear in the features of that half's `usual` trunk.

    Σ φ (φ − γ^Δ φ')ᵀ w = (1−γ) Σ φ x        over the rows of the half that are terminal or have a next row

A network trained towards its own moving average would need many times 1/(1−γ) steps to reach this fixed point of least
squares. V stays as it is until it is fitted again, so it is kept for each row: a step of the training looks up the
value of the next row and evaluates no network there.

Source: Bradtke and Barto (1996).
"""

from __future__ import annotations

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.transitions import Transitions
from outlay.learning.fresh import outcomes
from outlay.nets.batches import chunks
from outlay.nets.network import PAIR
from outlay.nets.orthogonal import OrthogonalNetwork

MOST_ROWS = 500_000  # from which V is fitted
SUM_ROWS = 4096  # whose products are added up at a time
RIDGE_ROWS = 6000.0  # number of rows at which the penalty on V equals the mean square of a feature; less in larger logs

Rows = NDArray[np.int64]
Vector = NDArray[np.float64]


def fitted_values(
    data: Transitions, pair: OrthogonalNetwork, spread: Vector, learn_rows: Rows, further: Rows, seed: int
) -> Array:
    """Fit V; `[2, N, H]` its value in the state of each row that follows, in units of the spread; 0 elsewhere.

    Args:
        data: the transitions, N rows.
        pair: whose `usual` trunks make the features.
        spread: `[H]` the units.
        learn_rows: `[n]` rows from which V is fitted, each half of the users for itself.
        further: `[k]` other rows whose next rows are valued.
        seed: of the draw, where there are more rows than are needed.
    """
    needed = np.unique(following(data, np.concatenate([learn_rows, further])))
    values = np.zeros((PAIR, len(data), len(spread)), np.float32)
    for half, rows in enumerate(halves_of(data, learn_rows)):
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False))
        network: OrthogonalNetwork = jax.tree.map(lambda part, half=half: part[half], pair)
        states = np.union1d(rows, following(data, rows))
        features = np.empty((len(states), pair.shape.layers[-1]), np.float32)
        for part, of in _features(data, network, states):
            features[np.searchsorted(states, part)] = of
        weight, bias = _solution(data, rows, states, features, spread)
        values[half, states] = features @ weight + bias
        for part, of in _features(data, network, np.setdiff1d(needed, states)):
            values[half, part] = of @ weight + bias
    return jnp.asarray(values)


def following(data: Transitions, rows: Rows) -> Rows:
    """The next row of each, or the row itself where there is none."""
    found = np.asarray(data.next_row[rows]).astype(np.int64)
    return np.where(found >= 0, found, rows)


def halves_of(data: Transitions, rows: Rows) -> tuple[Rows, Rows]:
    """Split rows by user, alternately in the order of their ids; a single user is in both halves."""
    _, place = np.unique(data.user[rows], return_inverse=True)
    even = place % PAIR == 0
    return rows[even], rows if even.all() else rows[~even]


@eqx.filter_jit
def _told(network: OrthogonalNetwork, codes: Array, numbers: Array) -> Array:
    """The features `[B, width]` of the `usual` trunk; compiled once for all fits of V."""
    return network.hidden(codes, numbers)[0]


def _features(data: Transitions, network: OrthogonalNetwork, rows: Rows) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """Parts of the rows, and the features `[B, width]` of each."""
    size = 0
    for part in chunks(data, rows, network.shape.embedding):
        size = max(size, len(part))
        whole = np.resize(part, size)  # parts of one size: a program is compiled for each
        codes, numbers = data.codes(whole, data.code_type), data.numbers(whole)
        yield part, np.asarray(_told(network, jnp.asarray(codes), jnp.asarray(numbers)))[: len(part)]


def _solution(
    data: Transitions, rows: Rows, states: Rows, features: NDArray[np.float32], spread: Vector
) -> tuple[Vector, Vector]:
    """Weights `[width, H]` and constants `[H]` of V, from the features of the states of all rows and of what follows.

    Args:
        data: the transitions.
        rows: `[n]` rows of one half.
        states: `[S]` ascending, rows whose features are given.
        features: `[S, width]`.
        spread: `[H]` units of V.
    """
    gamma, width = data.campaign.meta.discount, features.shape[1] + 1
    matrix, right, square = np.zeros((width, width)), np.zeros((width, len(spread))), np.zeros(width)
    for part in np.array_split(rows, max(1, len(rows) // SUM_ROWS)):
        after = following(data, part)
        last, linked = np.asarray(data.terminal[part]), np.asarray(data.next_row[part]) >= 0
        discount = np.where(linked & ~last, gamma ** data.gap[part].astype(np.float64), 0.0)
        here, ahead = (_with_constant(features[np.searchsorted(states, at)]) for at in (part, after))
        here *= (linked | last)[:, None]
        matrix += here.T @ (here - discount[:, None] * ahead)
        right += (1 - gamma) * here.T @ (outcomes(data, part) / spread)
        square += (here**2).sum(axis=0)
    penalty = (RIDGE_ROWS / len(rows)) ** 2 * square.mean() * np.append(np.ones(width - 1), 0)
    solution = np.linalg.solve(matrix + np.diag(penalty), right)
    return solution[:-1], solution[-1]


def _with_constant(features: NDArray[np.float32]) -> Vector:
    return np.column_stack([features.astype(np.float64), np.ones(len(features))])
