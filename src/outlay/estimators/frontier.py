"""Policies measured on the same users, and the best mixture of them under any budget: the frontier.

    v_l ∈ R^T      objective, costs in their budgets' units, decisions (x_1) of policy l; Cov(v_l, v_k) over clusters
    mixture        max αᵀr   s.t.   α ᵀ(c + margin) ≤ limit,  Σα = 1      its dual: the marginal reward of a budget
    margin_l       above_l + z_{1−β}·√(se_select² + se_certify²),  with the k of all L policies (`certificate.py`)

Only the T numbers of each policy and their covariance are needed, so every budget is solved in milliseconds, and every
mixture has its interval, long after the rows are gone.

Source: Altman (1999) for mixtures under limits; the units are those of `units.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.campaign import Campaign
from outlay.core.inequalities import Inequalities
from outlay.estimators.certificate import margins
from outlay.estimators.joint import Joint
from outlay.estimators.reach import Reach
from outlay.estimators.units import needed
from outlay.ops.intervals import Spread, critical_value, degrees
from outlay.ops.mixture_lp import MixtureSolution, solve_mixture

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """L policies with T = 2 + m numbers each: objective, the m budgets, decisions.

    Attributes:
        value: `[L, T]`; NaN where withheld.
        covariance: `[L, T, L, T]` of the estimates; 0 where withheld.
        certifying: the same as a certificate from as many users would have it.
        users: that they were measured on.
        clusters: that these users come in; None where every user is independent.
        tails: `[L, m, 7]` how the errors of the costs c (in ≤ form) and of x_1 are skewed, for a certificate: Σc³,
            Σc²x, Σcx², Σx³ of the influences, then what one user more may add to c (+∞ where nothing says it), to x_1,
            and take from it.
        gains: `[L, 3]` of the objective less that of the last policy: Σψ³, what one user more may add and take.
    """

    value: Array
    covariance: Array
    certifying: Array
    users: int
    tails: Array
    gains: Array
    clusters: int | None = None

    @classmethod
    def of(
        cls,
        fits: Iterable[Joint],
        campaign: Campaign,
        certifying: Iterable[Joint] | None = None,
        reaches: Iterable[Reach] | None = None,
    ) -> Points:
        """Collect the points from fitted evaluations.

        Args:
            fits: one per policy, on the same users; each is freed once its 16·U·T bytes are copied.
            campaign: its budgets.
            certifying: the same policies as the certificate will measure them; default: as in `fits`.
            reaches: of each policy as `certificate.certify` takes it; default: nothing is known, or on record.
        """
        names = needed(campaign)
        value, influence, units = _together(fits, names)
        covariance = exact = _covariance(influence)
        if certifying is not None:
            influence = _together(certifying, names)[1]
            exact = _covariance(influence)
        signs = Inequalities.of(campaign.budgets).signs
        far = [Reach.unknown(len(signs))] * len(value) if reaches is None else list(reaches)
        tails = [_tails(influence[:, i], signs, reach) for i, reach in enumerate(far)]
        gains = [
            _gain_tails(influence[:, i, 0] - influence[:, -1, 0], max(reach.beyond[0], far[-1].beyond[0]))
            for i, reach in enumerate(far)
        ]
        return cls(value, covariance, exact, units[0], np.array(tails), np.array(gains), units[1])

    def __len__(self) -> int:
        return len(self.value)

    @property
    def independent(self) -> int:
        """G: clusters, or users where every user is independent."""
        return self.users if self.clusters is None else self.clusters

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard errors; +∞ without clusters, or with many."""
        return np.inf if self.clusters is None else degrees(self.clusters)

    def only(self, chosen: NDArray[np.intp]) -> Points:
        """Return the points of some of the policies, in this order."""
        covariance, certifying = (whole[chosen][:, :, chosen] for whole in (self.covariance, self.certifying))
        return replace(
            self,
            value=self.value[chosen],
            covariance=covariance,
            certifying=certifying,
            tails=self.tails[chosen],
            gains=self.gains[chosen],
        )

    def mixed(self, weights: Array) -> Points:
        """Points of mixtures with weights `[G, L]` of the policies.

        The skewness of a mixture is taken as the mean of its members': exact where their errors go together.
        """
        covariance, certifying = (
            np.einsum("gl,ltku,hk->gthu", weights, whole, weights, optimize=True)
            for whole in (self.covariance, self.certifying)
        )
        known = np.where(weights[:, :, None, None] > 0, self.tails, 0.0)  # a member of no weight may have no bound
        return Points(
            value=weights @ self.value,
            covariance=covariance,
            certifying=certifying,
            users=self.users,
            tails=np.einsum("gl,gljk->gjk", weights, known),
            gains=np.einsum("gl,lk->gk", weights, self.gains),
            clusters=self.clusters,
        )

    def coordinates(self, campaign: Campaign) -> tuple[Array, Array]:
        """Return `[L, 1+m]` objective and budgets in ≤ form, and their standard errors, at this campaign's limits."""
        matrix, constant = _linear(campaign)
        # A number that is not known makes unknown only what it is a part of.
        parts = np.where(matrix != 0, self.value[:, None] * matrix, 0.0)
        return parts.sum(axis=2) + constant, _errors(matrix, self.covariance)

    def spread(self, campaign: Campaign) -> Spread:
        """`[L, m]` how the budgets' coordinates may err, as a certificate from as many users would have it."""
        matrix = _linear(campaign)[0]
        x = -matrix[1:, -1]  # c − x·x_1 is compared with the limit
        third = self.tails[..., :4] @ np.array([np.ones_like(x), -3 * x, 3 * x**2, -(x**3)])
        largest = self.tails[..., 4] + np.maximum(-x, 0) * self.tails[..., 5] + np.maximum(x, 0) * self.tails[..., 6]
        error = _errors(matrix, self.certifying)[:, 1:]
        return Spread(self.independent, error, np.einsum("ljj->lj", third), largest, self.clusters is not None)

    def factor(self, campaign: Campaign, alpha: float) -> float:
        """The k with which all costs of all policies lie below estimate + k·se together, with probability 1 − α.

        A budget per decision is compared as x_c − limit·(x_1 − 1). Where policies differ in x_1 that depends on the
        limit, and k is large enough for all limits of one sign at once.
        """
        count, form = len(campaign.budgets), Inequalities.of(campaign.budgets)
        matrix = np.zeros(
            (2 * count, self.value.shape[1])
        )  # the coordinate at limit 0, and what each unit of the limit adds
        matrix[:count, 1 : 1 + count] = np.diag(form.signs)
        matrix[count:, -1] = np.where(form.per_decision, np.copysign(1.0, form.slopes), 0.0)
        whole = np.einsum("ct,ltku,du->lckd", matrix, self.certifying, matrix, optimize=True)
        first = (np.arange(len(self))[:, None] * 2 * count + np.arange(count)).ravel()
        return critical_value(whole.reshape((len(self) * 2 * count,) * 2), alpha, np.stack([first, first + count], 1))

    def margins(
        self,
        campaign: Campaign,
        *,
        factor: float,
        certify_users: int,
        folds: int = 1,
        further: ArrayLike = 0.0,
        rare: bool = True,
    ) -> Array:
        """`[L, m]` by which to raise each policy's costs, so that what is chosen is likely to be certified.

        Args:
            campaign: its limits, `train.margin`, and the budgets below which none is kept.
            factor: k of the certificate to come (`factor`).
            certify_users: that it will rest on, or clusters of them.
            folds: how many mixtures are mixed, each chosen on users of its own, so that their errors cancel in part.
            further: `[L, m]` as `certificate.margins` takes it.
            rare: likewise.
        """
        select = self.coordinates(campaign)[1][:, 1:] / np.sqrt(folds)
        certifying = self.spread(campaign).scaled(certify_users)
        return margins(
            select,
            certifying,
            factor=factor,
            margin=campaign.train.margin,
            further=further,
            held=campaign.held,
            rare=rare,
        )

    def solve(self, aim: Array, campaign: Campaign, scale: Array, margin: Array) -> MixtureSolution:
        """Weights `[L]` under the campaign's limits.

        Args:
            aim: `[L]` what the mixture maximises (`units.chosen_by`).
            campaign: its limits.
            scale: `[m]` one unit of violation of each limit.
            margin: `[L, m]` by which each policy's costs are raised.
        """
        raised = np.column_stack([aim, self.coordinates(campaign)[0][:, 1:]])
        return solve_mixture(raised, Inequalities.of(campaign.budgets).limits, scale, margin=margin)

    def mixture(self, weights: Array) -> tuple[Array, Array]:
        """`[T]` of the sticky mixture with weights `[L]`, and its covariance `[T, T]`."""
        covariance: Array = np.einsum("l,ltku,k->tu", weights, self.covariance, weights)
        return weights @ self.value, covariance

    def shown(self, weights: Array, campaign: Campaign) -> tuple[Array, Array]:
        """`[1+m]` objective and costs of a mixture as tables show them, and their standard errors (delta method)."""
        value, covariance = self.mixture(weights)
        jacobian, out = np.zeros((1 + len(campaign.budgets), len(value))), shown(value, campaign)
        jacobian[0, 0] = 1.0
        for j, budget in enumerate(campaign.budgets, start=1):
            jacobian[j, j] = 1.0
            if budget.per == "decision":
                jacobian[j, j], jacobian[j, -1] = 1 / value[-1], -out[j] / value[-1]
        return out, np.sqrt(np.maximum(np.diag(jacobian @ covariance @ jacobian.T), 0))


