"""The budgets that are paced separately, and how much of each a day of the plan may cost.

A budget belongs to the users outside an A/B test, or to one of its arms:

    arm        its cap by the plan's shares of the test's days, times the coverage of each day
    outside    the total cap less what arms hold back, by the plan's shares, times the part of users that is outside

Until its test is over, an arm holds back its cap; afterwards it holds back what it reserved and spent. A day j gets

    min(x · share_j / Σ shares · left,  room_j)         1 ≤ x ≤ 2, the smallest x that spends all but 1%

A reservation holds more than it costs until it expires, and the total cap counts what is held. So on the last days,
money is held that will not be redeemed in time, and what is released after the end is never spent. With a share q
redeemed, a day that costs s holds (1 − q)/q · s beyond what it costs until its reservations expire; at its end

    spent so far + s_j + held beyond cost (of the days that have not expired) ≤ left         ⇒ room_j

Where this is binding, earlier days are raised above their shares by x, to at most twice; beyond that, money is left.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from outlay.serve.config import Plan
from outlay.serve.deciding.decider import POLICY, RANDOM
from outlay.serve.experiment import ServedArm, ServedExperiment
from outlay.serve.ledger.caps import Tally, Totals

UNSPENT = 0.01  # of the budget that may be left when the plan is over
AHEAD = 2.0  # the most that a day may get, in multiples of its share
MORE = 1.15  # margin on what is held: forecasts are never exact, and the cap should not have to refuse
HALVINGS = 12  # of the interval that contains x
PACE = "pace"  # kind of the notes; for an arm, its name follows


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
        """Return the shares of today, less the part that is done, and of all later days; empty outside the plan."""
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
    """Return what each remaining day may cost.

    Args:
        left: money not spent so far, nor expected to be spent by decisions already made.
        shares: `[n]` of the rest of today and the days that follow; their sum is above 0.
        budget: all money of the plan.
        redeemed: q, in (0, 1].
        expiry_days: days until a reservation is released.
        held: what yesterday, the day before, … still hold beyond what they will cost.
        day_cap: the most that may be reserved on a day.

    Returns:
        `[n]`, in the unit of `left`.
    """
    total = sum(shares)
    base = [max(left, 0.0) * share / total for share in shares]
    beyond = (1 - redeemed) / redeemed
    # The part of a day's reservations that is still held at the end of that day and of later ones.
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


class BudgetState(NamedTuple):
    """A paced budget and what was spent from it.

    Attributes:
        total: minor units that may be spent.
        day_cap: the most that may be reserved on a day.
        days: money and decisions by day.
        cap: the part of the total that is set by people; changing it begins a new path.
    """

    total: int
    day_cap: float
    days: Mapping[int, Tally]
    cap: int

    @classmethod
    def of(cls, totals: Totals) -> BudgetState | None:
        """Return all money of a campaign; None if it has no total cap."""
        caps = totals.caps
        if caps.total is None:
            return None
        return cls(caps.total, math.inf if caps.day is None else caps.day, totals.days, caps.total)


@dataclass(frozen=True)
class PacedBudget:
    """Money that is paced separately.

    Attributes:
        schedule: of its days.
        arm: the arm that it belongs to; None: all users outside the test.
        live: arms of the test that is served.
        end: first day number after that test.
    """

    schedule: Schedule
    arm: str | None = None
    live: Collection[str] = ()
    end: int = 0

    @property
    def kind(self) -> str:
        """The kind of its notes in the ledger."""
        return PACE if self.arm is None else f"{PACE} {self.arm}"

    def budget(self, totals: Totals, day: int) -> BudgetState | None:
        """Return the money, and what was spent of it until today; None if there is no cap."""
        if self.arm is not None:
            cap = totals.caps.arms.get(self.arm)
            days = {each: tally for (arm, each), tally in totals.arm_days.items() if arm == self.arm}
            return None if cap is None else BudgetState(cap, math.inf, days, cap)
        every = BudgetState.of(totals)
        arms = [arm for arm in totals.arms if arm not in (POLICY, RANDOM)]
        if every is None or not arms:
            return every
        live = {arm: totals.arms[arm].cap for arm in arms if arm in self.live and day < self.end}
        kept = sum(cap for cap in live.values() if cap is not None)
        spent = sum(_spent(totals.arms[arm]) for arm in arms if live.get(arm) is None)
        outside = {day: _less(tally, arms, day, totals.arm_days) for day, tally in every.days.items()}
        # What arms without a budget spend changes with every decision, so it must not begin a new path.
        return BudgetState(max(every.total - kept - spent, 0), every.day_cap, outside, every.cap - kept)


def outside_budget(plan: Plan, trial: ServedExperiment | None) -> PacedBudget:
    """Return the budget of the users outside the test, or of all users if there is no test."""
    if trial is None:
        return PacedBudget(Schedule(plan))
    share = sum(arm.share for arm in trial.experiment.arms)
    outside = [1.0 - share * trial.coverage(plan.first + i) for i in range(plan.days)]
    weights = tuple(max(part, 0.0) for part in outside)
    return PacedBudget(_weighted(plan, weights) or Schedule(plan), None, tuple(trial.budgets), trial.end)


def arm_budget(plan: Plan, trial: ServedExperiment, arm: ServedArm) -> PacedBudget | None:
    """Return the budget of an arm; None if no bundle decides in it, or the plan has no money for its days."""
    schedule = _weighted(plan, tuple(trial.coverage(plan.first + i) for i in range(plan.days)))
    return PacedBudget(schedule, arm.name) if arm.kind == "bundle" and schedule is not None else None


def _weighted(plan: Plan, weights: tuple[float, ...]) -> Schedule | None:
    """Return the plan with its shares multiplied by weights; None if all of them become 0."""
    shares = tuple(share * weight for share, weight in zip(plan.shares or (1.0,) * plan.days, weights, strict=True))
    return Schedule(plan.model_copy(update={"shares": shares})) if sum(shares) > 0 else None


def _spent(tally: Tally) -> int:
    return tally.reserved + tally.settled


def _less(tally: Tally, arms: Collection[str], day: int, arm_days: Mapping[tuple[str, int], Tally]) -> Tally:
    """Return what a day has outside the arms."""
    inside = [arm_days[arm, day] for arm in arms if (arm, day) in arm_days]
    return Tally(
        tally.cap,
        *(
            getattr(tally, name) - sum(getattr(each, name) for each in inside)
            for name in ("reserved", "settled", "offers", "decisions", "granted", "excess")
        ),
    )
