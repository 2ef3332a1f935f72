from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from outlay.experiments.lift import Lift, Withheld, lift, needed_pairs, sample_ratio, skewness
from outlay.experiments.moments import Metric, UserMoments, pooled
from outlay.experiments.words import ExperimentNote, NoteKind

Change = Callable[[NDArray[np.float64]], NDArray[np.float64]]
NAMES = ("active", "cost", "active_before", "cost_before")
ACTIVE, RATIO = Metric("active", "active"), Metric("cost_per_active", "cost", "active")


def draw(users: int = 3000, lift: float = 0.0, seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    before = rng.poisson(4, users)
    active = rng.binomial(7, 0.5, users) + before + rng.binomial(1, lift, users)
    return np.stack([active, rng.poisson(2 * active), before, rng.poisson(2 * before)], axis=1).astype(float)


def moments(x: NDArray[np.float64]) -> UserMoments:
    return UserMoments(len(x), NAMES, x.mean(axis=0), np.cov(x.T), (x**3).mean(axis=0))


def aggregates(x: NDArray[np.float64]) -> Any:
    """The same statistics, as tea-tasting takes them."""
    tea_tasting = pytest.importorskip("tea_tasting", reason="tea-tasting is not installed")
    covariance, pairs = np.cov(x.T), list(combinations(range(4), 2))
    return tea_tasting.aggr.Aggregates(
        count_=len(x),
        mean_=dict(zip(NAMES, x.mean(axis=0).tolist(), strict=True)),
        var_=dict(zip(NAMES, np.diag(covariance).tolist(), strict=True)),
        cov_={(NAMES[i], NAMES[j]): float(covariance[i, j]) for i, j in pairs},
    )


def lifted(metric: Metric, a: NDArray[np.float64], b: NDArray[np.float64], *, adjust: bool = True) -> Lift:
    found = lift(metric, moments(a), moments(b), 0.95, adjust=adjust)
    assert isinstance(found, Lift)
    return found


def test_a_plain_mean_is_the_textbooks_difference() -> None:
    a, b = draw(), draw(lift=0.2, seed=1)
    found = lifted(ACTIVE, a, b, adjust=False)
    error = np.sqrt(a[:, 0].var(ddof=1) / len(a) + b[:, 0].var(ddof=1) / len(b))
    assert found.absolute.value == pytest.approx(b[:, 0].mean() - a[:, 0].mean())
    assert found.std_error == pytest.approx(error)
    assert found.absolute.high == pytest.approx(found.absolute.value + 1.959964 * error, rel=1e-6)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(found.z)))
    assert found.relative is not None
    assert found.relative.value == pytest.approx(b[:, 0].mean() / a[:, 0].mean() - 1)
    log_error = np.sqrt(sum(x[:, 0].var(ddof=1) / len(x) / x[:, 0].mean() ** 2 for x in (a, b)))
    assert found.log_error == pytest.approx(log_error)


def test_a_ratio_has_the_error_of_the_delta_method() -> None:
    a, b = draw(), draw(seed=1)
    found = lifted(RATIO, a, b, adjust=False)
    ratios = [x[:, 1].mean() / x[:, 0].mean() for x in (a, b)]
    parts = [(x[:, 1] - r * x[:, 0]) / x[:, 0].mean() for x, r in zip((a, b), ratios, strict=True)]
    assert found.absolute.value == pytest.approx(ratios[1] - ratios[0])
    assert found.std_error == pytest.approx(np.sqrt(sum(p.var(ddof=1) / len(p) for p in parts)))


def test_the_time_before_takes_its_share_of_the_variance_away() -> None:
    """CUPED by hand: the residuals of a regression on the covariate, over both arms with arm means taken out."""
    a, b = draw(), draw(seed=1)
    found, plain = lifted(ACTIVE, a, b), lifted(ACTIVE, a, b, adjust=False)
    both = np.concatenate([a, b])
    theta = np.cov(both[:, 0], both[:, 2])[0, 1] / both[:, 2].var(ddof=1)
    adjusted = [x[:, 0] - theta * (x[:, 2] - both[:, 2].mean()) for x in (a, b)]
    assert found.covariate
    assert not plain.covariate
    assert found.absolute.value == pytest.approx(adjusted[1].mean() - adjusted[0].mean())
    assert found.std_error == pytest.approx(np.sqrt(sum(x.var(ddof=1) / len(x) for x in adjusted)), rel=1e-6)
    assert (found.std_error / plain.std_error) ** 2 == pytest.approx(1 - 4 / 5.75, abs=0.03)


