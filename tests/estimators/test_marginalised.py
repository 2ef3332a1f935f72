"""Marginalised importance sampling: exact on logs that hold every path as often as it should, longhand elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import Array, World, campaign, fit, ragged, transitions
from logs_in_memory import marginal as estimate
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import LogError
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.basis import Basis, CountedBasis, FeatureBasis, SmoothBasis
from outlay.estimators.importance import row_ratios, weigh
from outlay.estimators.joint import combine
from outlay.estimators.marginalised import Marginal, StateSolution, closed, discounted, of_states, totals
from outlay.estimators.observed import observe
from outlay.estimators.panel import Panel
from outlay.ops import tabular

# Of every 4 users in state s, `DRAWS[s]` says what they are given, `MOVES[s, a]` where they go.
DRAWS = np.array([[0, 0, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1]])
MOVES = np.array([[[0, 0, 1, 2], [1, 1, 1, 2]], [[0, 1, 1, 2], [2, 2, 0, 1]], [[2, 2, 2, 0], [0, 1, 1, 1]]])
REWARD = np.array([[0.2, 0.9], [0.4, 0.1], [0.7, 0.5]])
POLICIES = (np.array([1, 0, 1]), np.array([[0.3, 0.7], [0.9, 0.1], [0.5, 0.5]]))


def ratios(panel: Panel, basis: Basis, policy: NDArray[np.number]) -> Array:
    """`[n]` d^π(s, a) / d^D(s, a) of the discounted value, D the rows that it rests on; 0 in all others."""
    _, ratio = row_ratios(panel, policy, None)
    assert ratio is not None
    share = np.full(panel.num_users, 1 / panel.num_users)
    found = discounted(panel, of_states(basis), panel.outcome, ratio, share, 2)
    return np.asarray((1 - panel.discount) * closed(panel).sum() * found.mass)


def counted(panel: Panel) -> CountedBasis:
    assert panel.state is not None
    assert panel.data.states is not None
    return CountedBasis(panel.state, len(panel.data.states), panel.data.num_actions)


def every_path(days: int, daily: Array | None = None, late: NDArray[np.intp] = MOVES) -> Transitions:
    """Each path as often as it should come; a day of its own gets `daily` `[days, S, A]` rewards and moves `late`."""
    state, action = np.arange(3)[:, None], np.zeros((3, 0), np.intp)
    for t in range(days):
        given = DRAWS[state[:, -1]].ravel()
        state, action = np.repeat(state, 4, axis=0), np.column_stack([np.repeat(action, 4, axis=0), given])
        if t + 1 < days:
            then = (MOVES if t == 0 else late)[state[:, -1], given].ravel()
            state, action = np.column_stack([np.repeat(state, 4, axis=0), then]), np.repeat(action, 4, axis=0)
    user, day = np.repeat(np.arange(len(state)), days), np.tile(np.arange(days), len(state))
    s, a = state.ravel(), action.ravel()
    reward = REWARD[s, a] if daily is None else daily[day, s, a]
    return transitions(
        user=user,
        day=day,
        state=s,
        action=a,
        outcome=np.column_stack([reward, a]),
        num_states=3,
        num_actions=2,
        propensity=(DRAWS[s] == a[:, None]).mean(axis=1),
    )


def model(discount: float = 0.8) -> TabularCMDP:
    return TabularCMDP(
        transition=np.stack([np.equal(MOVES, s).mean(axis=2) for s in range(3)], axis=2),
        reward=REWARD,
        cost=np.tile([0.0, 1.0], (3, 1))[:, :, None],
        start=np.full(3, 1 / 3),
        discount=discount,
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_values_and_totals_are_the_tabular_ones_where_the_log_holds_every_path(policy: Array) -> None:
    panel = Panel.of(every_path(3), CERTIFY)
    got = estimate(panel, counted(panel), policy[np.asarray(panel.state)], days=(1, 2, 3))
    exact = tabular.totals(model(), policy, 3)
    assert got.value[:2] == pytest.approx(tabular.measure(model(), policy), abs=1e-6)
    assert got.value[got.column("decisions")] == 1.0
    assert got.value[3:].reshape(3, 2) == pytest.approx(exact, abs=1e-6)
    assert got.mean_ratio == pytest.approx(1)
    assert got.withheld == (None,) * 9


@pytest.mark.parametrize("policy", POLICIES)
def test_ratios_are_those_of_the_exact_occupancies(policy: Array) -> None:
    panel = Panel.of(every_path(2), CERTIFY)
    assert panel.state is not None
    table = np.eye(2)[policy] if policy.ndim == 1 else policy
    cmdp = model()
    move = np.einsum("sa,sat->st", table, cmdp.transition)
    visits = np.linalg.solve((np.eye(3) - 0.8 * move).T, 0.2 * cmdp.start)[:, None] * table
    logged = np.stack([np.equal(DRAWS, a).mean(axis=1) for a in (0, 1)], axis=1) / 3  # the rows of the first day
    got = ratios(panel, counted(panel), policy[panel.state])
    on = panel.following >= 0
    assert got[on] == pytest.approx((visits / logged)[panel.state, panel.action][on], abs=1e-6)
    assert (got[~on] == 0).all()
    assert got[on].mean() == pytest.approx(1)


def test_days_need_not_be_alike_for_totals_which_fitted_evaluation_takes_them_to_be() -> None:
    daily = np.stack([REWARD, REWARD[::-1] + 1, 3 * REWARD * [1, 0]])
    late = MOVES[::-1]
    panel = Panel.of(every_path(3, daily, late), CERTIFY)
    policy = POLICIES[1]
    states, expected = np.full(3, 1 / 3), np.zeros(3)
    for day in range(3):
        expected[day] = states @ (policy * daily[day]).sum(axis=1)
        moves = np.stack([((MOVES if day == 0 else late) == s).mean(axis=2) for s in range(3)], axis=2)
        states = states @ np.einsum("sa,sat->st", policy, moves)
    row = policy[np.asarray(panel.state)]
    got = estimate(panel, counted(panel), row, days=(1, 2, 3))
    assert got.value[[got.column(f"reward@{k}") for k in (1, 2, 3)]] == pytest.approx(expected.cumsum(), abs=1e-6)
    fqe = fit(panel, counted(panel), row, days=(3,))
    assert abs(fqe.value[fqe.column("reward@3")] - expected.sum()) > 0.1


def confounded() -> Transitions:
    """A mood z, fair and new every day, which no state shows: it raises the chance of action 1, the reward, and the
    next state: state = last z. Each path as often as it should come.
    """
    moods, actions = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 1, 0, 1, 1, 1])
    path = np.stack(np.meshgrid(*[np.arange(8)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    z, a = moods[path], actions[path]
    state = np.column_stack([np.zeros(len(z), np.intp), z[:, :-1]])
    reward = (2 * z + a + state).ravel()
    return transitions(
        user=np.repeat(np.arange(len(z)), 3),
        day=np.tile(np.arange(3), len(z)),
        state=state.ravel(),
        action=a.ravel(),
        outcome=np.column_stack([reward, a.ravel()]),
        num_states=2,
        num_actions=2,
        propensity=np.where(z == a, 0.75, 0.25).ravel(),
    )


def test_what_the_log_looked_at_beyond_the_state_is_reweighted_away_and_misleads_fitted_evaluation() -> None:
    """Always action 1: 2·½ + 1 on the first day, and ½ more from the state on every other."""
    panel = Panel.of(confounded(), CERTIFY)
    ones = np.ones(len(panel), np.intp)
    got, fqe = (f(panel, counted(panel), ones, days=(3,)) for f in (estimate, fit))
    at = [got.column("reward"), got.column("reward@3")]
    truth = [0.2 * 2 + 0.8 * 2.5, 2 + 2.5 + 2.5]
    assert got.value[at] == pytest.approx(truth, abs=1e-6)
    assert (fqe.value[at] - truth > [0.5, 1.5]).all()  # E[z | action 1] = ¾, and so the next state too


def longhand(panel: Panel, policy: Array, days: int | None) -> Array:
    """The same by loops: fixed-point iteration (discounted, days None), or the recursion from the last day."""
    assert panel.state is not None
    assert panel.propensity is not None
    state = panel.state
    rho = np.where(panel.forced, 1.0, policy[np.arange(len(panel)), panel.action] / panel.propensity)
    outcome = np.column_stack([panel.outcome, ~panel.forced]) if days is None else panel.outcome

    def averages(rows: list[int], ahead: list[Array]) -> dict[int, Array]:
        return {
            int(s): np.average(
                [y for i, y in zip(rows, ahead, strict=True) if state[i] == s],
                axis=0,
                weights=[rho[i] for i in rows if state[i] == s],
            )
            for s in {int(state[i]) for i in rows}
        }

    def then(i: int, value: dict[int, Array]) -> Array:
        return value[int(state[panel.following[i]])] if panel.following[i] >= 0 else np.zeros(outcome.shape[1])

    if days is None:
        rows = [i for i in range(len(panel)) if panel.following[i] >= 0 or panel.terminal[i]]
        value = {s: np.zeros(outcome.shape[1]) for s in range(3)}
        for _ in range(200):
            value = averages(
                rows,
                [(1 - panel.discount) * outcome[i] + panel.discount ** panel.gap[i] * then(i, value) for i in rows],
            )
        return np.asarray(np.mean([value[state[i]] for i in panel.start], axis=0))
    by_day: dict[int, dict[int, Array]] = {d: {s: np.zeros(2) for s in range(3)} for d in range(days, days + 4)}
    covered = [i for i in range(len(panel)) if panel.window[panel.user[i]] >= days]
    for day in range(days - 1, -1, -1):
        rows = [i for i in covered if panel.day[i] == day]
        by_day[day] = averages(rows, [outcome[i] + then(i, by_day.get(day + int(panel.gap[i]), {})) for i in rows])
    return np.asarray(np.mean([by_day[0][state[i]] for i in panel.first], axis=0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("drawn", [False, True])
def test_gaps_ends_windows_and_forced_rows_agree_with_longhand_loops(seed: int, drawn: bool) -> None:
    rng = np.random.default_rng(seed)
    data = ragged(seed, users=150)
    data.users["window"][::5] = 3
    panel = Panel.of(data, CERTIFY)
    chance = rng.random(len(panel)) if drawn else rng.integers(2, size=3)[np.asarray(panel.state)]
    policy = np.column_stack([1 - chance, chance])
    got = estimate(panel, counted(panel), policy, days=(1, 3, 5), support=1, least_rows=1)
    assert got.value[:3] == pytest.approx(longhand(panel, policy, None), abs=1e-6)
    for k in (1, 3, 5):
        at = got.column(f"reward@{k}")
        assert got.value[at : at + 2] == pytest.approx(longhand(panel, policy, k), abs=1e-6)
    assert got.influence.mean(axis=0) == pytest.approx(np.zeros(9), abs=0.1)


@pytest.mark.parametrize(("linear", "least_rows"), [(False, 12), (True, 2)])
def test_the_value_is_the_sum_of_the_weighted_outcomes(linear: bool, least_rows: int) -> None:
    """Thin states among them: the adjoint knows the state-free means."""
    rng = np.random.default_rng(1)
    panel = Panel.of(ragged(1, users=120), CERTIFY)
    basis = of_states(FeatureBasis(rng.normal(size=(len(panel), 2)), 2) if linear else counted(panel))
    ratio, share = np.where(rng.random(len(panel)) < 0.5, 2.0, 0.0), np.full(120, 1 / 120)
    found = totals(panel, basis, panel.outcome, ratio, share, least_rows, 6)
    assert found.unsupported > 0
    assert share @ found.value[panel.first] == pytest.approx(found.mass @ panel.outcome, rel=1e-6)
    least = 2 if linear else int(np.bincount(np.asarray(panel.state)[(panel.following >= 0) & (ratio > 0)]).max())
    tail = discounted(panel, basis, panel.outcome, ratio, share, least)
    assert linear or tail.unsupported > 0
    assert share @ tail.value[panel.start] == pytest.approx(0.2 * tail.mass @ panel.outcome, rel=1e-6)


def test_three_users_worked_by_hand() -> None:
    """γ = 0, one state. Policy: always 1. ρ = 4 (reward 3), 1 (reward 8), 0. V = (4·3 + 1·8) / 5 = 4.

    A row counts 1/Σρ = 1/5: leverages 4/5, held at ½, and 1/5. ψ = 3·(4/5·(3 − 4)·2, 1/5·(8 − 4)·5/4, 0).
    """
    data = transitions(
        user=[0, 1, 2],
        day=[0, 0, 0],
        state=[0, 0, 0],
        action=[1, 1, 0],
        propensity=[0.25, 1, 0.5],
        outcome=[[3, 0], [8, 0], [5, 0]],
        num_states=1,
        num_actions=2,
        about=campaign(0.0),
    )
    panel = Panel.of(data, CERTIFY)
    got = estimate(panel, counted(panel), np.ones(3, np.intp), days=(1,))
    at = [got.column("reward"), got.column("reward@1")]
    assert got.value[at] == pytest.approx([4, 4])
    for t in at:
        assert got.influence[:, t] == pytest.approx([-4.8, 3.0, 0])
        assert got.mass[:, t] == pytest.approx([0.8, 0.2, 0.0])
        assert got.ess[t] == pytest.approx(1 / (0.8**2 + 0.2**2))
    assert got.mean_ratio == pytest.approx(5 / 3)


def test_the_policy_of_the_log_gets_its_observed_totals() -> None:
    for data in (ragged(4, users=300), World.drawn(11).log(500, 5, np.random.default_rng(12))):
        panel = Panel.of(data, CERTIFY)
        got = estimate(panel, counted(panel), None, days=(1, 3, 5), support=1)
        seen = observe(panel, days=(1, 3, 5))
        for t, name in enumerate(seen.targets):
            if "@" in name:
                assert got.value[got.column(name)] == pytest.approx(seen.value[t], rel=1e-9)
        assert (got.mean_ratio, got.mean_ratio_error) == (1, 0)


def test_one_hot_features_and_smooth_amounts_rest_on_the_counted_states() -> None:
    panel = Panel.of(ragged(9, users=300), CERTIFY)
    assert panel.state is not None
    hot = np.eye(3, dtype=np.float32)[panel.state]
    policy = POLICIES[1][panel.state]
    exact = estimate(panel, counted(panel), policy, days=(1, 4), support=1)
    for basis in (FeatureBasis(hot, 2), SmoothBasis(counted(panel), np.ones((1, 2)))):
        other = estimate(panel, basis, policy, days=(1, 4), support=1)
        assert other.value == pytest.approx(exact.value, abs=1e-6)
        assert other.influence == pytest.approx(exact.influence, abs=1e-5)
        assert other.mass == pytest.approx(exact.mass, abs=1e-6)


def test_users_asked_for_are_valued_on_everybody_s_rows() -> None:
    panel = Panel.of(World.drawn(5).log(600, 4, np.random.default_rng(1)), CERTIFY)
    policy = np.array([1, 0, 1])[np.asarray(panel.state)]
    some = np.asarray(panel.state)[panel.first] == 0
    parts = [estimate(panel, counted(panel), policy, days=(3,), among=who) for who in (some, ~some)]
    whole = estimate(panel, counted(panel), policy, days=(3,))
    share = some.mean()
    assert share * parts[0].value + (1 - share) * parts[1].value == pytest.approx(whole.value)
    assert abs(parts[0].value[0] - parts[1].value[0]) > 0.005
    nobody = estimate(panel, counted(panel), policy, days=(3,), among=np.zeros(600, np.bool_))
    assert nobody.withheld[0] == Reason(ReasonKind.NOBODY)
    assert nobody.withheld[-1] is not None


def test_a_mixture_is_the_linear_combination_with_the_covariance_of_its_members() -> None:
    panel = Panel.of(World.drawn(31).log(500, 4, np.random.default_rng(32)), CERTIFY)
    state, weights = np.asarray(panel.state), np.array([0.3, 0.7, 0.0])
    parts = [
        estimate(panel, counted(panel), policy[state], days=(2,))
        for policy in np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0]])
    ]
    got = combine(parts, weights)
    assert got.value == pytest.approx(0.3 * parts[0].value + 0.7 * parts[1].value)
    spread = weights[:2] @ np.cov(np.stack([part.influence[:, 0] for part in parts[:2]])) @ weights[:2]
    assert got.std_error[0] == pytest.approx(np.sqrt(spread / 500))
    assert got.mass == pytest.approx(0.3 * parts[0].mass + 0.7 * parts[1].mass)
    assert got.mean_ratio == pytest.approx(0.3 * parts[0].mean_ratio + 0.7 * parts[1].mean_ratio)


def half_known(thin_users: int, chance: float) -> tuple[Panel, Array]:
    """400 users in state 0 and a few who start in state 1, where action 0 alone was given; 1 has this chance."""
    U = 400 + thin_users
    state = np.where(np.arange(U) < 400, 0, 1).repeat(2)
    action = np.where(state == 0, np.arange(2 * U) // 2 % 2, 0)
    data = transitions(
        user=np.repeat(np.arange(U), 2),
        day=np.tile([0, 1], U),
        state=state,
        action=action,
        outcome=np.column_stack([1.0 + action, action]),
        num_states=2,
        num_actions=2,
        propensity=np.full(2 * U, 0.5),
    )
    panel = Panel.of(data, CERTIFY)
    return panel, np.tile([1 - chance, chance], (2 * U, 1))


def solutions(panel: Panel, policy: Array, days: int) -> list[StateSolution]:
    """Of discounted values and of totals."""
    basis, share = of_states(counted(panel)), np.full(panel.num_users, 1 / panel.num_users)
    _, ratio = row_ratios(panel, policy, None)
    assert ratio is not None
    return [
        discounted(panel, basis, panel.outcome, ratio, share, 2),
        totals(panel, basis, panel.outcome, ratio, share, 2, days),
    ]


def test_a_value_that_leans_on_thin_states_is_withheld_in_words_and_a_little_leaning_is_reported() -> None:
    for thin_users, given in ((40, False), (2, True)):
        panel, policy = half_known(thin_users, 1.0)
        got = estimate(panel, counted(panel), policy, days=(2,))
        share = thin_users / (400 + thin_users)
        for found in solutions(panel, policy, 2):
            assert found.unsupported == pytest.approx(share)
        if given:  # the state-free mean stands in: action 1 is worth 2 everywhere
            assert got.value[[0, got.column("reward@2")]] == pytest.approx([2, 4])
        else:
            assert got.withheld[0] is not None
            assert got.withheld[0].kind is ReasonKind.HARDLY_GIVEN
            assert got.withheld[0].figures == {"share": pytest.approx(0.091, abs=5e-4), "most": 0.01}
            assert np.isnan(got.value[[0, -1]]).all()
            assert np.isnan(got.influence[:, [0, -1]]).all()


def test_rows_of_an_action_that_the_policy_hardly_gives_are_not_enough_behind_a_state() -> None:
    """In state 1 the policy gives action 0 once in a hundred times: 40 rows with it count 0.8 rows."""
    panel, policy = half_known(40, 0.99)
    assert estimate(panel, counted(panel), policy, days=(1,)).withheld[0] is not None
    panel, policy = half_known(40, 0.5)
    assert estimate(panel, counted(panel), policy, days=(1,)).withheld[0] is None


def test_a_day_on_which_nobody_got_what_the_policy_gives_withholds_at_any_share() -> None:
    """Of 400 users one goes on to a second day, and action 1 was not given there."""
    action = np.append(np.arange(400) % 2, 0)
    data = transitions(
        user=np.append(np.arange(400), 399),
        day=np.append(np.zeros(400), 1),
        state=np.zeros(401),
        action=action,
        outcome=np.ones((401, 2)),
        num_states=1,
        num_actions=2,
        steady=False,
        propensity=np.full(401, 0.5),
    )
    panel = Panel.of(data, CERTIFY)
    got = estimate(panel, counted(panel), np.ones(401, np.intp), days=(1, 2))
    assert got.withheld[got.column("reward@1")] is None
    assert got.withheld[got.column("reward@2")] == Reason(ReasonKind.NEVER_GIVEN_ON)


def test_what_the_log_does_not_say_is_withheld_with_the_reason() -> None:
    data = World.drawn(3).log(50, 1, np.random.default_rng(0))
    panel = Panel.of(data, CERTIFY)
    policy = np.ones(50, np.intp)
    got = estimate(panel, counted(panel), policy, days=(1, 2))
    assert got.withheld[0] == Reason(ReasonKind.NOTHING_FOLLOWS)
    assert got.withheld[got.column("reward@1")] is None
    assert got.withheld[got.column("reward@2")] == Reason(ReasonKind.NOT_SHOWN, {"days": 2})
    bare = Panel.of(replace(data, propensity=None), CERTIFY)
    none = estimate(bare, counted(bare), policy, days=(1,))
    assert none.targets == ("reward", "cost", "decisions", "reward@1", "cost@1")
    assert [none.withheld[t] for t in (0, 1, 3, 4)] == [Reason(ReasonKind.NO_PROPENSITIES)] * 4
    assert not any(
        found.recommended for found in none.estimates("x", "mis", confidence=0.95, cautions=none.cautions())[:2]
    )
    assert estimate(bare, counted(bare), None, days=(1,)).withheld[3] is None
    given = estimate(bare, counted(bare), policy, days=(1,), propensity=np.asarray(panel.propensity))
    assert given.value[3:] == pytest.approx(got.value[3:5])


def test_a_value_that_outcomes_cannot_add_up_to_is_withheld() -> None:
    """Rewards are 0 or 1; a line through rows with z in (0, 1), the policy's, says more than 4 at z = 3."""
    rng = np.random.default_rng(0)
    z = np.append(rng.uniform(0, 1, 2000), np.full(2000, 3.0))
    action = np.repeat([1, 0], 2000)
    data = transitions(
        user=np.arange(4000),
        day=np.zeros(4000),
        state=np.zeros(4000),
        action=action,
        num_states=1,
        num_actions=2,
        outcome=np.column_stack([(z > 0.5) * action, 0 * z]),
        about=campaign(0.0),
        propensity=np.full(4000, 0.5),
    )
    panel = Panel.of(data, CERTIFY)
    got = estimate(panel, FeatureBasis(z[:, None], 2), np.ones(4000, np.intp), days=(1,))
    for t in (0, got.column("reward@1")):
        assert got.withheld[t] == Reason(ReasonKind.UNSTABLE)
    assert got.withheld[1] is None


