"""Intervals and bounds: textbook ones, those of skewed errors, and those that hold together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2, gamma, norm

from outlay.ops.intervals import FEWEST, Spread, critical_value, interval, quantile, ratio, std_error

Array = NDArray[np.float64]
ALPHA = 0.025


def test_the_standard_error_of_a_mean_is_the_textbook_one() -> None:
    """Values 1, 2, 6: mean 3, ψ = −2, −1, 3, variance 14 / 2 = 7, se = √(7/3)."""
    assert std_error(np.array([-2.0, -1.0, 3.0])) == pytest.approx(np.sqrt(7 / 3))
    assert np.isnan(std_error(np.zeros((1, 2)))).all()


def test_intervals_use_both_tails() -> None:
    assert np.stack(interval(1.0, 2.0, 0.95)) == pytest.approx([1 - 3.92, 1 + 3.92], abs=1e-3)


@pytest.mark.parametrize("probability", [0.0, 1.0, float("nan"), 1.2])
def test_a_probability_outside_the_open_interval_is_an_error(probability: float) -> None:
    with pytest.raises(ValueError, match="strictly between"):
        quantile(probability)


def test_the_ratio_interval_covers_the_true_ratio() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        below = rng.exponential(2, size=300)
        above = 3 * below + rng.normal(size=300)
        value, psi = ratio(above.mean(), above - above.mean(), below.mean(), below - below.mean())
        hits += bool(abs(value - 3) <= 1.96 * std_error(psi))
    assert hits / 1000 == pytest.approx(0.95, abs=0.02)


def test_a_ratio_to_nothing_is_not_a_number() -> None:
    value, psi = ratio(1.0, np.zeros(3), 0.0, np.zeros(3))
    assert np.isnan(value)
    assert np.isnan(psi).all()


def upper_bound(value: ArrayLike, influence: Array, confidence: float, known: ArrayLike = np.inf) -> Array:
    return np.asarray(value) + Spread.of(influence, known).above(quantile(confidence))


def events(count: int, users: int) -> Array:
    return (np.arange(users) < count).astype(float)


@pytest.mark.parametrize("count", [1, 4, 20, 300])
def test_for_events_of_one_size_it_is_the_exact_bound_of_a_poisson_mean(count: int) -> None:
    """Garwood's: the gamma quantile with shape k + 1; users are so many that binomial is Poisson."""
    x = events(count, 1_000_000)
    found = upper_bound(x.mean(), x - x.mean(), 1 - ALPHA, 1.0)
    assert len(x) * found == pytest.approx(gamma.isf(ALPHA, count + 1), rel=2e-3)


def test_without_an_event_it_is_the_rule_of_three() -> None:
    assert upper_bound(0.0, np.zeros(1000), 0.95, 6.0) == pytest.approx(-6 * np.log(0.05) / 1000, rel=1e-3)
    assert upper_bound(0.0, np.zeros(1000), 0.95, 0.0) == 0  # nothing can happen: ±0 is an error
    assert upper_bound(0.0, np.zeros(1000), 0.95) == np.inf  # nobody says how large an event may be


def test_for_many_users_alike_it_is_the_normal_bound() -> None:
    x = np.random.default_rng(0).normal(2, 1, size=(30_000, 3))
    wide = upper_bound(x.mean(axis=0), x, 1 - ALPHA) - x.mean(axis=0)
    assert (wide / std_error(x) < 1.02 * norm.isf(ALPHA)).all()
    assert (wide / std_error(x) >= norm.isf(ALPHA)).all()


@pytest.mark.parametrize("count", [0, 1, FEWEST - 1, FEWEST, 40])
def test_few_events_have_a_bound_where_the_largest_is_known(count: int) -> None:
    """Without it they have none, as they cannot tell how large an event may be."""
    x = events(count, 2_000)
    alone, known = (Spread.of(x, most).above(2.0) for most in (np.inf, 3.0))
    assert np.isinf(alone) == (count < FEWEST)
    assert np.isfinite(known)
    assert known > Spread.of(x, 1.0).above(2.0) or count >= FEWEST
    if count >= FEWEST:
        assert known > alone  # a larger one may have been missed
        assert Spread.of(x, 3.0, beyond=0.0).above(2.0) == alone  # that large ones were shown says somebody else


