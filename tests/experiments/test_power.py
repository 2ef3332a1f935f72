"""Power, smallest effects and users needed, against longhand formulas and against simulated tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from small_experiments import NEW, NONE, OLD, content

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment
from outlay.experiments.moments import Metric, UserMoments, moments_of
from outlay.experiments.power import Asked, Power, guardrail_alpha, last_alpha, units_needed
from outlay.experiments.power import solve as solved

NORMAL = NormalDist()
X, RATIO = Metric("x", "x"), Metric("x_per_n", "x", "n")
PLAN: dict[str, Any] = {"arm": "new", "users": (30_000, 10_000), "alpha": 0.05, "power": 0.8}


def solve(moments: UserMoments, metric: Metric, *, cuped: bool, **asked: Any) -> Power:
    return solved(moments, metric, Asked(**asked), cuped=cuped)


@pytest.fixture(scope="module")
def past() -> UserMoments:
    rng = np.random.default_rng(0)
    before = rng.normal(5, 2, 20_000)
    x = 1.5 + 0.7 * before + rng.normal(0, 1.4, len(before))
    n, n_before = rng.poisson(4, (2, len(before))) + 1.0
    return moments_of({"x": x, "n": n, "x_before": before, "n_before": n_before})


def test_the_smallest_effect_is_that_of_the_textbook(past: UserMoments) -> None:
    """(z_{1−α/2} + z_{power}) · √(σ²/n + σ²/m); the far tail adds less than a millionth at this power."""
    found = solve(past, X, cuped=False, **PLAN)
    error = np.sqrt(past.covariance[0, 0] * (1 / 30_000 + 1 / 10_000))
    assert found.absolute == pytest.approx((NORMAL.inv_cdf(0.975) + NORMAL.inv_cdf(0.8)) * error, rel=1e-5)
    assert found.mean == pytest.approx(past.mean[0])
    assert found.relative == pytest.approx(found.absolute / past.mean[0])
    assert found.users == 40_000
    assert found.left == 1


def test_cuped_leaves_the_part_of_the_variance_that_the_past_does_not_explain(past: UserMoments) -> None:
    plain, cuped = (solve(past, X, cuped=cuped, **PLAN) for cuped in (False, True))
    rho = past.covariance[0, 2] / np.sqrt(past.covariance[0, 0] * past.covariance[2, 2])
    assert cuped.left == pytest.approx(1 - rho**2)
    assert cuped.absolute == pytest.approx(plain.absolute * np.sqrt(1 - rho**2), rel=1e-6)
    assert 0.45 < cuped.left < 0.55


def test_a_ratio_of_means_is_linearised(past: UserMoments) -> None:
    found = solve(past, RATIO, cuped=False, **PLAN)
    (x, n, _, _), c = past.mean, past.covariance
    variance = (c[0, 0] - 2 * x / n * c[0, 1] + (x / n) ** 2 * c[1, 1]) / n**2
    wanted = (NORMAL.inv_cdf(0.975) + NORMAL.inv_cdf(0.8)) * np.sqrt(variance * (1 / 30_000 + 1 / 10_000))
    assert found.mean == pytest.approx(x / n)
    assert found.absolute == pytest.approx(wanted, rel=1e-5)


def test_the_smallest_effect_is_found_with_the_planned_chance_in_simulated_tests(past: UserMoments) -> None:
    """2,000 tests of 200 against 100 users, with CUPED, three standard errors: 3·√(0.8·0.2/2000) = 0.027."""
    found = solve(past, X, arm="new", users=(200, 100), alpha=0.05, power=0.8, cuped=True)
    rng = np.random.default_rng(1)
    before = rng.normal(5, 2, (2_000, 300))
    x = 1.5 + 0.7 * before + rng.normal(0, 1.4, before.shape)
    x[:, 200:] += found.absolute
    adjusted = x - past.covariance[0, 2] / past.covariance[2, 2] * before
    old, new = adjusted[:, :200], adjusted[:, 200:]
    z = (new.mean(1) - old.mean(1)) / np.sqrt(old.var(1, ddof=1) / 200 + new.var(1, ddof=1) / 100)
    assert np.mean(np.abs(z) > 1.96) == pytest.approx(0.8, abs=0.027)


def test_the_users_needed_give_the_power_asked_for(past: UserMoments) -> None:
    asked = solve(past, X, cuped=True, lift=0.006, **PLAN)
    assert asked.lift_users is not None
    users = round(asked.lift_users * 3 / 4), round(asked.lift_users / 4)
    again = solve(past, X, cuped=True, lift=0.006, **PLAN | {"users": users})
    assert again.lift_power == pytest.approx(0.8, abs=1e-3)
    assert again.relative == pytest.approx(0.006, rel=1e-3)


def test_a_lift_may_be_a_loss_and_may_be_huge(past: UserMoments) -> None:
    up, down, huge = (solve(past, X, cuped=False, lift=lift, **PLAN) for lift in (0.01, -0.01, 0.9))
    assert up.lift_power == pytest.approx(down.lift_power)
    assert huge.lift_power == pytest.approx(1)


def test_one_decision_may_make_the_whole_error_and_two_a_little_less() -> None:
    """The last of two equal O'Brien–Fleming looks: bound 1.969 (Lan and DeMets), 2·(1 − Φ(1.969)) = 0.0490."""
    taken = OLD | {"name": "a", "share": 0.2}
    one = Experiment.parse(content() | {"arm": [OLD, taken]})
    two = Experiment.parse(content(decisions=[7, 14]) | {"arm": [OLD, taken]})
    assert last_alpha(one) == pytest.approx(0.05)
    assert last_alpha(two) == pytest.approx(2 * NORMAL.cdf(-1.969), rel=2e-3)


