from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls

from outlay import TabularCMDP, solve
from outlay.core.cmdp import ModelError
from outlay.learning.mixing import lp, rule
from outlay.learning.multipliers import eg_multiplier, ogd_step
from outlay.ops.tabular import constrained_optimum, measure, policy_iteration
from telling import missing

Floats = NDArray[np.float64]
MIXING = ["uniform", "single-best", "aim-mean", "aim-greedy", "lp"]


def ogd_regret(rounds: int, bound: NDArray[np.float64], largest: NDArray[np.float64]) -> float:
    """Most that `ogd_step` can lose to the best fixed λ in [0, bound], over `rounds` in all (Zinkevich 2003, th. 1).

    Args:
        rounds: T.
        bound: `[m]` λ_max.
        largest: `[m]` bound on |excess|.
    """
    root = rounds**0.5
    return float(bound @ bound * root / 2 + largest @ largest * (root - 0.5))


def eg_regret(rounds: int, bound: NDArray[np.float64], largest: NDArray[np.float64]) -> float:
    """Most that `eg_multiplier` can lose to the best fixed λ of its simplex, over `rounds` in all."""
    return float(2 * (bound * largest).max() * (rounds * np.log(len(bound) + 1)) ** 0.5)


def random_model(seed: int, *, states: int = 12, actions: int = 3, m: int = 1, discount: float = 0.9) -> TabularCMDP:
    rng = np.random.default_rng([seed, m])
    return TabularCMDP(
        transition=rng.dirichlet(np.full(states, 0.3), size=(states, actions)),
        reward=rng.random((states, actions)),
        cost=rng.random((states, actions, m)),
        start=rng.dirichlet(np.ones(states)),
        discount=discount,
    )


def binding_limits(model: TabularCMDP, share: float = 0.9) -> Floats:
    """A share of what the policy costs that draws every action alike: reachable and, mostly, binding."""
    return share * measure(model, np.full(model.reward.shape, 1 / model.num_actions))[1:]


def one_step(points: list[list[float]]) -> TabularCMDP:
    """One state, discount 0, an action a point: the measurement of action i is point i."""
    x = np.array(points, np.float64)
    return TabularCMDP(
        transition=np.ones((1, len(x), 1)),
        reward=x[None, :, 0],
        cost=x[None, :, 1:],
        start=np.ones(1),
        discount=0.0,
    )


def every_measurement(model: TabularCMDP) -> Floats:
    policies = product(range(model.num_actions), repeat=model.num_states)
    return np.array([measure(model, np.array(policy)) for policy in policies])


@pytest.mark.parametrize("method", ["lp", "exact"])
@pytest.mark.parametrize("m", [1, 2, 3, 5])
@pytest.mark.parametrize("discount", [0.0, 0.8, 0.95])
def test_the_mixture_reaches_the_optimum_of_the_occupancy_program(method: str, m: int, discount: float) -> None:
    for seed in range(3):
        model = random_model(seed, states=30, m=m, discount=discount)
        limits = binding_limits(model)
        result = solve(model, limits, method=method)
        optimum = constrained_optimum(model, limits)
        assert result.feasible
        assert (result.mixture.measurement[1:] <= limits * (1 + 1e-9)).all()
        assert result.lower == pytest.approx(optimum.value, abs=2e-9)
        assert result.upper == pytest.approx(optimum.value, abs=2e-9)
        assert -1e-12 <= result.gap <= 2e-9
        assert len(result.mixture.members) <= m + 1
        np.testing.assert_allclose(result.multiplier, optimum.dual, atol=1e-4)


def test_bisection_reaches_the_same_optimum_with_two_members() -> None:
    for seed in range(5):
        model = random_model(seed, states=30)
        limits = binding_limits(model)
        result = solve(model, limits, method="bisection")
        assert result.lower == pytest.approx(constrained_optimum(model, limits).value, abs=2e-9)
        assert result.gap <= 1e-9
        assert len(result.mixture.members) <= 2


