"""The yardstick without states: the best mixture of constant actions under the limits, and what a policy adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.allowances import allowances_of
from outlay.choosing.estimates import assuming_less
from outlay.choosing.measure import Measure
from outlay.core.actions import Given, named
from outlay.core.campaign import Campaign
from outlay.core.estimate import Target
from outlay.core.transitions import SELECT, Transitions
from outlay.estimators.allowances import ends
from outlay.estimators.certificate import LIKELY
from outlay.estimators.fitted import Fitted
from outlay.estimators.joint import Joint, combine
from outlay.estimators.reach import Reach, largest
from outlay.estimators.units import coordinates, decisions, displayed, needed_days
from outlay.estimators.weaker import above_second
from outlay.estimators.windowed import claimed
from outlay.ops.intervals import Spread, quantile, std_error
from outlay.ops.mixture_lp import FEASIBLE, solve_mixture


@dataclass(frozen=True)
class Constants:
    """A mixture of constant actions.

    Attributes:
        actions: `[k]` indices.
        weights: `[k]` shares of users.
        missed: None where it keeps the limits on the users that it was chosen on; else by how much it misses them,
            `coupon_cost by 0.21`, and no mixture of constant actions comes nearer.
    """

    actions: list[int]
    weights: NDArray[np.float64]
    missed: str | None

    @property
    def title(self) -> str:
        """What tables call it."""
        return "best constant mixture" if self.missed is None else "constants nearest to the limits"

    def words(self, data: Transitions) -> str:
        """`1.5 for 40% of users, 2 for 60% of users`."""
        shares = zip(self.actions, self.weights, strict=True)
        said = ", ".join(f"{named(data.given(a))} for {w:.0%} of users" for a, w in shares)
        return said if self.missed is None else f"{said}; no constant mixture keeps the limits: misses {self.missed}"


@dataclass(frozen=True)
class ConstantActions:
    """The actions that every row allows, measured on the users of one split.

    Attributes:
        data: the transitions.
        actions: `[k]` indices of those that could be measured, k ≥ 1.
        fits: what each was measured at.
    """

    data: Transitions
    actions: list[int]
    fits: list[Fitted]

    @classmethod
    def of(cls, at: Measure, campaign: Campaign) -> ConstantActions | None:
        """Measure them; None where no action is allowed everywhere, or nothing can be measured."""
        allowed = np.flatnonzero(at.data.allowed_everywhere).tolist()
        needed = needed_days(campaign)
        fits = zip(allowed, at.constants(allowed, needed), strict=True)
        known = [(a, fitted) for a, fitted in fits if np.isfinite(coordinates(fitted, campaign)[0]).all()]
        return cls(at.data, [a for a, _ in known], [fitted for _, fitted in known]) if known else None

    def best(self, campaign: Campaign) -> Constants:
        """The mixture of the largest objective under the limits of a campaign.

        It spends up to the limits: nobody certifies a yardstick, and one that left room for a certificate would be
        beaten by whatever needs less room. Where no mixture keeps the limits, it is the one of least scaled violation.
        """
        parts = [coordinates(fitted, campaign) for fitted in self.fits]
        x, limits = np.array([value for value, _, _ in parts]), parts[0][2]
        scale = np.where(limits == 0, 1.0, np.abs(limits))
        found = solve_mixture(x, limits, scale)
        used = np.flatnonzero(found.weights)
        weights = found.weights[used]
        missed = None if found.feasible else _missed(combine([self.fits[i] for i in used], weights), campaign)
        return Constants([self.actions[i] for i in used], weights, missed)


def _missed(whole: Fitted, campaign: Campaign) -> str:
    """`coupon_cost by 0.21`, in the units of the budgets."""
    x, _, limits = coordinates(whole, campaign)
    excess = (x[1:] - limits) / decisions(whole, campaign)
    least = FEASIBLE * np.where(limits == 0, 1.0, np.abs(limits))
    over = zip(campaign.budgets, excess, least, strict=True)
    return ", ".join(f"{campaign.told('budgets', b.name)} by {by:.3g}" for b, by, rounding in over if by > rounding)


def constants_of(at: Measure, campaign: Campaign) -> tuple[Constants, Fitted] | None:
    """The best mixture of constant actions as *select* users say, and what it brings on the users of `at`.

    Where folds take turns, each chooses its own; None without constants in one of them.
    """
    chosen, fits = [], []
    for part in at.folds:
        choice = ConstantActions.of(Measure(part.data, SELECT, None), campaign)
        if choice is None:
            return None
        chosen.append(best := choice.best(campaign))
        fits.append(combine(part.constants(best.actions, at.days), best.weights))
    actions = sorted({a for best in chosen for a in best.actions})
    weights = np.array(
        [
            np.mean([best.weights[best.actions.index(a)] if a in best.actions else 0.0 for best in chosen])
            for a in actions
        ]
    )
    missed = next((best.missed for best in chosen if best.missed is not None), None)
    return Constants(actions, weights, missed), at.pool(fits)


@dataclass(frozen=True)
class AgainstConstants:
    """A policy beside the best constant actions at its own spend, on the same users.

    Attributes:
        words: what they are.
        gain: objective of the policy less theirs.
        gain_bound: its one-sided lower bound; None where too few events make it.
        gain_likely: the same at the confidence `certificate.LIKELY`.
        value: their objective.
        spend: what they cost of the money budget, in its unit.
        keep: whether they keep the limits at that spend; where not, no constant actions do.
        given: the actions and their shares of users.
    """

    words: str
    gain: float
    gain_bound: float | None
    gain_likely: float | None
    value: float
    spend: float
    keep: bool
    given: tuple[tuple[Given, float], ...] = ()


def beside_constants(
    at: Measure,
    fitted: Fitted,
    campaign: Campaign,
    confidence: float,
    *,
    second: Joint | None,
    propensity: NDArray[np.float64],
    reach: Reach,
) -> AgainstConstants | None:
    """What a policy adds to the best constant actions that spend no more than it does.

    The constants are measured and chosen on the same users, so that what both spend is alike to the last digit: to
    other users the same shares cost some percent more or less, and that would be taken for a gain. It favours the
    constants a little. The bound allows for all that the bound of the gain over the old policy does: larger rewards
    elsewhere in the log, an estimate that assumes less, and days that differ.

    Args:
        at: the users whom the policy was measured on.
        fitted: of the policy.
        campaign: budgets.
        confidence: of the bound, one-sided.
        second: an estimate of the policy that assumes less: the bound is then the weaker of the two.
        propensity: `[n]` of the logged action in each row.
        reach: of the policy, by row (`Measure.reach`).

    Returns:
        None without constants, and where a figure is withheld.
    """
    constants, money = ConstantActions.of(at, campaign), campaign.budgets[campaign.money]
    spend = _spend(fitted, campaign)
    if constants is None or not np.isfinite(spend):
        return None
    if money.sign > 0:
        campaign = campaign.with_money_limit(min(money.limit, spend))
    found = constants.best(campaign)
    fits = [constants.fits[constants.actions.index(a)] for a in found.actions]
    given, whole = [np.full(len(at.panel), a) for a in found.actions], combine(fits, found.weights)
    (gain, psi), levels = _ahead(fitted, whole, campaign), (confidence, LIKELY)
    far = (largest(fitted, campaign, reach), largest(whole, campaign, at.reach(given, found.weights)))
    less = Spread.of_gain(-psi, max(each.beyond[0] for each in far), clustered=fitted.clusters is not None)
    bounds = [gain - float(less.above(quantile(level))) for level in levels]
    if np.isnan(bounds[0]):
        return None
    if second is not None:
        days, parts = needed_days(campaign), zip(given, fits, strict=True)
        seconds = [assuming_less(at, part, fit, propensity, days) or fit for part, fit in parts]
        ahead, own = _ahead(second, combine(seconds, found.weights), campaign)
        below = [ahead - float(above_second(less, std_error(own), quantile(level))) for level in levels]
        bounds = [float(np.minimum(*each)) for each in zip(bounds, below, strict=True)]
    bound, likely = _allowed(gain, bounds, levels, at, campaign)
    return AgainstConstants(
        words=found.words(constants.data),
        gain=gain,
        gain_bound=bound,
        gain_likely=likely,
        value=float(coordinates(whole, campaign)[0][0]),
        spend=_spend(whole, campaign),
        keep=found.missed is None,
        given=tuple((constants.data.given(a), float(w)) for a, w in zip(found.actions, found.weights, strict=True)),
    )


def _allowed(
    gain: float, bounds: Sequence[float], levels: Sequence[float], at: Measure, campaign: Campaign
) -> list[float | None]:
    """Lower bounds of a gain, at these levels, with all that is allowed for; None where there is none."""
    target, allowances = Target("reward", claimed(campaign, at.window)), allowances_of(at)
    return [
        ends(allowances, target, (gain, each, gain), 2 * level - 1, gain=True)[0] if np.isfinite(each) else None
        for each, level in zip(bounds, levels, strict=True)
    ]


def _spend(fitted: Fitted, campaign: Campaign) -> float:
    """What a policy costs of the money budget, in its unit."""
    shown = displayed(fitted, campaign)
    return float(shown.value[shown.column(campaign.budgets[campaign.money].name)])


def _ahead(one: Joint, other: Joint, campaign: Campaign) -> tuple[float, NDArray[np.float64]]:
    """By how much the objective of one policy is above another's, and the influence of every user on that."""
    (x, influence, _), (its, base, _) = coordinates(one, campaign), coordinates(other, campaign)
    return float(x[0] - its[0]), influence[:, 0] - base[:, 0]