def test_forced_rows_have_ratio_1_and_count_no_decision() -> None:
    rng = np.random.default_rng(5)
    action = np.repeat(rng.integers(2, size=400), 2)
    data = transitions(
        user=np.repeat(np.arange(400), 2),
        day=np.tile([0, 1], 400),
        num_states=2,
        num_actions=2,
        state=np.tile([0, 1], 400),
        action=action,
        outcome=rng.random((800, 2)),
        steady=False,
        forced=np.tile([False, True], 400),
        terminal=np.tile([False, True], 400),
        propensity=np.tile([0.5, 1], 400),
    )
    panel = Panel.of(data, CERTIFY)
    one, other = (estimate(panel, counted(panel), np.tile([1, a], 400), days=(2,)) for a in (0, 1))
    assert one.value == pytest.approx(other.value)
    assert one.value[one.column("decisions")] == pytest.approx(0.2)
    with pytest.raises(LogError, match="propensity"):
        estimate(panel, counted(panel), np.ones(800, np.intp), days=(), propensity=np.tile([0.0, np.nan], 400))


def test_propensities_that_are_wrong_show_in_the_mean_ratio_and_are_not_recommended() -> None:
    panel = Panel.of(World.drawn(2).log(2000, 4, np.random.default_rng(1)), CERTIFY)
    right = np.asarray(panel.propensity)
    ones = np.ones(len(panel), np.intp)
    good = estimate(panel, counted(panel), ones, days=(1,))
    assert abs(good.mean_ratio - 1) < 3 * good.mean_ratio_error
    assert good.cautions() == [None] * 5
    wrong = estimate(panel, counted(panel), ones, days=(1,), propensity=right * 0.9)
    assert wrong.mean_ratio == pytest.approx(good.mean_ratio / 0.9)
    said = wrong.cautions()[0]
    assert said is not None
    assert said.kind is ReasonKind.MEAN_RATIO
    assert said.figures == {"mean": wrong.mean_ratio, "error": wrong.mean_ratio_error}


