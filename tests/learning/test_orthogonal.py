"""The orthogonal critic against exact effects: of an action on the day, and on what comes after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import small_logs
from outlay.bundles.reference import forward
from outlay.core.cmdp import TabularCMDP
from outlay.core.schema import Categorical
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.heads import critic_coordinates
from outlay.learning.orthogonal import DECAY_ROWS, MOST_DECAY, PASSES, WORSE, Orthogonal, answers
from outlay.learning.outcomes import determined_costs
from outlay.nets import batches
from outlay.nets.batches import gather
from outlay.nets.network import Linear
from outlay.nets.orthogonal import EffectShape, arrays_of, init_orthogonal, tell, value_heads
from small_logs import campaign, effects, exact_q, q_of, random_cmdp, transitions

GAMMA = 0.8
STATES = 100  # values of the field, whether they occur or not: one program learns from all logs of as many rows

TWO = [{"name": name, "cost": name, "at_most": 0.8} for name in "ab"]


def training(data: Transitions, steps: int = 2000, **train: Any) -> Orthogonal:
    fast = {"layers": (16,), "embedding": 4, "batch": 256, "learning_rate": 2.5e-3}
    fast["epochs"] = steps * 256 / PASSES / len(data.rows_of(LEARN))
    about = data.campaign.train.model_copy(update=fast | train)
    coords = critic_coordinates(data.campaign, np.asarray(data.outcome), steady=data.steady)
    bound = np.full(len(data.campaign.budgets), 3.0)
    return Orthogonal(data, about, coords, bound, 0, data.rows_of(LEARN), 0)


def log_of(model: TabularCMDP, **options: Any) -> Transitions:
    data = small_logs.log_of(model, **options)
    field = Categorical(data.schema.categorical[0].name, tuple(map(str, range(STATES))))
    return replace(data, schema=replace(data.schema, categorical=(field,)))


def test_the_effects_are_those_of_the_model_on_the_day_and_after_it() -> None:
    model = random_cmdp(25)
    problem = training(log_of(model))
    *_, progress = problem.blocks(problem.begin())
    found = answers(problem, progress)
    q = q_of(found.network, STATES)[:3]
    said, truth = q[:, :, 0], exact_q(model, np.full(3, 1 / 3))
    assert np.abs(effects(said) - effects(truth)).max() < 0.1 * np.abs(effects(truth)).max()
    assert np.abs(said - truth).max() < 0.1 * np.abs(truth).max()  # levels too


def log_of_effects(effect: NDArray[np.float64], level: NDArray[np.float64]) -> Transitions:
    """Days of 2,000 users; the reward is the level of the day's state and its effect for each unit of the action."""
    rng, users, days = np.random.default_rng(0), 2000, 8
    state, action = rng.integers(len(effect), size=users * days), rng.integers(3, size=users * days)
    reward = level[state] + effect[state] * (action - 1) + rng.normal(0, 0.5, users * days)
    return transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=state,
        action=action,
        outcome=np.stack([reward, action], axis=1),
        num_states=STATES,
        num_actions=3,
        about=campaign(0.0),
        split=np.repeat([LEARN, SELECT], [1800, 200]),
        counted=False,
    )


def effects_by_state(data: Transitions) -> NDArray[np.float64]:
    problem = training(data, steps=1000)
    *_, progress = problem.blocks(problem.begin())
    q = q_of(answers(problem, progress).network, STATES)[:, :, 0, 0]
    return np.asarray(q[:, 2] - q[:, 0]) / 2


@pytest.mark.slow
def test_a_field_that_changes_effects_and_nothing_else_is_learned_from() -> None:
    effect = np.where(np.arange(12) % 3 == 0, 0.4, 0.0)
    assert np.abs(effects_by_state(log_of_effects(effect, np.zeros(12)))[:12] - effect).max() < 0.1


@pytest.mark.slow
def test_values_with_the_same_outcomes_are_taken_to_have_the_same_effects() -> None:
    """144 rows of each of 100 values, of five kinds: too few for effects, but enough to tell the kinds apart."""
    kind = np.arange(STATES) % 5
    effect, level = np.array([0.0, 0.1, 0.2, 0.3, 0.4])[kind], np.array([2.0, 0.0, 3.0, 1.0, 4.0])[kind]
    found = effects_by_state(log_of_effects(effect, level))
    assert np.corrcoef(found, effect)[0, 1] ** 2 > 0.3


