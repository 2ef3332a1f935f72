"""One network for every λ: the grid, and what it learns against exact best responses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP
from outlay.core.transitions import LEARN, SELECT
from outlay.learning import critic as critics
from outlay.learning import critic_grid
from outlay.learning.critic import CriticSettings, Oracle, act
from outlay.learning.critic_grid import FrontierTraining, between
from outlay.learning.fresh import settings_of
from outlay.learning.heads import critic_coordinates
from outlay.learning.multipliers import POINTS, pilot_grid, refined
from outlay.nets.network import Shape, apply_pair, init_pair
from outlay.ops.mixture_lp import solve_mixture
from outlay.ops.tabular import constrained_optimum, measure
from small_logs import campaign, draw, random_cmdp


def test_the_pilot_runs_along_each_axis_and_has_as_many_policies_as_the_grid() -> None:
    for count, points in POINTS.items():
        bound = np.arange(1.0, count + 1)
        grid = pilot_grid(bound)
        assert grid.shape == (points**count, count)
        assert ((grid > 0).sum(axis=1) <= 1).all()
        assert grid.max(axis=0) == pytest.approx(bound)
        assert len(np.unique(grid, axis=0)) == len(grid)


def test_the_grid_is_laid_where_the_cost_falls_and_ends_at_its_floor_and_the_bound() -> None:
    """The cost falls from 2 to 0 between λ = 1 and 2 and nowhere else; the pilot went up to 64."""
    pilot = pilot_grid(np.array([64.0]))
    cost = np.clip(2 * (2 - pilot), 0, 2)
    grid = refined(pilot, cost)[:, 0]
    assert len(grid) == len(pilot)
    assert grid[0] == 0
    assert grid[-1] == 64
    assert 1.5 < grid[-2] < 2.7  # the pilot steps by a factor of 1.3
    # What falls between 1 and 2 gets most of the points, though it is a 64th of the range.
    assert ((grid > 0.9) & (grid < 2.1)).sum() > len(grid) / 2


def test_a_cost_that_rises_by_noise_still_gives_a_grid() -> None:
    pilot = pilot_grid(np.array([1.0]))
    grid = refined(pilot, np.random.default_rng(0).random(pilot.shape))[:, 0]
    assert (np.diff(grid) >= 0).all()
    flat = refined(pilot, np.ones(pilot.shape))[:, 0]
    assert flat[0] == 0
    assert flat[-1] == 1


def test_heads_between_two_λ_begin_between_theirs() -> None:
    old = np.array([[0.0], [1.0], [4.0]])
    new = np.array([[0.0], [0.25], [2.5], [4.0]])
    wanted = [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    np.testing.assert_allclose(between(old, new), np.array(wanted))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_adds_up_along_the_axes_is_carried_over_exactly(count: int) -> None:
    """A function that is linear along each axis, from the pilot to a product of axes and on to another."""
    slope = np.arange(1.0, count + 1)

    def linear(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return 3 + at @ slope

    pilot = pilot_grid(np.ones(count))
    cost = np.stack([2 - pilot[:, j] for j in range(count)], axis=1)
    first = refined(pilot, cost)
    np.testing.assert_allclose(between(pilot, first) @ linear(pilot), linear(first))
    second = refined(first, np.exp(-3 * first))
    mixing = between(first, second)
    np.testing.assert_allclose(mixing @ linear(first), linear(second))
    np.testing.assert_allclose(mixing.sum(axis=1), 1)


def test_a_moved_critic_says_at_the_old_λ_what_it_said() -> None:
    shape = Shape((4,), 0, 3, 2, 0, False, (8,), 2, num_policies=3)
    critic = critics.init(init_pair(shape, 0), CriticSettings("ddqn", 0.8, 1e-3, 0.99, 0.8, 1, 1, 0.3))
    old, new = np.array([[0.0], [1.0], [4.0]]), np.array([[0.0], [4.0], [2.5]])
    moved = critic_grid._moved(critic, between(old, new))
    codes, numbers = np.arange(4)[:, None], np.empty((4, 0))
    before, after = (
        np.asarray(apply_pair(pair, jnp.asarray(codes), jnp.asarray(numbers)).q)
        for pair in (critic.online, moved.online)
    )
    np.testing.assert_allclose(after[..., 0, :], before[..., 0, :], rtol=1e-5)
    np.testing.assert_allclose(after[..., 1, :], before[..., 2, :], rtol=1e-5)
    np.testing.assert_allclose(after[..., 2, :], (before[..., 1, :] + before[..., 2, :]) / 2, rtol=1e-4, atol=1e-6)


def training(
    oracle: Oracle, *, counted: bool = True, budgets: int = 1, steps: int = 3000, seed: int = 25
) -> tuple[FrontierTraining, TabularCMDP]:
    about = campaign(
        0.8,
        [{"name": name, "cost": name, "at_most": 0.8} for name in "abc"[:budgets]],
        {"layers": [16], "embedding": 4, "batch": 256, "min_steps": steps, "epochs": 0.1},
    )
    model = random_cmdp(seed, costs=budgets)
    split = np.repeat([LEARN, SELECT], [1800, 200])
    data = draw(model, 2000, 8, seed=0, about=about, split=split, counted=counted)
    coords = critic_coordinates(about, data.outcome, steady=True)
    learning = settings_of(about.train, oracle, 0.8)._replace(learning_rate=5e-3)
    return FrontierTraining(
        data, about.train, coords, np.full(budgets, 3.0), 0, data.rows_of(LEARN), 0, learning
    ), model


def learned_policies(frontier: FrontierTraining) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`[L, m]` λ and `[L, S]` actions in the model's states."""
    *_, progress = frontier.blocks(frontier.begin())
    codes, numbers = np.arange(3)[:, None], np.zeros((3, frontier.data.number_columns.shape[1]), np.float32)
    states = frontier.data.schema  # the states of small logs are numbered in their one field
    outputs = apply_pair(progress.learner.critic.target, jnp.asarray(codes + states.sizes[0] - 3), jnp.asarray(numbers))
    best = act(outputs, progress.learner.weights, jnp.ones((3, 3), bool), frontier.settings.threshold)
    return progress.multipliers, np.asarray(best).T


