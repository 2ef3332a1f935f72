"""Whether other estimators contradict the fitted evaluation.

Fitted evaluation assumes that the state contains all that matters, that days are alike, and that its basis can
represent the values. Only the doubly robust estimate assumes less: within the days of the log, none of these. The
marginalised ratio makes the same assumption about the state and uses the same basis; a fit on another basis makes all
of them, for that basis. All come from the same users, so the error of a difference is that of the difference of their
influences. If both can be relied on and they differ by more than chance and a negligible amount, an assumption is
wrong, and nothing that rests on it should be acted on.

Where states are not counted, fitted evaluation also needs Q to lie in its basis, and its values for decisions that the
log hardly ever made are extrapolated without a warning. There the totals are compared with what the propensities give
for single steps (`doubly_robust.py`), and that comparison must be precise enough to object: its error may be 2%
of the value or 1.5 times the error that the fitted evaluation claims, whichever is more. Otherwise nothing was checked,
which does not count as a pass. (In randomised logs of rich states it was 0.5 to 0.7 times; where an old policy leaves 4
% to chance, 2 to 4 times, however many users there are.)

Where days differ (`day_effects.py`), an estimate of the log's own days differs from the fitted one, which takes all
days to be alike, however right the state is. What that makes of the log's own policy is known; times how much more the
policy brings, it is taken off:

    other(π) − fitted(π) − (other(p) − fitted(p)) · fitted(π) / fitted(p)

This assumes that a day moves what every policy brings in proportion, as the allowances for days do.

Source: Hausman (1978) for the comparison of an estimator with one that assumes less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.importance import few_users
from outlay.estimators.joint import Joint
from outlay.estimators.units import counts_decisions
from outlay.ops.intervals import BY_CHANCE, student

SAME = 0.01  # of a standard error: an estimate that cannot differ by more is no check
NEGLIGIBLE = 0.01  # of the value: a difference this small changes no decision
PRECISE = 0.02  # of the value: the largest error with which single steps are a check
AS_PRECISE = 1.5  # or this many times the error that the fitted evaluation claims
ONE_STEP = "dr of single steps"
CONFIRMED = (ReasonKind.AGREES, ReasonKind.NOT_COMPARED)


@dataclass(frozen=True, slots=True)
class EstimatorDifference:
    """One comparison: the other estimator's value less the fitted one, and what it may be."""

    estimator: str
    target: str
    difference: float
    std_error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Return whether the difference is within its tolerance."""
        return abs(self.difference) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Agreement:
    """The verdict, and what it rests on.

    Attributes:
        finding: whether they agree: `AGREES`, `NOT_COMPARED`, `NOT_CHECKED` or `CONTRADICTED`, with its figures.
        differences: all comparisons.
        ok: no comparison is beyond its tolerance and, where single steps have to confirm it, they could object.
        words: the finding in one sentence.
    """

    finding: Reason
    differences: tuple[EstimatorDifference, ...]
    ok: bool = field(init=False)
    words: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ok", self.finding.kind in CONFIRMED)
        object.__setattr__(self, "words", self.finding.words)

    @property
    def reason(self) -> Reason | None:
        """Return why nothing is certified, or None."""
        return None if self.ok else self.finding

    @property
    def checked(self) -> bool:
        """Whether anything was compared."""
        return self.finding.kind in (ReasonKind.AGREES, ReasonKind.CONTRADICTED)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def agree(
    fitted: Joint,
    others: Mapping[str, tuple[Joint, Sequence[Reason | None]]],
    steps: Joint | None = None,
    vague: Reason | None = None,
    *,
    assume_less: Sequence[str] = (),
    old: Mapping[str, Joint] | None = None,
) -> Agreement:
    """Compare every number that can be relied on with the fitted one.

    Args:
        fitted: the fitted evaluation.
        others: by estimator: the estimates of the same policy, and why not to rely on each of its targets.
        steps: the totals by single steps less the fitted ones (`doubly_robust.py`), which have to confirm them;
            None if they need not.
        vague: why the fitted evaluation is only a guess, if it shows that itself.
        assume_less: the estimators among the others that assume less than the fitted evaluation.
        old: by estimator, the fitted evaluation (`fqe`) among them: the log's own policy, where days differ.
    """
    differences: list[EstimatorDifference] = []
    for name, (joint, cautions) in others.items():
        difference = joint.minus(fitted)
        if old is not None and name in old:
            difference = _less_days(difference, fitted, old[name], old["fqe"])
        relied = {t for t, caution in zip(joint.targets, cautions, strict=True) if caution is None}
        differences += _differences(name, difference, fitted, relied)
    if steps is not None:
        by_steps = _by_steps(fitted, steps)
        vague = _vague(fitted, steps, by_steps)
        differences += by_steps
    beyond = [d for d in differences if not d.ok]
    if not beyond and vague is not None:
        return Agreement(Reason(ReasonKind.NOT_CHECKED, {"found": vague}), tuple(differences))
    if not differences:
        return Agreement(Reason(ReasonKind.NOT_COMPARED, {"found": Reason(ReasonKind.NO_OTHER)}), ())
    if not beyond:
        less = sum(d.estimator in assume_less for d in differences)
        return Agreement(Reason(ReasonKind.AGREES, {"count": len(differences), "less": less}), tuple(differences))
    return Agreement(_contradicted(fitted, beyond, len(differences)), tuple(differences))


def _contradicted(fitted: Joint, beyond: Sequence[EstimatorDifference], count: int) -> Reason:
    """The worst of the differences that are beyond their tolerance, of so many."""
    worst = max(beyond, key=lambda d: abs(d.difference) / max(d.tolerance, 1e-300))
    its = float(fitted.value[fitted.column(worst.target)])
    figures: dict[str, str | int | float | Reason] = {
        "estimator": worst.estimator,
        "target": worst.target,
        "other": its + worst.difference,
        "fitted": its,
        "errors": abs(worst.difference) / max(worst.std_error, 1e-300),
        "beyond": len(beyond),
        "count": count,
    }
    return Reason(ReasonKind.CONTRADICTED, figures)


def _differences(name: str, difference: Joint, fitted: Joint, relied: Set[str]) -> Iterator[EstimatorDifference]:
    """Yield the differences of an estimator from the fitted evaluation, of what it can be relied on."""
    errors, own = difference.std_error, fitted.std_error
    for t, target in enumerate(difference.targets):
        if target not in relied or difference.withheld[t] is not None or counts_decisions(target):
            continue
        value, error = float(difference.value[t]), float(errors[t])
        at = fitted.column(target)
        negligible = NEGLIGIBLE * abs(float(fitted.value[at]))
        same = error <= SAME * own[at] and abs(value) <= negligible  # by other sums
        if same or not np.isfinite(error):  # of one user alone
            continue
        tolerance = student(BY_CHANCE, fitted.freedom) * error + negligible
        yield EstimatorDifference(name, target, value, error, tolerance)


def _less_days(difference: Joint, fitted: Joint, old: Joint, old_fitted: Joint) -> Joint:
    """A difference less what days that differ make of it, by the log's own policy; unchanged where that is unknown."""
    own = old.minus(old_fitted)
    value, influence = difference.value.copy(), difference.influence.copy()
    for t, target in enumerate(difference.targets):
        if target not in own.targets or own.withheld[at := own.column(target)] is not None:
            continue
        base = float(old_fitted.value[old_fitted.column(target)])
        if base:
            times = float(fitted.value[fitted.column(target)]) / base
            value[t] -= times * own.value[at]
            influence[:, t] -= times * own.influence[:, at]
    return replace(difference, value=value, influence=influence)


