from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from myopic import constant_points, one_day_points
from outlay.core.cmdp import ModelError, TabularCMDP
from outlay.ops.mixture_lp import value_at
from outlay.ops.tabular import constrained_optimum, measure


def random_cmdp(seed: int, S: int = 4, A: int = 5, m: int = 1, discount: float = 0.9) -> TabularCMDP:
    rng = np.random.default_rng(seed)
    return TabularCMDP(
        transition=rng.dirichlet(np.full(S, 0.5), size=(S, A)),
        reward=rng.random((S, A)),
        cost=rng.random((S, A, m)),
        start=rng.dirichlet(np.ones(S)),
        discount=discount,
    )


def one_state(reward: list[float], cost: list[float]) -> TabularCMDP:
    count = len(reward)
    return TabularCMDP(
        transition=np.ones((1, count, 1)),
        reward=np.array([reward]),
        cost=np.array([cost])[:, :, None],
        start=np.ones(1),
        discount=0.5,
    )


def test_one_state_by_hand() -> None:
    """Free 0; 1 yuan wins 3; 2 yuan win 4, below the line to 3 yuan and 6; 4 yuan win less. Slopes 3 and 3/2."""
    found = one_day_points(one_state([0, 3, 4, 6, 5], [0, 1, 2, 3, 4]))
    np.testing.assert_array_equal(found.policies[:, 0], [0, 1, 3])
    np.testing.assert_allclose(found.prices, [np.inf, 3, 1.5])
    np.testing.assert_allclose(found.measurements, [[0, 0], [3, 1], [6, 3]])


def test_of_two_free_actions_the_better_is_taken_and_nobody_pays_for_less() -> None:
    np.testing.assert_array_equal(one_day_points(one_state([2, 3, 1], [1, 1, 5])).policies, [[1]])


@pytest.mark.parametrize("seed", range(5))
def test_every_policy_is_the_best_one_day_answer_between_its_prices(seed: int) -> None:
    cmdp = random_cmdp(seed)
    found = one_day_points(cmdp)
    ends = np.append(found.prices, 0.0)
    assert (np.diff(ends) < 0).all()
    for policy, x, high, low in zip(found.policies, found.measurements, ends[:-1], ends[1:], strict=True):
        price = 2 * low + 1 if np.isinf(high) else (high + low) / 2
        np.testing.assert_array_equal(policy, (cmdp.reward - price * cmdp.cost[:, :, 0]).argmax(axis=1))
        np.testing.assert_allclose(x, measure(cmdp, policy))


def test_without_a_tomorrow_nobody_does_better() -> None:
    """At discount 0 the problem is the knapsack itself, so the 1-day allocator is the optimum at every spend."""
    cmdp = random_cmdp(3, discount=0.0)
    points = one_day_points(cmdp).measurements
    for spend in np.linspace(points[0, 1] + 1e-6, points[-1, 1], 7):
        assert value_at(points, spend) == pytest.approx(constrained_optimum(cmdp, [spend]).value, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_with_a_tomorrow_it_never_beats_the_optimum(seed: int) -> None:
    cmdp = random_cmdp(seed)
    points = one_day_points(cmdp).measurements
    spend = float(np.median(points[:, 1]))
    assert value_at(points, spend) <= constrained_optimum(cmdp, [spend]).value + 1e-9


def brute_value(points: NDArray[np.float64], spend: float) -> float:
    """The best pair of points, mixed to meet the spend."""
    best = points[points[:, 1] <= spend, 0].max()
    for (r0, c0), (r1, c1) in product(points, points):
        if c0 < spend < c1:
            best = max(best, r0 + (r1 - r0) * (spend - c0) / (c1 - c0))
    return float(best)


def test_a_mixture_meets_the_spend_with_the_best_pair() -> None:
    points = constant_points(random_cmdp(7, A=8))
    assert points.shape == (8, 2)
    for spend in np.linspace(points[:, 1].min() * 1.001, points[:, 1].max() * 1.1, 9):
        assert value_at(points, spend) == pytest.approx(brute_value(points, spend), abs=1e-9)


def test_what_has_no_answer_is_told() -> None:
    with pytest.raises(ModelError, match=r"cost: has 2 costs; .* 1"):
        one_day_points(random_cmdp(0, m=2))
    with pytest.raises(ModelError, match=r"spend: is 0\.1; .*\b0\.5 or more"):
        value_at(np.array([[1.0, 0.5], [2.0, 0.7]]), 0.1)
