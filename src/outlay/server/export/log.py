"""`outlay export-log`: closed days of a ledger as the next campaign log, which `outlay prepare` reads as it stands.

    found = export_log("sqlite:///ledger.db", "next")        # next/campaign.toml, next/log/dt=2026-01-05/part-0.parquet

A day is closed when its wait window is over: what comes later moves its money alone. Run again, it adds the days that
have closed since, and writes days anew whose money has moved. Every day is held against the ledger's own counters, in
minor units: its rows have the same sums, or it is an error. Memory does not grow with the ledger.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from outlay.core.errors import OutlayError
from outlay.logs.reading import literal
from outlay.logs.source import Source, open_source
from outlay.server.clock import Clock
from outlay.server.export.campaign import FILE, SOURCE, campaign_of, check_expressions, write_campaign
from outlay.server.export.chances import Told, write_chances
from outlay.server.export.days import earlier, rewrite, write_day
from outlay.server.export.due import days_due, sums_of
from outlay.server.export.folder import MEMORY, Day, State, database, date_of, digest, own_errors, workplace
from outlay.server.export.layout import Layout
from outlay.server.export.notes import Notes
from outlay.server.export.rows import Seen, write_rows
from outlay.server.ledger.caps import Tally
from outlay.server.ledger.ledger import Ledger, LedgerError
from outlay.server.ledger.money import Money
from outlay.server.ledger.store import SQLITE, open_ledger
from outlay.server.trials.rehearsal import rehearsal_of

TRIES = 3  # of reading a day whose money moves meanwhile
DAY = 86_400_000  # milliseconds
SHARES = (0.6, 0.25, 0.12)  # of the time: reading the ledger, propensities, writing days

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Exported:
    """What an export did.

    Attributes:
        state: of the folder now.
        days: that were written this time.
        money: the currency.
        torn: histories that had to begin anew, since their draws contradict one another; and an example.
        edited: the campaign file was changed by hand, and stays.
    """

    state: State
    days: dict[int, Day]
    money: Money
    torn: Told
    edited: bool

    def to_dict(self) -> dict[str, Any]:
        """As JSON; money in units."""
        units = self.money.units
        return {
            "campaign": self.state.campaign,
            "unit": self.money.unit,
            "days": len(self.state.days),
            "written": [
                {"day": date_of(day).isoformat(), **vars(told), "held": units(told.held), "paid": units(told.paid)}
                for day, told in sorted(self.days.items())
            ],
            "edited": self.edited,
            "warnings": self.warnings(),
        }

    def warnings(self) -> list[str]:
        """What the operator should know, in words."""
        if not self.torn.histories:
            return []
        return [
            f"{self.torn.histories} decisions cannot have been drawn together with what their users got before in the "
            f"episode (the first: {self.torn.first}); their propensities count from there. Change salts and the share "
            "of the random slice between episodes."
        ]


def export_log(
    ledger: str,
    out: str | Path,
    *,
    campaign: str | None = None,
    until: datetime.date | None = None,
    all_days: bool = False,
    threads: int | None = None,
    clock: Callable[[str], Clock] = Clock,
    progress: Progress | None = None,
) -> Exported:
    """Write the closed days of a campaign.

    Args:
        ledger: `sqlite:///…` or `postgresql://…`.
        out: the folder; an older export of the same ledger is added to.
        campaign: whose; may be left out where the ledger has one only.
        until: the last day.
        all_days: days that are not closed as well; the next export writes them anew.
        threads: of DuckDB.
        clock: makes the server's clock in a time zone.
        progress: called with the share done and what is being done.

    Raises:
        OutlayError: if there is no such ledger or campaign, no day to export, `out` is not ours, the disk is full, or
            the log (which is written then) does not have what the campaign file asks for.
        LedgerError: if the ledger cannot be read, or contradicts itself.
    """
    out, tell = Path(out), progress or (lambda _share, _text: None)
    with closing(_opened(ledger)) as books, own_errors(out):
        notes = Notes(books, _campaign(books, campaign))
        state = State.load(out, notes.campaign)
        rehearsal = rehearsal_of(books, notes.campaign)
        zone = clock(notes.settings.timezone) if rehearsal is None else Clock(notes.settings.timezone, rehearsal.time)
        tallies = books.totals(notes.campaign).days
        closed = zone.day(zone.now()) - notes.settings.wait_days - 1
        days = days_due(tallies, state, closed, until=until, all_days=all_days)
        if not state.days:
            state.save(out)  # the folder is ours from now on
        with workplace(out) as work:
            written, torn = {}, Told(0, None)
            if days:
                seen, layout = _read(books, notes, state, days, tallies, closed, zone, work, tell)
                with database(work, threads) as source:
                    torn = _chances(source, notes, state, days, tallies, work, out, tell)
                    for day in set(state.days) - set(days):
                        rewrite(source, out, day, layout)
                    written = _write(source, notes, layout, days, seen, closed, work, out, tell)
                state = replace(state, layout=layout, days=state.days | written)
            tell(sum(SHARES), "campaign file")
            state, edited = _with_campaign_file(state, notes, out, work)
            state.save(out)
    return Exported(state, written, notes.money, torn, edited)


def _opened(url: str) -> Ledger:
    """A ledger that is there already."""
    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).exists():
        raise OutlayError("there is no such ledger.", file=url.removeprefix(SQLITE), where="LEDGER",
                          way_out="Check the path: sqlite:///ledger.db lies in the working folder.")  # fmt: skip
    return open_ledger(url)


def _campaign(ledger: Ledger, asked: str | None) -> str:
    known = ledger.campaigns()
    if asked in known:
        return str(asked)
    listed = ", ".join(map(repr, known)) or "none"
    if asked is not None:
        raise OutlayError(f"the ledger has no campaign {asked!r}.", where="--campaign", way_out=f"It has: {listed}.")
    if len(known) != 1:
        raise OutlayError(f"the ledger has {len(known)} campaigns: {listed}.", where="--campaign",
                          way_out="Name one of them.")  # fmt: skip
    return known[0]


def _read(
    ledger: Ledger,
    notes: Notes,
    state: State,
    days: Sequence[int],
    tallies: Mapping[int, Tally],
    closed: int,
    clock: Clock,
    work: Path,
    tell: Progress,
) -> tuple[dict[int, Seen], Layout]:
    """The rows of each day, in a folder of its own in `work`; what was met, and the layout that holds all of it."""
    categorical, numeric = notes.features()
    layout = state.layout or Layout.begin(notes.bundle["campaign"]["log"], [*categorical, *numeric])
    layout = layout.with_features([*categorical, *numeric])
    count = _Counter(sum(tallies[day].decisions for day in days), 0.0, SHARES[0], "reading the ledger", tell)
    found = {}
    for day in days:
        folder = work / str(day)
        folder.mkdir()
        write = partial(write_rows, folder=folder, features=list(layout.types), terms=notes.terms, tell=count.add)
        found[day] = seen = _read_day(ledger, notes, day, clock, write, moving=day > closed)
        layout = layout.with_outcomes(seen.kinds).widened(seen.types, numeric)
    return found, layout


def _read_day(
    ledger: Ledger, notes: Notes, day: int, clock: Clock, write: Callable[..., Seen], *, moving: bool
) -> Seen:
    """Read until the rows have the sums that the ledger counts; on a day that is not closed servers may go on writing.

    Raises:
        LedgerError: if they never have.
    """
    begin, end, closes = (_midnight(clock, each) for each in (day, day + 1, day + notes.settings.wait_days + 1))
    for slack in (0, *[DAY] * (TRIES - 1)):  # another time zone may have been in force
        before = ledger.totals(notes.campaign).days[day]
        rows = ledger.rows(notes.campaign, begin - slack, end + slack)
        seen = write((row for row in rows if row.day == day), window_ends=closes)
        after = ledger.totals(notes.campaign).days[day]
        if tuple(seen.sums) == sums_of(after):
            return seen
    if moving and before != after:
        return seen
    raise LedgerError(
        f"counts {_in_words(sums_of(after))} on {date_of(day)}, and its rows {_in_words(seen.sums)}.",
        way_out="If money is moving on that day, run it again; if it is not, the ledger is damaged.",
    )


def _chances(
    source: Source,
    notes: Notes,
    state: State,
    days: Sequence[int],
    tallies: Mapping[int, Tally],
    work: Path,
    out: Path,
    tell: Progress,
) -> Told:
    """Propensities of all new rows."""
    files = ", ".join(literal(work / str(day) / "decisions.parquet") for day in days)
    old = [day for day in state.days if day not in days and day < days[-1]]
    count = _Counter(sum(tallies[day].decisions for day in days), SHARES[0], SHARES[1], "propensities", tell)
    history = None if state.layout is None else earlier(out, old, state.layout)
    return write_chances(source, f"read_parquet([{files}])", history, notes.salts, work / "chances.parquet", count.add)


def _write(
    source: Source,
    notes: Notes,
    layout: Layout,
    days: Sequence[int],
    seen: Mapping[int, Seen],
    closed: int,
    work: Path,
    out: Path,
    tell: Progress,
) -> dict[int, Day]:
    """The files of each day, held against the ledger's sums."""
    written = {}
    for number, day in enumerate(days):
        tell(sum(SHARES[:2]) + SHARES[2] * number / len(days), f"writing {date_of(day)}")
        rows, sums = write_day(
            source, work / str(day), work / "chances.parquet", day, layout, notes.settings.minor, out
        )
        if list(sums) != seen[day].sums:
            raise LedgerError(f"counts {_in_words(seen[day].sums)} on {date_of(day)}, and the file {_in_words(sums)}.")
        written[day] = Day(rows, *sums, late=seen[day].late, closed=day <= closed)
    return written


