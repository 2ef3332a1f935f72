import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knapsack_highs import linear_program
from outlay.ops.knapsack import Choices, apportion, fill, net_values, repair
from outlay.ops.knapsack_prices import limit_prices


def problem(rng: np.random.Generator, users: int, arms: int, limits: int, *, whole: bool = False) -> Choices:
    """A random problem in which the first arm is free."""
    value, cost = rng.normal(size=(users, arms)), rng.exponential(size=(users, arms, limits))
    if whole:
        value, cost = np.round(value), np.floor(cost)
    cost[:, 0] = 0.0
    return Choices(value, cost)


def test_sums_are_exact_before_they_are_rounded() -> None:
    """1e16 + 1 + 1: a running float64 sum loses both ones."""
    cost = np.array([1e16, 1.0, 1.0])[:, None, None]
    assert Choices(np.zeros((3, 1)), cost).spend_of(np.zeros(3, np.intp)).tolist() == [1e16 + 2]


def test_cells_that_are_not_allowed_are_not_read() -> None:
    choices = Choices(np.array([[1.0, np.nan]]), np.array([[[2.0], [np.nan]]]), np.array([[True, False]]))
    value, cost = choices.read(slice(0, 1))
    assert value.tolist() == [[1.0, -np.inf]]
    assert cost[0, :, 0].tolist() == [2.0, 0.0]
    assert choices.best_at(np.array([1e9])).tolist() == [0]


