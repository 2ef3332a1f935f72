"""The behaviour model against policies that are known, and its check against models that are right and wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import transitions
from numpy.typing import ArrayLike, NDArray

from outlay.core.errors import LogError
from outlay.core.schema import FIRST, Categorical, Numeric, Schema
from outlay.core.transitions import CERTIFY, LEARN, SELECT, States, Transitions
from outlay.estimators.behaviour import logistic as behaviour_logistic
from outlay.estimators.behaviour import model as behaviour
from outlay.estimators.behaviour.check import diagnose
from outlay.estimators.behaviour.logistic import Logistic
from outlay.estimators.behaviour.model import Behaviour, CountedShares, constant_shares
from outlay.ops.importance import MATTERS

Array = NDArray[np.float64]
DAYS = 5


def drawn(prob: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    index: NDArray[np.intp] = (prob.cumsum(axis=1) < rng.random((len(prob), 1))).sum(axis=1)
    last: NDArray[np.intp] = prob.shape[1] - 1 - (prob[:, ::-1] > 0).argmax(axis=1)
    return np.minimum(index, last)


def counted(
    behaviour: ArrayLike, users: int, seed: int, *, forced: float = 0.0, masked: bool = False
) -> tuple[Transitions, Array]:
    """A log with states drawn at random, of users in all splits, and the true probabilities `[N, K]` of its rows.

    `behaviour` is `[S, K]`; with `masked` a 0 there is an action that is not allowed.
    """
    policy, rng = np.asarray(behaviour, np.float64), np.random.default_rng(seed)
    (S, K), n = policy.shape, users * DAYS
    state = rng.integers(S, size=n)
    data = transitions(
        user=np.repeat(np.arange(users), DAYS),
        day=np.tile(np.arange(DAYS), users),
        state=state,
        action=drawn(policy[state], rng),
        outcome=np.zeros((n, 2)),
        num_states=S,
        num_actions=K,
        split=rng.choice(3, users, p=[0.7, 0.15, 0.15]),
        forced=rng.random(n) < forced,
        eligible=policy[state] > 0 if masked else None,
    )
    if masked and data.states is not None:
        data = replace(data, states=States(data.states.codes, data.states.numbers, policy > 0))
    return data, policy[state]


def wide(
    users: int,
    seed: int,
    *,
    fields: int = 6,
    values: int = 30,
    actions: int = 4,
    telling: int = 2,
    masked: bool = False,
) -> tuple[Transitions, Array]:
    """A log with many states: a policy that is logistic in the first `telling` fields and in a number."""
    rng = np.random.default_rng(seed)
    n = users * DAYS
    codes = rng.integers(values, size=(n, fields)).astype(np.uint8)
    number = rng.normal(size=n).astype(np.float32)
    logits = number[:, None] * rng.normal(0, 0.5, actions) * (telling > 0)
    for f in range(telling):
        logits = logits + rng.normal(0, 0.7, (values, actions))[codes[:, f]]
    allowed = np.ones((n, actions), np.bool_)
    if masked:
        allowed[:, 1:] = rng.random((n, actions - 1)) < 0.7
    policy = np.exp(logits) * allowed
    policy /= policy.sum(axis=1, keepdims=True)
    data = transitions(
        user=np.repeat(np.arange(users), DAYS),
        day=np.tile(np.arange(DAYS), users),
        state=np.zeros(n),
        action=drawn(policy, rng),
        outcome=np.zeros((n, 2)),
        num_states=1,
        num_actions=actions,
        split=rng.choice(3, users, p=[0.7, 0.15, 0.15]),
        eligible=allowed if masked else None,
    )
    names = tuple(str(value) for value in range(values))
    data = replace(
        data,
        state=None,
        states=None,
        schema=Schema(tuple(Categorical(f"f{i}", names) for i in range(fields)), (Numeric("x", 0.0, 1.0),)),
        code_columns=((tuple(range(fields)), codes + FIRST),),
        number_columns=np.stack([number, np.zeros(n)], axis=1).astype(np.float32),
    )
    return data, policy


def random_policy(seed: int, states: int, actions: int) -> Array:
    return np.random.default_rng(seed).dirichlet(np.full(actions, 3.0), size=states)


def off(data: Transitions, truth: Array) -> float:
    """Mean absolute error of the probabilities of certify users' rows."""
    rows = data.rows_of(CERTIFY)
    found = Behaviour.fit(data).probability(rows)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    return float(np.abs(found - truth[rows]).mean())