def _with_campaign_file(state: State, notes: Notes, out: Path, work: Path) -> tuple[State, bool]:
    """Write the campaign file, unless it was edited; whether it was."""
    file, layout = out / FILE, state.layout
    if layout is None or (edited := state.edited(file)):
        return state, layout is not None
    with open_source(out / SOURCE, work, memory=MEMORY) as source:
        content = campaign_of(notes.bundle, layout, source)
        state = replace(state, campaign_file=digest(write_campaign(file, content)))
        state.save(out)
        check_expressions(content, layout, source, file)
    return state, edited


class _Counter:
    """Rows done, as progress."""

    def __init__(self, total: int, begin: float, share: float, text: str, tell: Progress) -> None:
        self._done, self._total, self._begin, self._share, self._text, self._tell = 0, total, begin, share, text, tell

    def add(self, rows: int) -> None:
        self._done += rows
        self._tell(self._begin + self._share * min(self._done / max(self._total, 1), 1.0), self._text)


def _in_words(sums: Sequence[int]) -> str:
    decisions, offers, held, paid = sums
    return f"{decisions} decisions, {offers} offers, {held} minor units held and {paid} paid"


def _midnight(clock: Clock, day: int) -> int:
    """The moment at which a day begins, epoch ms."""
    return int(datetime.datetime.combine(date_of(day), datetime.time(), clock.zone).timestamp() * 1000)
