"""What a policy brings and costs all users of the log: totals of their first days, now and with it.

    total   =  users · (mean per user of reward or money over the first k days)   k: the longest that can be relied on
    change  =  users · (the same of the policy less the old policy's, paired by user)
    sure    =  users · (bounds of that gain as a certificate has them)                `certify.bounds_of_totals`
               but no loss of more than all, where no row of the log has a reward below 0

The figures per user are those of the fitted evaluation, with the interval that holds both of its estimates and with all
that is allowed for, so the interval of a total is that interval times the users. The users are a known number: those of
the log, or as many as the campaign file says. What is sure of the reward is the total itself, over the days that are
named, and not a discounted mean.

Source: ours; estimates and bounds as in `estimators/` and `certify.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.allowances import allowances_of
from outlay.choosing.estimates import PolicyEstimates
from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate, Target
from outlay.core.progress import Progress
from outlay.core.transitions import Transitions
from outlay.estimators.allowances import allow, ends
from outlay.estimators.band import About, Band
from outlay.estimators.certificate import Certificate
from outlay.estimators.units import horizons
from outlay.evaluating.certify import Certified, figures_of_budgets, over_days
from outlay.evaluating.diagnostics import ActionShare, daily
from outlay.evaluating.evaluation import SegmentEstimate
from outlay.evaluating.first_days import average_day
from outlay.evaluating.totals import (
    BudgetTotals,
    CurveTotals,
    DayTotal,
    DecisionTotals,
    SegmentTotals,
    Total,
    TotalChange,
)
from outlay.ops.intervals import interval, std_error

OTHERS = (0.75, 1.25, 0.5, 1.5)  # of the campaign's limit: budgets that are told beside it, after what is spent now
MOST_OTHERS = 3
APART = 0.1  # of the limit: a budget nearer to one that is told is left out
MOST_CELLS = 4_000_000  # users times days: for more, days have no intervals, which would take too much memory

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PerUser:
    """Figures per user by the fitted evaluation, as tables show them, by target.

    Attributes:
        new: of the policy.
        old: of the old one.
        more: of the policy less the old one, paired by user.
    """

    new: Mapping[str, Estimate]
    old: Mapping[str, Estimate]
    more: Mapping[str, Estimate]

    @classmethod
    def of(cls, measure: Measure, new: PolicyEstimates, old: PolicyEstimates, campaign: Campaign) -> PerUser:
        """Take them from the estimates of both policies."""
        level, allowances = campaign.train.confidence, allowances_of(measure)

        def fitted(rows: Sequence[Estimate]) -> dict[str, Estimate]:
            return {e.target: allow(allowances, e, level) for e in rows if e.estimator == "fqe"}

        rows = new.rows(campaign, level), old.rows(campaign, level), new.rows_less(old, campaign, level)
        return cls(*map(fitted, rows))

    @classmethod
    def of_segment(cls, rows: Sequence[SegmentEstimate]) -> PerUser:
        """Take them from the rows of one segment."""
        by: dict[str, dict[str, Estimate]] = {"new": {}, "old": {}, "gain": {}}
        for e in rows:
            by[e.policy if e.policy in by else "new"][e.target] = e
        return cls(*by.values())

    def change(self, name: str, days: int, users: float) -> TotalChange | None:
        """Return the total of `name` over so many days for so many users; None where the policy's is withheld."""
        target = str(Target(name, days))
        new, old, more = (by.get(target) for by in (self.new, self.old, self.more))
        if new is None or (whole := _total(new, users)) is None:
            return None
        relied_on = all(e is not None and e.recommended for e in (new, old))
        return TotalChange(now=_total(old, users), new=whole, more=_total(more, users), relied_on=relied_on)


def _total(e: Estimate | None, users: float) -> Total | None:
    if e is None or e.value is None:
        return None
    low, high = (None if end is None else users * end for end in (e.low, e.high))
    return Total(value=users * e.value, low=low, high=high)


def all_lost(now: Total | None, data: Transitions) -> float:
    """Return the change that loses all of a reward, below which no bound need go; −∞ where some row is below 0."""
    return -np.inf if now is None or float(data.outcome[:, 0].min()) < 0 else -now.value


def _bounds(certificate: Certificate, users: float, lost: float) -> tuple[float | None, float | None]:
    least, most = (None if x is None else max(users * x, lost) for x in (certificate.gain_bound, certificate.gain_most))
    return least, most