def test_counted_shares_recover_the_policy() -> None:
    data, truth = counted(random_policy(0, 6, 5), 6000, 1)
    assert off(data, truth) < 0.006  # a share of 0.2 counted in 3,500 rows is off by 0.0054 on average
    check = diagnose(Behaviour.fit(data), data, data.rows_of(CERTIFY))
    assert check.ok
    assert check.constant_log_loss - check.log_loss > 0.05


def test_a_policy_that_looks_at_nothing_is_found_to_look_at_nothing() -> None:
    """Shares by state of 500 states would be off by 0.06 on average."""
    constant, truth = counted(np.tile([0.5, 0.3, 0.2], (500, 1)), 4000, 2)
    assert off(constant, truth) < 0.006
    many, uniform = wide(4000, 3, telling=0)
    assert off(many, uniform) < 0.006


def test_the_regression_recovers_a_logistic_policy_among_fields_of_noise() -> None:
    data, truth = wide(8000, 4)
    rows = data.rows_of(CERTIFY)
    constant = np.abs(np.bincount(data.action, minlength=4) / len(data) - truth[rows]).mean()
    assert constant > 0.11
    assert off(data, truth) < 0.015
    model = Behaviour.fit(data)
    given = model.propensity(rows)
    assert np.abs(given / truth[rows, data.action[rows]] - 1).mean() < 0.07
    check = diagnose(model, data, rows)
    assert check.ok
    assert "fits" in check.words


def test_fields_that_say_nothing_cost_next_to_nothing() -> None:
    """20 more of them, with 600 values, raise the error by a fifth at most."""
    few, many = (wide(4000, 5, fields=fields) for fields in (2, 22))
    assert off(*many) < 1.2 * off(*few)


def test_with_one_field_and_a_weak_penalty_the_regression_gives_the_shares_of_each_value() -> None:
    """Two ways to the same number: descent, and counting."""
    data, _ = wide(2000, 6, fields=1, values=5, telling=1)
    data = replace(
        data, schema=Schema(data.schema.categorical, ()), number_columns=np.zeros((len(data), 0), np.float32)
    )
    rows = data.rows_of(LEARN)
    place, field, spread = behaviour_logistic._columns(data, rows, 100)
    fitted = behaviour_logistic._FieldRows.of(data, rows, place)
    start, offset = np.zeros((len(spread), 4), np.float32), np.log(np.full(4, 0.25))
    weight = behaviour_logistic._descend(fitted, start, offset, np.full(len(field), 1e-3), spread[:, None] * np.ones(4))
    found = Logistic(place, weight, offset).probability(data, rows)
    codes = data.features(rows)[0][:, 0]
    for code in np.unique(codes):
        shares = np.bincount(data.action[rows][codes == code], minlength=4) / (codes == code).sum()
        np.testing.assert_allclose(found[codes == code], np.tile(shares, ((codes == code).sum(), 1)), atol=2e-3)


def test_counts_are_shrunk_by_hand() -> None:
    """Constant shares (30½, 10½) / 41; state 0 with 15 and 5 rows at κ = 10: (15 + 10·0.7439) / 30."""
    states = States(np.zeros((2, 1), np.int32), np.zeros((2, 0), np.float32), np.ones((2, 2), np.bool_))
    learn = np.array([[15.0, 5.0], [15.0, 5.0]])
    model = CountedShares.fit(states, learn, learn)
    expected = (15 + model.strength * 30.5 / 41) / (20 + model.strength)
    np.testing.assert_allclose(model.share[0], [expected, 1 - expected])
    certain = CountedShares.fit(
        states, np.array([[900.0, 100.0], [100.0, 900.0]]), np.array([[90.0, 10.0], [10.0, 90.0]])
    )
    assert certain.strength < 10
    np.testing.assert_allclose(certain.share, [[0.9, 0.1], [0.1, 0.9]], atol=0.005)


