"""Whether estimators that assume less contradict the fitted evaluation.

Fitted evaluation needs the state to say enough and days to be alike; the marginalised ratio needs the first alone, the
doubly robust estimate neither. They come from the same users, so the error of a difference is that of the difference
of their influences. Where both can be relied on and differ by more than chance and a trifle, the assumption is wrong,
and nothing that rests on it is to be acted on.

Source: Hausman (1978) for the comparison of an estimator with one that assumes less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from outlay.estimators.joint import Joint

BY_CHANCE = 4.0  # standard errors: of some dozens of comparisons hardly one is beyond
SAME = 0.01  # of a standard error: an estimate that cannot differ by more is no check
TRIFLE = 0.01  # of the value: it changes no decision


@dataclass(frozen=True, slots=True)
class Difference:
    """One comparison: the other estimator's value less the fitted one, and what it may be."""

    estimator: str
    target: str
    difference: float
    std_error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether it is within its tolerance."""
        return abs(self.difference) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Agreement:
    """The verdict in words, and what it rests on.

    Attributes:
        ok: no comparison is beyond its tolerance; True where there is none.
        words: one sentence.
        differences: all comparisons.
    """

    ok: bool
    words: str
    differences: tuple[Difference, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def agree(fitted: Joint, others: Mapping[str, tuple[Joint, Sequence[str | None]]]) -> Agreement:
    """Hold every number that can be relied on against the fitted one.

    Args:
        fitted: the fitted evaluation.
        others: by estimator: the estimates of the same policy, and why not to rely on each of its targets.
    """
    found: list[Difference] = []
    own = fitted.std_error
    for name, (joint, cautions) in others.items():
        relied = {t for t, caution in zip(joint.targets, cautions, strict=True) if caution is None}
        difference = joint.minus(fitted)
        errors = difference.std_error
        for t, target in enumerate(difference.targets):
            if target not in relied or difference.withheld[t] is not None or target == "decisions":
                continue
            value, error = float(difference.value[t]), float(errors[t])
            at = fitted.column(target)
            trifle = TRIFLE * abs(float(fitted.value[at]))
            same = error <= SAME * own[at] and abs(value) <= trifle  # by other sums
            if same or not np.isfinite(error):  # of one user alone
                continue
            tolerance = BY_CHANCE * error + trifle
            found.append(Difference(name, target, value, error, tolerance))
    beyond = [d for d in found if not d.ok]
    if not found:
        return Agreement(True, "not checked: no other estimate can be relied on", ())
    if not beyond:
        return Agreement(True, f"all {len(found)} other estimates that can be relied on agree with it", tuple(found))
    worst = max(beyond, key=lambda d: abs(d.difference) / max(d.tolerance, 1e-300))
    its = float(fitted.value[fitted.column(worst.target)])
    words = (
        f"{worst.estimator} gives {worst.target} as {its + worst.difference:.4g}, the fitted evaluation as {its:.4g}: "
        f"{abs(worst.difference) / max(worst.std_error, 1e-300):.1f} standard errors apart ({len(beyond)} of "
        f"{len(found)} comparisons are beyond their tolerance)"
    )
    return Agreement(False, words, tuple(found))
