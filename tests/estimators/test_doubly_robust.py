from __future__ import annotations

import numpy as np
import pytest
from logs_in_memory import Array, World, campaign, fit, ragged, transitions
from logs_in_memory import doubly_robust as estimate
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, LEARN, Transitions
from outlay.estimators.basis import CountedBasis, FeatureBasis
from outlay.estimators.doubly_robust import DoublyRobust, fold_of
from outlay.estimators.importance import weigh
from outlay.estimators.joint import combine
from outlay.estimators.observed import observe
from outlay.estimators.panel import Panel
from outlay.ops import tabular


def counted(panel: Panel) -> CountedBasis:
    assert panel.state is not None
    assert panel.data.states is not None
    return CountedBasis(panel.state, len(panel.data.states), panel.data.num_actions)


def apart(users: int, folds: int = 2) -> NDArray[np.intp]:
    """`[users · folds]` numbers of users, as many of each fold in turn, of the first few thousand."""
    numbers = np.arange(4000)
    data = transitions(
        user=numbers,
        day=0 * numbers,
        state=0 * numbers,
        action=0 * numbers,
        num_states=1,
        num_actions=2,
        outcome=np.zeros((4000, 2)),
    )
    fold = fold_of(Panel.of(data, CERTIFY), folds)
    return np.concatenate([np.flatnonzero(fold == f)[:users] for f in range(folds)])


def test_a_case_worked_by_hand() -> None:
    """γ = 0.5, one state, 2 folds of 2 users; every path has 2 days, the second row truncated; p = 1/2, π = action 1.

    Fold A: actions (1, 1) rewards (2, 4) and (1, 1) rewards (4, 2). Fold B: (1, 1) with (6, 2) and (0, 1) with (8, 8).
    From A: Q_1(1) = mean(2, 4, 4, 2) = 3, and Q_2(1) = mean(2, 4) + 3 = 6. From B: 16/3 and 6 + 16/3 = 34/3.
    Discounted, from rows that are not truncated: A: Q = 0.5·3 + 0.5·Q = 3. B: Q = 0.5·6 + 0.5·Q = 6.
    Totals: w = 2, 4 for those who follow. With Q of B: 34/3 + 2 (2 + 16/3 − 34/3) + 4 (4 − 16/3) = −2 and
    34/3 + 2 (4 + 16/3 − 34/3) + 4 (2 − 16/3) = −6; with Q of A: 6 + 2 (6 + 3 − 6) + 4 (2 − 3) = 8, and 6.
    Discounted, with Q of B: 6 + 2 (0.5·2 + 0.5·6 − 6) = 2 and 4; with Q of A: 3 + 2 (0.5·6 + 0.5·3 − 3) = 6, and 3.
    """
    users = apart(2)
    order = np.argsort(users)
    action = np.array([[1, 1], [1, 1], [1, 1], [0, 1]])[order].ravel()
    reward = np.array([[2, 4], [4, 2], [6, 2], [8, 8]])[order].ravel()
    number = np.repeat(np.sort(users), 2)
    others = np.setdiff1d(np.arange(users.max()), users)
    rows = np.argsort(np.append(number, others), kind="stable")
    split = np.full(users.max() + 1, LEARN)
    split[users] = CERTIFY
    blank = np.zeros(len(others))
    data = transitions(
        user=np.append(number, others)[rows],
        day=np.append(np.tile([0, 1], 4), blank)[rows],
        state=0 * rows,
        action=np.append(action, blank)[rows],
        outcome=np.repeat(np.append(reward, blank)[rows, None], 2, axis=1),
        num_states=1,
        num_actions=2,
        about=campaign(0.5),
        split=split,
        propensity=np.full(len(rows), 0.5),
    )
    panel = Panel.of(data, CERTIFY)
    result = DoublyRobust(panel, counted(panel), 2, least_rows=1).estimate(np.ones(8, np.intp), days=(2,))
    at = result.column("reward@2")
    assert result.value[at] == pytest.approx(np.mean([-2, -6, 8, 6]))
    assert result.influence[:, at] == pytest.approx(np.array([-2, -6, 8, 6])[order] - 1.5)
    assert result.value[result.column("reward")] == pytest.approx(np.mean([2, 4, 6, 3]))
    assert (result.mass[:, at] > 0).sum() == 3  # three of the four users were given what the policy gives