def test_constant_shares_under_masks_by_hand() -> None:
    """0 against 1 was chosen 3:1 and 1 against 2 was chosen 1:2, so the weights are as 3 : 1 : 2."""
    allowed = np.array([[True, True, False], [False, True, True]])
    share = constant_shares(np.array([3e6, 2e6, 2e6]), allowed, np.array([4e6, 3e6]))
    np.testing.assert_allclose(share, [3 / 6, 1 / 6, 2 / 6], rtol=1e-4)


@pytest.mark.parametrize("many", [False, True], ids=["counted states", "many states"])
def test_masks_are_kept(many: bool) -> None:
    policy = random_policy(7, 6, 4)
    policy[::2, 3] = policy[1, 0] = 0
    policy /= policy.sum(axis=1, keepdims=True)
    data, truth = wide(6000, 8, masked=True) if many else counted(policy, 4000, 8, masked=True)
    rows = data.rows_of(CERTIFY)
    model = Behaviour.fit(data)
    found = model.probability(rows)
    assert not data.allowed(rows).all()
    assert (found[~data.allowed(rows)] == 0).all()
    assert (found[data.allowed(rows)] > 0).all()
    assert off(data, truth) < 0.02
    assert diagnose(model, data, rows).ok


@pytest.mark.parametrize("many", [False, True], ids=["counted states", "many states"])
def test_certify_users_have_no_part_in_the_model_and_a_second_fit_is_the_same(many: bool) -> None:
    data, _ = wide(800, 9) if many else counted(random_policy(9, 6, 4), 800, 9)
    rows = np.arange(len(data))
    first = Behaviour.fit(data).probability(rows)
    assert np.array_equal(Behaviour.fit(data).probability(rows), first)
    other = data.action.copy()
    other[data.rows_of(CERTIFY)] = 0
    assert np.array_equal(Behaviour.fit(replace(data, action=other)).probability(rows), first)
    other[data.rows_of(LEARN)] = 0
    assert not np.array_equal(Behaviour.fit(replace(data, action=other)).probability(rows), first)


@pytest.mark.parametrize("many", [False, True], ids=["counted states", "many states"])
def test_an_action_that_learn_users_never_had_keeps_a_propensity_and_fails_the_check(many: bool) -> None:
    data, _ = wide(800, 10) if many else counted(random_policy(10, 6, 4), 800, 10)
    action = data.action.copy()
    action[np.isin(data.user, np.flatnonzero(data.users["split"] == LEARN)) & (action == 3)] = 0
    data = replace(data, action=action)
    rows = data.rows_of(CERTIFY)
    model = Behaviour.fit(data)
    found, given = model.probability(rows), model.propensity(rows)
    assert (found[:, 3] > 0).all()
    assert found[:, 3].max() < 0.5
    assert given.min() >= 1 / model.rows
    rare = replace(data, action=np.where(data.users["split"][data.user] == CERTIFY, action, np.minimum(action, 2)))
    model = Behaviour.fit(rare)
    assert model.probability(rows)[:, 3].max() < 0.01
    check = diagnose(model, rare, rows)
    assert not check.ok
    assert check.least_action == 3
    assert "action 3 was given in" in check.words


def test_one_state_and_one_action_are_no_trouble() -> None:
    single, truth = counted([[0.2, 0.8]], 2000, 11)
    assert off(single, truth) < 0.01
    alone, _ = counted([[1.0], [1.0]], 50, 11)
    rows = alone.rows_of(CERTIFY)
    assert (Behaviour.fit(alone).probability(rows) == 1).all()
    assert diagnose(Behaviour.fit(alone), alone, rows).ok
    without = replace(wide(50, 11)[0], schema=Schema((), ()), code_columns=(), number_columns=np.zeros((250, 0), "f4"))
    found = Behaviour.fit(without).probability(np.arange(250))
    np.testing.assert_allclose(found, np.tile(found[0], (250, 1)))


