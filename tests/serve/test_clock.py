"""Days begin at midnight of the zone."""

from __future__ import annotations

import datetime

from outlay.serve.clock import EPOCH, Clock


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def test_days_begin_at_midnight_of_the_zone() -> None:
    now = [0.0]
    clock = Clock("Europe/Paris", lambda: now[0])
    days = []
    # Clocks in Paris go back on 25 October 2026 at 01:00 UTC.
    for text in ("2026-10-24T21:59:59Z", "2026-10-24T22:00:00Z", "2026-10-25T22:59:59Z", "2026-10-25T23:00:00Z"):
        now[0] = at(text)
        days.append(EPOCH + datetime.timedelta(clock.day(clock.now())))
    assert [day.day for day in days] == [24, 25, 25, 26]


def test_a_moment_before_midnight_keeps_its_day_after_somebody_asked_for_the_next() -> None:
    clock = Clock("UTC", lambda: 0.0)
    before, after = (int(at(text) * 1000) for text in ("2027-03-01T23:59:59.999Z", "2027-03-02T00:00:00Z"))
    assert clock.day(after) == clock.day(before) + 1
    assert clock.day(after) == clock.day(before) + 1
