"""One look for all mixtures: no choice of mixture and limit, made with the truth in hand, breaks the confidence."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from logs_in_memory import World, campaign
from numpy.typing import NDArray
from scipy.stats import norm

from outlay.core.campaign import Campaign
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY
from outlay.estimators.band import About, Band, Family, MixtureFigures
from outlay.estimators.basis import CountedBasis
from outlay.estimators.fitted import Evaluator
from outlay.estimators.frontier import Points
from outlay.estimators.panel import Panel
from outlay.evaluating.verdict import VerdictKind, verdict
from outlay.ops import intervals, tabular
from outlay.ops.intervals import LEAST_USERS, critical_value

Array = NDArray[np.float64]

NO_SUPPORT = Reason(ReasonKind.UNSUPPORTED, {"found": "no support"})
COST = {"name": "cost", "cost": "c", "at_most": 1.0}
REACH = {"name": "reach", "cost": "r", "at_least": 0.5}
TOTAL = {**COST, "per": "user"}
ALPHA = 0.05


def points(covariance: Array, value: Array, policies: int, users: int = 500) -> Points:
    """From covariance `[L·T, L·T]` and value `[L·T]`."""
    shape = (policies, len(value) // policies)
    whole = covariance.reshape(shape * 2)
    return Points(value.reshape(shape), whole, whole, users, *normal(*shape))


def normal(policies: int, width: int) -> tuple[Array, Array]:
    """Of errors without skewness."""
    return np.zeros((policies, width - 2, 7)), np.zeros((policies, 3))


def random_covariance(size: int, seed: int, causes: int = 6) -> Array:
    root = np.random.default_rng(seed).normal(size=(causes, size))
    covariance: Array = 1e-4 * (root.T @ root + 0.1 * np.eye(size))
    return covariance


def band(of: Points, about: Campaign, **changes: Any) -> Band:
    withheld = changes.pop("withheld", (None,) * (len(of) - 1))
    against = changes.pop("against", ())
    figures = MixtureFigures(of, changes.pop("second", None), tuple(withheld))
    assert not changes
    return Band.of(figures, About(tuple(against)), about, 1 - ALPHA)


def under(about: Campaign, **limits: float) -> Campaign:
    """With other limits, by the budgets' names."""
    changed = [
        b.model_copy(update={"at_most" if b.sign > 0 else "at_least": limits.get(b.name, b.limit)})
        for b in about.budgets
    ]
    return about.model_copy(update={"budgets": tuple(changed)})


# From logs.


@pytest.mark.slow
def test_from_logs_the_worst_of_all_mixtures_and_limits_is_certified_and_over_in_at_most_five_percent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All 8 policies of a small world, a ceiling and a floor; whoever chooses knows the truth and sees the band."""
    monkeypatch.setattr(intervals, "DRAWS", intervals.CHUNK)  # k to ±0.02
    world, logs = World.drawn(51), 60
    about = campaign(0.8, [COST, REACH])
    policies = np.array(list(product((0, 1), repeat=3)))
    truth = np.array([tabular.measure(world.cmdp, policy) for policy in policies])
    least, most = truth.min(axis=0), truth.max(axis=0)
    found_over = gains_over = 0
    for seed in range(logs):
        log = world.log(300, 5, np.random.default_rng([seed, 3]))
        log = replace(log, outcome=np.column_stack([log.outcome, log.outcome[:, 0]]), campaign=about)
        panel = Panel.of(log, CERTIFY)
        state = np.asarray(panel.state)
        evaluator = Evaluator(panel, CountedBasis(state, 3, 2))
        found = band(Points.of([evaluator.fit(policy[state]) for policy in policies] + [evaluator.fit()], about), about)
        x = found.points.coordinates(about)[0][:-1, 1:]
        bound = x + found.points.spread(about).above(found.factor)[:-1]  # of cost, and of −reach
        over = np.array([truth[:, 1], -truth[:, 0]]).T - bound
        worst, j = np.unravel_index(over.argmax(), over.shape)
        if over[worst, j] > 0:
            between = bound[worst, j] + over[worst, j] / 2
            limits = under(about, cost=between if j == 0 else most[1] + 9, reach=-between if j == 1 else least[0] - 9)
            assert found.certificate(np.eye(8)[worst], limits).certified, "and its truth is over"
            found_over += 1
        least_gain = [found.certificate(weights, about).gain_bound or 0.0 for weights in np.eye(8)]
        gains_over += bool((np.array(least_gain) > truth[:, 0] - world_old(world)).any())
    noise = 2 * np.sqrt(ALPHA * (1 - ALPHA) / logs)
    assert 0.01 <= found_over / logs <= ALPHA + noise
    assert gains_over / logs <= ALPHA + noise


def world_old(world: World) -> float:
    """Value of the log's policy."""
    model, mix = world.cmdp, world.behaviour
    step, reward = np.einsum("sa,sat->st", mix, model.transition), (mix * model.reward).sum(axis=1)
    return float((1 - model.discount) * model.start @ np.linalg.solve(np.eye(3) - model.discount * step, reward))


