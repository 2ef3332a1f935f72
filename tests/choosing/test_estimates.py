"""All estimators of one policy: which targets each has, cautions that spread, differences that are paired."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from outlay.choosing.estimates import PolicyEstimates, estimate_policy
from outlay.choosing.estimators import ESTIMATORS, Question
from outlay.choosing.evaluated_policy import OLD, EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.agreement import Agreement
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.joint import combine
from outlay.estimators.markov import MarkovCheck, PastDependence
from outlay.estimators.observed import Reproduction
from outlay.evaluating.checks import Checks, of_agreement, of_balance, of_state

LEVEL = 0.95
REASON = Reason(ReasonKind.DOUBTED, {"found": "for a reason"})


@pytest.fixture(scope="module")
def at(habit_data: Transitions) -> Measure:
    return Measure(habit_data, CERTIFY, None)


def constant(at: Measure, *actions: int, sure: float = 0.5) -> EvaluatedPolicy:
    """A sticky mixture of policies that give an action with this chance, else any."""
    parts = tuple(np.full((len(at.panel), 11), (1 - sure) / 11) + sure * (np.arange(11) == a) for a in actions)
    weights = np.full(len(actions), 1 / len(actions))
    return replace(OLD, name="policy", parts=parts, features=(0,) * len(parts), weights=weights)


@pytest.fixture(scope="module")
def told(at: Measure) -> PolicyEstimates:
    return estimate_policy(at, constant(at, 2, 6), at.propensity())


def test_every_estimator_tells_the_same_policy(at: Measure, told: PolicyEstimates) -> None:
    assert tuple(told.joints) == tuple(name for name in ESTIMATORS if name != "fqe2")  # states are counted
    rows = told.rows(at.data.campaign, LEVEL)
    assert {e.policy for e in rows} == {"policy"}
    for name in told.joints:
        targets = {e.target for e in rows if e.estimator == name}
        assert ("reward" in targets) == (not ESTIMATORS[name].totals_only)
        assert "decisions" not in targets
        assert {f"{target}@{k}" for target in ("reward", "coupon_cost") for k in (1, 3, 7)} <= targets
    by = {(e.estimator, e.target): e for e in rows}
    fqe = by["fqe", "reward@1"]
    assert fqe.value is not None
    for name in ("dr", "mis", "snpdis", "pdis"):
        e = by[name, "reward@1"]
        assert e.value is not None
        assert e.std_error is not None
        assert abs(e.value - fqe.value) < 4 * e.std_error


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_every_estimator_keeps_the_contract(name: str, at: Measure) -> None:
    """One influence per user, near mean zero; a value or a reason for each target; a mixture is linear in its parts."""
    mixture = constant(at, 2, 6)
    joint = ESTIMATORS[name].estimate(Question(at, mixture, at.propensity(), None))
    if joint is None:
        assert name == "fqe2"  # states are counted
        return
    assert joint.influence.shape == joint.mass.shape == (at.panel.num_users, len(joint.targets))
    given = np.array([reason is None for reason in joint.withheld])
    assert given.any()
    np.testing.assert_array_equal(np.isfinite(joint.value), given)
    assert (np.abs(joint.influence[:, given].mean(axis=0)) <= 0.5 * joint.std_error[given] + 1e-12).all()
    parts = [ESTIMATORS[name].estimate(Question(at, part, at.propensity(), None)) for part in mixture.members()]
    means = np.mean([part.value for part in parts if part is not None], axis=0)
    np.testing.assert_allclose(joint.value[given], means[given], rtol=1e-9)
    assert len(joint.cautions()) == len(joint.targets)
    assert ESTIMATORS[name].title
    assert ESTIMATORS[name].assumes
    assert ESTIMATORS[name].note


def test_a_mixture_is_that_of_its_parts(at: Measure, told: PolicyEstimates) -> None:
    fits = [at.evaluator().fit(part, days=at.days) for part in told.policy.parts]
    assert told.fitted.value == pytest.approx(combine(fits, told.policy.weights).value)
    parts = [estimate_policy(at, part, at.propensity()) for part in told.policy.members()]
    assert [part.policy.name for part in parts] == ["member 0", "member 1"]
    for name in ("dr", "mis", "pdis"):
        whole, mean = told.joints[name].value, np.mean([part.joints[name].value for part in parts], axis=0)
        given = np.isfinite(whole) & np.isfinite(mean)  # together members may carry what one alone cannot
        assert given.sum() >= 2
        assert whole[given] == pytest.approx(mean[given])


def test_what_hardly_any_user_carries_is_withheld_at_all(at: Measure) -> None:
    """Of 900 users hardly one was given the same of 11 coupons for three days."""
    found = set()
    for action in range(11):
        always = EvaluatedPolicy("policy", "", (np.full(len(at.panel), action),), np.ones(1), (0,), "")
        joint = estimate_policy(at, always, at.propensity(), estimators=("snpdis",)).joints["snpdis"]
        assert (joint.ess[np.isfinite(joint.value)] >= 10).all()
        found |= {reason for reason, ess in zip(joint.withheld, joint.ess, strict=True) if 0 < ess < 10}
    assert found == {Reason(ReasonKind.HARDLY_ANY, {"needed": 10.0})}


def test_members_have_no_members(told: PolicyEstimates) -> None:
    parts = told.policy.members()
    assert parts[0].members() == []


def test_a_reason_fills_where_there_is_none(at: Measure, told: PolicyEstimates) -> None:
    doubted = told.with_caution("dr", REASON)
    own = [c for c in told.cautions["dr"] if c]
    assert own
    assert [c for c in doubted.cautions["dr"] if c != REASON] == own
    assert all(doubted.cautions["dr"])
    assert doubted.cautions["mis"] == told.cautions["mis"]
    assert told.with_caution("dr", None) is told
    assert told.with_caution("none", REASON) is told
    for e in doubted.rows(at.data.campaign, LEVEL):
        assert not (e.estimator == "dr" and e.recommended)


def test_a_difference_is_paired_and_relied_on_where_both_are(at: Measure, told: PolicyEstimates) -> None:
    campaign = at.data.campaign
    other = estimate_policy(at, constant(at, 3, 6), at.propensity(), estimators=("fqe", "dr", "pdis"))
    doubted = other.with_caution("fqe", REASON)
    mine = {(e.estimator, e.target): e for e in told.rows(campaign, LEVEL)}
    its = {(e.estimator, e.target): e for e in other.rows(campaign, LEVEL)}
    less = told.rows_less(other, campaign, LEVEL)
    assert {(e.estimator, e.target) for e in less} == set(its)  # only estimators that both have
    for e in less:
        a, b = mine[e.estimator, e.target], its[e.estimator, e.target]
        assert e.policy == "policy"
        assert e.recommended == (a.recommended and b.recommended)
        assert e.withheld == (a.withheld or b.withheld)
        if e.value is not None:
            assert a.value is not None
            assert b.value is not None
            assert e.value == pytest.approx(a.value - b.value)
        if e.estimator == "fqe":
            assert None not in (e.std_error, a.std_error, b.std_error)
            assert e.std_error < 0.6 * math.hypot(a.std_error, b.std_error)  # type: ignore[operator, arg-type]
    assert not any(e.recommended for e in told.rows_less(doubted, campaign, LEVEL) if e.estimator == "fqe")
    for e in told.rows_less(told, campaign, LEVEL):
        assert e.withheld or (e.value, e.std_error) == (0, 0)


def test_a_segment_is_told_by_its_users_alone(at: Measure) -> None:
    """With weights by number the parts add up, in every estimator that takes a part of the users."""
    segment = at.data.users["segment"][at.data.users_of(CERTIFY)]
    subject = constant(at, 2)
    whole = estimate_policy(at, subject, at.propensity(), estimators=("fqe", "mis"))
    parts = [
        (
            float((segment == s).mean()),
            estimate_policy(at, subject, at.propensity(), among=segment == s, estimators=("fqe", "mis")),
        )
        for s in (0, 1)
    ]
    for name in ("fqe", "mis"):
        at_one = whole.joints[name].column("reward@3")
        total = sum(share * part.joints[name].value[at_one] for share, part in parts)
        assert whole.joints[name].value[at_one] == pytest.approx(total, rel=1e-2 if name == "mis" else 1e-9)
    users = [part.joints["fqe"].std_error[0] for _, part in parts]
    assert all(error > whole.joints["fqe"].std_error[0] for error in users)


@pytest.mark.parametrize("kind", [ReasonKind.NOT_CHECKED, ReasonKind.NOT_COMPARED])
def test_what_was_not_checked_of_another_policy_hides_nothing_of_the_old_one(at: Measure, kind: ReasonKind) -> None:
    """It takes nothing from the old policy's figures either; but a state that is not enough does."""
    old = estimate_policy(at, OLD, at.propensity(), estimators=("fqe",))
    enough = MarkovCheck.of([PastDependence("reward", "action", "last day", 0.004, 0.003)], history=False)
    short = MarkovCheck.of([PastDependence("reward", "action", "last day", 0.4, 0.003)], history=False)
    checks = {
        "reproduction": of_state(Reproduction(Reason(ReasonKind.REPRODUCED), ("reward@1",))),
        "state": of_state(enough),
        "balance": of_balance(BalanceCheck.of([], logged=True)),
        "agreement": of_agreement(Agreement(Reason(kind, {"found": "few follow it"}), ())),
    }
    assert set(Checks(checks=checks).with_cautions(old).cautions["fqe"]) == {None}
    assert short.refused is not None
    assert set(Checks(checks=checks | {"state": of_state(short)}).with_cautions(old).cautions["fqe"]) == {short.refused}
