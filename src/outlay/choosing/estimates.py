"""The estimates of one policy by every estimator (`estimators.py`), on the same users.

Where the log cannot carry discounted values, means over a window of it stand in their place, and what is extrapolated
beside them is relied on only where `windowed.py` finds no fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.estimators import ESTIMATORS, Question
from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.target import Target
from outlay.estimators import fitted
from outlay.estimators.importance import few_users, mean_ratio, off_one, row_ratios
from outlay.estimators.joint import Joint, mixed
from outlay.estimators.sequential import FEWEST, HARDLY_ANY
from outlay.estimators.units import displayed, estimates
from outlay.estimators.windowed import room

EXTRAPOLATED = 0.6  # share of the users' weight by which lines may be extended beyond what the log shows

UNSEEN = "it is alike for all these users, and not in the whole log: ±0 is no error"

Cautions = Sequence[str | None]


@dataclass(frozen=True)
class PolicyEstimates:
    """What the estimators say of one policy.

    Attributes:
        subject: the policy.
        joints: by estimator, in the units they are estimated in.
        cautions: by estimator, why not to rely on each target.
        steps: what single steps make of the fitted totals, less those (`weighted_residuals.py`); None where states are
            counted, or where it was not asked for.
        by_day: whether the fitted values go day by day and weigh rows by propensities (`sequential.py`).
        vague: why the log's decisions cannot tell them then, or None.
    """

    subject: EvaluatedPolicy
    joints: dict[str, Joint]
    cautions: dict[str, Cautions]
    steps: Joint | None = None
    by_day: bool = False
    vague: str | None = None

    @property
    def fitted(self) -> fitted.Fitted:
        """The fitted evaluation."""
        found = self.joints["fqe"]
        assert isinstance(found, fitted.Fitted)
        return found

    def doubted(self, estimator: str, reason: str | None) -> PolicyEstimates:
        """The same with a caution for all numbers of an estimator, where they have none of their own."""
        if reason is None or estimator not in self.cautions:
            return self
        own = [caution or reason for caution in self.cautions[estimator]]
        return replace(self, cautions={**self.cautions, estimator: own})

    def rows(self, campaign: Campaign, confidence: float) -> list[Estimate]:
        """Estimates as tables show them, estimator by estimator."""
        found: list[Estimate] = []
        for name, joint in self.joints.items():
            cautions = self.cautions[name]
            if ESTIMATORS[name].totals_only:
                found += joint.estimates(self.subject.name, name, confidence=confidence, cautions=cautions)
            else:
                found += estimates(joint, campaign, self.subject.name, name, confidence=confidence, cautions=cautions)
        return found

    def rows_less(self, other: PolicyEstimates, campaign: Campaign, confidence: float) -> list[Estimate]:
        """Paired differences to another policy, as tables show them; relied on where both are."""
        found: list[Estimate] = []
        mine, its = self.rows(campaign, confidence), other.rows(campaign, confidence)
        doubts = {(e.estimator, e.target): e.caution for e in [*its, *mine] if e.caution}
        for name, joint in self.joints.items():
            if name not in other.joints:
                continue
            pair = [joint, other.joints[name]]
            a, b = pair if ESTIMATORS[name].totals_only else [displayed(j, campaign) for j in pair]
            difference = a.minus(b)
            cautions = [doubts.get((name, target)) for target in difference.targets]
            found += difference.estimates(self.subject.name, name, confidence=confidence, cautions=cautions)
        return found


def estimate_policy(
    at: Measure,
    subject: EvaluatedPolicy,
    propensity: NDArray[np.float64],
    *,
    among: NDArray[np.bool_] | None = None,
    estimators: Iterable[str] = tuple(ESTIMATORS),
) -> PolicyEstimates:
    """Estimate one policy by several estimators.

    Args:
        at: the users.
        subject: the policy.
        propensity: `[n]` of the logged action in each row.
        among: `[U]` users whose value it is; default all.
        estimators: which; clipped importance sampling is for all users alone.
    """
    panel = at.panel
    joints: dict[str, Joint] = {}
    cautions: dict[str, Cautions] = {}
    for name in estimators:
        joint = ESTIMATORS[name].estimate(Question(at, subject, propensity, among))
        if joint is None:
            continue
        own = joint.cautions()
        if ESTIMATORS[name].needs_propensities:
            joint = joint.without([HARDLY_ANY if ess < FEWEST else None for ess in joint.ess])
        unseen = _unseen(joint, panel.names, at.varies(subject.parts))
        joints[name] = joint
        cautions[name] = [caution or rare for caution, rare in zip(own, unseen, strict=True)]
    steps = None if among is not None or "dr" not in estimators else single_steps(at, subject, propensity)
    if at.window is not None and "fqe" in joints:
        found = PolicyEstimates(subject, joints, cautions).fitted
        least, most = panel.outcome.min(axis=0), panel.outcome.max(axis=0)
        reason = room(found.daily, least, most, at.window, panel.discount)
        for name, joint in joints.items():
            cautions[name] = [
                caution or (reason if Target.parse(target).kind == "discounted" else None)
                for target, caution in zip(joint.targets, cautions[name], strict=True)
            ]
    vague = None
    if at.sequential and isinstance(own_fit := joints.get("fqe"), fitted.Fitted):
        vague = too_few_follow(at, subject, propensity, own_fit) or extrapolates(own_fit)
    return PolicyEstimates(subject, joints, cautions, steps, at.sequential, vague)


def extrapolates(whole: fitted.Fitted) -> str | None:
    """Why a value is told by lines that are extended far beyond what the log shows, or None; day by day alone."""
    far = float(np.where([why is None for why in whole.withheld], whole.unsupported, 0.0).max(initial=0.0))
    if far <= EXTRAPOLATED:
        return None
    return (
        "it leads users to states that hardly any user of the log is in, so its later days are told by lines that are "
        f"extended beyond the log (by {far:.0%} of the users' weight; at most {EXTRAPOLATED:.0%} may be)"
    )


def too_few_follow(at: Measure, subject: EvaluatedPolicy, propensity: NDArray[np.float64], fitted: Joint) -> str | None:
    """Why the log's decisions cannot tell the value of a policy, or None: the propensities are wrong, or few follow it.

    None of the log's own policy.
    """
    if all(part is None for part in subject.parts):
        return None
    each = [row_ratios(at.panel, part, propensity)[1] for part in subject.parts]
    ratio = np.sum([w * r for w, r in zip(subject.weights, each, strict=True) if r is not None], axis=0)
    misfit = off_one(*mean_ratio(at.panel, ratio))
    told = [ess for target, ess, why in zip(fitted.targets, fitted.ess, fitted.withheld, strict=True)
            if why is None and not target.startswith("decisions")]  # fmt: skip
    return misfit or (few_users(min(told)) if told else None)


def single_steps(at: Measure, subject: EvaluatedPolicy, propensity: NDArray[np.float64]) -> Joint | None:
    """What single steps make of the fitted totals of a policy, less those.

    None where states are counted, and of the log's own policy, which needs no propensities.
    """
    if at.counted or at.sequential or all(part is None for part in subject.parts):
        return None
    parts = [at.residuals(part, f, propensity) for part, f in zip(subject.parts, subject.features, strict=True)]
    return Joint(**mixed(parts, subject.weights))


def _unseen(joint: Joint, names: Sequence[str], varies: NDArray[np.bool_]) -> list[str | None]:
    """`[T]` why ±0 is no error: these users had no event of what others in the log had; None where it is one."""
    happens = {name for name, differs in zip(names, varies, strict=True) if differs}
    known = zip(joint.targets, joint.std_error, joint.withheld, strict=True)
    return [UNSEEN if error == 0 and why is None and Target.parse(target).name in happens else None
            for target, error, why in known]  # fmt: skip