# From Gaussian errors, where any number of draws is cheap.


@pytest.mark.parametrize("budgets", [[COST], [COST, REACH], [TOTAL]])
@pytest.mark.parametrize("steady", [True, False])
def test_no_mixture_at_any_limit_is_certified_and_over_more_often_than_it_may(
    budgets: list[dict[str, Any]], steady: bool
) -> None:
    """All limits from 0 up, on a grid: where policies differ in how often they decide, each limit has its own bound."""
    about, policies, draws = campaign(0.8, budgets, horizon_days=3), 6, 4000
    numbers = 2 + len(budgets)
    covariance = random_covariance(policies * numbers, 1)
    truth = np.tile([0.5, *(b.limit for b in about.budgets), 0.8], policies)
    if steady:
        places = np.arange(numbers - 1, policies * numbers, numbers)
        truth[places], covariance[places], covariance[:, places] = 1.0, 0.0, 0.0
    errors = np.random.default_rng(2).multivariate_normal(np.zeros(len(truth)), covariance, size=draws)
    k = points(covariance, truth, policies).factor(about, ALPHA)
    limits = [1.0] if steady or about.budgets[0].per == "user" else np.tan(np.linspace(0, np.pi / 2 - 1e-6, 60))
    broken = np.zeros(draws, np.bool_)
    for j, budget in enumerate(about.budgets):
        for limit in limits:
            direction = np.zeros(numbers)
            direction[1 + j] = budget.sign
            direction[-1] = -budget.sign * limit if budget.per == "decision" else 0
            matrix = np.kron(np.eye(policies), direction)
            spread = np.sqrt(np.einsum("lt,tu,lu->l", matrix, covariance, matrix))
            broken |= (errors @ matrix.T > k * spread).any(axis=1)
    assert broken.mean() == pytest.approx(ALPHA, abs=3 * np.sqrt(ALPHA / draws))


def test_a_mixture_is_bounded_by_its_members_bounds_whatever_its_own_error() -> None:
    about = campaign(0.8, [COST, REACH])
    found = band(points(random_covariance(20, 3), np.tile([0.5, 0.9, 0.6, 1.0], 5), 5), about)
    x, errors = found.points.coordinates(about)
    weights = np.array([0.2, 0.0, 0.5, 0.3])
    got = found.certificate(weights, about)
    reach = weights @ (x[:4, 1:] + found.factor * errors[:4, 1:])
    assert [line.bound for line in got.budgets] == pytest.approx(reach * [1, -1])
    assert [line.floor for line in got.budgets] == [False, True]
    assert (got.policies, got.users, got.confidence) == (4, 500, 0.95)
    both = band(points(random_covariance(20, 3), np.tile([0.5, 0.9, 0.6, 1.0], 5), 5), campaign(0.8, [COST]))
    assert norm.isf(ALPHA) < both.factor < found.factor, "two budgets need more than one"
    json.dumps(got.to_dict(), allow_nan=False)


def test_a_policy_that_costs_nothing_for_certain_has_a_bound_of_nothing_and_makes_others_no_wider() -> None:
    about, covariance = campaign(0.8, [COST]), random_covariance(12, 4)
    covariance[[1, 2]] = covariance[:, [1, 2]] = 0
    value = np.tile([0.5, 0.9, 1.0], 4)
    value[1] = 0
    found = band(points(covariance, value, 4), about)
    (line,) = found.certificate(np.array([1.0, 0, 0]), under(about, cost=0.0)).budgets
    assert (line.bound, line.kept) == (0.0, True)
    alone = points(covariance[3:9, 3:9], value[3:9], 2).factor(about, ALPHA)
    assert found.factor == pytest.approx(alone, abs=0.01)


