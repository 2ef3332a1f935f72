"""The game: the same seed the same play, a box for λ, and no network stored that nobody needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from small_games import BUDGETS, TRAIN, game

from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning.acting import Policy
from outlay.learning.critic import Oracle
from outlay.learning.game import SPARES, Game, GameProgress, frugal, play
from outlay.learning.heads import critic_coordinates
from outlay.learning.mixing import RULES
from outlay.learning.mixing.rule import badness, constraints
from outlay.learning.multipliers import bisected
from outlay.learning.tabular import counted_model
from outlay.ops.tabular import measure
from small_logs import campaign, draw, random_cmdp

LONGER: dict[str, Any] = {"min_steps": 3000, "candidate_every": 100, "warm_up": 0.0}


def played(of: Game) -> tuple[GameProgress, Any]:
    *_, last = play(of)
    return last


def leaves(tree: Any) -> list[NDArray[Any]]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))


@pytest.fixture(scope="module")
def first() -> tuple[GameProgress, Any]:
    return played(game())


def test_the_same_seed_gives_the_same_play_and_another_seed_another(first: tuple[GameProgress, Any]) -> None:
    """Bitwise, on one machine."""
    again, other = played(game()), played(game(seed=1))
    assert same(first[0].player, again[0].player)
    assert first[1].members == again[1].members
    assert np.array_equal(first[1].weights, again[1].weights)
    for a, b in zip(first[0].candidates, again[0].candidates, strict=True):
        assert (a.number, a.step, a.loss) == (b.number, b.step, b.loss)
        assert np.array_equal(a.measured, b.measured)
    assert not same(first[0].player.critic, other[0].player.critic)


def test_candidates_come_by_the_schedule(first: tuple[GameProgress, Any]) -> None:
    progress = first[0]
    assert [c.number for c in progress.candidates] == list(range(30))
    assert [c.step for c in progress.candidates] == list(range(20, 601, 20))
    assert progress.rounds == 60  # a λ step every 10 gradient steps
    assert len(progress.kept) == 30
    assert progress.seconds > 0


def test_the_number_of_steps_is_whole_blocks() -> None:
    """The larger of epochs · rows / batch and min_steps, rounded to whole candidates, one at least."""
    for epochs, least, wanted in ((1.0, 0, 40), (1.0, 70, 80), (4.0, 70, 160), (0.01, 0, 20)):
        assert game(epochs=epochs, min_steps=least).steps == wanted  # 1,200 rows in batches of 32: 37.5 an epoch


@pytest.mark.parametrize("frugal_too", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", sorted(RULES))
def test_networks_that_nobody_needs_are_freed(rule: str, frugal_too: bool) -> None:
    """At every moment: the members of the rule's mixture and, if it is kept, the most frugal. Uniform drops nothing.

    The LP rule may come back to a policy that carries no weight now, so it holds a few spares.
    """
    of = replace(game(rule=rule, warm_up=0.0, spare_candidates=0), keeps_frugal=frugal_too)
    most = {"uniform": of.steps, "single-best": 1, "lp": 2 + 1 + SPARES}.get(rule, 2 + 2)  # m is 2
    for progress, mixture in play(of):
        stored = set(progress.networks)
        if mixture is None:
            assert not stored, "before λ has settled no network is stored"
            continue
        spare = {frugal(progress.counting, of.coords)} if frugal_too else set()
        assert {*mixture.members} | spare <= stored
        assert len(stored - spare) <= most
        assert progress.kept[-1] == len(stored)  # the spare is counted too
        if rule != "lp":
            assert stored == {*mixture.members} | spare
        if rule == "uniform":
            assert len(stored) == len(progress.counting)
        assert mixture.weights.sum() == pytest.approx(1)
    if rule != "single-best":
        assert max(progress.kept) > 1


def test_a_young_critic_neither_moves_the_multiplier_nor_offers_candidates() -> None:
    """For 0.3 of 30 candidates λ is 0 and the rule has nothing; then 5 of the second half are kept, from end to end.

    Where something else than the critic measures candidates, none is spared: as without a warm-up.
    """
    of = game(warm_up=0.3, spare_candidates=5)
    seen = [(progress, progress.first, mixture) for progress, mixture in play(of)]
    first = seen[-1][1]
    assert first is not None
    assert (of.earliest, of.latest) == (9, 19)
    assert 9 <= first <= 19
    assert [mixture is None for *_, mixture in seen] == [True] * first + [False] * (30 - first)
    progress, _, mixture = seen[-1]
    assert mixture is not None
    assert all((c.multiplier == 0).all() for c in progress.candidates[:9])
    assert any((c.multiplier > 0).any() for c in progress.candidates[9:])
    assert of.spare == [19, 22, 24, 26, 29]
    assert {*of.spare, *mixture.members} <= set(progress.networks)
    assert min(progress.networks) >= first
    assert progress.kept[:first] == [0] * first
    assert max(progress.kept) <= 4 + 1  # what the rule needs: spare ones are not counted
    exact = game(measured=True, warm_up=0.3, spare_candidates=5)
    assert (exact.earliest, exact.spare) == (0, [])


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("by", ["auto", "network"])
def test_a_rule_is_given_candidates_once_the_multiplier_has_settled_and_guarantees_what_it_does(
    by: str, seed: int
) -> None:
    """AIM-greedy is never worse than the single best of what both were given, whatever was left out before."""
    of = game(rule="aim-greedy", measured_by=by, warm_up=0.0, seed=seed)
    progress, mixture = played(of)
    assert progress.first is not None
    assert progress.first <= of.latest
    limits = constraints(of.coords.limits, of.coords.scale)
    best = RULES["single-best"].init(limits)
    for candidate in progress.candidates[progress.first :]:
        best = RULES["single-best"].step(best, candidate.number, candidate.measured)
    assert badness(limits, mixture.measurement) <= badness(limits, best.measurement)
    assert min(mixture.members) >= progress.first


def test_a_stored_network_stays_the_candidate_that_it_was() -> None:
    """The pair kept under a number gives the measurement that the candidate was offered with."""
    of = game()
    kept: dict[int, Any] = {}
    for progress, _ in play(of):
        newest = progress.candidates[-1].number
        kept[newest] = leaves(progress.player.critic.target)
        for number, network in progress.networks.items():
            assert same(network, kept[number])


def test_the_multiplier_stays_in_its_box_and_reaches_it() -> None:
    """An impossible limit pushes λ to its bound; the other one, a floor that is kept, stays at 0."""
    budgets = [{"name": "a", "cost": "a", "at_most": -5.0}, {"name": "b", "cost": "b", "at_least": -5.0}]
    of = game(budgets=budgets, bound=0.7)
    progress, _ = played(of)
    multipliers = np.array([c.multiplier for c in progress.candidates]) / of.multiplier_unit
    assert (multipliers >= 0).all()
    assert (multipliers <= 0.7 + 1e-6).all()
    np.testing.assert_allclose(multipliers[-1], [0.7, 0], atol=1e-6)


def test_multipliers_are_in_reward_units_per_unit_of_coordinate() -> None:
    """Scaled steps: one unit is reward scale / coordinate scale; the paper's schedule steps in raw units."""
    scaled, raw = game(), game(scaled_multipliers=False)
    np.testing.assert_allclose(scaled.multiplier_unit, scaled.coords.reward_scale / scaled.coords.scale)
    assert raw.multiplier_unit.tolist() == [1, 1]