def test_a_smooth_sample_does_not_make_a_larger_event_impossible() -> None:
    """One user in 10,000 costs 1,200: of 6,000 users 55% have none of them, and look as if there were none."""
    rng, samples, users, firm = np.random.default_rng(0), 200, 6_000, 1_200.0
    x = np.where(rng.random((users, samples)) < 0.3, np.exp(0.5 * rng.standard_normal((users, samples))), 0.0)
    x[rng.random((users, samples)) < 1e-4] = firm
    true = 0.3 * np.exp(0.125) * (1 - 1e-4) + 1e-4 * firm
    assert np.mean(upper_bound(x.mean(axis=0), x, 1 - ALPHA) < true) > 0.5, "nothing is known of firms"
    for told in ({"known": firm}, {"beyond": np.maximum(firm - x.max(axis=0), 0)}):
        bound = x.mean(axis=0) + Spread.of(x, **told).above(quantile(1 - ALPHA))
        assert np.mean(bound < true) <= ALPHA
    assert (Spread.of(x, firm).largest >= firm - true).all()


def test_what_is_possible_never_lowers_what_was_seen() -> None:
    x = np.random.default_rng(0).exponential(size=(3_000, 1))
    alone = Spread.of(x)
    for known, beyond in ((0.5, None), (np.inf, 0.0), (2.0, 0.0)):
        assert (Spread.of(x, known, beyond).largest == alone.largest).all()
    assert (alone.largest >= (x - x.mean()).max()).all()
    assert Spread.of_gain(x, 50.0).largest == pytest.approx(x.max() - x.mean() + 50)


def test_events_are_counted_by_what_they_say() -> None:
    """One of 30 that makes most of the sum is as good as one; where there is a bound nothing is counted."""
    whale = events(30, 2_000)
    whale[0] = 100.0
    assert Spread.of(whale).events == 1
    assert np.isinf(Spread.of(whale).above(2.0))
    assert Spread.of(np.zeros(100)).events == 0
    assert Spread.of(events(4, 2_000)).events == 4
    assert np.isnan(Spread.of(events(30, 2_000)).events)


def test_what_takes_away_needs_no_largest() -> None:
    """Rare events that lower a mean leave nothing unknown above it."""
    assert Spread.of(-events(2, 2_000)).above(2.0) < 2.1 * std_error(events(2, 2_000))


def test_of_a_gain_that_is_none_nothing_is_unknown() -> None:
    assert Spread.of_gain(np.zeros(100)).above(2.0) == 0
    assert np.isinf(Spread.of_gain(events(1, 100)).above(2.0))


def test_of_other_numbers_of_users_it_is_what_those_would_have() -> None:
    x = np.random.default_rng(0).exponential(size=(400, 2))
    again, scaled = Spread.of(np.tile(x, (4, 1))), Spread.of(x).scaled(1600)
    assert scaled.error == pytest.approx(again.error, rel=2e-3)
    assert scaled.third == pytest.approx(again.third)
    assert scaled.above(1.96) == pytest.approx(again.above(1.96), rel=0.1)


def test_a_joint_factor_is_a_quantile_further_out() -> None:
    """As for one bound at the confidence that the factor is the normal quantile of."""
    spread = Spread.of(events(10, 5_000))
    assert 5_000 * (spread.above(3.3) + 10 / 5_000) == pytest.approx(gamma.isf(norm.sf(3.3), 11), rel=5e-3)


def test_one_user_or_a_number_that_is_withheld_has_no_bound() -> None:
    assert np.isnan(Spread.of(np.zeros((1, 2))).above(2.0)).all()
    assert np.isnan(Spread.of(np.full((50, 2), np.nan)).above(2.0)).all()


