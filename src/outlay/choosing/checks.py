"""The checks that an evaluation has to pass, and what follows where it does not.

    reproduction   the fitted evaluation of the old policy gives its observed totals back
    agreement      other estimators, some of which assume less, do not contradict the fitted evaluation of the policy
    behaviour      the behaviour model fits the log, where propensities are not logged

A fitted evaluation that fails is shown and not recommended, and certifies nothing. Where it does not give the old
policy's totals back, marginalised importance sampling is not recommended either, as it needs the same state. A
behaviour model that fails does the same to every estimator that needs propensities. Where states are not counted,
agreement that could not be checked is no pass: nothing is certified on one assumption alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outlay.choosing.estimates import PolicyEstimates
from outlay.choosing.estimators import ESTIMATORS
from outlay.estimators.agreement import NOT_CHECKED, ONE_STEP, Agreement, agree
from outlay.estimators.behaviour.check import BehaviourCheck
from outlay.estimators.observed import Reproduction

MISFIT = "the behaviour model does not fit the log"


@dataclass(frozen=True)
class Checks:
    """Of one policy on one split.

    Attributes:
        reproduction: of the old policy.
        agreement: of the policy.
        behaviour: None where propensities are as logged.
    """

    reproduction: Reproduction
    agreement: Agreement
    behaviour: BehaviourCheck | None

    @classmethod
    def of(cls, told: PolicyEstimates, reproduction: Reproduction, behaviour: BehaviourCheck | None) -> Checks:
        """Those of a policy."""
        if behaviour is not None and not behaviour.ok:
            agreement = Agreement(told.steps is None and not told.by_day, f"{NOT_CHECKED}: {MISFIT}", ())
        else:
            others = {
                name: (joint, told.cautions[name]) for name, joint in told.joints.items() if ESTIMATORS[name].checks
            }
            # Single steps do not need the basis.
            assume_less = (*(name for name in others if ESTIMATORS[name].assumes_less), ONE_STEP)
            agreement = agree(told.fitted, others, told.steps, told.vague, assume_less=assume_less)
        return cls(reproduction, agreement, behaviour)

    @property
    def refused(self) -> str | None:
        """Why nothing is certified, or None."""
        if not self.reproduction.ok:
            return self.reproduction.words
        return self.agreement.reason

    def doubted(self, told: PolicyEstimates) -> PolicyEstimates:
        """The same policy with the cautions that follow."""
        refused = self.refused
        if told.subject.name == "old" and self.reproduction.ok and self.agreement.words.startswith(NOT_CHECKED):
            refused = None  # the log says too little of the other policy, which takes nothing from its own
        misfit = self.behaviour is not None and not self.behaviour.ok and told.subject.name != "old"
        for name in told.joints:
            row = ESTIMATORS[name]
            if row.fitted:
                told = told.doubted(name, refused)
            elif misfit:
                told = told.doubted(name, MISFIT)
            elif row.needs_state and not self.reproduction.ok:
                told = told.doubted(name, self.reproduction.words)
        return told

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        logged: dict[str, Any] = {"source": "as logged", "ok": True}
        model = self.behaviour and {"source": "behaviour model", **self.behaviour.to_dict()}
        return {
            "propensities": model or logged,
            "reproduction": {"ok": self.reproduction.ok, "words": self.reproduction.words},
            "agreement": self.agreement.to_dict(),
        }
