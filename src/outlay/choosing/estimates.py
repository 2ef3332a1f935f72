"""The estimates of one policy by every estimator (`estimators.py`), on the same users.

If the log cannot support discounted values, means over a window of it replace them, and the extrapolated values beside
those means are relied on only if `windowed.py` finds no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.estimators import ESTIMATORS, Question
from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure, Part
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate, Target
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators import fitted
from outlay.estimators.fitted import Fitted
from outlay.estimators.importance import few_users, mean_ratio, off_one, row_ratios
from outlay.estimators.joint import Joint, combine
from outlay.estimators.path_bias import PathBias, corrected
from outlay.estimators.sequential import FEWEST, HARDLY_ANY
from outlay.estimators.units import coordinates, counts_decisions, displayed, estimates, needed_days
from outlay.estimators.weaker import further_error, hull
from outlay.estimators.windowed import beyond_window
from outlay.ops.intervals import std_error

EXTRAPOLATED = 0.6  # share of the users' weight whose values may be extrapolated beyond what the log shows
SAMPLED = 5  # policies whose errors are compared with those of an estimate that assumes less

Cautions = Sequence[Reason | None]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class PolicyEstimates:
    """Estimates of one policy.

    Attributes:
        policy: the policy.
        joints: by estimator, in the units in which they are estimated.
        cautions: by estimator, for each target why not to rely on it, or None.
        steps: estimates from single steps less the fitted totals (`doubly_robust.py`); None where states are
            counted, or if they were not wanted.
        by_day: whether the fitted values go day by day and weight rows by propensities (`sequential.py`).
        vague: why the log's decisions cannot confirm the fitted values then, or None.
        second: the fitted evaluation with its bias by paths of the log (`path_bias.py`), where states are counted, or
            `fqe2`: an estimate that assumes less. None for the log's own policy where states are counted, and if it was
            not wanted.
    """

    policy: EvaluatedPolicy
    joints: dict[str, Joint]
    cautions: dict[str, Cautions]
    steps: Joint | None = None
    by_day: bool = False
    vague: Reason | None = None
    second: Joint | None = None

    @property
    def fitted(self) -> fitted.Fitted:
        """The fitted evaluation."""
        whole = self.joints["fqe"]
        assert isinstance(whole, fitted.Fitted)
        return whole

    def with_caution(self, estimator: str, reason: Reason | None) -> PolicyEstimates:
        """Return the same estimates with a caution for all numbers of an estimator that have none of their own."""
        if reason is None or estimator not in self.cautions:
            return self
        own = [caution or reason for caution in self.cautions[estimator]]
        return replace(self, cautions={**self.cautions, estimator: own})

    def rows(self, campaign: Campaign, confidence: float) -> list[Estimate]:
        """Return the estimates as tables show them; those that are right only by the state with the weaker interval."""
        rows: list[Estimate] = []
        policy, its = self.policy.name, dict[str, Estimate]()
        if self.second is not None:
            its = {e.target: e for e in estimates(self.second, campaign, policy, "second", confidence=confidence)}
        for name, joint in self.joints.items():
            cautions = self.cautions[name]
            if ESTIMATORS[name].totals_only:
                rows += joint.estimates(policy, name, confidence=confidence, cautions=cautions)
                continue
            mine = estimates(joint, campaign, policy, name, confidence=confidence, cautions=cautions)
            if ESTIMATORS[name].needs_state and its:
                mine = [hull(e, its[e.target]) for e in mine]
            rows += mine
        return rows

    def rows_less(self, other: PolicyEstimates, campaign: Campaign, confidence: float) -> list[Estimate]:
        """Return paired differences to another policy, as tables show them; recommended if both estimates are."""
        rows: list[Estimate] = []
        mine, its = self.rows(campaign, confidence), other.rows(campaign, confidence)
        doubts = {(e.estimator, e.target): e.caution for e in [*its, *mine] if e.caution}
        by = dict[str, Estimate]()
        if self.second is not None or other.second is not None:
            mine_less, its_less = (displayed(each.second or each.fitted, campaign) for each in (self, other))
            less = mine_less.minus(its_less).estimates(self.policy.name, "second", confidence=confidence)
            by = {e.target: e for e in less}
        for name, joint in self.joints.items():
            if name not in other.joints:
                continue
            pair = [joint, other.joints[name]]
            a, b = pair if ESTIMATORS[name].totals_only else [displayed(j, campaign) for j in pair]
            difference = a.minus(b)
            cautions = [doubts.get((name, target)) for target in difference.targets]
            found = difference.estimates(self.policy.name, name, confidence=confidence, cautions=cautions)
            if ESTIMATORS[name].needs_state and by:
                found = [hull(e, by[e.target]) for e in found]
            rows += found
        return rows

    def bias(self, names: Mapping[str, str]) -> PathBias | None:
        """Return how far the estimate that assumes less is from the fitted means of `names`, as tables call them."""
        return None if self.second is None else PathBias.of(self.fitted, self.second, names)


def estimate_policy(
    measure: Measure,
    policy: EvaluatedPolicy,
    propensity: NDArray[np.float64],
    *,
    among: NDArray[np.bool_] | None = None,
    estimators: Iterable[str] = tuple(ESTIMATORS),
) -> PolicyEstimates:
    """Estimate one policy by several estimators.

    Args:
        measure: the users, and what is known about them.
        policy: the policy.
        propensity: `[n]` of the logged action in each row.
        among: `[U]` users whose value is estimated; default all.
        estimators: their names; clipped importance sampling always takes all users.
    """
    panel = measure.panel
    joints: dict[str, Joint] = {}
    cautions: dict[str, Cautions] = {}
    for name in estimators:
        estimator = ESTIMATORS[name]
        joint = estimator.estimate(Question(measure, policy, propensity, among))
        if joint is None:
            continue
        own = joint.cautions()
        if estimator.needs_propensities:
            joint = joint.without([HARDLY_ANY if ess < FEWEST else None for ess in joint.ess])
        never = unseen(joint, panel.names, measure.varies(policy.parts))
        joints[name] = joint
        cautions[name] = [caution or rare for caution, rare in zip(own, never, strict=True)]
    steps = None if among is not None or "dr" not in estimators else single_steps(measure, policy, propensity)
    whole = joints.get("fqe")
    vague = None
    if isinstance(whole, fitted.Fitted):
        if measure.window is not None:
            least, most = panel.outcome.min(axis=0), panel.outcome.max(axis=0)
            reason = beyond_window(whole.daily, least, most, measure.window, panel.discount)
            for name, joint in joints.items():
                cautions[name] = [
                    caution or (reason if Target.parse(target).kind == "discounted" else None)
                    for target, caution in zip(joint.targets, cautions[name], strict=True)
                ]
        if measure.sequential:
            vague = too_few_follow(measure, policy, propensity, whole) or extrapolates(whole)
    second = joints.get("fqe2")
    if measure.counted and among is None and "dr" in estimators:
        second = _corrected(measure, policy, propensity, joints["fqe"])
    return PolicyEstimates(policy, joints, cautions, steps, measure.sequential, vague, second)


def extrapolates(whole: fitted.Fitted) -> Reason | None:
    """Return why a fitted value rests on states far beyond what the log shows, or None; for values day by day."""
    far = extrapolated(whole)
    if far <= EXTRAPOLATED:
        return None
    return Reason(ReasonKind.EXTRAPOLATED, {"share": far, "most": EXTRAPOLATED})


def extrapolated(whole: fitted.Fitted) -> float:
    """Return the largest share of the users' weight that is extrapolated, of the numbers that are given."""
    return float(np.where([why is None for why in whole.withheld], whole.unsupported, 0.0).max(initial=0.0))