def test_a_mean_next_to_0_has_a_relative_interval_without_bounds() -> None:
    """Its logarithm is as good as unknown; the difference is not."""
    tiny = UserMoments(900, ("active",), np.array([1e-9]), np.array([[1.0]]), np.array([0.0]))
    found = lift(ACTIVE, tiny, tiny, 0.95)
    assert isinstance(found, Lift)
    assert found.relative is not None
    assert (found.absolute.value, found.relative.value, found.relative.low) == (0.0, 0.0, -1.0)
    assert found.relative.high > 1e300
    assert found.absolute.high == pytest.approx(1.959964 * np.sqrt(2 / 900))


def test_widened_intervals_keep_the_value() -> None:
    found = lifted(ACTIVE, draw(), draw(seed=1))
    wide = found.widened(3.0)
    absolute, relative = wide.absolute, wide.relative
    assert absolute.value == found.absolute.value
    assert absolute.high - absolute.value == pytest.approx(3 * found.std_error)
    assert relative is not None
    assert found.log_error is not None
    assert relative.high == pytest.approx((1 + relative.value) * np.exp(3 * found.log_error) - 1)


def test_a_holdout_that_costs_nothing_has_no_relative_cost() -> None:
    """Nor where the covariate moves its mean a little above 0."""
    a, b = draw(), draw(seed=1)
    a[:, 1] = 0
    a[:, 3] -= 1.1 * (a[:, 3].mean() - b[:, 3].mean())
    found = lifted(Metric("cost", "cost"), a, b)
    assert found.covariate
    assert found.relative is None
    assert found.absolute.value == pytest.approx(b[:, 1].mean(), rel=0.05)
    assert found.widened(2.0).relative is None


@pytest.mark.parametrize(
    ("metric", "change", "reason"),
    [
        (ACTIVE, lambda x: x * [0, 1, 1, 1] + [7, 0, 0, 0], NoteKind.CONSTANT(treatment=7, control=7)),
        (RATIO, lambda x: x * [0, 1, 1, 1], NoteKind.NO_DENOMINATOR(column="active")),
        (RATIO, lambda x: x[:, [0, 0, 2, 2]] * [1, 2, 1, 2], NoteKind.CONSTANT(treatment=2, control=2)),
        (ACTIVE, lambda x: x[:, [2, 1, 2, 3]] * [2, 1, 1, 1], NoteKind.PREDICTED()),
        (ACTIVE, lambda x: x[:10], NoteKind.FEW_UNITS(count=10, units="users", needed=30)),
    ],
)
def test_what_cannot_be_told_is_withheld_with_the_reason(
    metric: Metric, change: Change, reason: ExperimentNote
) -> None:
    found = lift(metric, moments(change(draw())), moments(change(draw(seed=1))), 0.95)
    assert isinstance(found, Withheld)
    assert found.reason == reason


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """400 tests with CUPED; the truth is +0.1 active days on 7.5. 95% ± 3 standard errors is 91.7 to 98.3%."""
    hits = [0, 0]
    for seed in range(400):
        found = lifted(ACTIVE, draw(400, seed=2 * seed), draw(400, lift=0.1, seed=2 * seed + 1))
        assert found.relative is not None
        hits[0] += found.absolute.low <= 0.1 <= found.absolute.high
        hits[1] += found.relative.low <= 0.1 / 7.5 <= found.relative.high
    assert all(0.917 <= hit / 400 <= 0.983 for hit in hits)


@pytest.mark.parametrize(("kind", "gain"), [("adds", 3.0), ("multiplies", -0.5)])
def test_relative_intervals_of_large_lifts_cover_the_truth(kind: str, gain: float) -> None:
    """1,000 tests of 400 users with CUPED, at 95%: 93 to 97% are within three standard errors.

    With the error of two means that are adjusted by themselves, as in tea-tasting, an effect that adds is covered by 90
    to 92%, one that multiplies by more than 99 or 97.
    """
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        taste = rng.gamma(4, 0.5, (2, 200))  # mean 2
        before, noise = taste + rng.normal(0, 0.5, taste.shape), rng.normal(0, 0.5, taste.shape)
        taste[1] = taste[1] * (1 + gain) if kind == "multiplies" else taste[1] + 2 * gain
        a, b = (np.stack([y, y, c, c], axis=1) for y, c in zip(taste + noise, before, strict=True))
        found = lifted(ACTIVE, a, b)
        assert found.relative is not None
        hits += found.relative.low <= gain <= found.relative.high
    assert 930 <= hits <= 970


