"""The multiplier player: steps worked by hand, and when λ has settled."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.learning.multipliers import bisected, ogd_step, refined, settled

STEPS = np.arange(40)


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


def one(multiplier: object, excess: object) -> bool:
    return settled(np.array(multiplier, float)[:, None], np.array(excess, float)[:, None])


def test_it_has_not_while_it_climbs_or_falls() -> None:
    """From 0, with the limit broken throughout; or down again, kept throughout."""
    assert not one(STEPS / 40, np.ones(40))
    assert not one(2 - STEPS / 40, -np.ones(40))


def test_it_has_not_while_it_jumps_from_end_to_end() -> None:
    ends = STEPS % 2 == 0
    assert not one(ends * 1.0, np.where(ends, -1, 1))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_it_has_where_it_swings_about_its_place_in_whatever_unit(scale: float) -> None:
    swings = 1 + 0.3 * np.sin(STEPS)
    assert one(scale * swings, np.sin(STEPS))
    assert not one(scale * (1 + 0.6 * np.sin(STEPS)), np.sin(STEPS))


def test_the_way_there_is_forgotten() -> None:
    """Jumps in the first half do not matter."""
    way = np.concatenate([STEPS % 2 * 5.0, np.ones(40)])
    assert one(way, np.concatenate([np.ones(40), np.sin(STEPS)]))


def test_a_limit_that_does_not_bind_has_no_price() -> None:
    assert one(np.zeros(40), -np.ones(40))
    assert not one(np.zeros(40), np.ones(40))


def test_every_limit_must_have_its_price() -> None:
    settled_one, rising = (1 + 0.1 * np.sin(STEPS), np.sin(STEPS)), (STEPS / 40, np.ones(40))
    pairs = [np.column_stack(pair) for pair in zip(settled_one, rising, strict=True)]
    assert not settled(*pairs)
    pairs = [np.column_stack([part, part]) for part in settled_one]
    assert settled(*pairs)


def test_a_cost_that_falls_at_the_last_price_alone_has_even_prices() -> None:
    grid = refined(np.array([[0.0], [1.0], [2.0]]), np.array([[1.0], [1.0], [0.0]]))
    assert np.ptp(np.diff(grid[:, 0])) < 1e-12
    assert (grid[0, 0], grid[-1, 0]) == (0, 2)
