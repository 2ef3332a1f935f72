"""Days of the ledger, read into files to work on, until their rows have the sums that the ledger counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from outlay.serve.clock import Clock, midnight
from outlay.serve.export.due import sums_of
from outlay.serve.export.folder import date_of
from outlay.serve.export.notes import Notes
from outlay.serve.export.rows import Seen, write_rows
from outlay.serve.ledger.caps import Tally
from outlay.serve.ledger.ledger import Ledger, LedgerError

TRIES = 3  # of reading a day whose money moves meanwhile
DAY = 86_400_000  # milliseconds


def read_days(
    ledger: Ledger,
    notes: Notes,
    days: Sequence[int],
    closed: int,
    clock: Clock,
    features: Sequence[str],
    work: Path,
    tell: Callable[[int], None],
) -> Iterator[tuple[int, Seen]]:
    """Write each day's rows into a folder of its own in `work`; what was met.

    Args:
        ledger: to read.
        notes: of the campaign.
        days: their numbers.
        closed: the last day whose wait window is over; on later ones servers may go on writing.
        clock: the servers'.
        features: their names.
        work: a folder.
        tell: takes the number of rows with every few of them.

    Raises:
        LedgerError: if the rows of a day never have the sums that the ledger counts.
    """
    for day in days:
        folder = work / str(day)
        folder.mkdir()
        write = partial(write_rows, folder=folder, features=features, terms=notes.terms, tell=tell)
        yield day, _read_day(ledger, notes, day, clock, write, moving=day > closed)


def _read_day(
    ledger: Ledger, notes: Notes, day: int, clock: Clock, write: Callable[..., Seen], *, moving: bool
) -> Seen:
    begin, end, closes = (
        int(midnight(date_of(each), clock.zone) * 1000) for each in (day, day + 1, day + notes.settings.wait_days + 1)
    )
    for slack in (0, *[DAY] * (TRIES - 1)):  # another time zone may have been in force
        before = _counted(ledger, notes)[day]
        rows = ledger.rows(notes.campaign, begin - slack, end + slack)
        seen = write((row for row in rows if row.day == day), window_ends=closes)
        after = _counted(ledger, notes)[day]
        if tuple(seen.sums) == sums_of(after):
            return seen
    if moving and before != after:
        return seen
    raise LedgerError(
        f"counts {in_words(sums_of(after))} on {date_of(day)}, and its rows {in_words(seen.sums)}.",
        way_out="If money is moving on that day, run it again; if it is not, the ledger is damaged.",
    )


def in_words(sums: Sequence[int]) -> str:
    """Sums of a day, as `due.sums_of` gives them."""
    decisions, offers, held, paid = sums
    return f"{decisions} decisions, {offers} offers, {held} minor units held and {paid} paid"


def _counted(ledger: Ledger, notes: Notes) -> Mapping[int, Tally]:
    return ledger.totals(notes.campaign).days
