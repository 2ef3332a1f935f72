import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from outlay.ops.mixture_lp import MixtureSolution, scaled_violation, solve_mixture, value_at

Floats = NDArray[np.float64]


def prove(measurements: Floats, limits: Floats, scale: Floats, solution: MixtureSolution) -> None:
    """Weak duality, by hand: the multipliers bound what any weights can reach, and the weights reach it."""
    weights, duals, violation, feasible, _ = solution
    excess = measurements[:, 1:] - limits
    size = 1e-9 * (1 + np.abs(excess / scale).max() + np.ptp(measurements[:, 0]))
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert (weights > 0).sum() <= len(limits) + 1
    assert duals.min() >= 0
    reached = weights @ measurements
    assert scaled_violation(reached[1:], limits, scale) == pytest.approx(violation, abs=size)
    if feasible:
        assert violation <= 1e-9
        assert (measurements[:, 0] - excess @ duals).max() <= reached[0] + size * (1 + (duals * scale).sum())
    else:
        assert np.linalg.norm(duals * scale) == pytest.approx(1)
        assert (excess @ duals).min() >= violation - size


def test_two_policies_spend_the_limit_exactly() -> None:
    """From r = c = 0 to r = c = 1 with limit 0.3: weight 0.3 on the second, a unit of limit buys one of reward."""
    solution = solve_mixture(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0.3]), np.array([0.3]))
    np.testing.assert_allclose(solution.weights, [0.7, 0.3], atol=1e-12)
    np.testing.assert_allclose(solution.duals, [1.0])
    assert solution.feasible


def test_a_limit_out_of_reach_gives_the_least_violation_and_its_proof() -> None:
    """Least cost 2 against limit 1 at scale 0.5: violation (2 − 1) / 0.5 = 2, λ = 1 / 0.5 proves it."""
    solution = solve_mixture(np.array([[5.0, 3.0], [1.0, 2.0]]), np.array([1.0]), np.array([0.5]))
    assert solution.weights.tolist() == [0.0, 1.0]
    assert solution.violation == pytest.approx(2.0)
    np.testing.assert_allclose(solution.duals, [2.0])
    assert not solution.feasible


def test_limits_reachable_alone_but_not_together() -> None:
    """(0, 1) and (1, 0) against (0.4, 0.4): half of each is 0.1 over in both, √2 · 0.1 / 0.4."""
    solution = solve_mixture(np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]), np.array([0.4, 0.4]), np.array([0.4, 0.4]))
    np.testing.assert_allclose(solution.weights, [0.5, 0.5], atol=1e-9)
    assert solution.violation == pytest.approx(np.sqrt(2) * 0.25)
    assert not solution.feasible


def test_of_equal_violation_the_higher_reward_is_taken() -> None:
    """The first limit is 1 over whatever is done; the second lets 2/3 of the third in: 1/3 · 1 + 2/3 · 9 = 19/3."""
    measurements = np.array([[1.0, 2.0, 0.0], [2.0, 2.0, 0.5], [9.0, 2.0, 1.5]])
    solution = solve_mixture(measurements, np.array([1.0, 1.0]), np.ones(2))
    assert solution.violation == pytest.approx(1.0)
    np.testing.assert_allclose(solution.weights @ measurements, [19 / 3, 2.0, 1.0])


def test_reward_is_not_bought_with_violation_within_the_tolerance() -> None:
    """The limit can be kept exactly, so it is, however steep the reward."""
    solution = solve_mixture(np.array([[0.0, 0.0], [1e9, 1.0]]), np.array([0.5]), np.array([0.5]))
    assert solution.weights[1] == pytest.approx(0.5, abs=1e-12)


def test_a_single_limit_agrees_with_trying_every_pair() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        r, c = rng.normal(size=(2, 12))
        best = max([-np.inf, *r[c <= 0.1]])
        for i in range(12):
            for j in range(12):
                if c[i] < 0.1 < c[j]:
                    share = (0.1 - c[i]) / (c[j] - c[i])
                    best = max(best, r[i] + share * (r[j] - r[i]))
        solution = solve_mixture(np.column_stack([r, c]), np.array([0.1]), np.array([0.1]))
        assert solution.weights @ r == pytest.approx(best, abs=1e-10)


def test_no_limit_at_all_takes_the_highest_reward() -> None:
    solution = solve_mixture(np.array([[1.0], [3.0], [2.0]]), np.empty(0), np.empty(0))
    assert solution.weights.tolist() == [0.0, 1.0, 0.0]
    assert solution.duals.shape == (0,)