def test_unbiased_over_all_logs_of_two_actions_and_two_days_though_the_fitted_values_are_useless() -> None:
    """Each fold's 100 users hold every path as often as its probability says, so the mean is the expectation.

    The policy (1, 0) is worth 5, as in the test of importance sampling. All rows are one state, so that the fitted
    values mix days, and the reward of day 1 looks back on the action of day 0, which no state remembers.
    """
    paths = np.array([(0, 0)] * 28 + [(0, 1)] * 42 + [(1, 0)] * 12 + [(1, 1)] * 18)
    users = apart(100)
    path = np.zeros((users.max() + 1, 2), np.intp)
    path[users] = np.tile(paths, (2, 1))
    first, second = path.T
    split = np.full(len(path), LEARN)
    split[users] = CERTIFY
    reward = np.column_stack([1 + first, (1 + second) * np.where(first == 1, 3, 1)]).ravel()
    prob = np.column_stack([np.where(first, 0.3, 0.7), np.where(second, 0.6, 0.4)]).ravel()
    data = transitions(
        user=np.repeat(np.arange(len(path)), 2),
        day=np.tile([0, 1], len(path)),
        state=0 * reward,
        action=path.ravel(),
        outcome=np.column_stack([reward, 2 * reward]),
        num_states=1,
        num_actions=2,
        propensity=prob,
        split=split,
    )
    panel = Panel.of(data, CERTIFY)
    policy = np.tile([1, 0], 200)
    got = estimate(panel, counted(panel), policy, days=(2,), folds=2)
    wrong = fit(panel, counted(panel), policy, days=(2,))
    at = got.column("reward@2")
    assert got.value[at : at + 2] == pytest.approx([5.0, 10.0], rel=1e-6)
    assert abs(wrong.value[at] - 5.0) > 0.5


def exact(users: int, propensity: float) -> Transitions:
    """Outcomes and moves are functions of state and action: reward 1 + 2·state + action, next state = action."""
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=(users, 4))
    state = np.column_stack([np.zeros(users, np.intp), action[:, :-1]])
    reward = (1 + 2 * state + action).ravel()
    return transitions(
        user=np.repeat(np.arange(users), 4),
        day=np.tile(np.arange(4), users),
        state=state.ravel(),
        action=action.ravel(),
        outcome=np.column_stack([reward, reward]),
        num_states=2,
        num_actions=2,
        about=campaign(0.5),
        propensity=np.full(4 * users, propensity),
    )


@pytest.mark.parametrize("propensity", [0.5, 0.2])
def test_with_exact_fitted_values_it_has_no_variance_and_wrong_propensities_do_no_harm(propensity: float) -> None:
    """Always action 1: 2, then 4 for ever. Three days: 10. Discounted: 0.5·2 + 0.5·4 = 3."""
    panel = Panel.of(exact(300, propensity), CERTIFY)
    result = estimate(panel, counted(panel), np.ones(1200, np.intp), days=(3,))
    assert result.value[[0, result.column("reward@3")]] == pytest.approx([3.0, 10.0])
    assert np.abs(result.influence).max() < 1e-6


