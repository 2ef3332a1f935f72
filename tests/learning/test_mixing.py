from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from outlay.core.mixture import Mixture
from outlay.learning.mixing import RULES, aim_greedy, aim_mean, lp, rule, single_best
from outlay.ops.mixture_lp import solve_mixture

Floats = NDArray[np.float64]
AIM = ["aim-mean", "aim-greedy"]


def play(name: str, points: Floats, limits: Floats, scale: Floats | None = None) -> Mixture[int]:
    chosen = RULES[name]
    state = chosen.init(rule.constraints(limits, scale))
    for member, point in enumerate(points):
        state = chosen.step(state, member, point)
    return chosen.mixture(state)


def hull_distance(points: Floats, target: Floats, scale: Floats) -> float:
    """Carathéodory by LP, longhand: the least t with |Σ αᵢ xᵢ − target| ≤ t · scale in each coordinate."""
    k, d = points.shape
    rows = ((points - target) / scale).T
    result = linprog(
        np.r_[np.zeros(k), 1.0],
        A_ub=np.block([[rows, -np.ones((d, 1))], [-rows, -np.ones((d, 1))]]),
        b_ub=np.zeros(2 * d),
        A_eq=np.r_[np.ones(k), 0.0][None],
        b_eq=[1.0],
        options={"primal_feasibility_tolerance": 1e-10},
    )
    return float(result.x[-1])


def check_aim(state: aim_mean.AimState, scale: Floats) -> None:
    """The invariants: m + 2 at most, a distribution, affinely independent, and the target reproduced."""
    mixture = aim_mean.mixture(state)
    points, k = mixture.measurements, len(mixture.members)
    assert k <= points.shape[1] + 1
    assert mixture.weights.min() > 0
    assert mixture.weights.sum() == pytest.approx(1, abs=1e-12)
    assert (np.abs(mixture.measurement - state.target) <= 1e-9 * scale).all()
    if k > 1:
        unit = np.maximum(np.ptp(points, axis=0), 0.1 * np.abs(points).max(axis=0))
        apart = (points[1:] - points[0]) / np.where(unit > 0, unit, 1.0)
        assert np.linalg.matrix_rank(apart, tol=1e-13) == k - 1


@st.composite
def streams(draw: st.DrawFn) -> tuple[Floats, Floats, Floats]:
    """Points `[t, 1+m]`, limits and scale `[m]`: grids (duplicates, collinear), jitter, unlike units, an outlier."""
    m = draw(st.integers(1, 4) | st.just(10))
    steps = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    points = rng.integers(-2, 3, size=(steps, 1 + m)).astype(np.float64)
    if draw(st.booleans()):  # all on a line or a plane
        rank = draw(st.integers(1, 2))
        points = points[:, :rank] @ rng.normal(size=(rank, 1 + m))
    points += draw(st.sampled_from([0.0, 1e-13, 1e-11, 1e-9, 1e-3, 1.0])) * rng.normal(size=points.shape)
    if draw(st.booleans()):
        points[:, rng.integers(1 + m)] = 0.3
    if draw(st.booleans()):
        points[0] *= 1e9
    units = 10.0 ** rng.uniform(-9, 9, size=1 + m) if draw(st.booleans()) else np.ones(1 + m)
    limits = rng.normal(size=m) + draw(st.sampled_from([-3.0, 0.0, 1.0]))
    return points * units, limits * units[1:], units[1:]


@given(streams())
@settings(max_examples=150)
def test_aim_keeps_its_invariants_after_every_step(stream: tuple[Floats, Floats, Floats]) -> None:
    points, limits, scale = stream
    for name in AIM:
        state = RULES[name].init(rule.constraints(limits, scale))
        for t, point in enumerate(points):
            state = RULES[name].step(state, t, point)
            check_aim(state, np.abs(points[: t + 1]).max(axis=0))


@given(streams())
def test_aim_mean_is_the_mean_of_uniform(stream: tuple[Floats, Floats, Floats]) -> None:
    points, limits, scale = stream
    kept, all_of_them = play("aim-mean", points, limits, scale), play("uniform", points, limits, scale)
    assert len(all_of_them.members) == len(points)
    size = np.abs(points).max(axis=0)
    assert (np.abs(kept.measurement - all_of_them.measurement) <= 1e-9 * size).all()


