"""The test of the Markov property: silent where the state is enough, loud where it hides a type or a habit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import World, transitions
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.markov import ADD_HISTORY, ADD_JOINING, MarkovCheck, PastDependence, markov_check
from outlay.estimators.panel import Panel


def checked(data: Transitions, columns: list[NDArray[np.float64]] | None = None) -> MarkovCheck:
    panel = Panel.of(data, CERTIFY)
    return markov_check(panel, panel.day, columns)


def without_state(action: NDArray[np.int64], reward: NDArray[np.bool_]) -> Transitions:
    """A log of actions and rewards `[users, days]`, drawn evenly, in which the state says nothing."""
    users, days = action.shape
    return transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=np.zeros(users * days),
        action=action.ravel(),
        outcome=np.column_stack([reward.ravel(), (reward * action).ravel()]),
        num_states=1,
        num_actions=3,
        propensity=np.full(users * days, 1 / 3),
    )


def of_types(seed: int, kinds: int, *, users: int = 2000, days: int = 7, shocks: float = 0.0) -> Transitions:
    """Users whose chance to act depends on a type that no state says; with one kind all are alike."""
    rng = np.random.default_rng(seed)
    chance = np.linspace(0.35, 0.65, kinds)[rng.integers(kinds, size=users)][:, None] if kinds > 1 else 0.5
    action = rng.integers(3, size=(users, days))
    today = shocks * rng.choice([-1, 1], size=days)
    reward = rng.random((users, days)) < chance + 0.05 * action + today
    return without_state(action, reward)


@pytest.mark.parametrize("seed", range(4))
def test_a_markov_log_passes(seed: int) -> None:
    found = checked(World.drawn(seed).log(2000, 7, np.random.default_rng(seed)))
    assert found.ok
    assert found.refused is None
    assert max(abs(each.z) for each in found.dependences) < 4


def test_hidden_types_are_seen_and_named() -> None:
    found = checked(of_types(1, kinds=2))
    assert found.ok is False
    worst = found.dependences[0]
    assert (worst.outcome, worst.past) == ("reward", "reward")
    assert worst.correlation > 0.05
    size = {"correlation": worst.correlation, "error": worst.std_error}
    finding = Reason(ReasonKind.SHORT, {"source": worst.source, "outcome": "reward", **size})
    assert found.finding == finding
    assert found.refused == Reason(ReasonKind.STATE, {"found": finding, "way_out": ADD_HISTORY})
    assert "check tells whether any number of days is enough, and how many" in found.refused.words


def test_fatigue_is_seen_in_past_actions() -> None:
    """Yesterday's action lowers today's reward, and no state says so."""
    rng = np.random.default_rng(5)
    users, days = 3000, 5
    action = rng.integers(3, size=(users, days))
    before = np.column_stack([np.zeros(users), action[:, :-1]])
    reward = (rng.random((users, days)) < 0.6 + 0.05 * action - 0.1 * before).ravel()
    found = checked(
        transitions(
            user=np.repeat(np.arange(users), days),
            day=np.tile(np.arange(days), users),
            state=np.zeros(users * days),
            action=action.ravel(),
            outcome=np.column_stack([reward, reward]),
            num_states=1,
            num_actions=3,
        )
    )
    assert found.ok is False
    assert (found.dependences[0].past, found.dependences[0].lag) in {("action", "last day"), ("incentive", "last day")}
    assert found.dependences[0].correlation < 0


def test_a_shock_that_all_users_share_is_not_memory() -> None:
    assert checked(of_types(3, kinds=1, shocks=0.2)).ok


def test_columns_of_the_state_explain_what_they_know() -> None:
    """The type as a column passes; a column of noise in its place does not."""
    data = of_types(7, kinds=2)
    rng = np.random.default_rng(7)
    type_ = np.repeat(rng.integers(2, size=2000), 7)[:, None].astype(float)  # the same first draw as in the log
    assert checked(data, [type_]).ok
    assert checked(data, [rng.normal(size=(len(data), 1))]).ok is False


def of_traits(seed: int, told: int, *, users: int = 4000, days: int = 7) -> MarkovCheck:
    """Users whose chance bends with three traits that last, of which the state tells so many, as they are."""
    rng = np.random.default_rng(seed)
    traits, action = rng.normal(size=(users, 3)), rng.integers(3, size=(users, days))
    chance = 1 / (1 + np.exp(1.5 - traits.sum(axis=1)[:, None] - 0.4 * action * np.exp(traits[:, :1])))
    reward = rng.random((users, days)) < chance
    return checked(without_state(action, reward), [np.repeat(traits[:, :told], days, axis=0)])


@pytest.mark.parametrize("seed", [0, 2, 3])  # of 24 seeds, the second is the one that is refused, by chance
def test_that_chances_bend_is_no_memory(seed: int) -> None:
    """Lines alone leave 0.08 to 0.09 here, at 9 to 11 standard errors."""
    assert of_traits(seed, told=3).ok
    assert of_traits(seed, told=2).ok is False


@pytest.mark.parametrize("seed", range(3))
def test_what_the_action_is_worth_exactly_is_no_dependence(seed: int) -> None:
    """Messages are 1 where one was sent: rounding is all that is left of them, whenever users joined."""
    rng = np.random.default_rng(seed)
    users, days = 1500, 6
    action, joined = rng.integers(3, size=(users, days)), rng.integers(4, size=users)
    known = rng.normal(size=(users, days))
    reward = known + 0.3 * action + rng.normal(size=(users, days))
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=np.zeros(users * days),
        action=action.ravel(),
        outcome=np.column_stack([reward.ravel(), (action > 0).ravel()]),
        num_states=1,
        num_actions=3,
    )
    panel = Panel.of(data, CERTIFY)
    found = markov_check(panel, panel.day + joined[panel.user], [np.asarray(known.reshape(-1, 1), np.float32)])
    assert found.ok
    tested = {each.outcome for each in found.dependences}
    assert {"reward", "next reward"} <= tested
    assert not [outcome for outcome in tested if not outcome.endswith("reward") and not outcome.startswith("next")]


def test_too_few_users_are_not_tested() -> None:
    found = checked(of_types(2, kinds=2, users=60))
    assert (found.ok, found.refused, found.dependences) == (None, None, ())
    assert found.finding == Reason(ReasonKind.NOT_TESTED)


@pytest.mark.parametrize(("clusters", "ok"), [(3, None), (16, None), (80, False)])
def test_clusters_of_which_no_number_could_be_beyond_chance_are_not_tested(clusters: int, ok: bool | None) -> None:
    """The sum of G numbers is at most √G times the root of the sum of their squares."""
    data = of_types(1, kinds=2)
    assert checked(replace(data, cluster=np.arange(2000) % clusters)).ok is ok


@pytest.mark.parametrize(
    ("correlation", "std_error", "matters"),
    [
        (0.1, 0.01, True),
        (-0.1, 0.01, True),
        (0.1, 0.03, False),
        (0.01, 0.001, False),
    ],
)
def test_what_matters_is_beyond_chance_and_not_negligible(correlation: float, std_error: float, matters: bool) -> None:
    assert PastDependence("reward", "action", "last day", correlation, std_error).matters == matters


def joining_late(
    seed: int, *, differ: float, responds: float = 0.0, told: bool = False
) -> tuple[Panel, NDArray[np.int64]]:
    """A third of the users joins late; they are more active by `differ`, and by `responds` for each unit of action."""
    rng = np.random.default_rng(seed)
    users, days = 3_000, 8
    joined = np.where(rng.random(users) < 1 / 3, rng.integers(1, days - 1, users), 0)
    late = joined > 0
    action = rng.integers(3, size=(users, days))
    chance = 0.35 + 0.05 * action + late[:, None] * (differ + responds * (action - 1))
    reward = rng.random((users, days)) < chance
    there = np.arange(days) < (days - joined)[:, None]
    state = np.repeat(late[:, None] & told, days, axis=1)
    data = transitions(
        user=np.repeat(np.arange(users), days)[there.ravel()],
        day=np.tile(np.arange(days), users)[there.ravel()],
        state=state[there],
        action=action[there],
        outcome=np.column_stack([reward[there], (reward * action)[there]]),
        num_states=2,
        num_actions=3,
        window=days - joined,
        propensity=np.full(there.sum(), 1 / 3),
    )
    panel = Panel.of(data, CERTIFY)
    return panel, joined[panel.user] + panel.day


@pytest.mark.parametrize(("differ", "responds"), [(0.1, 0.0), (0.0, 0.1)])
def test_that_it_matters_when_a_user_joined_is_seen(differ: float, responds: float) -> None:
    """Also where late users respond more, and are on average as active as the others."""
    found = markov_check(*joining_late(1, differ=differ, responds=responds), None)
    assert found.ok is False
    assert found.dependences[0].lag == "joined"
    assert found.finding.kind is ReasonKind.SHORT
    assert found.finding.figures["source"] == found.dependences[0].source
    assert found.refused == Reason(ReasonKind.STATE, {"found": found.finding, "way_out": ADD_JOINING})


@pytest.mark.parametrize("seed", range(10))
def test_that_it_does_not_matter_passes(seed: int) -> None:
    for differ, told in ((0.0, False), (0.1, True)):
        found = markov_check(*joining_late(seed, differ=differ, told=told), None)
        assert any(each.lag == "joined" for each in found.dependences)
        assert found.ok