def too_few_follow(
    measure: Measure, policy: EvaluatedPolicy, propensity: NDArray[np.float64], fitted: Joint
) -> Reason | None:
    """Return why the log's decisions cannot confirm a policy's value: wrong propensities, or few that follow it.

    None if they can, and always for the log's own policy.
    """
    if all(part is None for part in policy.parts):
        return None
    each = [row_ratios(measure.panel, part, propensity)[1] for part in policy.parts]
    ratio = np.sum([w * r for w, r in zip(policy.weights, each, strict=True) if r is not None], axis=0)
    misfit = off_one(*mean_ratio(measure.panel, ratio), fitted.freedom)
    sizes = [
        ess
        for target, ess, why in zip(fitted.targets, fitted.ess, fitted.withheld, strict=True)
        if why is None and not counts_decisions(target)
    ]
    return misfit or (few_users(min(sizes)) if sizes else None)


def single_steps(measure: Measure, policy: EvaluatedPolicy, propensity: NDArray[np.float64]) -> Joint | None:
    """Return estimates of a policy's totals from single steps, less the fitted totals.

    None where states are counted, and for the log's own policy, which needs no propensities.
    """
    if measure.counted or measure.sequential or all(part is None for part in policy.parts):
        return None
    parts = [measure.residuals(part, f, propensity) for part, f in policy.sources]
    return combine(parts, policy.weights)