def test_a_guardrail_is_held_to_its_sequence() -> None:
    """At the planned end it is √(−W₋₁(−α²/e)) errors wide, 3.035 at 5%, however many arms there are."""
    assert guardrail_alpha(Experiment.parse(content())) == pytest.approx(2 * NORMAL.cdf(-3.035), rel=2e-3)
    assert guardrail_alpha(Experiment.parse(content(days=28))) == pytest.approx(
        guardrail_alpha(Experiment.parse(content())), rel=1e-9
    )


def test_the_arms_that_could_be_taken_share_the_error() -> None:
    first, second = (OLD | {"name": name, "share": 0.1} for name in ("a", "b"))
    for arms, alpha in (([OLD, first, second], 0.025), ([OLD, first, NEW, NONE], 0.05), ([OLD, NEW, NONE], 0.025)):
        assert last_alpha(Experiment.parse(content() | {"arm": arms})) == pytest.approx(alpha)


def test_a_constant_metric_is_refused(past: UserMoments) -> None:
    """A ratio is constant too where its parts go together: cost is 1.1 a time."""
    n = np.arange(1.0, 200.0)
    constant = moments_of({"x": np.full(len(n), 0.1), "n": n})
    together = moments_of({"x": 1.1 * n, "n": n})
    absent = moments_of({"x": n, "n": np.zeros(len(n))})
    for moments, metric in ((constant, X), (together, RATIO), (absent, RATIO)):
        assert moments.is_constant(metric)
        with pytest.raises(OutlayError, match=r"metric 'x.*': .*the same"):
            solve(moments, metric, cuped=False, **PLAN)
    assert not past.is_constant(X)
    assert not past.is_constant(RATIO)


def test_a_constant_past_is_not_used(past: UserMoments) -> None:
    covariance = past.covariance.copy()
    covariance[2:] = covariance[:, 2:] = 0
    for mean in (past.mean, past.mean * [1, 1, 0, 0]):
        moments = replace(past, mean=mean, covariance=covariance)
        for metric in (X, RATIO):
            assert solve(moments, metric, cuped=True, **PLAN) == replace(
                solve(moments, metric, cuped=False, **PLAN), cuped=True
            )


def test_a_metric_that_the_past_foretells_is_refused() -> None:
    x = np.arange(100.0)
    with pytest.raises(OutlayError, match="predicted exactly"):
        solve(moments_of({"x": x, "x_before": 2 * x + 1}), X, cuped=True, **PLAN)


def test_arms_without_users_are_refused(past: UserMoments) -> None:
    with pytest.raises(OutlayError, match=r"\b100 and 1 users; .*at least 2\b"):
        solve(past, X, arm="new", users=(100, 1), alpha=0.05, power=0.8, cuped=False)


def test_a_mean_of_zero_has_no_relative_effect() -> None:
    found = solve(moments_of({"x": np.array([-1.0, 1.0, -1.0, 1.0])}), X, cuped=False, lift=0.1, **PLAN)
    assert found.relative is None
    assert found.lift_power is None
    assert found.absolute > 0


def test_the_users_needed_are_those_of_a_plan(past: UserMoments) -> None:
    """As an evaluation counts them, which has only the variance."""
    for share in (0.5, 0.25):
        users = (30_000, int(30_000 * share / (1 - share)))
        found = solve(past, X, cuped=False, lift=0.01, **{**PLAN, "users": users})
        own = units_needed(past.variance(X), 0.01 * found.mean, alpha=0.05, power=0.8, share=share)
        assert own == found.lift_users


@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("metric", [X, RATIO])
@pytest.mark.parametrize("cuped", [False, True])
def test_power_is_that_of_tea_tasting(past: UserMoments, metric: Metric, cuped: bool, power: float) -> None:
    """Another implementation, which searches for what it solves."""
    tea_tasting = pytest.importorskip("tea_tasting", reason="tea-tasting is not installed")
    pairs = list(combinations(past.columns, 2))
    place = {name: i for i, name in enumerate(past.columns)}
    known = tea_tasting.aggr.Aggregates(
        count_=past.users,
        mean_={name: past.average(name) for name in past.columns},
        var_={name: float(past.covariance[i, i]) for name, i in place.items()},
        cov_={(a, b): float(past.covariance[place[a], place[b]]) for a, b in pairs},
    )
    columns = [metric.numerator, metric.denominator]
    columns += [metric.before.numerator, metric.before.denominator] if cuped else []
    settings = {"use_t": False, "alpha": 0.05, "ratio": 1 / 3, "power": power, "n_obs": 40_000}
    (smallest,) = tea_tasting.RatioOfMeans(*columns, **settings).solve_power_from_aggregates(known, "effect_size")
    asked = tea_tasting.RatioOfMeans(*columns, **settings, rel_effect_size=0.01)
    found = solve(past, metric, cuped=cuped, lift=0.01, **PLAN | {"power": power})
    assert found.absolute == pytest.approx(smallest.effect_size, abs=1e-11)
    assert found.lift_power == pytest.approx(asked.solve_power_from_aggregates(known, "power")[0].power, rel=1e-12)
    assert found.lift_users == asked.solve_power_from_aggregates(known, "n_obs")[0].n_obs
