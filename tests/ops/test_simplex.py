from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outlay.ops.simplex import reduce_support

Floats = NDArray[np.float64]


def reduced(points: Floats, weights: Floats) -> tuple[NDArray[np.intp], Floats]:
    return reduce_support(points, weights, weights @ points)


def solve_exactly(columns: list[list[Fraction]], target: list[Fraction]) -> list[Fraction] | None:
    """Barycentric coordinates of `target` by Gauss elimination in fractions; None outside the affine hull."""
    rows = [[Fraction(1) for _ in columns] + [Fraction(1)]]
    rows += [[column[i] for column in columns] + [target[i]] for i in range(len(target))]
    for pivot in range(len(columns)):
        found = next(i for i in range(pivot, len(rows)) if rows[i][pivot] != 0)
        rows[pivot], rows[found] = rows[found], rows[pivot]
        rows[pivot] = [x / rows[pivot][pivot] for x in rows[pivot]]
        for i in range(len(rows)):
            if i != pivot:
                rows[i] = [a - rows[i][pivot] * b for a, b in zip(rows[i], rows[pivot], strict=True)]
    if any(row[-1] != 0 for row in rows[len(columns) :]):
        return None
    return [row[-1] for row in rows[: len(columns)]]


def paper_mean(points: Floats) -> dict[int, Fraction]:
    """Algorithm AIM-mean longhand, its three cases in exact fractions, with method section 2, row 5. Generic points."""
    exact = [[Fraction(float(x)) for x in point] for point in points]
    active, weights, mean = [0], [Fraction(1)], exact[0]
    for t in range(1, len(exact)):
        target = [m + (x - m) / (t + 1) for m, x in zip(mean, exact[t], strict=True)]
        coordinates = solve_exactly([exact[i] for i in active], target)
        if coordinates is None:
            active = [*active, t]
        elif min(coordinates) < 0:
            theta, leaves = min(
                (a / (a - b), i) for i, (a, b) in enumerate(zip(weights, coordinates, strict=True)) if b < 0
            )
            assert 0 <= theta <= 1
            active = [j for i, j in enumerate(active) if i != leaves] + [t]
        solved = solve_exactly([exact[i] for i in active], target)
        assert solved is not None
        assert min(solved) > 0
        weights, mean = solved, target
    return dict(zip(active, weights, strict=True))


def test_a_new_point_outside_the_affine_hull_is_added() -> None:
    kept, weights = reduced(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0.25, 0.25, 0.5]))
    assert kept.tolist() == [0, 1, 2]
    np.testing.assert_allclose(weights, [0.25, 0.25, 0.5], atol=1e-15)


def test_a_target_inside_the_old_simplex_only_gets_new_weights() -> None:
    """Half of (0, 1)/2 and a quarter each of 0 and 1 on a line: the mean 1/2 without the point 1/2."""
    kept, weights = reduced(np.array([[0.0], [1.0], [0.5]]), np.array([0.25, 0.25, 0.5]))
    assert kept.tolist() == [0, 1]
    np.testing.assert_allclose(weights, [0.5, 0.5], atol=1e-15)


def test_a_target_outside_drops_the_vertex_that_is_not_on_the_crossed_facet() -> None:
    """On a line with 0 and 1 at half each, a third of 9 moves the mean to 10/3: 1 is crossed, 0 and 9 would do too,
    but the facet crossed is {1}, so 0 leaves: 10/3 = 17/24 · 1 + 7/24 · 9.
    """
    kept, weights = reduced(np.array([[0.0], [1.0], [9.0]]), np.array([1 / 3, 1 / 3, 1 / 3]))
    assert kept.tolist() == [1, 2]
    np.testing.assert_allclose(weights, [17 / 24, 7 / 24], atol=1e-15)


def test_duplicates_become_one_point() -> None:
    kept, weights = reduced(np.ones((4, 3)) * 0.3, np.full(4, 0.25))
    assert kept.tolist() == [0]
    assert weights.tolist() == [1.0]


def test_points_apart_by_rounding_alone_become_one_point() -> None:
    kept, _ = reduced(np.array([[0.1 + 0.2, 7.0], [0.3, 7.0]]), np.array([0.5, 0.5]))
    assert kept.tolist() == [0]


def test_rounding_in_the_weights_is_put_right() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    _, weights = reduce_support(points, np.array([0.2, 0.3, 0.5]) + 1e-8, np.array([0.3, 0.5]))
    np.testing.assert_allclose(weights, [0.2, 0.3, 0.5], rtol=0, atol=1e-14)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_agrees_with_the_paper_longhand_in_exact_fractions(dimension: int) -> None:
    """Same members and weights as the three cases of Algorithm AIM-mean after every one of 25 generic points."""
    points = np.round(np.random.default_rng(dimension).normal(size=(25, dimension)), 6)
    ids, weights = [0], np.ones(1)
    for t in range(1, len(points)):
        ids = [*ids, t]
        share = 1 / (t + 1)
        grown = np.append((1 - share) * weights, share)
        kept, weights = reduce_support(points[ids], grown, points[: t + 1].mean(axis=0))
        ids = [ids[i] for i in kept]
        longhand = paper_mean(points[: t + 1])
        assert ids == list(longhand)
        np.testing.assert_allclose(weights, [float(w) for w in longhand.values()], atol=1e-11)


@given(
    st.integers(1, 6).flatmap(
        lambda d: st.lists(st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=1, max_size=3 * d + 3)
    ),
    st.sampled_from([0.0, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-6]),
    st.integers(0, 2**32 - 1),
)
def test_any_mixture_is_reduced_to_independent_points_with_the_same_mean(
    grid: list[list[int]], jitter: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    points = np.array(grid, dtype=np.float64)
    points += jitter * rng.normal(size=points.shape)
    weights = rng.dirichlet(np.ones(len(points)))
    kept, new = reduced(points, weights)
    chosen = points[kept]
    assert len(kept) <= points.shape[1] + 1
    assert new.min() > 0
    assert new.sum() == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(new @ chosen, weights @ points, atol=1e-9)
    if len(kept) > 1:
        apart = (chosen[1:] - chosen[0]) / np.maximum(np.ptp(chosen, axis=0), 1e-8)
        assert np.linalg.matrix_rank(apart, tol=1e-12) == len(kept) - 1