@given(streams())
def test_the_rules_are_ordered_single_best_greedy_lp(stream: tuple[Floats, Floats, Floats]) -> None:
    """One order, one norm: violation first, then reward. Greedy searches more than single-best, the LP everything."""
    points, limits, scale = stream
    constraints = rule.constraints(limits, scale)
    greedy_state = aim_greedy.init(rule.constraints(limits, scale))
    best_state = single_best.init(rule.constraints(limits, scale))
    for t, point in enumerate(points):
        greedy_state = aim_greedy.step(greedy_state, t, point)
        best_state = single_best.step(best_state, t, point)
        best = single_best.mixture(best_state).measurement
        assert rule.badness(constraints, greedy_state.target) <= rule.badness(constraints, best)
    rounding = 1e-15 * np.abs(points / np.r_[1.0, scale]).max()
    violation, loss = rule.badness(constraints, play("lp", points, limits, scale).measurement)
    greedy_violation, greedy_loss = rule.badness(constraints, greedy_state.target)
    assert violation <= greedy_violation + 3e-9 + 10 * rounding
    if greedy_violation == 0:
        assert loss <= greedy_loss + 1e-6 * np.abs(points[:, 0]).max()


@pytest.mark.parametrize("name", AIM)
@pytest.mark.parametrize("m", [1, 2, 10])
def test_aim_does_not_drift(name: str, m: int) -> None:
    """Many steps, one coordinate in units of 1e9: the state stays as good and as small as after the first steps."""
    rng = np.random.default_rng(m)
    points = rng.normal(size=(5000, 1 + m)) * np.r_[1e9, np.ones(m)]
    chosen = RULES[name]
    state = chosen.init(rule.constraints(np.full(m, -0.2)))
    for t, point in enumerate(points):
        state = chosen.step(state, t, point)
        if t % 500 == 0:
            check_aim(state, np.abs(points[: t + 1]).max(axis=0))
    check_aim(state, np.ptp(points, axis=0))
    if name == "aim-mean":
        np.testing.assert_allclose(state.target, points.mean(axis=0), atol=1e-13 * 1e9, rtol=0)
        assert (np.abs(chosen.mixture(state).measurement - points.mean(axis=0)) <= 1e-12 * np.ptp(points, axis=0)).all()


@pytest.mark.parametrize("m", [1, 10])
def test_the_rules_that_keep_everything_bear_the_steps_of_the_paper(m: int) -> None:
    """1,480 steps: the answer is that of the program over all of them."""
    rng = np.random.default_rng(m)
    points = rng.normal(size=(1480, 1 + m)) * np.r_[1e9, np.ones(m)]
    limits = np.full(m, -0.2)
    state, everything = lp.init(rule.constraints(limits)), RULES["uniform"].init(rule.constraints(limits))
    for t, point in enumerate(points):
        state, everything = lp.step(state, t, point), RULES["uniform"].step(everything, t, point)
    np.testing.assert_allclose(RULES["uniform"].mixture(everything).measurement, points.mean(axis=0), rtol=1e-9)
    whole = solve_mixture(points, limits, rule.constraints(limits).scale)
    assert lp.lower(state) == pytest.approx(whole.weights @ points[:, 0], rel=1e-9)
    assert (lp.mixture(state).measurement[1:] <= limits + 1e-9).all()


def test_a_large_common_offset_costs_the_mean_no_digits() -> None:
    """The longhand mean is taken of the offsets from 1, which are exact: 5,000 steps lose less than one digit of 1."""
    offsets = np.round(np.random.default_rng(0).normal(size=(5_000, 2)) * 2**20) * 2.0**-40
    state = aim_mean.init(rule.constraints([0.0]))
    for point in 1.0 + offsets:
        state = aim_mean.step(state, None, point)
    np.testing.assert_allclose(state.target - 1.0, offsets.mean(axis=0), rtol=0, atol=2.3e-16)


@pytest.mark.parametrize("m", [1, 3])
def test_the_target_lies_in_the_hull_of_the_kept_by_a_linear_program(m: int) -> None:
    rng = np.random.default_rng(m)
    points = rng.normal(size=(60, 1 + m))
    for name in AIM:
        state = RULES[name].init(rule.constraints(np.full(m, -0.3)))
        for t, point in enumerate(points):
            state = RULES[name].step(state, t, point)
            assert hull_distance(state.measurements, state.target, np.ones(1 + m)) <= 1e-9
            assert hull_distance(points[: t + 1], state.target, np.ones(1 + m)) <= 1e-9


