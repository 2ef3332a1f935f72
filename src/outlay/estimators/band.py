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

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.allowances import Allowances, allow, allow_bounds
from outlay.estimators.certificate import LIKELY, MOST_OVER, Bounds, Certificate, CostBounds, issue
from outlay.estimators.frontier import Points
from outlay.estimators.units import objective
from outlay.estimators.weaker import above_second
from outlay.estimators.windowed import claimed
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


class MixtureFigures(NamedTuple):
    """What L policies or mixtures were measured at on *certify* users.

    Attributes:
        points: these, then the old policy.
        second: the same by an estimate that assumes less; None where there is none.
        withheld: `[L]` why one could not be measured or is not believed, or None.
        doubts: `[L]` why a bound of its gain is not to be relied on, or None; empty: of none.
        unbelieved: `[m]` rows of the log above the stated largest cost of each budget; empty: none.
    """

    points: Points
    second: Points | None
    withheld: tuple[Reason | None, ...]
    doubts: tuple[Reason | None, ...] = ()
    unbelieved: tuple[int, ...] = ()


class About(NamedTuple):
    """What was found of the users and the state, whatever the policy.

    Attributes:
        against: what stands against a certificate of any of them.
        window: days of a user that figures are means over, each weighing the same; None: all, discounted.
        allowances: what widens every bound (`allowances.py`).
    """

    against: tuple[Reason, ...] = ()
    window: int | None = None
    allowances: Allowances = {}  # noqa: RUF012  of a named tuple, and a mapping that nobody writes to