def bought(size: Callable[[np.random.Generator, tuple[int, int]], Array], share: float) -> Callable[..., Array]:
    def drawn(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        return np.where(rng.random(shape) < share, size(rng, shape), 0.0)

    return drawn


def lognormal(sigma: float) -> Callable[[np.random.Generator, tuple[int, int]], Array]:
    return lambda rng, shape: np.exp(sigma * rng.standard_normal(shape) - sigma**2 / 2)


def pareto(index: float) -> Callable[[np.random.Generator, tuple[int, int]], Array]:
    return lambda rng, shape: (1 + rng.pareto(index, shape)) * (index - 1) / index


@pytest.mark.parametrize("users", [138, 548, 2_000])
@pytest.mark.parametrize("share", [0.005, 0.02, 0.1])
@pytest.mark.parametrize(
    ("size", "level"),
    [(lognormal(0), ALPHA), (lognormal(1), ALPHA), (lognormal(2), ALPHA), (pareto(2.5), ALPHA), (pareto(1.5), 0.05)],
)
def test_a_policy_at_its_limit_is_hardly_ever_certified(
    users: int, share: float, size: Callable[..., Array], level: float
) -> None:
    """Rare purchases, money of a long tail; nothing is known of the largest.

    With the normal bound it was 2 to 50%: without an event 0 ± 0, or whales that were not met. A tail of index 1.5
    has no variance, and keeps 5%.
    """
    rng, samples = np.random.default_rng([users, int(1e3 * share)]), 400
    x = bought(size, share)(rng, (users, samples))
    over = np.mean(upper_bound(x.mean(axis=0), x, 1 - ALPHA) <= share)
    assert over <= level + 2 * np.sqrt(level * (1 - level) / samples)


@pytest.mark.parametrize("users", [138, 548, 2_000])
@pytest.mark.parametrize("share", [0.005, 0.02, 0.1])
def test_nor_where_the_largest_is_known_and_every_sample_has_a_bound(users: int, share: float) -> None:
    rng, samples, largest = np.random.default_rng([users, int(1e3 * share)]), 400, 20.0
    sizes = np.minimum(lognormal(2)(rng, (users, samples)), largest)
    mean = share * np.minimum(lognormal(2)(np.random.default_rng(0), (2_000_000, 1)), largest).mean()
    x = np.where(rng.random((users, samples)) < share, sizes, 0.0)
    bound = upper_bound(x.mean(axis=0), x, 1 - ALPHA, largest)
    assert np.isfinite(bound).all()
    assert np.mean(bound <= mean) <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / samples)


def alike(n: int, correlation: float) -> Array:
    return np.full((n, n), correlation) + (1 - correlation) * np.eye(n)


def neighbours(n: int) -> Array:
    """As policies along a curve: each is much like the next; errors of very unlike sizes."""
    place, size = np.arange(n), np.geomspace(1e-3, 50, n)
    covariance: Array = np.exp(-np.abs(place[:, None] - place) / 6) * np.outer(size, size)
    return covariance


def draws(covariance: Array, count: int, seed: int = 7) -> Array:
    """`[count, n]` errors, standardised; 0 where there is no variance."""
    size, axes = np.linalg.eigh(covariance)
    error = np.sqrt(np.diag(covariance))
    root = axes * np.sqrt(np.maximum(size, 0))
    root = np.divide(root, error[:, None], out=np.zeros_like(root), where=error[:, None] > 0)
    sample: Array = np.random.default_rng(seed).standard_normal((count, len(covariance))) @ root.T
    return sample


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.025, 1e-3, 1e-6])
@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_independent_quantities_need_the_quantile_of_the_nth_root(n: int, alpha: float) -> None:
    assert critical_value(np.eye(n), alpha) == pytest.approx(norm.isf(1 - (1 - alpha) ** (1 / n)), abs=0.01)


def test_what_moves_together_needs_no_more_than_one_alone_and_opposites_need_both_tails() -> None:
    one = norm.isf(0.05)
    assert critical_value(np.ones((40, 40)), 0.05) == pytest.approx(one, abs=1e-9)
    assert critical_value(np.array([[1.0, -1.0], [-1.0, 1.0]]), 0.05) == pytest.approx(norm.isf(0.025), abs=0.01)


