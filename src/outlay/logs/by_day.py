"""What a log holds by day, how its propensities are spread, and how its rows join: what its page draws."""

from __future__ import annotations

from dataclasses import dataclass

from outlay.core.actions import Given
from outlay.logs.roles import Log

MOST_SPANS = 90  # that days are told in: a longer log is told in spans of several days
BINS = 20  # of propensities


@dataclass(frozen=True)
class DayRows:
    """What a span of days holds.

    Attributes:
        first: its first day, as the log has it.
        days: how many.
        rows: a day, on average.
        given: action → share of the rows with a choice; empty without any.
    """

    first: int | str
    days: int
    rows: float
    given: dict[Given, float]


@dataclass(frozen=True)
class Joins:
    """How the rows of users join.

    Attributes:
        next_day: rows that are followed on the next day.
        later: rows that are followed later, so that days between have none.
        last: last rows of their users.
        same_day: rows followed on the same day, which is one too many.
    """

    next_day: int
    later: int
    last: int
    same_day: int


def rows_by_day(log: Log, first: int, last: int) -> tuple[DayRows, ...]:
    """Return the rows of every day, or of spans of several, and the actions given where there was a choice."""
    each = max(1, -(-(last - first + 1) // MOST_SPANS))
    counted = log.source.run(f"""
        SELECT ("time" - {first}) // {each}, action, count(*), count(*) FILTER ({log.choice})
        FROM roles WHERE "time" IS NOT NULL GROUP BY ALL ORDER BY ALL""")
    rows: dict[int, int] = {}
    chosen: dict[int, dict[Given, int]] = {}
    for span, action, count, choices in counted:
        rows[int(span)] = rows.get(int(span), 0) + int(count)
        if action is not None and choices:
            chosen.setdefault(int(span), {})[log.campaign.given(float(action))] = int(choices)
    found = []
    for span in range((last - first) // each + 1):
        begin, given = first + span * each, chosen.get(span, {})
        days, whole = min(each, last - begin + 1), sum(given.values())
        shares = {action: count / whole for action, count in given.items()}
        found.append(DayRows(log.when(begin), days, rows.get(span, 0) / days, shares))
    return tuple(found)


def propensity_bins(log: Log) -> tuple[int, ...]:
    """Return `[BINS]` rows with a choice by their stated propensity, in equal steps from 0 to 1; empty without any."""
    if not log.campaign.log.propensity:
        return ()
    counted = log.source.run(f"""
        SELECT least(CAST(floor({BINS} * propensity) AS INTEGER), {BINS - 1}) AS bin, count(*)
        FROM roles WHERE {log.choice} AND propensity BETWEEN 0 AND 1 GROUP BY ALL""")
    found = {int(place): int(count) for place, count in counted}
    return tuple(found.get(i, 0) for i in range(BINS))


def joins(log: Log) -> Joins:
    """Return how the rows of users join."""
    ((next_day, later, last, same),) = log.source.run(
        "SELECT count(*) FILTER (gap = 1), count(*) FILTER (gap > 1), count(*) FILTER (gap IS NULL), "
        "count(*) FILTER (gap = 0) FROM links"
    )
    return Joins(int(next_day), int(later), int(last), int(same))
