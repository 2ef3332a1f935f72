from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import World, fit
from one_mixture import certify

from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY
from outlay.estimators.basis import CountedBasis
from outlay.estimators.certificate import LIKELY, BudgetBound, Certificate, margins
from outlay.estimators.joint import combine
from outlay.estimators.panel import Panel
from outlay.estimators.units import coordinates
from outlay.ops import tabular
from outlay.ops.intervals import Spread, quantile
from telling import missing

RNG = np.random.default_rng(0)
PSI = RNG.normal(size=(400, 2))
NO_SUPPORT = Reason(ReasonKind.UNSUPPORTED, {"found": "no support"})


REACH = float(Spread.of(PSI[:, 1]).above(quantile(0.95)))
FLOOR = float(Spread.of(-PSI[:, 1]).above(quantile(0.95)))


def issue(cost: float, limit: float, *, sign: int = 1, withheld: Reason | None = None, users: int = 400) -> Certificate:
    return certify(
        [0.5, sign * cost],
        PSI[:users] * [1, sign],
        [sign * limit],
        ["coupon_cost"],
        gain=0.1,
        gain_influence=PSI[:users, 0],
        confidence=0.95,
        signs=[sign],
        withheld=withheld,
    )


def test_it_certifies_below_the_limit_by_more_than_the_error_and_says_by_how_much_it_fails() -> None:
    assert issue(2 - REACH - 0.001, 2.0).words == "certified"
    near = issue(2 - REACH + 0.013, 2.0)
    assert not near.certified
    assert near.reason == Reason(ReasonKind.LIMIT)
    (line,) = near.budgets
    assert (line.budget, line.limit) == ("coupon_cost", 2.0)
    assert line.bound == pytest.approx(2.013)
    assert not missing(near.words, "not certified", "coupon_cost by 0.013", "upper bound 2.013 against 2")


@pytest.mark.parametrize("sign", [1, -1])
def test_costs_that_are_all_at_the_limit_keep_it_whatever_adding_them_up_leaves(sign: int) -> None:
    reach = REACH if sign > 0 else -FLOOR
    assert issue(2 - reach + sign * 2e-10, 2.0, sign=sign).certified
    over = issue(2 - reach + sign * 1e-5, 2.0, sign=sign)
    assert not over.certified
    assert not over.budgets[0].keeps(2 + sign * 1e-5)


@pytest.mark.parametrize(
    ("events", "unbelieved", "told"),
    [
        (0, 0, ("none was seen", "6 of one size", "budget.reserve")),
        (2, 0, ("worth 2 of one size", "6 of one size")),
        (5, 0, ("the largest", "6 of one size")),
        (2, 1234, ("budget.reserve", "1,234 rows")),
    ],
)
def test_how_too_few_events_read(events: int, unbelieved: int, told: tuple[str, ...]) -> None:
    line = BudgetBound(
        budget="c", value=0.1, bound=None, limit=1.0, floor=False, kept=False, events=events, unbelieved=unbelieved
    )
    assert line.words.startswith("c ")
    assert not missing(line.words, *told)


def test_a_floor_is_written_as_in_the_campaign_file() -> None:
    low = issue(10 + FLOOR - 0.5, 10.0, sign=-1)
    assert not missing(low.words, "not certified", "coupon_cost by 0.5", "lower bound 9.5 against 10")
    assert low.budgets[0].value == pytest.approx(10 + FLOOR - 0.5)
    assert issue(10 + FLOOR + 0.01, 10.0, sign=-1).certified


def test_a_withheld_number_or_too_few_users_certify_nothing() -> None:
    missing = issue(float("nan"), 2.0, withheld=NO_SUPPORT)
    assert (missing.certified, missing.reason) == (False, NO_SUPPORT)
    assert (missing.budgets[0].budget, missing.budgets[0].bound) == ("coupon_cost", None)
    assert "(no support)" in missing.words
    assert not issue(0.0, 100.0, users=10).certified
    json.dumps(missing.to_dict(), allow_nan=False)


def test_the_bound_of_the_gain_is_one_sided() -> None:
    assert issue(1.0, 2.0).gain_bound == pytest.approx(0.1 - Spread.of(-PSI[:, 0]).above(1.6449), abs=1e-4)