@pytest.mark.parametrize("method", [*MIXING, "bisection", "exact"])
def test_members_are_policies_whose_measurements_are_their_own(method: str) -> None:
    model = random_model(0)
    result = solve(model, binding_limits(model), method=method, rounds=40)
    for policy, x in zip(result.mixture.members, result.mixture.measurements, strict=True):
        assert policy.shape == (12,)
        np.testing.assert_allclose(measure(model, policy), x, atol=1e-12)
    assert result.mixture.weights.sum() == pytest.approx(1)
    assert result.best_responses >= 1


@pytest.mark.parametrize("method", MIXING)
@pytest.mark.parametrize("multipliers", ["ogd", "eg", "duals"])
def test_every_rule_with_every_player_encloses_the_optimum(method: str, multipliers: str) -> None:
    for seed in range(3):
        model = random_model(seed, m=2)
        limits = binding_limits(model)
        result = solve(model, limits, method=method, multipliers=multipliers, rounds=60)  # type: ignore[arg-type]
        optimum = constrained_optimum(model, limits).value
        assert result.lower <= optimum + 1e-9 <= result.upper + 2e-9
        assert result.upper < 1.2 * optimum
        assert result.feasible == (result.violation <= 1e-9) == bool(np.isfinite(result.gap))


def test_the_history_tells_every_round_and_its_bounds_close() -> None:
    model = random_model(1, m=2)
    limits = binding_limits(model)
    result = solve(model, limits)
    history = result.history
    rounds = len(history.lower)
    assert history.best_responses.tolist() == list(range(1, rounds + 1))
    assert history.multiplier.shape == (rounds, 2)
    assert history.response.shape == history.mixture.shape == (rounds, 3)
    assert (np.diff(history.upper) <= 0).all()
    assert (np.diff(history.lower[np.isfinite(history.lower)]) >= -1e-12).all()
    assert (history.lower[-1], history.upper[-1]) == (result.lower, result.upper)
    for multiplier, response in zip(history.multiplier[:1], history.response, strict=False):
        best = measure(model, policy_iteration(model, np.r_[1.0, -multiplier]))
        np.testing.assert_allclose(response, best)


def test_few_best_responses_are_enough_on_models_of_50_states() -> None:
    for m, most in ((1, 14), (2, 20), (3, 27)):
        for seed in range(4):
            model = random_model(seed, states=50, actions=4, m=m, discount=0.95)
            result = solve(model, binding_limits(model), tolerance=1e-6)
            assert result.gap <= 1e-6
            assert result.best_responses <= most


@pytest.mark.parametrize("limit", [0.1, 0.5, 0.9])
def test_the_example_of_the_paper(limit: float) -> None:
    """Two actions, r = c = 0 and r = c = 1: the best mixture has reward τ, every single policy within τ has 0."""
    model = one_step([[0.0, 0.0], [1.0, 1.0]])
    for method in ("lp", "exact", "bisection", "aim-greedy"):
        assert solve(model, [limit], method=method).lower == pytest.approx(limit, abs=1e-8)
    assert solve(model, [limit], method="single-best").lower == 0.0
    for method in ("uniform", "aim-mean"):
        x = solve(model, [limit], method=method).mixture.measurement
        np.testing.assert_allclose(x, [limit, limit], atol=0.01)


@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_the_lower_bound_of_the_paper_needs_m_plus_1_policies(m: int) -> None:
    """One action with nothing, m with r = 1 and one unit of one cost, limits 1/(1+m)."""
    points = np.vstack([np.zeros(1 + m), np.column_stack([np.ones(m), np.eye(m)])])
    for method in ("lp", "exact"):
        result = solve(one_step(points.tolist()), np.full(m, 1 / (1 + m)), method=method)
        assert result.lower == pytest.approx(m / (m + 1))
        assert len(result.mixture.members) == m + 1


def test_aim_mean_is_the_mean_of_all_responses_with_few_members() -> None:
    model = random_model(2, m=2)
    limits = binding_limits(model)
    mean, everything = (solve(model, limits, method=name, rounds=200) for name in ("aim-mean", "uniform"))
    np.testing.assert_allclose(mean.mixture.measurement, everything.mixture.measurement, atol=1e-12)
    np.testing.assert_allclose(mean.history.mixture, everything.history.mixture, atol=1e-12)
    assert len(mean.mixture.members) <= 4
    assert len(everything.mixture.members) == 200