@pytest.mark.parametrize("name", ["aim-greedy", "lp"])
@pytest.mark.parametrize("limit", [0.1, 0.5, 0.9])
def test_the_example_of_the_paper_needs_two_policies(name: str, limit: float) -> None:
    """Two actions, r = c = 0 and r = c = 1, τ in (0, 1): the best mixture has reward τ, every single policy 0."""
    points = np.array([[0.0, 0.0], [1.0, 1.0]])
    mixture = play(name, points, np.array([limit]))
    np.testing.assert_allclose(mixture.measurement, [limit, limit], atol=1e-12)
    assert mixture.members == (0, 1)
    assert play("single-best", points, np.array([limit])).measurement.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("m", [1, 2, 5, 10])
def test_the_lower_bound_of_the_paper_needs_m_plus_1_policies(m: int) -> None:
    """One action with nothing, m with r = 1 and one unit of one cost, limits 1/(1+m): all m + 1 with equal weight."""
    points = np.vstack([np.zeros(1 + m), np.column_stack([np.ones(m), np.eye(m)])])
    mixture = play("lp", points, np.full(m, 1 / (1 + m)))
    assert len(mixture.members) == m + 1
    np.testing.assert_allclose(mixture.weights, np.full(m + 1, 1 / (m + 1)), atol=1e-12)
    assert mixture.measurement[0] == pytest.approx(m / (m + 1))
    assert play("aim-mean", points, np.full(m, 1 / (1 + m))).measurement[0] == pytest.approx(m / (m + 1))


def test_greedy_does_not_look_back_and_the_lp_does() -> None:
    """A (0, 0), B (1, 1), limit 0.5, then C (0.4, 0.1): greedy stays at 0.5, B and C reach 2/3 (= 0.4 + 0.6 · 4/9)."""
    points, limits = np.array([[0.0, 0.0], [1.0, 1.0], [0.4, 0.1]]), np.array([0.5])
    assert play("aim-greedy", points, limits).measurement[0] == pytest.approx(0.5)
    best = play("lp", points, limits)
    assert best.measurement[0] == pytest.approx(2 / 3)
    assert best.members == (1, 2)


