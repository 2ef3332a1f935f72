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
from outlay.serve.pacing.forecast import Diary
from outlay.serve.pacing.mixing import Vector
from outlay.serve.pacing.outlook import Anchor, Budget, Outlook, Setting, Sight

BAND = 0.02  # of a day's money
GAIN = 4.0  # of the log of spend, per day's money of error
LASTING = 2.0  # of I, per day's money of error and per day that it lasts
ELASTIC = 0.25, 4.0  # ε that are believed
STEP = math.log(1.1)
LIMIT = math.log(4.0)
LATEST = 0.999  # progress of an anchor: there is always some of the day left
MISSED = 3  # corrections that may be late before it is a stop


class State(Struct, frozen=True, kw_only=True):
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
        diary: what came.
        anchor: of the day's path.
        sight: what was known.
    """

    step: int
    members: list[int]
    weights: list[float]
    price: float
    integral: float
    limit: float | None
    cost: float
    priced: float
    diary: Diary
    anchor: Anchor
    sight: Sight


def begin(setting: Setting, budget: Budget, now: Moment, before: State | None) -> State:
    """The first state of an episode; `before` is the last one of whatever was served before, if anything was."""
    if before is None:
        outlook = Outlook(setting, budget, now, Diary.opened(budget.days, now))
        anchor = _anchor(outlook, early=True)
    else:
        outlook, anchor = _followed(setting, budget, now, before)
    sight = outlook.sight(anchor)
    weights, price, limit = setting.policies.own, 1.0, outlook.per_decision(sight)
    if limit is not None:
        weights = setting.policies.mixture(limit, sight.factor)
        price = 1.0 if limit > 0 else math.exp(LIMIT)
    live = np.flatnonzero(weights)
    return State(
        step=0, members=live.tolist(), weights=weights[live].tolist(), price=price, integral=0.0, limit=limit,
        cost=setting.policies.spend(weights, 1.0), priced=setting.policies.spend(weights, price),
        diary=outlook.diary, anchor=anchor, sight=sight,
    )  # fmt: skip


def correct(setting: Setting, budget: Budget, now: Moment, before: State) -> State:
    """The next state of an episode: the same weights at another price."""
    outlook, anchor = _followed(setting, budget, now, before)
    sight = outlook.sight(anchor)
    weights = weights_of(before, len(setting.policies.own))
    integral, target = before.integral, LIMIT
    if sight.day_money > 0:
        error = (sight.spent - sight.planned) / sight.day_money
        error -= _within(error, BAND)
        elapsed = min(now.ts - before.diary.ts, MISSED * setting.minutes * 60_000) / 86_400_000
        elasticity = min(max(sight.response * setting.policies.elasticity(weights), ELASTIC[0]), ELASTIC[1])
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
        diary=outlook.diary,
        anchor=anchor,
        sight=sight,
    )


def weights_of(state: State, count: int) -> Vector:
    """`[P]` its weights over a pool of `count` policies."""
    weights = np.zeros(count)
    weights[state.members] = state.weights
    return weights


def _followed(setting: Setting, budget: Budget, now: Moment, before: State) -> tuple[Outlook, Anchor]:
    """What is known now, and the anchor: a new one on another day, after a stop, or with another cap."""
    old, anchor = before.diary, before.anchor
    stopped = now.ts - old.ts > MISSED * setting.minutes * 60_000
    diary = old.continued(budget.days, now, before.cost, before.priced, stopped=stopped)
    outlook = Outlook(setting, budget, now, diary)
    if stopped or now.day != anchor.day or budget.cap != anchor.total:
        anchor = _anchor(outlook, early=now.day != anchor.day)
    return outlook, anchor


def _anchor(outlook: Outlook, *, early: bool) -> Anchor:
    """Here and now; or at midnight, if `early` is asked and it is hardly past."""
    now, cap = outlook.now, outlook.budget.cap
    if early and now.part * 1440 <= MISSED * outlook.setting.minutes:
        return Anchor(now.day, 0.0, 0.0, cap)
    return Anchor(now.day, min(outlook.done, LATEST), outlook.today, cap)


def _within(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)
