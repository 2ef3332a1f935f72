"""The policy that acts, and the network that learns what it is worth."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from small_games import game

from outlay.bundles.reference import forward
from outlay.core.transitions import States
from outlay.learning import critic as critics
from outlay.learning.acting import ActingValue, Policy, sample_of
from outlay.learning.critic import Critic
from outlay.learning.fresh import Starts, table_of
from outlay.learning.game import Game, GameProgress, play
from outlay.nets.network import Shape, arrays, init_pair

SIZES = (6, 7)
SPREAD = np.array([0.4, 3.0, 1.0])


def states(count: int = 400) -> States:
    rng = np.random.default_rng(0)
    allowed = rng.random((count, 5)) < 0.5
    allowed[np.arange(count), rng.integers(5, size=count)] = True
    codes = rng.integers(0, SIZES, (count, 2)).astype(np.int32)
    return States(codes, rng.normal(0, 2, (count, 2)).astype(np.float32), allowed)


@pytest.mark.parametrize("threshold", [0.0, 0.9])
def test_the_choice_is_that_of_the_arrays_in_raw_units(threshold: float) -> None:
    """Argmax over allowed actions of w·Q; of those with π_B at least 0.9 of the largest, where there is a threshold."""
    pair = init_pair(Shape(SIZES, 2, 5, 3, 0, True, (16, 8), 4), 5)
    weights, given = np.array([1.0, -0.3, 0.2]), states()
    found = Policy(pair, weights, SPREAD, threshold).choose(given)
    reference = forward(arrays(pair, SPREAD), given.codes, given.numbers)
    allowed = given.allowed
    if threshold:
        assert reference.imitation is not None
        prob = np.where(allowed, np.exp(reference.imitation), 0)
        allowed = prob >= threshold * prob.max(1, keepdims=True)
        assert (allowed != given.allowed).any()
    score = np.where(allowed, reference.q @ weights, -np.inf)
    near = np.sort(score, axis=1)
    clear = near[:, -1] - near[:, -2] > 1e-5  # rounding may turn a tie
    assert clear.mean() > 0.9
    assert np.array_equal(found[clear], score.argmax(1)[clear])
    assert len(set(found.tolist())) > 2
    assert not np.array_equal(found, Policy(pair, -weights, SPREAD, threshold).choose(given))


def value_of(of: Game) -> ActingValue:
    spread = jnp.asarray(of.coords.spread, jnp.float32)
    data, batch = of.data, of.train.batch
    sample = sample_of(data, of.learn_rows, batch, 0)
    return ActingValue(Starts.of(data, batch, 0), sample, table_of(data, batch), spread, of.settings)


def shifted(extra: Critic, by: float) -> Critic:
    """The same network with every value above by so much."""
    assert extra.target.shape.action_basis is None, "a bias for each action and head"
    moved = extra.target.head.bias + by
    return extra._replace(target=eqx.tree_at(lambda network: network.head.bias, extra.target, moved))


@pytest.fixture(scope="module", params=[True, False], ids=["steady", "gaps"])
def played(request: pytest.FixtureRequest) -> tuple[Game, GameProgress]:
    of = game(steady=request.param, min_steps=100)
    *_, (progress, _) = play(of)
    return of, progress


@pytest.mark.parametrize("by", [-3.0, 0.5, 20.0])
def test_an_error_that_is_the_same_everywhere_is_taken_out(by: float, played: tuple[Game, GameProgress]) -> None:
    of, progress = played
    extra, acting = progress.player.extra, progress.player.critic.target
    assert extra is not None
    value, w = value_of(of), jnp.asarray(of.coords.weights(progress.candidates[-1].multiplier), jnp.float32)
    np.testing.assert_allclose(
        value.measure(shifted(extra, by), acting, w), value.measure(extra, acting, w), atol=2e-5 * max(1, abs(by))
    )
    moved = value.level(shifted(extra, by), acting, w) - value.level(extra, acting, w)
    np.testing.assert_allclose(moved, -by * value.spread, rtol=1e-3)


def test_without_a_future_it_is_the_mean_of_todays_residuals() -> None:
    of = game(min_steps=100)
    of = replace(of, settings=of.settings._replace(discount=0.0))
    value, progress = value_of(of), game().begin()
    extra, acting = progress.player.extra, progress.player.critic.target
    assert extra is not None
    sample = value.sample._replace(discount=jnp.zeros_like(value.sample.discount))
    value = value._replace(sample=sample)
    outputs, row = critics.evaluate(extra.target, sample.state, value.table)
    off = sample.outcome - critics.pick(outputs.q, row, sample.action).mean(0)[:, 0] * value.spread
    expected = (np.asarray(sample.has_target)[:, None] * np.asarray(off)).sum(0) / np.asarray(sample.has_target).sum()
    np.testing.assert_allclose(value.level(extra, acting, jnp.ones(3)), expected, rtol=1e-4, atol=1e-6)


def test_where_no_row_says_what_follows_nothing_is_corrected(played: tuple[Game, GameProgress]) -> None:
    """A log of one row a user that nobody has left, with a discount."""
    of, progress = played
    value = value_of(of)
    value = value._replace(sample=value.sample._replace(has_target=jnp.zeros_like(value.sample.has_target)))
    extra, acting = progress.player.extra, progress.player.critic.target
    assert extra is not None
    assert not value.level(extra, acting, jnp.asarray(of.coords.weights(np.zeros(len(of.coords.limits))))).any()
