"""Bounds that hold for every mixture of L policies at once, so that one look certifies all budgets.

    U_lj = x_lj + above_lj       P(truth_lj ≤ U_lj for all policies l and budgets j) ≥ 1 − α        (costs, ≤ form)
    certified  ⇔  Σ α_l U_lj ≤ limit_j for all j        P(some mixture of any limits is certified and over) ≤ α

above_lj is k·se_lj, and more where the error is skewed (`Spread`). Where no U_lj is broken, no mixture of them
is, however α was chosen and however often one looked again. Gains over the old policy are a family of their own:
g_l − below_l, with another k', all lie below the true gains with probability 1 − α.

Where an estimate that assumes less was made of each policy, its bounds are a second family, with k of its own, and of
every mixture the weaker of its two bounds counts (`weaker.py`).

A bound of the mixture with its own, smaller standard error would not be covered by this family; it is not used.

Source: sup-t bands as in `ops/intervals.py`; that they carry over to mixtures is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.allowances import Allowances, allow, allow_bounds
from outlay.estimators.certificate import LIKELY, Bounds, Certificate, issue
from outlay.estimators.frontier import Points
from outlay.estimators.units import objective
from outlay.estimators.weaker import above_second
from outlay.ops.intervals import Spread, critical_value, interval, quantile

Array = NDArray[np.float64]


class Family(NamedTuple):
    """Bounds that hold together.

    Attributes:
        points: the policies, then the old policy.
        factor: k of the costs.
        gain_factor: k' of the gains.
    """

    points: Points
    factor: float
    gain_factor: float

    @classmethod
    def of(cls, points: Points, campaign: Campaign, confidence: float) -> Family:
        """Return the factors with which costs, and gains, hold together with this probability.

        One policy alone needs no more than a single bound, however many budgets it has (`certificate.py`).
        """
        alpha, policies = 1 - confidence, np.arange(len(points) - 1)
        if len(policies) == 1:
            return cls(points, quantile(confidence), quantile(confidence))
        return cls(points, points.only(policies).factor(campaign, alpha), critical_value(_gains(points)[1], alpha))


@dataclass(frozen=True)
class Band:
    """The bounds of L policies, at one confidence.

    Attributes:
        points: the L policies, then the old policy, measured on *certify* users.
        withheld: `[L]` why a policy could not be measured or is not believed, or None.
        against: what stands against a certificate of any of them.
        confidence: 1 − α.
        factor: k of the costs.
        gain_factor: k' of the gains.
        window: days of a user that the figures are about, each weighing the same; None: all, discounted, or the horizon
            of budgets per user.
        allowances: what widens every bound (`allowances.py`).
        unbelieved: `[m]` rows of the log above the stated largest cost of each budget; empty: none.
        doubts: `[L]` why a bound of the gain of a policy is not to be relied on, or None; empty: of none.
        second: the bounds of the same policies by an estimate that assumes less; None where there is none.
    """

    points: Points
    withheld: tuple[Reason | None, ...]
    against: tuple[Reason, ...]
    confidence: float
    factor: float
    gain_factor: float
    window: int | None = None
    allowances: Allowances = field(default_factory=dict)
    unbelieved: tuple[int, ...] = ()
    doubts: tuple[Reason | None, ...] = ()
    second: Family | None = None

    @classmethod
    def of(
        cls,
        points: Points,
        withheld: Sequence[Reason | None],
        against: Sequence[Reason],
        campaign: Campaign,
        *,
        confidence: float,
        window: int | None = None,
        allowances: Allowances | None = None,
        unbelieved: tuple[int, ...] = (),
        doubts: Sequence[Reason | None] = (),
        second: Points | None = None,
    ) -> Band:
        """Return the bounds, with their factors computed.

        Args:
            points: the L policies, then the old policy, measured on *certify* users.
            withheld: `[L]` why a policy could not be measured, or None.
            against: what stands against a certificate of any of them.
            campaign: whose budgets are bounded, at any limits.
            confidence: 1 − α.
            window: days of a user that the figures are about.
            allowances: what widens every bound.
            unbelieved: `[m]` rows of the log above the stated largest cost of each budget; empty: none.
            doubts: `[L]` why a bound of the gain of a policy is not to be relied on, or None; empty: of none.
            second: the same points by an estimate that assumes less.
        """
        own = Family.of(points, campaign, confidence)
        return cls(
            points=points,
            withheld=tuple(withheld),
            against=tuple(against),
            confidence=confidence,
            factor=own.factor,
            gain_factor=own.gain_factor,
            window=window,
            allowances=allowances or {},
            unbelieved=unbelieved,
            doubts=tuple(doubts),
            second=None if second is None else Family.of(second, campaign, confidence),
        )

    def __len__(self) -> int:
        return len(self.withheld)

    def certificate(self, weights: Array, campaign: Campaign) -> Certificate:
        """Return the certificate of the mixture `[L]` under this campaign's limits; it costs no further look."""
        z = quantile(LIKELY)  # at which a gain may pass for likely, alone
        second = None if self.second is None else self.second._replace(gain_factor=z)
        alone = replace(self, confidence=LIKELY, gain_factor=z, second=second)
        return issue(
            self._bounded(weights, campaign),
            self._against(np.flatnonzero(weights)),
            users=self.points.users,
            clusters=self.points.clusters,
            policies=len(self),
            likely=alone._bounded(weights, campaign).gain_bound,
        )

    def _bounded(self, weights: Array, campaign: Campaign) -> Bounds:
        """Return the bounds of a mixture, with all that is allowed for."""
        used = np.flatnonzero(weights)
        share, part = weights[used], self.points.only(used)
        x, _ = part.coordinates(campaign)
        spread = part.spread(campaign)
        value, bound = share @ x[:, 1:], share @ (x[:, 1:] + spread.above(self.factor))
        gain, covariance = _gains(self.points)
        error, (third, up, down) = np.sqrt(np.maximum(np.diag(covariance), 0)), self.points.gains[:-1].T
        count, clustered = self.points.independent, self.points.clusters is not None
        more, less = (Spread(count, error, sign * third, largest, clustered) for sign, largest in ((1, up), (-1, down)))
        least, most = gain - less.above(self.gain_factor), gain + more.above(self.gain_factor)
        least, most = share @ least[used], share @ most[used]
        if self.second is not None:
            x, errors = self.second.points.only(used).coordinates(campaign)
            reach = above_second(spread, errors[:, 1:], self.second.factor)
            bound = np.maximum(bound, share @ (x[:, 1:] + reach))
            its, covariance = _gains(self.second.points)
            error = np.sqrt(np.maximum(np.diag(covariance), 0))
            above, below = (above_second(each, error, self.second.gain_factor) for each in (more, less))
            least = np.minimum(least, share @ (its - below)[used])
            most = np.maximum(most, share @ (its + above)[used])
        against, events = self._against(used), np.fmin.reduce(spread.events, axis=0)
        if doubted := any(map(_doubts, against)):
            value, gain = value * np.nan, gain * np.nan
        shared = any(
            reason.kind is ReasonKind.SHARED for reason in against
        )  # the figures stand, of the log's own level
        if doubted or shared:
            bound, events = bound * np.nan, events * np.nan
        if doubted or shared or any(self.doubts[i] is not None for i in (used if self.doubts else ())):
            least, most = least * np.nan, most * np.nan
        bounds = Bounds.of(
            value,
            bound,
            campaign,
            (float(share @ gain[used]), float(least), float(most)),
            self.confidence,
            window=self.window,
            decisions=float(share @ part.value[:, -1]),
            events=events,
            unbelieved=self.unbelieved or 0,
        )
        return allow_bounds(self.allowances, bounds)

    def _against(self, policies: NDArray[np.intp]) -> tuple[Reason, ...]:
        """What stands against figures of these policies, of which the old one is the last."""
        own = (*self.withheld, None)
        return (*self.against, *(reason for i in policies if (reason := own[i]) is not None))

    def estimates(self, weights: Array, campaign: Campaign) -> list[Estimate]:
        """Return objective and costs of the mixture `[L]`, each with its own interval."""
        return self._estimates("mixture", np.append(weights, 0.0), campaign)

    def old_estimates(self, campaign: Campaign) -> list[Estimate]:
        """Return the same of the old policy."""
        return self._estimates("old", np.append(np.zeros(len(self)), 1.0), campaign)

    def _estimates(self, policy: str, weights: Array, campaign: Campaign) -> list[Estimate]:
        used = np.flatnonzero(weights)
        part, share, confidence = self.points.only(used), weights[used], campaign.train.confidence
        reason = next((each for each in self._against(used) if each.withholds), None)
        doubted = reason is not None and _doubts(reason)
        value, error = part.shown(share, campaign)
        low, high = interval(value, error, confidence, self.points.freedom)
        if self.second is not None:
            its = interval(*self.second.points.only(used).shown(share, campaign), confidence, self.points.freedom)
            low, high = np.minimum(low, its[0]), np.maximum(high, its[1])
        found = []
        for t, target in enumerate((objective(campaign), *(budget.name for budget in campaign.budgets))):
            estimate = Estimate(
                policy=policy,
                estimator="fqe",
                target=target,
                value=None,
                withheld=reason or Reason(ReasonKind.NOT_MEASURED),
            )
            if np.isfinite(value[t]):
                estimate = Estimate(
                    policy=policy,
                    estimator="fqe",
                    target=target,
                    value=float(value[t]),
                    low=float(low[t]),
                    high=float(high[t]),
                    std_error=float(error[t]),
                    recommended=not doubted,
                    caution=reason if doubted else None,
                )
            found.append(allow(self.allowances, estimate, confidence))
        return found


def _doubts(reason: Reason) -> bool:
    """Whether figures that there are are not to be believed; what could not be measured has none."""
    return reason.withholds and reason.kind not in (ReasonKind.UNSUPPORTED, ReasonKind.SHARED)


def _gains(points: Points) -> tuple[Array, Array]:
    """`[L]` objectives less that of the old policy (the last of the points), and their covariance `[L, L]`."""
    value, covariance = points.value[:, 0], points.covariance[:, 0, :, 0]
    less = np.hstack([np.eye(len(value) - 1), -np.ones((len(value) - 1, 1))])
    return value[:-1] - value[-1], less @ covariance @ less.T