def assuming_less(
    measure: Measure, part: Part, fitted: Joint, propensity: NDArray[np.float64], days: Sequence[int]
) -> Joint | None:
    """Return an estimate of a policy that assumes less than its fitted evaluation.

    None for the log's own policy where states are counted: its fitted means are what was observed.

    Args:
        measure: the users.
        part: the policy, as `Panel.follow` takes it.
        fitted: its fitted evaluation on the same users.
        propensity: `[n]` of the logged action in each row.
        days: horizons of the totals, where states are counted.
    """
    if not measure.counted:
        return measure.fit_second(part)
    return None if part is None else corrected(fitted, measure.path_bias(part, propensity, days))


def _corrected(
    measure: Measure, policy: EvaluatedPolicy, propensity: NDArray[np.float64], fitted: Joint
) -> Joint | None:
    """The same of a mixture, where states are counted."""
    if all(part is None for part in policy.parts):
        return None
    parts = [measure.path_bias(part, propensity, measure.days) for part in policy.parts]
    return corrected(fitted, combine(parts, policy.weights))


def gain_doubt(new: Joint, old: Joint, target: str, cautions: Cautions) -> Reason | None:
    """Return why no bound of a gain is to be relied on, or None: a verdict must not be surer than its table.

    A gain is relied on where both estimates and their difference are; a mixture of the curve and a policy that is
    evaluated alike.

    Args:
        new: the fitted evaluation of a policy.
        old: that of the log's own, on the same users.
        target: what the gain is of.
        cautions: what is known already against either estimate of the target.
    """
    mine, its = (joint.picked([target], [joint.column(target)], [1.0]) for joint in (new, old))
    own = (joint.doubts()[0] for joint in (mine, its, mine.minus(its)))
    return next((doubt for doubt in (*cautions, *own) if doubt is not None), None)


def unseen(joint: Joint, names: Sequence[str], varies: NDArray[np.bool_]) -> list[Reason | None]:
    """Return `[T]` why ±0 is no measure of the error: only other users of the log had such events; None if it is."""
    happens = {name for name, differs in zip(names, varies, strict=True) if differs}
    known = zip(joint.targets, joint.std_error, joint.withheld, strict=True)
    return [
        Reason(ReasonKind.UNVARYING) if error == 0 and why is None and Target.parse(target).name in happens else None
        for target, error, why in known
    ]


def further_errors(
    at: Measure, actions: Callable[[int], NDArray[np.int64]], fits: Sequence[Fitted], campaign: Campaign
) -> Vector:
    """`[k, m]` how much more an estimate that assumes less errs on the costs of policies, relative to their own errors.

    It takes time, and is alike for policies that cost alike: a few of them, from the cheapest to the dearest, are
    estimated, and what the others have lies between.

    Args:
        at: what measured the k policies.
        actions: of each, by its number.
        fits: what each was measured at.
        campaign: budgets.
    """
    cost = np.array([coordinates(fitted, campaign)[0][1:] for fitted in fits])
    known = np.flatnonzero(np.isfinite(cost).all(axis=1))
    ratios = np.zeros_like(cost)
    if not len(known) or not campaign.log.known_assignment:  # nothing will be certified
        return ratios
    by_cost = known[np.argsort(cost[known, campaign.money], kind="stable")]
    sample = by_cost[np.unique(np.linspace(0, len(by_cost) - 1, SAMPLED).astype(int))]
    propensity, days, found = at.propensity(), needed_days(campaign), []
    for i in sample.tolist():
        second = assuming_less(at, actions(i), fits[i], propensity, days) or fits[i]
        own, its = (std_error(coordinates(each, campaign)[1][:, 1:]) for each in (fits[i], second))
        found.append(np.divide(further_error(own, its), own, out=np.full(len(own), np.nan), where=own > 0))
    for j, each in enumerate(np.array(found).T):
        ratios[:, j] = interpolated(cost[:, j], cost[sample, j], each)
    return ratios


def interpolated(at: Vector, x: Vector, y: Vector) -> Vector:
    """Return `[k]` y at other places than x, linear between them and level beyond; 0 where nothing is known."""
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return np.zeros(len(at))
    order = np.argsort(x[known], kind="stable")
    return np.where(np.isfinite(at), np.interp(at, x[known][order], y[known][order]), 0.0)
