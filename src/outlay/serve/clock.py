"""The server's clock: it alone decides days, episodes and expiry; the time in a request is only recorded.

Its time is the ledger's (`ledger/clock.py`), the same for all servers, or that of a rehearsal.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from typing import NamedTuple

EPOCH = datetime.date(1970, 1, 1)  # day 0
ONE_DAY = datetime.timedelta(days=1)


def date_of(day: int) -> datetime.date:
    """Return the date of a day number."""
    return EPOCH + datetime.timedelta(days=day)


def day_of(date: datetime.date) -> int:
    """Return the number of a day."""
    return (date - EPOCH).days


def midnight(date: datetime.date, zone: zoneinfo.ZoneInfo) -> float:
    """Return the epoch seconds at which a day begins."""
    return datetime.datetime.combine(date, datetime.time(), zone).timestamp()


class Moment(NamedTuple):
    """A time of the server's clock.

    Attributes:
        ts: epoch ms.
        day: its day number.
        part: part of the day that has passed, in [0, 1).
    """

    ts: int
    day: int
    part: float

    @classmethod
    def of(cls, ts: int, zone: zoneinfo.ZoneInfo) -> Moment:
        """Return the moment in a time zone; a day of 23 or 25 hours is one day."""
        today = datetime.datetime.fromtimestamp(ts / 1000, zone).date()
        begin, end = midnight(today, zone), midnight(today + ONE_DAY, zone)
        return cls(ts, day_of(today), min(max((ts / 1000 - begin) / (end - begin), 0.0), 1 - 1e-9))


class Clock:
    """A clock of epoch milliseconds and days.

    Attributes:
        zone: time zone of the days.
    """

    def __init__(self, timezone: str, read: Callable[[], float]) -> None:
        self.zone = zoneinfo.ZoneInfo(timezone)
        self._read = read
        self._known = (0, 0, 0)  # begin, end (epoch ms) and number of a day; one value, since several threads use it

    def now(self) -> int:
        """Return epoch milliseconds."""
        return int(self._read() * 1000)

    def day(self, moment: int) -> int:
        """Return the day of a moment from `now`, as days since 1970-01-01 in the clock's zone."""
        begin, end, day = self._known
        if not begin <= moment < end:
            today = datetime.datetime.fromtimestamp(moment / 1000, self.zone).date()
            begin, end = (int(midnight(date, self.zone) * 1000) for date in (today, today + ONE_DAY))
            day = day_of(today)
            self._known = begin, end, day
        return day