@pytest.mark.slow
def test_a_targeted_log_gives_the_same_effects() -> None:
    """Actions drawn by the state: who is given more is better anyway."""
    model = random_cmdp(25, states=2)
    rng = np.random.default_rng(1)
    users, days = 2000, 8
    shares = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    state, action = np.empty((users, days), np.int64), np.empty((users, days), np.int64)
    now = rng.choice(2, users)
    for t in range(days):
        state[:, t] = now
        action[:, t] = (shares[now].cumsum(axis=1) < rng.random((users, 1))).sum(axis=1)
        now = (rng.random(users) > model.transition[now, action[:, t], 0]).astype(np.int64)
    at = (state.ravel(), action.ravel())
    outcome = model.outcome[at] + rng.normal(0, 0.3, (users * days, 2))
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=at[0],
        action=at[1],
        outcome=outcome,
        num_states=STATES,
        num_actions=3,
        about=campaign(0.0),
        split=np.repeat([LEARN, SELECT], [1800, 200]),
        counted=False,
    )
    problem = training(data)
    *_, progress = problem.blocks(problem.begin())
    day = q_of(answers(problem, progress).network, STATES)[:2, :, 0]
    truth = effects(model.outcome)
    assert np.abs(effects(day) - truth).max() < 0.15 * np.abs(truth).max()


def test_weight_decay_is_a_prior_that_weighs_less_in_a_larger_log() -> None:
    small = training(log_of(random_cmdp(25)))
    assert small.pace.decay == MOST_DECAY
    assert replace(small, learn_rows=np.zeros(DECAY_ROWS, np.int64)).pace.decay == 1
    assert replace(small, learn_rows=np.zeros(10 * DECAY_ROWS, np.int64)).pace.decay == pytest.approx(0.1)


@pytest.mark.slow
def test_without_a_future_there_is_the_day_alone() -> None:
    data = log_of(random_cmdp(25), about=campaign(0.0))
    problem = training(data, steps=300)
    *_, progress = problem.blocks(problem.begin())
    found = answers(problem, progress)
    assert len(found.multiplier) == len(found.estimate) == 33
    assert found.network.num_policies == 1


@pytest.mark.slow
def test_policies_run_from_the_dearest_to_the_cheapest() -> None:
    problem = training(log_of(random_cmdp(25)), steps=1000)
    *_, progress = problem.blocks(problem.begin())
    found = answers(problem, progress)
    assert found.multiplier.shape == (33, 1)
    assert found.network.num_policies == 1  # one Q, with 33 vectors of head weights
    assert found.estimate.shape == (33, 2)
    assert found.estimate[0, 1] > found.estimate[-1, 1]
    assert found.estimate[0, 0] > found.estimate[-1, 0]


@pytest.mark.slow
def test_two_budgets_have_a_grid_of_both() -> None:
    data = log_of(random_cmdp(25, costs=2), about=campaign(GAMMA, TWO), allowed=np.ones((3, 3), bool))
    problem = training(data, steps=300)
    *_, progress = problem.blocks(problem.begin())
    found = answers(problem, progress)
    assert found.multiplier.shape == (49, 2)
    assert (found.multiplier > 0).all(axis=1).any()


def test_costs_that_follow_from_action_and_reward_are_found_and_others_are_not() -> None:
    rng = np.random.default_rng(0)
    action, active = rng.integers(3, size=600), rng.integers(2, size=600)
    spend = active * rng.lognormal(size=600)

    def of(reward: Any, cost: Any) -> Any:
        data = transitions(
            user=np.arange(600),
            day=np.zeros(600, int),
            state=np.zeros(600, int),
            action=action,
            outcome=np.stack([reward, cost], axis=1),
            num_states=1,
            num_actions=3,
        )
        return determined_costs(data, np.arange(600), np.ones(2))

    found = of(active, action * active)
    assert found.known.all()
    np.testing.assert_allclose(found.per_reward[0], [0, 1, 2], atol=1e-9)
    np.testing.assert_allclose(found.base[0], 0, atol=1e-9)
    np.testing.assert_allclose(of(active, action).base[0], [0, 1, 2])
    assert not of(active, action * active * rng.random(600)).known.any()
    assert not of(spend, action * active).known.any()  # the reward tells by how much, the cost only whether


