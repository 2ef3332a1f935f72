"""How much money each day of the plan may cost, so that what is left is spent when the plan is over.

    day j gets   min(x · share_j / Σ shares · left,  room_j)         1 ≤ x ≤ 2, as small as spends it all but 1 %

A reservation holds more than it costs, until it expires, and the total cap counts what is held. So on the last days
money is held that nobody will redeem in time, and what is released after the end is never spent. With a share q
redeemed, a day that costs s holds (1 − q)/q · s beyond what it costs until its reservations expire; at its end

    spent so far + s_j + held beyond cost (of the days that have not expired) ≤ left         ⇒ room_j

Where this binds, earlier days are raised above their shares by x, but no further than to twice: then some stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from outlay.serve.config import Plan

UNSPENT = 0.01  # of the budget that may be left when the plan is over
AHEAD = 2.0  # the most that a day may get of its share
MORE = 1.15  # as much is supposed to be held: it is never just what was forecast, and the cap should not have to refuse
HALVINGS = 12  # of the interval that holds x


@dataclass(frozen=True)
class Schedule:
    """The days of a plan.

    Attributes:
        plan: `[plan]`.
    """

    plan: Plan

    @cached_property
    def shares(self) -> dict[int, float]:
        """Day number → share; they sum to the number of days."""
        each = self.plan.shares or (1.0,) * self.plan.days
        return {self.plan.first + i: share * self.plan.days / sum(each) for i, share in enumerate(each)}

    def rest(self, today: int, done: float) -> list[float]:
        """Shares of today, less the part that is done, and of every later day of the plan; empty outside of it."""
        if today not in self.shares:
            return []
        last = self.plan.first + self.plan.days
        return [self.shares[today] * (1 - done), *(self.shares[day] for day in range(today + 1, last))]


def money_by_day(
    left: float,
    shares: Sequence[float],
    *,
    budget: float,
    redeemed: float,
    expiry_days: float,
    held: Sequence[float] = (),
    day_cap: float = float("inf"),
) -> list[float]:
    """What each day of the rest may cost.

    Args:
        left: money that is not spent, nor expected to be by decisions that were made.
        shares: `[n]` of today's rest and the days that follow; their sum is above 0.
        budget: all money of the plan.
        redeemed: q, in (0, 1].
        expiry_days: after which a reservation is released.
        held: what yesterday, the day before, … still hold beyond what they will cost.
        day_cap: the most that may be reserved on a day.

    Returns:
        `[n]`, in the unit of `left`.
    """
    total = sum(shares)
    base = [max(left, 0.0) * share / total for share in shares]
    beyond = (1 - redeemed) / redeemed
    # Of a reservation that is made on a day, the part that is held at the end of that day and of later ones.
    kept = [MORE * min(expiry_days - age, 1.0) for age in range(math.ceil(expiry_days))]

    def walk(ahead: float) -> list[float]:
        days: list[float] = []
        holds = list(held)  # latest first
        spent = 0.0
        for share in base:
            earlier = sum(part * hold for part, hold in zip(kept[1:], holds, strict=False))
            room = (left - spent - earlier) / (1 + beyond * kept[0])
            days.append(max(0.0, min(ahead * share, room, redeemed * day_cap)))
            holds.insert(0, beyond * days[-1])
            spent += days[-1]
        return days

    wanted = left - UNSPENT * budget
    low, high = 1.0, AHEAD
    if sum(walk(low)) >= wanted:
        return walk(low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if sum(walk(middle)) >= wanted else (middle, high)
    return walk(high)
