"""Least squares by a concave function, against what defines it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.ops.concave import concave_fit

Floats = NDArray[np.float64]


def bent(x: Floats, at: Floats) -> Floats:
    """A concave function with a bend at each of some points."""
    found: Floats = 2 * x - np.maximum(x[:, None] - at, 0).sum(axis=1)
    return found


def test_what_is_concave_stays_as_it_is() -> None:
    x = np.random.default_rng(0).uniform(-3, 40, 25)
    for y in (0 * x + 1, 5 - 3 * x, bent(x, np.sort(x)[[4, 11, 12]]), -(x**2)):
        np.testing.assert_allclose(concave_fit(x, y, np.ones(25)) @ y, y, atol=1e-7 * np.abs(y).max())


@pytest.mark.parametrize("seed", range(5))
def test_no_concave_function_is_nearer(seed: int) -> None:
    """What the fit leaves is at right angles to it, and leans towards no concave function (a projection on a cone)."""
    rng = np.random.default_rng(seed)
    x, weight = rng.uniform(0, 2, 30), rng.uniform(0.2, 5, 30)
    y = np.log1p(5 * x) + 0.3 * rng.standard_normal(30)
    fitted = concave_fit(x, y, weight) @ y
    order = np.argsort(x)
    slopes = np.diff(fitted[order]) / np.diff(x[order])
    assert np.diff(slopes).max() < 1e-9
    left = weight * (y - fitted)
    assert abs(left @ fitted) < 1e-8
    for at in np.sort(x)[1:-1]:
        assert left @ -np.maximum(x - at, 0) < 1e-8
    assert abs(left.sum()) < 1e-8
    assert abs(left @ x) < 1e-8


def test_points_at_one_place_get_their_weighted_mean() -> None:
    y, weight = np.array([1.0, 4.0, 2.0]), np.array([2.0, 1.0, 1.0])
    np.testing.assert_allclose(concave_fit(np.array([1.0, 1.0, 3.0]), y, weight) @ y, [2, 2, 2])
    np.testing.assert_allclose(concave_fit(np.ones(3), y, weight) @ y, np.full(3, 2.0))
