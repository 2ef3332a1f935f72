"""How much money a day may cost, so that it is spent when the plan is over although reservations hold more."""

from __future__ import annotations

import datetime
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.serve.config import Plan
from outlay.serve.pacing.budgets import AHEAD, MORE, Schedule, money_by_day

START = datetime.date(2026, 3, 2)


def test_shares_are_of_days_and_end_with_the_plan() -> None:
    schedule = Schedule(Plan(start=START, days=4, shares=(1, 1, 4, 2)))
    first = schedule.plan.first
    assert schedule.shares == {first: 0.5, first + 1: 0.5, first + 2: 2.0, first + 3: 1.0}
    assert schedule.rest(first + 2, 0.25) == [1.5, 1.0]
    assert schedule.rest(first - 1, 0) == schedule.rest(first + 4, 0) == []


def test_where_everything_is_redeemed_money_goes_by_the_shares() -> None:
    days = money_by_day(80, [1, 2, 1], budget=1_000, redeemed=1.0, expiry_days=1.0)
    assert days == pytest.approx([20, 40, 20])


def test_what_the_last_day_cannot_spend_goes_to_the_days_before() -> None:
    """Half is redeemed: for each unit that a day spends one more is held, and some more to be safe."""
    days = money_by_day(100, [1, 1, 1, 1], budget=100, redeemed=0.5, expiry_days=1.0)
    assert days[0] == pytest.approx(100 / (1 + MORE))  # more than its share of 25
    assert days[1] == pytest.approx((100 - days[0]) / (1 + MORE))
    assert days[3] == pytest.approx((100 - sum(days[:3])) / (1 + MORE))
    few = money_by_day(100, [1] * 28, budget=100, redeemed=0.7, expiry_days=1.0)
    assert few[0] == pytest.approx(100 / 28, rel=0.01)
    assert sum(few) == pytest.approx(99, abs=0.01)


def test_short_reservations_hold_little() -> None:
    days = money_by_day(100, [1, 1], budget=1_000, redeemed=0.5, expiry_days=1 / 24)
    assert days == pytest.approx([50, 50 / (1 + MORE / 24)])


def test_what_earlier_days_still_hold_takes_room_until_it_expires() -> None:
    held = money_by_day(10, [1, 1], budget=100, redeemed=0.9, expiry_days=2.0, held=[7.0, 5.0])
    assert held[0] == pytest.approx((10 - 7 * MORE) / (1 + MORE / 9))
    assert held == money_by_day(10, [1, 1], budget=100, redeemed=0.9, expiry_days=2.0, held=[7.0])


def test_a_day_cap_bounds_what_may_be_reserved() -> None:
    assert money_by_day(100, [1, 1], budget=100, redeemed=0.8, expiry_days=0.1, day_cap=20) == pytest.approx([16, 16])


def test_nothing_left_is_nothing_to_spend() -> None:
    assert money_by_day(-5, [1, 1], budget=100, redeemed=0.8, expiry_days=1) == [0, 0]


@given(
    st.lists(st.floats(0, 3), min_size=1, max_size=30).filter(lambda shares: sum(shares) > 0.1),
    st.floats(0.05, 1),
    st.floats(0.05, 5),
)
def test_the_total_cap_is_never_needed(shares: list[float], redeemed: float, expiry_days: float) -> None:
    """What is spent and what is held fit into the money at the end of each day."""
    days = money_by_day(100, shares, budget=100, redeemed=redeemed, expiry_days=expiry_days)
    holds = [day * (1 - redeemed) / redeemed for day in days]
    for j, spent in enumerate(accumulate(days)):
        held = sum(hold * min(max(expiry_days - (j - i), 0), 1) for i, hold in enumerate(holds[: j + 1]))
        assert spent + held <= 100 * (1 + 1e-9)
    assert all(day <= AHEAD * 100 * share / sum(shares) + 1e-9 for day, share in zip(days, shares, strict=True))
