"""Calibration: groups by hand, right and wrong predictions told apart, standard errors that cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.twostage.calibration import Calibration, calibrate


def one(predicted: Any, observed: Any, *, action: Any = None, user: Any = None, num_actions: int = 1) -> Calibration:
    predicted, observed = np.asarray(predicted, float), np.asarray(observed, float)
    n = len(predicted)
    (found,) = calibrate(
        predicted[:, None],
        observed[:, None],
        action=np.zeros(n, int) if action is None else np.asarray(action),
        user=np.arange(n) if user is None else np.asarray(user),
        num_actions=num_actions,
    )
    return found


def drawn(users: int, seed: int, *, slope: float = 1.0, offset: float = 0.0) -> dict[str, NDArray[Any]]:
    """Five rows a user with a part of the noise in common; the truth is offset + slope · prediction."""
    rng = np.random.default_rng(seed)
    n = users * 5
    predicted = rng.uniform(0, 2, n)
    noise = np.repeat(rng.normal(0, 1, users), 5) + rng.normal(0, 0.5, n)
    action = rng.integers(0, 3, n)
    return {
        "predicted": predicted,
        "observed": offset + slope * predicted + noise,
        "action": action,
        "user": np.repeat(np.arange(users) * 3, 5),
    }


def test_groups_by_hand() -> None:
    found = one(
        [0, 0, 1, 1, 1, 4], [0, 1, 1, 2, 3, 7], action=[0, 2, 0, 2, 0, 0], user=[5, 5, 6, 7, 8, 8], num_actions=3
    )
    assert found.tenths.count.tolist() == [2, 3, 1]  # equal predictions stay together
    assert found.tenths.predicted.tolist() == [0, 1, 4]
    assert found.tenths.observed.tolist() == [0.5, 2, 7]
    # One user in the first and the last group; in the second the residuals 0, 1, 2 of three users: √(2/3 · 3/2) / √3.
    np.testing.assert_allclose(found.tenths.std_error, [np.nan, 1 / np.sqrt(3), np.nan])
    assert found.actions.count.tolist() == [4, 0, 2]
    np.testing.assert_allclose(found.actions.predicted, [1.5, np.nan, 0.5])
    np.testing.assert_allclose(found.actions.observed, [2.75, np.nan, 1.5])
    assert found.expected_error == pytest.approx((2 * 0.5 + 3 * 1 + 1 * 3) / 6)
    slope, intercept = np.polyfit([0, 0, 1, 1, 1, 4], [0, 1, 1, 2, 3, 7], 1)
    np.testing.assert_allclose([found.slope, found.intercept], [slope, intercept])


def test_rows_of_one_user_are_not_so_many_proofs() -> None:
    """A row each: the textbook error of a mean. Five equal rows of each user: the same error, not one √5 smaller."""
    rng = np.random.default_rng(0)
    predicted, observed = np.repeat([0.0, 1.0], 100), rng.normal(size=200)
    single = one(predicted, observed)
    np.testing.assert_allclose(
        single.tenths.std_error, [observed[part].std(ddof=1) / 10 for part in (slice(100), slice(100, None))]
    )
    repeated = one(np.repeat(predicted, 5), np.repeat(observed, 5), user=np.repeat(np.arange(200), 5))
    np.testing.assert_allclose(repeated.tenths.std_error, single.tenths.std_error)
    assert repeated.slope_error == pytest.approx(single.slope_error)
    assert repeated.intercept_error == pytest.approx(single.intercept_error)


def test_tenths_hold_a_tenth_each() -> None:
    found = one(**drawn(2000, 0), num_actions=3)
    assert found.tenths.count.tolist() == [1000] * 10
    assert (np.diff(found.tenths.predicted) > 0).all()
    assert found.actions.count.sum() == 10_000


def test_standard_errors_cover() -> None:
    """In 200 draws slope, intercept and groups are within two standard errors of the truth 95 times of 100."""
    inside = []
    for seed in range(200):
        found = one(**drawn(300, seed, slope=0.8, offset=0.1), num_actions=3)
        true = 0.1 + 0.8 * found.tenths.predicted[4]
        inside.append(
            [
                abs(found.slope - 0.8) < 1.96 * found.slope_error,
                abs(found.intercept - 0.1) < 1.96 * found.intercept_error,
                abs(found.tenths.observed[4] - true) < 1.96 * found.tenths.std_error[4],
            ]
        )
    assert np.abs(np.mean(inside, axis=0) - 0.95).max() < 0.04


def test_wrong_predictions_are_told_from_right_ones() -> None:
    right, wrong = (one(**drawn(20_000, 0, slope=s, offset=o), num_actions=3) for s, o in ((1, 0), (0.7, 0.5)))
    assert abs(right.slope - 1) < 3 * right.slope_error
    assert abs(right.intercept) < 3 * right.intercept_error
    assert abs(wrong.slope - 1) > 10 * wrong.slope_error
    assert right.expected_error < 0.03
    assert wrong.expected_error == pytest.approx(0.22, abs=0.03)  # mean of |0.5 − 0.3 ŷ| for ŷ uniform on (0, 2)


def test_every_head_is_calibrated_on_its_own() -> None:
    part = drawn(500, 0)
    predicted, observed = (np.column_stack([part[name], part[name] * 100]) for name in ("predicted", "observed"))
    first, second = calibrate(predicted, observed, action=part["action"], user=part["user"], num_actions=3)
    assert second.expected_error == pytest.approx(100 * first.expected_error)
    assert second.slope == pytest.approx(first.slope)
    np.testing.assert_allclose(second.actions.std_error, 100 * first.actions.std_error)


def test_one_prediction_for_all_has_no_slope() -> None:
    found = one(np.full(10, 0.3), np.arange(10))
    assert np.isnan([found.slope, found.intercept, found.slope_error, found.intercept_error]).all()
    assert found.tenths.count.tolist() == [10]
    assert found.expected_error == pytest.approx(4.2)


def test_nothing_and_not_a_number_are_errors() -> None:
    with pytest.raises(LogError, match="no rows to compare"):
        one([], [])
    with pytest.raises(LogError, match="2 predictions are not finite numbers, the first for row 1"):
        one([0, np.nan, np.inf], [0, 0, 0])