@pytest.mark.parametrize(
    ("oracle", "counted", "steps"),
    [
        pytest.param("ddqn", True, 1500, marks=pytest.mark.slow),
        ("edrr", False, 1500),
        pytest.param("bcq", True, 1500, marks=pytest.mark.slow),
    ],
)
def test_one_training_reaches_the_optimum_of_every_budget(oracle: Oracle, counted: bool, steps: int) -> None:
    """Against the occupancy program, at nine budgets; what constants can do is far below."""
    problem, model = training(oracle, counted=counted, steps=steps)
    _, policies = learned_policies(problem)
    x = np.array([measure(model, policy) for policy in policies])
    constants = np.array([measure(model, np.full(3, a)) for a in range(3)])
    limits = np.linspace(x[:, 1].min(), x[:, 1].max(), 11)[1:-1]
    best = np.array([constrained_optimum(model, [limit]).value for limit in limits])

    def mixed(points: NDArray[np.float64]) -> NDArray[np.float64]:
        solved = [solve_mixture(points, np.array([limit]), np.ones(1)) for limit in limits]
        return np.array([s.weights @ points[:, 0] if s.feasible else np.nan for s in solved])

    assert np.nanmax(best / mixed(constants)) > 1.05
    assert (mixed(x) > 0.985 * best).all()


@pytest.mark.slow
def test_with_two_budgets_the_grid_comes_near_the_optimum_of_both() -> None:
    """A grid of 49 λ is coarse for three states, where one λ decides between few policies: near is not at."""
    problem, model = training("ddqn", budgets=2, seed=3)
    corners = np.array([measure(model, np.array(policy)) for policy in product(range(3), repeat=3)])
    limits = 0.5 * (corners[:, 1:].min(axis=0) + corners[:, 1:].max(axis=0))
    problem = replace(problem, coords=replace(problem.coords, form=problem.coords.form._replace(limits=limits)))
    multipliers, policies = learned_policies(problem)
    assert multipliers.shape == (49, 2)
    found = solve_mixture(np.array([measure(model, policy) for policy in policies]), limits, np.ones(2))
    value = found.weights @ np.array([measure(model, policy)[0] for policy in policies])
    assert found.feasible
    assert value > 0.99 * constrained_optimum(model, limits).value


@pytest.mark.slow
def test_the_same_seed_gives_the_same_frontier() -> None:
    first, second = (learned_policies(training("ddqn", steps=300)[0]) for _ in range(2))
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])