@pytest.mark.parametrize("many", [False, True], ids=["counted states", "many states"])
def test_forced_rows_teach_nothing_and_have_propensity_1(many: bool) -> None:
    data, _ = wide(800, 12) if many else counted(random_policy(12, 6, 4), 800, 12)
    forced = np.random.default_rng(0).random(len(data)) < 0.3
    data = replace(data, forced=forced)
    rows = np.arange(len(data))
    model = Behaviour.fit(data)
    assert (model.propensity(rows)[forced] == 1).all()
    assert (model.propensity(rows)[~forced] < 1).all()
    other = Behaviour.fit(replace(data, action=np.where(forced, 0, data.action)))
    assert np.array_equal(other.probability(rows), model.probability(rows))
    assert diagnose(model, data, data.rows_of(CERTIFY)).rows == (~forced[data.rows_of(CERTIFY)]).sum()


def test_without_any_choice_there_is_no_model() -> None:
    data, _ = counted(random_policy(13, 3, 2), 100, 13)
    none = replace(data, forced=np.ones(len(data), np.bool_))
    with pytest.raises(LogError, match=r"'learn' is forced.*propensities"):
        Behaviour.fit(none)
    forced = data.users["split"][data.user] == SELECT
    with pytest.raises(LogError, match="'select' is forced"):
        Behaviour.fit(replace(data, forced=forced))
    users = data.users.copy()
    users["split"] = LEARN
    with pytest.raises(LogError, match=r"no user .*'select'"):
        Behaviour.fit(replace(data, users=users))
    with pytest.raises(LogError, match="every row is forced"):
        diagnose(np.full((len(data), 2), 0.5), none, np.arange(len(data)))


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = wide(800, 14)
    rows = data.rows_of(CERTIFY)
    whole = Behaviour.fit(data)
    wanted = whole.probability(rows), whole.propensity(rows)
    monkeypatch.setattr(behaviour, "CHUNK_VALUES", 1000)
    monkeypatch.setattr(behaviour_logistic, "CHUNK_ENTRIES", 700)
    parts = Behaviour.fit(data)
    np.testing.assert_allclose(parts.probability(rows), wanted[0], rtol=1e-5)
    np.testing.assert_allclose(parts.propensity(rows), wanted[1], rtol=1e-5)


def test_a_log_too_large_is_sampled_and_rare_codes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data, truth = wide(8000, 15)
    rows = data.rows_of(CERTIFY)
    monkeypatch.setattr(behaviour_logistic, "MOST_ENTRIES", 90_000)  # 9 a row: 10,000 of 28,000 rows
    monkeypatch.setattr(behaviour_logistic, "MOST_WEIGHTS", 400)  # 100 columns for 6 fields of 30 values
    model = Behaviour.fit(data).model
    assert isinstance(model, Logistic)
    assert model.weight.shape == (100, 4)
    assert np.abs(model.probability(data, rows) - truth[rows]).mean() < 0.11
    kept = model.place[:-2].reshape(6, -1) >= 0
    assert kept.sum() == 98  # the number, and the constant
    codes = data.features(behaviour_logistic.sample(data.rows_of(LEARN), 10_000))[0]
    seen = np.stack([np.bincount(column, minlength=kept.shape[1]) for column in codes.T])
    assert seen[kept].min() >= seen[~kept].max()


def test_a_model_too_sure_of_itself_is_calibrated() -> None:
    """Weights tripled, and one action preferred: the temperature and the offsets are found again."""
    data, truth = wide(8000, 16)
    rows, held = data.rows_of(CERTIFY), data.rows_of(SELECT)
    right = Behaviour.fit(data).model
    assert isinstance(right, Logistic)
    wrong = replace(right, weight=3 * right.weight, offset=right.offset + np.array([1.0, 0, 0, 0]))
    assert np.abs(wrong.probability(data, rows) - truth[rows]).mean() > 0.12
    recalibrated = wrong._calibrated(behaviour_logistic._FieldRows.of(data, held, wrong.place))
    assert np.abs(recalibrated.probability(data, rows) - truth[rows]).mean() < 0.02
    again = recalibrated._calibrated(behaviour_logistic._FieldRows.of(data, held, wrong.place))
    assert again is recalibrated  # no gain beyond chance


def test_right_probabilities_pass_in_99_of_100_draws() -> None:
    """300 logs of 2,000 rows, with rare actions: at a level of 0.001 two alarms already are unlucky."""
    policy = random_policy(17, 8, 5)
    policy[:, 4] *= 0.02
    policy /= policy.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    data, truth = counted(policy, 400, 17)
    rows = np.arange(len(data))
    draws = [diagnose(truth, replace(data, action=drawn(truth, rng)), rows).ok for _ in range(300)]
    assert sum(draws) >= 298


