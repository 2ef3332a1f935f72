"""The critic: its target and losses by hand, and that it learns the best response of a known model."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import ArrayLike, NDArray

from outlay.core.transitions import Transitions
from outlay.learning import critic as critics
from outlay.learning.critic import Critic, CriticSettings, DistinctStates, Oracle
from outlay.nets.batches import Batch, Order, StateRows, blocks, gather
from outlay.nets.loop import compiled_block
from outlay.nets.network import NetworkOutputs, QNetwork, Shape, init_pair
from outlay.ops.tabular import action_values, measure, policy_iteration
from small_logs import campaign, draw, random_cmdp, transitions

W = jnp.array([1.0, -0.5])  # reward and one cost at λ = 0.5
SPREAD = jnp.array([2.0, 4.0])

# Q of the pair in units of the spread, [2, S = 3, K = 2, H = 2].
ONLINE = np.array(
    [
        [[[1, 0], [0, 0]], [[2, 0], [0, 0]], [[0, 0], [3, 2]]],
        [[[0, 0], [2, 0]], [[0, 0], [1, 0]], [[1, 0], [1, 2]]],
    ],
    float,
)
TARGET = np.array(
    [
        [[[5, 2], [1, 2]], [[3, 2], [9, 0]], [[7, 6], [2, 2]]],
        [[[4, 4], [3, 0]], [[6, 4], [8, 4]], [[5, 8], [4, 4]]],
    ],
    float,
)


def settings(oracle: Oracle = "ddqn", **changes: Any) -> CriticSettings:
    return CriticSettings(
        oracle=oracle,
        discount=0.8,
        learning_rate=3e-3,
        target_decay=0.95,
        small_q_weight=0.8,
        supervised_weight=1.0,
        imitation_weight=1.0,
        imitation_threshold=0.3,
    )._replace(**changes)


def table_network(q: ArrayLike, *, outcome: ArrayLike | None = None, logits: ArrayLike | None = None) -> QNetwork:
    """A pair that says `q` `[2, S, K, H]` in state s (code s), without hidden layers: the embedding is one-hot."""
    values = np.asarray(q, np.float32)
    _, S, K, H = values.shape
    given = 0 if outcome is None else np.shape(outcome)[-1]
    pair: QNetwork = init_pair(Shape((S,), 0, K, H, given, logits is not None, (), S), 0)
    pair = eqx.tree_at(lambda net: net.embedding, pair, jnp.asarray(np.stack([np.eye(S)] * 2), jnp.float32))
    pair = eqx.tree_at(lambda net: net.head.weight, pair, jnp.asarray(values.reshape(2, S, K * H)))
    if outcome is not None:
        weight = jnp.asarray(np.asarray(outcome, np.float32).reshape(2, S, -1))
        pair = eqx.tree_at(lambda net: net.supervised.weight, pair, weight)
    if logits is not None:
        pair = eqx.tree_at(lambda net: net.imitation.weight, pair, jnp.asarray(logits, jnp.float32))
    return pair


def critic(online: QNetwork, target: QNetwork) -> Critic:
    return critics.init(online, settings())._replace(target=target)


def batch_of(**changes: Any) -> Batch:
    """One row: state 0, action 0, outcome (2, 4), next state 1 a day later."""

    def states(s: int) -> StateRows:
        return StateRows(jnp.array([[s]]), jnp.zeros((1, 0)), jnp.zeros(0, jnp.int32))

    columns: dict[str, Any] = {
        "state": 0,
        "next_state": 1,
        "next_row": [1],
        "action": [0],
        "outcome": [[2.0, 4.0]],
        "discount": [0.8],
        "has_target": [1.0],
        "chosen": [1.0],
        "allowed": [[True, True]],
        "next_forced": [False],
        "next_action": [0],
        "next_allowed": [[True, True]],
    } | changes
    made = {name: jnp.asarray(value) for name, value in columns.items() if "state" not in name}
    return Batch(state=states(columns["state"]), next_state=states(columns["next_state"]), **made)


@eqx.filter_jit
def _target(both: Critic, batch: Batch, weights: Array, chosen: CriticSettings) -> Array:
    return critics.target(both, batch, None, weights[None], chosen)[:, 0]


def future(batch: Batch, **changes: Any) -> list[float]:
    both = critic(table_network(ONLINE), table_network(TARGET))
    found: list[float] = _target(both, batch, W, settings(**changes))[0].tolist()
    return found


def test_the_target_picks_by_the_mean_of_the_pair_and_weighs_the_smaller_more() -> None:
    """State 1: mean of online wᵀQ is (1, 0.5), so a* = 0; targets (3, 2) and (6, 4) score 2 and 4.

    y' = 0.8 · (0.8·(3, 2) + 0.2·(6, 4)) = 0.8 · (3.6, 2.4)
    """
    assert future(batch_of()) == pytest.approx([2.88, 1.92])


def test_the_smaller_may_be_the_second_and_the_cost_decides() -> None:
    """State 2: online means (0.5, 0) and (2, 2) score 0.5 and 1, so a* = 1 (by reward alone too);

    at λ = 1 they score 0.5 and 0, so a* = 0. Targets at 1: (2, 2) and (4, 4) score 1 and 2.
    """
    assert future(batch_of(next_state=2)) == pytest.approx([0.8 * 2.4, 0.8 * 2.4])
    both = critic(table_network(ONLINE), table_network(TARGET))
    dear = _target(both, batch_of(next_state=2), jnp.array([1.0, -1.0]), settings())
    # (7, 6) and (5, 8) score 1 and −3: the second is the smaller, 0.2·(7, 6) + 0.8·(5, 8).
    assert dear[0].tolist() == pytest.approx([0.8 * 5.4, 0.8 * 7.6])


def test_equal_weights_give_the_mean_and_weight_one_the_smaller() -> None:
    assert future(batch_of(), small_q_weight=0.5) == pytest.approx([0.8 * 4.5, 0.8 * 3])
    assert future(batch_of(), small_q_weight=1.0) == pytest.approx([0.8 * 3, 0.8 * 2])


def test_a_forced_next_row_takes_its_logged_action() -> None:
    """Action 1 in state 1: (9, 0) and (8, 4) score 9 and 6."""
    found = future(batch_of(next_forced=[True], next_action=[1]))
    assert found == pytest.approx([0.8 * 8.2, 0.8 * 3.2])
    assert future(batch_of(next_forced=[False], next_action=[1])) == pytest.approx([2.88, 1.92])


def test_masks_are_honoured_in_the_argmax() -> None:
    """State 1 with only action 1 allowed, though 0 scores more."""
    assert future(batch_of(next_allowed=[[False, True]])) == pytest.approx([0.8 * 8.2, 0.8 * 3.2])


def test_the_discount_of_a_row_scales_its_future() -> None:
    """γ^Δ comes with the row; after a terminal row it is 0."""
    assert future(batch_of(discount=[0.8**3])) == pytest.approx([0.8**3 * 3.6, 0.8**3 * 2.4])
    assert future(batch_of(discount=[0.0])) == [0, 0]


@eqx.filter_jit
def _slope(online: QNetwork, batch: Batch, ahead: Array, chosen: CriticSettings) -> tuple[Array, QNetwork]:
    return jax.value_and_grad(critics.loss)(online, batch, ahead, None, SPREAD, chosen)


def loss_of(online: QNetwork, batch: Batch, ahead: ArrayLike, chosen: CriticSettings) -> tuple[float, QNetwork]:
    value, gradient = _slope(online, batch, jnp.asarray(ahead), chosen)
    return float(value), gradient


def test_the_loss_is_the_squared_distance_to_y_in_units_of_the_spread() -> None:
    """Y = 0.2·(2/2, 4/4) + (0.5, 0.1) = (0.7, 0.3); the pair says (1, 0) and (0, 0): 0.18 + 0.58."""
    value, gradient = loss_of(table_network(ONLINE), batch_of(), [[0.5, 0.1]], settings())
    assert value == pytest.approx(0.3**2 + 0.3**2 + 0.7**2 + 0.3**2)
    # d/dq = 2 (q − y), in the weights of state 0, action 0 alone
    slope = np.array(gradient.head.weight).reshape(2, 3, 2, 2)
    np.testing.assert_allclose(slope[:, 0, 0], [[0.6, -0.6], [-1.4, -0.6]], rtol=1e-6)
    slope[:, 0, 0] = 0
    assert not slope.any()


def test_a_terminal_row_learns_its_own_outcome_alone() -> None:
    """Y = (1−γ)·x, so a network that says 0.2·(1, 1) has nothing to learn."""
    q = np.full((2, 3, 2, 2), 0.2)
    both = critic(table_network(q), table_network(TARGET))
    batch = batch_of(discount=[0.0])
    value, _ = loss_of(both.online, batch, _target(both, batch, W, settings()), settings())
    assert value == pytest.approx(0, abs=1e-12)


def test_a_truncated_row_has_no_temporal_difference() -> None:
    value, gradient = loss_of(table_network(ONLINE), batch_of(has_target=[0.0]), [[9.0, 9.0]], settings())
    assert value == 0
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_a_truncated_row_still_teaches_the_supervised_head() -> None:
    """Outcome (1, 1) in units of the spread; the heads say (3, 1) and (1, 1): 4, once for the pair."""
    says = np.zeros((2, 3, 2, 2))
    says[:, 0, 0] = [[3, 1], [1, 1]]
    pair = table_network(ONLINE, outcome=says)
    value, gradient = loss_of(pair, batch_of(has_target=[0.0]), [[9.0, 9.0]], settings("edrr"))
    assert value == pytest.approx(4)
    assert gradient.supervised is not None
    assert np.any(gradient.supervised.weight)
    assert not np.any(gradient.head.weight)
    half = settings("edrr", supervised_weight=0.5)
    assert loss_of(pair, batch_of(has_target=[0.0]), [[9.0, 9.0]], half)[0] == pytest.approx(2)


def test_imitation_is_the_likelihood_of_choices_and_forced_rows_are_none() -> None:
    """State 0: logits (log 3, 0), so π_B of action 0 is 3/4 in both networks: −2·log 3/4."""
    logits = np.zeros((2, 3, 2))
    logits[:, 0] = [np.log(3), 0]
    pair = table_network(ONLINE, logits=logits)
    row = batch_of(has_target=[0.0])
    assert loss_of(pair, row, [[0.0, 0.0]], settings("bcq"))[0] == pytest.approx(-2 * np.log(0.75))
    forced = batch_of(has_target=[0.0], chosen=[0.0])
    value, gradient = loss_of(pair, forced, [[0.0, 0.0]], settings("bcq"))
    assert value == 0
    assert gradient.imitation is not None
    assert not np.any(gradient.imitation.weight)


def acts(logits: ArrayLike, allowed: ArrayLike, threshold: float) -> list[int]:
    """One state per row of `logits`; wᵀQ prefers the actions in their order: 3, 2, 1, 0."""
    given = np.asarray(logits, float)
    rows, K = given.shape
    q = np.broadcast_to(np.stack([np.arange(K), np.zeros(K)], 1)[:, None], (2, rows, K, 1, 2))
    outputs = NetworkOutputs(jnp.asarray(q), None, jnp.asarray(np.stack([given, given])), jnp.zeros((2, rows, 1)))
    found = critics.act(outputs, W[None], jnp.asarray(allowed, bool), threshold)
    return [int(action) for action in found[:, 0]]


def test_the_threshold_removes_what_the_log_hardly_did() -> None:
    """π_B = (0.5, 0.2, 0.16, 0.14): of the largest those are 1, 0.4, 0.32 and 0.28."""
    logits = np.log([[0.5, 0.2, 0.16, 0.14]])
    everything = [[1, 1, 1, 1]]
    assert acts(logits, everything, 0.0) == [3]
    assert acts(logits, everything, 0.3) == [2]
    assert acts(logits, everything, 0.35) == [1]
    assert acts(logits, everything, 0.9) == [0]


def test_the_largest_share_is_taken_among_allowed_actions() -> None:
    """Without action 0 the largest is 0.2, so that 0.14 is 0.7 of it and stays."""
    logits = np.log([[0.5, 0.2, 0.16, 0.14], [0.5, 0.2, 0.16, 0.14]])
    assert acts(logits, [[0, 1, 1, 1], [0, 1, 1, 0]], 0.3) == [3, 2]
    assert acts(logits, [[0, 1, 1, 1], [0, 1, 1, 0]], 0.0) == [3, 2]
    assert acts(logits, [[1, 0, 0, 1], [0, 0, 0, 1]], 0.9) == [0, 3]


def test_only_bcq_has_a_threshold() -> None:
    assert [settings(oracle).threshold for oracle in ("ddqn", "edrr", "bcq")] == [0, 0, 0.3]


def test_a_step_moves_the_averages_by_their_decay() -> None:
    pair = table_network(ONLINE)
    chosen = settings(target_decay=0.75)
    before = critics.init(pair, chosen)
    after, _ = eqx.filter_jit(critics.gradient_step)(before, batch_of(), None, W[None], SPREAD, chosen)
    moved = np.asarray(after.online.head.weight) - np.asarray(pair.head.weight)
    assert np.abs(moved).max() > 1e-3
    kept = np.asarray(after.target.head.weight) - np.asarray(pair.head.weight)
    np.testing.assert_allclose(kept, 0.25 * moved, atol=1e-6)


def learned(data: Transitions, chosen: CriticSettings, weights: Array, spread: Array, *, steps: int = 1000) -> Critic:
    assert data.states is not None
    table = DistinctStates(*map(jnp.asarray, (data.states.codes, data.states.numbers, data.states.allowed)))
    outcomes = 0 if chosen.oracle == "ddqn" else 2
    of = Shape(data.schema.sizes, 2, 3, 2, outcomes, chosen.oracle == "bcq", (16,), 4)

    def step(state: tuple[Critic, Array, Array], batch: Batch) -> tuple[tuple[Critic, Array, Array], Array]:
        critic, w, unit = state  # so that one program learns with any of them
        critic, loss = critics.gradient_step(critic, batch, table, (w * unit)[None], unit, chosen)
        return (critic, w, unit), loss

    block = compiled_block(step, lambda state: (state, None), 100)
    state = critics.init(init_pair(of, 0), chosen), jnp.array(weights), jnp.array(spread)  # given away
    for batch in blocks(data, np.arange(len(data)), Order(256, 500, steps, seed=0)):
        state, _ = block(state, batch)
    return state[0]


def greedy(state: Critic, data: Transitions, weights: Array, spread: Array, threshold: float) -> NDArray[np.int64]:
    assert data.states is not None
    table = DistinctStates(*map(jnp.asarray, (data.states.codes, data.states.numbers, data.states.allowed)))
    every = StateRows(jnp.zeros(0), jnp.zeros(0), jnp.arange(len(data.states)))
    outputs, _ = critics.evaluate(state.target, every, table)
    return np.asarray(critics.act(outputs, (weights * spread)[None], table.allowed, threshold))[:, 0]


@pytest.mark.parametrize(
    "oracle", ["ddqn", pytest.param("edrr", marks=pytest.mark.slow), pytest.param("bcq", marks=pytest.mark.slow)]
)
def test_the_greedy_policy_is_the_best_response_and_its_heads_are_its_value(oracle: Oracle) -> None:
    """A 3-state, 3-action model at λ = 0.5, against policy iteration and the exact values of the same policy.

    Not by luck: a different action is best in every state, the second best is at least 0.04 behind, and at λ = 0
    another policy is best.
    """
    model = random_cmdp(25)
    weights = np.array([1.0, -0.5])
    best = policy_iteration(model, weights)
    gaps = np.sort(action_values(model, best) @ weights, axis=1)
    assert (gaps[:, -1] - gaps[:, -2]).min() > 0.04
    assert len(set(best.tolist())) == 3
    assert policy_iteration(model, [1, 0]).tolist() != best.tolist()

    data = draw(model, 2000, 8, seed=0, about=campaign(0.8))
    spread = jnp.asarray(data.outcome.std(axis=0))
    w = jnp.asarray(weights, jnp.float32)
    chosen = settings(oracle)
    state = learned(data, chosen, w, spread)
    policy = greedy(state, data, w, spread, chosen.threshold)
    assert policy.tolist() == best.tolist()
    every = gather(data, data.users["start_row"], table=True)
    assert data.states is not None
    table = DistinctStates(*map(jnp.asarray, (data.states.codes, data.states.numbers, data.states.allowed)))
    outputs, row = critics.evaluate(state.target, every.state, table)
    heads = critics.pick(outputs.q, row, jnp.asarray(policy[np.asarray(row)])).mean((0, 1))[0] * spread
    np.testing.assert_allclose(heads, measure(model, policy), atol=0.02)


@pytest.mark.slow
def test_bcq_leaves_alone_what_the_log_hardly_did() -> None:
    """The dearest action brings most, but only 4% of the choices were it: DDQN takes it, BCQ does not."""
    model = random_cmdp(25)
    data = draw(model, 2000, 8, seed=0, behaviour=np.array([0.48, 0.48, 0.04]))
    spread, w = jnp.asarray(data.outcome.std(axis=0)), jnp.array([1.0, 0.0])
    found = {}
    for oracle in ("ddqn", "bcq"):
        chosen = settings(oracle)
        state = learned(data, chosen, w, spread)
        found[oracle] = set(greedy(state, data, w, spread, chosen.threshold).tolist())
    assert found["ddqn"] == {2}
    assert 2 not in found["bcq"]


@pytest.mark.parametrize(("ends", "value"), [(False, 1.0), (True, 1 / 3)])
def test_truncation_is_not_an_end(ends: bool, value: float) -> None:
    """One state, reward 1 a day, two days of log: V = 0.2 + 0.8·V = 1; were the end terminal, V = 0.2 + 0.8·V/2 = 1/3.

    (The state does not say which day it is, so half of all rows would end.)
    """
    users = 300
    data = transitions(
        user=np.repeat(np.arange(users), 2),
        day=np.tile([0, 1], users),
        state=np.zeros(600),
        action=np.tile([0, 1, 2], 200),
        outcome=np.ones((600, 2)),
        num_states=1,
        num_actions=3,
        terminal=np.tile([False, ends], users),
    )
    assert data.states is not None
    w, unit = jnp.array([1.0, 0.0]), jnp.ones(2)
    state = learned(data, settings(learning_rate=1e-2), w, unit)
    table = DistinctStates(*map(jnp.asarray, (data.states.codes, data.states.numbers, data.states.allowed)))
    outputs, _ = critics.evaluate(state.target, StateRows(None, None, jnp.array([0])), table)
    np.testing.assert_allclose(outputs.q[..., 0], value, atol=0.03)
