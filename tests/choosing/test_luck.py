"""What mixtures are chosen by: measured objectives, less the luck of measuring them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.choosing.luck import concave, shrunk
from outlay.ops.intervals import std_error
from outlay.ops.mixture_lp import solve_mixture

COST = np.linspace(0, 1, 21)
ALONE = 0.4 + 0.1 * np.sqrt(COST)  # what a policy brings with the log's days before it
USERS = 2000

Floats = NDArray[np.float64]


def measured(rng: np.random.Generator, true: Floats, noise: float) -> tuple[Floats, Floats]:
    """Means over users who differ, and the influence of each."""
    each = true + noise * rng.standard_normal((USERS, len(true)))
    return each.mean(axis=0), each - each.mean(axis=0)


def lost(aim: Floats, true: Floats) -> float:
    """What the mixture chosen by `aim` for half of the cost falls short of the best one."""
    points = np.array([0.5]), np.ones(1)
    best, found = (solve_mixture(np.column_stack([by, COST]), *points).weights for by in (true, aim))
    return float((best - found) @ true)


@pytest.mark.parametrize(
    "together",
    [0 * COST, 0 * COST + 0.1, -0.3 * COST, 0.3 * COST],
    ids=["nothing", "the same for all", "offers tire", "habits add up"],
)
def test_a_choice_loses_little_by_noise_and_little_by_what_days_in_a_row_do(together: Floats) -> None:
    """In three worlds of four one of the two estimates alone chooses badly; the shrunk one never does."""
    rng, true = np.random.default_rng(1), ALONE + together
    by_luck, by_steady, by_shrunk = list[float](), list[float](), list[float]()
    for _ in range(40):
        steady, free = measured(rng, ALONE, 0.02), measured(rng, true, 0.5)
        by_steady.append(lost(steady[0], true))
        by_luck.append(lost(free[0], true))
        by_shrunk.append(lost(shrunk(*steady, *free)[0], true))
    assert np.mean(by_shrunk) < max(0.003, 0.7 * max(sum(by_luck), sum(by_steady)) / 40)
    assert np.mean(by_shrunk) < 1.2 * np.mean(by_luck)


def test_without_noise_it_is_what_was_measured() -> None:
    rng, true = np.random.default_rng(2), ALONE - 0.3 * COST
    steady, free = measured(rng, ALONE, 1e-4), measured(rng, true, 1e-4)
    value, influence = shrunk(*steady, *free)
    np.testing.assert_allclose(value, true, atol=1e-4)
    np.testing.assert_allclose(influence, free[1], atol=1e-4)


def test_differences_that_are_noise_are_left_out_and_so_are_their_influences() -> None:
    rng = np.random.default_rng(3)
    steady, free = measured(rng, ALONE, 0.02), measured(rng, ALONE, 20.0)
    value, influence = shrunk(*steady, *free)
    error = 20.0 / np.sqrt(USERS)
    assert np.abs(value - steady[0]).max() < 1.5 * error
    assert influence.std() < 0.7 * free[1].std()


def test_one_policy_is_a_family_of_its_own() -> None:
    rng = np.random.default_rng(4)
    steady, free = measured(rng, ALONE[:1], 0.02), measured(rng, ALONE[:1] - 0.2, 0.02)
    assert shrunk(*steady, *free)[0] == pytest.approx(free[0], abs=1e-4)


def test_a_slope_that_the_log_cannot_tell_is_held_to_one() -> None:
    """A small log in which more spending happened to go with less reward: b̂ is −2 give or take 2, its prior 1 ± 1."""
    said = 0.4 + 0.1 * COST
    user = np.random.default_rng(5).standard_normal((USERS, 1))
    user = (user - user.mean()) / user.std()
    about = said - said.mean()
    influence = 2.0 * np.sqrt(USERS - 1) * user * about  # the slope's error is 2; nothing else is noise
    value, carried = shrunk(said, 0 * influence, 0.5 - 2.0 * about, influence)
    held = 0.2 * -2.0 + 0.8 * 1.0
    own = 1 - (0.8 * 2.0) ** 2 / (-2.0 - held) ** 2  # of what is off the line that is held
    assert np.diff(value) == pytest.approx(np.diff(said) * (held + own * (-2.0 - held)), rel=0.02)
    assert np.isfinite(carried).all()


def test_a_policy_that_gives_little_stays_as_measured() -> None:
    """Its cost has a hundredth of the noise of the dearest; a line through all alike would move it by their noise."""
    rng, noise = np.random.default_rng(6), 0.002 + 0.2 * COST
    steady, influence = measured(rng, COST, 0.002)
    about = rng.standard_normal((USERS, 1))
    free_influence = influence + np.sqrt(USERS) * noise * (about - about.mean())
    value, carried = shrunk(steady, influence, COST + 0.5 * noise, free_influence)
    assert abs(value[0] - COST[0]) < 0.003
    assert std_error(carried)[0] < 0.01 < 0.1 < std_error(free_influence)[10]


@pytest.mark.parametrize("policies", [1, 2, 3])
def test_small_families_and_policies_without_noise_have_finite_values(policies: int) -> None:
    steady = np.zeros(policies), np.zeros((USERS, policies))  # constant actions that cost nothing in the log
    for value in shrunk(*steady, steady[0] + 0.1, steady[1]):
        assert np.isfinite(value).all()
    assert shrunk(*steady, steady[0] + 0.1, steady[1])[0] == pytest.approx(0.1)


def falls_short(true: Floats, noise: float) -> tuple[float, float]:
    """What mixtures fall short of the best by measured objectives, and by what `concave` makes of them; means of 40."""
    rng, by_luck, by_shape = np.random.default_rng(0), list[float](), list[float]()
    for _ in range(40):
        value, influence = measured(rng, true, noise)
        by_luck.append(lost(value, true))
        by_shape.append(lost(concave(value, influence, COST)[0], true))
    return float(np.mean(by_luck)), float(np.mean(by_shape))


def test_best_responses_are_mixed_with_their_neighbours_where_luck_alone_would_mix_distant_ones() -> None:
    by_luck, by_shape = falls_short(ALONE, 0.8)
    assert by_shape < 0.5 * by_luck
    by_luck, by_shape = falls_short(ALONE - 0.15 * COST, 0.8)  # the dearest bring less than some cheaper ones
    assert by_shape < 1.3 * by_luck


def test_a_curve_that_bends_the_other_way_by_more_than_noise_is_left_so() -> None:
    """Habits that only a dear policy builds: half of the users on it are worth more than all on one between."""
    steep = 0.4 + 0.3 * COST**3
    assert lost(-((COST - 0.5) ** 2), steep) > 0.1
    by_luck, by_shape = falls_short(steep, 0.4)
    assert by_shape <= 1.05 * by_luck < 0.01


def test_influences_are_those_of_the_values() -> None:
    rng = np.random.default_rng(3)
    value, influence = measured(rng, ALONE, 0.4)
    told = concave(value, influence, COST)[1]
    assert std_error(told).mean() < std_error(influence).mean()
    assert np.abs(told.mean(axis=0)).max() < 1e-12
