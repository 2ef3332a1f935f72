"""A market in numbers: decisions come, money is granted under a hard cap, redeemed or released; pacing steers it."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from outlay.serve.clock import Moment
from outlay.serve.config import Plan
from outlay.serve.ledger.caps import Tally
from outlay.serve.pacing.budgets import BudgetState, Schedule
from outlay.serve.pacing.forecast import PacingSetup
from outlay.serve.pacing.mixing import PolicyPool
from outlay.serve.pacing.pacing import PacingState, begin, correct, weights_of

COST = np.geomspace(20.0, 400.0, 25)
POLICIES = PolicyPool(np.sqrt(COST), COST[:, None], np.array([100.0]), 0, np.eye(25)[13])  # its own costs 101.7
START = datetime.date(2026, 3, 2)
STEP_MS = 3_600_000  # an hour between corrections


@dataclass
class Ended:
    """How a plan ended.

    Attributes:
        spend: settled in the end, over the budget at the end.
        highest: reserved and settled at the most, over the budget then.
        refused: share of decisions that the total cap refused.
        states: of every hour.
        daily: settled of each day, over the budget.
    """

    spend: float
    highest: float
    refused: float
    states: list[PacingState]
    daily: list[float]


@dataclass
class Market:
    """What is true, and what was believed.

    Attributes:
        traffic: of a moment (days since the start), over what was expected.
        decisions: expected per day.
        days: of the plan.
        believed: share of what is granted that was redeemed when policies were measured.
        redeemed: that is.
        expiry_days: of reservations.
        episode_days: as in serve.toml.
        shares: of the plan.
        stops: between these moments no server runs.
        budgets: moment → factor on the budget from then on.
        first: moment when the server starts.
    """

    traffic: Callable[[float], float] = lambda _moment: 1.0
    decisions: int = 2_400
    days: int = 28
    believed: float = 0.7
    redeemed: float = 0.91
    expiry_days: float = 1.0
    episode_days: int | None = 7
    shares: tuple[float, ...] | None = None
    stops: tuple[tuple[float, float], ...] = ()
    budgets: Mapping[float, float] = field(default_factory=dict)
    first: float = 0.0
    elasticity: float | None = None

    def play(self, *, paced: bool = True) -> Ended:
        """Hour by hour until everything has expired; redemptions come within a quarter of the expiry."""
        plan = Plan(start=START, days=self.days, shares=self.shares, correct_minutes=60)
        setting = PacingSetup(Schedule(plan), POLICIES, self.expiry_days, self.episode_days)
        budget = round(POLICIES.spend(POLICIES.own, 1.0) * self.decisions * self.days)
        granted, settled, held = (defaultdict[int, float](float) for _ in range(3))
        came, offers = (defaultdict[int, int](int) for _ in range(2))
        due: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
        states: list[PacingState] = []
        highest, refused = 0.0, 0
        for hour in range(round(self.first * 24), self.days * 24):
            moment = hour / 24
            for number in [number for number in due if number <= hour]:
                for day, redeems, releases in due.pop(number):
                    settled[day] += redeems
                    held[day] -= redeems + releases
            total = round(budget * next((f for at, f in sorted(self.budgets.items(), reverse=True) if moment >= at), 1))
            if any(begin <= moment < end for begin, end in self.stops):
                continue
            day = plan.first + hour // 24
            tallies = {
                d: Tally(
                    cap=None,
                    reserved=round(held[d]),
                    settled=round(settled[d]),
                    granted=round(granted[d]),
                    offers=offers[d],
                    decisions=came[d],
                )
                for d in came
            }
            now, money = (
                Moment(day * 24 * STEP_MS + hour % 24 * STEP_MS, day, hour % 24 / 24),
                BudgetState(total, math.inf, tallies, total),
            )
            fresh = not states or (
                self.episode_days and (hour // 24) // self.episode_days != _day(states[-1], plan) // self.episode_days
            )
            states.append(
                begin(setting, money, now, states[-1] if states else None)
                if fresh
                else correct(setting, money, now, states[-1])
            )
            if not paced:
                states[-1] = states[0]
            cost = self._cost(states[-1]) / self.believed
            count = round(self.decisions / 24 * self.traffic(moment))
            offered = min(count, max(0, int((total - sum(settled.values()) - sum(held.values())) / cost)))
            came[day] += count
            offers[day] += offered
            refused += count - offered
            granted[day] += offered * cost
            held[day] += offered * cost
            highest = max(highest, (sum(settled.values()) + sum(held.values())) / total)
            redeems = offered * cost * self.redeemed
            due[hour + max(1, round(self.expiry_days * 6))].append((day, redeems, 0.0))
            due[hour + max(1, round(self.expiry_days * 24))].append((day, 0.0, offered * cost - redeems))
        for day, redeems, _ in (entry for entries in due.values() for entry in entries):
            settled[day] += redeems
        daily = [settled[plan.first + day] / total for day in range(self.days)]
        return Ended(sum(daily), highest, refused / sum(came.values()), states, daily)

    def _cost(self, state: PacingState) -> float:
        weights = weights_of(state, len(COST))
        if self.elasticity is None:
            return POLICIES.spend(weights, state.price)
        return float(weights @ COST) * float(state.price**-self.elasticity)


def _day(state: PacingState, plan: Plan) -> int:
    return state.traffic.day - plan.first