@pytest.mark.slow
def test_a_derived_cost_is_the_line_of_the_rewards_value_exactly() -> None:
    rng = np.random.default_rng(3)
    users, days = 2000, 8
    action, state = rng.integers(3, size=users * days), rng.integers(3, size=users * days)
    active = rng.random(users * days) < 0.2 + 0.1 * action + 0.1 * state
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=state,
        action=action,
        outcome=np.stack([active, 0.5 + action * active], axis=1),
        num_states=STATES,
        num_actions=3,
        about=campaign(0.0),
        split=np.repeat([LEARN, SELECT], [1800, 200]),
        counted=False,
    )
    problem = training(data, steps=300)
    *_, progress = problem.blocks(problem.begin())
    day = q_of(answers(problem, progress).network, STATES)[:3, :, 0]
    np.testing.assert_allclose(day[..., 1], 0.5 + np.arange(3) * day[..., 0], atol=1e-4)


@pytest.mark.slow
def test_rows_without_a_choice_and_actions_that_were_not_allowed_teach_no_effect() -> None:
    """Forced rows have another reward, and in one state the dearest action is never allowed."""
    model = random_cmdp(25, costs=2)
    allowed = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1]], bool)
    plain = log_of(model)
    action = np.where((np.asarray(plain.action) == 2) & (np.asarray(plain.number_columns)[:, 0] == 1), 0, plain.action)
    state = plain.code_columns[0][1][:, 0] - plain.code_columns[0][1].min()
    forced = np.random.default_rng(2).random(len(plain)) < 0.3
    action = np.where(forced, plain.action, action)  # without a choice they may get what was not allowed
    outcome = np.where(forced[:, None], 5.0 * action[:, None], model.outcome[state, action])
    data = transitions(
        user=plain.user,
        day=plain.day,
        state=state,
        action=action,
        outcome=outcome,
        num_states=STATES,
        num_actions=3,
        about=campaign(0.0, TWO),
        forced=forced,
        allowed=allowed,
        split=np.repeat([LEARN, SELECT], [1800, 200]),
        counted=False,
    )
    problem = training(data)
    *_, progress = problem.blocks(problem.begin())
    day = q_of(answers(problem, progress).network, STATES)[:3, :, 0]
    known = [0, 2]
    truth = effects(model.outcome[known])
    assert np.abs(effects(day[known]) - truth).max() < 0.4 * np.abs(truth).max()  # forced rows would make it 10 times