def test_few_users_behind_a_number_are_not_recommended() -> None:
    panel = Panel.of(World.drawn(2).log(90, 4, np.random.default_rng(1)), CERTIFY)
    got = estimate(panel, counted(panel), POLICIES[1][np.asarray(panel.state)], days=(2,))
    assert got.withheld[0] is None
    assert got.ess[0] < 100
    assert got.cautions()[0] == Reason(ReasonKind.FEW_EFFECTIVE, {"count": got.ess[0], "needed": 100})


@pytest.fixture(scope="module")
def many() -> tuple[Array, list[Marginal], Array]:
    """Truths (reward, cost, reward@3, cost@3), estimates of 160 logs of 400 users, and their errors by PDIS."""
    world, policy = World.drawn(22), POLICIES[1]
    truth = np.append(tabular.measure(world.cmdp, policy), tabular.totals(world.cmdp, policy, 3)[2])
    found, product = [], []
    for seed in range(160):
        panel = Panel.of(world.log(400, 5, np.random.default_rng([seed, 99])), CERTIFY)
        row = policy[np.asarray(panel.state)]
        found.append(estimate(panel, counted(panel), row, days=(3,)))
        product.append(weigh(panel, row, days=(3,), clip=np.inf).value - truth[2:])
    return truth, found, np.array(product)


def test_intervals_cover_the_truth_as_often_as_they_say(many: tuple[Array, list[Marginal], Array]) -> None:
    truth, found, _ = many
    for name, expected in zip(("reward", "cost", "reward@3", "cost@3"), truth, strict=True):
        t = found[0].column(name)
        hits = np.mean([abs(each.value[t] - expected) <= 1.96 * each.std_error[t] for each in found])
        assert 0.91 <= hits <= 0.985, name


def test_totals_err_less_than_products_of_ratios(many: tuple[Array, list[Marginal], Array]) -> None:
    truth, found, product = many
    at = [found[0].column("reward@3"), found[0].column("cost@3")]
    errors = np.array([each.value[at] for each in found]) - truth[2:]
    assert ((errors**2).mean(axis=0) < 0.85 * (product**2).mean(axis=0)).all()
