"""What an evaluation says of one policy: every estimator, its checks, segments, the certificate and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.allowances import allowances_of
from outlay.choosing.estimates import PolicyEstimates, estimate_policy, gain_doubt
from outlay.choosing.evaluated_policy import OLD, EvaluatedPolicy, mixture_of
from outlay.choosing.measure import Measure
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier, stored_curve
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate, Target
from outlay.core.progress import Progress, within
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import EVERYONE
from outlay.estimators.allowances import allow
from outlay.estimators.band import About, MixtureFigures
from outlay.estimators.certificate import Certificate
from outlay.estimators.importance import Weighted
from outlay.estimators.joint import Joint
from outlay.estimators.observed import observe, of_some
from outlay.estimators.units import objective
from outlay.estimators.windowed import claims_window
from outlay.evaluating.certify import (
    bounds_of_totals,
    certify_alone,
    certify_run,
    figures_of,
    keep_totals,
    over_days,
)
from outlay.evaluating.check_result import Judged
from outlay.evaluating.checks import Checks
from outlay.evaluating.constants import AgainstConstants, Constants, beside_constants, constants_of
from outlay.evaluating.diagnostics import ActionShare, daily, matching_paths, missing_days, overlap, shares
from outlay.evaluating.evaluation import Diagnostics, Evaluation, PairedDifference, SegmentEstimate
from outlay.evaluating.first_days import FirstDays
from outlay.evaluating.grade import grade, sensitivity
from outlay.evaluating.holding import holding_of
from outlay.evaluating.next_test import PlannedTest, plan_settling, plan_test
from outlay.evaluating.randomising import RandomisingCost, randomising_cost
from outlay.evaluating.ruled_out import ruled_out
from outlay.evaluating.totalling import PerUser, by_day, days_told, other_budgets, segment_totals, totals_of
from outlay.evaluating.totals import BudgetTotals, DecisionTotals
from outlay.evaluating.verdict import verdict
from outlay.ops.intervals import LEAST_USERS


class _Estimated(NamedTuple):
    """Every policy of an evaluation, with the cautions that follow from the checks.

    Attributes:
        propensity: `[n]` of the logged action in each row.
        observed: what was observed of the old policy.
        old: the log's own policy.
        new: the evaluated one.
        constants: the best constant actions within the limits, or None.
        given: what they are, or None.
        compared: the policy it is compared with, or None.
        members: of the evaluated one.
    """

    propensity: NDArray[np.float64]
    observed: Joint
    old: PolicyEstimates
    new: PolicyEstimates
    constants: PolicyEstimates | None
    given: Constants | None
    compared: PolicyEstimates | None
    members: list[PolicyEstimates]

    @property
    def beside(self) -> list[PolicyEstimates]:
        """All but the evaluated policy, in the order of the tables."""
        return [each for each in self.every if each is not self.new]

    @property
    def every(self) -> list[PolicyEstimates]:
        """All of them, in the order of the tables."""
        others = [each for each in (self.constants, self.compared) if each is not None]
        return [self.old, *others, self.new, *self.members]


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
    level, bundle = campaign.train.confidence, None if run is None else run.bundle
    found, checks = _estimated(measure, policy, other, campaign, run, report)
    old, new = found.old, found.new
    report(0.7, "segments")
    segments = tuple(_segments(measure, new, old, found.propensity, checks, campaign))
    report(0.8, "the certificate")
    stored = None if run is None else stored_curve(run)
    given = shares(measure, policy)
    certificate = _certified(measure, new, old, campaign, checks, stored)
    mine, beside, differences = _tables(measure, found, campaign)
    yardstick = _yardstick(measure, new, found.propensity, campaign, certificate.confidence)
    broken = bool(ruled_out([*mine, *beside], campaign))
    graded = grade(certificate, yardstick if broken else None, ruled_out=broken)
    course = (*daily("old", old.fitted), *daily(policy.name, new.fitted))
    first_days = FirstDays.of(course, policy.name, campaign, steady=measure.data.steady)
    return Evaluation(
        subject=policy.name,
        policies={each.policy.name: each.policy.title for each in found.every},
        estimates=mine,
        beside=beside,
        differences=differences,
        segments=segments,
        certificate=certificate,
        confidence=level,
        grade=graded,
        test=_test(measure, new, old, certificate, campaign, bundle) if graded != "not supported" else None,
        settling=plan_settling(measure.data, campaign, bundle) if _unsettled(measure, campaign) else None,
        randomising=_randomising(measure, found, campaign, checks),
        verdict=verdict(
            [*mine, *beside],
            certificate,
            campaign,
            policy.name,
            constants=yardstick,
            whole=None if found.given is None or found.given.missed else found.given.words(measure.data),
            first_days=first_days,
        ),
        diagnostics=_diagnostics(measure, policy, found, checks, certificate, campaign),
        notes={} if found.given is None else {"constants": found.given.words(measure.data)},
        daily=course,
        first_days=first_days,
        holding=None if run is None else holding_of(stored, campaign, certificate.gain),
        shares=given,
        window=claims_window(measure.data),
        users="all" if measure.split == EVERYONE and measure.data.folds == 1 else "certify",
        totals=_totals(measure, found, campaign, checks, certificate, segments, given, stored, within(report, 0.85, 1)),
    )


def _estimated(
    measure: Measure,
    policy: EvaluatedPolicy,
    other: EvaluatedPolicy | None,
    campaign: Campaign,
    run: Run | None,
    report: Progress,
) -> tuple[_Estimated, Checks]:
    """Estimate every policy, and check what the estimates rest on."""
    report(0.02, "propensities")
    propensity = measure.propensity()
    report(0.1, "the old policy")
    observed, old = observe(measure.panel, days=measure.days), estimate_policy(measure, OLD, propensity)
    report(0.2, "the policy")
    new = estimate_policy(measure, policy, propensity)
    judged = Judged(measure, new, old, observed, propensity, follows_past=run is not None)
    checks = Checks.of(judged)
    report(0.4, "the policies beside it")
    constants = compared = None
    if (best := constants_of(measure, campaign)) is not None:
        own = replace(OLD, name="constants", title=best[0].title)
        constants = PolicyEstimates(own, {"fqe": best[1]}, {"fqe": [None] * len(best[1].targets)})
    if other is not None:
        compared = estimate_policy(measure, other, propensity)
        compared = Checks.of(judged._replace(new=compared), checks).with_cautions(compared)
    found = _Estimated(
        propensity,
        observed,
        checks.with_cautions(old),
        checks.with_cautions(new),
        None if constants is None else checks.with_cautions(constants),
        best[0] if best else None,
        None if compared is None else checks.with_cautions(compared),
        [checks.with_cautions(each) for each in _members(measure, policy, propensity)],
    )
    return found, checks


def _tables(
    measure: Measure, found: _Estimated, campaign: Campaign
) -> tuple[tuple[Estimate, ...], tuple[Estimate, ...], tuple[PairedDifference, ...]]:
    """The estimates of the policy, those of the policies beside it, and its differences from them, as they are told."""
    level, new, allowances = campaign.train.confidence, found.new, allowances_of(measure)

    def shown(estimates: Iterable[Estimate]) -> tuple[Estimate, ...]:
        return tuple(allow(allowances, e, level) for e in _shown(estimates, measure, campaign))

    observed = found.observed.estimates(
        "old", "observed", confidence=level, cautions=of_some(measure.panel, found.observed)
    )
    mine = shown(new.rows(campaign, level))
    beside = shown([*observed, *(e for each in found.beside for e in each.rows(campaign, level))])
    against = [each for each in (found.old, found.compared) if each is not None]
    differences = [(each.policy.name, e) for each in against for e in shown(new.rows_less(each, campaign, level))]
    return mine, beside, tuple(PairedDifference(against=name, **e.as_fields()) for name, e in differences)


def _yardstick(
    measure: Measure, new: PolicyEstimates, propensity: NDArray[np.float64], campaign: Campaign, confidence: float
) -> AgainstConstants | None:
    """The policy beside the best constant actions at its own spend."""
    return beside_constants(
        measure,
        new.fitted,
        campaign,
        confidence,
        second=new.second,
        propensity=propensity,
        reach=measure.reach(new.policy.parts, new.policy.weights),
    )


def _diagnostics(
    measure: Measure,
    policy: EvaluatedPolicy,
    found: _Estimated,
    checks: Checks,
    certificate: Certificate,
    campaign: Campaign,
) -> Diagnostics:
    weighed = found.new.joints["pdis"]
    assert isinstance(weighed, Weighted)
    return Diagnostics(
        checks=checks.checks,
        days=measure.state.day_effects,
        path_bias=found.new.bias(campaign.told_outcomes),
        paths=matching_paths(weighed, campaign.meta.report_days),
        overlap=overlap(measure, policy, found.propensity),
        sensitivity=sensitivity(measure, policy, certificate, campaign),
        missing_days=missing_days(measure.panel),
    )


def _unsettled(measure: Measure, campaign: Campaign) -> bool:
    """Whether the state is not enough even with summaries of the past; without these, they are to be tried first."""
    return measure.state.markov_check.ok is False and campaign.log.history is not None


def _randomising(measure: Measure, found: _Estimated, campaign: Campaign, checks: Checks) -> RandomisingCost | None:
    """What it costs to draw some actions at random, where it is not known how they were drawn."""
    if campaign.log.known_assignment:
        return None
    doubted = any(reason.withholds for reason in checks.reasons)
    return randomising_cost(measure, found.old, found.propensity, campaign, doubted=doubted)


def _test(
    measure: Measure,
    new: PolicyEstimates,
    old: PolicyEstimates,
    certificate: Certificate,
    campaign: Campaign,
    bundle: Path | None,
) -> PlannedTest | None:
    """Plan the test of a policy against the old one, from their estimates; None where no gain is likely."""
    if certificate.gain_likely is None or certificate.gain_likely <= 0:
        return None
    before = float(old.fitted.value[old.fitted.column(objective(campaign))])
    gain = None if certificate.gain is None or before <= 0 else certificate.gain / before
    money = campaign.budgets[campaign.money].name
    mine, its = (float(each.fitted.value[each.fitted.column(money)]) for each in (new, old))
    spend = mine / its if its > 0 and np.isfinite(mine) else 1.0
    return plan_test(measure.data, campaign, gain, spend, bundle)


def _members(measure: Measure, policy: EvaluatedPolicy, propensity: NDArray[np.float64]) -> list[PolicyEstimates]:
    """Estimate each member of a mixture; for a mixture of folds, each fold's own mixture on its own users."""
    if len(measure.folds) == 1 or policy.name != "mixture":
        return [estimate_policy(measure, part, propensity, estimators=("fqe",)) for part in policy.members()]

    def of(fold: Measure) -> PolicyEstimates:
        own = mixture_of(fold, "")
        return estimate_policy(fold, own, propensity[fold.panel.rows], estimators=("fqe",))

    return [
        replace(each, policy=replace(each.policy, name=f"fold {k}", title=f"fold {k}, on its users"))
        for k, each in enumerate(measure.side_by_side(of), 1)
    ]


