"""Policies measured on the same users, and the best mixture of them under any budget: the frontier.

    v_l ∈ R^T      objective, costs in their budgets' units, decisions (x_1) of policy l;   Cov(v_l, v_k) over users
    mixture        max αᵀr   s.t.   α ᵀ(c + margin) ≤ limit,  Σα = 1      its dual: what one more unit of budget buys
    margin_l       k·se_certify + z_{1−β}·√(se_select² + se_certify²),  with the k of all L policies together

Only the T numbers of each policy and their covariance are needed, so every budget is solved in milliseconds, and every
mixture has its interval, long after the rows are gone.

Source: Altman (1999) for mixtures under limits; the units are those of `units.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.estimators.certificate import expected_se, joint_margins
from outlay.estimators.joint import Joint
from outlay.estimators.units import objective
from outlay.ops.mixture_lp import MixtureSolution, solve_mixture
from outlay.ops.simultaneous import critical_value

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """L policies with T = 2 + m numbers each: objective, the m budgets, decisions.

    Attributes:
        value: `[L, T]`; NaN where withheld.
        covariance: `[L, T, L, T]` of the estimates; 0 where withheld.
        certifying: the same as a certificate from as many users would have it.
        users: that they were measured on.
    """

    value: Array
    covariance: Array
    certifying: Array
    users: int

    @classmethod
    def of(cls, fits: Iterable[Joint], campaign: Campaign, certifying: Iterable[Joint] | None = None) -> Points:
        """From fitted evaluations.

        Args:
            fits: one a policy, on the same users; each is let go once its 16·U·T bytes are taken.
            campaign: its budgets.
            certifying: the same policies as the certificate will measure them; default: as in `fits`.
        """
        names = [objective(campaign)]
        for budget in campaign.budgets:
            names.append(budget.name if budget.per == "decision" else f"{budget.name}@{campaign.meta.horizon_days}")
        names.append("decisions")
        value, covariance, users = _together(fits, names)
        exact = covariance if certifying is None else _together(certifying, names)[1]
        return cls(value, covariance, exact, users)

    def __len__(self) -> int:
        return len(self.value)

    def only(self, chosen: NDArray[np.intp]) -> Points:
        """Of some of the policies, in this order."""
        covariance, certifying = (whole[chosen][:, :, chosen] for whole in (self.covariance, self.certifying))
        return Points(self.value[chosen], covariance, certifying, self.users)

    def coordinates(self, campaign: Campaign) -> tuple[Array, Array]:
        """`[L, 1+m]` objective and budgets in ≤ form, and their standard errors; limits as in this campaign."""
        matrix, constant = _linear(campaign)
        return self.value @ matrix.T + constant, _errors(matrix, self.covariance)

    def expected_errors(self, campaign: Campaign, certify_users: int) -> Array:
        """`[L, m]` standard errors of the budgets' coordinates to expect of a certificate."""
        return expected_se(_errors(_linear(campaign)[0], self.certifying)[:, 1:], self.users, certify_users)

    def factor(self, campaign: Campaign, alpha: float) -> float:
        """The k with which all costs of all policies lie below estimate + k·se together, with probability 1 − α.

        A budget per decision is compared as x_c − limit·(x_1 − 1). Where policies differ in x_1 that depends on the
        limit, and k is large enough for all limits of one sign at once.
        """
        count, width = len(campaign.budgets), len(self.value[0])
        matrix = np.zeros((2 * count, width))  # the coordinate at limit 0, and what each unit of the limit adds
        for j, budget in enumerate(campaign.budgets):
            matrix[j, 1 + j] = budget.sign
            if budget.per == "decision":
                matrix[count + j, -1] = -budget.sign * np.copysign(1, budget.limit)
        whole = np.einsum("ct,ltku,du->lckd", matrix, self.certifying, matrix, optimize=True)
        first = (np.arange(len(self))[:, None] * 2 * count + np.arange(count)).ravel()
        return critical_value(whole.reshape((len(self) * 2 * count,) * 2), alpha, np.stack([first, first + count], 1))

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
    points: Points, campaign: Campaign, scale: Array, *, factor: float, certify_users: int
) -> tuple[MixtureSolution, Array]:
    """Weights `[L]` under the campaign's limits, each cost raised by the margin of its policy.

    Args:
        points: measured on *select*.
        campaign: its limits, and `train.margin`.
        scale: `[m]` one unit of violation of each limit.
        factor: k of the certificate to come (`Points.factor`).
        certify_users: that it will rest on.

    Returns:
        the solution, and `[L, m]` the margins.
    """
    x, errors = points.coordinates(campaign)
    expected = points.expected_errors(campaign, certify_users)
    margin = joint_margins(errors[:, 1:], expected, factor=factor, margin=campaign.train.margin)
    raised = x + np.column_stack([np.zeros(len(x)), margin])
    limits = np.array([budget.sign * budget.limit for budget in campaign.budgets])
    return solve_mixture(raised, limits, scale), margin


def _together(fits: Iterable[Joint], names: list[str]) -> tuple[Array, Array, int]:
    """`[L, T]` numbers, `[L, T, L, T]` their covariance, and the users."""
    value, parts = [], []
    for fit in fits:
        columns = [fit.column(name) for name in names]
        value.append(fit.value[columns])
        parts.append(fit.influence[:, columns])
    influence = np.nan_to_num(np.concatenate(parts, axis=1))
    users = len(influence)
    influence -= influence.mean(axis=0)
    covariance = influence.T @ influence / ((users - 1) * users)
    return np.array(value), covariance.reshape((len(value), len(names)) * 2), users


def _errors(matrix: Array, covariance: Array) -> Array:
    """`[L, 1+m]` standard errors of matrix @ numbers, from `[L, T, L, T]`."""
    variance = np.einsum("ct,ltlu,cu->lc", matrix, covariance, matrix)
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