def test_the_net_value_is_less_each_cost_at_its_price() -> None:
    assert net_values(np.array([[5.0]]), np.array([[[1.0, 2.0]]]), np.array([1.0, 0.5])).tolist() == [[3.0]]


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 4), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_least_bound_is_the_value_of_the_linear_program(
    users: int, arms: int, limits: int, whole: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    choices = problem(rng, users, arms, limits, whole=whole)
    totals = rng.uniform(0, 1.2, size=limits) * users
    program, found = linear_program(choices, totals), limit_prices(choices, totals)
    assert program is not None
    assert found.feasible
    assert found.bound == pytest.approx(program.value, rel=1e-7, abs=1e-7)
    assert found.bound >= program.value - 1e-9 * users
    assert found.prices.min() >= 0
    by_hand = found.prices @ totals + (choices.value - choices.cost @ found.prices).max(axis=1).sum()
    assert found.bound == pytest.approx(by_hand, rel=1e-12, abs=1e-12)


@given(st.integers(1, 30), st.integers(1, 5), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_prices_prove_that_totals_cannot_be_kept_together(users: int, arms: int, limits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    choices = Choices(rng.normal(size=(users, arms)), rng.exponential(size=(users, arms, limits)))
    totals = choices.cost.min(axis=1).sum(axis=0) * rng.uniform(1, 2, size=limits)
    found = limit_prices(choices, totals)
    assert found.feasible == (linear_program(choices, totals) is not None)
    if not found.feasible:
        assert (choices.cost @ found.prices).min(axis=1).sum() > found.prices @ totals


def test_a_total_without_end_has_no_price() -> None:
    choices = problem(np.random.default_rng(0), 50, 4, 3)
    free = limit_prices(choices, np.full(3, np.inf))
    assert free.prices.tolist() == [0.0, 0.0, 0.0]
    assert free.bound == pytest.approx(choices.value.max(axis=1).sum())
    one = limit_prices(choices, np.array([np.inf, 10.0, np.inf]))
    alone = limit_prices(Choices(choices.value, choices.cost[:, :, 1:2]), np.array([10.0]))
    assert one.prices[[0, 2]].tolist() == [0.0, 0.0]
    assert one.bound == pytest.approx(alone.bound)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_of_values_and_costs_do_not_matter(unit: float) -> None:
    choices = problem(np.random.default_rng(5), 200, 4, 2)
    totals = np.array([60.0, 80.0])
    plain = limit_prices(choices, totals)
    other = limit_prices(Choices(choices.value / unit, choices.cost * unit), totals * unit)
    assert other.bound * unit == pytest.approx(plain.bound, rel=1e-8)
    np.testing.assert_allclose(other.prices * unit**2, plain.prices, rtol=1e-3)


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 3), st.booleans(), st.integers(0, 2**32 - 1))
def test_repaired_and_filled_arms_keep_the_totals_and_no_user_could_get_more(
    users: int, arms: int, limits: int, whole: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    choices = problem(rng, users, arms, limits, whole=whole)
    totals = rng.uniform(0, 1, size=limits) * users
    prices = rng.exponential(size=limits)
    within = repair(choices, totals, prices, choices.best_at(np.zeros(limits)))
    assert within is not None
    assert (choices.spend_of(within) <= totals).all()
    filled = fill(choices, totals, prices, within)
    spend = choices.spend_of(filled)
    assert (spend <= totals * (1 + 1e-12)).all()
    assert choices.value_of(filled) >= choices.value_of(within)
    for user in range(users):
        for arm in range(arms):
            gain = choices.value[user, arm] - choices.value[user, filled[user]]
            extra = choices.cost[user, arm] - choices.cost[user, filled[user]]
            assert gain <= 0 or (spend + extra > totals * (1 - 1e-12)).any()


@given(st.integers(1, 300), st.integers(2, 5), st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_mixture_of_the_corners_solves_the_linear_program(
    users: int, arms: int, limits: int, kinds: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    choices = problem(rng, kinds, arms, limits).take(rng.integers(kinds, size=users))
    totals = rng.uniform(0, 1, size=limits) * users
    found = limit_prices(choices, totals)
    mixed = [choices.best_at(prices) for prices in found.corners]
    spend = found.shares @ [choices.spend_of(action) for action in mixed]
    assert len(mixed) <= limits + 1
    assert (spend <= totals * (1 + 1e-6)).all()
    value = found.shares @ [choices.value_of(action) for action in mixed]
    assert value == pytest.approx(found.bound, rel=1e-6, abs=1e-6)
    # Whole arms: each of the few kinds of users is divided to a few users.
    apart = np.abs(choices.spend_of(apportion(choices, found.corners, found.shares)) - spend)
    assert (apart <= 3 * kinds * choices.cost.max(axis=(0, 1))).all()


def test_users_alike_are_divided_by_the_shares() -> None:
    """Free and dear arm, prices 0 and 2 of an arm worth 1: the shares of a thousand users, and of each half of them."""
    choices = Choices(np.tile([0.0, 1.0], (1_000, 1)), np.tile([0.0, 1.0], (1_000, 1))[:, :, None])
    action = apportion(choices, np.array([[0.0], [2.0]]), np.array([0.3, 0.7]))
    assert action.sum() == pytest.approx(300, abs=2)
    assert action[:500].sum() == pytest.approx(150, abs=2)


def test_repair_says_so_where_no_single_move_helps() -> None:
    """Two users, arms (2, 0) and (0, 2), totals (1, 3): each alone would have to be in half of both."""
    choices = Choices(np.zeros((2, 2)), np.tile([[2.0, 0.0], [0.0, 2.0]], (2, 1, 1)))
    assert repair(choices, np.array([1.0, 3.0]), np.zeros(2), np.zeros(2, np.intp)) is None


def test_filling_goes_on_where_a_move_gives_something_back() -> None:
    """User 0 gives up 2 of the second total for 1 of the first; only then is there room for user 1."""
    value = np.array([[0.0, 1.0], [0.0, 1.0]])
    cost = np.array([[[0.0, 2.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 2.0]]])
    filled = fill(Choices(value, cost), np.array([1.0, 2.0]), np.array([0.0, 0.0]), np.zeros(2, np.intp))
    assert filled.tolist() == [1, 1]


def test_a_basic_solution_splits_at_most_as_many_users_as_there_are_totals() -> None:
    choices = problem(np.random.default_rng(1), 300, 4, 2)
    program = linear_program(choices, np.array([80.0, 90.0]))
    assert program is not None
    assert ((program.shares > 1e-9).sum(axis=1) > 1).sum() <= 2
    np.testing.assert_allclose(program.shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(program.prices, limit_prices(choices, np.array([80.0, 90.0])).prices, rtol=1e-6)
