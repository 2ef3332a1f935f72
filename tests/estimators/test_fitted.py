from __future__ import annotations

import numpy as np
import pytest
from logs_in_memory import Array, World, campaign, fit, ragged, transitions
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import LogError
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, LEARN, Transitions
from outlay.estimators.basis import CountedBasis, FeatureBasis
from outlay.estimators.fitted import Evaluator
from outlay.estimators.joint import combine
from outlay.estimators.observed import observe, reproduces
from outlay.estimators.panel import Panel
from outlay.ops import tabular


def counted(panel: Panel) -> CountedBasis:
    assert panel.state is not None
    assert panel.data.states is not None
    return CountedBasis(panel.state, len(panel.data.states), panel.data.num_actions)


def model_of(panel: Panel) -> TabularCMDP:
    """The counted model of a log without gaps or terminal rows, from rows that have a next row."""
    assert panel.state is not None
    assert panel.data.states is not None
    S, K = len(panel.data.states), panel.data.num_actions
    on = panel.following >= 0
    s, a, s2 = panel.state[on], panel.action[on], panel.state[panel.following[on]]
    count = np.zeros((S, K, S))
    np.add.at(count, (s, a, s2), 1)
    visits = count.sum(axis=2)
    outcome = np.zeros((S, K, 2))
    np.add.at(outcome, (s, a), panel.outcome[on])
    outcome /= visits[:, :, None]
    return TabularCMDP(
        transition=count / visits[:, :, None],
        reward=outcome[:, :, 0],
        cost=outcome[:, :, 1:],
        start=np.bincount(panel.state[panel.start], minlength=S) / panel.num_users,
        discount=panel.discount,
    )


def longhand(panel: Panel, target: NDArray[np.intp], days: int | None) -> Array:
    """The same estimate by loops: fixed-point iteration (discounted, days None) or the recursion over days left."""
    assert panel.state is not None
    policy = np.where(panel.forced, panel.action, target)
    pair = [(int(s), int(a)) for s, a in zip(panel.state, panel.action, strict=True)]
    taken = [(int(s), int(a)) for s, a in zip(panel.state, policy, strict=True)]
    outcome = np.column_stack([panel.outcome, ~panel.forced]) if days is None else panel.outcome
    zero = np.zeros(outcome.shape[1])
    left = panel.window[panel.user] - panel.day

    def averages(rows: list[int], targets: list[Array]) -> dict[tuple[int, int], Array]:
        groups: dict[tuple[int, int], list[Array]] = {}
        for row, value in zip(rows, targets, strict=True):
            groups.setdefault(pair[row], []).append(value)
        return {key: np.mean(group, axis=0) for key, group in groups.items()}

    closed = [i for i in range(len(panel)) if panel.following[i] >= 0 or panel.terminal[i]]
    if days is None:
        Q: dict[tuple[int, int], Array] = {}
        for _ in range(400):
            Q = averages(
                closed,
                [
                    (1 - panel.discount) * outcome[i]
                    + (
                        panel.discount ** panel.gap[i] * Q.get(taken[panel.following[i]], zero)
                        if panel.following[i] >= 0
                        else zero
                    )
                    for i in closed
                ],
            )
        return np.asarray(np.mean([Q[taken[i]] for i in panel.start], axis=0))
    by_left: dict[int, dict[tuple[int, int], Array]] = {}
    for h in range(1, days + 1):
        rows = [i for i in range(len(panel)) if panel.following[i] >= 0 or panel.terminal[i] or left[i] >= h]
        by_left[h] = averages(
            rows,
            [
                outcome[i]
                + (
                    by_left[h - panel.gap[i]][taken[panel.following[i]]]
                    if panel.following[i] >= 0 and panel.gap[i] < h
                    else zero
                )
                for i in rows
            ],
        )
    return np.asarray(np.mean([by_left[days][taken[i]] for i in panel.first], axis=0))


def test_counted_fit_equals_the_exact_value_of_the_counted_model() -> None:
    world = World.drawn(1, states=4, actions=3)
    panel = Panel.of(world.log(300, 6, np.random.default_rng(2)), CERTIFY)
    model, policy = model_of(panel), np.array([2, 0, 1, 1])
    assert panel.state is not None
    result = fit(panel, counted(panel), policy[panel.state])
    assert result.value[:2] == pytest.approx(tabular.measure(model, policy), abs=1e-10)
    assert result.value[result.column("decisions")] == 1.0
    assert result.influence.mean(axis=0) == pytest.approx(np.zeros(3), abs=2e-3)


