"""What an evaluation says of one policy: every estimator, its checks, segments, the certificate and the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.estimates import PolicyEstimates, estimate_policy, gain_doubt
from outlay.choosing.evaluated_policy import OLD, EvaluatedPolicy, mixture_of
from outlay.choosing.measure import Measure
from outlay.choosing.run import Run
from outlay.choosing.stored import stored_curve
from outlay.choosing.window import claims_window
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.progress import Progress, within
from outlay.core.reasons import Reason
from outlay.core.target import Target
from outlay.core.transitions import EVERYONE
from outlay.estimators.certificate import LEAST_USERS, Certificate
from outlay.estimators.importance import Weighted
from outlay.estimators.observed import observe, of_some, reproduces
from outlay.estimators.units import objective
from outlay.evaluating.certify import About, certify_alone, certify_frontier, figures_of
from outlay.evaluating.checks import Checks
from outlay.evaluating.constants import beside_constants, constants_of
from outlay.evaluating.diagnostics import daily, matching_paths, overlap, shares
from outlay.evaluating.evaluation import Diagnostics, Evaluation, PairedDifference, SegmentEstimate
from outlay.evaluating.first_days import FirstDays
from outlay.evaluating.grade import grade, sensitivity
from outlay.evaluating.next_test import PlannedTest, plan_settling, plan_test
from outlay.evaluating.randomising import randomising_cost
from outlay.evaluating.ruled_out import ruled_out
from outlay.evaluating.verdict import verdict


def evaluate_policy(
    measure: Measure,
    policy: EvaluatedPolicy,
    campaign: Campaign,
    other: EvaluatedPolicy | None,
    run: Run | None,
    report: Progress,
) -> Evaluation:
    """Evaluate and certify a policy, which counts as a look at the users.

    Args:
        measure: the users and their rows.
        policy: in those rows.
        campaign: with the settings that are to hold.
        other: another policy to compare it with, or None.
        run: the run whose own mixture it is, or None; then the run's other budgets are certified as well.
        report: called with the fraction done and what is being done.
    """
    level = campaign.train.confidence
    report(0.02, "propensities")
    propensity = measure.propensity()
    report(0.1, "the old policy")
    observed, old = observe(measure.panel, days=measure.days), estimate_policy(measure, OLD, propensity)
    report(0.2, "the policy")
    new = estimate_policy(measure, policy, propensity)
    reproduction = reproduces(observed, measure.old_as_observed(old.fitted), measure.state.day_effects)
    behaviour = measure.behaviour_check()
    markov, balance = measure.state.markov_check, measure.state.balance(propensity)
    days = measure.state.day_effects
    by_days = old if days.differ and days.moderate else None
    checks = Checks.of(new, reproduction, behaviour, markov, balance, by_days)
    new, old = checks.with_cautions(new), checks.with_cautions(old)
    report(0.4, "the policies beside it")
    constants, others = constants_of(measure, campaign), []
    if constants is not None:
        whole = constants[1]
        best = replace(OLD, name="constants", title=constants[0].title)
        others.append(PolicyEstimates(best, {"fqe": whole}, {"fqe": [None] * len(whole.targets)}))
    compared = []
    if other is not None:
        estimates = estimate_policy(measure, other, propensity)
        compared.append(
            Checks.of(estimates, reproduction, behaviour, markov, balance, by_days).with_cautions(estimates)
        )
    compared = [checks.with_cautions(each) for each in compared]
    others = [*(checks.with_cautions(each) for each in others), *compared]
    members = [checks.with_cautions(each) for each in _members(measure, policy, propensity)]

    report(0.7, "segments")
    segments = tuple(_segments(measure, new, old, propensity, checks, campaign))
    report(0.8, "the certificate")
    certificate = _certified(measure, new, old, campaign, checks.refused, run, within(report, 0.8, 0.95))
    less = {each.policy.name: new.rows_less(each, campaign, level) for each in [old, *compared]}
    rows = [e for each in [old, *others, *members] for e in each.rows(campaign, level)]
    observations = observed.estimates("old", "observed", confidence=level, cautions=of_some(measure.panel, observed))
    beside, mine = (
        tuple(days.widened(e, level) for e in _shown(each, measure, campaign))
        for each in ([*observations, *rows], new.rows(campaign, level))
    )
    beside_limits = ruled_out([*mine, *beside], campaign)
    yardstick = beside_constants(
        measure,
        new.fitted,
        campaign,
        certificate.confidence,
        second=new.second,
        propensity=propensity,
        reach=measure.reach(policy.parts, policy.weights),
    )
    graded = grade(certificate, yardstick if beside_limits else None, ruled_out=bool(beside_limits))
    course = (*daily("old", old.fitted), *daily(policy.name, new.fitted))
    first_days = FirstDays.of(course, policy.name, campaign, steady=measure.data.steady)
    likely = certificate.gain_likely is not None and certificate.gain_likely > 0
    test = None if graded == "not supported" or not likely else _test(measure, new, old, certificate, campaign, run)
    unsettled = markov.ok is False and campaign.log.history is not None  # without it, that is what to try first
    weighed = new.joints["pdis"]
    assert isinstance(weighed, Weighted)
    return Evaluation(
        subject=policy.name,
        policies={each.policy.name: each.policy.title for each in [old, *others, new, *members]},
        estimates=mine,
        beside=beside,
        differences=tuple(
            PairedDifference(against=name, **asdict(days.widened(e, level)))
            for name, differences in less.items()
            for e in _shown(differences, measure, campaign)
        ),
        segments=segments,
        certificate=certificate,
        confidence=level,
        grade=graded,
        test=test,
        settling=plan_settling(measure.data, campaign, None if run is None else run.bundle) if unsettled else None,
        randomising=None
        if campaign.log.known_assignment
        else randomising_cost(measure, old, propensity, campaign, doubted=checks.refused is not None),
        verdict=verdict(
            [*mine, *beside],
            certificate,
            campaign,
            policy.name,
            constants=yardstick,
            first_days=first_days,
        ),
        diagnostics=Diagnostics(
            propensities=behaviour,
            reproduction=reproduction,
            markov=checks.markov,
            balance=checks.balance,
            days=days,
            path_bias=new.bias(measure.panel.names),
            agreement=checks.agreement,
            paths=matching_paths(weighed, campaign.meta.report_days),
            overlap=overlap(measure, policy, propensity),
            sensitivity=sensitivity(measure, policy, certificate, campaign),
        ),
        notes={"constants": constants[0].words(measure.data)} if constants else {},
        daily=course,
        first_days=first_days,
        shares=shares(measure, policy),
        window=claims_window(measure.data),
        users="all" if measure.split == EVERYONE and measure.data.folds == 1 else "certify",
    )


def _test(
    measure: Measure,
    new: PolicyEstimates,
    old: PolicyEstimates,
    certificate: Certificate,
    campaign: Campaign,
    run: Run | None,
) -> PlannedTest | None:
    """Plan the test of a policy against the old one, from their estimates."""
    before = float(old.fitted.value[old.fitted.column(objective(campaign))])
    gain = None if certificate.gain is None or before <= 0 else certificate.gain / before
    money = campaign.budgets[campaign.money].name
    mine, its = (float(each.fitted.value[each.fitted.column(money)]) for each in (new, old))
    spend = mine / its if its > 0 and np.isfinite(mine) else 1.0
    return plan_test(measure.data, campaign, gain, spend, None if run is None else run.bundle)


def _members(measure: Measure, policy: EvaluatedPolicy, propensity: NDArray[np.float64]) -> list[PolicyEstimates]:
    """Estimate each member of a mixture; for a mixture of folds, each fold's own mixture on its own users."""
    if len(measure.folds) == 1 or policy.name != "mixture":
        return [estimate_policy(measure, part, propensity, estimators=("fqe",)) for part in policy.members()]
    estimates = []
    for k, fold in enumerate(measure.folds):
        own = replace(mixture_of(fold, f"fold {k + 1}, on its users"), name=f"fold {k + 1}")
        estimates.append(estimate_policy(fold, own, propensity[fold.panel.rows], estimators=("fqe",)))
    return estimates


