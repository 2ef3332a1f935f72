"""Does the effect last? The first week against the whole weeks after it, and decisions that contradict each other.

    early_u = Σ_{d<7} y_ud / (7 − e_u)       later_u = Σ_{7≤d<D} y_ud / (D − 7)       of users who came on a day e_u < 7
    change  = (L_arm − L_control) − (E_arm − E_control)                               E, L: means of early_u, later_u
            = mean of (later_u − early_u) in the arm, less that in the control
    on the logarithm: ln(L_arm / L_control) − ln(E_arm / E_control), which moves as later_u / L − early_u / E

Both compare the arms by what changed within each user, so a user's days may depend on one another. The effect counts as
changed only if it has changed on both scales (an intersection–union test, which keeps its level): if everybody becomes
more active, a lasting +10% grows in days; if everybody becomes less active, it shrinks.

Source: ours; Berger 1982 (intersection–union tests).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from outlay.experiments import words
from outlay.experiments.design import WEEK
from outlay.experiments.lift import Lift, lift
from outlay.experiments.moments import FIRST_WEEK, SINCE, Metric, UserMoments
from outlay.experiments.results import Change, PlannedDecision
from outlay.experiments.sums import DailySums


def change(sums: DailySums, metric: str, day: int, place: int, confidence: float) -> Change | None:
    """The effect of the arm at `place` in the first week and since; None before two whole weeks are over.

    Args:
        sums: of a log with days.
        metric: of the verdict.
        day: of the look.
        place: of the arm.
        confidence: of the intervals, at a single look.
    """
    last = day // WEEK * WEEK
    if last < 2 * WEEK or metric + SINCE not in sums.names or sums.people is not None:
        return None
    parts = sums.first_week_and_since(metric, last)
    control, arm = parts[0], parts[place]
    early, later = (lift(Metric(metric, metric + when), control, arm, confidence) for when in (FIRST_WEEK, SINCE))
    if not isinstance(early, Lift) or not isinstance(later, Lift):
        return None
    cautious = early.cautious or later.cautious
    z = (later.absolute.value - early.absolute.value) / _error(control, arm, [np.ones(2)] * 2, cautious)
    if early.relative is not None and later.relative is not None:
        on_the_logarithm = math.log1p(later.relative.value) - math.log1p(early.relative.value)
        relative_z = on_the_logarithm / _error(control, arm, [1 / control.mean, 1 / arm.mean], cautious)
        z = min(abs(z), abs(relative_z)) * math.copysign(1, z) if z * relative_z > 0 else 0.0
    return Change(last, control.users + arm.users, early, later, z, float(2 * ndtr(-abs(z))), 1 - confidence)


def _error(control: UserMoments, arm: UserMoments, scales: Sequence[NDArray[np.float64]], cautious: bool) -> float:
    """Standard error of the arm's mean of later − early less the control's, each period times its scale `[2]`.

    If `cautious`, both arms are given the pooled variance, if that is larger (`lift.py`).
    """
    sizes = control.users, arm.users
    signed = [np.array([-1.0, 1.0]) * scale for scale in scales]
    spread = [float(w @ part.covariance @ w) for w, part in zip(signed, (control, arm), strict=True)]
    own = math.sqrt(sum(s / n for s, n in zip(spread, sizes, strict=True)))
    common = math.sqrt(np.average(spread, weights=sizes) * sum(1 / n for n in sizes))
    return max(own, common) if cautious else own


def reasons(metric: str, decisions: Sequence[PlannedDecision], change: Change | None) -> list[str]:
    """Why a crossed bound should not be acted upon: what it showed did not last. Empty if it did.

    Args:
        metric: of the verdict.
        decisions: the planned ones so far.
        change: the effect in the first week and since.
    """
    first = next((decision for decision in decisions if decision.side), None)
    if first is None:
        return []
    side = first.side
    crossed = f"{metric} was {_size(first)} on day {first.day}, when it crossed the bound,"
    against = next((d for d in decisions if d.side == -side), None)
    if against is not None:
        return [f"{crossed} and {_size(against)} on day {against.day}, when it crossed the opposite bound"]
    last = decisions[-1]
    if last.z * side < 0:
        return [f"{crossed} and is {_size(last)} after day {last.day}: the effect did not last"]
    if change is not None and change.side == -side and change.since.absolute.side != side:
        return [f"{crossed} but the effect did not last: {words.by_week(change)}"]
    return []


def _size(decision: PlannedDecision) -> str:
    return words.change(decision, 1 if decision.absolute.value > 0 else -1)
