"""Rounding and findings."""

from __future__ import annotations

import dataclasses

import pytest
from report_examples import example, run

from outlay.core.campaign import BudgetLimit
from outlay.core.wording import (
    Interval,
    advised,
    change,
    decimals,
    ends,
    exact,
    money,
    number,
    percent,
    signed,
    spread,
)
from outlay.pages import results
from outlay.pages.tables import limit
from telling import missing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.6172, "4.62"),
        (0.04123, "0.0412"),
        (1_400_000, "1,400,000"),
        (-0.5, "−0.500"),
        (0.0, "0"),
        (None, "–"),
        (float("nan"), "–"),
        (1234.5, "1,234"),
        (1e-9, "1e−09"),
        (2e16, "2e+16"),
    ],
)
def test_a_number_shows_three_significant_digits(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "sign", "text"),
    [
        (0.559826, 1, "0.5599"),
        (0.559826, -1, "0.5598"),
        (0.5, 1, "0.5001"),
        (0.5, -1, "0.4999"),
        (0.0, 1, "0"),
        (1234567.0, 1, "1.235e+06"),
    ],
)
def test_an_advised_limit_is_enough(value: float, sign: int, text: str) -> None:
    """It lies beyond the value, never short of it."""
    assert advised(value, sign) == text
    assert sign * float(text) >= sign * value


def test_a_rounded_zero_has_no_sign() -> None:
    assert number(-0.0001, 2) == "0.00"
    assert [signed(x, 2) for x in (0.5, -0.5, 0.001, -0.001)] == ["+0.50", "−0.50", "0.00", "0.00"]


def test_shares_and_changes() -> None:
    assert [percent(x) for x in (0.3712, 0.095, 0.0012, 0.0, 1.0)] == ["37%", "10%", "0.1%", "0%", "100%"]
    assert [percent(x, 2) for x in (0.3712, 0.0, None)] == ["37.12%", "0.00%", "–"]
    assert [change(x) for x in (0.032, -0.032, 0.00024, 0.0)] == ["+3.2%", "−3.2%", "+0.02%", "0%"]
    assert [change(x, 0) for x in (0.278, -0.123, 0.001)] == ["+28%", "−12%", "0%"]
    assert [exact(x, 3) for x in (0.0, 1.0, 0.153, 0.00011)] == ["0%", "100%", "15.3%", "0.011%"]


def test_an_interval_is_told_whole_or_by_its_half_where_that_tells_it() -> None:
    assert (ends(0.469, 0.477, 3), ends(None, 1.0)) == ("0.469 to 0.477", "")
    assert (spread(0.5, 0.4, 0.6, 2), spread(0.5, None, 1.0)) == ("±0.10", "")
    assert spread(0.55, 0.33, 0.62, 2) == "(0.33 to 0.62)"


def test_amounts_and_a_budget_that_is_enough() -> None:
    assert [money(x) for x in (99.5, 12_361.0, None)] == ["99.50", "12,361", "–"]
    assert [advised(x, digits=6, beyond=False) for x in (0.0123456789, 0.65, 0.0)] == ["0.0123457", "0.65", "0"]


@pytest.mark.parametrize(("half", "digits"), [(0.021, 3), (0.041, 2), (0.006, 3), (1.4, 1), (40.0, 0)])
def test_a_column_has_the_digits_that_its_narrowest_interval_calls_for(half: float, digits: int) -> None:
    wide = Interval(1.0, 1.0 - 10 * half, 1.0 + 10 * half)
    assert decimals([Interval(1.0, 1.0 - half, 1.0 + half), wide, None]) == digits


def test_a_limit_reads_as_it_was_written() -> None:
    assert limit(BudgetLimit(name="c", limit=1.2, unit="yuan")) == "at most 1.2 yuan per decision"
    assert limit(BudgetLimit(name="r", limit=14, sign=-1, per="user")) == "at least 14 per user"


def test_a_point_keeps_a_ceiling_from_below_and_a_floor_from_above() -> None:
    budgets = (BudgetLimit(name="c", limit=2.0), BudgetLimit(name="r", limit=0.5, sign=-1))
    assert results.keeps_limits((1.0, 2.0, 0.5), budgets)
    assert not results.keeps_limits((1.0, 2.01, 0.6), budgets)
    assert not results.keeps_limits((1.0, 1.9, 0.49), budgets)


def test_findings_carry_the_figures() -> None:
    content = example()
    kept, original = results.stored_finding(content).split("; ")
    assert not missing(kept, "88,257 parameters")
    assert not missing(original, "4.41 million", "50 times")
    assert not missing(results.shares_finding(content), content.action_label, "9.1% to 26%")


def test_the_target_of_an_estimate_is_said_with_its_unit() -> None:
    content = example(2)
    assert content.quantity("reward@7") == "active, total of 7 days"
    assert content.quantity("reward@1") == "active, total of 1 day"
    assert content.quantity("coupon_cost") == "coupon_cost, yuan per decision"
    assert content.quantity("reward") == "active per decision, discounted mean"


def test_where_one_network_answers_every_price_there_are_no_steps_and_no_rule() -> None:
    one = dataclasses.replace(example(), run=run(method="frontier"))
    assert not missing(results.candidates(one), "each λ", "mixture")
    assert not {"steps", "rule"} & set(results.candidates(one).split())


def test_a_confidence_below_one_never_reads_as_certainty() -> None:
    """Look 32 at the certify users is at 99.9953%, which four digits make 100%."""
    assert [exact(1 - 0.05 / (k * (k + 1))) for k in (1, 2, 32)] == ["97.5%", "99.17%", "99.995%"]
    assert (exact(1.0), exact(0.0)) == ("100%", "0%")
