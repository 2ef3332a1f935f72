"""How a policy's first days differ from those after them: the peak of its spend, and where its daily gain ends.

A total of a week says neither. A policy that moves money to users whom an incentive still changes spends most on its
first day, when there are most of them, and gains most then.
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
        money, reward: what sentences call the money budget and the reward.
        spend: on day one, per user.
        above_old: the same over what the old policy spends on day one, less 1; None where that is nothing.
        above_average: over what the limit allows on an average day, less 1; None where that cannot be said, as users
            do not decide every day.
        dearer: the first days in a row that cost more than the same days of the old policy.
        beyond_average: the first days in a row that cost more than the limit allows on average; 0 where that cannot be
            said.
        gains: `[D]` reward of each day over that of the old policy, less 1.
        ends: the day from which on no day brings more than the old policy's; None where the last one still does, or
            the first did not.
    """

    money: str
    reward: str
    spend: float
    above_old: float | None
    above_average: float | None
    dearer: int
    beyond_average: int
    gains: tuple[float, ...]
    ends: int | None

    @classmethod
    def of(cls, daily: Sequence[DayMeans], policy: str, campaign: Campaign, *, steady: bool) -> FirstDays | None:
        """Compare the days of a policy with the old one's; None with fewer than two days, or without a reward.

        Args:
            daily: of both.
            policy: its name there.
            campaign: its limits.
            steady: whether users decide every day, so that a limit per decision is one per day.
        """
        new, old = ([day for day in daily if day.policy == name] for name in (policy, "old"))
        if min(len(new), len(old)) < 2 or any(day.reward <= 0 for day in old):
            return None
        money = campaign.budgets[campaign.money]
        spends = [(mine.costs[campaign.money], its.costs[campaign.money]) for mine, its in zip(new, old, strict=False)]
        average = average_day(campaign, steady=steady) or 0.0
        gains = [mine.reward / its.reward - 1 for mine, its in zip(new, old, strict=False)]
        known = average > 0
        ends = 1 + max((day for day, gain in enumerate(gains, start=1) if gain > 0), default=0)
        spend, before = spends[0]
        return cls(
            money=campaign.told("budgets", money.name),
            reward=campaign.told("reward"),
            spend=spend,
            above_old=spend / before - 1 if before > 0 else None,
            above_average=spend / average - 1 if known else None,
            dearer=_first([mine > its for mine, its in spends]),
            beyond_average=_first([known and mine > average for mine, _ in spends]),
            gains=tuple(gains),
            ends=ends if gains[0] > 0 and ends <= len(gains) else None,
        )

    @property
    def words(self) -> str:
        """What a reader of totals would not expect, in a sentence or two; empty where there is nothing."""
        beyond, days = [], []
        for share, count, against in (
            (self.above_old, self.dearer, "the old policy's"),
            (self.above_average, self.beyond_average, "the limit's average"),
        ):
            if share is not None and share > SAME:
                beyond.append(f"{100 * share:.0f}% above {against}")
                days += [f"the first {count} days are above {against}"] if count > 1 else []
        told = []
        if beyond:
            first = f"Day one costs {four(self.spend)} {self.money} a user, {' and '.join(beyond)}"
            told.append(f"{'; '.join([first, *days])}.")
        if self.ends is not None:
            last = len(self.gains)
            told.append(
                f"The daily gain ends: {self.reward} is {100 * self.gains[0]:+.1f}% on day 1, and from day {self.ends} "
                f"on not above the old policy's ({100 * self.gains[-1]:+.1f}% on day {last})."
            )
        return " ".join(told)


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
