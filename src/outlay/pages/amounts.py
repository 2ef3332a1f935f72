"""What pages for managers call things, and how they round totals: labels of the campaign file, and no false digits.

names = Names(campaign)
rounding = Rounding.of(total)                        # a tenth of its error
f"{rounding.amount(27_512.3)} more {names.reward}"   # 27,500 more active days
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlay.core.campaign import BudgetLimit, Campaign
from outlay.core.wording import change, days, number, plain, signed
from outlay.evaluating.totals import Total, TotalChange


@dataclass(frozen=True)
class Names:
    """What sentences call the things of a campaign."""

    campaign: Campaign

    @property
    def reward(self) -> str:
        """`active days`."""
        return self.campaign.called("reward").label

    @property
    def reward_unit(self) -> str:
        """The unit of the reward; may be empty."""
        return self.campaign.called("reward").unit

    @property
    def counts(self) -> bool:
        """Whether the reward is called by a word in the plural, of which there are more or fewer."""
        return self.campaign.labels.reward is not None

    @property
    def less(self) -> str:
        """The opposite of `more` of the reward: `fewer` of what is counted."""
        return "fewer" if self.counts and not self.reward_unit else "less"

    @property
    def things(self) -> str:
        """What is given, in the plural: `coupons`."""
        return self.campaign.called("action").label

    @property
    def new(self) -> str:
        """The new policy: `the new coupons`."""
        return f"the new {self.things}" if self.campaign.labels.action is not None else "the new choices"

    @property
    def money(self) -> BudgetLimit:
        """The money budget."""
        return self.campaign.limits[self.campaign.money]

    @property
    def money_unit(self) -> str:
        """`yuan`; empty where the file names none."""
        return "" if self.campaign.meta.unit == "money" else self.campaign.meta.unit

    def budget(self, budget: BudgetLimit) -> str:
        """`coupon money`."""
        return self.campaign.called("budgets", budget.name).label

    def unit(self, budget: BudgetLimit) -> str:
        """The unit of a budget; may be empty."""
        return budget.unit if budget.unit not in ("", "money") else self.campaign.called("budgets", budget.name).unit

    def per(self, budget: BudgetLimit, *, daily: bool) -> str:
        """`per user and day`, where users decide every day (`daily`)."""
        if self.campaign.log.once:
            return "per user"
        if budget.per == "user":
            return f"per user in {days(self.campaign.meta.horizon_days)}"
        return "per user and day" if daily else "per decision"

    def limit(self, budget: BudgetLimit, *, daily: bool) -> str:
        """`at most 2.2 yuan of coupon money per user and day`."""
        side, unit = "at most" if budget.sign > 0 else "at least", self.unit(budget)
        what = f"{unit} of {self.budget(budget)}" if unit else self.budget(budget)
        return f"{side} {plain(budget.limit)} {what} {self.per(budget, daily=daily)}"

    def span(self, count: int) -> str:
        """The days of a total: `a week`, `in 30 days`; empty where a user has one row."""
        known = {1: "on the first day"} | ({7: "a week"} if self.campaign.unit == "day" else {})
        return "" if self.campaign.log.once else known.get(count, f"in {days(count)}")

    def whom(self, users: int, log_users: int, count: int) -> list[str]:
        """Whom totals are for and over which days, as parts of a line."""
        whom = f"for the {number(users)} users of this log"
        if users != log_users:
            whom = f"for {number(users)} users, by a log of {number(log_users)}"
        span = "their first day" if count == 1 else f"their first {days(count)}"
        return [whom] if self.campaign.log.once else [whom, span]


@dataclass(frozen=True)
class Rounding:
    """Totals are written in steps, of a tenth of their error, so that they add up as far as they are known."""

    step: float

    @classmethod
    def of(cls, told: Total, size: float = 0.0) -> Rounding:
        """Of a total with its interval, but one digit of it at least; without, three digits of the largest `size`."""
        if told.low is not None and told.high is not None and told.high > told.low:
            step = _power((told.high - told.low) / 2) / 10
            return cls(min(step, _power(told.value)) if told.value else step)
        return cls(_power(max(abs(told.value), abs(size), 1e-9)) / 100)

    @classmethod
    def of_change(cls, of: TotalChange) -> Rounding:
        """Of a change and of both totals."""
        return cls.of(of.more or of.new, of.new.value)

    def number(self, value: float) -> str:
        """`27,500`."""
        return number(self._rounded(value), self._digits)

    def signed(self, value: float) -> str:
        """`+27,500`."""
        return signed(self._rounded(value), self._digits)

    def amount(self, value: float, unit: str = "") -> str:
        """`550,000 yuan`."""
        return f"{self.number(value)} {unit}".strip()

    def _rounded(self, value: float) -> float:
        return round(value / self.step) * self.step

    @property
    def _digits(self) -> int:
        return max(0, -round(math.log10(self.step)))


def head(label: str, unit: str) -> str:
    """The head of a column: `coupon money (yuan)`."""
    return f"{label} ({unit})" if unit else label


def brief_change(share: float) -> str:
    """A change in few digits: `−15%`, `+2.7%`."""
    return change(share, 0) if abs(share) >= 0.1 else change(share)


def capital(text: str) -> str:
    """The same as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def _power(value: float) -> float:
    """The power of ten of its first digit: `634` → `100`."""
    return float(10.0 ** math.floor(math.log10(abs(value))))
