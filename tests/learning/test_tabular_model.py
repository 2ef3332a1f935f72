"""The counted model against longhand, and its best responses against the occupancy program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from outlay.bundles.reference import forward
from outlay.core.arrays import lookup_network
from outlay.core.bodies import StateTable
from outlay.core.cmdp import TabularCMDP
from outlay.core.inequalities import Inequalities
from outlay.core.transitions import LEARN, SELECT, States
from outlay.learning import tabular
from outlay.learning.heads import Coordinates
from outlay.learning.tabular import counted_model, plug_in, table_network
from outlay.ops.mixture_lp import solve_mixture
from outlay.ops.tabular import constrained_optimum, measure
from small_logs import campaign, draw, random_cmdp, transitions


def test_a_small_log_is_counted_as_written_by_hand() -> None:
    """Two states, two actions. Users 0 and 1 select; user 2 learns, and is not counted.

    (0, a0): moves to 1, 0, 1 → P = (1/3, 2/3); rewards 1, 2, 3, and 6 in a last row, which moves nowhere: mean 3.
    (1, a1): moves to 0 once; rewards 4 and 8: mean 6.   (0, a1) and (1, a0) never happen:
    they take the mean of their action, 3 and 6, and the moves of their state: (1/3, 2/3) and (1, 0).
    """
    data = transitions(
        user=[0, 0, 0, 0, 1, 1, 2, 2],
        day=[0, 1, 2, 3, 0, 1, 0, 1],
        state=[0, 1, 0, 0, 0, 1, 1, 1],
        action=[0, 1, 0, 0, 0, 1, 0, 1],
        outcome=[[1, 0], [4, 1], [2, 0], [6, 0], [3, 0], [8, 3], [99, 9], [99, 9]],
        num_states=2,
        num_actions=2,
        about=campaign(0.9),
        split=[SELECT, SELECT, LEARN],
    )
    found = counted_model(data, SELECT)
    assert found is not None
    np.testing.assert_allclose(found.transition[0], [[1 / 3, 2 / 3], [1 / 3, 2 / 3]])
    np.testing.assert_allclose(found.transition[1], [[1, 0], [1, 0]], atol=1e-11)
    np.testing.assert_allclose(found.reward, [[3, 6], [3, 6]])
    np.testing.assert_allclose(found.cost[:, :, 0], [[0, 2], [0, 2]])
    assert found.start.tolist() == [1, 0]
    assert found.discount == 0.9


def test_a_state_that_is_never_left_stays() -> None:
    data = transitions(
        user=[0, 0],
        day=[0, 1],
        state=[0, 1],
        action=[0, 1],
        outcome=np.ones((2, 2)),
        num_states=2,
        num_actions=2,
        split=SELECT,
    )
    found = counted_model(data, SELECT)
    assert found is not None
    np.testing.assert_allclose(found.transition[1], [[0, 1], [0, 1]])


def test_many_rows_give_the_model_back() -> None:
    model = random_cmdp(1, states=4)
    found = counted_model(draw(model, 20_000, 6, seed=0, split=SELECT), SELECT)
    assert found is not None
    np.testing.assert_allclose(found.transition, model.transition, atol=0.02)
    np.testing.assert_allclose(found.outcome, model.outcome, atol=1e-6)  # outcomes are their expectations here
    np.testing.assert_allclose(found.start, model.start, atol=0.02)


def test_the_start_population_is_that_of_the_start_rows() -> None:
    """With `start = latest` those are the last rows."""
    data = draw(random_cmdp(1), 500, 6, seed=0, split=SELECT)
    assert data.state is not None
    users = data.users.copy()
    users["start_row"] += 5
    found = counted_model(replace(data, users=users), SELECT)
    assert found is not None
    np.testing.assert_allclose(found.start, np.bincount(data.state[5::6], minlength=3) / 500)


def test_it_does_not_apply_without_a_table_of_states_nor_where_decisions_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_cmdp(1)
    assert counted_model(draw(model, 50, 4, seed=0, split=SELECT, counted=False), SELECT) is None
    assert counted_model(draw(model, 50, 4, seed=0, split=SELECT, steady=False), SELECT) is None
    data = draw(model, 50, 4, seed=0, split=SELECT)
    assert counted_model(data, SELECT) is not None
    monkeypatch.setattr(tabular, "MOST_STATES", 2)
    assert counted_model(data, SELECT) is None


def model(seed: int, *, costs: int = 1, states: int = 8, actions: int = 5) -> TabularCMDP:
    rng = np.random.default_rng(seed)
    return TabularCMDP(
        transition=rng.dirichlet(np.full(states, 0.5), (states, actions)),
        reward=rng.random((states, actions)),
        cost=rng.random((states, actions, costs)),
        start=rng.dirichlet(np.ones(states)),
        discount=0.9,
    )


def coordinates(limits: list[float], signs: list[float] | None = None) -> Coordinates:
    count = len(limits)
    sign = np.array(signs or [1.0] * count)
    matrix = np.column_stack([np.zeros(count), np.diag(sign)])
    return Coordinates(
        matrix,
        np.zeros(count),
        Inequalities(sign, sign * np.array(limits), np.ones(count, np.bool_)),
        np.ones(count),
        1.0,
        np.ones(1 + count),
    )


@pytest.mark.parametrize("seed", range(4))
def test_mixtures_of_the_corners_reach_the_optimum_of_every_budget(seed: int) -> None:
    cmdp = model(seed)
    multiplier, policies = plug_in(cmdp, coordinates([0.3]), np.ones((8, 5), np.bool_))
    x = np.array([measure(cmdp, policy) for policy in policies])
    assert (np.diff(multiplier[:, 0]) > 0).all()
    assert (np.diff(x[:, 1]) < 1e-12).all()  # the cost falls as λ grows
    for limit in np.linspace(x[:, 1].min(), x[:, 1].max(), 15):
        found = solve_mixture(x, np.array([limit]), np.ones(1))
        assert found.weights @ x[:, 0] == pytest.approx(constrained_optimum(cmdp, [limit]).value, abs=1e-6)


@pytest.mark.parametrize("signs", [[1.0, 1.0], [1.0, -1.0]])
def test_with_two_limits_the_campaigns_own_optimum_is_among_the_mixtures(signs: list[float]) -> None:
    cmdp = model(5, costs=2)
    middle = measure(cmdp, np.full((8, 5), 0.2))[1:]
    limits = [0.9 * middle[0], middle[1] * (0.95 if signs[1] > 0 else 1.02)]
    coords = coordinates(limits, signs)
    _, policies = plug_in(cmdp, coords, np.ones((8, 5), np.bool_))
    x = np.array([measure(cmdp, policy) for policy in policies]) * np.array([1.0, *signs])
    found = solve_mixture(x, coords.limits, np.ones(2))
    signed = TabularCMDP(
        transition=cmdp.transition, reward=cmdp.reward, cost=cmdp.cost * signs, start=cmdp.start, discount=0.9
    )
    assert found.feasible
    assert found.weights @ x[:, 0] == pytest.approx(constrained_optimum(signed, coords.limits).value, abs=1e-6)


def test_masks_are_kept() -> None:
    allowed = np.random.default_rng(0).random((8, 5)) < 0.6
    allowed[:, 2] = True
    _, policies = plug_in(model(1), coordinates([0.3]), allowed)
    assert allowed[np.arange(8), policies].all()


@pytest.mark.parametrize("numeric", [False, True])
def test_a_table_looks_up_its_rows_and_gives_the_mean_by_how_often_states_are_met_elsewhere(numeric: bool) -> None:
    rng = np.random.default_rng(0)
    codes = np.array([[0, 2], [1, 0], [1, 2], [2, 1], [0, 0]], np.int32)
    numbers = np.array([[0.5, 0], [0.5, 0], [-1.25, 0], [0, 1], [3.5, 0]], np.float32) if numeric else np.empty((5, 0))
    q = rng.normal(size=(5, 3, 2, 2))
    outcome = rng.normal(size=(5, 3, 2))
    share = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
    network = lookup_network(StateTable(codes, numbers.astype(np.float32)), (3, 4), q, outcome, share)
    assert (network.num_actions, network.num_policies, network.num_heads) == (3, 2, 2)
    found = forward(network, codes, numbers.astype(np.float32)).q
    np.testing.assert_allclose(found, q.reshape(5, 3, 4), atol=1e-5)
    day = forward(network, codes, numbers.astype(np.float32)).outcome
    assert day is not None
    np.testing.assert_allclose(day, outcome, atol=1e-5)
    strange = forward(network, np.array([[2, 3]], np.int32), numbers[:1].astype(np.float32)).q
    np.testing.assert_allclose(strange[0], (share @ q.reshape(5, -1)).reshape(3, 4), atol=1e-5)


def test_a_state_that_differs_by_one_number_alone_is_told_apart() -> None:
    codes = np.zeros((2, 1), np.int32)
    numbers = np.array([[1.0], [1.001]], np.float32)
    q = np.arange(4.0).reshape(2, 2, 1, 1)
    network = lookup_network(StateTable(codes, numbers), (1,), q, q[:, :, 0], np.full(2, 0.5))
    np.testing.assert_allclose(forward(network, codes, numbers).q[:, :, 0], q[:, :, 0, 0], atol=1e-2)
    unknown = forward(network, codes[:1], np.array([[5.0]], np.float32)).q
    np.testing.assert_allclose(unknown[0, :, 0], [1, 2], atol=1e-2)


def test_the_table_network_acts_as_its_policies_do_ties_included() -> None:
    """At a corner's λ two policies are equally good; the network must still take the one that was measured."""
    cmdp = model(2)
    coords = coordinates([0.3])
    multiplier, policies = plug_in(cmdp, coords, np.ones((8, 5), np.bool_))
    states = States(np.arange(8, dtype=np.int32)[:, None], np.empty((8, 0), np.float32), np.ones((8, 5), np.bool_))
    network = table_network(cmdp, states, np.full(8, 1 / 8), (8,), multiplier, policies, coords)
    q = forward(network, states.codes, states.numbers).q.astype(np.float32)
    for number, policy in enumerate(policies):
        value = q[:, :, 2 * number : 2 * number + 2] @ coords.weights(multiplier[number])
        assert value.argmax(axis=1).tolist() == policy.tolist()
