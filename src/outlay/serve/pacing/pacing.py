"""Pacing: the spend follows the plan even if traffic and redemption drift.

There is a slow loop and a fast one; the ledger's hard caps depend on neither.

    each episode     weights α of the policies that fit the money of its days, given the forecast of decisions and κ
    in between       e = (spent since the anchor − planned) / money of a whole day,    with a dead band of 2%
                     I ← I + 2 e Δt,    log ρ → (I + 4 e) / ε  by at most 10% in a correction,    ρ in [1/4, 4]

ε is the elasticity of the spend: the effect of a price, by the policies' measurements and by what was observed since.
A user keeps a policy for an episode, so only the price ρ moves within it: a factor on all costs in what the policies
maximise. The anchor is where the path of a day begins: midnight, the moment when counting resumes after a stop or a
pause, or when a cap is changed. What was missed before the anchor is not made up for at once: it is part of what is
left, and is spread over all remaining days by their shares (`pacing/budgets.py`).

    forecast = Forecast(setting, budget, now, traffic)     what is known at a moment
    snapshot = forecast.snapshot(anchor)                   planned and actual spend of the day
    forecast.per_decision(snapshot)                        what the weights of an episode may cost

A state is a value that holds everything the next one needs. It is written to the ledger, and the first one under a key
is kept, so that all servers do the same (`pacing/pacer.py`). Outside the plan, and on days without money, the cheapest
policy serves at the highest price. Pure.

Source: ours. Steering the spend along a path in small steps is from Agarwal et al. (2014), *Budget pacing for targeted
online advertisements*; here a price is steered, so that every decision keeps a known probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from outlay.serve.clock import Moment
from outlay.serve.pacing.budgets import BudgetState, Schedule, money_by_day
from outlay.serve.pacing.forecast import TrafficHistory, cost_factor, progress, redemption, spend, traffic_rate
from outlay.serve.pacing.mixing import PolicyPool, Vector


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


BAND = 0.02  # of a day's money
GAIN = 4.0  # of the log of spend, per day's money of error
LASTING = 2.0  # of I, per day's money of error and per day that it lasts
ELASTIC = 0.25, 4.0  # bounds on ε
STEP = math.log(1.1)
LIMIT = math.log(4.0)
LATEST = 0.999  # the most progress of an anchor: a part of the day must be left
MISSED = 3  # corrections that may be missed before it counts as a stop


class PacingState(Struct, frozen=True, kw_only=True):
    """The state of pacing.

    Attributes:
        step: 0 at the start of the episode, one more with every correction.
        members: positions in the pool of the policies that serve.
        weights: of each, sum 1.
        price: ρ.
        integral: I.
        limit: minor units per decision that the weights were solved for; None if they are the bundle's own.
        cost: measured cost of the mixture at price 1, minor units per decision.
        priced: the same at this price.
        traffic: the decisions so far.
        anchor: of the day's path.
        snapshot: what was known when the state was created.
    """

    step: int
    members: list[int]
    weights: list[float]
    price: float
    integral: float
    limit: float | None
    cost: float
    priced: float
    traffic: TrafficHistory
    anchor: PathAnchor
    snapshot: Snapshot


def begin(setting: PacingSetup, budget: BudgetState, now: Moment, before: PacingState | None) -> PacingState:
    """Return the first state of an episode; `before` is the last state of what was served before, if there is one."""
    if before is None:
        forecast = Forecast(setting, budget, now, TrafficHistory.opened(budget.days, now))
        anchor = _anchor(forecast, early=True)
    else:
        forecast, anchor = _followed(setting, budget, now, before)
    snapshot = forecast.snapshot(anchor)
    weights, price, limit = setting.policies.own, 1.0, forecast.per_decision(snapshot)
    if limit is not None:
        weights = setting.policies.mixture(limit, snapshot.factor)
        price = 1.0 if limit > 0 else math.exp(LIMIT)
    live = np.flatnonzero(weights)
    return PacingState(
        step=0,
        members=live.tolist(),
        weights=weights[live].tolist(),
        price=price,
        integral=0.0,
        limit=limit,
        cost=setting.policies.spend(weights, 1.0),
        priced=setting.policies.spend(weights, price),
        traffic=forecast.traffic,
        anchor=anchor,
        snapshot=snapshot,
    )


def correct(setting: PacingSetup, budget: BudgetState, now: Moment, before: PacingState) -> PacingState:
    """Return the next state of an episode: the same weights at another price."""
    forecast, anchor = _followed(setting, budget, now, before)
    snapshot = forecast.snapshot(anchor)
    weights = weights_of(before, len(setting.policies.own))
    integral, target = before.integral, LIMIT
    if snapshot.day_money > 0:
        error = (snapshot.spent - snapshot.planned) / snapshot.day_money
        error -= _within(error, BAND)
        elapsed = min(now.ts - before.traffic.ts, MISSED * setting.minutes * 60_000) / 86_400_000
        elasticity = min(max(snapshot.response * setting.policies.elasticity(weights), ELASTIC[0]), ELASTIC[1])
        integral = _within(integral + LASTING * error * elapsed, elasticity * LIMIT)
        target = _within((integral + GAIN * error) / elasticity, LIMIT)
    log_price = math.log(before.price)
    price = math.exp(log_price + _within(target - log_price, STEP))
    return replace(
        before,
        step=before.step + 1,
        price=price,
        integral=integral,
        priced=setting.policies.spend(weights, price),
        traffic=forecast.traffic,
        anchor=anchor,
        snapshot=snapshot,
    )


def weights_of(state: PacingState, count: int) -> Vector:
    """Return a state's weights `[P]` over a pool of `count` policies."""
    weights = np.zeros(count)
    weights[state.members] = state.weights
    return weights


def _followed(
    setting: PacingSetup, budget: BudgetState, now: Moment, before: PacingState
) -> tuple[Forecast, PathAnchor]:
    """Return what is known now, and the anchor: a new one on another day, after a stop, or with another cap."""
    old, anchor = before.traffic, before.anchor
    stopped = now.ts - old.ts > MISSED * setting.minutes * 60_000
    traffic = old.continued(budget.days, now, before.cost, before.priced, stopped=stopped)
    forecast = Forecast(setting, budget, now, traffic)
    if stopped or now.day != anchor.day or budget.cap != anchor.total:
        anchor = _anchor(forecast, early=now.day != anchor.day)
    return forecast, anchor


def _anchor(forecast: Forecast, *, early: bool) -> PathAnchor:
    """Return an anchor at this moment; or at midnight, if `early` and midnight has only just passed."""
    now, cap = forecast.now, forecast.budget.cap
    if early and now.part * 1440 <= MISSED * forecast.setting.minutes:
        return PathAnchor(now.day, 0.0, 0.0, cap)
    return PathAnchor(now.day, min(forecast.done, LATEST), forecast.today, cap)


def _within(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)
