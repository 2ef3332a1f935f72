"""How days differ, and what that adds to errors: nothing where they do not, enough where they do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import World, transitions
from numpy.typing import NDArray
from scipy import stats

from outlay.core.estimate import Estimate, Target
from outlay.core.transitions import CERTIFY
from outlay.estimators.allowances import allow, allow_bounds
from outlay.estimators.basis import CountedBasis
from outlay.estimators.certificate import Bounds, BudgetBound, Certificate, issue
from outlay.estimators.day_effects import DayEffects, OutcomeByDay, _between, day_effects
from outlay.estimators.fitted import Evaluator
from outlay.estimators.panel import Panel
from outlay.ops.intervals import quantile

Z = 1.959964


def measured(chance: NDArray[np.floating], users: int = 4000, seed: int = 0) -> DayEffects:
    """Measure the day effects of users who act with the probability `[days]` of the day."""
    rng, days = np.random.default_rng(seed), len(chance)
    reward = (rng.random((users, days)) < chance).ravel().astype(float)
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=np.zeros(users * days),
        action=rng.integers(2, size=users * days),
        outcome=np.column_stack([reward, 2 * reward]),
        num_states=1,
        num_actions=2,
    )
    panel = Panel.of(data, CERTIFY)
    return day_effects(panel, panel.day, None, 7)


def interval(seed: int, shock: float, trend: float, users: int, days: int) -> tuple[Estimate, DayEffects]:
    """A log whose users act half of the time, on days that differ: its 7-day total, and how days differ."""
    rng = np.random.default_rng([seed, users, days])
    chance = 0.5 * (1 + shock * rng.standard_normal(days) + trend * np.arange(days))
    reward = (rng.random((users, days)) < chance).ravel().astype(float)
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=np.zeros(users * days),
        action=rng.integers(2, size=users * days),
        outcome=np.column_stack([reward, 2 * reward]),
        num_states=1,
        num_actions=2,
    )
    panel = Panel.of(data, CERTIFY)
    fitted = Evaluator(panel, CountedBasis(np.asarray(panel.state), 1, 2)).fit(days=[7])
    plain = next(e for e in fitted.estimates("old", "fqe", confidence=0.95) if e.target == "reward@7")
    return plain, day_effects(panel, panel.day, None, None)


def coverage(shock: float, trend: float, users: int, days: int, logs: int) -> tuple[float, float, float]:
    """How often intervals hold, without and with what days add, and the median ratio of their widths."""
    # The truth is about other days like the log's; with a trend, about those that follow it.
    truth = 3.5 * (1 + trend * (days + 3))
    held = []
    for seed in range(logs):
        plain, found = interval(seed, shock, trend, users, days)
        wide = allow({"days": found}, plain, 0.95)
        (low, high), (least, most) = (np.array([e.low, e.high], float) for e in (plain, wide))
        held.append((low <= truth <= high, least <= truth <= most, (most - least) / (high - low)))
    by_itself, with_days, ratio = np.array(held, float).T
    return float(by_itself.mean()), float(with_days.mean()), float(np.median(ratio))


@pytest.mark.parametrize(
    "shock",
    [
        pytest.param(0.0, marks=pytest.mark.slow),
        pytest.param(0.01, marks=pytest.mark.slow),
        0.03,
    ],
)
def test_intervals_over_a_week_hold_the_truth_whatever_the_size_of_shocks(shock: float) -> None:
    """Also where shocks are too small to be found by a test; where there are none, half of all intervals stay."""
    logs = 100
    plain, wide, ratio = coverage(shock, 0.0, 2000, 7, logs)
    noise = 2 * np.sqrt(0.05 * 0.95 / logs)
    assert 0.93 - noise <= wide <= 0.98 + noise / 2
    if shock == 0:
        assert ratio == pytest.approx(1.0, abs=0.02)
    if shock >= 0.03:
        assert plain < 0.8


@pytest.mark.slow
def test_intervals_hold_what_the_days_after_the_log_bring_where_a_trend_is_found() -> None:
    """0.7% a day over two weeks: 10% in all. The error of the slope belongs to the interval."""
    plain, wide, _ = coverage(0.0, 0.007, 4000, 14, 25)
    assert plain == 0
    assert wide >= 0.93


@pytest.mark.slow
def test_a_trend_of_less_than_one_percent_a_day_is_found_in_a_week() -> None:
    """Means of days err by 0.7%, so it is 5 errors of the slope; Student's t of five degrees hardly ever found it."""
    found = [interval(seed, 0.0, 0.007, 20_000, 7)[1].outcomes[0] for seed in range(8)]
    assert np.mean([each.trend > 0 for each in found]) > 0.9
    errors = np.array([each.trend_error for each in found if each.trend])
    assert np.median(errors) == pytest.approx(1 / np.sqrt(20_000 * 28), rel=0.35)
    nothing = [interval(seed, 0.0, 0.0, 500, 7)[1].outcomes[0] for seed in range(60)]
    assert np.mean([each.trend != 0 for each in nothing]) < 0.1