@given(
    st.integers(1, 5),
    st.integers(1, 15),
    st.booleans(),
    st.floats(-4, 2),
    st.integers(0, 2**32 - 1),
)
def test_the_duals_prove_the_weights_best(m: int, k: int, degenerate: bool, ease: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    measurements = rng.normal(size=(k, 1 + m))
    limits = rng.normal(size=m) + ease * rng.uniform()
    if degenerate:
        measurements, limits = np.round(measurements), np.round(limits)
    scale = 10.0 ** rng.uniform(-2, 2, size=m)
    prove(measurements, limits, scale, solve_mixture(measurements, limits, scale))


@given(st.integers(1, 8), st.integers(1, 25), st.integers(1, 5), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_known_basis_is_a_start_and_not_another_answer(
    m: int, k: int, more: int, degenerate: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    measurements = rng.normal(size=(k + more, 1 + m))
    limits, scale = rng.normal(size=m) + 0.5, 10.0 ** rng.uniform(-2, 2, size=m)
    if degenerate:
        measurements, limits = np.round(measurements), np.round(limits)
    known = solve_mixture(measurements[:k], limits, scale)
    if known.violation > 1e-12:
        return
    warm = solve_mixture(measurements, limits, scale, known.basis)
    prove(measurements, limits, scale, warm)
    cold = solve_mixture(measurements, limits, scale)
    assert warm.weights @ measurements[:, 0] == pytest.approx(cold.weights @ measurements[:, 0], abs=1e-10)


@given(
    st.integers(1, 10), st.integers(1, 40), st.sampled_from([0, 1e-13, 1e-11, 1e-9, 1e-6]), st.integers(0, 2**32 - 1)
)
def test_nearly_degenerate_points_and_an_outlier_do_not_break_the_limits(
    m: int, k: int, jitter: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    measurements = rng.integers(-2, 3, size=(k, 1 + m)) + jitter * rng.normal(size=(k, 1 + m))
    measurements[0] *= 10.0 ** rng.uniform(0, 9)
    limits, scale = rng.choice([-3.0, 0.0, 1.0]) + rng.normal(size=m), np.ones(m)
    solution = solve_mixture(measurements, limits, scale)
    reached = scaled_violation(solution.weights @ measurements[:, 1:], limits, scale)
    rounding = 1e-15 * np.abs(measurements).max()
    assert (solution.weights > 0).sum() <= m + 1
    assert reached <= (1e-9 if solution.feasible else solution.violation + 1e-9) + 10 * rounding


def test_a_pivot_that_is_rounding_is_taken_back() -> None:
    """A stream found by search: without the step back its limits are exceeded by 6e-4 and said to be kept."""
    rng = np.random.default_rng(4391)
    measurements = rng.integers(-2, 3, size=(20, 7)) + 1e-9 * rng.normal(size=(20, 7))
    limits = np.full(6, -1.0)
    solution = solve_mixture(measurements, limits, np.ones(6))
    assert solution.feasible
    assert scaled_violation(solution.weights @ measurements[:, 1:], limits, np.ones(6)) <= 1e-9


@pytest.mark.parametrize("m", [1, 2, 3, 10])
def test_agrees_with_highs(m: int) -> None:
    rng = np.random.default_rng(m)
    for _ in range(20):
        measurements, limits = rng.normal(size=(40, 1 + m)), np.full(m, -0.1)
        measurements[0, 1:] = -1.0
        solution = solve_mixture(measurements, limits, np.ones(m))
        other = linprog(
            -measurements[:, 0],
            A_ub=measurements[:, 1:].T,
            b_ub=limits,
            A_eq=np.ones((1, 40)),
            b_eq=[1.0],
        )
        np.testing.assert_allclose(solution.weights, other.x, atol=1e-9)
        np.testing.assert_allclose(solution.duals, -other.ineqlin.marginals, atol=1e-9)


def test_the_simplex_method_ends_where_every_step_stalls() -> None:
    """Beale's example, with which the rule of the largest coefficient cycles: optimum 1/20, at x = (1/25, 0, 1, 0).

    As a mixture: x = 100 α, and a policy that does nothing takes the rest.
    """
    rewards = np.array([0.75, -150.0, 0.02, -6.0, 0.0])
    rows = np.array([[0.25, -60.0, -1 / 25, 9.0, 0.0], [0.5, -90.0, -1 / 50, 3.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    solution = solve_mixture(np.column_stack([rewards, rows.T]), np.array([0.0, 0.0, 0.01]), np.ones(3))
    np.testing.assert_allclose(100 * solution.weights[:4], [0.04, 0.0, 1.0, 0.0], atol=1e-12)
    assert 100 * solution.weights @ rewards == pytest.approx(0.05)


@pytest.mark.parametrize("exponent", [-9, -6, 6, 9])
def test_units_of_the_coordinates_do_not_matter(exponent: int) -> None:
    rng = np.random.default_rng(5)
    measurements, limits = rng.normal(size=(20, 3)), np.array([0.2, -0.3])
    plain = solve_mixture(measurements, limits, np.ones(2))
    units = 10.0 ** np.array([exponent, -exponent, 0])
    other = solve_mixture(measurements * units, limits * units[1:], units[1:])
    np.testing.assert_allclose(other.weights, plain.weights, atol=1e-9)
    np.testing.assert_allclose(other.duals, plain.duals * units[0] / units[1:], rtol=1e-6, atol=1e-12 * units[0])


@pytest.mark.parametrize(("spend", "value"), [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (9.0, 3.0)])
def test_what_a_spend_buys_of_two_policies_that_are_mixed(spend: float, value: float) -> None:
    assert value_at(np.array([[1.0, 0.0], [3.0, 2.0]]), spend) == pytest.approx(value)
