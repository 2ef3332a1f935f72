"""What pacing estimates from traffic and money so far.

    progress     the part of a day's decisions that has come so far, as on earlier days, hour by hour
    traffic      decisions per share of the plan, over the last days, as far as they were counted
    factor       κ, the actual cost of decisions over the cost that the policies' measurements predict
    redemption   q = settled / granted, over the last days whose reservations have all expired; at least yesterday's
    spend        final cost of a day's decisions: q · granted, but at least settled and at most settled + held

Money is in minor units, days are day numbers of the server's clock. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from outlay.serve.clock import Moment
from outlay.serve.ledger.caps import Tally

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