def test_the_error_of_a_lift_is_that_of_its_logarithm() -> None:
    """By hand, of a ratio: the change of ln(R_arm / R_control) with every user, adjusted by the common covariate."""
    a, b = draw(400), draw(900, lift=0.5, seed=1)
    found = lifted(RATIO, a, b)
    both = np.concatenate([a, b])

    def influence(x: NDArray[np.float64], i: int) -> tuple[float, NDArray[np.float64]]:
        ratio = x[:, i + 1].mean() / x[:, i].mean()
        return ratio, (x[:, i + 1] - ratio * x[:, i]) / x[:, i].mean()

    theta = np.cov(influence(both, 0)[1], influence(both, 2)[1])
    slope = theta[0, 1] / theta[1, 1]
    (old, past), (new, other) = ([influence(x, i)[1] for i in (0, 2)] for x in (a, b))
    above = found.control + found.absolute.value
    parts = [old / found.control - slope * past / above, (new - slope * other) / above]
    assert found.relative is not None
    assert found.relative.value == pytest.approx(found.absolute.value / found.control)
    assert found.log_error == pytest.approx(np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts)), rel=1e-6)


def test_the_values_are_what_users_did_and_only_the_difference_is_adjusted() -> None:
    a, b = draw(), draw(seed=1)
    found = lifted(ACTIVE, a, b)
    assert [found.control, found.treatment] == pytest.approx([a[:, 0].mean(), b[:, 0].mean()])
    assert abs(found.absolute.value - (found.treatment - found.control)) > 0.01


def test_the_time_before_is_not_used_where_it_would_widen_the_interval() -> None:
    """A small holdout costs nothing, whatever its users cost before: θ is that of the others."""
    a, b = draw(3000), draw(300, seed=1)
    b[:, 1] = 0
    cost = Metric("cost", "cost")
    found, plain = lifted(cost, a, b), lifted(cost, a, b, adjust=False)
    assert found == plain
    assert not found.covariate
    assert found.treatment == 0
    assert lifted(cost, a, draw(300, seed=1)).covariate


def test_a_user_who_dwarfs_all_others_makes_the_time_before_useless() -> None:
    """With one of 1e10 before and after, the past leaves of the arm's variance what rounding does, below 0 at times."""
    for seed in range(20):
        a, b = draw(seed=seed), draw(seed=seed + 100)
        b[0, 1], b[0, 3] = 1.4e10, 7e9
        found = lifted(Metric("cost", "cost"), a, b)
        assert not found.covariate
        assert found.absolute.low < 0 < found.absolute.high


def test_taking_the_smaller_error_keeps_the_level() -> None:
    """1,200 A/A tests of skewed totals whose past says nothing, so that chance decides whether it is used: the
    difference is 0 on average, and 5% of the intervals miss it (3.1 to 6.9% are within three standard errors).
    """
    rng = np.random.default_rng(0)
    found = []
    for _ in range(1200):
        a, b = (np.repeat(rng.lognormal(0, 0.5, (users, 2)), 2, axis=1) for users in (300, 100))
        found.append(lifted(ACTIVE, a, b))
    assert 0.2 < np.mean([x.covariate for x in found]) < 0.8
    assert np.mean([abs(x.z) > 1.959964 for x in found]) == pytest.approx(0.05, abs=0.019)
    assert abs(np.mean([x.absolute.value / x.std_error for x in found])) < 3 / np.sqrt(1200)