def test_gains_are_a_family_of_their_own_paired_with_the_old_policy() -> None:
    about, covariance = campaign(0.8, [COST]), random_covariance(12, 5)
    value = np.tile([0.5, 0.9, 1.0], 4) + np.arange(12) / 100
    found = band(points(covariance, value, 4), about)
    less = np.hstack([np.eye(3), -np.ones((3, 1))]) @ covariance[::3, ::3] @ np.hstack([np.eye(3), -np.ones((3, 1))]).T
    k = critical_value(less, ALPHA)
    weights = np.array([0.25, 0.75, 0.0])
    gain = value[:9:3] - value[9]
    got = found.certificate(weights, about)
    assert got.gain == pytest.approx(weights @ gain)
    assert got.gain_bound == pytest.approx(weights @ (gain - k * np.sqrt(np.diag(less))))


def test_what_could_not_be_measured_certifies_nothing_and_hinders_no_other_mixture() -> None:
    about, covariance, value = campaign(0.8, [COST]), random_covariance(12, 6), np.tile([0.5, 0.9, 1.0], 4)
    value[3:6] = np.nan
    covariance[3:6] = covariance[:, 3:6] = 0
    found = band(
        points(covariance, value, 4),
        about,
        withheld=(None, NO_SUPPORT, None),
    )
    roomy = under(about, cost=9.0)
    assert found.certificate(np.array([0.5, 0.0, 0.5]), roomy).certified
    missing = found.certificate(np.array([0.5, 0.5, 0.0]), roomy)
    assert missing.reason == NO_SUPPORT
    assert (missing.certified, missing.budgets[0].value, missing.budgets[0].bound) == (False, None, None)
    assert missing.gain_bound is None
    mixture = [e for e in found.estimates(np.array([0.5, 0.5, 0.0]), about) if e.policy == "mixture"]
    assert {e.withheld for e in mixture} == {NO_SUPPORT}
    json.dumps(missing.to_dict(), allow_nan=False)


def test_a_limit_without_a_bound_since_nothing_that_assumes_less_was_measured_names_that_as_its_reason() -> None:
    about, given = campaign(0.8, [COST]), points(random_covariance(6, 6), np.tile([0.5, 0.9, 1.0], 2), 2)
    less = points(np.zeros((6, 6)), np.array([np.nan, np.nan, np.nan, 0.5, 0.9, 1.0]), 2)
    found = band(given, about, second=less, withheld=(NO_SUPPORT,)).certificate(np.ones(1), under(about, cost=9.0))
    assert found.budgets[0].value is not None
    assert found.budgets[0].bound is None
    assert found.reason == NO_SUPPORT
    assert NO_SUPPORT.words in found.words


def test_a_policy_that_is_not_believed_certifies_nothing_though_it_was_measured() -> None:
    """Its figures keep the limit by far, but another estimator contradicts them: table and verdict say the same."""
    about, given = campaign(0.8, [COST]), points(random_covariance(12, 6), np.tile([0.5, 0.9, 1.0], 4), 4)
    doubt = Reason(ReasonKind.NOT_CHECKED, {"found": "the log rarely did what the policy does"})
    found = band(given, about, withheld=(None, doubt, None))
    roomy = under(about, cost=9.0)
    assert found.certificate(np.array([0.5, 0.0, 0.5]), roomy).certified
    for weights in (np.array([0.5, 0.5, 0.0]), np.eye(3)[1]):
        got = found.certificate(weights, roomy)
        assert not got.certified
        assert got.reason == doubt
        assert got.withheld == doubt
        assert (got.gain, got.gain_bound, got.budgets[0].bound) == (None, None, None)
        estimates = found.estimates(weights, roomy)
        assert verdict(estimates, got, roomy).kind is VerdictKind.REFUSED
        assert got.reason is not None
        assert got.reason.kind is ReasonKind.NOT_CHECKED
        assert [(e.recommended, e.caution) for e in estimates if e.policy == "mixture"] == [(False, doubt)] * 2
        assert all(e.recommended for e in estimates if e.policy == "old")


def held(about: Campaign) -> Campaign:
    return about.model_copy(update={"train": about.train.model_copy(update={"hold": "serving"})})


def test_a_budget_that_is_held_while_serving_is_claimed_by_no_certificate_and_hinders_none_of_its_figures() -> None:
    """Whether its bound keeps the limit or not: the estimate and its interval are the reason. Other limits stay."""
    of, one = points(random_covariance(12, 6), np.tile([0.5, 0.9, 1.0], 4), 4), np.eye(3)[0]
    for limit in (2.0, 0.9, 0.89):
        about = under(campaign(0.8, [COST]), cost=limit)
        proved, served = (band(of, each).certificate(one, each) for each in (about, held(about)))
        assert proved.certified == (limit == 2.0)
        assert served.reason is not None
        assert (served.certified, served.held, served.withheld) == (False, "cost", None)
        assert replace(served, reason=proved.reason) == proved, "figures and bounds are the same"
        money = next(e for e in band(of, about).estimates(one, about) if e.target == "cost")
        assert served.reason.figures == {
            "budget": "cost",
            "label": "cost",
            "value": money.value,
            "low": money.low,
            "high": money.high,
            "limit": limit,
        }