def test_a_reward_that_could_not_be_measured_takes_no_limit_away() -> None:
    """The gain is unknown, and the certificate says nothing of it."""
    found = certify(
        [np.nan, 1.0],
        PSI,
        [2.0],
        ["coupon_cost"],
        gain=np.nan,
        gain_influence=np.nan * PSI[:, 0],
        confidence=0.95,
        withheld=NO_SUPPORT,
    )
    assert (found.certified, found.reason, found.withheld) == (True, None, None)
    assert (found.gain, found.gain_bound, found.gain_most) == (None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.9, -0.9])
def test_a_mixture_that_is_over_one_of_two_budgets_is_certified_in_at_most_five_percent(correlation: float) -> None:
    """The worst case: one truth just at its limit, the other far below; and both at the limit, which is rarer still."""
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky([[1, correlation], [correlation, 1]])
    for truth, draws in (([2.0, 1.0], 400), ([2.0, 2.0], 150)):
        passed = 0
        for _ in range(draws):
            sample = truth + rng.normal(size=(200, 2)) @ root.T
            mean = sample.mean(axis=0)
            psi = np.column_stack([np.zeros(200), sample - mean])
            passed += certify(
                [0, *mean], psi, [2.0, 2.0], ["a", "b"], gain=0, gain_influence=psi[:, 0], confidence=0.95
            ).certified
        assert passed / draws <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws)
    assert passed / draws <= 0.05


def test_the_margin_lets_nine_of_ten_mixtures_on_the_lowered_limit_be_certified() -> None:
    """Chosen so that the select estimate is just at limit − margin; certified on other users in 90% of draws."""
    rng = np.random.default_rng(2)
    select, certifying = 0.04, 0.06
    spread = Spread(400, np.array([certifying]), np.zeros(1), np.zeros(1))
    lowered = 2.0 - margins([select], spread, factor=quantile(0.95), margin=0.9)[0]
    truth = lowered - select * rng.normal(size=20_000)  # where the truth lies, given what was seen on select
    again = truth + certifying * rng.normal(size=20_000)
    assert np.mean(again + 1.6449 * certifying <= 2.0) == pytest.approx(0.90, abs=0.01)


def test_from_logs_a_mixture_whose_true_cost_is_the_limit_is_certified_in_at_most_five_percent() -> None:
    """The whole way: log, fitted values of two members, mixture, coordinates, certificate; 150 logs."""
    world, weights, logs = World.drawn(51), np.array([0.4, 0.6]), 150
    members = np.array([[0, 1, 0], [1, 1, 1]])
    limit = float(weights @ [tabular.measure(world.cmdp, policy)[1] for policy in members])
    passed = 0
    for seed in range(logs):
        panel = Panel.of(world.log(300, 5, np.random.default_rng([seed, 3])), CERTIFY)
        state = np.asarray(panel.state)
        basis = CountedBasis(state, 3, 2)
        mixture = combine([fit(panel, basis, policy[state]) for policy in members], weights)
        x, psi, _ = coordinates(mixture, panel.data.campaign)
        passed += certify(x, psi, [limit], ["cost"], gain=0, gain_influence=psi[:, 0], confidence=0.95).certified
    assert 0.01 <= passed / logs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / logs)


@pytest.mark.slow
def test_a_shuffled_log_is_called_promising_no_more_often_than_its_confidence_says() -> None:
    """Outcomes that belong to other users: no policy gains. An estimate is above 0 in half of the logs."""
    world, policy, logs = World.drawn(51), np.array([1, 1, 0]), 250
    above = likely = 0
    for seed in range(logs):
        rng = np.random.default_rng([seed, 5])
        data = world.log(300, 5, rng)
        outcome = data.outcome.reshape(300, 5, -1)[rng.permutation(300)]
        panel = Panel.of(replace(data, outcome=np.ascontiguousarray(outcome.reshape(data.outcome.shape))), CERTIFY)
        basis = CountedBasis(np.asarray(panel.state), 3, 2)
        (x, psi, _), (its, other, _) = (
            coordinates(fit(panel, basis, of), panel.data.campaign)
            for of in (policy[np.asarray(panel.state)], np.asarray(panel.action))
        )
        found = certify(
            x, psi, [9.0], ["cost"], gain=x[0] - its[0], gain_influence=psi[:, 0] - other[:, 0], confidence=LIKELY
        )
        assert found.gain is not None
        assert found.gain_bound is not None
        above, likely = above + (found.gain > 0), likely + (found.gain_bound > 0)
    assert 0.4 < above / logs < 0.6
    assert 0.04 < likely / logs <= 1 - LIKELY + 2 * np.sqrt(LIKELY * (1 - LIKELY) / logs)
