"""Bounds against published tables, and the confidence sequence against its paper's formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

from outlay.experiments.sequential import (
    WIDEST,
    obrien_fleming,
    sequence_half_width,
    spending_bounds,
    tuned_rho,
)


def crossings(information: np.ndarray, limits: np.ndarray, nodes: int = 4001) -> np.ndarray:
    """Probability that |Z| first crosses at each look, by the trapezoid rule on a grid of the score: slow and plain."""
    found, inside, before = [], np.array([[0.0], [1.0]]), 0.0  # scores still going, and their mass
    for now, limit in zip(np.asarray(information, float), limits, strict=True):
        edge, step = limit * math.sqrt(now), math.sqrt(now - before)
        score = np.linspace(-edge, edge, nodes)
        density = norm.pdf((score[:, None] - inside[0]) / step) @ inside[1] / step
        beyond = norm.sf((edge - inside[0]) / step) + norm.sf((edge + inside[0]) / step)
        found.append(float(inside[1] @ beyond))
        weights = np.full(nodes, 2 * edge / (nodes - 1))
        weights[[0, -1]] /= 2
        inside, before = np.array([score, density * weights]), now
    return np.array(found)


def bounds(fractions: list[float], alpha: float) -> list[float]:
    return [float(b) for b in spending_bounds(fractions, obrien_fleming(fractions, alpha))]


@pytest.mark.parametrize(
    ("fractions", "alpha", "published", "digits"),
    [
        # gsDesign, sfLDOF at one-sided 0.025, equal looks (Lan and DeMets 1983, as tabulated ever since).
        ([1 / 2, 1.0], 0.05, [2.9626, 1.9686], 2e-4),
        ([1 / 3, 2 / 3, 1.0], 0.05, [3.7103, 2.5114, 1.9930], 2e-4),
        ([0.25, 0.5, 0.75, 1.0], 0.05, [4.3326, 2.9631, 2.3590, 2.0141], 2e-4),
        # ld98 and ldbounds, two-sided 0.05, five equal looks (Reboussin, DeMets, Kim and Lan 2000).
        ([0.2, 0.4, 0.6, 0.8, 1.0], 0.05, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310], 2e-4),
        # ldbounds, bounds(c(0.10, 0.33, 1), iuse = c(1, 1), alpha = c(0.025, 0.025)), quoted on R-help, March 2020.
        ([0.10, 0.33, 1.0], 0.05, [6.9913, 3.7308, 1.9605], 2e-4),
        # gsDesign, sfLDOF at one-sided 0.025, timing 0.5, 0.75, 1 (gsdmvn's reference of gs_b).
        ([0.5, 0.75, 1.0], 0.05, [2.962588, 2.359018, 2.014084], 2e-5),
        # SeqBounds.jl's README, one-sided 0.05: crossing both sides has no weight, so two-sided 0.10 agrees.
        ([0.25, 0.5, 0.75, 1.0], 0.10, [3.74955, 2.53993, 2.01604, 1.72014], 1e-4),
    ],
)
def test_spending_bounds_are_the_published_ones(
    fractions: list[float], alpha: float, published: list[float], digits: float
) -> None:
    assert bounds(fractions, alpha) == pytest.approx(published, abs=digits)


@pytest.mark.parametrize(("looks", "constant"), [(2, 1.977), (3, 2.004), (5, 2.040), (10, 2.087), (20, 2.126)])
def test_obrien_and_flemings_own_constants_spend_five_per_cent(looks: int, constant: float) -> None:
    """Jennison and Turnbull 2000, Table 2.3: C_B(K, 0.05), bounds C √(K/k)."""
    k = np.arange(1, looks + 1)
    published = constant * np.sqrt(looks / k)
    spent = crossings(k, published, nodes=801).cumsum()
    assert spent[-1] == pytest.approx(0.05, abs=1.5e-4)
    assert spending_bounds(k, spent) == pytest.approx(np.minimum(published, WIDEST), abs=2e-3)


@pytest.mark.parametrize(("looks", "constant"), [(2, 2.178), (3, 2.289), (5, 2.413), (10, 2.555), (20, 2.672)])
def test_pococks_constants_spend_five_per_cent(looks: int, constant: float) -> None:
    """Jennison and Turnbull 2000, Table 2.1: C_P(K, 0.05), the same bound at every look."""
    k, published = np.arange(1, looks + 1), np.full(looks, constant)
    spent = crossings(k, published, nodes=801).cumsum()
    assert spent[-1] == pytest.approx(0.05, abs=1.5e-4)
    assert spending_bounds(k, spent) == pytest.approx(published, abs=2e-3)


def test_ten_looks_agree_with_integrating_the_joint_normal() -> None:
    times = np.arange(1, 11) / 10
    found = np.array(bounds(times.tolist(), 0.05))
    correlation = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))
    stay = multivariate_normal(cov=correlation, seed=0, maxpts=400_000, abseps=1e-5).cdf(found, lower_limit=-found)
    assert stay == pytest.approx(0.95, abs=2e-4)


@settings(max_examples=15)
@given(
    growth=st.lists(st.floats(1.05, 5.0), min_size=1, max_size=3),
    alpha=st.floats(0.005, 0.2),
)
def test_what_is_spent_is_what_may_be_spent_whatever_the_information(growth: list[float], alpha: float) -> None:
    information = np.cumprod([1.0, *growth])
    spent = obrien_fleming(np.arange(1, len(information) + 1) / len(information), alpha)
    found = spending_bounds(information, spent)
    assert crossings(information, found, nodes=1501).cumsum() == pytest.approx(spent, abs=1e-6)
    assert found[-1] >= spending_bounds([1.0], [alpha])[0] - 1e-9  # what crosses it is part of what may be spent


def test_looks_that_bring_nothing_new_cost_nothing() -> None:
    """Where the second look is the first again, its bound is that of one look."""
    assert bounds([1.0], 0.05) == pytest.approx([1.959964], abs=1e-6)
    found = spending_bounds([1.0, 1.0], obrien_fleming([0.5, 1.0], 0.05))
    assert found[1] == pytest.approx(1.959964, abs=1e-6)


def test_information_that_falls_makes_looks_as_unlike_as_information_that_rises() -> None:
    """Spending that doubles every day: a total's last days outweigh all before, and its looks are hardly correlated."""
    weeks = np.arange(1, 9)
    variance = 4.0 ** (7 * weeks) / 3  # of the total of days whose standard deviation doubles
    information = weeks**2 / variance
    spent = obrien_fleming(weeks / 8, 0.05)
    found = spending_bounds(information, spent)
    assert found == pytest.approx(spending_bounds(1 / information, spent), abs=1e-6)
    assert crossings(variance, found, nodes=401).sum() < 0.0505
    assert crossings(variance, spending_bounds(np.ones(8), spent), nodes=401).sum() > 0.08