def test_what_has_no_error_counts_for_nothing() -> None:
    covariance = np.zeros((7, 7))
    covariance[:3, :3] = neighbours(3)
    covariance[5:, 5:] = alike(2, 0.3) * 1e-30  # what rounding leaves
    assert critical_value(covariance, 0.05) == critical_value(neighbours(3), 0.05)
    assert critical_value(np.zeros((4, 4)), 0.05) == pytest.approx(norm.isf(0.05))
    assert critical_value(np.empty((0, 0)), 0.05) == pytest.approx(norm.isf(0.05))


@pytest.mark.parametrize("alpha", [0.05, 0.0125])
@pytest.mark.parametrize("shape", ["alike", "opposed", "a curve", "fewer causes"])
def test_all_bounds_together_fail_as_often_as_they_may(shape: str, alpha: float) -> None:
    causes = np.random.default_rng(4).normal(size=(3, 50))
    covariance = {
        "alike": alike(12, 0.6),
        "opposed": alike(4, -0.3),
        "a curve": neighbours(33),
        "fewer causes": causes.T @ causes,
    }[shape]
    count = 100_000
    broken = (draws(covariance, count) > critical_value(covariance, alpha)).any(axis=1).mean()
    assert broken == pytest.approx(alpha, abs=3 * np.sqrt(alpha / count) + 0.02 * alpha)


def test_a_cone_holds_all_that_lies_between_its_sides() -> None:
    """Scaling no side changes it; simulated on a fine grid of directions, with exact standard errors."""
    covariance = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.5]])
    pairs, alpha, count = np.array([[0, 2], [1, 1], [1, 2]]), 0.05, 20_000
    k = critical_value(covariance, alpha, pairs)
    size = np.array([1.0, 100.0, 0.01])
    assert critical_value(covariance * np.outer(size, size), alpha, pairs) == pytest.approx(k, abs=1e-6)
    errors = np.random.default_rng(5).multivariate_normal(np.zeros(3), covariance, size=count)
    grid = np.tan(np.linspace(0, np.pi / 2 - 1e-6, 200))
    broken = errors[:, 1] > k * np.sqrt(covariance[1, 1])
    for i in (0, 1):
        spread = np.sqrt(covariance[i, i] + 2 * grid * covariance[i, 2] + grid**2 * covariance[2, 2])
        broken |= ((errors[:, [i]] + grid * errors[:, [2]]) > k * spread).any(axis=1)
    assert broken.mean() == pytest.approx(alpha, abs=3 * np.sqrt(alpha / count))
    assert critical_value(covariance, alpha) < k


def test_a_cone_of_two_independent_sides_is_a_quarter_of_the_circle() -> None:
    """P(max > k) = P(χ²₂ > k²) / 4 within the quarter, and beside it one normal on either side, each with half."""
    k = critical_value(np.eye(2), 0.05, np.array([[0, 1]]))
    assert chi2.sf(k**2, 2) / 4 + norm.sf(k) == pytest.approx(0.05, abs=5e-4)


def test_a_side_without_an_error_leaves_the_other_side_alone() -> None:
    covariance = np.diag([1.0, 0.0, 4.0])
    assert critical_value(covariance, 0.05, np.array([[0, 1]])) == pytest.approx(norm.isf(0.05))
    assert critical_value(covariance, 0.05, np.array([[1, 2]])) == pytest.approx(norm.isf(0.05))
    same = np.array([[1.0, 2.0], [2.0, 4.0]])  # one direction, whatever the weights
    assert critical_value(same, 0.05, np.array([[0, 1]])) == pytest.approx(norm.isf(0.05), abs=1e-9)


def test_rounding_moves_it_by_rounding_only() -> None:
    """Weights of mixtures rest on it, and a bundle's name on those."""
    covariance = alike(20, 0.5)  # eigenvalues all alike, whose vectors are arbitrary
    noise = 1e-14 * np.random.default_rng(0).normal(size=covariance.shape)
    assert critical_value(covariance + noise + noise.T, 0.025) == pytest.approx(
        critical_value(covariance, 0.025), abs=1e-8
    )


@pytest.mark.parametrize("alpha", [0.0, 0.5, -1.0, float("nan")])
def test_an_impossible_level_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"strictly between 0 and 0\.5"):
        critical_value(np.eye(2), alpha)
