from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from outlay.experiments.lift import Lift, Withheld, lift, needed_pairs, sample_ratio
from outlay.experiments.moments import Metric, Moments

Change = Callable[[NDArray[np.float64]], NDArray[np.float64]]
NAMES = ("active", "cost", "active_before", "cost_before")
ACTIVE, RATIO = Metric("active", "active"), Metric("cost_per_active", "cost", "active")


def draw(users: int = 3000, lift: float = 0.0, seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    before = rng.poisson(4, users)
    active = rng.binomial(7, 0.5, users) + before + rng.binomial(1, lift, users)
    return np.stack([active, rng.poisson(2 * active), before, rng.poisson(2 * before)], axis=1).astype(float)


def moments(x: NDArray[np.float64]) -> Moments:
    return Moments(len(x), NAMES, x.mean(axis=0), np.cov(x.T))


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


def test_widened_intervals_keep_the_value() -> None:
    found = lifted(ACTIVE, draw(), draw(seed=1))
    absolute, relative = found.widened(3.0)
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
    assert found.widened(2.0)[1] is None


@pytest.mark.parametrize(
    ("metric", "change", "reason"),
    [
        (ACTIVE, lambda x: x * [0, 1, 1, 1] + [7, 0, 0, 0], r"does not differ between the users of an arm \(7, 7\)"),
        (RATIO, lambda x: x * [0, 1, 1, 1], "active is 0 in an arm"),
        (RATIO, lambda x: x[:, [0, 0, 2, 2]] * [1, 2, 1, 2], r"does not differ between the users of an arm \(2, 2\)"),
        (ACTIVE, lambda x: x[:10], "10 users; 30 are needed"),
    ],
)
def test_what_cannot_be_told_is_withheld_with_the_reason(metric: Metric, change: Change, reason: str) -> None:
    found = lift(metric, moments(change(draw())), moments(change(draw(seed=1))), 0.95)
    assert isinstance(found, Withheld)
    assert re.search(reason, found.reason)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """400 tests with CUPED; the truth is +0.1 active days on 7.5. 95 % ± 3 standard errors is 91.7 to 98.3 %."""
    hits = [0, 0]
    for seed in range(400):
        found = lifted(ACTIVE, draw(400, seed=2 * seed), draw(400, lift=0.1, seed=2 * seed + 1))
        assert found.relative is not None
        hits[0] += found.absolute.low <= 0.1 <= found.absolute.high
        hits[1] += found.relative.low <= 0.1 / 7.5 <= found.relative.high
    assert all(0.917 <= hit / 400 <= 0.983 for hit in hits)


def test_the_sample_ratio_is_held_against_the_plan() -> None:
    assert sample_ratio(5000, 5000, 1.0) == pytest.approx(1.0)
    assert sample_ratio(5000, 4600, 1.0) < 0.001
    assert sample_ratio(5000, 555, 1 / 9) > 0.5


def test_pairs_are_those_of_the_columns_and_their_covariates() -> None:
    assert needed_pairs([ACTIVE]) == [
        ("active", "active"), ("active", "active_before"), ("active_before", "active_before")
    ]  # fmt: skip
    assert len(needed_pairs([RATIO])) == 10
