"""What pacing estimates from traffic and money so far.

    progress     the part of a day's decisions that has come so far, as on earlier days, hour by hour
    traffic      decisions per share of the plan, over the last days, as far as they were counted
    factor       κ, the actual cost of decisions over the cost that the policies' measurements predict
    redemption   q = settled / granted, over the last days whose reservations have all expired; at least yesterday's
    spend        final cost of a day's decisions: q · granted, but at least settled and at most settled + held

What follows from these for a plan:

    forecast = Forecast(setting, budget, now, traffic)     what is known at a moment
    snapshot = forecast.snapshot(anchor)                   planned and actual spend of the day
    forecast.per_decision(snapshot)                        what the weights of an episode may cost

Money is in minor units, days are day numbers of the server's clock. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import Struct

from outlay.serve.clock import Moment
from outlay.serve.ledger.caps import Tally
from outlay.serve.pacing.budgets import BudgetState, Schedule, money_by_day
from outlay.serve.pacing.mixing import PolicyPool

DAYS = 7  # how far a forecast looks back: it includes every day of the week once
FEW = 100  # weight of a prior, in decisions
LARGE = 400  # the most decisions of a day that count: days differ by 5%, however many come
BELIEF = 4  # weight of β = 1: as if known to within one half
HOURS = 24  # parts of a day, also when the clocks change
LATEST = 0.25  # weight of the latest day in the daily profile
WHOLE = 0.9  # the part of a day that must be counted before the profile is learned from it


class DayCount(Struct, frozen=True):
    """What was counted on a day.

    Attributes:
        decisions: decisions while a server was counting.
        progress: the part of the day's decisions that this covers.
        promised: what they cost at price 1, by the policies' measurements.
        priced: the same at the actual prices.
    """

    decisions: int = 0
    progress: float = 0.0
    promised: float = 0.0
    priced: float = 0.0


class TrafficHistory(Struct, frozen=True, kw_only=True):
    """Decisions by day and hour, updated at every count.

    Attributes:
        ts: epoch ms of the last count.
        day: its day number.
        part: its part of that day.
        counted: decisions of that day by then.
        hours: `[24]` decisions of that day.
        seen: day → what was counted, for the last days.
        course: `[24]` learned shares of a day's decisions by hour.
        learned: how many whole days `course` is based on.
    """

    ts: int
    day: int
    part: float
    counted: int
    hours: tuple[float, ...] = (0.0,) * HOURS
    seen: dict[int, DayCount] = {}
    course: tuple[float, ...] = (1 / HOURS,) * HOURS
    learned: int = 0

    @classmethod
    def opened(cls, days: Mapping[int, Tally], now: Moment) -> TrafficHistory:
        """Return a history that begins now; what came before was not counted."""
        return cls(ts=now.ts, day=now.day, part=now.part, counted=_decisions(days, now.day))

    def continued(
        self, days: Mapping[int, Tally], now: Moment, cost: float, priced: float, *, stopped: bool
    ) -> TrafficHistory:
        """Return the history with what came since the last count.

        Args:
            days: the ledger's counters.
            now: the time.
            cost: measured cost per decision of the policies that have served since then, at price 1.
            priced: the same at their price.
            stopped: no server was counting in between, so what came is left out.
        """
        seen, course, hours, learned = dict(self.seen), self.course, self.hours, self.learned
        for day in range(max(self.day, now.day - DAYS), now.day + 1):
            begin = self.part if day == self.day else 0.0
            end = now.part if day == now.day else 1.0
            came = _decisions(days, day) - (self.counted if day == self.day else 0)
            if not stopped:
                old = seen.get(day, DayCount())
                done = old.progress + progress(course, end) - progress(course, begin)
                seen[day] = DayCount(old.decisions + came, done, old.promised + came * cost, old.priced + came * priced)
                hours = tuple(before + new for before, new in zip(hours, _by_hour(came, begin, end), strict=True))
            if day < now.day:
                if day in seen and seen[day].progress > WHOLE:
                    course, learned = _learned(course, hours, 1.0 if learned == 0 else LATEST), learned + 1
                hours = (0.0,) * HOURS
        return TrafficHistory(
            ts=now.ts,
            day=now.day,
            part=now.part,
            counted=_decisions(days, now.day),
            hours=hours,
            seen={day: count for day, count in seen.items() if day >= now.day - DAYS},
            course=course,
            learned=learned,
        )


def progress(course: Sequence[float], part: float) -> float:
    """Return the part of a day's decisions that comes by this part of the day; `course` `[24]` holds shares by hour."""
    hour = min(int(part * HOURS), HOURS - 1)
    return min(sum(course[:hour]) + course[hour] * (part * HOURS - hour), 1.0)