def test_an_early_bound_is_cut_off_where_nothing_can_be_spent() -> None:
    assert bounds([0.01, 1.0], 0.05) == pytest.approx([8.0, 1.959964], abs=1e-5)


def test_information_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        spending_bounds([1.0, 0.0], [0.01, 0.05])
    with pytest.raises(ValueError, match="one for each"):
        spending_bounds([1.0], [0.01, 0.05])
    with pytest.raises(ValueError, match="must be positive"):
        spending_bounds([1.0, math.inf], [0.01, 0.05])


def test_the_sequence_is_the_formula_of_its_paper() -> None:
    """Waudby-Smith et al. 2024, Theorem 2.2: σ √(2(tρ²+1)/(t²ρ²) · ln(√(tρ²+1)/α)).

    t = 100, ρ = 0.2, σ = 3, α = 0.05: tρ² + 1 = 5, so 3 √(10/400 · ln(√5/0.05)) = 3 √(0.025 · 3.80045) = 0.92471.
    """
    assert sequence_half_width(3 / math.sqrt(100), 100, 0.2, 0.05) == pytest.approx(0.92471, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_tuned_sequence_is_narrowest_at_the_planned_end(alpha: float) -> None:
    best = tuned_rho(14, alpha)
    widths = [float(sequence_half_width(1.0, 14, best * factor, alpha)) for factor in (0.9, 1.0, 1.1)]
    assert widths[1] < min(widths[0], widths[2])
    assert widths[1] == pytest.approx(math.sqrt(14 * best**2 + 1), rel=1e-9)  # in closed form at the optimum


def test_the_sequence_of_a_random_walk_is_left_no_more_often_than_promised() -> None:
    rng = np.random.default_rng(0)
    days = np.arange(1, 29)
    walk = rng.normal(size=(20_000, 28)).cumsum(axis=1) / days
    half = sequence_half_width(1 / np.sqrt(days), days, tuned_rho(28, 0.05), 0.05)
    left = np.any(np.abs(walk) > half, axis=1).mean()
    assert 0.001 < left < 0.05


def test_up_to_four_weeks_the_sequence_needs_no_assumption_on_days() -> None:
    """Bonferroni over the days: an upper bound, whatever users and ramps make of the correlations of looks."""
    days = np.arange(1, 29)
    errors = sequence_half_width(1.0, days, tuned_rho(28, 0.05), 0.05)
    assert 2 * norm.sf(errors).sum() < 0.05


def test_daily_looks_at_users_who_stay_as_they_are_seldom_say_something_false() -> None:
    """3,000 A/A tests of 200 users and 14 days; 5% plus three standard errors is 6.2%."""
    rng = np.random.default_rng(0)
    days = np.arange(1, 15)
    chance = rng.beta(2, 2, (3000, 200, 1)).astype(np.float32)
    totals = (rng.random((3000, 200, 14), np.float32) < chance).cumsum(axis=2, dtype=np.int16)
    arms = totals[:, :100], totals[:, 100:]
    error = np.sqrt(sum(arm.var(axis=1, ddof=1) / 100 for arm in arms))
    z = (arms[1].mean(axis=1) - arms[0].mean(axis=1)) / error
    planned = spending_bounds((days / error.mean(axis=0)) ** 2, obrien_fleming(days / 14, 0.05))
    always = sequence_half_width(1.0, days, tuned_rho(14, 0.05), 0.05)
    assert np.any(np.abs(z) >= 1.959964, axis=1).mean() > 0.12
    assert 0.04 < np.any(np.abs(z) >= planned, axis=1).mean() < 0.062
    assert np.any(np.abs(z) >= always, axis=1).mean() < 0.02