def test_greedy_searches_the_whole_segment_where_neither_end_is_feasible() -> None:
    """(0, 1) and (1, 0) against (0.6, 0.7): both ends are over, θ from 0.4 to 0.7 is not; the reward rises with θ."""
    points = np.array([[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    mixture = play("aim-greedy", points, np.array([0.6, 0.7]))
    np.testing.assert_allclose(mixture.measurement, [1.6, 0.6, 0.4], atol=1e-12)


def test_greedy_takes_the_point_of_least_violation_where_no_point_is_feasible() -> None:
    """(θ − 0.2)² + (1 − θ − 0.4)² at scale 1 is least at θ = 0.4, though the reward falls."""
    points = np.array([[5.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    mixture = play("aim-greedy", points, np.array([0.2, 0.4]), np.ones(2))
    np.testing.assert_allclose(mixture.measurement, [3.0, 0.4, 0.6], atol=1e-12)


def test_greedy_maximises_reward_where_a_violation_cannot_be_moved() -> None:
    """The first limit is 1 over along the whole segment; the second holds up to θ = 0.5."""
    points = np.array([[0.0, 2.0, 0.0], [1.0, 2.0, 2.0]])
    mixture = play("aim-greedy", points, np.array([1.0, 1.0]))
    np.testing.assert_allclose(mixture.measurement, [0.5, 2.0, 1.0], atol=1e-12)


@given(st.integers(1, 4), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_best_point_of_a_segment_beats_a_fine_grid(m: int, rounded: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    current, newest = rng.normal(size=(2, 1 + m))
    if rounded:
        current, newest = np.round(current), np.round(newest)
    constraints = rule.constraints(rng.normal(size=m), 10.0 ** rng.uniform(-1, 1, size=m))
    share, point = aim_greedy.best_point(constraints, current, newest)
    np.testing.assert_allclose(point, current + share * (newest - current), atol=1e-12)
    violation, loss = rule.badness(constraints, point)
    for theta in np.linspace(0, 1, 101):
        grid_violation, grid_loss = rule.badness(constraints, current + theta * (newest - current))
        assert violation <= grid_violation + 1e-12
        if grid_violation <= violation:
            assert loss <= grid_loss + 1e-12


def test_greedy_can_lose_against_single_best_in_another_norm() -> None:
    """Why the order must be one: at scale (1, 100) greedy ends farther from the limits than single-best at (1, 1)."""
    points, limits = np.array([[0.0, 1.0, 1.0], [0.0, 0.5, 9.0]]), np.zeros(2)
    greedy = play("aim-greedy", points, limits, np.array([1.0, 100.0])).measurement
    best = play("single-best", points, limits, np.ones(2)).measurement
    assert np.linalg.norm(greedy[1:]) > np.linalg.norm(best[1:])


@pytest.mark.parametrize("name", ["single-best", "aim-greedy", "lp"])
def test_a_limit_out_of_reach_gives_the_nearest(name: str) -> None:
    mixture = play(name, np.array([[9.0, 4.0], [1.0, 2.0], [3.0, 3.0]]), np.array([1.0]))
    assert mixture.measurement.tolist() == [1.0, 2.0]
    assert not rule.feasible(rule.constraints([1.0]), mixture.measurement)
    assert rule.violation(rule.constraints([1.0]), mixture.measurement) == 1.0


def test_single_best_prefers_feasible_then_reward_and_of_equals_the_older() -> None:
    points = np.array([[9.0, 2.0], [1.0, 0.5], [2.0, 1.0], [2.0, 0.0]])
    assert play("single-best", points, np.array([1.0])).members == (2,)


def test_a_floor_is_a_negated_limit() -> None:
    """At least 0.8 orders: cost −orders, limit −0.8. Only a mixture with 0.8 of the second policy keeps it."""
    mixture = play("lp", np.array([[1.0, -0.0], [0.0, -1.0]]), np.array([-0.8]))
    np.testing.assert_allclose(mixture.weights, [0.2, 0.8], atol=1e-12)


def test_lp_exposes_its_bound_and_its_duals() -> None:
    """From infeasible (λ the proof) to feasible: a unit of limit buys (9 − 1) / (4 − 0) = 2 of reward."""
    state = lp.init(rule.constraints([1.0]))
    assert lp.lower(state) == -np.inf
    assert lp.duals(state).tolist() == [0.0]
    state = lp.step(state, "dear", [9.0, 4.0])
    assert lp.lower(state) == -np.inf
    assert not state.feasible
    assert lp.duals(state).tolist() == [1.0]
    state = lp.step(state, "free", [1.0, 0.0])
    assert lp.lower(state) == pytest.approx(3.0)
    np.testing.assert_allclose(lp.duals(state), [2.0])
    assert lp.reduced_cost(state, np.array([[4.0, 1.0]])) == pytest.approx(1.0)


@given(streams())
def test_lp_never_gets_worse_and_keeps_at_most_m_plus_1(stream: tuple[Floats, Floats, Floats]) -> None:
    points, limits, scale = stream
    rounding = 1e-8 + 1e-14 * np.abs(points / np.r_[1.0, scale]).max()
    state, value, violation = lp.init(rule.constraints(limits, scale)), -np.inf, np.inf
    for t, point in enumerate(points):
        state = lp.step(state, t, point)
        assert len(lp.mixture(state).members) <= len(limits) + 1
        assert lp.lower(state) >= value - 1e-7 * np.abs(points[:, 0]).max()
        assert state.violation <= violation + rounding
        value, violation = lp.lower(state), state.violation
        if state.feasible:
            assert lp.reduced_cost(state, point[None])[0] <= 1e-7 * np.abs(points[:, 0]).max()


def test_lp_with_spares_keeps_the_support_and_the_best_spares_and_is_monotone() -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(300, 3))
    state, value = lp.init(rule.constraints([-0.2, -0.3], spares=3)), -np.inf
    everything = lp.init(rule.constraints([-0.2, -0.3]))
    for t, point in enumerate(points):
        state, everything = lp.step(state, t, point), lp.step(everything, t, point)
        assert len(state.members) <= 3 + 3
        assert len(state.members) == len(state.measurements)
        assert value - 1e-9 <= lp.lower(state) <= lp.lower(everything) + 1e-9
        value = lp.lower(state)
    np.testing.assert_allclose(points[list(state.members)], state.measurements)
    assert len(everything.members) == 300


def test_lp_without_spares_forgets_what_it_would_need_later() -> None:
    """A (0, 0), B (1, 1), C (0.4, 0.1), D (10, 2), limit 0.5. B and C drop A; A and D would be worth 0.25 · 10 = 2.5,
    C and D are worth 0.4 + 9.6 · 0.4 / 1.9.
    """
    points = np.array([[0.0, 0.0], [1.0, 1.0], [0.4, 0.1], [10.0, 2.0]])
    pruned, spared, whole = (
        lp.init(rule.constraints([0.5], spares=0)),
        lp.init(rule.constraints([0.5], spares=1)),
        lp.init(rule.constraints([0.5])),
    )
    for member, point in zip("ABCD", points, strict=True):
        pruned, spared, whole = (lp.step(state, member, point) for state in (pruned, spared, whole))
    assert lp.lower(whole) == pytest.approx(2.5)
    assert lp.lower(spared) == pytest.approx(2.5)
    assert lp.lower(pruned) == pytest.approx(0.4 + 9.6 * 0.4 / 1.9)
    assert list(pruned.members) == ["C", "D"]


@pytest.mark.parametrize("name", list(RULES))
def test_every_rule_keeps_the_contract(name: str) -> None:
    assert isinstance(RULES[name], rule.Rule)
    assert RULES[name].FINAL_WEIGHTS in get_args(rule.FinalWeights)


@pytest.mark.parametrize("name", list(RULES))
def test_every_rule_is_pure_and_takes_any_member(name: str) -> None:
    chosen = RULES[name]
    members = [np.zeros(3), object(), {"λ": 1.0}, None]
    points = np.random.default_rng(0).normal(size=(4, 3))
    before = points.copy()
    state = chosen.init(rule.constraints([0.1, 0.2]))
    states = [state]
    for member, point in zip(members, points, strict=True):
        state = chosen.step(state, member, point)
        states.append(state)
    np.testing.assert_array_equal(points, before)
    again = chosen.step(states[2], members[2], points[2])
    first, second = chosen.mixture(states[3]), chosen.mixture(again)
    np.testing.assert_array_equal(first.weights, second.weights)
    assert all(a is b for a, b in zip(first.members, second.members, strict=True))
    assert {id(member) for member in first.members} <= {id(member) for member in chosen.members(states[3])}
    assert chosen.members(states[0]) == ()
    for member, point in zip(first.members, first.measurements, strict=True):
        which = next(i for i, m in enumerate(members) if m is member)
        assert point.tolist() == points[which].tolist()
    points[:] = np.nan
    assert np.isfinite(chosen.mixture(states[3]).measurement).all()


@pytest.mark.parametrize("name", list(RULES))
def test_every_rule_says_what_is_wrong_with_its_input(name: str) -> None:
    chosen = RULES[name]
    state = chosen.init(rule.constraints([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"measurement: .*3 numbers, .*shape \(2,\)"):
        chosen.step(state, None, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"measurement: .*finite numbers, .*\[1\.0, nan, 2\.0\]"):
        chosen.step(state, None, [1.0, np.nan, 2.0])
    with pytest.raises(ValueError, match=r"limits: .*m numbers, .*shape \(\)"):
        chosen.init(rule.constraints(1.0))
    with pytest.raises(ValueError, match="limits: expected finite numbers"):
        chosen.init(rule.constraints([np.inf]))
    with pytest.raises(ValueError, match=r"scale: .*2 numbers, .*shape \(1,\)"):
        chosen.init(rule.constraints([1.0, 2.0], [1.0]))
    with pytest.raises(ValueError, match=r"scale: .*above 0, .*\[0\.0\]"):
        chosen.init(rule.constraints([1.0], [0.0]))
    with pytest.raises(ValueError, match="at least one policy"):
        chosen.mixture(state)


def test_spares_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match=r"spares: .*0 or more, .*-1"):
        lp.init(rule.constraints([1.0], spares=-1))


def test_the_default_scale_is_the_limit_or_1() -> None:
    assert rule.constraints([-2.0, 0.0, 0.5]).scale.tolist() == [2.0, 1.0, 0.5]