def test_totals_of_a_log_with_rows_beyond_the_horizon_equal_the_exact_totals_of_the_counted_model() -> None:
    """Rows without a next row enter at h = 1 alone; with the model's own means as outcomes they change nothing."""
    world = World.drawn(3, states=3, actions=2)
    data = world.log(300, 6, np.random.default_rng(4))
    panel = Panel.of(data, CERTIFY)
    assert panel.state is not None
    last = panel.following < 0
    model, policy = model_of(panel), np.array([1, 0, 1])
    expected = tabular.totals(model, policy, 3)
    panel.outcome[last] = np.concatenate([model.reward[..., None], model.cost], axis=2)[panel.state, panel.action][last]
    result = fit(panel, counted(panel), policy[panel.state], days=(1, 3))
    assert [result.value[result.column(f"reward@{k}")] for k in (1, 3)] == pytest.approx(expected[[0, 2], 0], abs=1e-10)
    assert result.value[result.column("cost@3")] == pytest.approx(expected[2, 1], abs=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_gaps_terminal_truncated_and_forced_rows_agree_with_longhand_loops(seed: int) -> None:
    panel = Panel.of(ragged(seed), CERTIFY)
    target = np.random.default_rng(seed).integers(2, size=3)[np.asarray(panel.state)]
    result = fit(panel, counted(panel), target, days=(1, 2, 4), least_rows=1)
    assert result.value[:3] == pytest.approx(longhand(panel, target, None), abs=1e-10)
    for k in (1, 2, 4):
        at = result.column(f"reward@{k}")
        assert result.value[at : at + 2] == pytest.approx(longhand(panel, target, k), abs=1e-10)
    assert result.withheld == (None,) * 9


def test_a_policy_that_acts_otherwise_in_the_same_state_agrees_with_longhand_loops_and_with_single_rows() -> None:
    """It looks at the row, so that a state has several actions; one-hot features take every row by itself."""
    panel = Panel.of(ragged(6, users=200), CERTIFY)
    target = np.random.default_rng(0).integers(2, size=len(panel))
    result = fit(panel, counted(panel), target, days=(2, 5), least_rows=1)
    assert result.value[:3] == pytest.approx(longhand(panel, target, None), abs=1e-10)
    at = result.column("reward@5")
    assert result.value[at : at + 2] == pytest.approx(longhand(panel, target, 5), abs=1e-10)
    single = fit(panel, FeatureBasis(np.eye(3, dtype=np.float32)[np.asarray(panel.state)], 2), target, days=(2, 5))
    assert result.influence == pytest.approx(single.influence, abs=1e-5)
    assert result.mass == pytest.approx(single.mass, abs=1e-5)


def test_one_evaluator_gives_every_policy_what_a_fit_of_its_own_gives() -> None:
    panel = Panel.of(ragged(7, users=100), CERTIFY)
    rng = np.random.default_rng(1)
    hot = np.eye(3, dtype=np.float32)[np.asarray(panel.state)]
    for basis in (counted(panel), FeatureBasis(hot, 2)):
        evaluator = Evaluator(panel, basis)
        for days in ((), (3,), (1, 6)):
            target = rng.integers(2, size=3)[np.asarray(panel.state)]
            shared, alone = evaluator.fit(target, days=days), fit(panel, basis, target, days=days)
            assert shared.targets == alone.targets
            assert shared.value == pytest.approx(alone.value, abs=1e-12)
            assert shared.influence == pytest.approx(alone.influence, abs=1e-12)


def test_what_each_day_brings_adds_up_to_the_totals_up_to_the_longest() -> None:
    panel = Panel.of(ragged(8, users=100), CERTIFY)
    policies = np.array([[0, 1, 1], [1, 0, 0]])[:, np.asarray(panel.state)]
    parts = [fit(panel, counted(panel), policy, days=(2, 5)) for policy in policies]
    every = [fit(panel, counted(panel), policy, days=range(1, 6)) for policy in policies]
    for part, whole in zip(parts, every, strict=True):
        wanted = whole.value[3:].reshape(5, 2)
        assert np.isfinite(wanted).all()
        assert part.daily.cumsum(axis=0) == pytest.approx(wanted, abs=1e-12)
    weights = np.array([0.4, 0.6])
    assert combine(parts, weights).daily == pytest.approx(np.tensordot(weights, [part.daily for part in parts], 1))
    assert fit(panel, counted(panel), policies[0]).daily.shape == (0, 2)


def test_daily_totals_are_withheld_up_to_the_span_that_is() -> None:
    """On the second day all are in state 1, where action 1 was never given."""
    U = 100
    data = transitions(
        user=np.repeat(np.arange(U), 3),
        day=np.tile(np.arange(3), U),
        state=np.tile([0, 1, 1], U),
        action=np.tile([0, 0, 0, 1, 0, 0], U // 2),
        outcome=np.ones((3 * U, 2)),
        num_states=2,
        num_actions=2,
    )
    panel = Panel.of(data, CERTIFY)
    always = np.ones(len(panel), np.intp)
    given = fit(panel, counted(panel), always, days=(1, 3))
    assert given.withheld[given.column("reward@1")] is None
    assert given.withheld[given.column("reward@3")] is not None
    assert given.daily[0] == pytest.approx([1.0, 1.0])
    assert np.isnan(given.daily[1:]).all()
    assert np.isnan(fit(panel, counted(panel), always, days=(3,)).daily).all()


def joining_late() -> Transitions:
    """40 users from the first of 4 days, who are in state 0 and bring 1 a day, and 60 from the third, in state 1: 3."""
    early, late = 40, 60
    days = np.concatenate([np.tile(np.arange(4), early), np.tile(np.arange(2), late)])
    user = np.concatenate([np.repeat(np.arange(early), 4), np.repeat(early + np.arange(late), 2)])
    state = (user >= early).astype(int)
    data = transitions(
        user=user,
        day=days,
        state=state,
        action=np.arange(len(user)) // 3 % 2,
        num_states=2,
        num_actions=2,
        outcome=np.column_stack([1.0 + 2 * state, np.ones(len(user))]),
    )
    data.users["window"] = np.where(np.arange(early + late) < early, 4, 2)
    return data


@pytest.mark.parametrize("features", [False, True], ids=["counted", "features"])
def test_totals_are_of_all_users_as_discounted_values_are(features: bool) -> None:
    """By the model the late ones' 4 days bring 12; of those whose window covers 4, what was observed comes back."""
    panel = Panel.of(joining_late(), CERTIFY)
    hot = np.eye(2, dtype=np.float32)[np.asarray(panel.state)]
    evaluator = Evaluator(panel, FeatureBasis(hot, 2) if features else counted(panel))
    found, seen = evaluator.fit(days=(1, 2, 4)), observe(panel, days=(1, 2, 4))
    early = evaluator.fit(days=(4,), among=panel.covers(4))
    for target, same in (("reward@1", found), ("reward@2", found), ("reward@4", early), ("cost@4", early)):
        assert same.value[same.column(target)] == pytest.approx(seen.value[seen.column(target)])
    assert found.value[found.column("reward@2")] == pytest.approx(0.4 * 2 + 0.6 * 6)
    assert found.value[found.column("reward@4")] == pytest.approx(0.4 * 4 + 0.6 * 12)
    assert found.value[found.column("reward")] == pytest.approx(0.4 + 0.6 * 3)
    assert found.daily[:, 0] == pytest.approx([2.2, 2.2, 2.2, 2.2])
    late = evaluator.fit(days=(2, 4), among=panel.window == 2)
    assert late.value[late.column("reward@2")] == pytest.approx(6.0)
    assert late.withheld[late.column("reward@4")] == Reason(ReasonKind.NOT_SHOWN, {"days": 4})


def test_totals_of_more_days_than_the_log_has_are_withheld() -> None:
    panel = Panel.of(joining_late(), CERTIFY)
    found = fit(panel, counted(panel), days=(2, 30))
    assert found.value[found.column("reward@2")] == pytest.approx(4.4)
    for target in ("reward@30", "cost@30"):
        assert found.withheld[found.column(target)] == Reason(ReasonKind.NOT_SHOWN, {"days": 30})
        assert np.isnan(found.value[found.column(target)])
    assert found.daily.shape == (30, 2)
    assert np.isnan(found.daily[2:]).all()


def test_where_all_other_users_have_ended_what_follows_is_known_and_all_count() -> None:
    """Two of four users end on the first day; while the third's window is too short, they do not count without it."""
    data = transitions(
        user=[0, 1, 2, 2, 3],
        day=[0, 0, 0, 1, 0],
        state=[0] * 5,
        action=[0] * 5,
        num_states=1,
        num_actions=2,
        outcome=[[8, 1], [6, 1], [1, 1], [1, 1], [4, 1]],
        terminal=[True, True, False, False, False],
    )
    data.users["window"] = [1, 1, 2, 1]
    panel = Panel.of(data, CERTIFY)
    assert panel.covers(1).all()
    assert panel.covers(2).tolist() == [False, False, True, False]
    data.terminal[4] = True
    panel = Panel.of(data, CERTIFY)
    assert panel.covers(2).all()
    assert not panel.covers(3).any()
    seen, found = observe(panel, days=(2,)), fit(panel, counted(panel), days=(2,))
    assert seen.value[0] == pytest.approx((8 + 6 + 2 + 4) / 4)
    assert found.withheld[found.column("reward@2")] is None


def test_three_rows_worked_by_hand() -> None:
    """γ = 0.5. User 0: state 0, action 1, reward 2, then state 1, action 0, reward 4, terminal. User 1: state 0, action
    1, reward 6, terminal.

    Q(1, 0) = 0.5·4 = 2. Q(0, 1) = mean(0.5·2 + 0.5·Q(1, 0), 0.5·6) = mean(2, 3) = 2.5. Both start in state 0: V = 2.5.
    d: each start row counts once, visits to (0, 1) sum to 1, so each of its 2 rows has weight 1/2.
    δ = (2 − 2.5, 3 − 2.5) = (−0.5, 0.5), inflated by 1/√(1 − 1/2). ψ = 2 · 1/2 · (∓0.5·√2) = ∓0.7071.
    """
    data = transitions(
        user=[0, 0, 1],
        day=[0, 1, 0],
        state=[0, 1, 0],
        action=[1, 0, 1],
        outcome=[[2, 0], [4, 0], [6, 0]],
        terminal=[False, True, True],
        num_states=2,
        num_actions=2,
        about=campaign(0.5),
        steady=False,
    )
    panel = Panel.of(data, CERTIFY)
    result = fit(panel, counted(panel), np.array([1, 0, 1]), days=(2,), least_rows=1)
    assert result.value[result.column("reward")] == pytest.approx(2.5)
    assert result.influence[:, 0] == pytest.approx([-np.sqrt(0.5), np.sqrt(0.5)])
    # decisions: 0.5·(1 + 0.5·1) for user 0 and 0.5 for user 1; 2-day total: (2 + 4) and 6
    assert result.value[result.column("decisions")] == pytest.approx(np.mean([0.75, 0.5]))
    assert result.value[result.column("reward@2")] == pytest.approx(6.0)


def test_a_terminal_row_is_a_zero_and_a_truncated_one_is_left_out() -> None:
    """State 0 leads to state 1 or, in half the rows, to an end. Dropping those rows instead would double the future."""
    values = []
    for ends in (True, False):
        data = transitions(
            user=[0, 0, 1, 2, 2, 3],
            day=[0, 1, 0, 0, 1, 0],
            state=[0, 1, 0, 0, 1, 0],
            action=[0] * 6,
            outcome=[[0, 0], [1, 0], [0, 0]] * 2,
            terminal=[False, True, ends] * 2,
            num_states=2,
            num_actions=2,
            about=campaign(0.5),
            steady=False,
        )
        panel = Panel.of(data, CERTIFY)
        values.append(fit(panel, counted(panel)).value[0])
    assert values == pytest.approx([0.5 * 0.5 * 0.5, 0.5 * 0.5])


def test_discount_zero_is_a_one_step_problem_and_uses_rows_without_a_next_row() -> None:
    """One row a user: the value is the mean over states of the mean reward of the chosen action."""
    rng = np.random.default_rng(0)
    state, action, reward = rng.integers(2, size=80), rng.integers(2, size=80), rng.random(80)
    data = transitions(
        user=np.arange(80),
        day=np.zeros(80),
        state=state,
        action=action,
        num_states=2,
        num_actions=2,
        outcome=np.column_stack([reward, 0 * reward]),
        about=campaign(0.0),
        steady=False,
    )
    panel = Panel.of(data, CERTIFY)
    result = fit(panel, counted(panel), np.ones(80, np.intp), days=(1,))
    by_hand = sum(np.mean(state == s) * reward[(state == s) & (action == 1)].mean() for s in (0, 1))
    at = [result.column(name) for name in ("reward", "reward@1", "decisions")]
    assert result.value[at] == pytest.approx([by_hand, by_hand, 1.0])
    assert result.influence[:, at[0]] == pytest.approx(result.influence[:, at[1]])


def test_without_any_following_row_the_discounted_value_is_withheld_with_the_reason() -> None:
    data = transitions(
        user=np.arange(40),
        day=np.zeros(40),
        state=np.zeros(40),
        action=np.arange(40) % 2,
        outcome=np.ones((40, 2)),
        num_states=1,
        num_actions=2,
    )
    panel = Panel.of(data, CERTIFY)
    result = fit(panel, counted(panel), days=(1, 2))
    assert result.withheld[0] == Reason(ReasonKind.NOTHING_FOLLOWS)
    assert np.isnan(result.value[0])
    assert result.value[result.column("reward@1")] == pytest.approx(1.0)
    assert result.withheld[result.column("reward@2")] is not None


def test_forced_rows_take_the_logged_action_and_are_no_decision() -> None:
    """Every row after the first is forced: the policy's choice there changes nothing; J_1 counts first rows only."""
    rng = np.random.default_rng(5)
    action = np.repeat(rng.integers(2, size=200), 3)
    data = transitions(
        user=np.repeat(np.arange(200), 3),
        day=np.tile(np.arange(3), 200),
        num_states=3,
        num_actions=2,
        state=np.tile(np.arange(3), 200),
        action=action,
        outcome=rng.random((600, 2)),
        steady=False,
        forced=np.tile([False, True, True], 200),
        terminal=np.tile([False, False, True], 200),
    )
    panel = Panel.of(data, CERTIFY)
    one = fit(panel, counted(panel), np.tile([1, 0, 0], 200))
    other = fit(panel, counted(panel), np.tile([1, 1, 1], 200))
    assert one.value == pytest.approx(other.value)
    assert one.value[one.column("decisions")] == pytest.approx(0.2)


def test_one_hot_features_give_the_counted_fit() -> None:
    for data in (World.drawn(7).log(200, 5, np.random.default_rng(8)), ragged(9, users=200)):
        panel = Panel.of(data, CERTIFY)
        target = np.array([1, 0, 1])[np.asarray(panel.state)]
        hot = np.eye(3, dtype=np.float32)[np.asarray(panel.state)]
        exact = fit(panel, counted(panel), target, days=(1, 3))
        linear = fit(panel, FeatureBasis(hot, 2), target, days=(1, 3))
        assert linear.value == pytest.approx(exact.value, abs=1e-6)
        assert linear.influence == pytest.approx(exact.influence, abs=1e-5)
        assert linear.ess == pytest.approx(exact.ess, rel=1e-4)


def test_features_that_span_a_linear_truth_recover_it_with_collinear_columns() -> None:
    """Reward is linear in a continuous feature that does not move; a copy of the column changes nothing."""
    rng = np.random.default_rng(3)
    U, days = 300, 3
    z = np.repeat(rng.normal(size=U), days)
    action = rng.integers(2, size=U * days)
    reward = np.where(action == 1, 1 + z, 2 - z)
    data = transitions(
        user=np.repeat(np.arange(U), days),
        day=np.tile(np.arange(days), U),
        state=np.zeros(U * days),
        action=action,
        num_states=1,
        num_actions=2,
        outcome=np.column_stack([reward, reward]),
    )
    panel = Panel.of(data, CERTIFY)
    f = np.column_stack([z, z, np.zeros_like(z)])
    result = fit(panel, FeatureBasis(f, 2), np.ones(U * days, np.intp), days=(2,))
    assert result.value[[0, result.column("reward@2")]] == pytest.approx([1 + z.mean(), 2 + 2 * z.mean()], abs=1e-5)


def test_the_policy_of_the_log_is_fitted_with_its_own_actions_and_reproduces_the_observed_totals() -> None:
    panel = Panel.of(World.drawn(11).log(2000, 5, np.random.default_rng(12)), CERTIFY)
    old = fit(panel, counted(panel), days=(1, 3, 5))
    check = reproduces(observe(panel, days=(1, 3, 5)), old)
    assert check.ok
    assert len(check.targets) == 6
    assert old.value[old.column("reward@1")] == pytest.approx(panel.outcome[panel.first, 0].mean(), rel=0.05)


@pytest.fixture(scope="module")
def hits() -> dict[str, float]:
    """How often intervals hold the truth in 300 logs of 400 users: a policy's mean and total, the old one's mean."""
    world, policy = World.drawn(22), np.array([0, 1, 1])
    truth = {
        "cost": tabular.measure(world.cmdp, policy)[1],
        "reward@3": tabular.totals(world.cmdp, policy, 3)[2, 0],
        "reward": tabular.measure(world.cmdp, world.behaviour)[0],
    }
    held = dict.fromkeys(truth, 0)
    for seed in range(300):
        panel = Panel.of(world.log(400, 5, np.random.default_rng([seed, 99])), CERTIFY)
        new, old = fit(panel, counted(panel), policy[np.asarray(panel.state)], days=(3,)), fit(panel, counted(panel))
        for target, value in truth.items():
            of = old if target == "reward" else new
            at = of.column(target)
            held[target] += abs(of.value[at] - value) <= 1.96 * of.std_error[at]
    return {target: count / 300 for target, count in held.items()}


@pytest.mark.parametrize("target", ["cost", "reward@3", "reward"])
def test_intervals_cover_the_truth_as_often_as_they_say(target: str, hits: dict[str, float]) -> None:
    assert 0.92 <= hits[target] <= 0.98


def test_a_mixture_is_the_linear_combination_with_the_covariance_of_its_members() -> None:
    panel = Panel.of(World.drawn(31).log(500, 4, np.random.default_rng(32)), CERTIFY)
    state = np.asarray(panel.state)
    parts = [fit(panel, counted(panel), policy[state], days=(2,)) for policy in np.array([[0, 0, 1], [1, 1, 1]])]
    mixture = combine(parts, np.array([0.3, 0.7]))
    assert mixture.value == pytest.approx(0.3 * parts[0].value + 0.7 * parts[1].value)
    psi = np.stack([part.influence[:, 0] for part in parts])
    variance = np.array([0.3, 0.7]) @ np.cov(psi) @ np.array([0.3, 0.7]) / 500
    assert mixture.std_error[0] == pytest.approx(np.sqrt(variance))
    same = combine([parts[0], parts[0]], np.array([0.5, 0.5]))
    assert same.std_error == pytest.approx(parts[0].std_error)


def half_known(thin_users: int) -> Transitions:
    """400 users in state 0; `thin_users` more start in state 1, where action 1 was given once only."""
    U = 400 + thin_users
    state = np.where(np.arange(U) < 400, 0, 1).repeat(3)
    action = np.where(state == 0, np.arange(3 * U) % 2, 0)
    action[-3] = 1
    return transitions(
        user=np.repeat(np.arange(U), 3),
        day=np.tile(np.arange(3), U),
        state=state,
        action=action,
        outcome=np.column_stack([1.0 + action, action]),
        num_states=2,
        num_actions=3,
    )


def test_a_value_that_leans_on_unseen_pairs_is_withheld_and_a_little_leaning_is_reported() -> None:
    for thin_users, given in ((40, False), (2, True)):
        panel = Panel.of(half_known(thin_users), CERTIFY)
        result = fit(panel, counted(panel), np.ones(len(panel), np.intp), days=(2,))
        share = thin_users / (400 + thin_users)
        assert result.unsupported[[0, result.column("reward@2")]] == pytest.approx([share, share], rel=0.02)
        if given:  # the state-free mean of action 1 stands in: 2 everywhere
            assert result.value[:2] == pytest.approx([2.0, 1.0])
        else:
            assert result.withheld[0] is not None
            assert result.withheld[0].kind is ReasonKind.HARDLY_GIVEN_MOST
            assert result.withheld[0].figures == {"share": pytest.approx(0.091, abs=5e-4), "action": 1.0, "most": 0.01}
            assert np.isnan(result.value[0])
            assert np.isnan(result.influence[:, 0]).all()


def test_an_action_that_was_never_given_withholds_at_any_share() -> None:
    panel = Panel.of(half_known(1), CERTIFY)
    target = np.zeros(len(panel), np.intp)
    target[-1] = 2
    result = fit(panel, counted(panel), target)
    assert result.withheld[0] == Reason(ReasonKind.NEVER_GIVEN_IN_USE, {"action": 2.0})


def test_features_withhold_what_lies_beyond_the_rows_of_an_action() -> None:
    """Action 1 was given only where z < 0; a policy that gives it everywhere extrapolates."""
    rng = np.random.default_rng(0)
    z = np.repeat(np.append(rng.uniform(-1, 0, 300), rng.uniform(5, 6, 30)), 2)
    action = np.where(z < 0, np.arange(len(z)) // 2 % 2, 0)
    action[np.flatnonzero(z < 0)[6:]] = 0  # 2 rows or so with action 1 and almost one z
    U = len(z) // 2
    data = transitions(
        user=np.repeat(np.arange(U), 2),
        day=np.tile([0, 1], U),
        state=np.zeros(2 * U),
        action=action,
        outcome=rng.random((2 * U, 2)),
        num_states=1,
        num_actions=2,
    )
    panel = Panel.of(data, CERTIFY)
    result = fit(panel, FeatureBasis(z[:, None], 2), np.ones(2 * U, np.intp))
    assert result.withheld[0] is not None
    assert fit(panel, FeatureBasis(z[:, None], 2), np.zeros(2 * U, np.intp)).withheld[0] is None


def test_a_fitted_value_that_outcomes_cannot_add_up_to_is_withheld() -> None:
    """Rewards are 0 or 1, and a line through the rows with z in (0, 1) says more than 4 at z = 3."""
    rng = np.random.default_rng(0)
    z = np.append(rng.uniform(0, 1, 2000), np.full(2000, 3.0))
    action = np.repeat([1, 0], 2000)
    reward = np.where(z > 0.5, 1.0, 0.0) * action
    data = transitions(
        user=np.arange(4000),
        day=np.zeros(4000),
        state=np.zeros(4000),
        action=action,
        num_states=1,
        num_actions=2,
        outcome=np.column_stack([reward, 0 * reward]),
        about=campaign(0.0),
    )
    panel = Panel.of(data, CERTIFY)
    result = fit(panel, FeatureBasis(z[:, None], 2), np.ones(4000, np.intp))
    assert result.withheld[0] == Reason(ReasonKind.UNSTABLE)
    assert result.withheld[1] is None


def test_an_action_that_is_not_allowed_is_an_error_and_a_forced_row_excuses_it() -> None:
    for forced in (False, True):
        data = transitions(
            user=[0, 1],
            day=[0, 0],
            state=[0, 0],
            action=[0, 0],
            outcome=np.ones((2, 2)),
            num_states=1,
            num_actions=2,
            eligible=[[1, 0], [1, 1]],
            forced=[forced, False],
        )
        panel = Panel.of(data, CERTIFY)
        if forced:
            assert panel.follow(np.array([1, 1])).kind.tolist() == [0, 1]
        else:
            with pytest.raises(LogError, match="not allowed in row 0"):
                fit(panel, counted(panel), np.array([1, 1]))


def test_only_users_of_the_split_count_and_an_empty_split_is_an_error() -> None:
    data = transitions(
        user=[0, 0, 1, 1],
        day=[0, 1, 0, 1],
        state=[0] * 4,
        action=[0] * 4,
        num_states=1,
        num_actions=2,
        outcome=[[1, 1], [1, 1], [5, 5], [5, 5]],
        split=[LEARN, CERTIFY],
    )
    panel = Panel.of(data, CERTIFY)
    assert panel.following.tolist() == [1, -1]
    assert fit(panel, counted(panel), days=(2,), least_rows=1).value[[0, 3]] == pytest.approx([5, 10])
    with pytest.raises(LogError, match=r"no user .*'select'"):
        Panel.of(data, 1)


def test_the_order_of_users_does_not_matter() -> None:
    world = World.drawn(41)
    data = world.log(100, 4, np.random.default_rng(42))
    order = np.arange(400).reshape(100, 4)[::-1].ravel()
    flipped = transitions(
        user=np.repeat(np.arange(100), 4),
        day=data.day,
        state=np.asarray(data.state)[order],
        action=data.action[order],
        outcome=data.outcome[order],
        num_states=3,
        num_actions=2,
        about=data.campaign,
    )
    one, other = (
        fit(panel, counted(panel), np.array([1, 1, 0])[np.asarray(panel.state)], days=(3,))
        for panel in (Panel.of(data, CERTIFY), Panel.of(flipped, CERTIFY))
    )
    assert one.value == pytest.approx(other.value)
    assert one.influence == pytest.approx(other.influence[::-1])
