from __future__ import annotations

import numpy as np
import pytest
from logs_in_memory import Array, World, fit, ragged, transitions
from numpy.typing import NDArray

from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.basis import Basis, CountedBasis, FeatureBasis
from outlay.estimators.doubly_robust import DoublyRobust
from outlay.estimators.panel import Panel


def one_hot(panel: Panel, states: int = 3) -> FeatureBasis:
    return FeatureBasis(np.eye(states, dtype=np.float32)[np.asarray(panel.state)], panel.data.num_actions)


def test_four_rows_worked_by_hand() -> None:
    """A basis that knows the action alone; the old policy gave 1 with chance 0.8 to users 0, 1 and 0.2 to 2, 3.

    Of action 1: rewards 4 and 6 of users 0 and 1 (ρ = 1.25), 0 of user 2 (ρ = 5); user 3 had action 0. Fitted 10/3.
    D = (1.25 · (4 − 10/3) + 1.25 · (6 − 10/3) + 5 · (0 − 10/3)) / 4 = −3.125.
    """
    data = transitions(
        user=[0, 1, 2, 3],
        day=[0] * 4,
        state=[0] * 4,
        action=[1, 1, 1, 0],
        num_states=1,
        num_actions=2,
        outcome=[[4, 1], [6, 1], [0, 1], [3, 1]],
        propensity=[0.8, 0.8, 0.2, 0.8],
    )
    panel = Panel.of(data, CERTIFY)
    basis = FeatureBasis(np.zeros((4, 0), np.float32), 2)
    assert panel.propensity is not None
    always = np.ones(4, np.intp)
    found = DoublyRobust(panel, basis).single_steps(always, panel.propensity, days=(1,))
    assert found.targets == ("reward@1", "cost@1")
    assert found.value == pytest.approx([-3.125, 0.0], abs=1e-6)
    assert fit(panel, basis, always, days=(1,)).value[3] == pytest.approx(10 / 3)
    assert found.mass[:, 0] == pytest.approx([1.25, 1.25, 5.0, 0.0])


def longhand(panel: Panel, basis: Basis, policy: NDArray[np.intp], days: int) -> Array:
    """D(k) of the reward by loops over rows, the fitted values those of the same basis with h days left."""
    assert panel.propensity is not None
    assert panel.state is not None
    values: list[dict[int, float]] = [dict.fromkeys(range(len(panel)), 0.0)]
    total = 0.0
    for h in range(1, days + 1):
        left = panel.window[panel.user] - panel.day
        usable = [i for i in range(len(panel)) if panel.following[i] >= 0 or panel.terminal[i] or left[i] >= h]
        y = {}
        for i in usable:
            then, gap = panel.following[i], panel.gap[i]
            y[i] = panel.outcome[i, 0] + (values[max(h - gap, 0)][then] if then >= 0 and h > gap else 0.0)
        cell = {
            (s, a): np.mean([y[i] for i in usable if (panel.state[i], panel.action[i]) == (s, a)])
            for s in range(3)
            for a in range(2)
        }
        target = np.where(panel.forced, panel.action, policy)
        values.append({i: cell[panel.state[i], target[i]] for i in range(len(panel))})
        ratio = np.where(panel.forced, 1.0, (target == panel.action) / panel.propensity)
        total += np.mean([ratio[i] * (y[i] - cell[panel.state[i], panel.action[i]]) for i in usable])
    return np.array(total)


def by_more(seed: int) -> Transitions:
    """`ragged`, with propensities that differ within a state."""
    data = ragged(seed, users=100)
    assert data.propensity is not None
    data.propensity[:] = np.random.default_rng(seed).choice([0.3, 0.6], len(data.propensity))
    return data


@pytest.mark.parametrize("seed", [2, 3])
def test_gaps_ends_and_forced_rows_agree_with_longhand_loops(seed: int) -> None:
    panel = Panel.of(by_more(seed), CERTIFY)
    policy = np.array([0, 1, 1])[np.asarray(panel.state)]
    assert panel.propensity is not None
    for basis in (one_hot(panel), CountedBasis(np.asarray(panel.state), 3, 2)):
        found = DoublyRobust(panel, basis).single_steps(policy, panel.propensity, days=(1, 2, 5))
        for k in (1, 2, 5):
            assert found.value[found.column(f"reward@{k}")] == pytest.approx(
                longhand(panel, basis, policy, k), abs=1e-6
            )


def test_nothing_is_left_where_the_basis_tells_the_states_and_the_propensities_depend_on_them_alone() -> None:
    world = World.drawn(4)
    panel = Panel.of(world.log(500, 4, np.random.default_rng(1)), CERTIFY)
    assert panel.propensity is not None
    drawn = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])[np.asarray(panel.state)]
    for policy in (drawn, np.ones(len(panel), np.intp), None):
        found = DoublyRobust(panel, one_hot(panel)).single_steps(policy, panel.propensity, days=(1, 3))
        assert found.value == pytest.approx(np.zeros(4), abs=1e-6)
        assert found.std_error == pytest.approx(np.zeros(4), abs=1e-6)


def test_it_says_what_a_poor_basis_is_wrong_by_and_its_intervals_hold() -> None:
    """A basis that knows no states gives an action's mean over the rows that had it; the truth, its mean over all."""
    world, policy = World.drawn(7), np.array([1, 0, 1])
    start, reward, chance = world.cmdp.start, world.cmdp.reward, world.behaviour
    by_action = (start @ (chance * reward)) / (start @ chance)
    bias = start @ (reward[np.arange(3), policy] - by_action[policy])
    logs, off = 200, []
    for seed in range(logs):
        panel = Panel.of(world.log(400, 1, np.random.default_rng(seed)), CERTIFY)
        basis, taken = FeatureBasis(np.zeros((len(panel), 0), np.float32), 2), policy[np.asarray(panel.state)]
        assert panel.propensity is not None
        found = DoublyRobust(panel, basis).single_steps(taken, panel.propensity, days=(1,))
        off.append((found.value[0] - bias) / found.std_error[0])
    assert abs(bias) > 0.02
    assert abs(np.mean(off)) < 4 / np.sqrt(logs)
    assert 0.9 < np.mean(np.abs(off) < 1.96) < 0.99