def test_the_plain_arrays_say_what_the_networks_say() -> None:
    rng = np.random.default_rng(0)
    functions = rng.normal(size=(2, 3))
    shape = EffectShape((4, 5), 3, 3, 2, (8, 6), 2, 2)
    pair = init_orthogonal(shape, 0, rng.normal(size=(2, 2)))
    codes = np.stack([rng.integers(4, size=7), rng.integers(5, size=7)], axis=1).astype(np.int32)
    numbers = rng.normal(size=(7, 3)).astype(np.float32)
    units = np.array([1.0, 0.2])
    weight, bias = value_heads(pair, functions, units)
    arrays = arrays_of(pair, (weight, bias), (weight[..., 0, :], bias[..., 0, :]))
    told = tell(pair, jnp.asarray(codes), jnp.asarray(numbers))
    q = np.asarray(told.level)[:, :, None] + np.einsum("ebphd,dk,p->ebkph", told.slope, functions, units)
    said = forward(arrays, codes, numbers)
    np.testing.assert_allclose(said.q.reshape(7, 3, 2, 2), q.mean(axis=0), rtol=1e-4, atol=1e-5)
    assert said.outcome is not None
    np.testing.assert_allclose(said.outcome, q.mean(axis=0)[:, :, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_training_that_goes_on_from_a_checkpoint_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    """Bitwise; V was fitted before the checkpoint, and is fitted again after it."""
    problem = training(log_of(random_cmdp(25)), steps=400)
    going = problem.blocks(problem.begin())
    next(going)
    key = TrainingKey("d4", {}, {}, 0, "frontier", "orthogonal")
    problem.save(tmp_path / "checkpoints", next(going), key)
    *_, whole = going
    *_, resumed = problem.blocks(problem.load(tmp_path / "checkpoints", key))
    for one, other in zip(jax.tree.leaves(whole.learner), jax.tree.leaves(resumed.learner), strict=True):
        np.testing.assert_array_equal(one, other)
    assert resumed.losses == whole.losses
    assert len(whole.losses) == 4
    assert np.ptp(whole.learner.value, axis=1).min() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("last", "taken"), [(0.5 - WORSE / 2, 1000), (0.5 - 2 * WORSE, 100)])
def test_training_goes_to_its_end_and_only_clearly_better_networks_from_before_it_are_taken(
    last: float, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out users say that the first look is the best, and all others are worse."""
    looks = iter([0.5, *[0.4] * 8, last])
    monkeypatch.setattr(Orthogonal, "explained", lambda _self, _learner: next(looks))
    problem = training(log_of(random_cmdp(25)), steps=1000)
    *_, progress = problem.blocks(problem.begin())
    assert progress.step == problem.steps == 1000
    assert progress.best.step == taken


def test_a_batch_says_what_was_allowed_in_its_rows_and_in_the_next() -> None:
    allowed = np.array([[1, 1, 1], [1, 1, 0]], bool)
    data = transitions(
        user=[0, 0],
        day=[0, 1],
        state=[0, 1],
        action=[0, 1],
        outcome=np.zeros((2, 2)),
        num_states=2,
        num_actions=3,
        allowed=allowed,
    )
    batch = gather(replace(data, states=None, state=None), np.array([0, 1]), table=False)
    assert np.asarray(batch.allowed).tolist() == allowed.tolist()
    assert np.asarray(batch.next_allowed).tolist() == [allowed[1].tolist(), allowed[1].tolist()]


def test_effects_have_the_size_that_other_users_show() -> None:
    """Networks whose effects are half of what they should be, and ones that are twice, end at the same policies."""
    problem = training(log_of(random_cmdp(25)), steps=1000)
    *_, progress = problem.blocks(problem.begin())

    def effects_of(times: float) -> NDArray[np.float64]:
        learner = progress.best.learner
        pair = learner.averaged
        slope = Linear(pair.slope.weight * times, pair.slope.bias * times)
        scaled = eqx.tree_at(lambda net: net.slope, pair, slope)
        found = answers(
            problem, replace(progress, best=progress.best._replace(learner=learner._replace(averaged=scaled)))
        )
        return effects(q_of(found.network, STATES)[:3])

    whole = effects_of(1.0)
    np.testing.assert_allclose(effects_of(0.5), whole, atol=0.03 * np.abs(whole).max())
    np.testing.assert_allclose(effects_of(2.0), whole, atol=0.03 * np.abs(whole).max())
    truth = effects(exact_q(random_cmdp(25), np.full(3, 1 / 3)))
    ahead = whole[:, :, 0]
    assert (ahead * truth).sum() / (truth**2).sum() == pytest.approx(1, abs=0.1)


def test_an_action_that_was_hardly_ever_given_is_shrunk_the_more() -> None:
    """Amounts 0, 1 and 2; the last in one row of a thousand."""
    action = np.repeat([0, 1, 2], [600, 399, 1])
    data = transitions(
        user=np.arange(1000),
        day=np.zeros(1000, int),
        state=np.zeros(1000, int),
        action=action,
        outcome=np.zeros((1000, 2)),
        num_states=1,
        num_actions=3,
    )
    functions = training(data).functions
    assert np.abs(functions).max() <= 4
    share = np.bincount(action) / 1000
    np.testing.assert_allclose(functions @ share, 0, atol=1e-12)
    variance = functions**2 @ share
    assert variance.min() < 0.02 < 0.9 < variance.max() <= 1 + 1e-9


@pytest.mark.slow
def test_a_handful_of_users_who_all_got_the_same_are_learned_from() -> None:
    """Twelve rows in all."""
    data = transitions(
        user=np.repeat(np.arange(2), 6),
        day=np.tile(np.arange(6), 2),
        state=np.zeros(12),
        action=np.zeros(12, int),
        outcome=np.ones((12, 2)),
        num_states=1,
        num_actions=2,
        about=campaign(GAMMA),
    )
    problem = training(data, steps=100)
    *_, progress = problem.blocks(problem.begin())
    assert np.isfinite(progress.losses).all()


@pytest.mark.slow
def test_a_training_with_states_on_an_accelerator_is_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> list[NDArray[Any]]:
        problem = training(log_of(random_cmdp(3)), steps=300)
        *_, progress = problem.blocks(problem.begin())
        return [np.asarray(leaf) for leaf in jax.tree.leaves(progress.learner.online)]

    own = trained()
    free = mock.Mock(return_value=1 << 40)
    monkeypatch.setattr(batches, "_free_memory", free)
    assert all(np.array_equal(one, other) for one, other in zip(own, trained(), strict=True))
    assert free.called