@dataclass(frozen=True)
class Band:
    """The bounds of L policies, at one confidence.

    Attributes:
        figures: what they were measured at.
        about: what was found besides.
        confidence: 1 − α.
        own: the factors of the fitted figures.
        second: those of the estimate that assumes less; None where there is none.
    """

    figures: MixtureFigures
    about: About
    confidence: float
    own: Family
    second: Family | None

    @classmethod
    def of(cls, figures: MixtureFigures, about: About, campaign: Campaign, confidence: float) -> Band:
        """Return the bounds, with their factors computed, for the budgets of a campaign at any limits."""
        own, less = Family.of(figures.points, campaign, confidence), figures.second
        return cls(figures, about, confidence, own, None if less is None else Family.of(less, campaign, confidence))

    @property
    def points(self) -> Points:
        """The L policies, then the old policy."""
        return self.figures.points

    @property
    def factor(self) -> float:
        """The k of the costs."""
        return self.own.factor

    def __len__(self) -> int:
        return len(self.figures.withheld)

    def certificate(self, weights: Array, campaign: Campaign) -> Certificate:
        """Return the certificate of the mixture `[L]` under this campaign's limits; it costs no further look."""
        z = quantile(LIKELY)  # at which a gain may pass for likely, alone
        own, second = self.own._replace(gain_factor=z), self.second and self.second._replace(gain_factor=z)
        alone, held = replace(self, confidence=LIKELY, own=own, second=second), self._held(weights, campaign)
        return issue(
            self._bounded(weights, campaign, held),
            self._against(np.flatnonzero(weights)),
            users=self.points.users,
            clusters=self.points.clusters,
            policies=len(self),
            likely=alone._bounded(weights, campaign).gain_bound,
            held=held,
        )

    def _held(self, weights: Array, campaign: Campaign) -> Reason | None:
        """Return that a budget is held while serving; None where none is, or it is surely and far beyond its limit."""
        if not any(campaign.held):
            return None
        budget, spent = campaign.budgets[campaign.money], self.estimates(weights, campaign)[1 + campaign.money]
        if spent.value is None or spent.low is None or spent.high is None:
            return None
        if spent.low > budget.limit and spent.value > (1 + MOST_OVER) * budget.limit:
            return None
        figures = {"value": spent.value, "low": spent.low, "high": spent.high, "limit": float(budget.limit)}
        return Reason(
            ReasonKind.HELD, {"budget": budget.name, "label": campaign.told("budgets", budget.name), **figures}
        )

    def _bounded(self, weights: Array, campaign: Campaign, held: Reason | None = None) -> Bounds:
        """Return the bounds of a mixture, with all that is allowed for."""
        used = np.flatnonzero(weights)
        share, part = weights[used], self.points.only(used)
        spread, against = part.spread(campaign), self._against(used)
        value = share @ part.coordinates(campaign)[0][:, 1:]
        bound, events = self._costs(used, share, spread, campaign), np.fmin.reduce(spread.events, axis=0)
        gain, least, most = self._gain(used, share)
        if doubted := any(map(_doubts, against)):
            value, gain = value * np.nan, gain * np.nan
        # Of a shared budget the figures stand, of the log's own level.
        if unbounded := doubted or any(reason.kind is ReasonKind.SHARED for reason in against):
            bound, events = bound * np.nan, events * np.nan
        doubts = self.figures.doubts
        if unbounded or any(doubts[i] is not None for i in (used if doubts else ())):
            least, most = np.nan, np.nan
        usual = self._costs(used, share, replace(spread, largest=np.zeros_like(spread.largest)), campaign)
        costs = CostBounds(value, bound, float(share @ part.value[:, -1]), events, self.figures.unbelieved or 0, usual)
        window = claimed(campaign, self.about.window)
        names = () if held is None else (str(held.figures["budget"]),)
        bounds = Bounds.of(costs, (gain, least, most), campaign, self.confidence, window, names)
        return allow_bounds(self.about.allowances, bounds)

    def _costs(self, used: NDArray[np.intp], share: Array, spread: Spread, campaign: Campaign) -> Array:
        """`[m]` bounds in ≤ form of a mixture of some policies, whose errors are spread like this."""
        bound: Array = share @ (self.points.only(used).coordinates(campaign)[0][:, 1:] + spread.above(self.factor))
        if self.second is None:
            return bound
        x, errors = self.second.points.only(used).coordinates(campaign)
        reach = above_second(spread, errors[:, 1:], self.second.factor)
        return np.maximum(bound, share @ (x[:, 1:] + reach))

    def _gain(self, used: NDArray[np.intp], share: Array) -> tuple[float, float, float]:
        """The gain of a mixture of some policies over the old one, and its lower and upper bound."""
        gain, covariance = _gains(self.points, used)
        error, (third, up, down) = np.sqrt(np.maximum(np.diag(covariance), 0)), self.points.gains[used].T
        count, clustered = self.points.independent, self.points.clusters is not None
        more, less = (Spread(count, error, sign * third, largest, clustered) for sign, largest in ((1, up), (-1, down)))
        factor = self.own.gain_factor
        least, most = share @ (gain - less.above(factor)), share @ (gain + more.above(factor))
        if self.second is not None:
            its, covariance = _gains(self.second.points, used)
            error = np.sqrt(np.maximum(np.diag(covariance), 0))
            above, below = (above_second(each, error, self.second.gain_factor) for each in (more, less))
            least, most = np.minimum(least, share @ (its - below)), np.maximum(most, share @ (its + above))
        return float(share @ gain), float(least), float(most)

    def _against(self, policies: NDArray[np.intp]) -> tuple[Reason, ...]:
        """What stands against figures of these policies, of which the old one is the last."""
        own = (*self.figures.withheld, None)
        return (*self.about.against, *(reason for i in policies if (reason := own[i]) is not None))

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
            low, high = np.fmin(low, its[0]), np.fmax(high, its[1])  # it may be withheld
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
            found.append(allow(self.about.allowances, estimate, confidence))
        return found


def _doubts(reason: Reason) -> bool:
    """Whether figures that there are are not to be believed; what could not be measured has none."""
    return reason.withholds and reason.kind not in (ReasonKind.UNSUPPORTED, ReasonKind.SHARED)


def _gains(points: Points, policies: NDArray[np.intp] | slice = slice(None)) -> tuple[Array, Array]:
    """`[L]` objectives of policies less that of the old one (the last of the points), and their covariance `[L, L]`."""
    value, covariance = points.value[:, 0], points.covariance[:, 0, :, 0]
    some = np.eye(len(value) - 1)[policies]
    less = np.hstack([some, -np.ones((len(some), 1))])
    return value[:-1][policies] - value[-1], less @ covariance @ less.T
