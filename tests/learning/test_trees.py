"""Boosted trees against exact effects, and as plain arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.bundles.reference import forward
from outlay.core.arrays import NetworkArrays
from outlay.core.bodies import Node, Trees
from outlay.core.errors import FolderError
from outlay.core.schema import UNKNOWN, Numeric
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning import boosting, trees, trees_usual
from outlay.learning.boosting import MOST_CODES, BinnedTable, BoostingRows, BoostingSettings, boost, capped
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.heads import critic_coordinates
from small_logs import campaign, effects, exact_q, log_of, q_of, random_cmdp, transitions

SMALL = BoostingSettings(leaves=6, rate=0.3, prior=5.0, rounds=20, patience=8)


def quiet(_: float, __: str) -> None:
    pass


def training(data: Transitions, seed: int = 0) -> trees.TreesTraining:
    coords = critic_coordinates(data.campaign, np.asarray(data.outcome), steady=data.steady)
    bound = np.full(len(data.campaign.budgets), 3.0)
    return trees.TreesTraining(data, data.campaign.train, coords, bound, 0, data.rows_of(LEARN), seed)


def learned(data: Transitions) -> NetworkArrays:
    return trees.fit(training(data), quiet)


def test_the_effects_are_those_of_the_model_on_the_day_and_after_it() -> None:
    model = random_cmdp(25)
    q = q_of(learned(log_of(model)), 3)
    truth = exact_q(model, np.full(3, 1 / 3))
    assert np.abs(effects(q[:, :, 0]) - effects(truth)).max() < 0.1 * np.abs(effects(truth)).max()
    assert np.abs(q[:, :, 0] - truth).max() < 0.1 * np.abs(truth).max()  # levels too


def targeted(stated: bool) -> tuple[Transitions, NDArray[np.float64]]:
    """Who would come anyway is given more, by one field; rewards, and what an action adds to them in each state."""
    rng = np.random.default_rng(1)
    users, days = 3000, 6
    shares = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    state = rng.integers(2, size=users * days)
    action = (shares[state].cumsum(axis=1) < rng.random((users * days, 1))).sum(axis=1)
    gain = np.array([[0.0, 0.1, 0.3], [0.0, 0.3, 0.1]])
    reward = 2.0 * state + gain[state, action] + rng.normal(0, 0.3, users * days)
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=state,
        action=action,
        outcome=np.stack([reward, action], axis=1),
        num_states=2,
        num_actions=3,
        about=campaign(0.0),
        split=np.repeat([LEARN, SELECT], [2700, 300]),
        counted=False,
    )
    return (replace(data, propensity=shares[state, action].astype(np.float32)) if stated else data), gain


@pytest.mark.parametrize("stated", [True, False])
def test_a_targeted_log_gives_the_same_effects_with_propensities_and_without(stated: bool) -> None:
    data, gain = targeted(stated)
    found = learned(data)
    day = effects(q_of(found, 2)[:, :, 0])[..., 0]
    assert np.abs(day - (gain - gain.mean(axis=1, keepdims=True))).max() < 0.05  # who is given more has 2 more anyway


GAIN, AIM = np.array([0.0, 0.3, 0.3]), np.array([0.0, 0.0, 1.0])  # of an action: for the day's visit, for fatigue
PACE, REST, PULL, TIRE = 0.2, 0.3, 0.4, 0.2


def habits() -> Transitions:
    """P(visit) = start of the user + PULL·habit + GAIN − TIRE·fatigue; both numbers move a little from day to day."""
    rng = np.random.default_rng(5)
    users, days = 4000, 6
    kind, habit, fatigue = rng.integers(2, size=users), rng.random(users), rng.random(users)
    action, visit, numbers = rng.integers(3, size=(days, users)), np.empty((days, users)), np.zeros((days, users, 4))
    for day, given in enumerate(action):
        numbers[day, :, 0], numbers[day, :, 2] = habit, fatigue
        chance = 0.2 + 0.1 * kind + PULL * habit + GAIN[given] - TIRE * fatigue
        visit[day] = rng.random(users) < chance
        habit, fatigue = habit + PACE * (visit[day] - habit), fatigue + REST * (AIM[given] - fatigue)
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=np.repeat(kind, days),
        action=action.T.ravel(),
        outcome=np.stack([visit.T.ravel(), action.T.ravel()], axis=1),
        num_states=2,
        num_actions=3,
        about=campaign(0.9),
        split=np.repeat([LEARN, SELECT], [3600, 400]),
        counted=False,
    )
    schema = replace(data.schema, numeric=(Numeric("habit", 0, 1), Numeric("fatigue", 0, 1)))
    return replace(data, schema=schema, number_columns=numbers.transpose(1, 0, 2).reshape(-1, 4).astype(np.float32))


def test_what_an_action_adds_on_later_days_is_told_where_it_moves_numbers_by_little() -> None:
    """Actions 1 and 2 bring the same today. Their effects on later days are a hundredth, of opposite signs."""
    data = habits()
    columns = trees_usual.TrainingColumns.of(data, data.rows_of(LEARN), np.ones(2), 0)
    assert [part.tolist() for part in columns.changing] == [[0, 2], []]
    rows = data.rows_of(SELECT)
    found = forward(learned(data), *data.features(rows))
    assert found.outcome is not None
    q, day = (part.reshape(len(rows), 3, -1)[..., 0] for part in (found.q, found.outcome))
    later = q - (1 - 0.9) * day
    habit = 0.1 * PULL / (1 - 0.9 * (1 - PACE * (1 - PULL)))  # V per unit: V = … + habit·h + fatigue·f
    fatigue = -TIRE * (0.1 + 0.9 * PACE * habit) / (1 - 0.9 * (1 - REST))
    truth = 0.9 * (habit * PACE * GAIN + fatigue * REST * AIM)
    assert truth[1] > 0.009
    assert truth[2] < -0.009
    error = (later - later[:, :1]) - (truth - truth[0])
    assert np.abs(error.mean(axis=0)).max() < 0.003
    assert error.std(axis=0).max() < 0.0022  # 0.0047 where V and g are trees


def test_of_a_large_log_all_rows_of_some_users_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees_usual, "MOST_ROWS", 6_000)
    data, gain = targeted(True)
    rows = data.rows_of(LEARN)
    columns = trees_usual.TrainingColumns.of(data, rows, np.ones(2), 0)
    per_half = [len(columns.of_half(half)) for half in range(2)]
    assert len(rows) == 16_200
    assert per_half == [3_000, 3_000]
    assert columns.known[columns.learn].mean() == 5 / 6  # whole users of 6 days, of which the last has no next day
    day = effects(q_of(learned(data), 2)[:, :, 0])[..., 0]
    assert np.abs(day - (gain - gain.mean(axis=1, keepdims=True))).max() < 0.1


def test_a_cost_that_follows_from_action_and_reward_is_the_line_of_the_rewards_value() -> None:
    rng = np.random.default_rng(3)
    users, days = 400, 4
    action, state = rng.integers(3, size=users * days), rng.integers(3, size=users * days)
    active = rng.random(users * days) < 0.2 + 0.1 * action + 0.1 * state
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=state,
        action=action,
        outcome=np.stack([active, 0.5 + action * active], axis=1),
        num_states=3,
        num_actions=3,
        about=campaign(0.0),
        split=np.repeat([LEARN, SELECT], [350, 50]),
        counted=False,
    )
    day = q_of(learned(data), 3)[:, :, 0]
    np.testing.assert_allclose(day[..., 1], 0.5 + np.arange(3) * day[..., 0], atol=1e-4)


def test_rows_without_a_choice_and_actions_that_were_not_allowed_teach_no_effect() -> None:
    rng = np.random.default_rng(2)
    users, days = 2000, 4
    allowed = np.array([[1, 1, 1], [1, 1, 0]], bool)
    state = rng.integers(2, size=users * days)
    action = np.where(state == 0, rng.integers(3, size=users * days), rng.integers(2, size=users * days))
    forced = rng.random(users * days) < 0.3
    reward = np.where(forced, 5.0 * action, 0.2 * action) + state
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=state,
        action=action,
        outcome=np.stack([reward, action], axis=1),
        num_states=2,
        num_actions=3,
        about=campaign(0.0),
        forced=forced,
        allowed=allowed,
        split=np.repeat([LEARN, SELECT], [1800, 200]),
        counted=False,
    )
    day = q_of(learned(data), 2)[:, :, 0, 0]
    np.testing.assert_allclose(np.diff(day[0]), 0.2, atol=0.05)
    assert day[1, 1] - day[1, 0] == pytest.approx(0.2, abs=0.05)


def test_a_seed_gives_the_same_trees_and_a_checkpoint_has_them(tmp_path: Path) -> None:
    data = log_of(random_cmdp(25))
    one, other = trees.fit(training(data), quiet), learned(data)
    key = TrainingKey("d4", {}, {}, 0, "frontier", "trees")
    trees.save(tmp_path / "saved", one, 3.0, key)
    loaded, seconds = trees.load(tmp_path / "saved", key)
    assert seconds == 3.0
    for again in (other, loaded):
        assert isinstance(one.body, Trees)
        assert isinstance(again.body, Trees)
        for name, part in one.body.parts().items():
            np.testing.assert_array_equal(again.body.parts()[name], part)
        np.testing.assert_array_equal(one.head[0], again.head[0])
    with pytest.raises(FolderError, match="made with another seed"):
        trees.load(tmp_path / "saved", replace(key, seed=1))
    (tmp_path / "saved" / trees.NETWORK).write_bytes(b"PK")
    with pytest.raises(FolderError, match="is damaged"):
        trees.load(tmp_path / "saved", key)


def test_policies_run_from_the_dearest_to_the_cheapest() -> None:
    problem = training(log_of(random_cmdp(25)))
    found = trees.answers(problem, trees.fit(problem, quiet))
    assert found.multiplier.shape == (33, 1)
    assert (found.estimate[0] > found.estimate[-1]).all()


@pytest.mark.parametrize("users", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_a_handful_of_users_who_all_got_the_same_are_learned_from(users: int) -> None:
    data = transitions(
        user=np.repeat(np.arange(users), 4),
        day=np.tile(np.arange(4), users),
        state=np.zeros(4 * users),
        action=np.zeros(4 * users, int),
        outcome=np.ones((4 * users, 2)),
        num_states=1,
        num_actions=2,
        about=campaign(0.8),
    )
    found = learned(data)
    assert np.isfinite(found.head[0]).all()
    assert np.isfinite(q_of(found, 1)).all()


def rounds_of(found: boosting.Boosted) -> list[int]:
    """How many rounds each target keeps: the trees of its first function."""
    kept = np.bincount([output for output, _ in found.trees], minlength=found.start.size)
    return [int(count) for count in kept.reshape(found.start.shape)[:, 0]]


def test_plain_arrays_say_what_lightgbm_says_with_sets_of_codes_and_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three fields, one of more codes than boosting tells apart; numbers on a grid, so that thresholds are met."""
    rng = np.random.default_rng(0)
    sizes, rows = (7, 40, MOST_CODES + 60), 4000
    codes = np.stack([rng.integers(size, size=rows) for size in sizes], axis=1).astype(np.int32)
    numbers = (rng.integers(-8, 8, (rows, 2)) / np.float32(10)).astype(np.float32)
    numbers[:, 1] *= rng.random(rows) < 0.5  # half are missing
    by = rng.normal(size=(rows, 2))
    worth = rng.normal(size=40)[codes[:, 1]] + (codes[:, 2] > MOST_CODES) + numbers[:, 0] * (codes[:, 0] == 3)
    target = np.stack([worth * by[:, 0], by[:, 1] * numbers[:, 1]], axis=1)
    table = BinnedTable.of(numbers, capped(codes), sizes, 0)
    learn, held = np.arange(3000), np.arange(3000, rows)
    boosters, kept = [], boosting._kept

    def keeping(booster: lightgbm.Booster, *rest: Any) -> list[tuple[int, Node]]:
        boosters.append(lightgbm.Booster(model_str=booster.model_to_string()))
        return kept(booster, *rest)

    monkeypatch.setattr(boosting, "_kept", keeping)
    found = boost(
        table, BoostingRows(learn, target[learn], by[learn]), BoostingRows(held, target[held], by[held]), SMALL
    )
    assert found.explained[0] > 0.5
    assert all(table.shape[1] for table in found.plain.sets)  # each field is split by
    estimate = found(numbers, codes.astype(np.uint16))  # with the codes that boosting does not tell apart
    for head, rounds in enumerate(rounds_of(found)):
        said = np.asarray(boosters[0].predict(table.x(slice(None)), num_iteration=rounds, raw_score=True))
        own = said.reshape(len(codes), 2, 2)[:, head] + found.start[head]
        np.testing.assert_allclose(estimate[:, head], own, atol=1e-5)
    rare = found.plain.sets[2]
    np.testing.assert_array_equal(rare[MOST_CODES + 1 :], np.broadcast_to(rare[UNKNOWN], rare[MOST_CODES + 1 :].shape))