def test_what_is_surely_and_far_beyond_its_limit_is_not_held() -> None:
    """The cap would serve another mixture than the one whose gain is told."""
    of = points(1e-2 * random_covariance(12, 6), np.tile([0.5, 0.9, 1.0], 4), 4)
    for limit, kind in ((0.83, ReasonKind.HELD), (0.81, ReasonKind.LIMIT)):  # 8 and 11% too much
        about = held(under(campaign(0.8, [COST]), cost=limit))
        found = band(of, about).certificate(np.eye(3)[0], about)
        assert found.reason is not None
        assert found.reason.kind is kind
        assert found.budgets[0].bound is not None


def test_whatever_else_stands_against_a_certificate_comes_before_what_is_held() -> None:
    value = np.tile([0.5, 0.9, 0.55, 1.0], 4)
    about = held(campaign(0.8, [COST, REACH]))
    of, one = points(random_covariance(16, 6), value, 4), np.eye(3)[0]
    assert about.held == (True, False)
    assert band(of, under(about, reach=0.2)).certificate(one, under(about, reach=0.2)).held == "cost"
    floor = band(of, about).certificate(one, under(about, reach=0.56))
    assert floor.reason == Reason(ReasonKind.LIMIT)
    assert (floor.held, [line.kept for line in floor.budgets][1]) == (None, False)
    unknown = Reason(ReasonKind.UNASSIGNED)
    assert band(of, about, against=[unknown]).certificate(one, under(about, reach=0.2)).reason == unknown


def test_where_the_estimator_is_refused_or_users_are_few_nothing_is_certified() -> None:
    about = under(campaign(0.8, [COST]), cost=9.0)
    given = points(random_covariance(12, 7), np.tile([0.5, 0.9, 1.0], 4), 4)
    doubt = Reason(ReasonKind.REPRODUCTION, {"target": "cost@3", "fitted": 1.0, "observed": 2.0})
    refused = band(given, about, against=[doubt]).certificate(np.eye(3)[0], about)
    assert not refused.certified
    assert refused.reason == doubt
    assert refused.gain is None
    few = replace(given, users=LEAST_USERS - 1)
    rare = Reason(ReasonKind.FEW_USERS, {"count": LEAST_USERS - 1, "units": "users", "needed": 30})
    assert band(few, about).certificate(np.eye(3)[0], about).reason == rare


def test_estimates_are_those_of_the_mixture_with_its_own_smaller_error() -> None:
    about = campaign(0.8, [COST, REACH])
    given = points(random_covariance(16, 8), np.tile([0.5, 0.9, 0.6, 0.9], 4), 4)
    weights = np.array([0.5, 0.5, 0.0])
    of = band(given, about)
    found = {(e.policy, e.target): e for e in [*of.old_estimates(about), *of.estimates(weights, about)]}
    value, error = given.shown(np.append(weights, 0), about)
    got = [found["mixture", target] for target in ("reward", "cost", "reach")]
    assert [e.value for e in got] == pytest.approx(value)
    assert [e.std_error for e in got] == pytest.approx(error)
    assert found["old", "cost"].value == pytest.approx(0.9 / 0.9)


def test_a_mixture_chosen_with_the_margin_is_certified_nine_times_in_ten() -> None:
    """Chosen on *select*, certified by the band on *certify*, which has half as many users; a ceiling that binds."""
    about, policies = under(campaign(0.8, [COST]), cost=1.0), 9
    truth = np.column_stack(
        [np.linspace(0.3, 0.6, policies) ** 0.5, np.linspace(0.7, 1.4, policies), np.ones(policies)]
    )
    covariance = random_covariance(3 * policies, 9).reshape((policies, 3) * 2)
    covariance[:, 2] = covariance[:, :, :, 2] = 0
    flat, rng, draws = covariance.reshape(27, 27), np.random.default_rng(10), 400
    factor = Points(truth, covariance, covariance, 1000, *normal(policies, 3)).factor(about, ALPHA)
    certified = 0
    for error, other in rng.multivariate_normal(np.zeros(27), flat, size=(draws, 2)):
        select = Points(truth + error.reshape(policies, 3), covariance, covariance, 1000, *normal(policies, 3))
        margin = select.margins(about, factor=factor, certify_users=500)
        solution = select.solve(select.value[:, 0], about, np.ones(1), margin)
        value = np.vstack([truth + np.sqrt(2) * other.reshape(policies, 3), [0.5, 0.9, 1.0]])
        wide = np.zeros((policies + 1, 3) * 2)
        wide[:policies, :, :policies] = 2 * covariance
        these = Points(value, wide, wide, 500, *normal(len(value), value.shape[1]))
        figures, own = MixtureFigures(these, None, (None,) * policies), Family(these, factor, factor)
        seen = Band(figures, About(), 1 - ALPHA, own, None)
        certified += seen.certificate(solution.weights, about).certified
    assert certified / draws >= 0.9 - 2 * np.sqrt(0.09 / draws)


