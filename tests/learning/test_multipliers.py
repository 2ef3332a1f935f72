import numpy as np

from outlay.learning.multipliers import bisected, ogd_step


def test_a_step_moves_by_the_excess_over_the_root_of_the_step_number() -> None:
    """1 + 0.6/√4 = 1.3 and 1 − 0.6/√4 = 0.7."""
    np.testing.assert_allclose(ogd_step(np.ones(2), np.array([0.6, -0.6]), 4, 10.0), [1.3, 0.7])


def test_multipliers_stay_between_0_and_the_bound() -> None:
    stepped = ogd_step(np.array([0.1, 1.9, 0.5]), np.array([-5.0, 5.0, 5.0]), 1, np.array([2.0, 2.0, 3.0]))
    assert stepped.tolist() == [0.0, 2.0, 3.0]


def test_the_multiplier_given_is_not_changed() -> None:
    multiplier = np.ones(1)
    ogd_step(multiplier, np.ones(1), 1, 10.0)
    assert multiplier.tolist() == [1.0]


def test_the_average_regret_vanishes_against_the_best_fixed_multiplier() -> None:
    """Costs −1 and +1 in turn, then +1: any fixed λ in [0, 1] is at most √T better in sum, over T = 400 steps."""
    excesses = np.r_[np.tile([1.0, -1.0], 100), np.ones(200)]
    multiplier, won = np.zeros(1), 0.0
    for t, excess in enumerate(excesses, start=1):
        won += float(multiplier[0] * excess)
        multiplier = ogd_step(multiplier, np.array([excess]), t, 1.0)
    assert max(0.0, excesses.sum()) - won <= 1.5 * np.sqrt(len(excesses))


def test_bisection_finds_the_price_at_which_a_falling_cost_meets_its_limit() -> None:
    over: list[bool] = []
    for _ in range(30):
        over.append(bisected(over, 8.0) < 0.37)
    assert abs(bisected(over, 8.0) - 0.37) < 1e-7


def test_bisection_asks_no_price_where_the_limit_is_kept_without() -> None:
    assert bisected([], 8.0) == 0.0
    assert bisected([False, False], 8.0) == 0.0
    assert bisected([True], 8.0) == 4.0
    assert bisected([True, True, False], 8.0) == 5.0
