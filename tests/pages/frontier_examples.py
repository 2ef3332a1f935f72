"""A finished frontier: 33 policies, 101 budgets, the old policy below the curve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from outlay.core.campaign import BudgetLimit, Campaign
from outlay.evaluating.budget_curve import BudgetCurve, CurveBand, CurveMember, CurvePoint, OldPolicy, SinglePolicy
from outlay.evaluating.goals import of_a_page, reached
from outlay.evaluating.totals import BudgetTotals, CurveTotals, Total
from outlay.pages import frontier

USERS, DAYS = 20_000, 30  # of totals
LEAST, MOST, SE, MARGIN = 0.01, 1.18, 0.002, 0.004  # per decision
BEND = 2.0  # of the curve


def found(budgets: int = 1, *, per: str = "decision", certified: float | None = None) -> BudgetCurve:
    """With two budgets the second is a floor, with three the third a ceiling; per user all is a total of 30 days.

    After a look budgets up to the share `certified` of the curve are certified.
    """
    times = 1.0 if per == "decision" else 30.0
    grid = np.linspace(1.9, 0.0, 33)
    names = ["coupon_cost", "reach", "large_coupons"][:budgets]
    limits = [0.65 * times, 0.3, 0.4][:budgets]
    signs = [1, -1, 1][:budgets]

    def value(spend: float) -> tuple[float, float]:
        """The objective and its slope."""
        share, scale = (spend - LEAST) / (MOST - LEAST), 0.42 / (1 - np.exp(-BEND))
        reached = 0.15 + scale * (1 - np.exp(-BEND * share))
        return float(reached) * times, float(scale * BEND * np.exp(-BEND * share) / (MOST - LEAST))

    def costs(spend: float) -> tuple[float, ...]:
        return (spend * times, 0.3 + 0.4 * spend / MOST, 0.45 * spend / MOST)[:budgets]

    def point(budget: float) -> CurvePoint:
        slack = budget > MOST * times + 1e-9
        given = min(budget / times, MOST)
        spend = max(given - MARGIN * given / MOST, LEAST / 2)
        bought, slope = value(given)
        share = 32 * (given - LEAST) / (MOST - LEAST)
        low, weight = min(int(share), 31), share - min(int(share), 31)
        spends = costs(spend)
        kept = None if certified is None else slack or given <= LEAST + certified * (MOST - LEAST) + 1e-9
        bound = (0.998 if kept else 1.01) * budget
        words = f"not certified: coupon_cost by {0.01 * budget:.4g} (upper bound {bound:.4g} against {budget:g})"
        sure: dict[str, Any] = (
            {}
            if kept is None
            else {
                "certificate": "certified" if kept else words,
                "bounds": (bound, *(s - sign * 0.001 for s, sign in zip(spends[1:], (1, -1), strict=False))),
                "gain": bought - 0.37 * times,
                "gain_bound": bought - 0.38 * times,
                "gain_most": bought - 0.36 * times,
            }
        )
        return CurvePoint(
            **sure,
            certified=kept,
            budget=budget,
            value=bought,
            low=bought - 2 * SE * times,
            high=bought + 2 * SE * times,
            spend=spends,
            spend_low=tuple(0.994 * s for s in spends),
            spend_high=tuple(1.006 * s for s in spends),
            marginal=0.0 if slack else slope,
            marginal_low=0.0 if slack else 0.8 * slope,
            marginal_high=0.0 if slack else 1.2 * slope,
            margin=MARGIN * given / MOST * times,
            slack=slack,
            members=tuple(
                CurveMember(multiplier=(float(grid[i]), 0.12, 0.05)[:budgets], weight=w, fold=0)
                for i, w in ((low, 1 - weight), (low + 1, weight))
                if w > 0
            ),
        )

    return BudgetCurve(
        campaign="thirty-day",
        unit="yuan",
        reward_label="active days",
        objective="reward" if per == "decision" else "reward@30",
        money="coupon_cost",
        budgets=tuple(
            BudgetLimit(
                name=n,
                limit=limit,
                sign=sign,
                unit="yuan" if n == "coupon_cost" else "",
                per="user" if n == "coupon_cost" and per == "user" else "decision",
            )
            for n, limit, sign in zip(names, limits, signs, strict=True)
        ),
        least=LEAST * times,
        most=MOST * times,
        confidence=0.95,
        users=14_902,
        curve=tuple(point(float(b)) for b in np.linspace(LEAST * times, MOST * times, 101)),
        requested=(point(0.65 * times),),
        old=OldPolicy(value=0.37 * times, low=0.366 * times, high=0.374 * times, spend=costs(0.45)),
        folds=1,
        policies=tuple(
            SinglePolicy(
                multiplier=(float(price), 0.12, 0.05)[:budgets],
                fold=0,
                spend=costs(spend),
                value=value(spend)[0] - 0.002 * times * (i % 3),
            )
            for i, (price, spend) in enumerate(zip(grid, np.linspace(LEAST, MOST, 33), strict=True))
        ),
        band=None
        if certified is None
        else CurveBand(
            users=14_871,
            policies=33,
            confidence=0.975,
            factor=2.784,
            look=1,
            old=0.37 * times,
        ),
        condition="if the features say enough about a user",
        check="Check: costs fall as λ grows, in all 528 pairs of policies, as far as noise lets one tell.",
    )


def campaign(curve: BudgetCurve) -> Campaign:
    """A campaign with the budgets of a curve and what its things are called."""
    budgets = [
        {"name": b.name, "cost": b.name, "at_most" if b.sign > 0 else "at_least": b.limit, "per": b.per}
        for b in curve.budgets
    ]
    content = {
        "campaign": {"name": curve.campaign, "unit": curve.unit, "horizon_days": 30},
        "log": {
            "source": "log.csv",
            "user": "user",
            "time": "day",
            "action": "coupon",
            "reward": "active",
            "features": {"numeric": ["level"]},
        },
        "budget": [{**budgets[0], "money": True}, *budgets[1:]],
        "labels": {"reward": "active days", "action": "coupons"},
    }
    return Campaign.model_validate(content)


def told(budgets: int = 1, certified: float = 1.0) -> BudgetCurve:
    """After a look, with totals for all users and the goals of a page."""
    curve, times = found(budgets, certified=certified), float(USERS * DAYS)

    def with_totals(point: CurvePoint) -> CurvePoint:
        gain, least, most = (None if x is None else times * x for x in (point.gain, point.gain_bound, point.gain_most))
        reward = Total(value=times * point.value, low=times * point.low, high=times * point.high)
        money = Total(value=times * point.spend[0], low=times * point.spend_low[0], high=times * point.spend_high[0])
        totals = BudgetTotals(limit=point.budget, reward=reward, money=money, more=gain, at_least=least, at_most=most)
        return replace(point, totals=totals)

    old = curve.old
    assert old is not None
    now = Total(value=times * old.value, low=times * old.low, high=times * old.high)
    about = CurveTotals(
        users=USERS, log_users=USERS, days=DAYS, reward=now, money=Total(value=times * old.spend[0]), times=times
    )
    points = tuple(map(with_totals, curve.curve))
    curve = replace(curve, curve=points, requested=tuple(map(with_totals, curve.requested)), totals=about)

    def nearest(budget: float) -> CurvePoint:
        """Good enough for a page: the next point of the curve."""
        return next((p for p in points if p.budget >= budget - 1e-9), points[-1])

    return replace(curve, goals=reached(curve, of_a_page(curve), nearest))


def page(curve: BudgetCurve) -> str:
    """Its page."""
    return frontier.render(curve, campaign(curve), "run")