def days_told(per_user: PerUser, campaign: Campaign) -> int | None:
    """Return the days of the longest totals of reward and money that can be relied on, else the longest given.

    None where none is given.
    """
    money = campaign.budgets[campaign.money].name
    changes = {k: [per_user.change(name, k, 1.0) for name in ("reward", money)] for k in horizons(campaign)}
    given = {k: [each for each in both if each is not None] for k, both in changes.items() if all(both)}
    relied_on = [k for k, both in given.items() if all(each.relied_on for each in both)]
    return max(relied_on or given, default=None)


def totals_of(
    per_user: PerUser, campaign: Campaign, data: Transitions, days: int, certificate: Certificate
) -> DecisionTotals:
    """Return the totals of the first `days` days; days, segments and other budgets are added to them.

    Args:
        per_user: figures, given over so many days (`days_told`).
        campaign: its budgets, and how many users totals are for.
        data: the log.
        days: k.
        certificate: bounds of the gain over these days, per user (`certify.bounds_of_totals`).
    """
    log_users, average = len(data.users), average_day(campaign, steady=data.steady)
    users, money = campaign.meta.users or log_users, campaign.budgets[campaign.money].name
    reward, spent = (per_user.change(name, days, users) for name in ("reward", money))
    assert reward is not None
    assert spent is not None
    others = {b.name: found for b in campaign.budgets if (found := per_user.change(b.name, days, users)) is not None}
    least, most = _bounds(certificate, users, all_lost(reward.now, data))
    return DecisionTotals(
        users=users,
        log_users=log_users,
        days=days,
        confidence=campaign.train.confidence,
        sure=certificate.confidence,
        reward=reward,
        at_least=least,
        at_most=most,
        money=spent,
        first_day=per_user.change(money, 1, users),
        limit_a_day=None if average is None else users * average,
        costs={name: found for name, found in others.items() if name != money},
    )


def by_day(
    measure: Measure, old: PolicyEstimates, new: PolicyEstimates, campaign: Campaign, totals: DecisionTotals
) -> tuple[DayTotal, ...]:
    """Return what each day brings and costs all users, by the fitted evaluation, up to the first that is withheld."""
    found: list[DayTotal] = []
    names = ("reward", campaign.budgets[campaign.money].name)
    for name, of in (("old", old), ("new", new)):
        means = daily(name, of.fitted)[: totals.days]
        value = np.array([[day.reward, day.costs[campaign.money]] for day in means]).reshape(-1, 2)
        error = _day_errors(measure, of.policy, names, totals.days)[: len(value)]
        low, high = interval(value, error, totals.confidence, of.fitted.freedom)
        for day in range(len(value)):
            reward, money = (
                _of_day(measure, target, (value[day, i], low[day, i], high[day, i]), totals)
                for i, target in enumerate(names)
            )
            found.append(DayTotal(policy=name, day=day + 1, reward=reward, money=money))
    return tuple(found)


def _of_day(measure: Measure, name: str, found: tuple[float, float, float], totals: DecisionTotals) -> Total:
    value, low, high = (float(x) for x in found)
    if not np.isfinite(low):
        return Total(value=totals.users * value)
    low, high = ends(allowances_of(measure), Target(name, 1), (value, low, high), totals.confidence)
    return Total(value=totals.users * value, low=totals.users * low, high=totals.users * high)


def _day_errors(measure: Measure, policy: EvaluatedPolicy, names: Sequence[str], days: int) -> Array:
    """`[days, 2]` standard errors: a day is the total up to it less that before, and so is its influence."""
    if measure.panel.num_users * days > MOST_CELLS:
        return np.full((days, len(names)), np.nan)
    wanted = [str(Target(name, k)) for name in names for k in range(1, days + 1)]
    influence: Array | float = 0.0
    for (part, source), weight in zip(policy.sources, policy.weights, strict=True):
        fitted = measure.fit(part, source, days=range(1, days + 1))
        influence = influence + weight * fitted.influence[:, [fitted.column(target) for target in wanted]]
    of_days = np.diff(np.asarray(influence).reshape(-1, len(names), days), prepend=0.0, axis=2)
    return std_error(of_days).T


def segment_totals(
    rows: Sequence[SegmentEstimate], shares: Sequence[ActionShare], campaign: Campaign, totals: DecisionTotals
) -> tuple[SegmentTotals, ...]:
    """Return who gets more and who gets less: totals by segment, which add up to those of all.

    Args:
        rows: figures per user of each segment.
        shares: how often each action is given.
        campaign: its money budget.
        totals: of all users.
    """
    count, money = {e.segment: e.users for e in rows}, campaign.budgets[campaign.money].name
    found = []
    for segment, own in count.items():
        users = totals.users * own / sum(count.values())
        of = PerUser.of_segment([e for e in rows if e.segment == segment])
        given = [_mean_given([s for s in shares if (s.segment, s.policy) == (segment, p)]) for p in ("old", "new")]
        found.append(
            SegmentTotals(
                segment=segment,
                users=round(users),
                given=None if given[0] is None or given[1] is None else (given[0], given[1]),
                reward=of.change("reward", totals.days, users),
                money=of.change(money, totals.days, users),
            )
        )
    return tuple(found)