def longhand(panel: Panel, chosen: Array, days: int | None, folds: int) -> Array:
    """Ψ `[U, T]` by loops: fitted values by dictionaries from the other folds, then a walk along each path."""
    assert panel.state is not None
    assert panel.propensity is not None
    gamma, fold = panel.discount, fold_of(panel, folds)
    prob = np.where(panel.forced[:, None], np.eye(2)[panel.action], chosen)
    outcome = np.column_stack([panel.outcome, ~panel.forced]) if days is None else panel.outcome
    zero = np.zeros(outcome.shape[1])
    left = panel.window[panel.user] - panel.day
    closed = (panel.following >= 0) | panel.terminal
    Table = dict[tuple[int, int], Array]

    def mean(rows: list[int], targets: list[Array]) -> Table:
        groups: dict[tuple[int, int], list[Array]] = {}
        assert panel.state is not None
        for i, value in zip(rows, targets, strict=True):
            groups.setdefault((int(panel.state[i]), int(panel.action[i])), []).append(value)
        return {key: np.mean(group, axis=0) for key, group in groups.items()}

    def value(table: Table, i: int) -> Array:
        assert panel.state is not None
        return np.asarray(sum(prob[i, a] * table.get((int(panel.state[i]), a), zero) for a in range(2)))

    total = np.zeros((panel.num_users, outcome.shape[1]))
    for f in range(folds):
        train = [i for i in range(len(panel)) if fold[panel.user[i]] != f]
        tables: dict[int, Table] = {0: {}}
        if days is None:
            rows = [i for i in train if closed[i]]
            for _ in range(80):
                tables[0] = mean(
                    rows,
                    [
                        (1 - gamma) * outcome[i]
                        + (
                            gamma ** panel.gap[i] * value(tables[0], panel.following[i])
                            if panel.following[i] >= 0
                            else 0
                        )
                        for i in rows
                    ],
                )
        for h in range(1, (days or 0) + 1):
            rows = [i for i in train if closed[i] or left[i] >= h]
            tables[h] = mean(
                rows,
                [
                    outcome[i]
                    + (
                        value(tables[h - panel.gap[i]], panel.following[i])
                        if panel.following[i] >= 0 and panel.gap[i] < h
                        else 0
                    )
                    for i in rows
                ],
            )
        for u in np.flatnonzero(fold == f):
            i, weight = int(panel.start[u] if days is None else panel.first[u]), 1.0
            begin = panel.day[i]
            while i >= 0 and (days is None or panel.day[i] < days):
                table = tables[0 if days is None else days - int(panel.day[i])]
                fade = gamma ** float(panel.day[i] - begin) if days is None else 1.0
                total[u] += fade * weight * value(table, i)
                if days is None and not closed[i]:
                    break
                if not panel.forced[i]:
                    weight *= prob[i, panel.action[i]] / panel.propensity[i]
                x = outcome[i] * (1 - gamma if days is None else 1)
                total[u] += fade * weight * (x - table[int(panel.state[i]), int(panel.action[i])])
                i = int(panel.following[i])
    return total


@pytest.mark.parametrize("drawn", [False, True])
def test_gaps_terminal_truncated_and_forced_rows_agree_with_a_walk_along_each_path(drawn: bool) -> None:
    data = ragged(4, users=100)
    later = np.flatnonzero(data.next_row[data.users["first_row"]] >= 0)[::3]
    data.users["start_row"][later] += 1
    panel = Panel.of(data, CERTIFY)
    rng = np.random.default_rng(0)
    chosen = rng.dirichlet(np.ones(2), size=len(panel)) if drawn else np.eye(2)[rng.integers(2, size=len(panel))]
    result = estimate(panel, counted(panel), chosen if drawn else chosen.argmax(axis=1), days=(1, 4, 8), folds=3)
    assert result.targets[:3] == ("reward", "cost", "decisions")
    assert result.value[:3] == pytest.approx(longhand(panel, chosen, None, 3).mean(axis=0))
    for k in (1, 4, 8):
        at, by_user = result.column(f"reward@{k}"), longhand(panel, chosen, k, 3)
        assert result.value[at : at + 2] == pytest.approx(by_user.mean(axis=0))
        assert result.influence[:, at : at + 2] == pytest.approx(by_user - by_user.mean(axis=0), abs=1e-9)


def test_discount_zero_uses_the_outcome_of_truncated_rows() -> None:
    rng = np.random.default_rng(0)
    action, reward = rng.integers(2, size=200), rng.random(200)
    data = transitions(
        user=np.arange(200),
        day=np.zeros(200),
        state=np.zeros(200),
        action=action,
        num_states=1,
        num_actions=2,
        outcome=np.column_stack([reward, reward]),
        about=campaign(0.0),
        steady=False,
        propensity=np.full(200, 0.5),
    )
    panel = Panel.of(data, CERTIFY)
    result = estimate(panel, counted(panel), np.ones(200, np.intp), days=(1,))
    at = result.column("reward@1")
    assert result.value[0] == pytest.approx(result.value[at])
    assert result.influence[:, 0] == pytest.approx(result.influence[:, at])
    assert result.std_error[0] == pytest.approx(reward[action == 1].std() / np.sqrt((action == 1).sum()), rel=0.2)


def test_no_user_meets_a_value_that_was_fitted_to_own_outcomes() -> None:
    """User 0 leaves the policy at once, so Ψ_0 = V̂(s₀): nothing the user did can change it; others' values change."""
    world = World.drawn(3)
    sums = []
    for raised in (0.0, 100.0):
        data = world.log(100, 3, np.random.default_rng(1))
        data.outcome[:3] += raised
        panel = Panel.of(data, CERTIFY)
        policy = panel.action.copy()
        policy[0] = 1 - policy[0]
        result = estimate(panel, counted(panel), policy, days=(3,))
        sums.append(result.influence[:, -2] + result.value[-2])
    assert sums[0][0] == pytest.approx(sums[1][0], abs=1e-12)
    assert np.abs(sums[0] - sums[1]).max() > 1e-3


