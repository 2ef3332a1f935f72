"""Rounding and findings."""

from __future__ import annotations

import dataclasses

import pytest
from report_examples import evaluated, example, run

from outlay.core.campaign import BudgetLimit
from outlay.core.wording import advised, exact
from outlay.pages import report_words, words
from outlay.pages.words import Interval


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
    ],
)
def test_a_number_shows_three_significant_digits(value: float | None, text: str) -> None:
    assert words.number(value) == text


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
    assert words.number(-0.0001, 2) == "0.00"


@pytest.mark.parametrize(("half", "digits"), [(0.021, 3), (0.041, 2), (0.006, 3), (1.4, 1), (40.0, 0)])
def test_a_column_has_the_digits_that_its_narrowest_interval_calls_for(half: float, digits: int) -> None:
    wide = Interval(1.0, 1.0 - 10 * half, 1.0 + 10 * half)
    assert words.decimals([Interval(1.0, 1.0 - half, 1.0 + half), wide, None]) == digits


def test_a_limit_reads_as_it_was_written() -> None:
    assert words.limit(BudgetLimit(name="c", limit=1.2, unit="yuan")) == "at most 1.2 yuan per decision"
    assert words.limit(BudgetLimit(name="r", limit=14, sign=-1, per="user")) == "at least 14 per user"


def test_a_point_keeps_a_ceiling_from_below_and_a_floor_from_above() -> None:
    budgets = (BudgetLimit(name="c", limit=2.0), BudgetLimit(name="r", limit=0.5, sign=-1))
    assert words.keeps_limits((1.0, 2.0, 0.5), budgets)
    assert not words.keeps_limits((1.0, 2.01, 0.6), budgets)
    assert not words.keeps_limits((1.0, 1.9, 0.49), budgets)


def test_findings_carry_the_figures() -> None:
    content = example()
    assert report_words.policies_finding(content) == (
        "5.09 active in 7 days against 4.89, for 2.000 against 1.800 yuan per decision"
    )
    assert report_words.stored_finding(content) == (
        "88,257 parameters kept at the end; the original method would keep 4.41 million, 50 times as many"
    )
    assert (
        report_words.shares_finding(content)
        == "Mean coupon (yuan): active from 3.50 to 2.18, inactive from 3.50 to 4.49"
    )


def test_a_finding_without_an_old_policy_claims_nothing() -> None:
    alone = evaluated(example(), policies={"mixture": "as served"})
    assert report_words.policies_finding(alone) == "Policies side by side"


def test_the_target_of_an_estimate_is_said_with_its_unit() -> None:
    content = example(2)
    assert report_words.target(content, "reward@7") == "active, total of 7 days"
    assert report_words.target(content, "reward@1") == "active, total of 1 day"
    assert report_words.target(content, "coupon_cost") == "coupon_cost, yuan per decision"
    assert report_words.target(content, "reward") == "active per decision, discounted mean"


def test_where_one_network_answers_every_price_there_are_no_steps_and_no_rule() -> None:
    one = dataclasses.replace(example(), run=run(method="frontier"))
    assert report_words.candidates(one).endswith("one for each λ; the best mixture of them is served")


def test_a_confidence_below_one_never_reads_as_certainty() -> None:
    """Look 32 at the certify users is at 99.9953%, which four digits make 100%."""
    assert [exact(1 - 0.05 / (k * (k + 1))) for k in (1, 2, 32)] == ["97.5%", "99.17%", "99.995%"]
    assert (exact(1.0), exact(0.0)) == ("100%", "0%")
