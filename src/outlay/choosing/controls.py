"""Policies whose value more users know, as control variates of those that few can measure.

A policy that was learned from some users is measured on others, who may be few. A constant action, and the log's own
policy, learned from nobody: all users but those who certify can measure them. What these were lucky in on the few is
then known, and taken off every policy as far as its error goes with theirs:

    value   v_l + Σ_a β_al (V_a − v_a)           V_a, v_a of control a, on many and on few; β by least squares of
    error   ψ_l − (1 − √(n/N)) Σ_a β_al ψ_a      the influence of policy l on those of the controls

Controls are measured in the same way on many and on few, so that their difference is luck alone. The second line has
the variances and covariances that policies have then: of their part off the controls by n users, of their part along
them by N.

Source: control variates, for instance Owen (2013), section 8.9; with the mean of a control estimated from more data,
two-phase or double sampling, Cochran (1977), section 12.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.fitted import Fitted

TINY = 1e-9  # of a control's spread: directions in which controls hardly differ say nothing

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Controls:
    """Controls measured twice.

    Attributes:
        few: on those users who measure the other policies.
        many: on more users, with these among them.
        share: of the few in the many.
    """

    few: Sequence[Fitted]
    many: Sequence[Fitted]
    share: float

    def off(self, fitted: Fitted) -> Fitted:
        """The measurement of a policy without what controls were lucky in; numbers that they lack stay as they are."""
        value, influence = fitted.value.copy(), fitted.influence.copy()
        for t, target in enumerate(fitted.targets):
            if target in self._by_target and np.isfinite(value[t]):
                columns, inverse, gap = self._by_target[target]
                beta = inverse @ influence[:, t]
                value[t] += beta @ gap
                influence[:, t] -= (1 - np.sqrt(self.share)) * (columns @ beta)
        return replace(fitted, value=value, influence=influence)

    @cached_property
    def _by_target(self) -> dict[str, tuple[Vector, Vector, Vector]]:
        """Influences `[G, a]` of the controls that have a number, their pseudo-inverse, and many less few `[a]`."""
        found: dict[str, tuple[Vector, Vector, Vector]] = {}
        for target in self.few[0].targets:
            pairs = [
                (one, one.column(target), other)
                for one, other in zip(self.few, self.many, strict=True)
                if target in one.targets and target in other.targets
            ]
            gap = np.array([other.value[other.column(target)] - one.value[i] for one, i, other in pairs])
            there = np.isfinite(gap)
            if there.any():
                columns = np.column_stack(
                    [one.influence[:, i] for (one, i, _), ok in zip(pairs, there, strict=True) if ok]
                )
                found[target] = columns, np.asarray(np.linalg.pinv(columns, rcond=TINY), np.float64), gap[there]
        return found
