from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.cmdp import ModelError, TabularCMDP
from outlay.core.errors import InfeasibleError
from outlay.ops.tabular import action_values, constrained_optimum, measure, policy_iteration, reachable_limits, totals


def random_cmdp(seed: int, S: int = 3, A: int = 3, m: int = 1, discount: float = 0.9) -> TabularCMDP:
    rng = np.random.default_rng(seed)
    return TabularCMDP(
        transition=rng.dirichlet(np.full(S, 0.5), size=(S, A)),
        reward=rng.random((S, A)),
        cost=rng.random((S, A, m)),
        start=rng.dirichlet(np.ones(S)),
        discount=discount,
    )


def all_policies(cmdp: TabularCMDP) -> list[NDArray[np.intp]]:
    return [np.array(choice) for choice in product(range(cmdp.num_actions), repeat=cmdp.num_states)]


def test_one_state_by_hand() -> None:
    """Reward 2, cost 3 every day: (1−γ)·J is 2 and 3; three days bring 6 and cost 9."""
    cmdp = TabularCMDP(
        transition=np.ones((1, 1, 1)),
        reward=np.array([[2.0]]),
        cost=np.array([[[3.0]]]),
        start=np.ones(1),
        discount=0.8,
    )
    stay = np.zeros(1, dtype=np.intp)
    np.testing.assert_allclose(measure(cmdp, stay), [2, 3])
    np.testing.assert_allclose(totals(cmdp, stay, 3), [[2, 3], [4, 6], [6, 9]])


def test_measure_is_the_discounted_sum_of_daily_totals() -> None:
    cmdp = random_cmdp(0, m=2)
    policy = np.random.default_rng(1).dirichlet(np.ones(3), size=3)
    daily = np.diff(totals(cmdp, policy, 400), axis=0, prepend=0)
    expected = (1 - 0.9) * (0.9 ** np.arange(400)) @ daily
    np.testing.assert_allclose(measure(cmdp, policy), expected, rtol=1e-12)


def test_a_deterministic_policy_and_its_probabilities_measure_alike() -> None:
    cmdp = random_cmdp(2)
    policy = np.array([2, 0, 1])
    np.testing.assert_allclose(measure(cmdp, policy), measure(cmdp, np.eye(3)[policy]))
    np.testing.assert_allclose(totals(cmdp, policy, 5), totals(cmdp, np.eye(3)[policy], 5))


def test_action_values_of_the_taken_actions_average_to_the_measurement() -> None:
    cmdp = random_cmdp(3, m=2)
    policy = np.array([1, 1, 2])
    taken = action_values(cmdp, policy)[np.arange(3), policy]
    np.testing.assert_allclose(cmdp.start @ taken, measure(cmdp, policy))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("dual", [0.0, 0.5, 3.0])
def test_policy_iteration_finds_the_best_of_all_policies(seed: int, dual: float) -> None:
    cmdp = random_cmdp(seed)
    w = np.array([1.0, -dual])
    best = max(measure(cmdp, policy) @ w for policy in all_policies(cmdp))
    assert measure(cmdp, policy_iteration(cmdp, w)) @ w == pytest.approx(best, abs=1e-12)


def test_policy_iteration_stops_when_all_actions_are_equal() -> None:
    cmdp = random_cmdp(4)
    same = replace(cmdp, reward=np.ones((3, 3)), cost=np.zeros((3, 3, 1)), discount=0.9999)
    assert policy_iteration(same, [1.0, -1.0]).tolist() == [0, 0, 0]


def test_policy_iteration_keeps_to_the_allowed_actions() -> None:
    cmdp = random_cmdp(5)
    allowed = np.array([[True, False, False], [False, True, True], [True, True, False]])
    policy = policy_iteration(cmdp, [1.0, 0.0], allowed=allowed)
    assert allowed[np.arange(3), policy].all()
    may = [p for p in all_policies(cmdp) if allowed[np.arange(3), p].all()]
    assert measure(cmdp, policy)[0] == pytest.approx(max(measure(cmdp, p)[0] for p in may))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_optimum_is_the_best_mixture_of_two_policies(seed: int, share: float) -> None:
    """With one budget the optimum mixes at most two deterministic policies: try all pairs."""
    cmdp = random_cmdp(seed)
    points = np.array([measure(cmdp, policy) for policy in all_policies(cmdp)])
    low, high = points[:, 1].min(), points[points[:, 0].argmax(), 1]
    limit = low + share * (high - low)
    best = points[points[:, 1] <= limit, 0].max()
    for one, two in combinations(points, 2):
        if (one[1] - limit) * (two[1] - limit) < 0:
            weight = (limit - two[1]) / (one[1] - two[1])
            best = max(best, weight * one[0] + (1 - weight) * two[0])
    optimum = constrained_optimum(cmdp, [limit])
    assert optimum.value == pytest.approx(best, abs=1e-8)
    assert optimum.measurement[1] <= limit + 1e-8
    np.testing.assert_allclose(optimum.policy.sum(axis=1), 1)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("discount", [0.0, 0.8, 0.95])