@pytest.mark.parametrize("seed", range(5))
def test_days_that_do_not_differ_are_not_said_to(seed: int) -> None:
    panel = Panel.of(World.drawn(seed).log(2000, 8, np.random.default_rng(seed)), CERTIFY)
    found = day_effects(panel, panel.day, None, 7)
    assert not any(each.beyond_chance for each in found.outcomes)
    assert found.error(Target("reward", 7), 3.0) < 0.02 * 3.0
    if not found.differ:
        assert "no more than chance" in found.words


def test_the_size_of_shocks_is_found() -> None:
    shocks = np.random.default_rng(3).normal(0, 0.05, 40)
    found = measured(0.5 + shocks)
    assert found.outcomes[0].shock == pytest.approx(shocks.std() / 0.5, rel=0.15)
    assert found.outcomes[0].shock == pytest.approx(
        found.outcomes[1].shock, rel=1e-9
    )  # relative: costs are twice as large
    assert found.outcomes[0].trend == 0


def test_a_trend_is_found_and_is_no_shock() -> None:
    found = measured(0.5 + 0.01 * (np.arange(14) - 6.5), users=20_000)
    assert found.outcomes[0].trend == pytest.approx(0.02, rel=0.1)
    assert found.outcomes[0].shock < 0.01
    assert "rises by" in found.words
    assert found.drift(Target("reward", 7), 3.5) == pytest.approx(3.5 * 0.02 * 14, rel=0.15)
    assert measured(0.5 - 0.01 * (np.arange(14) - 6.5)).drift(Target("reward", 7), 3.5) < -0.5
    assert replace(found, ahead_days=28).drift(Target("reward"), 0.5) == pytest.approx(0.5 * 0.02 * 28, rel=0.15)


def test_days_on_which_an_outcome_is_known_exactly_are_days_as_well() -> None:
    """Vouchers are given on two days of seven: on the others they cost 0 in every row."""
    rng, at = np.random.default_rng(3), np.repeat(np.arange(14), 200)
    residual = np.where(np.isin(at % 7, (5, 6)), rng.normal(size=len(at)), 0.0)
    shock, trend, error, _ = _between(residual, at, np.arange(14))
    assert np.isfinite([shock, trend, error]).all()
    assert (trend, error) == (0.0, 0.0)
    assert shock < 0.1
    assert _between(np.zeros(len(at)), at, np.arange(14)) == (0.0, 0.0, 0.0, False)


def test_few_days_are_not_tested() -> None:
    found = measured(np.array([0.2, 0.5, 0.9]))
    assert not found.differ
    assert "not tested" in found.words


def effects(
    shock: float = 0.1, trend: float = 0.0, response: tuple[float, ...] = (1.0,), days: int = 10**9
) -> DayEffects:
    outcomes = tuple(OutcomeByDay(name, shock, trend, response) for name in ("reward", "cost"))
    return DayEffects(outcomes, days, (1.0,), 7, "days differ")


def test_the_error_of_a_total_is_that_of_the_mean_of_its_shocks() -> None:
    """Independent shocks of 10% each: 10%/√k of the total. A shock that stays for ever weighs k, k − 1, …, 1."""
    assert effects().error(Target("reward", 4), 2.0) == pytest.approx(2.0 * 0.1 / 2)
    assert effects().error(Target("reward"), 2.0) == pytest.approx(2.0 * 0.1 / np.sqrt(7))
    lasting = effects(response=(1.0, 1.0, 1.0)).error(Target("reward", 3), 1.0)
    assert lasting == pytest.approx(0.1 * np.sqrt(9 + 4 + 1) / 3)
    assert effects(days=7).error(Target("reward", 4), 2.0) > 1.2 * effects().error(Target("reward", 4), 2.0)
    assert effects().error(Target("decisions"), 1.0) == 0


