"""The checks that an evaluation has to pass, and what follows where it fails one.

    propensities   the behaviour model fits the log, where propensities are not logged
    reproduction   the fitted evaluation of the old policy gives its observed totals back
    state          given state and action, a user's earlier days say no more about what follows
    balance        given the state, the old policy's actions do not depend on what users did before, nor on the
                   calendar or another column of the log
    agreement      other estimators, some of which assume less, do not contradict the fitted evaluation of the policy

A fitted evaluation that fails a check is shown, but not recommended, and certifies nothing. If it does not give the old
policy's totals back, marginalised importance sampling is not recommended either, because it needs the same state. A
behaviour model that does not fit makes every estimator that needs propensities not recommended. Where states are not
counted, agreement that could not be checked does not count as passed: nothing is certified on one assumption alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlay.choosing.estimates import PolicyEstimates
from outlay.choosing.estimators import ESTIMATORS
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.agreement import ONE_STEP, Agreement, agree
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.behaviour.check import BehaviourCheck
from outlay.estimators.markov import MarkovCheck
from outlay.estimators.observed import Reproduction

MISFIT = "the behaviour model does not fit the log"
AS_LOGGED = "as logged; they were compared with the log when it was prepared"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check, as a table shows it.

    Attributes:
        name: `propensities`, `reproduction`, `state`, `balance` or `agreement`.
        question: what it asks.
        ok: whether it was passed; None if it could not be made.
        words: what was found.
        consequence: what follows if it was not passed.
    """

    name: str
    question: str
    ok: bool | None
    words: str
    consequence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The checks of one policy on one split.

    Attributes:
        propensities: fit of the behaviour model; None where propensities are as logged.
        reproduction: of the old policy's totals.
        markov: whether the state is enough.
        agreement: of the estimators of the policy.
        balance: whether the old policy's actions depend on the past beyond the state.
    """

    propensities: BehaviourCheck | None
    reproduction: Reproduction
    markov: MarkovCheck
    agreement: Agreement
    balance: BalanceCheck

    @classmethod
    def of(
        cls,
        estimates: PolicyEstimates,
        reproduction: Reproduction,
        behaviour: BehaviourCheck | None,
        markov: MarkovCheck,
        balance: BalanceCheck,
        old: PolicyEstimates | None = None,
    ) -> Checks:
        """Check the estimates of a policy; `old` are those of the log's own policy, where days differ."""
        agreement = agreement_of(estimates, behaviour, old)
        return cls(
            propensities=behaviour, reproduction=reproduction, markov=markov, agreement=agreement, balance=balance
        )

    @property
    def refused(self) -> Reason | None:
        """Why nothing is certified, or None."""
        return self.doubted or self.balance.refused

    @property
    def doubted(self) -> Reason | None:
        """Why a fitted evaluation that needs no propensities is not recommended, or None."""
        driven = self.balance.refused if self.balance.driven else None
        return self.reproduction.refused or self.markov.refused or self.agreement.reason or driven

    @property
    def results(self) -> tuple[CheckResult, ...]:
        """Every check, in the order in which they are shown."""
        agreement = self.agreement
        skipped = agreement.ok and not agreement.differences
        return (
            CheckResult(
                "propensities",
                "How likely was the old policy to give what it gave?",
                True if self.propensities is None else self.propensities.ok,
                AS_LOGGED if self.propensities is None else self.propensities.words,
                "so nothing that needs propensities is recommended, and agreement is not checked",
            ),
            CheckResult(
                "reproduction",
                "Does the fitted evaluation give the old policy's observed totals back?",
                self.reproduction.ok,
                self.reproduction.words,
                "so the fitted evaluation is not recommended, and nothing is certified",
            ),
            CheckResult(
                "state",
                "Given state and action, do a user's earlier days say nothing more?",
                self.markov.ok,
                self.markov.words,
                f"so the fitted evaluation is not recommended, and nothing is certified. {self.markov.way_out}",
            ),
            CheckResult(
                "balance",
                "Given the state, is the old policy's action unrelated to what users did before?",
                self.balance.ok,
                self.balance.words,
                f"so nothing that needs propensities is recommended, and nothing is certified. {self.balance.way_out}",
            ),
            CheckResult(
                "agreement",
                "Do the other estimators, some of which assume less, agree with the fitted evaluation?",
                None if skipped else agreement.ok,
                agreement.words,
                "so the fitted evaluation is not recommended, and nothing is certified",
            ),
        )

    def with_cautions(self, estimates: PolicyEstimates) -> PolicyEstimates:
        """Return the estimates of a policy with the cautions that follow from the checks."""
        old = estimates.policy.name == "old"
        refused = self.refused if estimates.by_day else self.doubted
        if old and refused is not None:
            driven = self.balance.driven and refused.kind is ReasonKind.BALANCE
            if driven or refused.kind is ReasonKind.NOT_CHECKED:  # it takes nothing from what was observed
                refused = None
        misfit = self.propensities is not None and not self.propensities.ok and not old
        for name in estimates.joints:
            estimator = ESTIMATORS[name]
            if estimator.fitted:
                estimates = estimates.with_caution(name, _said(refused))
            elif misfit:
                estimates = estimates.with_caution(name, MISFIT)
            elif self.balance.ok is False and estimator.needs_propensities and not old:
                estimates = estimates.with_caution(name, _said(self.balance.refused))
            elif estimator.needs_state and not self.reproduction.ok:
                estimates = estimates.with_caution(name, self.reproduction.words)
            elif estimator.needs_state:
                estimates = estimates.with_caution(name, _said(self.markov.refused))
        return estimates


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
        return Agreement(Reason(kind, {"found": MISFIT}), ())
    others = {
        name: (joint, estimates.cautions[name]) for name, joint in estimates.joints.items() if ESTIMATORS[name].checks
    }
    # Single steps do not need the basis.
    assume_less = (*(name for name in others if ESTIMATORS[name].assumes_less), ONE_STEP)
    before = None if old is None else old.joints
    return agree(estimates.fitted, others, estimates.steps, estimates.vague, assume_less=assume_less, old=before)


def _said(reason: Reason | None) -> str | None:
    return None if reason is None else reason.words