def test_greedy_is_never_worse_than_single_best_on_the_same_play() -> None:
    for seed in range(5):
        model = random_model(seed, m=2)
        limits = binding_limits(model, 0.8)
        greedy, best = (solve(model, limits, method=name, rounds=100) for name in ("aim-greedy", "single-best"))
        kept = best.history.violation <= 1e-9
        assert (greedy.history.lower[kept] >= best.history.lower[kept]).all()
        assert (greedy.history.violation[~kept] <= best.history.violation[~kept]).all()


def test_a_rule_sees_every_tenth_response_if_asked_to() -> None:
    model = random_model(0)
    result = solve(model, binding_limits(model), method="uniform", rounds=100, every=10)
    assert len(result.mixture.members) == 10


@pytest.mark.parametrize("player", ["ogd", "eg"])
@pytest.mark.parametrize("rounds", [10, 100, 1000])
def test_the_duality_gap_of_the_averaged_play_keeps_its_bound(player: str, rounds: int) -> None:
    """Mean policy and mean multiplier: max_π L(π, λ̄) − min_λ L(μ̄, λ) ≤ regret / T, λ in the player's own set."""
    for seed in range(3):
        model = random_model(seed, m=2)
        limits, bound = binding_limits(model), np.array([1.5, 2.0])
        result = solve(
            model,
            limits,
            method="uniform",
            multipliers=player,  # type: ignore[arg-type]
            rounds=rounds,
            bound=bound,
            scaled_multipliers=False,
        )
        mean = result.history.multiplier.mean(axis=0)
        response = measure(model, policy_iteration(model, np.r_[1.0, -mean]))
        highest = response[0] - mean @ (response[1:] - limits)
        x = result.mixture.measurement
        worst = bound * np.maximum(x[1:] - limits, 0.0)
        lowest = x[0] - (worst.sum() if player == "ogd" else worst.max())
        assert result.upper <= highest + 1e-12
        largest = np.maximum(model.cost.max((0, 1)) - limits, limits - model.cost.min((0, 1)))
        regret = ogd_regret if player == "ogd" else eg_regret
        assert 0 <= highest - lowest + 1e-12 <= regret(rounds, bound, largest) / rounds


