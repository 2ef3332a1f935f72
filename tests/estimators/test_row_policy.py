"""Policies that draw: those that do not, where they do not; exact against models; refused where impossible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import Array, World, fit, ragged, transitions

from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import LogError
from outlay.core.transitions import CERTIFY
from outlay.estimators.basis import CountedBasis, FeatureBasis
from outlay.estimators.fitted import Evaluator
from outlay.estimators.importance import weigh
from outlay.estimators.panel import Panel, TargetPolicy
from outlay.ops import tabular

RNG = np.random.default_rng(3)


def counted(panel: Panel) -> CountedBasis:
    assert panel.state is not None
    return CountedBasis(panel.state, 3, panel.data.num_actions)


def test_rows_that_are_treated_alike_share_a_distribution() -> None:
    state = np.array([0, 1, 0, 1, 2])
    by_state = np.array([[0.5, 0.5], [0.1, 0.9], [1, 0]])[state]
    forced = np.array([False, False, False, True, False])
    for given in (state, None):
        target = TargetPolicy.drawn(by_state, np.zeros(5, np.intp), forced, given)
        assert target.table.shape == (2 + 3, 2)
        assert not target.pure
        assert target.of(np.ones(5, np.intp)) == pytest.approx([0.5, 0.9, 0.5, 0, 0])
    by_row = np.array([[0.5, 0.5], [0.1, 0.9], [0.4, 0.6], [0.1, 0.9], [0.1, 0.9]])
    target = TargetPolicy.drawn(by_row, np.zeros(5, np.intp), np.zeros(5, np.bool_), state)
    assert len(target.table) == 2 + 3
    assert target.table[target.kind] == pytest.approx(by_row)


@pytest.mark.parametrize("linear", [False, True])
def test_probabilities_of_0_and_1_are_a_fixed_action(linear: bool) -> None:
    panel = Panel.of(ragged(5), CERTIFY)
    action = RNG.integers(2, size=len(panel))
    assert panel.state is not None
    basis = FeatureBasis(np.eye(3, dtype=np.float32)[panel.state], 2) if linear else counted(panel)
    fixed = fit(panel, basis, action, days=(1, 4), least_rows=1)
    drawn = fit(panel, basis, np.eye(2)[action], days=(1, 4), least_rows=1)
    assert drawn.value == pytest.approx(fixed.value, abs=1e-12)
    assert drawn.influence == pytest.approx(fixed.influence, abs=1e-9)
    assert drawn.mass == pytest.approx(fixed.mass, abs=1e-9)
    one, other = weigh(panel, action, days=(1, 4)), weigh(panel, np.eye(2)[action], days=(1, 4))
    assert np.array_equal(one.value, other.value)
    assert np.array_equal(one.matched, other.matched)


def exact(panel: Panel) -> TabularCMDP:
    on = panel.following >= 0
    assert panel.state is not None
    count, outcome = np.zeros((3, 2, 3)), np.zeros((3, 2, 2))
    np.add.at(count, (panel.state[on], panel.action[on], panel.state[panel.following[on]]), 1)
    np.add.at(outcome, (panel.state[on], panel.action[on]), panel.outcome[on])
    visits = count.sum(axis=2, keepdims=True)
    return TabularCMDP(
        transition=count / visits,
        reward=outcome[:, :, 0] / visits[:, :, 0],
        cost=outcome[:, :, 1:] / visits,
        start=np.bincount(panel.state[panel.start], minlength=3) / panel.num_users,
        discount=panel.discount,
    )


def test_a_drawn_policy_is_worth_what_it_is_in_the_counted_model() -> None:
    panel = Panel.of(World.drawn(2).log(400, 6, np.random.default_rng(1)), CERTIFY)
    policy = np.array([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])
    got = fit(panel, counted(panel), policy[np.asarray(panel.state)])
    assert got.value[:2] == pytest.approx(tabular.measure(exact(panel), policy), rel=1e-9)


def test_a_policy_that_looks_at_more_than_the_state_is_worth_the_mean_over_what_it_looks_at() -> None:
    """Days count as states of their own: there the same probabilities depend on the state alone."""
    rng = np.random.default_rng(4)
    U = 300
    user, day = np.repeat(np.arange(U), 2), np.tile([0, 1], U)
    action, outcome = rng.integers(2, size=2 * U), rng.random((2 * U, 2))
    probability = np.array([[0.3, 0.7], [0.9, 0.1]])[day]

    def total(state: Array, states: int) -> Array:
        data = transitions(
            user=user,
            day=day,
            state=state,
            action=action,
            outcome=outcome,
            num_states=states,
            num_actions=2,
            propensity=np.full(2 * U, 0.5),
        )
        panel = Panel.of(data, CERTIFY)
        return fit(panel, CountedBasis(np.asarray(panel.state), states, 2), probability, days=(1,)).value[2:4]

    alone = [outcome[action == a].mean(axis=0) for a in (0, 1)]
    assert total(np.zeros(2 * U), 1)[:2] != pytest.approx(total(day, 2)[:2])
    one = fit(
        Panel.of(
            transitions(
                user=user, day=day, state=np.zeros(2 * U), action=action, outcome=outcome, num_states=1, num_actions=2
            ),
            CERTIFY,
        ),
        CountedBasis(np.zeros(2 * U, np.intp), 1, 2),
        probability,
        days=(1,),
    )
    assert one.value[one.column("reward@1")] == pytest.approx(0.3 * alone[0][0] + 0.7 * alone[1][0], rel=1e-6)


def test_the_value_of_some_users_is_the_value_from_their_starts_and_groups_add_up() -> None:
    world = World.drawn(6)
    panel = Panel.of(world.log(500, 5, np.random.default_rng(2)), CERTIFY)
    assert panel.state is not None
    policy = np.array([1, 0, 1])[panel.state]
    group = panel.state[panel.first] == 0
    whole = fit(panel, counted(panel), policy, days=(3,))
    evaluator = Evaluator(panel, counted(panel))
    one, other = (evaluator.fit(policy, days=(3,), among=users) for users in (group, ~group))
    share = group.mean()
    assert share * one.value + (1 - share) * other.value == pytest.approx(whole.value, rel=1e-9)
    between = np.outer(group - share, one.value - other.value)  # the share of the group is itself estimated
    assert share * one.influence + (1 - share) * other.influence + between == pytest.approx(whole.influence, abs=1e-9)
    model = exact(panel)
    start = replace(model, start=np.array([1.0, 0, 0]))
    assert one.value[:2] == pytest.approx(tabular.measure(start, np.array([1, 0, 1])), rel=1e-9)


def test_intervals_of_a_drawn_policy_and_of_a_group_cover_the_truth() -> None:
    world, policy = World.drawn(8), np.array([[0.3, 0.7], [0.8, 0.2], [0.5, 0.5]])
    truth = tabular.measure(world.cmdp, policy)[0]
    first = world.cmdp.start.argmax()
    alone = tabular.action_values(world.cmdp, policy)[first, :, 0] @ policy[first]
    hits = np.zeros(2)
    for seed in range(120):
        panel = Panel.of(world.log(300, 4, np.random.default_rng([seed, 2])), CERTIFY)
        assert panel.state is not None
        whole = fit(panel, counted(panel), policy[panel.state])
        among = panel.state[panel.start] == first
        part = Evaluator(panel, counted(panel)).fit(policy[panel.state], among=among)
        hits += [
            abs(whole.value[0] - truth) <= 1.96 * whole.std_error[0],
            abs(part.value[0] - alone) <= 1.96 * part.std_error[0],
        ]
    assert (hits / 120 > 0.905).all()
    assert (hits / 120 < 0.99).all()


@pytest.mark.parametrize("row", [[0.5, 0.6], [-0.1, 1.1], [np.nan, 1.0]])
def test_what_is_no_distribution_is_refused_with_its_row_and_a_forced_row_excuses_it(row: list[float]) -> None:
    def panel(forced: bool) -> Panel:
        return Panel.of(
            transitions(
                user=[0, 1],
                day=[0, 0],
                state=[0, 0],
                action=[0, 1],
                outcome=[[0, 0], [1, 0]],
                num_states=1,
                num_actions=2,
                forced=[False, forced],
            ),
            CERTIFY,
        )

    policy = np.array([[0.5, 0.5], row])
    with pytest.raises(LogError, match="probabilities in row 1"):
        panel(False).follow(policy)
    assert panel(True).follow(policy).of(np.array([0, 1])) == pytest.approx([0.5, 1])


def test_weight_on_an_action_that_is_not_allowed_is_refused_with_the_action() -> None:
    data = transitions(
        user=[0, 1],
        day=[0, 0],
        state=[0, 0],
        action=[0, 0],
        outcome=[[0, 0], [1, 0]],
        num_states=1,
        num_actions=2,
        eligible=[[1, 1], [1, 0]],
    )
    panel = Panel.of(data, CERTIFY)
    with pytest.raises(LogError, match=r"\b1 a probability of 0\.25, .*not allowed.* row 1\b"):
        panel.follow(np.array([[0.5, 0.5], [0.75, 0.25]]))
    assert panel.follow(np.array([[0.5, 0.5], [1, 0]])).of(panel.action) == pytest.approx([0.5, 1])