def test_no_tree_uses_the_columns_that_it_is_to_do_without() -> None:
    rng = np.random.default_rng(0)
    numbers, codes = rng.normal(size=(3000, 2)).astype(np.float32), rng.integers(5, size=(3000, 2)).astype(np.uint8)
    target = (numbers.sum(axis=1) + codes.sum(axis=1))[:, None]
    table, one = BinnedTable.of(numbers, codes, (5, 5), 0), np.ones((3000, 1))
    rows = BoostingRows(np.arange(3000), target, one)
    used = boost(table, rows, rows, SMALL, without=[1, 2]).plain
    assert set(used.column[used.column >= 0].tolist()) - {0} == set(range(2, 2 + used.sets[1].shape[1]))
    assert not used.sets[0].shape[1]


def test_boosting_stops_where_held_out_users_learn_nothing_and_each_target_keeps_its_own_rounds() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 3)).astype(np.float32)
    target = np.stack([np.sign(x[:, 0]), rng.normal(size=3000)], axis=1)
    one = np.ones((3000, 1))
    learn, held = np.arange(2000), np.arange(2000, 3000)
    found = boost(
        BinnedTable.of(x, np.zeros((len(x), 0), np.uint8), (), 0),
        BoostingRows(learn, target[learn], one[learn]),
        BoostingRows(held, target[held], one[held]),
        SMALL,
    )
    first, second = rounds_of(found)
    assert first > 3 * second
    assert found.explained[0] > 0.95
    assert found.explained[1] < 0.01
