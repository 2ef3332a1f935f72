"""Whose money pacing follows: that of users outside a test, or that of one arm.

    arm        its cap by the plan's shares of the test's days, times the coverage of each day
    outside    the total cap less what arms hold back, by the plan's shares, times the part of users that is outside

While its test is not over, an arm holds back its cap; afterwards what it reserved and spent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from outlay.serve.config import Plan
from outlay.serve.deciding.decider import POLICY, RANDOM
from outlay.serve.experiment.arms import ServedArm, ServedExperiment
from outlay.serve.ledger.caps import Tally, Totals

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


PACE = "pace"  # kind of the notes; of an arm, its name follows


class BudgetState(NamedTuple):
    """The money that is paced, and what became of it.

    Attributes:
        total: minor units that may be spent.
        day_cap: the most that may be reserved on a day.
        days: money and decisions by day.
        cap: what people have set of the total; another one begins a new path.
    """

    total: int
    day_cap: float
    days: Mapping[int, Tally]
    cap: int

    @classmethod
    def of(cls, totals: Totals) -> BudgetState | None:
        """All money of a campaign; None where it has no total cap."""
        caps = totals.caps
        if caps.total is None:
            return None
        return cls(caps.total, math.inf if caps.day is None else caps.day, totals.days, caps.total)


@dataclass(frozen=True)
class PacedBudget:
    """Money that is paced on its own.

    Attributes:
        schedule: of its days.
        arm: whose; None: of all users outside the test.
        live: arms of the test that is served.
        end: day number from which they are no more.
    """

    schedule: Schedule
    arm: str | None = None
    live: Collection[str] = ()
    end: int = 0

    @property
    def kind(self) -> str:
        """Of its notes."""
        return PACE if self.arm is None else f"{PACE} {self.arm}"

    def budget(self, totals: Totals, day: int) -> BudgetState | None:
        """The money, and what became of it until today; None where there is no cap."""
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
        # What arms without a budget spend changes with every decision, and is no reason for a new path.
        return BudgetState(max(every.total - kept - spent, 0), every.day_cap, outside, every.cap - kept)


def outside_budget(plan: Plan, trial: ServedExperiment | None) -> PacedBudget:
    """Of users outside the test, or of all where there is none."""
    if trial is None:
        return PacedBudget(Schedule(plan))
    share = sum(arm.share for arm in trial.experiment.arms)
    outside = [1.0 - share * trial.coverage(plan.first + i) for i in range(plan.days)]
    weights = tuple(max(part, 0.0) for part in outside)
    return PacedBudget(_weighted(plan, weights) or Schedule(plan), None, tuple(trial.budgets), trial.end)


def arm_budget(plan: Plan, trial: ServedExperiment, arm: ServedArm) -> PacedBudget | None:
    """Of an arm; None where no bundle decides, or the plan no money for its days."""
    schedule = _weighted(plan, tuple(trial.coverage(plan.first + i) for i in range(plan.days)))
    return PacedBudget(schedule, arm.name) if arm.kind == "bundle" and schedule is not None else None


def _weighted(plan: Plan, weights: tuple[float, ...]) -> Schedule | None:
    """The plan with other shares; None where they are all 0."""
    shares = tuple(share * weight for share, weight in zip(plan.shares or (1.0,) * plan.days, weights, strict=True))
    return Schedule(plan.model_copy(update={"shares": shares})) if sum(shares) > 0 else None


def _spent(tally: Tally) -> int:
    return tally.reserved + tally.settled


def _less(tally: Tally, arms: Collection[str], day: int, arm_days: Mapping[tuple[str, int], Tally]) -> Tally:
    """What a day has outside the arms."""
    inside = [arm_days[arm, day] for arm in arms if (arm, day) in arm_days]
    return Tally(
        tally.cap,
        *(
            getattr(tally, name) - sum(getattr(each, name) for each in inside)
            for name in ("reserved", "settled", "offers", "decisions", "granted", "excess")
        ),
    )