def test_a_candidate_is_measured_by_what_is_given() -> None:
    of = game(measured=True)
    progress, mixture = played(of)
    for candidate in progress.candidates:
        assert candidate.measured[0] == candidate.measured[1] == -candidate.measured[2]
        assert not np.array_equal(candidate.measured, candidate.critic)
    np.testing.assert_allclose(mixture.measurements, [progress.candidates[n].measured for n in mixture.members])
    own, _ = played(game(measured_by="critic"))
    assert all(np.array_equal(c.measured, c.critic) for c in own.candidates)
    other, _ = played(game())
    assert all(np.array_equal(c.measured, c.acting) for c in other.candidates)


@pytest.mark.slow
def test_the_extra_network_tells_the_value_of_the_candidate_where_the_critic_lags() -> None:
    """Against the exact value of each candidate in the model that the log was drawn from."""
    model, errors = random_cmdp(3, costs=2), {}
    for by in ("critic", "network"):
        of = game(measured_by=by, **LONGER)
        assert of.data.states is not None
        off = []
        for progress, _ in play(of):
            newest = progress.candidates[-1]
            policy = of.policy(progress.player.critic.target, newest.multiplier).choose(of.data.states)
            off.append(newest.measured - of.coords.of(measure(model, policy)))
        errors[by] = np.abs(off[5:]).mean(axis=0)
    assert (errors["network"] < 0.5 * errors["critic"]).all()
    assert (errors["network"] < [0.05, 0.15, 0.15]).all()


