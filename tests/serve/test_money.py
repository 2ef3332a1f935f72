from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.serve.ledger.money import LARGEST, Money, MoneyError

YUAN = Money("yuan", 100)


def test_a_float_is_the_decimal_that_it_shows() -> None:
    """1.1 · 100 is 110.00000000000001 in floats; rounded up that would set aside a fen too much."""
    assert 1.1 * 100 > 110
    assert YUAN.reserve(1.1) == YUAN.exact(1.1) == 110


def test_what_is_set_aside_is_rounded_up() -> None:
    assert YUAN.reserve(0.001) == 1
    assert YUAN.reserve(1.5) == 150
    assert YUAN.reserve(1.5000001) == 151
    assert YUAN.reserve(5e-324) == 1
    assert YUAN.reserve(0) == 0


def test_what_is_spent_must_be_whole() -> None:
    assert YUAN.exact(12.34) == 1234
    with pytest.raises(MoneyError, match=r"1\.005 yuan .*minor units \(100 in one yuan\)"):
        YUAN.exact(1.005)


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -0.01, 1e300, LARGEST / 100 + 1])
def test_what_is_no_money_is_refused(amount: float) -> None:
    with pytest.raises(MoneyError):
        YUAN.reserve(amount)
    with pytest.raises(MoneyError):
        YUAN.exact(amount)


def test_a_currency_needs_minor_units() -> None:
    assert Money("yen", 1).exact(7) == 7
    with pytest.raises(MoneyError, match="0 minor units"):
        Money("nothing", 0)


@given(st.integers(0, 10**12), st.sampled_from([1, 100, 1000]))
def test_units_and_back_is_the_same_money(minor: int, scale: int) -> None:
    money = Money("unit", scale)
    assert money.exact(money.units(minor)) == minor


@given(st.floats(0, 1e9))
def test_the_reserve_covers_the_amount_by_less_than_a_minor_unit(amount: float) -> None:
    assert -1e-6 <= YUAN.reserve(amount) - amount * 100 < 1 + 1e-6
