"""The weaker of two bounds holds whatever the bias of the precise estimate, and a test that chooses none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from one_mixture import Second, certify
from scipy.stats import norm

from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.certificate import Certificate, margins
from outlay.estimators.weaker import above_second, further_error, hull
from outlay.ops.intervals import Spread, std_error

Z, DRAWS = 1.959964, 200_000
PRECISE = Spread(10**8, np.array(1.0), np.array(0.0), np.array(0.0))  # of error 1, without skewness


def drawn(further: float, bias: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both estimates of 0; the precise one is too low by `bias` errors of their difference."""
    rng = np.random.default_rng(7)
    own, difference = rng.standard_normal(DRAWS), further * rng.standard_normal(DRAWS)
    return own - bias * further, own + difference


@pytest.mark.parametrize("bias", [0.0, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("further", [0.5, 1.7, 5.0])
def test_the_weaker_bound_misses_as_often_as_it_may_at_every_bias(further: float, bias: float) -> None:
    x, second = drawn(further, bias)
    bound = np.maximum(x + Z, second + above_second(PRECISE, np.hypot(1, further), Z))
    assert (bound < 0).mean() <= 0.0255


def test_a_bound_that_trusts_the_precise_estimate_until_a_test_refutes_it_is_none() -> None:
    """And neither is one that allows for what of the difference is beyond c of its errors."""
    x, second = drawn(further := 1.7, 2.0)
    difference, weak = second - x, second + Z * np.hypot(1, further)
    tested = np.where(np.abs(difference) > Z * further, np.maximum(x + Z, weak), x + Z)
    assert (tested < 0).mean() > 0.25
    for c in (1.0, 3.0):
        allowed = x + Z + np.maximum(difference - c * further, 0)
        assert (allowed < 0).mean() > 0.2


def test_what_the_second_errs_beyond_the_first_comes_in_quadrature() -> None:
    assert further_error([3.0, 5.0], [5.0, 3.0]) == pytest.approx([4.0, 0.0])
    assert above_second(PRECISE, 5.0, Z) == pytest.approx(5 * Z, rel=1e-6)
    assert above_second(PRECISE, 0.5, Z) == pytest.approx(Z, rel=1e-6)
    unknown = Spread(100, np.array(1.0), np.array(1e4), np.array(np.inf))  # few events, whose size nobody knows
    assert above_second(unknown, 5.0, Z) == np.inf


def test_a_certificate_takes_the_weaker_bound_of_each_budget_and_of_the_gain() -> None:
    rng = np.random.default_rng(0)
    psi = rng.standard_normal((10_000, 3))
    its = 2 * rng.standard_normal((10_000, 3))
    x, second = np.array([0.5, 1.0, 1.0]), np.array([0.5, 1.1, 0.5])

    def issued(second: Second | None) -> Certificate:
        return certify(
            x, psi, [1.2, 1.2], ["a", "b"], gain=0.2, gain_influence=psi[:, 0], confidence=0.975, second=second
        )

    alone, both = issued(None), issued(Second(second, its, 0.1, its[:, 0]))
    assert both.budgets[0].bound == pytest.approx(1.1 + Z * std_error(its)[1], abs=1e-3)
    assert both.budgets[0].value == 1.0
    assert both.budgets[1].bound == alone.budgets[1].bound
    assert both.gain_bound == pytest.approx(0.1 - Z * std_error(its)[0], abs=1e-3)
    assert both.gain_most == alone.gain_most
    unknown = issued(Second(x + np.nan, its, np.nan, its[:, 0]))
    assert not unknown.certified
    assert unknown.gain_bound is None


@pytest.mark.parametrize("further", [0.0, 2.0])
def test_a_mixture_with_its_margin_is_certified_nine_times_in_ten_if_both_estimates_are_right(further: float) -> None:
    """Chosen where its spend on *select* and the margin make the limit; on *certify* both bounds must keep it."""
    rng = np.random.default_rng(3)
    margin = float(margins(1.0, PRECISE, factor=Z, margin=0.9, further=further))
    truth = -margin - rng.standard_normal(DRAWS)  # the limit is 0, and the estimate that was chosen by errs by 1
    own = truth + rng.standard_normal(DRAWS)
    second = own + further * rng.standard_normal(DRAWS)
    kept = np.maximum(own + Z, second + above_second(PRECISE, np.hypot(1, further), Z)) <= 0
    assert kept.mean() == pytest.approx(0.9, abs=0.02)
    assert margin == pytest.approx(Z * np.hypot(1, further) + norm.isf(0.1) * np.sqrt(2 + further**2), rel=1e-6)


def test_an_interval_holds_both() -> None:
    few = Reason(ReasonKind.FEW_IN_SEGMENT, {"count": 3, "needed": 30})

    def estimate(value: float | None, low: float | None, high: float | None) -> Estimate:
        return Estimate(
            policy="p",
            estimator="fqe",
            target="reward",
            value=value,
            low=low,
            high=high,
            recommended=True,
            withheld=few if value is None else None,
        )

    one = estimate(1.0, 0.9, 1.1)
    wide = hull(one, estimate(1.05, 0.95, 1.2))
    assert (wide.value, wide.low, wide.high, wide.recommended) == (1.0, 0.9, 1.2, True)
    unknown = hull(one, estimate(None, None, None))
    assert not unknown.recommended
    assert unknown.caution == Reason(ReasonKind.NO_SECOND, {"found": few})
    assert hull(estimate(None, None, None), one).withheld == few