@pytest.mark.parametrize("by", ["network", "fit"])
def test_the_multiplier_goes_by_the_policy_that_acts_now(by: str) -> None:
    """Against exact costs: after a candidate that breaks the limit λ rises, after one that keeps it λ falls.

    The policies of this game lie now on one side of the limit, now on the other, as λ does. The critic's figure moved
    by what the last candidate was measured at less what the critic said of it is off by several times as much, and a λ
    that reads it moves the wrong way.
    """
    limit = 0.8
    budgets = [{"name": "a", "cost": "a", "at_most": limit}]
    of = game(budgets=budgets, measured_by="network" if by == "network" else "auto", **LONGER)
    states, model = of.data.states, counted_model(of.data, LEARN)
    assert states is not None
    assert model is not None

    def exact(policy: Policy) -> NDArray[np.float64]:
        return of.coords.of(measure(model, policy.choose(states)))

    of = replace(of, measure=exact if by == "fit" else None, counted=False)
    right, now, lagging = [], [], []
    sides, correction = set(), None
    for progress, _ in play(of):
        newest = progress.candidates[-1]
        true = exact(of.policy(progress.player.critic.target, newest.multiplier))[1]
        sides.add(bool(true > limit))
        now.append(abs(newest.acting[1] - true))
        if correction is not None:
            lagging.append(abs(newest.critic[1] + correction - true))
        correction = newest.measured[1] - newest.critic[1]
        moved = progress.multiplier * of.multiplier_unit - newest.multiplier
        if progress.multiplier > 0:
            right.append(bool(np.sign(moved[0]) == np.sign(true - limit)))
    assert sides == {True, False}
    assert np.mean(right) >= 0.9
    assert np.mean(now[3:]) < 0.3 * np.mean(lagging[3:])


def test_what_the_log_cannot_tell_the_network_that_the_multiplier_reads_does() -> None:
    unknown = replace(game(warm_up=0.0), measure=lambda _: np.full(3, np.nan))
    for candidate in played(unknown)[0].candidates:
        assert np.array_equal(candidate.measured, candidate.acting)
        assert not np.array_equal(candidate.acting, candidate.critic)


def test_two_ways_to_measure_that_differ_meet_in_the_limit() -> None:
    """Candidates are measured 0.2 above what the extra network says of them: λ aims at the limit by the measurement."""
    limit, off = 0.9, 0.2
    of = game(budgets=[{"name": "a", "cost": "a", "at_most": limit}], **LONGER)
    states, model = of.data.states, counted_model(of.data, LEARN)
    assert states is not None
    assert model is not None
    coords, above = of.coords, np.array([0, off])
    of = replace(of, measure=lambda p: coords.of(measure(model, p.choose(states))) + above, counted=False)
    costs = [candidate.measured[1] for candidate in played(of)[0].candidates[15:]]
    assert min(costs) < limit < max(costs)
    assert np.mean(costs) == pytest.approx(limit, abs=0.1)


