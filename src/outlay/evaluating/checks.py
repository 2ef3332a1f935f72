"""The checks that an evaluation has to pass, and what follows where it fails one.

    assignment     it is known how the log's actions were drawn
    propensities   the behaviour model fits the log, where propensities are not logged
    reproduction   the fitted evaluation of the old policy reproduces its observed totals
    state          given state and action, a user's earlier days say no more about what follows
    balance        given the state, the old policy's actions do not depend on what users did before, nor on the
                   calendar or another column of the log
    agreement      other estimators, some of which assume less, do not contradict the fitted evaluation of the policy
    past           the policy reads no more of the past than the state holds
    sharing        no budget depends on how many others get something

A check is a function from what is judged to a `CheckResult` (`check_result.py`): whether it was passed, why not
(`core/reasons.py`), and what that speaks against. A figure that something speaks against is shown, but not recommended.
What speaks against the certificate keeps it from being issued; the kind of the reason says whether bounds are still
told.

If the fitted evaluation does not give the old policy's totals back, marginalised importance sampling is not recommended
either, because it needs the same state. A behaviour model that does not fit makes every estimator that needs
propensities not recommended. Where states are not counted, agreement that could not be checked does not count as
passed: nothing is certified on one assumption alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from outlay.choosing.estimates import PolicyEstimates
from outlay.choosing.estimators import ESTIMATORS, Estimator
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.agreement import ONE_STEP, Agreement, agree
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.behaviour.check import BehaviourCheck
from outlay.estimators.markov import MarkovCheck
from outlay.estimators.observed import Reproduction, reproduces
from outlay.evaluating.check_result import Against, Check, CheckResult, Judged

AS_LOGGED = "as logged; they were compared with the log when it was prepared"
D = TypeVar("D", Agreement, BalanceCheck, BehaviourCheck, MarkovCheck, Reproduction)


def _assignment(judged: Judged) -> CheckResult | None:
    if judged.measure.data.campaign.log.known_assignment:
        return None
    return _uncertified(Reason(ReasonKind.UNASSIGNED))


def _uncertified(reason: Reason) -> CheckResult:
    """What keeps a certificate back, and takes nothing from a figure."""
    return CheckResult(ok=False, words=reason.words, reason=reason, against=(Against.CERTIFICATE,))


def _propensities(judged: Judged) -> CheckResult:
    return of_behaviour(judged.measure.behaviour_check)


def of_behaviour(found: BehaviourCheck | None) -> CheckResult:
    """Return what the fit of the behaviour model means; None: propensities are as logged."""
    if found is None:
        return CheckResult(ok=True, words=AS_LOGGED)
    reason = None if found.ok else Reason(ReasonKind.MISFIT)
    return CheckResult(ok=found.ok, words=found.words, reason=reason, against=(Against.WEIGHTS,), detail=found)


def _reproduction(judged: Judged) -> CheckResult:
    measure = judged.measure
    fitted = measure.old_as_observed(judged.old.fitted)
    return of_state(reproduces(judged.observed, fitted, measure.state.day_effects))


def _state(judged: Judged) -> CheckResult:
    return of_state(judged.measure.state.markov_check)


def of_state(found: Reproduction | MarkovCheck) -> CheckResult:
    """Return what it means whether the state, and what is fitted on it, is enough."""
    against = (Against.CERTIFICATE, Against.FITTED, Against.STATE, Against.OLD)
    return CheckResult(ok=found.ok, words=found.words, reason=found.refused, against=against, detail=found)


def _balance(judged: Judged) -> CheckResult:
    return of_balance(judged.measure.state.balance(judged.propensity))


def of_balance(found: BalanceCheck) -> CheckResult:
    """Return what it means whether actions depend on the past: nothing for an old policy that needs no weights."""
    against = (
        (Against.CERTIFICATE, Against.FITTED, Against.WEIGHTS)
        if found.driven
        else (Against.CERTIFICATE, Against.DAILY, Against.WEIGHTS, Against.OLD)
    )
    return CheckResult(ok=found.ok, words=found.words, reason=found.refused, against=against, detail=found)


def _agreement(judged: Judged) -> CheckResult:
    days = judged.measure.state.day_effects
    old = judged.old if days.differ and days.moderate else None
    return of_agreement(agreement_of(judged.new, judged.measure.behaviour_check, old))


def of_agreement(found: Agreement) -> CheckResult:
    """Return what it means whether estimators agree: what was not checked takes nothing from what was observed."""
    old = (Against.OLD,) if found.finding.kind is ReasonKind.CONTRADICTED else ()
    against = (Against.CERTIFICATE, Against.FITTED, *old)
    ok = None if found.ok and not found.differences else found.ok
    return CheckResult(ok=ok, words=found.words, reason=found.reason, against=against, detail=found)


def _past(judged: Judged) -> CheckResult | None:
    if not judged.follows_past or judged.measure.lags is None:
        return None
    return _uncertified(Reason(ReasonKind.APPROXIMATE))


def _sharing(judged: Judged) -> CheckResult | None:
    shared = judged.measure.data.campaign.shared
    if not shared:
        return None
    names, verb = " and ".join(shared), "is" if len(shared) == 1 else "are"
    return _uncertified(Reason(ReasonKind.SHARED, {"budgets": f"{names} {verb}"}))


# In the order in which they are shown. The first that speaks against a figure gives the reason; where something
# withholds the bounds of a certificate, the first of those does.
CHECKS: dict[str, Check] = {
    "assignment": Check(
        question="Is it known how the log's actions were drawn?",
        consequence="so nothing is certified",
        find=_assignment,
    ),
    "propensities": Check(
        question="How likely was the old policy to give what it gave?",
        consequence="so nothing that needs propensities is recommended, and agreement is not checked",
        find=_propensities,
    ),
    "sharing": Check(
        question="Does every budget cost and bring the same however many get something?",
        consequence="so no bound of it holds, and nothing is certified",
        find=_sharing,
    ),
    "reproduction": Check(
        question="Does the fitted evaluation reproduce the old policy's observed totals?",
        consequence="so the fitted evaluation is not recommended, and nothing is certified",
        find=_reproduction,
    ),
    "state": Check(
        question="Given state and action, do a user's earlier days say nothing more?",
        consequence="so the fitted evaluation is not recommended, and nothing is certified",
        find=_state,
    ),
    "balance": Check(
        question="Given the state, is the old policy's action unrelated to what users did before?",
        consequence="so nothing that needs propensities is recommended, and nothing is certified",
        find=_balance,
    ),
    "agreement": Check(
        question="Do the other estimators, some of which assume less, agree with the fitted evaluation?",
        consequence="so the fitted evaluation is not recommended, and nothing is certified",
        find=_agreement,
        each_policy=True,
    ),
    "past": Check(
        question="Does the policy read no more of the past than the state holds?",
        consequence="so nothing is certified",
        find=_past,
        each_policy=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What the checks found of one policy on one split.

    Attributes:
        checks: by name, in the order of the registry; without those whose question does not arise.
    """

    checks: Mapping[str, CheckResult]

    @classmethod
    def of(cls, judged: Judged, known: Checks | None = None) -> Checks:
        """Ask every check; `known` are those of another policy on the same users."""
        found = {
            name: check.find(judged) if known is None or check.each_policy else known.checks.get(name)
            for name, check in CHECKS.items()
        }
        return cls(checks={name: finding for name, finding in found.items() if finding is not None})

    def answered(self, ok: bool | None) -> list[str]:
        """Names of the checks that were passed (True), were not (False), or could not be made (None)."""
        return [name for name, found in self.checks.items() if found.ok is ok]

    def detail(self, kind: type[D]) -> D:
        """Return the figures of this kind.

        Raises:
            LookupError: if there are none.
        """
        for finding in self.checks.values():
            if isinstance(finding.detail, kind):
                return finding.detail
        raise LookupError(kind.__name__)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What stands against a certificate."""
        found = self.checks.values()
        return tuple(each.reason for each in found if each.reason is not None and Against.CERTIFICATE in each.against)

    def with_cautions(self, estimates: PolicyEstimates) -> PolicyEstimates:
        """Return the estimates of a policy with the cautions that follow from the checks."""
        for name in estimates.joints:
            for finding in self.checks.values():
                if finding.reason is not None and _speaks_against(finding, ESTIMATORS[name], estimates):
                    estimates = estimates.with_caution(name, finding.reason)
        return estimates


def _speaks_against(finding: CheckResult, estimator: Estimator, estimates: PolicyEstimates) -> bool:
    against, old = finding.against, estimates.policy.name == "old"
    if estimator.fitted:
        doubted = Against.FITTED in against or (estimates.by_day and Against.DAILY in against)
        return doubted and (Against.OLD in against or not old)
    weighted = estimator.needs_propensities and Against.WEIGHTS in against and not old  # whose weights are all 1
    return weighted or (estimator.needs_state and Against.STATE in against)


def agreement_of(
    estimates: PolicyEstimates, behaviour: BehaviourCheck | None, old: PolicyEstimates | None = None
) -> Agreement:
    """Check that other estimators agree with the fitted evaluation of a policy.

    Args:
        estimates: of the policy.
        behaviour: the fit of the behaviour model; None where propensities are as logged.
        old: estimates of the log's own policy, where days differ.
    """
    if behaviour is not None and not behaviour.ok:
        confirmed = estimates.steps is None and not estimates.by_day
        kind = ReasonKind.NOT_COMPARED if confirmed else ReasonKind.NOT_CHECKED
        return Agreement(Reason(kind, {"found": Reason(ReasonKind.MISFIT)}), ())
    others = {
        name: (joint, estimates.cautions[name]) for name, joint in estimates.joints.items() if ESTIMATORS[name].checks
    }
    # Single steps do not need the basis.
    assume_less = (*(name for name in others if ESTIMATORS[name].assumes_less), ONE_STEP)
    before = None if old is None else old.joints
    return agree(estimates.fitted, others, estimates.steps, estimates.vague, assume_less=assume_less, old=before)
