"""Pacing: the spend follows the plan although traffic and redemption drift.

A slow loop and a fast one; the hard caps of the ledger need neither of them.

    each episode     weights α of the policies that fit the money of its days, by the decisions forecast and the cost κ
    in between       e = (spent since the anchor − planned) / money of a whole day,    an error within 2 % is none
                     I ← I + 2 e Δt,    log ρ → (I + 4 e) / ε  by at most 10 % in a correction,    ρ in [1/4, 4]

ε is the elasticity of the spend: what a price does, by the policies' measurements and as the days have told since.
Within an episode a user keeps a policy, so only the price ρ moves: a factor on all costs in what the policies maximise.
The anchor is where the path of a day begins: midnight, or the moment when somebody counts again after a stop or a
pause, or when a cap is changed. What was missed before it is not made up for in haste: it is part of what is left
and goes to all days that remain, by their shares (`pacing/schedule.py`).

A state is a value that holds everything the next one needs. It is noted in the ledger, and the first that is noted
stands, so that all servers do the same (`pacing/pacer.py`). Outside of the plan, and on days without money, the
cheapest policy serves at the highest price. Pure.

Source: ours. That spend is steered towards a path of its own by small steps is from Agarwal et al. (2014), *Budget
pacing for targeted online advertisements*; here a price is steered, so that every decision keeps a known probability.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from outlay.serve.clock import Moment
from outlay.serve.pacing.budgets import BudgetState
from outlay.serve.pacing.forecast import TrafficHistory
from outlay.serve.pacing.mixing import Vector
from outlay.serve.pacing.snapshot import Forecast, PacingSetup, PathAnchor, Snapshot

BAND = 0.02  # of a day's money
GAIN = 4.0  # of the log of spend, per day's money of error
LASTING = 2.0  # of I, per day's money of error and per day that it lasts
ELASTIC = 0.25, 4.0  # ε that are believed
STEP = math.log(1.1)
LIMIT = math.log(4.0)
LATEST = 0.999  # progress of an anchor: there is always some of the day left
MISSED = 3  # corrections that may be late before it is a stop


class PacingState(Struct, frozen=True, kw_only=True):
    """Where pacing stands.

    Attributes:
        step: 0 at the start of the episode, then one more with every correction.
        members: positions in the pool of the policies that serve.
        weights: of each, sum 1.
        price: ρ.
        integral: I.
        limit: minor units per decision that the weights are for; None where they are the bundle's own.
        cost: minor units per decision that they are measured to cost.
        priced: the same at this price.
        traffic: what came.
        anchor: of the day's path.
        snapshot: what was known.
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
    """The first state of an episode; `before` is the last one of whatever was served before, if anything was."""
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
        step=0, members=live.tolist(), weights=weights[live].tolist(), price=price, integral=0.0, limit=limit,
        cost=setting.policies.spend(weights, 1.0), priced=setting.policies.spend(weights, price),
        traffic=forecast.traffic, anchor=anchor, snapshot=snapshot,
    )  # fmt: skip


def correct(setting: PacingSetup, budget: BudgetState, now: Moment, before: PacingState) -> PacingState:
    """The next state of an episode: the same weights at another price."""
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
    """`[P]` its weights over a pool of `count` policies."""
    weights = np.zeros(count)
    weights[state.members] = state.weights
    return weights


def _followed(
    setting: PacingSetup, budget: BudgetState, now: Moment, before: PacingState
) -> tuple[Forecast, PathAnchor]:
    """What is known now, and the anchor: a new one on another day, after a stop, or with another cap."""
    old, anchor = before.traffic, before.anchor
    stopped = now.ts - old.ts > MISSED * setting.minutes * 60_000
    traffic = old.continued(budget.days, now, before.cost, before.priced, stopped=stopped)
    forecast = Forecast(setting, budget, now, traffic)
    if stopped or now.day != anchor.day or budget.cap != anchor.total:
        anchor = _anchor(forecast, early=now.day != anchor.day)
    return forecast, anchor


def _anchor(forecast: Forecast, *, early: bool) -> PathAnchor:
    """Here and now; or at midnight, if `early` is asked and it is hardly past."""
    now, cap = forecast.now, forecast.budget.cap
    if early and now.part * 1440 <= MISSED * forecast.setting.minutes:
        return PathAnchor(now.day, 0.0, 0.0, cap)
    return PathAnchor(now.day, min(forecast.done, LATEST), forecast.today, cap)


def _within(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)
