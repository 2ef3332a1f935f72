"""What the ledger tells pacing at one moment: what is spent and left, what a day and a decision may cost.

    forecast = Outlook(setting, budget, now, traffic)
    snapshot = forecast.snapshot(anchor)                 the day's path beside what was spent of it
    forecast.per_decision(snapshot)                   what the weights of an episode are to cost

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
    """What stays the same.

    Attributes:
        schedule: the plan.
        policies: of the bundle.
        expiry_days: after which a reservation is released.
        episode_days: days of an episode; None: all of the campaign.
    """

    schedule: Schedule
    policies: PolicyPool
    expiry_days: float
    episode_days: int | None

    @property
    def minutes(self) -> float:
        """Between two corrections."""
        return self.schedule.plan.correct_minutes


class PathAnchor(Struct, frozen=True):
    """Where the path of a day begins.

    Attributes:
        day: the day.
        progress: part of its decisions that had come.
        spent: what they cost, minor units.
        total: the cap of the path.
    """

    day: int
    progress: float
    spent: float
    total: int


class Snapshot(Struct, frozen=True, kw_only=True):
    """What was known when a state was made, for people. Money is minor units.

    Attributes:
        redeemed: q, the share of what is granted that is settled in the end.
        factor: κ, what decisions cost at price 1 over what the policies' measurements promise.
        response: β, what a price does over what they promise.
        forecast: decisions per unit of share; None where too little was counted.
        left: not spent by then, nor expected to be by decisions that were made.
        day_money: what the day may cost, as if it were whole from the anchor on.
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
    """What is known at a moment.

    Attributes:
        setting: what stays the same.
        budget: the money, as the ledger has it now.
        now: the moment.
        traffic: what came, up to now.
    """

    setting: PacingSetup
    budget: BudgetState
    now: Moment
    traffic: TrafficHistory

    @cached_property
    def redeemed(self) -> float:
        """q; until the first day has expired, what the policies' measurements say of it."""
        days, seen = self.budget.days, self.traffic.seen
        # Of a day that was counted in part, its decisions' part.
        granted = sum(days[d].granted * seen[d].decisions / max(days[d].decisions, 1) for d in seen if d in days)
        promised = sum(day.priced for day in seen.values())
        believed = min(promised / granted, 1.0) if granted > 0 and promised > 0 else 1.0
        return redemption(days, self.now.day, self.setting.expiry_days, believed)

    @cached_property
    def costs(self) -> dict[int, float]:
        """Day → what its decisions will have cost."""
        return {day: spend(tally, self.redeemed) for day, tally in self.budget.days.items()}

    @property
    def done(self) -> float:
        """The part of the day's decisions that has come."""
        return progress(self.traffic.course, self.now.part)

    @property
    def today(self) -> float:
        """What today's decisions will have cost."""
        return self.costs.get(self.now.day, 0.0)

    def snapshot(self, anchor: PathAnchor) -> Snapshot:
        """Where the spend stands beside the path from the anchor."""
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
        """Minor units for each decision in the rest of the episode; None where traffic is not known."""
        days = self.setting.episode_days
        count = None if days is None else days - (self.now.day - self.setting.schedule.plan.first) % days
        money = sum(self._money(self.done, snapshot.left)[:count])
        if money <= 0:
            return 0.0
        shares = sum(self.setting.schedule.rest(self.now.day, self.done)[:count])
        return None if snapshot.forecast is None else money / (snapshot.forecast * shares)

    def _money(self, done: float, left: float) -> list[float]:
        """Of the rest of today and of each later day of the plan; empty where nothing is planned any more."""
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
            left, shares, budget=self.budget.total, redeemed=self.redeemed, expiry_days=expiry, held=held,
            day_cap=self.budget.day_cap,
        )  # fmt: skip
