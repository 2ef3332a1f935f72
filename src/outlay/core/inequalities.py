"""Limits as inequalities, the form in which mixtures are chosen and certified: budgets ≤ limits, floors negated.

    coordinate    sign · x_c + slope · (x_1 − 1)  ≤  sign · limit      slope: −sign · limit per decision, 0 per user
    as shown      sign · (l + (coordinate − l) / x_1),  l = sign · limit                 per user without the division

x_c is what is measured of a cost, and x_1 how often a policy decides. A coordinate is linear in both, and so in the
mixture, and it is on the same side of the limit as the cost per decision: x_c ≤ limit·x_1 ⇔ x_c − limit·(x_1 − 1) ≤
limit. Tables show the cost per decision itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Budget

Vector = NDArray[np.float64]


class Inequalities(NamedTuple):
    """The limits of m budgets.

    Attributes:
        signs: `[m]` −1 for floors, else 1.
        limits: `[m]` in ≤ form.
        per_decision: `[m]` whether they are per decision.
    """

    signs: Vector
    limits: Vector
    per_decision: NDArray[np.bool_]

    @classmethod
    def of(cls, budgets: Sequence[Budget]) -> Inequalities:
        """Return those of some budgets."""
        return cls(
            np.array([float(budget.sign) for budget in budgets]),
            np.array([budget.sign * budget.limit for budget in budgets]),
            np.array([budget.per == "decision" for budget in budgets]),
        )

    @property
    def slopes(self) -> Vector:
        """`[m]` what a coordinate changes by with x_1."""
        return np.where(self.per_decision, -self.limits, 0.0)

    def divisors(self, ones: float) -> Vector:
        """`[m]` what the excess of a coordinate is divided by to be shown, of a policy whose x_1 is `ones`."""
        return np.where(self.per_decision & (ones > 0), ones, 1.0)

    def shown(self, coordinates: Vector, divisors: Vector) -> Vector:
        """`[…, m]` costs as tables show them, with signs as logged."""
        costs: Vector = self.signs * (self.limits + (coordinates - self.limits) / divisors)
        return costs
