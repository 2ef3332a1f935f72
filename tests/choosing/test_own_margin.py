"""The margin that a mixture needs: exact on lines, enough where needs jump, and none where the limits forbid it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.choosing.own_margin import with_own_margin

Vector = NDArray[np.float64]


def spends(limit: float) -> Callable[[Vector], Vector | None]:
    """One number as weights: what is spent below a limit and a margin; nothing is cheaper than 0.2."""
    return lambda margin: np.array([limit - margin[0]]) if limit - margin[0] >= 0.2 else None


def test_on_a_line_it_is_the_solution_of_the_equation() -> None:
    """What spends c needs 0.3 c: c + 0.3 c = 1."""
    found = with_own_margin(spends(1.0), lambda weights: 0.3 * weights)
    assert found is not None
    assert found[0][0] == pytest.approx(1 / 1.3, abs=1e-3)
    assert found[1][0] == pytest.approx(0.3 / 1.3, abs=1e-3)


def test_what_needs_no_margin_has_none_and_spends_the_limit() -> None:
    found = with_own_margin(spends(1.0), lambda weights: 0 * weights)
    assert found is not None
    assert (found[0][0], found[1][0]) == (1.0, 0.0)


def test_where_needs_jump_it_is_enough() -> None:
    """What spends 0.7 or more happens to hold a dear user: the margin that is left by the jump is enough."""
    found = with_own_margin(spends(1.0), lambda weights: np.where(weights > 0.7, 0.4, 0.1))
    assert found is not None
    assert (found[0][0], found[1][0]) == (pytest.approx(0.7, abs=1e-3), pytest.approx(0.3, abs=1e-3))


def test_a_margin_that_grows_as_less_is_spent_is_found_beyond_that_of_the_limit() -> None:
    found = with_own_margin(spends(1.0), lambda weights: 0.5 - 0.4 * weights)
    assert found is not None
    assert found[1][0] == pytest.approx(0.5 - 0.4 * found[0][0], rel=2e-3)
    assert found[1][0] == pytest.approx(1 / 6, abs=1e-3)


def test_no_mixture_is_found_where_the_limit_does_not_allow_its_margin() -> None:
    assert with_own_margin(spends(1.0), lambda weights: 0 * weights + 0.9) is None
    assert with_own_margin(spends(0.1), lambda weights: 0 * weights) is None


def test_each_of_several_limits_has_the_margin_that_it_needs() -> None:
    """The second needs more the less is spent below the first."""

    def needed(weights: Vector) -> Vector:
        return np.array([0.3 * weights[0], 0.2 * weights[1]])

    found = with_own_margin(lambda margin: np.array([1.0, 2.0]) - margin, needed)
    assert found is not None
    assert found[0] == pytest.approx([1 / 1.3, 2 / 1.2], abs=2e-3)
    assert found[1] == pytest.approx(needed(found[0]), rel=2e-3)
