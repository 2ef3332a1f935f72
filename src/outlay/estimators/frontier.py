"""Policies measured on the same users, and the best mixture of them under any budget: the frontier.

    v_l ∈ R^T      objective, costs in their budgets' units, decisions (x_1) of policy l;   Cov(v_l, v_k) over users
    mixture        max αᵀr   s.t.   α ᵀ(c + margin) ≤ limit,  Σα = 1      its dual: what one more unit of budget buys

Only the T numbers of each policy and their covariance are needed, so every budget is solved in milliseconds, and every
mixture has its interval, long after the rows are gone.

Source: Altman (1999) for mixtures under limits; the units are those of `units.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.estimators.certificate import expected_se, margins
from outlay.estimators.joint import Joint
from outlay.estimators.units import objective
from outlay.ops.mixture_lp import MixtureSolution, solve_mixture

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """L policies with T = 2 + m numbers each: objective, the m budgets, decisions.

    Attributes:
        value: `[L, T]`.
        covariance: `[L, T, L, T]` of the estimates.
        certifying: `[L, T, T]` covariance of each policy's numbers as a certificate from as many users would have it.
        users: that they were measured on.
    """

    value: Array
    covariance: Array
    certifying: Array
    users: int

    @classmethod
    def of(cls, fits: Sequence[Joint], campaign: Campaign, certifying: Sequence[Joint] | None = None) -> Points:
        """From fitted evaluations, in which nothing that is needed may be withheld.

        Args:
            fits: one a policy, on the same users.
            campaign: its budgets.
            certifying: the same policies as the certificate will measure them; default: as in `fits`.
        """
        names = [objective(campaign)]
        for budget in campaign.budgets:
            names.append(budget.name if budget.per == "decision" else f"{budget.name}@{campaign.meta.horizon_days}")
        names.append("decisions")
        columns = [fits[0].column(name) for name in names]
        influence = np.concatenate([fit.influence[:, columns] for fit in fits], axis=1)
        alone = [_covariance(fit.influence[:, columns]) for fit in certifying or fits]
        covariance = _covariance(influence).reshape((len(fits), len(names)) * 2)
        return cls(np.array([fit.value[columns] for fit in fits]), covariance, np.array(alone), len(influence))

    def __len__(self) -> int:
        return len(self.value)

    def coordinates(self, campaign: Campaign) -> tuple[Array, Array]:
        """`[L, 1+m]` objective and budgets in ≤ form, and their standard errors; limits as in this campaign."""
        matrix, constant = _linear(campaign)
        own = np.stack([self.covariance[i, :, i] for i in range(len(self))])
        return self.value @ matrix.T + constant, _errors(matrix, own)

    def expected_errors(self, campaign: Campaign, certify_users: int) -> Array:
        """`[L, m]` standard errors of the budgets' coordinates to expect of a certificate."""
        return expected_se(_errors(_linear(campaign)[0], self.certifying)[:, 1:], self.users, certify_users)

    def mixture(self, weights: Array) -> tuple[Array, Array]:
        """`[T]` of the sticky mixture with weights `[L]`, and its covariance `[T, T]`."""
        covariance: Array = np.einsum("l,ltku,k->tu", weights, self.covariance, weights)
        return weights @ self.value, covariance

    def shown(self, weights: Array, campaign: Campaign) -> tuple[Array, Array]:
        """`[1+m]` objective and costs of a mixture as tables show them, and their standard errors (delta method)."""
        value, covariance = self.mixture(weights)
        jacobian = np.zeros((1 + len(campaign.budgets), len(value)))
        jacobian[0, 0], out = 1.0, value[:-1].copy()
        for j, budget in enumerate(campaign.budgets, start=1):
            jacobian[j, j] = 1.0
            if budget.per == "decision":
                out[j] = value[j] / value[-1]
                jacobian[j, j], jacobian[j, -1] = 1 / value[-1], -out[j] / value[-1]
        return out, np.sqrt(np.maximum(np.diag(jacobian @ covariance @ jacobian.T), 0))


def solve(
    points: Points, campaign: Campaign, scale: Array, *, confidence: float, certify_users: int
) -> tuple[MixtureSolution, Array]:
    """Weights `[L]` under the campaign's limits, each cost raised by the margin of its policy.

    Args:
        points: measured on *select*.
        campaign: its limits, and `train.margin`.
        scale: `[m]` one unit of violation of each limit.
        confidence: of the certificate to come.
        certify_users: that it will rest on.

    Returns:
        the solution, and `[L, m]` the margins.
    """
    x, errors = points.coordinates(campaign)
    expected = points.expected_errors(campaign, certify_users)
    margin = margins(errors[:, 1:], expected, confidence=confidence, margin=campaign.train.margin)
    raised = x + np.column_stack([np.zeros(len(x)), margin])
    limits = np.array([budget.sign * budget.limit for budget in campaign.budgets])
    return solve_mixture(raised, limits, scale), margin


def _covariance(influence: Array) -> Array:
    """Of estimates with influence `[U, T]` per user: `[T, T]`."""
    users = len(influence)
    centred = influence - influence.mean(axis=0)
    whole: Array = centred.T @ centred / ((users - 1) * users)
    return whole


def _errors(matrix: Array, covariance: Array) -> Array:
    """`[L, 1+m]` standard errors of matrix @ numbers, from `[L, T, T]`."""
    variance = np.einsum("ct,ltu,cu->lc", matrix, covariance, matrix)
    errors: Array = np.sqrt(np.maximum(variance, 0))
    return errors


def _linear(campaign: Campaign) -> tuple[Array, Array]:
    """`[1+m, T]` and `[1+m]`: coordinates = matrix @ numbers + constant (`units.coordinates`)."""
    count = len(campaign.budgets)
    matrix, constant = np.zeros((1 + count, 2 + count)), np.zeros(1 + count)
    matrix[0, 0] = 1.0
    for j, budget in enumerate(campaign.budgets, start=1):
        matrix[j, j] = budget.sign
        if budget.per == "decision":
            matrix[j, -1], constant[j] = -budget.sign * budget.limit, budget.sign * budget.limit
    return matrix, constant