def _certified(
    measure: Measure,
    new: PolicyEstimates,
    old: PolicyEstimates,
    campaign: Campaign,
    refused: Reason | None,
    run: Run | None,
    report: Progress,
) -> Certificate:
    """Certify a policy, which counts as a look: the mixture of a run with every other budget of its frontier."""
    aim = objective(campaign)
    known = [each.cautions["fqe"][each.fitted.column(aim)] for each in (new, old)]
    doubt = gain_doubt(new.fitted, old.fitted, aim, known)
    approximate = run is not None and measure.lags is not None
    about = About(refused, approximate, measure.window, measure.state.day_effects)
    figures = figures_of(measure, new, old, campaign, doubt)
    stored = None if run is None else stored_curve(run)
    if run is None or stored is None or stored.own is None:
        return certify_alone(figures, about, campaign, measure.data, new.policy.identity)
    found = certify_frontier(run, stored, measure.data, campaign, figures, about, report)
    return found.certificate(np.eye(len(stored.weights))[-1], campaign)


def _shown(estimates: Iterable[Estimate], measure: Measure, campaign: Campaign) -> tuple[Estimate, ...]:
    """Leave out the totals that were only needed on the way."""
    names, report_days = measure.panel.names, campaign.meta.report_days
    horizon = {str(Target(b.name, campaign.meta.horizon_days)) for b in campaign.budgets if b.per == "user"}
    beyond = {str(Target(name, k)) for name in names for k in measure.days if k not in report_days}
    return tuple(e for e in estimates if e.target not in beyond - horizon - {objective(campaign)})


def _segments(
    measure: Measure,
    new: PolicyEstimates,
    old: PolicyEstimates,
    propensity: NDArray[np.float64],
    checks: Checks,
    campaign: Campaign,
) -> list[SegmentEstimate]:
    """Estimate the fitted values of each segment's users, and the gain; a segment with few users has no numbers."""
    segment, level = measure.data.users["segment"][measure.data.users_of(measure.split)], campaign.train.confidence
    rows = []
    for s, name in enumerate(measure.data.segments if len(measure.data.segments) > 1 else ()):
        among = segment == s
        users = int(among.sum())
        few = f"{users} of these users are in it; {LEAST_USERS} are needed" if users < LEAST_USERS else None
        mine, its = new, old
        if few is None:
            mine, its = (
                checks.with_cautions(
                    estimate_policy(measure, each.policy, propensity, among=among, estimators=("fqe",))
                )
                for each in (new, old)
            )
        gain = [replace(e, policy="gain") for e in mine.rows_less(its, campaign, level)]
        for e in _shown([*its.rows(campaign, level), *mine.rows(campaign, level), *gain], measure, campaign):
            if e.estimator != "fqe":
                continue
            e = measure.state.day_effects.widened(e, level)
            if few is not None:
                e = Estimate(policy=e.policy, estimator=e.estimator, target=e.target, value=None, withheld=few)
            rows.append(SegmentEstimate(segment=name, users=users, **asdict(e)))
    return rows