def _mean_given(shares: Sequence[ActionShare]) -> float | None:
    """The mean amount given; None where actions have names, or nothing is known."""
    amounts = [s.action * s.share for s in shares if not isinstance(s.action, str)]
    return float(sum(amounts)) if amounts and len(amounts) == len(shares) else None


def other_budgets(
    stored: StoredFrontier,
    measure: Measure,
    campaign: Campaign,
    about: About,
    totals: DecisionTotals,
    report: Progress,
) -> tuple[BudgetTotals, ...]:
    """Return what other limits of the money budget bring, as far as the curve reaches, and the same one behind a cap.

    Args:
        stored: the frontier of the run, with a curve.
        measure: what measured the mixture that it serves.
        campaign: its limits.
        about: what the evaluation found besides.
        totals: of the mixture for the campaign's own limit.
        report: called with the fraction done and what is being done.
    """
    limits, over = _limits(stored, campaign, totals), over_days(campaign, totals.days)
    mixtures, capped = [stored.between(limit) @ stored.weights for limit in limits], stored.capped(campaign)
    if capped is not None:
        limits, mixtures = [*limits, campaign.budgets[campaign.money].limit], [*mixtures, capped]
    if not limits:
        return ()
    grid = np.array(mixtures)
    (figures,) = figures_of_budgets(stored, grid, measure.data, [over], report, measure)
    band = Band.of(figures, about, over, totals.sure)
    each = ((band.estimates(one, over), band.certificate(one, over)) for one in np.eye(len(limits)))
    lost = all_lost(totals.reward.now, measure.data)
    found = [budget_totals(limit, of, campaign, totals.users, lost) for limit, of in zip(limits, each, strict=True)]
    if capped is not None and found[-1] is not None:
        found[-1] = replace(found[-1], capped=True)
    return tuple(each for each in found if each is not None)


def budget_totals(
    limit: float, measured: tuple[Sequence[Estimate], Certificate] | None, campaign: Campaign, users: int, lost: float
) -> BudgetTotals | None:
    """Return what a limit of the money budget brings all users; None where that is not told.

    Args:
        limit: in the unit of the budget.
        measured: totals per user, and the bounds of the gain (`Certified.totals_of`).
        campaign: its limits.
        users: whom totals are for.
        lost: the change that loses all (`all_lost`).
    """
    if measured is None:
        return None
    (aim, *costs), certificate = measured
    reward, money = _total(aim, users), _total(costs[campaign.money], users)
    if reward is None or money is None:
        return None
    more = None if certificate.gain is None else users * certificate.gain
    least, most = _bounds(certificate, users, lost)
    return BudgetTotals(limit=limit, reward=reward, money=money, more=more, at_least=least, at_most=most)


def curve_totals(known: Certified | None, campaign: Campaign, data: Transitions) -> CurveTotals | None:
    """Return what the totals of every budget are about; None where none are told."""
    if known is None or known.totals is None:
        return None
    log_users, days, money = len(data.users), known.days, campaign.money
    users, over = campaign.meta.users or log_users, over_days(campaign, days)
    reward, *costs = (_total(e, users) for e in known.totals[0].old_estimates(over))
    counted = days / campaign.meta.horizon_days if campaign.budgets[money].per == "user" else days
    times = None if average_day(campaign, steady=data.steady) is None else users * counted
    return CurveTotals(users=users, log_users=log_users, days=days, reward=reward, money=costs[money], times=times)


def _limits(stored: StoredFrontier, campaign: Campaign, totals: DecisionTotals) -> list[float]:
    """Return other limits of the money budget, ascending: what is spent now, and some around the campaign's."""
    limit, now = campaign.budgets[campaign.money].limit, totals.money.now
    spent = [limit * now.value / totals.money.new.value] if now is not None and totals.money.new.value > 0 else []
    found = [limit]
    for each in (*spent, *(limit * share for share in OTHERS)):
        apart = all(abs(each - other) > APART * limit for other in found)
        if apart and stored.budgets[0] <= each <= stored.budgets[-1] and len(found) <= MOST_OTHERS:
            found.append(float(f"{each:.3g}"))
    return sorted(found[1:])
