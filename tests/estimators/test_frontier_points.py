"""Stored points: from numbers and covariances alone, what the influence functions of the fits say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from logs_in_memory import campaign, fit, ragged
from numpy.typing import NDArray
from scipy.stats import norm

from outlay.core.campaign import Campaign
from outlay.core.transitions import CERTIFY
from outlay.estimators.basis import CountedBasis
from outlay.estimators.certificate import margins
from outlay.estimators.fitted import Fitted
from outlay.estimators.frontier import Points
from outlay.estimators.joint import combine
from outlay.estimators.panel import Panel
from outlay.estimators.units import coordinates, displayed
from outlay.ops.intervals import Spread, std_error
from outlay.ops.mixture_lp import solve_mixture

CEILING = {"name": "cost", "cost": "c", "at_most": 0.6}
PLANS: dict[str, list[dict[str, Any]]] = {
    "a ceiling": [CEILING],
    "a floor": [{"name": "cost", "cost": "c", "at_least": 0.4}],
    "a total": [{**CEILING, "at_most": 1.1, "per": "user"}],
    "a total and a floor": [
        {**CEILING, "at_most": 1.1, "per": "user"},
        {"name": "other", "cost": "o", "at_least": 0.3},
    ],
}
WEIGHTS = np.array([0.5, 0.0, 0.2, 0.3])


@pytest.fixture(params=PLANS)
def about(request: pytest.FixtureRequest) -> Campaign:
    return campaign(0.8, PLANS[request.param], horizon_days=3, report_days=(1,))


@pytest.fixture
def fits(about: Campaign) -> list[Fitted]:
    """Four policies on a log where decisions end, pause and are forced, so that x_1 differs between them."""
    log = ragged(3, users=300)
    if len(about.budgets) > 1:
        log = type(log)(
            **{**vars(log), "outcome": np.column_stack([log.outcome, np.flip(log.outcome[:, 1])]), "campaign": about}
        )
    else:
        log = type(log)(**{**vars(log), "campaign": about})
    panel = Panel.of(log, CERTIFY)
    assert panel.state is not None
    rng = np.random.default_rng(0)
    policies = [np.zeros(3, np.intp), np.ones(3, np.intp), *rng.integers(0, 2, (2, 3))]
    return [fit(panel, CountedBasis(panel.state, 3, 2), policy[panel.state], days=(1, 3)) for policy in policies]


def covariance(influence: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.atleast_2d(np.cov(influence.T)) / len(influence)


def columns(fitted: Fitted, about: Campaign) -> list[int]:
    total = any(budget.per == "user" for budget in about.budgets)
    names = ["reward@3" if total else "reward"]
    names += [b.name if b.per == "decision" else f"{b.name}@3" for b in about.budgets]
    return [fitted.column(name) for name in (*names, "decisions")]


def test_values_and_covariances_are_those_of_the_influence_functions(fits: list[Fitted], about: Campaign) -> None:
    points, places = Points.of(fits, about), columns(fits[0], about)
    assert len(points) == len(fits)
    assert points.users == 300
    np.testing.assert_allclose(points.value, [fitted.value[places] for fitted in fits], rtol=0, atol=1e-12)
    for i, one in enumerate(fits):
        for j, other in enumerate(fits):
            both = covariance(np.column_stack([one.influence[:, places], other.influence[:, places]]))
            across = both[: len(places), len(places) :]
            np.testing.assert_allclose(points.covariance[i, :, j], across, rtol=0, atol=1e-12)
    assert np.abs(points.covariance).max() > 1e-6


def test_a_mixture_is_that_of_the_influence_functions(fits: list[Fitted], about: Campaign) -> None:
    """`combine` adds influence up user by user; the points never saw a user."""
    whole, places = combine(fits, WEIGHTS), columns(fits[0], about)
    value, found = Points.of(fits, about).mixture(WEIGHTS)
    np.testing.assert_allclose(value, whole.value[places], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found, covariance(whole.influence[:, places]), rtol=0, atol=1e-12)


def test_coordinates_and_their_errors_are_those_of_the_units(fits: list[Fitted], about: Campaign) -> None:
    x, errors = Points.of(fits, about).coordinates(about)
    for fitted, value, error in zip(fits, x, errors, strict=True):
        wanted, influence, _ = coordinates(fitted, about)
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-12)
        np.testing.assert_allclose(error, std_error(influence), rtol=0, atol=1e-12)


def test_a_mixture_is_shown_as_the_units_show_it(fits: list[Fitted], about: Campaign) -> None:
    whole = combine(fits, WEIGHTS)
    shown = displayed(whole, about)
    names = [whole.targets[columns(whole, about)[0]], *(budget.name for budget in about.budgets)]
    value, error = Points.of(fits, about).shown(WEIGHTS, about)
    places = [shown.column(name) for name in names]
    np.testing.assert_allclose(value, shown.value[places], rtol=0, atol=1e-12)
    np.testing.assert_allclose(error, shown.std_error[places], rtol=0, atol=1e-12)


def test_weights_are_solved_on_costs_raised_by_each_policys_margin(fits: list[Fitted], about: Campaign) -> None:
    points, scale = Points.of(fits, about), np.ones(len(about.budgets))
    margin = points.margins(about, factor=2.7, certify_users=150)
    solution = points.solve(points.value[:, 0], about, scale, margin)
    raised, limits = [], np.empty(0)
    for fitted, found in zip(fits, margin, strict=True):
        x, influence, limits = coordinates(fitted, about)
        certifying = Spread.of(influence[:, 1:]).scaled(150)
        wanted = margins(std_error(influence)[1:], certifying, factor=2.7, margin=about.train.margin)
        per_user = [budget.per == "user" for budget in about.budgets]
        np.testing.assert_allclose(found[per_user], wanted[per_user], rtol=0, atol=1e-12)
        assert (found >= wanted - 1e-12).all(), "of costs per decision the largest influence at any limit is bounded"
        raised.append(x + np.append(0, found))
    best = solve_mixture(np.array(raised), limits, scale)
    assert solution.feasible == best.feasible
    assert solution.weights == pytest.approx(best.weights, abs=1e-9)
    assert solution.duals == pytest.approx(best.duals, abs=1e-9)


def test_margins_rest_on_what_the_certificate_will_see(fits: list[Fitted], about: Campaign) -> None:
    """Measured twice as wide on the certify users, errors to expect there are twice as wide."""
    wide = [type(f)(**{**vars(f), "influence": 2 * f.influence}) for f in fits]
    alike, wider = Points.of(fits, about), Points.of(fits, about, wide)
    assert np.array_equal(alike.covariance, wider.covariance)
    one, two = (points.spread(about).scaled(150) for points in (alike, wider))
    np.testing.assert_allclose(two.error, 2 * one.error, rtol=1e-12)
    np.testing.assert_allclose(two.above(2.7), 2 * one.above(2.7), rtol=1e-9)
    assert alike.factor(about, 0.05) == pytest.approx(wider.factor(about, 0.05), abs=1e-6), "no scale is in it"


def test_the_joint_factor_lies_between_one_policys_and_all_of_them_as_strangers(
    fits: list[Fitted], about: Campaign
) -> None:
    """Costs per decision depend on the limit here, so that one policy alone needs more than a normal quantile."""
    points, per_user = Points.of(fits, about), all(b.per == "user" for b in about.budgets)
    k, alone = points.factor(about, 0.05), points.only(np.array([0])).factor(about, 0.05)
    assert alone < k < norm.isf(0.05 / (4 * len(about.budgets))) + (0 if per_user else 0.5)
    assert alone == pytest.approx(norm.isf(0.05), abs=1e-3) if per_user else alone > norm.isf(0.05) + 0.05


def test_a_policy_that_could_not_be_measured_changes_nothing_for_the_others(
    fits: list[Fitted], about: Campaign
) -> None:
    gone = type(fits[1])(**{**vars(fits[1]), "value": fits[1].value * np.nan, "influence": fits[1].influence * np.nan})
    points, whole, others = Points.of([fits[0], gone, *fits[2:]], about), Points.of(fits, about), np.array([0, 2, 3])
    assert np.isnan(points.value[1]).all()
    assert np.array_equal(points.only(others).covariance, whole.only(others).covariance)
    assert points.factor(about, 0.05) == pytest.approx(whole.only(others).factor(about, 0.05), abs=1e-6)
    assert np.array_equal(whole.only(others).value, whole.value[others])
