"""The bases against Φ written out in full."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csc_array, issparse

from outlay.estimators.basis import Array, Basis, CountedBasis, FeatureBasis, SmoothBasis, Solver, StateActions

RNG = np.random.default_rng(0)
N, S, K, D = 500, 4, 3, 5
STATE = RNG.integers(S, size=N)
F = RNG.normal(size=(N, D)).astype(np.float32)
ROWS = np.where(RNG.random(N) < 0.1, -1, RNG.permutation(N))
LEFT = StateActions(np.arange(N), RNG.integers(K, size=N))
RIGHT = StateActions(ROWS, RNG.integers(K, size=N))


AMOUNTS = np.array([[1.0, 1.0, 1.0], [-1.0, 0.5, 1.0]])  # a basis of two rows for three amounts


def written_out(basis: Basis, pairs: StateActions) -> Array:
    if isinstance(basis, SmoothBasis):
        counted = written_out(basis.counted, pairs)
        by_state = counted[:, : S * K].reshape(-1, S, K) @ basis.basis.T
        return np.hstack([by_state.reshape(len(pairs), -1), counted[:, S * K :]])
    f = np.eye(S)[STATE] if isinstance(basis, CountedBasis) else np.column_stack([F, np.ones(N)])
    if isinstance(basis, FeatureBasis) and basis.kept is not None:
        free = np.arange(K * (D + 1), K * (D + 2))
        columns = np.append(np.flatnonzero(np.column_stack([basis.kept, np.ones(K)])), free)
        return written_out(FeatureBasis(F, K), pairs)[:, columns]
    full = np.zeros((len(pairs), basis.size))
    width = f.shape[1]
    for i, (row, action) in enumerate(zip(pairs.rows, pairs.actions, strict=True)):
        if row < 0:
            full[i, basis.size - K + action] = 1
        elif isinstance(basis, CountedBasis):
            full[i, np.arange(S) * K + action] = f[row]
        else:
            full[i, action * width : (action + 1) * width] = f[row]
    return full


KEPT = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], np.bool_)


@pytest.mark.parametrize(
    "basis",
    [
        CountedBasis(STATE, S, K),
        SmoothBasis(CountedBasis(STATE, S, K), AMOUNTS),
        FeatureBasis(F, K),
        FeatureBasis(F, K, KEPT),
    ],
)
def test_block_operations_equal_the_written_out_matrix(basis: Basis) -> None:
    left, right, weight, values = (
        written_out(basis, LEFT),
        written_out(basis, RIGHT),
        RNG.random(N),
        RNG.random((N, 2)),
    )
    moment = basis.moment(LEFT, RIGHT, weight)
    assert (moment.toarray() if issparse(moment) else moment) == pytest.approx((left * weight[:, None]).T @ right)
    assert basis.project(RIGHT, values) == pytest.approx(right.T @ values)
    theta = RNG.random((basis.size, 2))
    assert basis.evaluate(RIGHT, theta) == pytest.approx(right @ theta)


@pytest.mark.parametrize("basis", [CountedBasis(STATE, S, K), FeatureBasis(F, K)])
def test_leverage_adds_up_to_the_coordinates_and_is_endless_in_directions_without_rows(basis: Basis) -> None:
    seen = LEFT[np.flatnonzero(LEFT.actions > 0)]
    gram = basis.regular(basis.moment(seen, seen, np.ones(len(seen))))
    leverage = basis.leverage(seen, gram)
    assert leverage.sum() == pytest.approx((basis.size // K - 1) * (K - 1), rel=1e-4)
    assert leverage.max() <= 1 + 1e-6
    assert basis.leverage(LEFT[np.flatnonzero(LEFT.actions == 0)], gram).min() > 1e3


def test_rows_said_to_be_alike_have_the_same_values() -> None:
    basis = CountedBasis(STATE, S, K)
    _, first, of = np.unique(basis.alike, return_index=True, return_inverse=True)
    assert len(first) == S
    theta = RNG.random((basis.size, 2))
    stands_for = StateActions(first[of][LEFT.rows], LEFT.actions)
    assert np.array_equal(basis.evaluate(stands_for, theta), basis.evaluate(LEFT, theta))


def test_the_solver_solves_dense_and_sparse_systems_and_their_transposes() -> None:
    dense = np.eye(6) + RNG.random((6, 6)) * (RNG.random((6, 6)) < 0.5)
    sparse, right = csc_array(dense), RNG.random((6, 2))
    for matrix in (sparse, dense):
        solver = Solver(matrix)
        assert dense @ solver.solve(right) == pytest.approx(right)
        assert dense.T @ solver.solve_transposed(right) == pytest.approx(right)


def test_the_leverage_of_a_smooth_basis_is_that_of_its_regression() -> None:
    basis = SmoothBasis(CountedBasis(STATE, S, K), AMOUNTS)
    gram = basis.regular(basis.moment(LEFT, LEFT, np.ones(N)))
    full = written_out(basis, LEFT)[:, : basis.size - K]
    exact = np.einsum("np,pq,nq->n", full, np.linalg.inv(full.T @ full), full)
    assert basis.leverage(LEFT, gram) == pytest.approx(exact, rel=1e-6)


def test_an_unseen_amount_between_seen_ones_is_known_and_an_unseen_state_is_not() -> None:
    seen = LEFT[np.flatnonzero((LEFT.actions != 1) & (STATE > 0))]
    basis = SmoothBasis(CountedBasis(STATE, S, K), AMOUNTS)
    gram = basis.regular(basis.moment(seen, seen, np.ones(len(seen))))
    between = StateActions(np.flatnonzero(STATE > 0), np.ones((STATE > 0).sum(), np.intp))
    assert basis.leverage(between, gram).max() < 0.1
    nowhere = StateActions(np.flatnonzero(STATE == 0), np.ones((STATE == 0).sum(), np.intp))
    assert basis.leverage(nowhere, gram).min() > 1e3