def traffic_rate(seen: Mapping[int, DayCount], shares: Mapping[int, float]) -> float | None:
    """Return decisions per unit of share; None if less than half a day was counted, or hardly any decisions."""
    planned = sum(day.progress * shares[number] for number, day in seen.items() if number in shares)
    counted = sum(day.progress for number, day in seen.items() if number in shares)
    decisions = sum(day.decisions for number, day in seen.items() if number in shares)
    if counted < 0.5 or planned <= 0 or decisions < FEW:
        return None
    return decisions / planned


def redemption(days: Mapping[int, Tally], today: int, expiry_days: float, believed: float) -> float:
    """Return q, the share of what is granted that is settled in the end.

    Args:
        days: the ledger's counters.
        today: the current day.
        expiry_days: days until a reservation is released; days that may still hold some are left out.
        believed: q before anything is known; it weighs as much as a few decisions.
    """
    closed = [days[day] for day in sorted(days) if day + 1 + expiry_days <= today][-DAYS:]
    share = _share(closed, believed)
    # Yesterday's decisions will settle at least what they have settled already.
    return max(share, _share([days[today - 1]], share)) if today - 1 in days else share


def cost_factor(
    seen: Mapping[int, DayCount], days: Mapping[int, Tally], costs: Mapping[int, float]
) -> tuple[float, float]:
    """Return κ and β: actual over predicted cost of decisions at price 1, and actual over predicted effect of a price.

    log (cost / promised) = log κ + β log (priced / promised) by day: a price that moves shows its effect. Fitted with
    a ridge towards log κ = 0 and β = 1.

    Args:
        seen: what was counted.
        days: the ledger's counters.
        costs: final cost of each day's decisions.
    """
    rows = []
    for day, count in seen.items():
        # If only a part of the day was counted, use that part of its cost.
        cost = costs.get(day, 0.0) * count.decisions / max(_decisions(days, day), 1)
        if min(cost, count.priced, count.promised) > 0:
            logs = math.log(count.priced / count.promised), math.log(cost / count.promised)
            rows.append((min(count.decisions, LARGE), *logs))
    weight, x, y = np.array(rows, np.float64).reshape(-1, 3).T
    matrix = np.array([[weight.sum() + FEW, weight @ x], [weight @ x, weight @ (x * x) + BELIEF]])
    log_factor, response = np.linalg.solve(matrix, [weight @ y, weight @ (x * y) + BELIEF]).tolist()
    return math.exp(log_factor), response


def spend(day: Tally, redeemed: float) -> float:
    """Return the final cost of a day's decisions if this share of what is granted is redeemed."""
    return min(max(redeemed * day.granted, day.settled), day.settled + day.reserved)


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


def _share(days: Sequence[Tally], believed: float) -> float:
    """Return settled over granted, without excess; the prior weighs as much as a few offers."""
    granted, offers = sum(day.granted for day in days), sum(day.offers for day in days)
    if not granted:
        return believed
    weight = FEW * granted / offers
    return (sum(day.settled - day.excess for day in days) + weight * believed) / (granted + weight)


def _decisions(days: Mapping[int, Tally], day: int) -> int:
    return days[day].decisions if day in days else 0


def _by_hour(count: int, begin: float, end: float) -> list[float]:
    """Spread decisions that came between two parts of a day evenly over its hours `[24]`."""
    edges = np.arange(HOURS + 1) / HOURS
    inside = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0, None)
    return [float(count * share) for share in inside / max(end - begin, 1e-12)]


def _learned(course: Sequence[float], hours: Sequence[float], weight: float) -> tuple[float, ...]:
    """Return the daily profile `[24]` updated with another day `[24]` of this weight."""
    total = sum(hours) + FEW
    return tuple(old + weight * ((new + FEW / HOURS) / total - old) for old, new in zip(course, hours, strict=True))