def shown(value: Array, campaign: Campaign) -> Array:
    """`[1+m]` objective and costs as tables show them, of the numbers `[T]` of a policy."""
    out = value[:-1].copy()
    for j, budget in enumerate(campaign.budgets, start=1):
        if budget.per == "decision":
            out[j] = value[j] / value[-1]
    return out


def pooled(parts: Sequence[Points], shares: Array) -> Points:
    """The weighted means of points from users that have nobody in common; `shares` sum to 1."""
    count = sum(part.independent for part in parts)
    scale = [share * count / part.independent for part, share in zip(parts, shares, strict=True)]
    powers = np.array([3, 3, 3, 3, 1, 1, 1])
    tails = np.array([part.tails * s**powers for part, s in zip(parts, scale, strict=True)])
    gains = np.array([part.gains * s ** powers[[0, 4, 4]] for part, s in zip(parts, scale, strict=True)])
    return Points(
        value=np.asarray(sum(share * part.value for part, share in zip(parts, shares, strict=True))),
        covariance=np.asarray(sum(share**2 * part.covariance for part, share in zip(parts, shares, strict=True))),
        certifying=np.asarray(sum(share**2 * part.certifying for part, share in zip(parts, shares, strict=True))),
        users=sum(part.users for part in parts),
        clusters=None if parts[0].clusters is None else count,
        tails=np.concatenate([tails[..., :4].sum(axis=0), tails[..., 4:].max(axis=0)], axis=-1),
        gains=np.concatenate([gains[..., :1].sum(axis=0), gains[..., 1:].max(axis=0)], axis=-1),
    )


