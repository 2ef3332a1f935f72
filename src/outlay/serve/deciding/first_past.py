"""What was known of users before the ledger began: `outlay serve --history LOG_OR_DATA`.

    first = FirstPast.read(bundle, "log.parquet")
    days, earlier = first.days("ann", day - 14, day)

It is read once for every bundle, by the roles of the bundle's campaign, and stays in memory: about 100 bytes for each
user, and 16 bytes and 4 for each column for each row.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np

from outlay.bundles.decide import Bundle
from outlay.core.errors import LogError
from outlay.logs.past import UserPast
from outlay.serve.clock import EPOCH
from outlay.serve.deciding.past import PastDay

OLDEST = (datetime.date(2000, 1, 1) - EPOCH).days  # times before are numbers of days since some other day


class FirstPast:
    """The past of users in a log or a DATA folder."""

    def __init__(self, past: UserPast) -> None:
        self._rows = past.rows
        self._place = {name: place for place, name in enumerate(past.names.to_pylist())}
        self._starts = np.searchsorted(past.rows.user, np.arange(len(self._place) + 1)).tolist()

    @classmethod
    def read(cls, bundle: Bundle, path: str | Path) -> FirstPast:
        """Read what a bundle needs of a log (Parquet or CSV) or of a DATA folder.

        Raises:
            OutlayError: as `UserPast.read`; or if its times are not dates.
        """
        past = UserPast.read(bundle.campaign, path, bundle.actions)
        if (last := past.next_time - 1) < OLDEST:
            raise LogError(
                f"its times end with {last}, which is no date: a server's days are dates.",
                file=path,
                where="--history",
                way_out="Give a log with dates in the campaign's time column.",
            )
        return cls(past)

    def days(self, user: str, first: int, until: int) -> tuple[list[PastDay], bool]:
        """Return a user's days from `first` to before `until`, and whether there is an earlier one."""
        place = self._place.get(user)
        if place is None:
            return [], False
        start, end = self._starts[place], self._starts[place + 1]
        low, high = (start + np.searchsorted(self._rows.time[start:end], [first, until])).tolist()
        times, values = self._rows.time[low:high].tolist(), self._rows.values[low:high].tolist()
        return [PastDay(*each) for each in zip(times, values, strict=True)], low > start
