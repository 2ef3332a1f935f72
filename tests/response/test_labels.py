"""Labels of k days worked by hand; calibration of predictions that are right, and of ones that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.errors import LogError, OutlayError
from outlay.core.transitions import Transitions
from outlay.response import labels
from outlay.response.labels import Calibration, calibrate, heads, k_day_labels
from small_logs import transitions


def by_hand(**changes: Any) -> Transitions:
    """A log of 6 days. User 0: every day; user 1: a gap, leaves on day 4; user 2: nothing on the last two days."""
    user = [0] * 6 + [1] * 3 + [2] * 4
    day = [0, 1, 2, 3, 4, 5, 0, 3, 4, 0, 1, 2, 3]
    number = np.arange(13)
    columns: dict[str, Any] = {
        "user": user,
        "day": day,
        "state": number % 2,
        "action": number % 3,
        "num_states": 2,
        "num_actions": 3,
        "outcome": np.column_stack([2.0**number, 10.0 * number]),
        "terminal": number == 8,
        "forced": number == 3,
    } | changes
    return transitions(**columns)


def test_three_days_by_hand() -> None:
    """User 0: days 0 to 3, less the forced day 3. User 1: all, as its story ended. User 2: days 0 to 3."""
    rows, label = k_day_labels(by_hand(), 3)
    assert rows.tolist() == [0, 1, 2, 6, 7, 8, 9, 10, 11, 12]
    wanted = {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),  # the forced row 3 counts in the totals of earlier rows
        6: (6,),
        7: (7, 8),
        8: (8,),  # day 0 to 2: the next row is on day 3
        9: (9, 10, 11),
        10: (10, 11, 12),
        11: (11, 12),
        12: (12,),
    }
    for row, found in zip(rows.tolist(), label, strict=True):
        days = wanted[row]
        assert found.tolist() == [sum(2.0**i for i in days), sum(10.0 * i for i in days), 10.0 * row]


def test_one_day_is_the_outcome_itself() -> None:
    data = by_hand()
    rows, label = k_day_labels(data, 1)
    assert rows.tolist() == [i for i in range(13) if i != 3]
    np.testing.assert_array_equal(label, data.outcome[rows])


def test_the_columns_are_named() -> None:
    assert tuple(heads(1, 2)) == (0, slice(1, 3), slice(1, 3), 3)
    several = heads(7, 2)
    assert tuple(several) == (0, slice(1, 3), slice(3, 5), 5)
    data = by_hand(outcome=np.arange(39.0).reshape(13, 3))
    rows, label = k_day_labels(data, 2)
    assert label.shape[1] == several.width
    np.testing.assert_array_equal(label[:, several.immediate], data.outcome[rows, 1:])
    assert label[0, several.costs].tolist() == [1 + 4, 2 + 5]


@pytest.mark.parametrize("block", [7, 1 << 18])
@pytest.mark.parametrize("days", [1, 2, 5, 9])
def test_labels_are_those_of_a_loop_over_rows(days: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "BLOCK_ROWS", block)
    rng = np.random.default_rng(days)
    users, span = 40, 9
    there = rng.random((users, span)) < 0.7
    there[:, 0] = True
    user, day = np.nonzero(there)
    last = np.append(user[1:] != user[:-1], True)
    n = len(user)
    data = by_hand(
        user=user,
        day=day,
        state=np.zeros(n),
        action=np.zeros(n),
        outcome=rng.normal(size=(n, 2)),
        terminal=last & (rng.random(n) < 0.4),
        forced=rng.random(n) < 0.2,
    )
    wanted_rows, wanted = [], []
    for row in range(n):
        inside = np.flatnonzero((user == user[row]) & (day >= day[row]) & (day < day[row] + days))
        if not data.forced[row] and (day[row] + days <= data.users["window"][0] or data.terminal[inside].any()):
            total = data.outcome[inside].sum(0)
            wanted_rows.append(row)
            wanted.append(total if days == 1 else [*total, data.outcome[row, 1]])
    rows, label = k_day_labels(data, days)
    assert rows.tolist() == wanted_rows
    np.testing.assert_allclose(label, wanted, rtol=1e-5, atol=1e-6)
    some = rng.permutation(n)[: n // 2]
    rows, _ = k_day_labels(data, days, some)
    assert rows.tolist() == [row for row in some.tolist() if row in set(wanted_rows)]


def test_a_log_that_is_too_short_says_how_long_it_is() -> None:
    with pytest.raises(LogError, match=r"\b7 days .*most is 6\b.*at most 6 days"):
        k_day_labels(by_hand(terminal=np.zeros(13, bool)), 7)
    rows, _ = k_day_labels(by_hand(), 7)  # the one whose story ended has all the same
    assert rows.tolist() == [6, 7, 8]


def test_without_a_choice_there_is_nothing_to_learn() -> None:
    with pytest.raises(LogError, match="no row has a choice"):
        k_day_labels(by_hand(forced=np.ones(13, bool)), 1)


def test_no_days_is_an_error() -> None:
    with pytest.raises(OutlayError, match="label days: is 0"):
        k_day_labels(by_hand(), 0)


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
    with pytest.raises(LogError, match=r"\b2 predictions .*finite.* row 1\b"):
        one([0, np.nan, np.inf], [0, 0, 0])