def _together(fits: Iterable[Joint], names: list[str]) -> tuple[Array, Array, tuple[int, int | None]]:
    """`[L, T]` numbers, `[G, L, T]` their influences, 0 where withheld, and the number of users and of clusters."""
    units: tuple[int, int | None]
    value, parts, units = [], [], (0, None)
    for fit in fits:
        units = len(fit.mass), None if fit.clusters is None else fit.clusters.count
        columns = [fit.column(name) for name in names]
        value.append(fit.value[columns])
        parts.append(fit.influence[:, columns])
    influence = np.empty((len(parts[0]), len(parts), len(names)))
    for i in range(len(parts)):
        influence[:, i], parts[i] = parts[i], parts[i][:0]  # they are large for many users: each is freed
    np.nan_to_num(influence, copy=False)
    influence -= influence.mean(axis=0)
    return np.array(value), influence, units


def _covariance(influence: Array) -> Array:
    """`[L, T, L, T]` of the numbers."""
    users, *shape = influence.shape
    flat = influence.reshape(users, -1)
    covariance: Array = (flat.T @ flat / ((users - 1) * users)).reshape(shape * 2)
    return covariance


def _tails(influence: Array, signs: Array, reach: Reach) -> Array:
    """`[m, 7]` of one policy, from its influences `[U, T]`."""
    cost, ones = signs * influence[:, 1:-1], influence[:, -1:]
    moments = [(cost ** (3 - power) * ones**power).sum(axis=0) for power in range(4)]
    more = Spread.of(cost, reach.known, reach.beyond[1:]).largest
    up, down = (np.broadcast_to(Spread.of(sign * ones, 0.0).largest, more.shape) for sign in (1, -1))
    return np.stack([*moments, more, up, down], axis=1)


def _gain_tails(influence: Array, beyond: float) -> Array:
    """`[3]` of one gain, from its influence `[U]` and how far a user may exceed it."""
    up, down = Spread.of_gain(influence, beyond), Spread.of_gain(-influence, beyond)
    return np.array([up.third, up.largest, down.largest])


def _errors(matrix: Array, covariance: Array) -> Array:
    """`[L, 1+m]` standard errors of matrix @ numbers, from `[L, T, L, T]`."""
    variance = np.einsum("ct,ltlu,cu->lc", matrix, covariance, matrix)
    errors: Array = np.sqrt(np.maximum(variance, 0))
    return errors


def _linear(campaign: Campaign) -> tuple[Array, Array]:
    """`[1+m, T]` and `[1+m]`: coordinates = matrix @ numbers + constant (`units.coordinates`)."""
    form = Inequalities.of(campaign.budgets)
    matrix = np.diag(np.concatenate([[1.0], form.signs, [0.0]]))[:-1]
    matrix[1:, -1] = form.slopes
    return matrix, np.append(0.0, 0.0 - form.slopes)
