"""Bounds that hold together: against known values, and by simulation where none is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from outlay.ops.simultaneous import critical_value

Array = NDArray[np.float64]


def alike(n: int, correlation: float) -> Array:
    return np.full((n, n), correlation) + (1 - correlation) * np.eye(n)


def neighbours(n: int) -> Array:
    """As policies along a curve: each is much like the next; errors of very unlike sizes."""
    place, size = np.arange(n), np.geomspace(1e-3, 50, n)
    covariance: Array = np.exp(-np.abs(place[:, None] - place) / 6) * np.outer(size, size)
    return covariance


def draws(covariance: Array, count: int, seed: int = 7) -> Array:
    """`[count, n]` errors, standardised; 0 where there is no variance."""
    size, axes = np.linalg.eigh(covariance)
    error = np.sqrt(np.diag(covariance))
    root = axes * np.sqrt(np.maximum(size, 0))
    root = np.divide(root, error[:, None], out=np.zeros_like(root), where=error[:, None] > 0)
    sample: Array = np.random.default_rng(seed).standard_normal((count, len(covariance))) @ root.T
    return sample


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.025, 1e-3, 1e-6])
@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_independent_quantities_need_the_quantile_of_the_nth_root(n: int, alpha: float) -> None:
    assert critical_value(np.eye(n), alpha) == pytest.approx(norm.isf(1 - (1 - alpha) ** (1 / n)), abs=0.01)


def test_what_moves_together_needs_no_more_than_one_alone_and_opposites_need_both_tails() -> None:
    one = norm.isf(0.05)
    assert critical_value(np.ones((40, 40)), 0.05) == pytest.approx(one, abs=1e-9)
    assert critical_value(np.array([[1.0, -1.0], [-1.0, 1.0]]), 0.05) == pytest.approx(norm.isf(0.025), abs=0.01)


def test_what_has_no_error_counts_for_nothing() -> None:
    covariance = np.zeros((7, 7))
    covariance[:3, :3] = neighbours(3)
    covariance[5:, 5:] = alike(2, 0.3) * 1e-30  # what rounding leaves
    assert critical_value(covariance, 0.05) == critical_value(neighbours(3), 0.05)
    assert critical_value(np.zeros((4, 4)), 0.05) == pytest.approx(norm.isf(0.05))
    assert critical_value(np.empty((0, 0)), 0.05) == pytest.approx(norm.isf(0.05))


@pytest.mark.parametrize("alpha", [0.05, 0.0125])
@pytest.mark.parametrize("shape", ["alike", "opposed", "a curve", "fewer causes"])
def test_all_bounds_together_fail_as_often_as_they_may(shape: str, alpha: float) -> None:
    causes = np.random.default_rng(4).normal(size=(3, 50))
    covariance = {
        "alike": alike(12, 0.6),
        "opposed": alike(4, -0.3),
        "a curve": neighbours(33),
        "fewer causes": causes.T @ causes,
    }[shape]
    count = 100_000
    broken = (draws(covariance, count) > critical_value(covariance, alpha)).any(axis=1).mean()
    assert broken == pytest.approx(alpha, abs=3 * np.sqrt(alpha / count) + 0.02 * alpha)


def test_a_cone_holds_all_that_lies_between_its_sides() -> None:
    """Scaling no side changes it; simulated on a fine grid of directions, with exact standard errors."""
    covariance = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.5]])
    pairs, alpha, count = np.array([[0, 2], [1, 1], [1, 2]]), 0.05, 20_000
    k = critical_value(covariance, alpha, pairs)
    size = np.array([1.0, 100.0, 0.01])
    assert critical_value(covariance * np.outer(size, size), alpha, pairs) == pytest.approx(k, abs=1e-6)
    errors = np.random.default_rng(5).multivariate_normal(np.zeros(3), covariance, size=count)
    grid = np.tan(np.linspace(0, np.pi / 2 - 1e-6, 200))
    broken = errors[:, 1] > k * np.sqrt(covariance[1, 1])
    for i in (0, 1):
        spread = np.sqrt(covariance[i, i] + 2 * grid * covariance[i, 2] + grid**2 * covariance[2, 2])
        broken |= ((errors[:, [i]] + grid * errors[:, [2]]) > k * spread).any(axis=1)
    assert broken.mean() == pytest.approx(alpha, abs=3 * np.sqrt(alpha / count))
    assert critical_value(covariance, alpha) < k


def test_a_cone_of_two_independent_sides_is_a_quarter_of_the_circle() -> None:
    """P(max > k) = P(χ²₂ > k²) / 4 within the quarter, and beside it one normal on either side, each with half."""
    k = critical_value(np.eye(2), 0.05, np.array([[0, 1]]))
    assert chi2.sf(k**2, 2) / 4 + norm.sf(k) == pytest.approx(0.05, abs=5e-4)


def test_a_side_without_an_error_leaves_the_other_side_alone() -> None:
    covariance = np.diag([1.0, 0.0, 4.0])
    assert critical_value(covariance, 0.05, np.array([[0, 1]])) == pytest.approx(norm.isf(0.05))
    assert critical_value(covariance, 0.05, np.array([[1, 2]])) == pytest.approx(norm.isf(0.05))
    same = np.array([[1.0, 2.0], [2.0, 4.0]])  # one direction, whatever the weights
    assert critical_value(same, 0.05, np.array([[0, 1]])) == pytest.approx(norm.isf(0.05), abs=1e-9)


def test_rounding_moves_it_by_rounding_only() -> None:
    """Weights of mixtures rest on it, and a bundle's name on those."""
    covariance = alike(20, 0.5)  # eigenvalues all alike, whose vectors are arbitrary
    noise = 1e-14 * np.random.default_rng(0).normal(size=covariance.shape)
    assert critical_value(covariance + noise + noise.T, 0.025) == pytest.approx(
        critical_value(covariance, 0.025), abs=1e-8
    )


@pytest.mark.parametrize("alpha", [0.0, 0.5, -1.0, float("nan")])
def test_an_impossible_level_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"strictly between 0 and 0\.5"):
        critical_value(np.eye(2), alpha)