def _by_steps(fitted: Joint, steps: Joint) -> list[EstimatorDifference]:
    """The difference of every total, also where it is exactly 0 because the weights lie in the basis."""
    differences = []
    for target, value, error in zip(steps.targets, steps.value, steps.std_error, strict=True):
        its = float(fitted.value[fitted.column(target)])
        if np.isfinite([its, error]).all():
            tolerance = student(BY_CHANCE, fitted.freedom) * float(error) + NEGLIGIBLE * abs(its)
            differences.append(EstimatorDifference(ONE_STEP, target, float(value), float(error), tolerance))
    return differences


def _vague(fitted: Joint, steps: Joint, found: Sequence[EstimatorDifference]) -> Reason | None:
    """Return why single steps could not object to the fitted totals, or None."""
    if not found:
        return Reason(ReasonKind.NO_STEPS)
    if few := few_users(float(steps.ess.min())):
        return Reason(ReasonKind.FEW_STEPS, {"found": few})
    own = dict(zip(fitted.targets, fitted.std_error, strict=True))
    size = {d.target: abs(float(fitted.value[fitted.column(d.target)])) for d in found}
    allowed = {d.target: max(PRECISE * size[d.target], AS_PRECISE * float(own[d.target])) for d in found}
    worst = max(found, key=lambda d: d.std_error / max(allowed[d.target], 1e-300))
    if worst.std_error <= allowed[worst.target]:
        return None
    claimed = float(own[worst.target])
    return Reason(ReasonKind.IMPRECISE, {"target": worst.target, "error": worst.std_error, "claimed": claimed})