@pytest.mark.parametrize("kind", ["sharpened", "one action too rare", "by the wrong state"])
def test_wrong_probabilities_do_not_pass(kind: str) -> None:
    policy = random_policy(18, 8, 4)
    data, truth = counted(policy, 3000, 18)
    skewed = {
        "sharpened": truth**1.5,
        "one action too rare": truth * [1, 1, 1, 0.7],
        "by the wrong state": np.roll(truth, 1, axis=0),
    }[kind]
    skewed /= skewed.sum(axis=1, keepdims=True)
    check = diagnose(skewed, data, np.arange(len(data)))
    assert not check.ok
    assert "does not fit" in check.words
    assert abs(check.worst.z) > 4


def test_a_policy_that_looks_at_the_segment_is_caught_where_the_state_does_not_know_it() -> None:
    data, truth = counted([[0.5, 0.5]], 3000, 21)
    users = data.users.copy()
    users["segment"] = np.arange(len(users)) % 2
    action = drawn(truth + 0.1 * (1 - 2 * (data.user % 2)[:, None]) * np.array([1, -1]), np.random.default_rng(0))
    data = replace(data, users=users, action=action)
    rows = data.rows_of(CERTIFY)
    assert diagnose(Behaviour.fit(data), data, rows).ok
    check = diagnose(Behaviour.fit(data), replace(data, segments=("new", "old")), rows)
    assert not check.ok
    assert "segment" in check.worst.among


def test_trifles_do_not_fail_a_large_log() -> None:
    """3% too many, in 500,000 rows: past chance, but weights are as good as right."""
    data, truth = counted([[0.5, 0.5]], 100_000, 19)
    skewed = np.array([0.5 * (1 + 0.6 * MATTERS), 0.5 * (1 - 0.6 * MATTERS)])
    check = diagnose(np.tile(skewed, (len(truth), 1)), data, np.arange(len(data)))
    assert abs(check.worst.z) > 10
    assert check.ok


def test_the_check_by_hand() -> None:
    """Ten users' rows, one state; 4 of action 1 where 0.3 each is predicted: P(≥ 4) = 0.3504, z = 0.384."""
    data, _ = counted([[0.5, 0.5]], 10, 20)
    data = replace(data, action=np.repeat(np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0], np.uint8), DAYS))
    check = diagnose(np.tile([0.7, 0.3], (10, 1)), data, np.arange(0, 10 * DAYS, DAYS))
    share = check.actions[1]
    assert share.predicted == pytest.approx(0.3)
    assert (share.observed, share.rows) == (0.4, 10)
    assert share.z == pytest.approx(0.384, abs=1e-3)
    assert check.log_loss == pytest.approx(-(4 * np.log(0.3) + 6 * np.log(0.7)) / 10)
    assert (check.least_propensity, check.least_action) == (0.3, 1.0)
    assert check.comparisons == 4
    assert check.ok
    assert json.loads(json.dumps(check.to_dict()))["actions"][1]["observed"] == 0.4


@pytest.mark.parametrize("days", [1, 7, 28])
def test_actions_drawn_once_and_kept_do_not_make_a_right_model_wrong(days: int) -> None:
    """1,500 users, rare actions kept for all days: errors by row doubted 45% of such models with 7 days, 83% with 28.

    The level holds for actions drawn every day, too.
    """
    users, doubted = 1500, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        first = rng.choice(4, size=(users, 1), p=[0.7, 0.1, 0.1, 0.1])
        data = transitions(
            user=np.repeat(np.arange(users), days),
            day=np.tile(np.arange(days), users),
            state=rng.integers(5, size=users * days),
            action=np.repeat(first, days, axis=1).ravel(),
            outcome=np.zeros((users * days, 2)),
            num_states=5,
            num_actions=4,
            split=rng.choice(3, users, p=[0.7, 0.15, 0.15]),
        )
        model = Behaviour.fit(data)
        doubted += not diagnose(model, data, data.rows_of(CERTIFY), learned=model.rows).ok
    assert doubted <= 1