def test_a_users_fold_hangs_on_nothing_but_the_users_number() -> None:
    data, half = (World.drawn(3).log(300, 2, np.random.default_rng(1)) for _ in range(2))
    half.users["split"][::2] = LEARN
    whole = fold_of(Panel.of(data, CERTIFY), 5)
    assert fold_of(Panel.of(half, CERTIFY), 5).tolist() == whole[1::2].tolist()
    assert np.bincount(whole, minlength=5).min() > 40


def test_the_policy_of_the_log_gives_the_observed_totals_exactly() -> None:
    data = ragged(6, users=100)
    for panel in (Panel.of(data, CERTIFY), Panel.of(World.drawn(2).log(100, 5, np.random.default_rng(0)), CERTIFY)):
        got, seen = estimate(panel, counted(panel), None, days=(1, 5)), observe(panel, days=(1, 5))
        at = got.column("reward@1")
        assert got.value[at:] == pytest.approx(seen.value[:4])
        assert got.influence[:, at:] == pytest.approx(seen.influence[:, :4], abs=1e-9)
        assert got.ess == pytest.approx(np.full(len(got.targets), 100))
        assert (got.mass > 0).all()


def test_intervals_cover_the_truth_as_often_as_they_say_and_are_shorter_than_those_of_importance_sampling() -> None:
    world, policy = World.drawn(21), np.array([1, 0, 1])
    truth = {"cost": tabular.measure(world.cmdp, policy)[1], "reward@3": tabular.totals(world.cmdp, policy, 3)[2, 0]}
    hits, errors = dict.fromkeys(truth, 0), []
    for seed in range(160):
        panel = Panel.of(world.log(400, 3, np.random.default_rng([seed, 99])), CERTIFY)
        chosen = policy[np.asarray(panel.state)]
        result = estimate(panel, counted(panel), chosen, days=(3,), folds=2)
        for target, value in truth.items():
            at = result.column(target)
            hits[target] += abs(result.value[at] - value) <= 1.96 * result.std_error[at]
        plain = weigh(panel, chosen, days=(3,), clip=np.inf)
        errors.append([e.std_error[e.column("reward@3")] for e in (result, plain)])
    assert 0.91 <= hits["cost"] / 160 <= 0.985
    assert 0.91 <= hits["reward@3"] / 160 <= 0.985
    robust, plain_error = np.mean(errors, axis=0)
    assert robust < 0.8 * plain_error


def test_one_hot_features_give_the_counted_estimate() -> None:
    for data in (World.drawn(7).log(200, 5, np.random.default_rng(8)), ragged(9, users=200)):
        panel = Panel.of(data, CERTIFY)
        target = np.array([1, 0, 1])[np.asarray(panel.state)]
        hot = np.eye(3, dtype=np.float32)[np.asarray(panel.state)]
        exact_ones = estimate(panel, counted(panel), target, days=(1, 3))
        linear = estimate(panel, FeatureBasis(hot, 2), target, days=(1, 3))
        assert linear.value == pytest.approx(exact_ones.value, abs=1e-6)
        assert linear.influence == pytest.approx(exact_ones.influence, abs=1e-4)


def test_a_sticky_mixture_is_the_mean_of_its_members_per_user() -> None:
    panel = Panel.of(World.drawn(31).log(500, 4, np.random.default_rng(32)), CERTIFY)
    state, robust = np.asarray(panel.state), DoublyRobust(panel, counted(panel))
    parts = [robust.estimate(policy[state], days=(2,)) for policy in np.array([[0, 0, 1], [1, 1, 1]])]
    mixture = combine(parts, np.array([0.3, 0.7]))
    assert mixture.value == pytest.approx(0.3 * parts[0].value + 0.7 * parts[1].value)
    assert mixture.influence == pytest.approx(0.3 * parts[0].influence + 0.7 * parts[1].influence)
    assert ((mixture.mass > 0) == ((parts[0].mass > 0) | (parts[1].mass > 0))).all()