@given(st.integers(1, 3), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_no_fixed_multiplier_beats_a_player_by_more_than_its_regret(m: int, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bound, largest = rng.uniform(0.1, 3, m), rng.uniform(0.1, 3, m)
    excess = rng.choice([-1.0, 1.0], size=(rounds, m)) * largest
    for player, regret in (("ogd", ogd_regret), ("eg", eg_regret)):
        multiplier, gained = np.zeros(m), 0.0
        for t, gain in enumerate(excess, start=1):
            if player == "eg":
                multiplier = eg_multiplier(excess[: t - 1].sum(0), t, bound, largest)
                assert (multiplier >= 0).all()
                assert (multiplier / bound).sum() <= 1 + 1e-12
            gained += multiplier @ gain
            if player == "ogd":
                multiplier = ogd_step(multiplier, gain, t, bound)
        hindsight = np.maximum(bound * excess.sum(0), 0.0)
        best = hindsight.sum() if player == "ogd" else hindsight.max()
        assert best - gained <= regret(rounds, bound, largest) + 1e-9


@given(st.integers(1, 3), st.integers(2, 7), st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_degenerate_problems_are_solved_too(m: int, actions: int, seed: int) -> None:
    """Small whole numbers: ties, duplicates, points on one line, limits that are met exactly."""
    rng = np.random.default_rng(seed)
    model = one_step(rng.integers(0, 4, size=(actions, 1 + m)).tolist())
    limits = rng.integers(0, 4, size=m).astype(np.float64)
    points = np.column_stack([model.reward[0], model.cost[0]])
    result = solve(model, limits)
    # Least violation, longhand: the point of least norm of conv(G) + the positive orthant.
    excess = (points[:, 1:] - limits) / np.where(limits == 0, 1, limits)
    rows = np.vstack([np.hstack([excess.T, np.eye(m)]), 1e4 * np.r_[np.ones(actions), np.zeros(m)]])
    found, _ = nnls(rows, np.r_[np.zeros(m), 1e4], maxiter=1000)
    least = np.linalg.norm(np.maximum(excess.T @ found[:actions] / found[:actions].sum(), 0))
    if least > 1e-6:
        assert not result.feasible
        assert result.violation == pytest.approx(least, abs=1e-6)
        assert result.least_violation == pytest.approx(least, abs=1e-6)
    else:
        assert result.feasible
        assert result.gap <= 3e-9
        assert len(result.mixture.members) <= m + 1
        assert result.lower == pytest.approx(constrained_optimum(model, limits).value, abs=1e-7)


def test_pruning_to_the_support_cycles() -> None:
    """Limits 0, and D alone is worth 2. A and B price B down, A and C price C down: with A and one of them in hand the
    other is asked for, enters without weight and is dropped; D is never asked for.
    """
    model = one_step([[0, 0, 0], [3, 1, 3], [2, 3, 0], [2, 0, 0]])
    limits = np.zeros(2)

    def asked(spares: int | None) -> tuple[list[int], float]:
        state, actions = lp.init(rule.constraints(limits, spares=spares)), []
        for _ in range(20):
            price = lp.duals(state)
            kept = not len(state.members) or state.feasible
            policy = policy_iteration(model, np.r_[1.0 if kept else 0.0, -price])
            state = lp.step(state, policy, measure(model, policy))
            actions.append(int(policy[0]))
        return actions, lp.lower(state)

    actions, value = asked(spares=0)
    assert actions[4:] == [1, 2] * 8 or actions[4:] == [2, 1] * 8
    assert value == 0.0
    assert asked(spares=None)[1] == 2.0
    assert solve(model, limits).lower == 2.0


@pytest.mark.parametrize("method", ["lp", "exact", "bisection", "aim-greedy", "single-best", "uniform"])
def test_a_limit_below_the_cheapest_policy_is_reported_with_the_proof(method: str) -> None:
    model = random_model(3)
    cheapest = measure(model, policy_iteration(model, [0.0, -1.0]))[1]
    limit = cheapest / 2
    result = solve(model, [limit], method=method, rounds=50)
    assert not result.feasible
    assert result.least_violation == pytest.approx(1.0)
    assert (result.lower, result.upper, result.gap) == (-np.inf, -np.inf, np.inf)
    assert result.multiplier[0] * (cheapest - limit) == pytest.approx(1.0)
    if method not in ("aim-greedy", "single-best", "uniform"):
        assert result.violation == pytest.approx(1.0)
    assert "No policy keeps the limits" in str(result)


def test_limits_that_can_be_kept_alone_but_not_together() -> None:
    """Orders cost 1 of one thing or 1 of the other: Σ is 1 for every policy, (0.3, 0.3) is 0.2·√2 away at scale 1."""
    model = one_step([[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]])
    result = solve(model, [0.3, 0.3], scale=[1.0, 1.0])
    assert not result.feasible
    assert result.violation == pytest.approx(0.2 * 2**0.5)
    assert result.least_violation == pytest.approx(0.2 * 2**0.5)
    np.testing.assert_allclose(result.multiplier, [0.5**0.5] * 2)
    np.testing.assert_allclose(result.mixture.weights, [0.5, 0.5])


def test_a_floor_is_a_cost_and_a_limit_with_the_sign_turned() -> None:
    model = random_model(4, states=4)
    orders = every_measurement(model)[:, 1]
    floor = 0.2 * orders.min() + 0.8 * orders.max()
    turned = replace(model, cost=-model.cost)
    result = solve(turned, [-floor])
    assert result.feasible
    assert -result.mixture.measurement[1] == pytest.approx(floor)
    assert result.lower == pytest.approx(constrained_optimum(turned, [-floor]).value)
    out_of_reach = solve(turned, [-1.1 * orders.max()])
    assert out_of_reach.violation == pytest.approx(0.1 / 1.1)


def test_only_allowed_actions_are_taken() -> None:
    model = random_model(5, states=5)
    allowed = np.array([[True, True, False]] * 3 + [[False, True, True]] * 2)
    limits = binding_limits(model)
    for method in (*MIXING, "exact", "bisection"):
        result = solve(model, limits, method=method, rounds=30, allowed=allowed)
        assert all(allowed[np.arange(5), policy].all() for policy in result.mixture.members)
    optimum = constrained_optimum(model, limits, allowed=allowed)
    assert solve(model, limits, allowed=allowed).lower == pytest.approx(optimum.value, abs=1e-8)
    assert optimum.value < constrained_optimum(model, limits).value


def test_without_limits_the_best_policy_is_the_answer() -> None:
    model = replace(random_model(6), cost=np.zeros((12, 3, 0)))
    for method in (*MIXING, "exact"):
        result = solve(model, [], method=method, rounds=5)
        assert result.lower == pytest.approx(measure(model, policy_iteration(model, [1.0]))[0])
        assert result.gap == pytest.approx(0.0, abs=1e-12)


def test_units_do_not_matter() -> None:
    model = random_model(7, m=2)
    limits, units = binding_limits(model), np.array([1e6, 1e-6])
    plain = solve(model, limits)
    scaled = solve(replace(model, reward=1e4 * model.reward, cost=model.cost * units), limits * units)
    assert scaled.lower == pytest.approx(1e4 * plain.lower)
    assert scaled.best_responses == plain.best_responses
    for method in ("aim-greedy", "aim-mean"):
        one, other = (
            solve(cmdp, limit, method=method, rounds=50)
            for cmdp, limit in (
                (model, limits),
                (replace(model, reward=1e4 * model.reward, cost=model.cost * units), limits * units),
            )
        )
        np.testing.assert_allclose(other.mixture.measurement / np.r_[1e4, units], one.mixture.measurement)


def test_it_prints_as_a_table() -> None:
    text = str(solve(one_step([[0, 0], [1, 1]]), [0.25]))
    assert text.splitlines()[0].split() == ["member", "weight", "reward", "cost", "0"]
    assert ["0.7500", "0", "0"] in [line.split()[1:] for line in text.splitlines()]
    assert not missing(text, "Keeps the limits", "0.25 and 0.25", "lp", "3 best responses")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limits": [1.0, 2.0]}, r"limits: .*1 numbers, .*found 2"),
        ({"limits": 1.0}, r"limits: .*m numbers, found shape \(\)"),
        ({"limits": [np.nan]}, r"limits: .*finite numbers, found \[nan\]"),
        ({"limits": [np.inf]}, r"limits: .*finite numbers, found \[inf\]"),
        ({"scale": [0.0]}, r"scale: .*above 0, found \[0\.0\]"),
        ({"scale": [1.0, 2.0]}, r"scale: .*1 numbers, found shape \(2,\)"),
        ({"method": "greedy"}, r"method: is 'greedy'; .*uniform, single-best, aim-mean, aim-greedy, lp"),
        ({"multipliers": "adam"}, r"multipliers: is 'adam'; .*ogd, eg, duals"),
        ({"rounds": 0}, r"rounds: is 0; .*1 or more"),
        ({"every": 2.5}, r"every: is 2\.5; .*whole number"),
        ({"method": "aim-mean", "bound": [-1.0]}, r"bound: is \[-1\.0\]; .*above 0"),
        ({"allowed": np.ones((2, 2))}, r"allowed: .*\(2, 2\); .*\(12, 3\)"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        solve(random_model(0), **{"limits": [0.5], **arguments})  # type: ignore[arg-type]


def test_bisection_takes_one_limit_only() -> None:
    with pytest.raises(ModelError, match=r"'bisection' .*one limit, .*2; .*'lp'"):
        solve(random_model(0, m=2), [0.5, 0.5], method="bisection")
