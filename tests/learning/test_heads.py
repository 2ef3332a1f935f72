"""Coordinates of limits: signs, units, and decisions, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.learning.heads import critic_coordinates, largest_multiplier
from small_logs import campaign

BUDGETS = [
    {"name": "money", "cost": "c", "at_most": 2.0},
    {"name": "messages", "cost": "n", "at_least": 0.5},
    {"name": "total", "cost": "t", "at_most": 10.0, "per": "user"},
    {"name": "sold", "cost": "s", "at_least": 4.0, "per": "user"},
]
# Spreads: reward 0.5, costs 1, 3, 2, and a constant of 7: a hundredth of its size.
OUTCOME = np.array([[0, 0, 0, 0, 7], [1, 2, 6, 4, 7]], np.float32)


def test_coordinates_are_in_at_most_form_and_in_the_unit_of_the_limit() -> None:
    """Where every policy decides once a day: the cost per decision, or the horizon times it; floors negated."""
    found = critic_coordinates(campaign(budgets=BUDGETS, horizon_days=7), OUTCOME, steady=True)
    assert found.limits.tolist() == [2, -0.5, 10, -4]
    heads = np.array([0.3, 1.5, 0.7, 1.1, 0.2])
    np.testing.assert_allclose(found.of(heads), [0.3, 1.5, -0.7, 7.7, -1.4])
    np.testing.assert_allclose(found.scale, [2, 3, 14, 4])  # max(|limit|, spread in that unit)
    assert found.reward_scale == 0.5
    np.testing.assert_allclose(found.spread, [0.5, 1, 3, 2, 0.07])


def test_a_scalarised_value_is_the_reward_less_the_priced_coordinates() -> None:
    found = critic_coordinates(campaign(budgets=BUDGETS, horizon_days=7), OUTCOME, steady=True)
    multiplier, heads = np.array([0.1, 0.2, 0.01, 0.03]), np.array([0.3, 1.5, 0.7, 1.1, 0.2])
    np.testing.assert_allclose(found.weights(multiplier), [1, -0.1, 0.2, -0.07, 0.21])
    assert found.weights(multiplier) @ heads == pytest.approx(heads[0] - multiplier @ found.of(heads)[1:])


def test_where_policies_decide_more_or_less_often_the_limit_is_per_decision() -> None:
    """x_c − limit·(x_1 − 1) ≤ limit exactly where cost per decision x_c / x_1 ≤ limit; for the floor likewise.

    Money 1.2 at x_1 = 0.5 is 2.4 per decision, over 2, though x_c alone is under; messages 0.3 at 0.5 is 0.6, kept.
    """
    found = critic_coordinates(campaign(budgets=BUDGETS[:2]), OUTCOME[:, :3], steady=False)
    assert found.spread[-1] == 1
    over, kept = (found.of(np.array([0.3, money, 0.3, 0.5])) for money in (1.2, 0.9))
    np.testing.assert_allclose(over, [0.3, 1.2 + 2 * 0.5, -(0.3 + 0.5 * 0.5)])
    assert (over[1:] <= found.limits).tolist() == [False, True]
    assert (kept[1:] <= found.limits).tolist() == [True, True]
    fewer = found.of(np.array([0.3, 0.9, 0.2, 0.5]))  # 0.4 messages per decision
    assert (fewer[1:] <= found.limits).tolist() == [True, False]
    every_day = found.of(np.array([0.3, 1.2, 0.3, 1.0]))
    np.testing.assert_allclose(every_day, [0.3, 1.2, -0.3])  # x_1 = 1: the plain cost per decision


def test_a_total_per_user_does_not_care_how_often_is_decided() -> None:
    found = critic_coordinates(campaign(budgets=BUDGETS[2:3], horizon_days=5), OUTCOME[:, [0, 3]], steady=False)
    np.testing.assert_allclose(found.matrix, [[0, 5, 0]])
    assert found.constant.tolist() == [0]


def test_the_price_after_which_the_cheapest_is_best() -> None:
    """Means: (0.2, 1), (0.6, 2), (0.7, 4): the steepest gain is 0.4 a unit of cost; doubled, over 1 − γ, scaled."""
    action = np.repeat([0, 1, 2], 2)
    noise = np.tile([[-0.1, -0.5], [0.1, 0.5]], (3, 1))
    outcome = (np.repeat([[0.2, 1], [0.6, 2], [0.7, 4]], 2, axis=0) + noise).astype(np.float32)
    about = critic_coordinates(campaign(budgets=BUDGETS[:1]), outcome, steady=True)
    found = largest_multiplier(action, outcome, about, 0.8)
    assert found[0] == pytest.approx(2 / 0.2 * 0.4 * about.scale[0] / about.reward_scale, rel=1e-4)


def test_the_bound_is_never_below_one_nor_without_end() -> None:
    """Where a dearer action brings no more, and where a tiny cost brings much."""
    action = np.array([0, 1])
    for outcome, wanted in (([[0.5, 1], [0.4, 3]], 1.0), ([[0.0, 1.0], [1.0, 1.005]], 1000.0)):
        given = np.array(outcome, np.float32)
        about = critic_coordinates(campaign(budgets=BUDGETS[:1]), given, steady=True)
        assert largest_multiplier(action, given, about, 0.99).tolist() == [wanted]


def test_the_price_of_a_floor_is_that_of_bringing_more() -> None:
    """A floor's coordinate is negated: the action with fewer messages is the dear one."""
    action = np.array([0, 1])
    outcome = np.array([[0.6, 1], [0.2, 3]], np.float32)
    about = critic_coordinates(campaign(budgets=BUDGETS[1:2]), outcome, steady=True)
    wanted = 2 / 0.2 * (0.4 / 2) * about.scale[0] / about.reward_scale
    assert largest_multiplier(action, outcome, about, 0.8)[0] == pytest.approx(wanted, rel=1e-4)
