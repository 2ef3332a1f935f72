"""What mixtures are chosen by: rewards of one critic's policies, less the luck of measuring them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.choosing.candidates import shrunk
from outlay.ops.mixture_lp import solve_mixture

COST = np.linspace(0, 1, 21)
TRUE = 0.4 + 0.1 * np.sqrt(COST)  # concave: every policy is the best of its cost
SAID = 0.2 + 0.2 * np.sqrt(COST)  # the shape is right, the size is not
USERS, NOISE = 2000, 0.5


def measured(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means over users who differ, and the influence of each."""
    each = TRUE + NOISE * rng.standard_normal((USERS, len(TRUE)))
    return each.mean(axis=0), each - each.mean(axis=0)


def lost(aim: NDArray[np.float64], budget: float) -> float:
    """What the mixture chosen by `aim` falls short of the best one."""
    found = solve_mixture(np.column_stack([aim, COST]), np.array([budget]), np.ones(1))
    return float(np.interp(budget, COST, TRUE) - found.weights @ TRUE)


def test_a_mixture_of_policies_in_line_loses_little_where_one_of_lucky_policies_loses_much() -> None:
    rng = np.random.default_rng(1)
    by_luck, by_line = [], []
    for _ in range(40):
        values, influence = measured(rng)
        told, _ = shrunk(SAID, values, influence)
        by_luck.append(lost(values, 0.5))
        by_line.append(lost(told, 0.5))
    assert np.mean(by_luck) > 0.0015
    assert np.mean(by_line) < 0.2 * np.mean(by_luck)


def test_the_line_s_errors_are_those_of_its_influences() -> None:
    rng = np.random.default_rng(2)
    values, errors = [], []
    for _ in range(200):
        value, influence = shrunk(SAID, *measured(rng))
        values.append(value[-1])
        errors.append(influence[:, -1].std() / np.sqrt(USERS))
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.15)
    assert np.mean(values) == pytest.approx(TRUE[-1], abs=4 * np.std(values) / np.sqrt(200))
    assert np.mean(errors) < 0.5 * NOISE / np.sqrt(USERS)


@pytest.mark.parametrize(
    "said",
    [-SAID, np.full(len(COST), 0.3), np.where(COST > 0.5, 1.0, 0.0) * SAID],
    ids=["falling", "all alike", "off the line"],
)
def test_without_a_rising_line_that_fits_it_is_what_was_measured(said: NDArray[np.float64]) -> None:
    values, influence = measured(np.random.default_rng(3))
    influence = influence / 10  # of a log a hundred times as large
    values = TRUE + (values - TRUE) / 10
    told = shrunk(said, values, influence)
    assert told[0] is values
    assert told[1] is influence


def test_a_slope_that_the_log_cannot_tell_is_what_the_critic_says() -> None:
    """A small log in which more spending happened to go with less reward: b̂ is −2 give or take 2, its prior 1 ± 1."""
    said = 0.4 + 0.1 * COST
    rng = np.random.default_rng(5)
    user = rng.standard_normal((USERS, 1))
    user = (user - user.mean()) / user.std()
    influence = (
        2.0 * np.sqrt(USERS - 1) * user * (said - said.mean())
    )  # the slope's error is 2, and nothing else is noise
    values, carried = shrunk(said, 0.5 - 2.0 * (said - said.mean()), influence)
    assert np.diff(values)[0] == pytest.approx(np.diff(said)[0] * (0.2 * -2.0 + 0.8 * 1.0))
    assert carried == pytest.approx(influence)  # as uncertain as what was measured


def test_a_few_policies_make_no_line() -> None:
    values, influence = measured(np.random.default_rng(4))
    assert shrunk(SAID[:4], values[:4], influence[:, :4])[0] == pytest.approx(values[:4], rel=0, abs=0)
