"""Features without a network: means of what rows brought by value, directions that vary most, learn users alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from outlay.core.schema import FIRST, Categorical, Schema
from outlay.core.transitions import CERTIFY, LEARN, Transitions
from outlay.estimators import row_features as module
from outlay.estimators.row_features import MOST_FEATURES, SHRINK, Directions, plain_features
from small_logs import transitions

USERS, DAYS = 400, 3
N = USERS * DAYS


def log(seed: int = 0) -> Transitions:
    """Five states; what a row brings rises with its state; half of the users learn."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, 5, N)
    reward = state / 4 + rng.normal(0, 0.1, N)
    found: Transitions = transitions(
        user=np.repeat(np.arange(USERS), DAYS),
        day=np.tile(np.arange(DAYS), USERS),
        state=state,
        action=rng.integers(0, 2, N),
        outcome=np.column_stack([reward, rng.random(N)]),
        num_states=5,
        num_actions=2,
        split=np.where(np.arange(USERS) % 2, CERTIFY, LEARN),
        counted=False,
    )
    return found


def test_directions_have_spread_one_and_are_not_correlated() -> None:
    rng = np.random.default_rng(0)
    sample = np.asarray(rng.normal(size=(5000, 6)) @ rng.normal(size=(6, 6)), np.float32)
    found = Directions.of(sample)(sample)
    assert found.shape == (5000, 6)
    assert found.mean(axis=0) == pytest.approx(0, abs=1e-3)
    assert np.cov(found.T) == pytest.approx(np.eye(6), abs=1e-2)


def test_columns_that_say_nothing_or_the_same_are_left_out_and_many_are_cut() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=(3000, 1)).astype(np.float32)
    same = np.hstack([one, 2 * one, np.ones_like(one)])
    assert Directions.of(same)(same).shape == (3000, 1)
    nothing = np.ones((50, 3), np.float32)
    assert Directions.of(nothing)(nothing).shape[0] == 50
    assert np.isfinite(Directions.of(nothing)(nothing)).all()
    many = np.asarray(rng.normal(size=(3000, 80)) * np.arange(1, 81), np.float32)
    kept = Directions.of(many)(many)
    assert kept.shape == (3000, MOST_FEATURES)
    explained = [np.corrcoef(np.column_stack([kept, many[:, j]]).T)[-1, :-1] for j in (0, 79)]
    assert (explained[0] ** 2).sum() < 0.1
    assert (explained[1] ** 2).sum() > 0.9  # it varies most


def test_each_value_stands_for_the_shrunk_mean_of_what_learn_rows_with_it_brought() -> None:
    data = log()
    encode = module._encoder(data)
    learn = data.rows_of(LEARN)
    codes = data.features(learn)[0][:, 0]
    every = data.outcome[learn].astype(np.float64)
    mean = every.mean(axis=0)
    some = data.rows_of(CERTIFY)[:200]
    found = encode(some)
    for state in range(5):
        of = every[codes == FIRST + state]
        wanted = (of.sum(axis=0) + SHRINK * mean) / (len(of) + SHRINK) / every.std(axis=0)
        here = data.features(some)[0][:, 0] == FIRST + state
        assert here.any()
        assert found[here, :2] == pytest.approx(np.tile(wanted, (here.sum(), 1)), rel=1e-5)
    assert found[:, 2:] == pytest.approx(data.features(some)[1])


def test_outcomes_of_the_users_that_are_judged_are_not_looked_at() -> None:
    data = log()
    rows = data.rows_of(CERTIFY)
    outcome = np.array(data.outcome)
    outcome[rows] = 1e6
    assert np.array_equal(plain_features(data, rows), plain_features(replace(data, outcome=outcome), rows))


def test_values_that_hardly_any_row_has_do_not_give_away_its_own_outcome() -> None:
    """300 values that say nothing, of four rows each: means that hold a row's own outcome would correlate with it."""
    rng, data = np.random.default_rng(3), log()
    values = tuple(f"v{i}" for i in range(300))
    codes = (FIRST + rng.integers(0, 300, N)).astype(np.uint16)
    users = data.users.copy()
    users["split"] = LEARN
    noise = replace(
        data,
        code_columns=(((0,), codes[:, None]),),
        number_columns=np.zeros((N, 0), np.float32),
        schema=Schema((Categorical("s", values),), ()),
        users=users,
        outcome=rng.normal(size=(N, 2)).astype(np.float32),
    )
    encoded = module._encoder(noise)(noise.rows_of(LEARN))
    for j in range(2):
        assert abs(np.corrcoef(encoded[:, j], noise.outcome[:, j])[0, 1]) < 4 / np.sqrt(N)
    outcome = np.array(noise.outcome)
    outcome[:DAYS] = 100.0  # of the first user, whose features stay as they are but for the unit
    spread = noise.outcome.astype(np.float64).std(axis=0)
    spread_now = outcome.astype(np.float64).std(axis=0)
    moved = module._encoder(replace(noise, outcome=outcome))(np.arange(DAYS))
    level = SHRINK * (outcome.mean(axis=0) - noise.outcome.mean(axis=0))  # which the mean of all raises for everyone
    few = np.array([np.sum((codes == code) & (np.arange(N) // DAYS % module.FOLDS != 0)) for code in codes[:DAYS]])
    assert moved * spread_now == pytest.approx(encoded[:DAYS] * spread + level / (few[:, None] + SHRINK), abs=1e-3)


def test_what_is_made_by_chunks_is_what_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = log()
    rows = data.rows_of(CERTIFY)
    whole = plain_features(data, rows)
    monkeypatch.setattr(module, "CHUNK_CELLS", 37)
    assert plain_features(data, rows) == pytest.approx(whole, abs=1e-4)


def test_the_unit_of_money_changes_nothing() -> None:
    data = log()
    rows = data.rows_of(CERTIFY)
    in_cents = replace(data, outcome=data.outcome * np.array([1, 1e5], np.float32))
    assert plain_features(in_cents, rows) == pytest.approx(plain_features(data, rows), abs=1e-3)


def test_what_rows_bring_is_a_linear_thing_of_the_features() -> None:
    """Which the five codes as numbers would be too, had they come in this order; here states are shuffled."""
    data = log()
    order = np.array([3, 0, 4, 1, 2])
    codes = (FIRST + order[np.array(data.code_columns[0][1][:, 0]) - FIRST]).astype(np.uint8)
    mixed = replace(
        data,
        code_columns=(((0,), codes[:, None]),),
        number_columns=np.zeros((N, 0), np.float32),
        schema=Schema((Categorical("s", tuple("abcde")),), ()),
    )
    rows = mixed.rows_of(CERTIFY)
    features = np.column_stack([plain_features(mixed, rows), np.ones(len(rows))])
    reward = np.asarray(mixed.outcome[rows, 0], np.float64)
    fit, *_ = np.linalg.lstsq(features, reward, rcond=None)
    assert np.corrcoef(features @ fit, reward)[0, 1] > 0.9


def test_numbers_alone_are_features_too() -> None:
    rng = np.random.default_rng(1)
    numbers = np.column_stack([rng.normal(size=N), np.zeros(N)]).astype(np.float32)
    data = log()
    alone = replace(data, number_columns=numbers, code_columns=(), schema=Schema((), data.schema.numeric))
    rows = alone.rows_of(CERTIFY)
    found = plain_features(alone, rows)
    assert found.shape == (len(rows), 1)
    assert abs(np.corrcoef(found[:, 0], numbers[rows, 0])[0, 1]) == pytest.approx(1)