@pytest.mark.parametrize("level", [0.9, 0.975, 0.9917, 0.9995])
def test_few_days_have_students_quantile_at_the_probability_of_the_bound(level: float) -> None:
    """With the factor of a 97.5% bound, the tenth look's bound, at 99.95%, missed seven times as often as it may."""
    found = effects(days=7)
    reach = quantile(level) * found.error(Target("reward", 1), 1.0, level=level)
    assert reach == pytest.approx(0.1 * stats.t.ppf(level, 6))
    low, high = found.ends(Target("reward", 1), (1.0, 1.0, 1.0), 2 * level - 1)
    assert (low, high) == pytest.approx((1 - reach, 1 + reach))
    line = BudgetBound(budget="cost", value=1.0, bound=1.0, limit=9.0, floor=False, kept=True)
    bounds = Bounds((line,), 1.0, 1.0, 1.0, level, 1, None)
    wide = allow_bounds({"days": replace(found, window=1)}, bounds)
    assert wide.gain_bound == pytest.approx(1 - reach)
    assert wide.lines[0].bound == pytest.approx(1 + reach)


def test_users_who_begin_on_different_days_share_fewer_shocks() -> None:
    apart = DayEffects(effects().outcomes, 10**9, (0.5, 0.5), 7, "")
    assert apart.error(Target("reward", 1), 1.0) == pytest.approx(0.1 / np.sqrt(2))


def test_intervals_widen_in_quadrature_and_along_the_trend() -> None:
    plain = Estimate(
        policy="p",
        estimator="fqe",
        target="reward@1",
        value=1.0,
        low=1 - Z * 0.1,
        high=1 + Z * 0.1,
        std_error=0.1,
        recommended=True,
    )
    wide = allow({"days": effects()}, plain, 0.95)
    assert wide.std_error == pytest.approx(np.sqrt(2) * 0.1)
    assert (wide.low, wide.high) == pytest.approx((1 - Z * np.sqrt(2) * 0.1, 1 + Z * np.sqrt(2) * 0.1), abs=1e-5)
    falling = allow({"days": effects(shock=0.0, trend=-0.01, days=10)}, plain, 0.95)
    assert (falling.low, falling.high) == pytest.approx((1 - Z * 0.1 - 0.1, 1 + Z * 0.1))
    assert allow({"days": effects(shock=0.0)}, plain, 0.95) == plain
    sloping = DayEffects((OutcomeByDay("reward", 0.0, -0.01, (1.0,), 0.004),), 10, (1.0,), 7, "")
    slope = allow({"days": sloping}, plain, 0.95)
    reach = Z * np.hypot(0.1, 0.04)  # ten days ahead
    assert (slope.low, slope.high) == pytest.approx((1 - reach - 0.1, 1 + reach), abs=1e-5)


def certificate(days: DayEffects, bound: float = 1.05) -> Certificate:
    line = BudgetBound(budget="cost", value=1.0, bound=bound, limit=1.1, floor=False, kept=True)
    return issue(allow_bounds({"days": days}, Bounds((line,), 0.2, 0.1, 0.3, 0.975, 7, None)), [], users=1000)


def test_a_certificate_that_days_could_break_is_none() -> None:
    narrow = certificate(effects(shock=0.01))
    assert narrow.certified
    assert narrow.budgets[0].bound == pytest.approx(1 + np.hypot(0.05, Z * 0.01 / np.sqrt(7)), abs=1e-5)
    assert narrow.gain_bound is not None
    assert narrow.gain_bound < 0.1
    wide = certificate(effects(shock=0.2))
    assert not wide.certified
    assert "as days differ" in wide.words
    rising = certificate(effects(shock=0.0, trend=0.01, days=14))
    assert not rising.certified
    falling = certificate(effects(shock=0.0, trend=-0.01, days=14))
    assert falling.certified
    assert falling.gain_bound == pytest.approx(0.1 - 2 * 0.14 * 0.2)
