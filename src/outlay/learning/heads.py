"""From heads to coordinates: what the critic measures, in the units that the limits are written in.

The critic's heads are x = (1−γ)·J of the reward, the m costs and, where a policy changes how often it decides, of the
decisions (x_1). A limit is compared with a *coordinate*, linear in x (`core/inequalities.py`); of a budget per user it
is sign · horizon · x_c, a running figure, as the choice is made on totals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.inequalities import Inequalities
from outlay.ops.spread import spreads

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Coordinates:
    """coordinates = matrix @ heads + constant, to be at most `limits`.

    Attributes:
        matrix: `[m, H]`.
        constant: `[m]`.
        form: the limits in ≤ form.
        scale: `[m]` s_j = max(|limit|, spread of the logged cost), for violations and multipliers.
        reward_scale: spread of the logged reward.
        spread: `[H]` spread of each head's outcome, the unit it is learned in.
    """

    matrix: Vector
    constant: Vector
    form: Inequalities
    scale: Vector
    reward_scale: float
    spread: Vector

    @property
    def limits(self) -> Vector:
        """`[m]` in ≤ form."""
        return self.form.limits

    def of(self, heads: Vector) -> Vector:
        """`[1+m]` reward and coordinates of a policy with these heads `[H]`."""
        return np.concatenate([heads[:1], self.matrix @ heads + self.constant])

    def shown(self, x: Vector, decisions: float) -> Vector:
        """`[1+m]` reward and costs as tables show them, from coordinates: cost per decision where limits are so."""
        return np.concatenate([x[:1], self.form.shown(x[1:], self.form.divisors(max(decisions, 1e-9)))])

    def weights(self, multiplier: Vector) -> Vector:
        """`[H]` w of the scalarised value: reward − λ·coordinates, λ in reward units per unit of coordinate."""
        unit = np.zeros(self.matrix.shape[1])
        unit[0] = 1.0
        return unit - multiplier @ self.matrix


def critic_coordinates(campaign: Campaign, outcome: NDArray[np.float32], *, steady: bool) -> Coordinates:
    """The coordinates of a campaign.

    Args:
        campaign: its budgets.
        outcome: `[N, 1+m]` logged outcomes of the learn rows, for the spreads.
        steady: whether x_1 = 1 for every policy, so that there is no head for it.
    """
    spread, form = spreads(outcome), Inequalities.of(campaign.budgets)
    horizon = np.where(form.per_decision, 1.0, float(campaign.meta.horizon_days))
    matrix = np.column_stack([np.zeros(len(horizon)), np.diag(form.signs * horizon)])
    return Coordinates(
        matrix=matrix if steady else np.column_stack([matrix, form.slopes]),
        constant=np.zeros(len(horizon)) if steady else 0.0 - form.slopes,
        form=form,
        scale=np.maximum(np.abs(form.limits), horizon * spread[1:]),
        reward_scale=float(spread[0]),
        spread=spread if steady else np.append(spread, 1.0),
    )


def largest_multiplier(
    action: NDArray[np.int64], outcome: NDArray[np.float32], coords: Coordinates, discount: float
) -> Vector:
    """`[m]` λ_max in scaled costs: a price at which the cheapest action is the best one, by the logged means.

    The steepest gain in reward per unit of cost between any two actions is what one day can pay back; the future can
    add at most a factor 1/(1−γ). Doubled for differences between users.
    """
    kinds = np.unique(action)
    means = np.array([outcome[action == a].mean(axis=0, dtype=np.float64) for a in kinds])
    reward = means[:, 0]
    bounds = np.ones(len(coords.limits))
    for j in range(len(bounds)):
        cost = means[:, 1 + j] * coords.matrix[j, 1 + j]
        more = cost[:, None] - cost[None, :]
        gain = reward[:, None] - reward[None, :]
        costlier = more > 1e-3 * coords.scale[j]
        steepest = np.max(gain[costlier] / more[costlier], initial=0.0)
        bounds[j] = 2 / (1 - discount) * steepest * coords.scale[j] / coords.reward_scale
    return np.clip(bounds, 1.0, 1000.0)