def test_the_dual_proves_the_optimum_on_larger_models(m: int, discount: float) -> None:
    """Strong duality: the best response to λ is worth as much as the optimum, counted with λᵀlimit."""
    cmdp = random_cmdp(7, S=50, A=4, m=m, discount=discount)
    scales = np.array([1.0, 1e6, 1e-3])[:m]  # units must not matter
    cmdp = replace(cmdp, cost=cmdp.cost * scales)
    limits = measure(cmdp, np.full((50, 4), 0.25))[1:] * 0.9
    optimum = constrained_optimum(cmdp, limits)
    assert (optimum.dual >= 0).all()
    assert (optimum.dual > 0).any()
    assert (optimum.measurement[1:] <= limits * (1 + 1e-7)).all()
    best = measure(cmdp, policy_iteration(cmdp, np.concatenate([[1.0], -optimum.dual])))
    assert best[0] - optimum.dual @ (best[1:] - limits) == pytest.approx(optimum.value, abs=1e-7)
    assert np.count_nonzero((optimum.policy > 1e-9).sum(axis=1) > 1) <= m


def test_no_limit_gives_the_unconstrained_best() -> None:
    cmdp = random_cmdp(8, m=2)
    optimum = constrained_optimum(cmdp, [np.inf, np.inf])
    assert optimum.value == pytest.approx(measure(cmdp, policy_iteration(cmdp, [1.0, 0.0, 0.0]))[0])
    assert optimum.dual.tolist() == [0.0, 0.0]


def test_the_smallest_reachable_cost_is_itself_a_limit_and_less_is_infeasible() -> None:
    cmdp = random_cmdp(9)
    least = measure(cmdp, policy_iteration(cmdp, [0.0, -1.0]))[1]
    assert constrained_optimum(cmdp, [least]).measurement[1] == pytest.approx(least, abs=1e-8)
    with pytest.raises(InfeasibleError, match=rf"kept from {least:.4g}"):
        constrained_optimum(cmdp, [least * 0.9])


def test_limits_that_only_together_are_infeasible_say_so() -> None:
    """Costs c and 1 − c: either alone can be nearly 0, both together add up to 1."""
    cmdp = random_cmdp(10)
    both = replace(cmdp, cost=np.concatenate([cmdp.cost, 1 - cmdp.cost], axis=2))
    with pytest.raises(InfeasibleError, match="these limits together") as caught:
        constrained_optimum(both, [0.45, 0.45])
    assert "kept from 0.5" in str(caught.value)


def test_limits_out_of_reach_are_raised_until_a_policy_keeps_them() -> None:
    """A limit that does not exist stays so; less than what is told cannot be kept."""
    cmdp = random_cmdp(10)
    both = replace(cmdp, cost=np.concatenate([cmdp.cost, 1 - cmdp.cost, cmdp.cost], axis=2))
    found = reachable_limits(both, np.array([0.45, 0.45, np.inf]))
    assert found[2] == np.inf
    assert found[0] + found[1] == pytest.approx(1)
    constrained_optimum(both, found + 1e-6)
    with pytest.raises(InfeasibleError):
        constrained_optimum(both, found - 1e-4)


def test_the_optimum_uses_only_allowed_actions() -> None:
    cmdp = random_cmdp(11)
    allowed = np.array([[True, False, True], [False, True, True], [True, True, False]])
    assert not constrained_optimum(cmdp, [0.6], allowed=allowed).policy[~allowed].any()


def test_wrong_weights_limits_and_masks_are_named() -> None:
    cmdp = random_cmdp(12)
    with pytest.raises(ModelError, match="weights"):
        policy_iteration(cmdp, [1.0])
    with pytest.raises(ModelError, match="limits"):
        constrained_optimum(cmdp, [1.0, 2.0])
    with pytest.raises(ModelError, match="limits"):
        constrained_optimum(cmdp, [np.nan])
    with pytest.raises(ModelError, match=r"allowed\[1\]: no action"):
        policy_iteration(cmdp, [1.0, 0.0], allowed=np.array([[True] * 3, [False] * 3, [True] * 3]))
