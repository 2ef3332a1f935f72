"""What pacing can know: how far the day has gone, how many decisions come, how much of what is granted is redeemed.

    progress     the part of a day's decisions that has come, as on the days before, hour by hour
    traffic      decisions per share of the plan, over the last days, as far as they were counted
    factor       κ, what decisions cost over what the policies' measurements promise
    redemption   q = settled / granted, over the last days whose reservations have all expired; at least yesterday's
    spend        of a day's decisions in the end: q · granted, but no less than settled and no more than settled + held

Money is minor units, days are day numbers of the server's clock. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from outlay.serve.clock import Moment
from outlay.serve.ledger.caps import Tally

DAYS = 7  # that a forecast looks back: every day of the week is among them once
FEW = 100  # decisions that an earlier belief weighs
LARGE = 400  # decisions of a day that count: days differ by 5 %, however many come
BELIEF = 4  # weight of β = 1: as if known to one half
HOURS = 24  # parts of a day, also when the clock is changed
LATEST = 0.25  # weight of the latest day in the course of a day
WHOLE = 0.9  # of a day counted, from which on its course is learned


class DayCount(Struct, frozen=True):
    """What was counted on a day.

    Attributes:
        decisions: that came while somebody counted.
        progress: the part of the day's decisions in which somebody did.
        promised: what the policies' measurements say that they cost, were the price 1.
        priced: the same at the prices that there were.
    """

    decisions: int = 0
    progress: float = 0.0
    promised: float = 0.0
    priced: float = 0.0


class TrafficHistory(Struct, frozen=True, kw_only=True):
    """Decisions by day and hour, counted again and again.

    Attributes:
        ts: epoch ms when it was last counted.
        day: the same as a day.
        part: the same as a part of that day.
        counted: decisions of that day by then.
        hours: `[24]` of that day, in decisions.
        seen: day → what was counted, of the last days.
        course: `[24]` shares of a day's decisions by hour, as learned.
        learned: whole days that `course` rests on.
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
        """From now on; what came before was not counted."""
        return cls(ts=now.ts, day=now.day, part=now.part, counted=_decisions(days, now.day))

    def continued(
        self, days: Mapping[int, Tally], now: Moment, cost: float, priced: float, *, stopped: bool
    ) -> TrafficHistory:
        """With what came since.

        Args:
            days: of the ledger.
            now: the time.
            cost: what the policies that served since then are measured to cost per decision, at price 1.
            priced: the same at their price.
            stopped: nobody counted in between, and what came is left out.
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
            seen={day: found for day, found in seen.items() if day >= now.day - DAYS},
            course=course,
            learned=learned,
        )


def progress(course: Sequence[float], part: float) -> float:
    """The part of a day's decisions that comes in this part of the day; `course` `[24]` are the shares of its hours."""
    hour = min(int(part * HOURS), HOURS - 1)
    return min(sum(course[:hour]) + course[hour] * (part * HOURS - hour), 1.0)


def traffic_rate(seen: Mapping[int, DayCount], shares: Mapping[int, float]) -> float | None:
    """Decisions that come per unit of share; None where less than half a day was counted, or hardly any decisions."""
    planned = sum(day.progress * shares[number] for number, day in seen.items() if number in shares)
    counted = sum(day.progress for number, day in seen.items() if number in shares)
    decisions = sum(day.decisions for number, day in seen.items() if number in shares)
    if counted < 0.5 or planned <= 0 or decisions < FEW:
        return None
    return decisions / planned


def redemption(days: Mapping[int, Tally], today: int, expiry_days: float, believed: float) -> float:
    """q, the share of what is granted that is settled in the end.

    Args:
        days: of the ledger.
        today: the day now.
        expiry_days: after which a reservation is released; days that may still hold some are left out.
        believed: q before anything is known; weighs as much as a few decisions.
    """
    closed = [days[day] for day in sorted(days) if day + 1 + expiry_days <= today][-DAYS:]
    found = _share(closed, believed)
    # What yesterday's decisions have settled already is the least that they will.
    return max(found, _share([days[today - 1]], found)) if today - 1 in days else found


def cost_factor(
    seen: Mapping[int, DayCount], days: Mapping[int, Tally], costs: Mapping[int, float]
) -> tuple[float, float]:
    """κ, what decisions cost at price 1 over what the policies' measurements promise; β, what a price does, likewise.

    log (cost / promised) = log κ + β log (priced / promised) by day: a price that moves tells what it does. A ridge
    towards log κ = 0 and β = 1.

    Args:
        seen: what was counted.
        days: of the ledger.
        costs: of each day's decisions in the end.
    """
    rows = []
    for day, found in seen.items():
        # Of a day that was counted in part, its decisions' part of the costs.
        cost = costs.get(day, 0.0) * found.decisions / max(_decisions(days, day), 1)
        if min(cost, found.priced, found.promised) > 0:
            logs = math.log(found.priced / found.promised), math.log(cost / found.promised)
            rows.append((min(found.decisions, LARGE), *logs))
    weight, x, y = np.array(rows, np.float64).reshape(-1, 3).T
    matrix = np.array([[weight.sum() + FEW, weight @ x], [weight @ x, weight @ (x * x) + BELIEF]])
    log_factor, response = np.linalg.solve(matrix, [weight @ y, weight @ (x * y) + BELIEF]).tolist()
    return math.exp(log_factor), response


def spend(day: Tally, redeemed: float) -> float:
    """What a day's decisions cost in the end, if this share of what is granted is redeemed."""
    return min(max(redeemed * day.granted, day.settled), day.settled + day.reserved)


def _share(days: Sequence[Tally], believed: float) -> float:
    """Settled of granted, without excess; what was believed before weighs as much as a few offers."""
    granted, offers = sum(day.granted for day in days), sum(day.offers for day in days)
    if not offers:
        return believed
    weight = FEW * granted / offers
    return (sum(day.settled - day.excess for day in days) + weight * believed) / (granted + weight)


def _decisions(days: Mapping[int, Tally], day: int) -> int:
    return days[day].decisions if day in days else 0


def _by_hour(count: int, begin: float, end: float) -> list[float]:
    """`[24]` decisions that came between two parts of a day, as if evenly."""
    edges = np.arange(HOURS + 1) / HOURS
    inside = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0, None)
    return [float(count * share) for share in inside / max(end - begin, 1e-12)]


def _learned(course: Sequence[float], hours: Sequence[float], weight: float) -> tuple[float, ...]:
    """The course `[24]` of a day after another day `[24]` of this weight."""
    total = sum(hours) + FEW
    return tuple(old + weight * ((new + FEW / HOURS) / total - old) for old, new in zip(course, hours, strict=True))
