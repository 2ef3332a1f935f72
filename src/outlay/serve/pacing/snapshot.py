"""What is known at one moment: what was spent and what is left, what a day and a decision may cost.

    forecast = Forecast(setting, budget, now, traffic)
    snapshot = forecast.snapshot(anchor)        planned and actual spend of the day
    forecast.per_decision(snapshot)             what the weights of an episode may cost

Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from msgspec import Struct

from outlay.serve.clock import Moment
from outlay.serve.pacing.budgets import BudgetState, Schedule, money_by_day
from outlay.serve.pacing.forecast import TrafficHistory, cost_factor, progress, redemption, spend, traffic_rate
from outlay.serve.pacing.mixing import PolicyPool


@dataclass(frozen=True)
class PacingSetup:
    """What does not change while pacing runs.

    Attributes:
        schedule: the plan.
        policies: the bundle's.
        expiry_days: days until a reservation is released.
        episode_days: days of an episode; None: the whole campaign.
    """

    schedule: Schedule
    policies: PolicyPool
    expiry_days: float
    episode_days: int | None

    @property
    def minutes(self) -> float:
        """Minutes between two corrections."""
        return self.schedule.plan.correct_minutes


class PathAnchor(Struct, frozen=True):
    """Where the planned path of a day's spend begins.

    Attributes:
        day: its number.
        progress: the part of its decisions that had come.
        spent: what they cost, minor units.
        total: the cap that the path was planned for.
    """

    day: int
    progress: float
    spent: float
    total: int


class Snapshot(Struct, frozen=True, kw_only=True):
    """What was known when a state was created. Money is in minor units.

    Attributes:
        redeemed: q, the share of what is granted that is settled in the end.
        factor: κ, actual over predicted cost of decisions at price 1.
        response: β, actual over predicted effect of a price.
        forecast: decisions per unit of share; None if too little was counted.
        left: money not spent so far, nor expected to be spent by decisions already made.
        day_money: what the day may cost, scaled to a whole day at the rate from the anchor on.
        spent: since the anchor.
        planned: since the anchor.
    """

    redeemed: float
    factor: float
    response: float
    forecast: float | None
    left: float
    day_money: float
    spent: float
    planned: float


@dataclass(frozen=True)
class Forecast:
    """What can be predicted at a moment.

    Attributes:
        setting: what does not change.
        budget: the money, as the ledger counts it now.
        now: the moment.
        traffic: the decisions so far.
    """

    setting: PacingSetup
    budget: BudgetState
    now: Moment
    traffic: TrafficHistory

    @cached_property
    def redeemed(self) -> float:
        """q; until the reservations of the first day have expired, the policies' measurements suggest it."""
        days, seen = self.budget.days, self.traffic.seen
        # If only a part of the day was counted, use that part of what it granted.
        granted = sum(days[d].granted * seen[d].decisions / max(days[d].decisions, 1) for d in seen if d in days)
        promised = sum(day.priced for day in seen.values())
        believed = min(promised / granted, 1.0) if granted > 0 and promised > 0 else 1.0
        return redemption(days, self.now.day, self.setting.expiry_days, believed)

    @cached_property
    def costs(self) -> dict[int, float]:
        """Day → final cost of its decisions."""
        return {day: spend(tally, self.redeemed) for day, tally in self.budget.days.items()}

    @property
    def done(self) -> float:
        """The part of the day's decisions that has come so far."""
        return progress(self.traffic.course, self.now.part)

    @property
    def today(self) -> float:
        """Final cost of today's decisions so far."""
        return self.costs.get(self.now.day, 0.0)

    def snapshot(self, anchor: PathAnchor) -> Snapshot:
        """Compare the spend with the planned path from the anchor."""
        factor, response = cost_factor(self.traffic.seen, self.budget.days, self.costs)
        at_anchor = self.budget.total - sum(self.costs.values()) + self.today - anchor.spent
        money = self._money(anchor.progress, at_anchor)
        day_money = money[0] / (1 - anchor.progress) if money else 0.0
        spent = self.today - anchor.spent
        return Snapshot(
            redeemed=self.redeemed,
            factor=factor,
            response=response,
            forecast=traffic_rate(self.traffic.seen, self.setting.schedule.shares),
            left=at_anchor - spent,
            day_money=day_money,
            spent=spent,
            planned=day_money * max(self.done - anchor.progress, 0.0),
        )

    def per_decision(self, snapshot: Snapshot) -> float | None:
        """Return minor units per decision for the rest of the episode; None if the traffic is not known."""
        days = self.setting.episode_days
        count = None if days is None else days - (self.now.day - self.setting.schedule.plan.first) % days
        money = sum(self._money(self.done, snapshot.left)[:count])
        if money <= 0:
            return 0.0
        shares = sum(self.setting.schedule.rest(self.now.day, self.done)[:count])
        return None if snapshot.forecast is None else money / (snapshot.forecast * shares)

    def _money(self, done: float, left: float) -> list[float]:
        """Return money for the rest of today and for each later day of the plan; empty once nothing is planned."""
        shares, expiry, days = (
            self.setting.schedule.rest(self.now.day, done),
            self.setting.expiry_days,
            self.budget.days,
        )
        if sum(shares) <= 0:
            return []
        earlier = range(self.now.day - 1, self.now.day - 1 - math.ceil(expiry), -1)
        held = [days[d].settled + days[d].reserved - self.costs[d] if d in days else 0.0 for d in earlier]
        return money_by_day(
            left,
            shares,
            budget=self.budget.total,
            redeemed=self.redeemed,
            expiry_days=expiry,
            held=held,
            day_cap=self.budget.day_cap,
        )