def test_no_mixture_is_certified_where_a_budget_is_shared() -> None:
    """What it costs at another level than the log's is not known; the figures stand, of the log's own level."""
    covariance, half = random_covariance(3 * 3, 5), np.array([0.5, 0.5])
    about = campaign(0.8, [COST])
    found = points(1e-6 * covariance, np.tile([1.0, 0.1, 1.0], 3), 3)
    one = band(found, about).certificate(half, about)
    shared = Reason(ReasonKind.SHARED, {"budgets": "cost is"})
    other = band(found, about, against=[shared]).certificate(half, about)
    assert one.certified
    assert not other.certified
    assert other.reason == shared
    assert (other.gain, other.gain_bound, other.gain_most, other.gain_likely) == (one.gain, None, None, None)
    assert [(line.value, line.bound, line.kept) for line in other.budgets] == [(one.budgets[0].value, None, False)]


def test_of_every_mixture_the_weaker_of_two_families_of_bounds_counts_whatever_the_order_of_policies() -> None:
    """The first policy costs nothing; of the second an estimate that assumes less says 30% more than the fitted one."""
    about = under(campaign(0.8, [COST]), cost=1.0)
    covariance = random_covariance(9, 4)
    covariance[[1, 2, 5, 8]] = covariance[:, [1, 2, 5, 8]] = 0  # what costs nothing for certain, and decisions
    value = np.array([0.5, 0.0, 1.0, 0.6, 0.9, 1.0, 0.5, 0.8, 1.0])
    less = np.array([0.5, 0.0, 1.0, 0.5, 1.17, 1.0, 0.5, 0.8, 1.0])
    wider = 4 * covariance
    bounds = []
    for order in ([0, 1, 2], [1, 0, 2]):
        places = np.concatenate([3 * i + np.arange(3) for i in order])
        first, second = (
            points(c[np.ix_(places, places)], v[places], 3) for c, v in ((covariance, value), (wider, less))
        )
        found, alone = band(first, about, second=second), band(first, about)
        weights = np.array([0.25, 0.75]) if order[0] == 0 else np.array([0.75, 0.25])
        got, trusting = found.certificate(weights, about), alone.certificate(weights, about)
        (line,) = got.budgets
        assert found.second is not None
        bounds.append(line.bound)
        error = np.sqrt(wider[4, 4])
        assert line.value == pytest.approx(0.75 * 0.9)
        assert line.bound == pytest.approx(0.75 * (1.17 + found.second.factor * error), rel=1e-3)
        assert got.gain_bound is not None
        assert trusting.gain_bound is not None
        assert got.gain_bound < trusting.gain_bound - 0.07
        assert got.gain_most == pytest.approx(trusting.gain_most or 0.0, abs=0.1)
        mixture = {e.target: e for e in found.estimates(weights, about) if e.policy == "mixture"}
        assert mixture["cost"].value == pytest.approx(0.75 * 0.9)
        assert mixture["cost"].high > 0.75 * 1.17  # type: ignore[operator]
    assert bounds[0] == pytest.approx(bounds[1])


def test_an_estimate_that_assumes_less_and_was_withheld_takes_no_interval_away() -> None:
    """A mixture of which only the fitted estimate is known is shown with that one's interval."""
    about = under(campaign(0.8, [COST]), cost=1.0)
    covariance = random_covariance(6, 4)
    first = points(covariance, np.array([0.6, 0.9, 1.0, 0.5, 0.8, 1.0]), 2)
    withheld = np.array([np.nan, np.nan, np.nan, 0.5, 0.8, 1.0])
    found = band(first, about, second=points(covariance, withheld, 2)).estimates(np.ones(1), about)
    alone = band(first, about).estimates(np.ones(1), about)
    assert [(e.low, e.high) for e in found] == [(e.low, e.high) for e in alone]
    assert np.isfinite(np.array([(e.low, e.high) for e in found], np.float64)).all()
