"""Which days an export writes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from outlay.core.errors import OutlayError
from outlay.serve.clock import EPOCH
from outlay.serve.export.folder import State, date_of
from outlay.serve.ledger.caps import Tally


def days_due(
    tallies: Mapping[int, Tally],
    state: State,
    closed: int,
    *,
    until: datetime.date | None = None,
    all_days: bool = False,
) -> list[int]:
    """The days to write: new ones, those not yet closed when they were written, those whose money moved since, and all
    that follow one that got more decisions.

    Args:
        tallies: what the ledger counts, by day.
        state: what the folder holds.
        closed: the last day whose wait window is over.
        until: the last day.
        all_days: those that are not closed as well.

    Raises:
        OutlayError: if there is none that could be written, or the folder holds days of another ledger.
    """
    for day, told in state.days.items():
        if day not in tallies or tallies[day].decisions < told.decisions:
            raise OutlayError(
                f"holds {told.decisions} decisions of {date_of(day)}, and the ledger "
                f"{tallies[day].decisions if day in tallies else 0}: it was exported from another.",
                where="--out", way_out="Give another --out.",
            )  # fmt: skip
    last = None if until is None else (until - EPOCH).days
    asked = [day for day in sorted(tallies) if last is None or day <= last]
    due = [day for day in asked if all_days or day <= closed]
    if not due:
        if not asked:
            found = f"there are no decisions until {until}." if tallies else "there are no decisions."
            raise OutlayError(found, where="LEDGER", way_out="Export when there are some.")
        raise OutlayError(
            f"no day is closed: outcomes of the first, {date_of(asked[0])}, are still awaited.", where="LEDGER",
            way_out=f"Export in {asked[0] - closed} days, or take days as they are with --all-days.",
        )  # fmt: skip
    more = [day for day in due if day in state.days and state.days[day].decisions != tallies[day].decisions]
    return [
        day
        for day in due
        if day not in state.days
        or not state.days[day].closed
        or state.days[day].sums != sums_of(tallies[day])
        or (more and day >= more[0])
    ]


def sums_of(tally: Tally) -> tuple[int, int, int, int]:
    """Decisions, offers, minor units held and minor units paid."""
    return tally.decisions, tally.offers, tally.reserved, tally.settled