def test_a_bisection_halves_what_is_left_and_gives_the_critic_time() -> None:
    """λ stays for a whole stage, is 0 first, then the middle of what the limit leaves; one policy is the answer."""
    budgets = [{"name": "a", "cost": "a", "at_most": 0.8}]
    of = replace(
        game(
            rule="single-best",
            budgets=budgets,
            measured_by="network",
            warm_up=0.0,
            min_steps=2400,
            candidate_every=200,
        ),
        multipliers="bisection",
    )
    progress, mixture = played(of)
    multipliers = [float(c.multiplier[0] / of.multiplier_unit[0]) for c in progress.candidates]
    over = [bool(c.measured[1] > 0.8) for c in progress.candidates]
    assert progress.first == 0
    assert multipliers == pytest.approx([bisected(over[:t], 5.0) for t in range(12)])
    assert multipliers[:2] == pytest.approx([0, 2.5])
    assert abs(multipliers[-1] - multipliers[-2]) < 0.01
    assert len(mixture.members) == 1
    assert mixture.measurement[1] <= 0.8


def test_where_a_policy_changes_how_often_it_decides_there_is_a_head_for_that() -> None:
    assert game().shape.num_heads == 3
    of = game(steady=False)
    assert of.shape.num_heads == 4
    progress, _ = played(of)
    assert len(progress.candidates[-1].measured) == 3  # but no coordinate
    assert np.isfinite(progress.candidates[-1].measured).all()


@pytest.mark.parametrize(
    ("oracle", "outcomes", "imitation"), [("ddqn", 0, False), ("edrr", 3, False), ("bcq", 3, True)]
)
def test_the_oracles_differ_in_their_heads_alone(oracle: Oracle, outcomes: int, imitation: bool) -> None:
    of = game(oracle=oracle)
    assert (of.shape.num_outcomes, of.shape.imitation) == (outcomes, imitation)
    assert of.settings.oracle == oracle


def test_play_goes_on_where_it_stopped(first: tuple[GameProgress, Any]) -> None:
    """From a Progress in the middle, the rest is bitwise what it would have been."""
    going = play(game())
    for _ in range(11):
        progress, _ = next(going)
    *_, (progress, mixture) = play(game(), replace(progress))
    assert mixture is not None
    assert same(progress.player, first[0].player)
    assert mixture.members == first[1].members
    assert np.array_equal(mixture.weights, first[1].weights)
    assert sorted(progress.networks) == sorted(first[0].networks)


def test_the_frugal_candidate_has_most_room_under_its_tightest_limit(first: tuple[GameProgress, Any]) -> None:
    of = game()
    room = [max((c.measured[1:] - of.coords.limits) / of.coords.scale) for c in first[0].candidates]
    assert frugal(first[0].candidates, of.coords) == int(np.argmin(room))


def test_a_policy_honours_masks() -> None:
    """Masks are part of the state: in no state does any candidate's policy leave them."""
    about = campaign(0.8, BUDGETS[:1], TRAIN)
    allowed = np.array([[True, False, True], [False, True, False], [True, True, True]])
    data: Transitions = draw(
        random_cmdp(3), 300, 6, seed=0, about=about, split=np.repeat([LEARN, SELECT], [200, 100]), allowed=allowed
    )
    of = replace(
        game(),
        data=data,
        coords=critic_coordinates(about, data.outcome, steady=True),
        bound=np.ones(1),
        learn_rows=data.rows_of(LEARN),
    )
    assert data.states is not None
    for progress, _ in play(of):
        newest = progress.candidates[-1]
        chosen = of.policy(progress.networks.get(newest.number, progress.player.critic.target), newest.multiplier)
        assert allowed[np.arange(3), chosen.choose(data.states)].all()