def _certified(
    measure: Measure,
    new: PolicyEstimates,
    old: PolicyEstimates,
    campaign: Campaign,
    checks: Checks,
    stored: StoredFrontier | None,
) -> Certificate:
    """Certify a policy, which counts as a look: the mixture of a run with every other budget of its frontier."""
    about = About(checks.reasons, measure.window, allowances_of(measure))
    figures = _figures(measure, new, old, campaign)
    if stored is None:
        return certify_alone(figures, about, campaign, measure.data, new.policy.identity)
    return certify_run(stored, new.policy.identity, measure.data, campaign, figures, about)


def _figures(measure: Measure, new: PolicyEstimates, old: PolicyEstimates, campaign: Campaign) -> MixtureFigures:
    """What a certificate of the policy rests on, with why its gain is not to be relied on."""
    aim = objective(campaign)
    known = [each.cautions["fqe"][each.fitted.column(aim)] for each in (new, old)]
    return figures_of(measure, new, old, campaign, gain_doubt(new.fitted, old.fitted, aim, known))


def _totals(
    measure: Measure,
    found: _Estimated,
    campaign: Campaign,
    checks: Checks,
    certificate: Certificate,
    segments: Sequence[SegmentEstimate],
    given: Sequence[ActionShare],
    stored: StoredFrontier | None,
    report: Progress,
) -> DecisionTotals | None:
    """Totals for all users, with their days, segments and other budgets; None where no total is given."""
    new, old = found.new, found.old
    per_user = PerUser.of(measure, new, old, campaign)
    if (days := days_told(per_user, campaign)) is None:
        return None
    report(0.0, "totals")
    over, about = over_days(campaign, days), About(checks.reasons, measure.window, allowances_of(measure))
    figures = _figures(measure, new, old, over)
    bounds = bounds_of_totals(figures, about, over, certificate.confidence)
    totals = totals_of(per_user, campaign, measure.data, days, bounds)
    totals = replace(totals, segments=segment_totals(segments, given, campaign, totals))
    if bounds.withheld is not None:  # nobody is told what its days and other budgets bring
        return totals
    others: tuple[BudgetTotals, ...] = ()
    if stored is not None:
        keep_totals(stored, days, figures)
        others = other_budgets(stored, measure, campaign, about, totals, within(report, 0.5, 1))
    days_of_both = () if campaign.log.once else by_day(measure, old, new, campaign, totals)
    return replace(totals, by_day=days_of_both, budgets=others)


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
    rows, allowances = [], allowances_of(measure)
    for s, name in enumerate(measure.data.segments if len(measure.data.segments) > 1 else ()):
        among = segment == s
        users = int(among.sum())
        few = None
        if users < LEAST_USERS:
            few = Reason(ReasonKind.FEW_IN_SEGMENT, {"count": users, "needed": LEAST_USERS})
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
            e = allow(allowances, e, level)
            if few is not None:
                e = Estimate(policy=e.policy, estimator=e.estimator, target=e.target, value=None, withheld=few)
            rows.append(SegmentEstimate(segment=name, users=users, **e.as_fields()))
    return rows
