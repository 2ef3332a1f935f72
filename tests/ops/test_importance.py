import numpy as np
import pytest

from outlay.ops.importance import effective_size, path_weights, per_decision, ratios, row_weights, self_normalised


def test_ratios_are_one_over_the_propensity_zero_off_the_policy_and_one_where_forced() -> None:
    got = ratios(np.array([1.0, 0.0, 0.0]), np.array([0.5, 0.25, 0.0]), np.array([False, False, True]))
    assert got.tolist() == [2.0, 0.0, 1.0]


def test_weights_multiply_along_the_path_are_clipped_in_use_only_and_stay_zero() -> None:
    weights, bound = path_weights(np.array([[4.0, 4.0, 0.5], [2.0, 0.0, 3.0]]), clip=10.0)
    assert weights.tolist() == [[4.0, 10.0, 8.0], [2.0, 0.0, 0.0]]
    assert bound.tolist() == [[False, True, False], [False, False, False]]


def test_weights_before_and_after_the_rows_of_two_paths_of_which_one_leaves_the_policy() -> None:
    ratio = np.array([9.0, 2.0, 3.0, 0.0, 5.0])
    before, after = row_weights(ratio, np.array([1, 2, -1, 4, -1]), np.array([1, 3]))
    assert before.tolist() == [0, 1, 2, 1, 0]
    assert after.tolist() == [0, 2, 6, 0, 0]


def test_per_decision_totals_and_the_self_normalised_ones_by_hand() -> None:
    """Day 0: weights 2, 0; day 1: weights 4, 0. Plain per user: 2·1 + 4·3 = 14 and 0. Normalised: 1 + 3 = 4."""
    weights = np.array([[2.0, 4.0], [0.0, 0.0]])
    outcome = np.array([[[1.0], [3.0]], [[5.0], [7.0]]])
    assert per_decision(weights, outcome).tolist() == [[14.0], [0.0]]
    value, psi = self_normalised(weights, outcome)
    assert value.tolist() == [4.0]
    assert psi.mean() == pytest.approx(0)


def test_self_normalised_influence_is_the_derivative_by_the_weight_of_a_user() -> None:
    rng = np.random.default_rng(0)
    weights, outcome, step = rng.random((50, 3)), rng.random((50, 3, 2)), 1e-6
    value, psi = self_normalised(weights, outcome)
    heavier = np.ones(50)
    heavier[7] += step
    moved, _ = self_normalised(weights * heavier[:, None], outcome)
    assert (moved - value) / step * 50 == pytest.approx(psi[7], rel=1e-4)


def test_self_normalised_gives_no_number_where_a_day_has_no_weight() -> None:
    value, _ = self_normalised(np.array([[1.0, 0.0]]), np.ones((1, 2, 1)))
    assert np.isnan(value).all()


def test_equal_weights_count_in_full_and_one_heavy_weight_counts_once() -> None:
    weights = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert effective_size(weights).tolist() == [3.0, 1.0, 0.0]
