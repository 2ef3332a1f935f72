"""Which learner predicts the effects of actions best, on users that trained none of them: the R-loss.

    explained = 1 − min_f Σ (y − m(s) − f (q(s, a) − Σ_a' b(a'|s) q(s, a')))² / Σ (y − m(s))²,    f ≥ 0

y is the day's reward, q a learner's prediction of it, and m and b are the same for all learners. Values of policies
rest on the rows in which the log did as they would, this on every row, so far fewer users suffice to compare learners.
How much two differ by chance follows from the influence of every user, since both are measured on the same ones:

    explained = C² / (S L)     C = Σ left · effect, S = Σ effect², L = Σ left²     ψ = explained · (2 c/C − s/S − l/L)

Source: Nie and Wager (2021); Schuler et al. (2018), "A comparison of methods for model selection when estimating
individual treatment effects", where it does best.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TINY = 1e-12

Vector = NDArray[np.float64]


class EffectScore(NamedTuple):
    """The residuals by which learners are compared.

    Attributes:
        rows: `[n]` of select users in which there was a choice.
        action: `[n]` index of what was given.
        left: `[n]` y − m(s).
        policy: `[n, K]` b.
    """

    rows: NDArray[np.int64]
    action: NDArray[np.int64]
    left: Vector
    policy: Vector

    def explained(self, q: Vector) -> float:
        """Return the share of the residuals that effects explain; `q [n, K]`, in any unit and with any level."""
        effect = self._effect(q)
        cross, square = max(float(effect @ self.left), 0.0), float(effect @ effect)
        return cross**2 / max(square * float(self.left @ self.left), TINY)

    def influence(self, q: Vector, unit: NDArray[np.int64]) -> Vector:
        """Return `[max unit + 1]` what each user, or cluster of users, adds to the error of `explained`.

        Args:
            q: as for `explained`.
            unit: `[n]` of each row.
        """
        effect, share = self._effect(q), self.explained(q)
        if share == 0:
            return np.zeros(int(unit.max(initial=-1)) + 1)
        cross, square, left = effect * self.left, effect**2, self.left**2
        psi = share * (2 * cross / cross.sum() - square / square.sum() - left / left.sum())
        return np.bincount(unit, psi).astype(np.float64)

    def _effect(self, q: Vector) -> Vector:
        """`[n]` of what was given."""
        moved = q - (self.policy * q).sum(axis=1, keepdims=True)
        effect: Vector = moved[np.arange(len(q)), self.action]
        return effect
