import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from budget_control import control_spend
from knapsack_highs import linear_program
from outlay.ops.knapsack import Choices, Floats
from outlay.ops.knapsack_prices import budget_path, price_search


def problem(
    rng: np.random.Generator, users: int, arms: int, *, whole: bool = False, some_barred: bool = False
) -> Choices:
    """A random problem of one cost; with whole numbers it is full of ties."""
    value, cost = rng.normal(size=(users, arms)), rng.exponential(size=(users, arms, 1))
    if whole:
        value, cost = np.round(value), np.floor(cost)
    allowed = rng.random((users, arms)) < 0.7 if some_barred else None
    if allowed is not None:
        allowed[np.arange(users), rng.integers(arms, size=users)] = True
    return Choices(value, cost, allowed)


def totals_of(choices: Choices) -> Floats:
    """Seven totals from the cheapest allocation to beyond what anybody could spend."""
    _, cost = choices.read(slice(0, choices.num_users))
    allowed = np.ones(choices.value.shape, np.bool_) if choices.allowed is None else choices.allowed
    least = np.where(allowed, cost[:, :, 0], np.inf).min(axis=1).sum()
    most = cost[:, :, 0].max(axis=1).sum()
    totals: Floats = least + (most - least) * np.array([1e-9, 0.1, 0.3, 0.5, 0.8, 1.0, 1.2])
    return totals


def test_a_path_worked_by_hand() -> None:
    """User 0: (0,0) → (1,3) → (3,5), prices 3 and 1. User 1: (1,1) → (3,5), price 2; (2,2) lies below.

    In order: 1 spent for 1; +1 for 3 at 3; +2 for 4 at 2; +2 for 2 at 1.
    """
    value = np.array([[0.0, 3.0, 5.0], [5.0, 1.0, 2.0]])
    cost = np.array([[0.0, 1.0, 3.0], [3.0, 1.0, 2.0]])
    path = budget_path(Choices(value, cost[:, :, None]))
    assert path.start.tolist() == [0, 1]
    assert path.user.tolist() == [0, 1, 0]
    assert path.action.tolist() == [1, 0, 2]
    assert path.price.tolist() == [3.0, 2.0, 1.0]
    assert path.spend.tolist() == [1.0, 2.0, 4.0, 6.0]
    assert path.value.tolist() == [1.0, 4.0, 8.0, 10.0]
    assert path.value_at(3.0) == 6.0
    assert path.actions_at(3.99).tolist() == [1, 1]
    assert path.actions_at(4.0).tolist() == [1, 0]
    assert path.price_at(4.5) == 1.0
    assert path.price_at(6.0) == 0.0
    assert path.value_at(1e9) == 10.0