def test_the_values_of_two_groups_add_up_to_that_of_all() -> None:
    panel = Panel.of(World.drawn(31).log(500, 4, np.random.default_rng(32)), CERTIFY)
    robust, group = DoublyRobust(panel, counted(panel)), np.arange(500) < 150
    policy = np.array([0, 1, 1])[np.asarray(panel.state)]
    whole = robust.estimate(policy, days=(2,))
    one, other = (robust.estimate(policy, days=(2,), among=among) for among in (group, ~group))
    assert 0.3 * one.value + 0.7 * other.value == pytest.approx(whole.value)
    assert (one.mass > 0).sum(axis=0).max() == 150
    at = one.column("reward@2")
    assert not one.influence[~group, at].any()
    assert one.std_error[at] > whole.std_error[at]


def test_few_users_or_one_with_much_of_the_weight_make_a_caution() -> None:
    """Action 1 was given to 10 of U users, where its propensity is 0.01: their weights are 20, the others' 0.81."""
    cautions = []
    for users in (2000, 3000, 200):
        action = np.arange(users) < 10
        data = transitions(
            user=np.arange(users),
            day=np.zeros(users),
            state=np.zeros(users),
            action=action,
            num_states=1,
            num_actions=2,
            outcome=np.random.default_rng(0).random((users, 2)),
            propensity=np.where(action, 0.01, 0.99),
        )
        panel = Panel.of(data, CERTIFY)
        result = estimate(panel, counted(panel), np.tile([0.8, 0.2], (users, 1)), days=(1,))
        cautions.append(result.cautions()[result.column("reward@1")])
    heavy, fine, few = cautions
    assert heavy is not None
    assert heavy.kind is ReasonKind.HEAVY_USER
    assert heavy.figures == {"share": pytest.approx(0.011, abs=5e-4), "most": 0.01}
    assert fine is None
    assert few is not None
    assert few.kind is ReasonKind.FEW_EFFECTIVE
    assert few.figures == {"count": pytest.approx(30, abs=0.5), "needed": 100}


def test_a_number_that_nobody_can_carry_is_withheld_with_the_reason() -> None:
    world = World.drawn(5)
    panel = Panel.of(world.log(60, 2, np.random.default_rng(0)), CERTIFY)
    against = estimate(panel, counted(panel), 1 - panel.action, days=(2, 3))
    assert against.withheld[0] == Reason(ReasonKind.NO_PATH)
    assert against.withheld[against.column("reward@2")] == Reason(ReasonKind.NO_PATH_SO_LONG, {"days": 2})
    assert against.withheld[against.column("cost@3")] == Reason(ReasonKind.NOT_SHOWN, {"days": 3})
    assert np.isnan(against.value[against.column("reward@2")])
    assert against.value[against.column("decisions")] == 1
    silent = Panel.of(
        transitions(
            user=[0, 1], day=[0, 0], state=[0, 0], action=[0, 1], outcome=[[1, 1], [2, 2]], num_states=1, num_actions=2
        ),
        CERTIFY,
    )
    mute = estimate(silent, counted(silent), np.zeros(2, np.intp), days=(1,))
    assert mute.withheld[0] == mute.withheld[-1] == Reason(ReasonKind.NO_PROPENSITIES)
    given = estimate(silent, counted(silent), np.zeros(2, np.intp), days=(1,), propensity=np.full(2, 0.5))
    assert given.withheld[0] == Reason(ReasonKind.NOTHING_FOLLOWS)
    assert given.value[given.column("reward@1")] > 0


def test_what_these_users_were_never_given_withholds() -> None:
    panel = Panel.of(World.drawn(5, actions=2).log(200, 3, np.random.default_rng(0)), CERTIFY)
    assert panel.propensity is not None
    state = np.asarray(panel.state)
    panel.action[(state == 2) & (panel.day > 0)] = 0
    panel.action[(state == 2) & (panel.day == 0)] = 0
    result = estimate(panel, counted(panel), np.where(state == 2, 1, 0), days=(1, 3))
    for target in ("reward", "reward@1", "reward@3"):
        reason = result.withheld[result.column(target)]
        assert reason is not None
        assert reason.kind is ReasonKind.HARDLY_GIVEN_MOST


def test_a_propensity_of_zero_is_an_error_that_names_the_row() -> None:
    panel = Panel.of(World.drawn(5).log(10, 2, np.random.default_rng(0)), CERTIFY)
    propensity = np.full(20, 0.5)
    propensity[3] = 0
    with pytest.raises(LogError, match="in row 3"):
        estimate(panel, counted(panel), np.zeros(20, np.intp), propensity=propensity)
