"""How a policy's first days differ from those after them: the peak of its spend.

A total of a week does not say it. A policy that moves money to users whom an incentive still changes spends most on its
first day, when there are most of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlay.core.campaign import Campaign
from outlay.core.wording import four
from outlay.evaluating.diagnostics import DayMeans

SAME = 0.05  # of a day's spend: a smaller peak is none


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDays:
    """The days of a policy beside those of the old one, by the fitted evaluation.

    Attributes:
        money: what sentences call the money budget.
        days: that were compared.
        spend: on day one, per user.
        above_old: the same over what the old policy spends on day one, less 1; None where that is nothing.
        above_average: over what the limit allows on an average day, less 1; None where that cannot be said, as users
            do not decide every day.
        dearer: the first days in a row that cost more than the same days of the old policy.
        beyond_average: the first days in a row that cost more than the limit allows on average; 0 where that cannot be
            said.
    """

    money: str
    days: int
    spend: float
    above_old: float | None
    above_average: float | None
    dearer: int
    beyond_average: int

    @classmethod
    def of(cls, daily: Sequence[DayMeans], policy: str, campaign: Campaign, *, steady: bool) -> FirstDays | None:
        """Compare the days of a policy with the old one's; None with fewer than two days.

        Args:
            daily: of both.
            policy: its name there.
            campaign: its limits.
            steady: whether users decide every day, so that a limit per decision is one per day.
        """
        new, old = ([day for day in daily if day.policy == name] for name in (policy, "old"))
        if min(len(new), len(old)) < 2:
            return None
        money = campaign.budgets[campaign.money]
        spends = [(mine.costs[campaign.money], its.costs[campaign.money]) for mine, its in zip(new, old, strict=False)]
        average = average_day(campaign, steady=steady) or 0.0
        known = average > 0
        spend, before = spends[0]
        return cls(
            money=campaign.told("budgets", money.name),
            days=len(spends),
            spend=spend,
            above_old=spend / before - 1 if before > 0 else None,
            above_average=spend / average - 1 if known else None,
            dearer=_first([mine > its for mine, its in spends]),
            beyond_average=_first([known and mine > average for mine, _ in spends]),
        )

    @property
    def words(self) -> str:
        """What a reader of totals would not expect, in a sentence; empty where there is nothing."""
        beyond, days = [], []
        for share, count, against in (
            (self.above_old, self.dearer, "the old policy's"),
            (self.above_average, self.beyond_average, "the limit's average"),
        ):
            if share is not None and share > SAME:
                beyond.append(f"{100 * share:.0f}% above {against}")
                days += [f"the first {count} days are above {against}"] if count > 1 else []
        if not beyond:
            return ""
        first = f"On day one {self.money} is {four(self.spend)} a user, {' and '.join(beyond)}"
        return f"{'; '.join([first, *days])}."


def average_day(campaign: Campaign, *, steady: bool) -> float | None:
    """What the limit of the money budget allows per user on an average day; None of a floor, and where it is not known.

    Args:
        campaign: its limits.
        steady: whether users decide every day, so that a limit per decision is one per day.
    """
    money = campaign.budgets[campaign.money]
    if money.sign < 0 or not (steady or money.per == "user"):
        return None
    return money.limit / campaign.meta.horizon_days if money.per == "user" else money.limit


def _first(above: Sequence[bool]) -> int:
    """How many of them are true before the first that is not."""
    return next((place for place, each in enumerate(above) if not each), len(above))