@pytest.mark.slow
@given(st.integers(1, 12), st.integers(1, 6), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_path_is_the_linear_program_at_every_total(
    users: int, arms: int, whole: bool, some_barred: bool, seed: int
) -> None:
    choices = problem(np.random.default_rng(seed), users, arms, whole=whole, some_barred=some_barred)
    path = budget_path(choices)
    for total in totals_of(choices):
        program = linear_program(choices, np.array([total]))
        assert program is not None
        assert path.value_at(total) == pytest.approx(program.value, rel=1e-9, abs=1e-9 * users)
        action = path.actions_at(total)
        assert choices.spend_of(action)[0] <= total * (1 + 1e-12) + 1e-15
        step = path.steps_within(total)
        assert choices.value_of(action) == pytest.approx(path.value[step], abs=1e-12 * users)


@given(st.integers(200, 400), st.integers(1, 6), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_price_search_finds_the_path_at_its_total(users: int, arms: int, whole: bool, seed: int) -> None:
    choices = problem(np.random.default_rng(seed), users, arms, whole=whole, some_barred=True)
    path = budget_path(choices)
    for total in [*totals_of(choices), np.inf]:
        part = price_search(choices, total, sample=20)
        assert part.value_at(total) == pytest.approx(path.value_at(total), rel=1e-12, abs=1e-12 * users)
        assert part.price_at(total) == pytest.approx(path.price_at(total), rel=1e-12)
        assert choices.spend_of(part.actions_at(total))[0] <= total * (1 + 1e-12) + 1e-15


def test_a_price_search_makes_a_small_part_of_the_path() -> None:
    choices = problem(np.random.default_rng(0), 50_000, 5)
    part, path = price_search(choices, 40_000.0, sample=5_000), budget_path(choices)
    assert len(part.price) < 0.2 * len(path.price)
    np.testing.assert_array_equal(part.actions_at(40_000.0), path.actions_at(40_000.0))


def test_a_price_that_everybody_shares_is_found() -> None:
    """All users alike: one price for half a million yuan, and as many steps as the total pays for."""
    choices = Choices(np.tile([0.0, 1.0], (5_000, 1)), np.tile([1.0, 3.0], (5_000, 1))[:, :, None])
    path = price_search(choices, 8_001.0, sample=100)
    assert path.price_at(8_001.0) == 0.5
    assert path.actions_at(8_001.0).sum() == 1_500
    assert path.value_at(8_001.0) == pytest.approx(1_500.5)


@given(st.integers(0, 2**32 - 1))
def test_blocks_and_threads_do_not_change_the_path(seed: int) -> None:
    """Longhand: a user's steps alone, of as many users as fill several blocks."""
    choices = problem(np.random.default_rng(seed), 60, 4, some_barred=True)
    long = choices.take(np.tile(np.arange(60), 700))
    path, short = budget_path(long), budget_path(choices)
    np.testing.assert_array_equal(path.price[::700], short.price)
    np.testing.assert_array_equal(np.bincount(path.user, minlength=42_000)[:60], np.bincount(short.user, minlength=60))
    assert path.spend[-1] == pytest.approx(700 * short.spend[-1])
    np.testing.assert_array_equal(path.actions_at(np.inf)[-60:], short.actions_at(np.inf))


def test_arms_that_cost_the_same_and_copies_of_an_arm_are_taken_once() -> None:
    """Free arms of 1 and 2 and 2: the first 2 is where it starts. The dearer ones: 5, and 4 never."""
    path = budget_path(
        Choices(np.array([[1.0, 2.0, 2.0, 4.0, 5.0, 5.0]]), np.array([[0, 0, 0, 1, 1, 1.0]])[:, :, None])
    )
    assert path.start.tolist() == [1]
    assert path.action.tolist() == [4]


def test_an_arm_that_costs_more_and_brings_no_more_is_never_taken() -> None:
    path = budget_path(Choices(np.array([[3.0, 3.0, 1.0]]), np.array([[0.0, 1.0, 2.0]])[:, :, None]))
    assert len(path.price) == 0
    assert path.actions_at(np.inf).tolist() == [0]


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_do_not_matter(unit: float) -> None:
    choices = problem(np.random.default_rng(3), 100, 4)
    plain = budget_path(choices)
    other = budget_path(Choices(choices.value / unit, choices.cost * unit))
    np.testing.assert_array_equal(other.user, plain.user)
    np.testing.assert_allclose(other.spend, plain.spend * unit, rtol=1e-12)
    np.testing.assert_allclose(other.price, plain.price / unit**2, rtol=1e-9)


def test_arms_on_a_line_are_taken_in_order_although_their_slopes_are_rounded() -> None:
    cost = np.cumsum(np.random.default_rng(1).random((5_000, 6)), axis=1)
    path = budget_path(Choices(0.37 * cost, cost[:, :, None]))
    order = np.lexsort((np.arange(len(path.user)), path.user))
    user = path.user[order]
    along = cost[user, path.action[order]]
    assert (np.diff(along)[user[1:] == user[:-1]] > 0).all()
    assert (np.diff(path.price) <= 0).all()
    np.testing.assert_array_equal(path.actions_at(np.inf), np.full(5_000, 5))


def stream(rng: np.random.Generator, users: int) -> tuple[Choices, NDArray[np.float64]]:
    cost = np.tile([0.0, 1.0, 2.0], (users, 1))
    value = np.column_stack([np.zeros(users), rng.random(users), 1.6 * rng.random(users)])
    return Choices(value, cost[:, :, None]), cost


@pytest.mark.parametrize(("start", "step"), [(0.4, None), (1.2, None), (0.0, 2e-3), (3.0, 1e-2)])
def test_control_ends_near_the_target_and_near_the_best_that_looks_ahead(start: float, step: float | None) -> None:
    """The right price is about 0.7."""
    choices, cost = stream(np.random.default_rng(0), 20_000)
    done = control_spend(choices, 10_000.0, start, step=step, every=20)
    spent = cost[np.arange(20_000), done.action].sum()
    assert spent == done.spend[-1]
    assert 9_500 <= spent <= 10_000
    assert choices.value_of(done.action) >= 0.95 * budget_path(choices).value_at(10_000.0)


def test_control_raises_the_price_above_the_target_and_lowers_it_below() -> None:
    """Two users a look, ρ = 1, step 0.1: they take 4, so the price rises by (4 − 2) · 0.1; then it falls."""
    value = np.array([[0.0, 9.0], [0.0, 9.0], [0.0, 0.1], [0.0, 0.1], [0.0, 0.1], [0.0, 0.1]])
    cost = np.tile([0.0, 2.0], (6, 1))[:, :, None]
    done = control_spend(Choices(value, cost), 6.0, 0.5, step=0.1, every=2)
    assert done.action.tolist() == [1, 1, 0, 0, 0, 0]
    np.testing.assert_allclose(done.price, [0.5, 0.7, 0.5])


@given(st.integers(1, 60), st.floats(0, 2), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_control_never_exceeds_the_total_and_keeps_the_reserve(users: int, ease: float, every: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.integers(1, 9, size=(users, 3)).astype(np.float64)
    cost[:, 0] = 1.0
    total = users * (1 + ease)
    done = control_spend(
        Choices(rng.normal(size=(users, 3)), cost[:, :, None]), total, 0.1, step=0.01, reserve=1.0, every=every
    )
    running = np.cumsum(cost[np.arange(users), done.action])
    assert (running <= total - np.arange(users - 1, -1, -1)).all()


def test_control_says_what_it_lacks() -> None:
    choices, _ = stream(np.random.default_rng(0), 10)
    dear = Choices(choices.value, choices.cost + 1.0)
    with pytest.raises(ValueError, match="reserve"):
        control_spend(dear, 10.0, 0.0, step=0.1, reserve=2.0)
    with pytest.raises(ValueError, match=r"no action .*\b0\.5 or less"):
        control_spend(dear, 6.0, 0.0, step=0.1, reserve=0.5)
    with pytest.raises(ValueError, match="nothing would adjust"):
        control_spend(choices, 10.0, 0.0)