def paying(users: int, chance: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Few users pay, much."""
    paid = (rng.random((users, 4)) < chance) * rng.lognormal(0, 1, (users, 4))
    return paid.astype(float)


def test_a_small_arm_without_payers_is_not_believed_to_vary_little() -> None:
    """Without effect, 2,000 against 60 users of whom one in 50 pays: in three of ten tests the 60 hold no payer, and by
    their own variance of 0 the difference would be more than 4 errors.
    """
    rng = np.random.default_rng(0)
    found = [lifted(ACTIVE, paying(2000, 0.02, rng), paying(60, 0.02, rng), adjust=False) for _ in range(300)]
    assert np.mean([x.cautious for x in found]) > 0.5
    assert np.mean([abs(x.z) > 4 for x in found]) < 0.01
    assert all(not lifted(ACTIVE, paying(500, 0.02, rng), paying(500, 0.02, rng)).cautious for _ in range(20))


def test_a_cautious_error_is_that_of_both_arms_together() -> None:
    rng = np.random.default_rng(1)
    a, b = paying(2000, 0.05, rng), paying(60, 0.05, rng)
    b[:, 0] = 0
    b[0, 0] = 0.5
    found = lifted(ACTIVE, a, b, adjust=False)
    both = np.concatenate([a, b])[:, 0]
    assert found.cautious
    assert found.std_error == pytest.approx(both.std(ddof=1) * np.sqrt(1 / 2000 + 1 / 60))
    assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(found.z)))
    own = np.sqrt(sum(x[:, 0].var(ddof=1) / len(x) / x[:, 0].mean() ** 2 for x in (a, b)))
    assert found.log_error is not None
    assert found.log_error > own


def test_the_skewness_of_a_difference_is_that_of_its_cumulants() -> None:
    a, b = draw(3000), draw(300, seed=1)
    both = np.concatenate([a, b])[:, 1]
    third = ((both - both.mean()) ** 3).mean() * (1 / 300**2 - 1 / 3000**2)
    spread = both.var() * (1 / 300 + 1 / 3000)
    found = skewness(Metric("cost", "cost"), pooled(moments(a), moments(b)), (3000, 300))
    assert found == pytest.approx(abs(third) / spread**1.5)
    assert skewness(Metric("cost", "cost"), pooled(moments(a), moments(b)), (500, 500)) == 0


def test_the_sample_ratio_is_held_against_the_plan() -> None:
    assert sample_ratio(5000, 5000, 1.0) == pytest.approx(1.0)
    assert sample_ratio(5000, 4600, 1.0) < 0.001
    assert sample_ratio(5000, 555, 1 / 9) > 0.5


def test_pairs_are_those_of_the_columns_and_their_covariates() -> None:
    assert needed_pairs([ACTIVE]) == [
        ("active", "active"),
        ("active", "active_before"),
        ("active_before", "active_before"),
    ]
    assert len(needed_pairs([RATIO])) == 10


@pytest.mark.parametrize("metric", [ACTIVE, RATIO])
@pytest.mark.parametrize("adjust", [False, True])
def test_a_difference_is_that_of_tea_tasting(metric: Metric, adjust: bool) -> None:
    """Another implementation, from the same statistics: the difference, its interval and its p-value."""
    tea_tasting = pytest.importorskip("tea_tasting", reason="tea-tasting is not installed")
    before = metric.before if adjust else Metric("none", "none")
    names = [metric.numerator, metric.denominator, *((before.numerator, before.denominator) if adjust else ())]
    for seed in range(5):
        arms = [draw(users, lift=0.1, seed=10 * seed + users) for users in (3000, 700)]
        for x in arms:  # what a user pays per active day is a habit
            rate = np.random.default_rng(seed).gamma(9, 0.2, len(x))
            x[:, [1, 3]] = rate[:, None] * (x[:, [0, 2]] + 1)
        found = lifted(metric, *arms, adjust=adjust)
        theirs = tea_tasting.RatioOfMeans(*names, use_t=False, equal_var=False).analyze_aggregates(
            *(aggregates(x) for x in arms)
        )
        ours = found.absolute.value, found.absolute.low, found.absolute.high, found.p_value
        wanted = theirs.effect_size, theirs.effect_size_ci_lower, theirs.effect_size_ci_upper, theirs.pvalue
        assert found.covariate == adjust
        assert ours == pytest.approx(wanted, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("control", "treatment"), [(400, 370), (12, 3), (5000, 4800), (90_000, 10_300)])
@pytest.mark.parametrize("planned", [1.0, 1 / 9])
def test_the_sample_ratio_is_that_of_tea_tasting(control: int, treatment: int, planned: float) -> None:
    tea_tasting = pytest.importorskip("tea_tasting", reason="tea-tasting is not installed")
    counts = {0: tea_tasting.aggr.Aggregates(count_=control), 1: tea_tasting.aggr.Aggregates(count_=treatment)}
    wanted = tea_tasting.SampleRatio(planned).analyze(counts, control=0, treatment=1).pvalue
    assert sample_ratio(control, treatment, planned) == pytest.approx(wanted, rel=1e-9, abs=1e-300)
