"""The server's clock: it alone decides days, episodes and expiry; what a request says of time is only recorded.

It never goes back while a server runs, so that a corrected system clock opens no earlier day's cap again.
"""

from __future__ import annotations

import datetime
import time
import zoneinfo
from collections.abc import Callable

EPOCH = datetime.date(1970, 1, 1)  # day 0


class Clock:
    """Epoch milliseconds that do not decrease, and the day they fall on.

    Attributes:
        zone: in which days begin.
    """

    def __init__(self, timezone: str = "UTC", read: Callable[[], float] = time.time) -> None:
        self.zone = zoneinfo.ZoneInfo(timezone)
        self._read = read
        self._last = 0
        self._day = 0
        self._day_ends = 0  # epoch ms

    def now(self) -> int:
        """Epoch milliseconds."""
        self._last = max(self._last, int(self._read() * 1000))
        return self._last

    def day(self, moment: int) -> int:
        """The day of a moment that `now` gave, as days since 1970-01-01 in the clock's zone."""
        if moment >= self._day_ends:
            today = datetime.datetime.fromtimestamp(moment / 1000, self.zone).date()
            tomorrow = datetime.datetime.combine(today + datetime.timedelta(days=1), datetime.time(), self.zone)
            self._day, self._day_ends = (today - EPOCH).days, int(tomorrow.timestamp() * 1000)
        return self._day
