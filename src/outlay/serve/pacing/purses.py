"""Whose money pacing follows: that of users outside a test, or that of one arm.

    arm        its cap by the plan's shares of the test's days, times the coverage of each day
    outside    the total cap less what arms hold back, by the plan's shares, times the part of users that is outside

While its test is not over, an arm holds back its cap; afterwards what it reserved and spent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from outlay.serve.config import Plan
from outlay.serve.deciding.decider import POLICY, RANDOM
from outlay.serve.experiment.arms import Arm, Trial
from outlay.serve.ledger.caps import Tally, Totals
from outlay.serve.pacing.outlook import Budget
from outlay.serve.pacing.schedule import Schedule

PACE = "pace"  # kind of the notes; of an arm, its name follows


@dataclass(frozen=True)
class Purse:
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

    def budget(self, totals: Totals, day: int) -> Budget | None:
        """The money, and what became of it until today; None where there is no cap."""
        if self.arm is not None:
            cap = totals.caps.arms.get(self.arm)
            days = {each: tally for (arm, each), tally in totals.arm_days.items() if arm == self.arm}
            return None if cap is None else Budget(cap, math.inf, days, cap)
        every = Budget.of(totals)
        arms = [arm for arm in totals.arms if arm not in (POLICY, RANDOM)]
        if every is None or not arms:
            return every
        live = {arm: totals.arms[arm].cap for arm in arms if arm in self.live and day < self.end}
        kept = sum(cap for cap in live.values() if cap is not None)
        spent = sum(_spent(totals.arms[arm]) for arm in arms if live.get(arm) is None)
        outside = {day: _less(tally, arms, day, totals.arm_days) for day, tally in every.days.items()}
        # What arms without a purse spend changes with every decision, and is no reason for a new path.
        return Budget(max(every.total - kept - spent, 0), every.day_cap, outside, every.cap - kept)


def outside_purse(plan: Plan, trial: Trial | None) -> Purse:
    """Of users outside the test, or of all where there is none."""
    if trial is None:
        return Purse(Schedule(plan))
    share = sum(arm.share for arm in trial.experiment.arms)
    outside = [1.0 - share * trial.coverage(plan.first + i) for i in range(plan.days)]
    weights = tuple(max(part, 0.0) for part in outside)
    return Purse(_weighted(plan, weights) or Schedule(plan), None, tuple(trial.budgets), trial.end)


def arm_purse(plan: Plan, trial: Trial, arm: Arm) -> Purse | None:
    """Of an arm; None where no bundle decides, or the plan no money for its days."""
    schedule = _weighted(plan, tuple(trial.coverage(plan.first + i) for i in range(plan.days)))
    return Purse(schedule, arm.name) if arm.kind == "bundle" and schedule is not None else None


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
