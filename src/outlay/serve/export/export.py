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
from pathlib import Path
from typing import Any

from outlay.core.errors import OutlayError
from outlay.core.progress import Counter, Progress, counted, silent, within
from outlay.logs.reading import literal
from outlay.logs.source import Source, open_source
from outlay.serve.clock import Clock
from outlay.serve.experiment.rehearsal import clock_with, rehearsal_of
from outlay.serve.export.campaign import FILE, SOURCE, campaign_of, check_expressions, write_campaign
from outlay.serve.export.days import earlier, rewrite, write_day
from outlay.serve.export.folder import (
    MEMORY,
    ExportedDay,
    ExportState,
    database,
    date_of,
    days_due,
    digest,
    own_errors,
    workplace,
)
from outlay.serve.export.history import CampaignHistory
from outlay.serve.export.layout import LogLayout
from outlay.serve.export.propensities import Told, write_chances
from outlay.serve.export.rows import DaySummary, describe_sums, read_days
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Tally
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.money import Money

READ, DRAWN, WRITTEN = 0.6, 0.85, 0.97  # share of the time by when the ledger is read, chances and days are written


@dataclass(frozen=True)
class ExportResult:
    """What an export did.

    Attributes:
        state: of the folder now.
        days: that were written this time.
        money: the currency.
        torn: histories that had to begin anew, since their draws contradict one another; and an example.
        edited: the campaign file was changed by hand, and stays.
        absent: kinds of outcomes of which the campaign is made, and of which these days have none.
    """

    state: ExportState
    days: dict[int, ExportedDay]
    money: Money
    torn: Told
    edited: bool
    absent: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON; money in units."""
        units = self.money.units
        return {
            "campaign": self.state.campaign,
            "unit": self.money.unit,
            "days": len(self.state.days),
            "written": [
                {
                    "day": date_of(day).isoformat(),
                    **vars(told),
                    "held": units(told.held),
                    "paid": units(told.paid),
                    "excess": units(told.excess),
                }
                for day, told in sorted(self.days.items())
            ],
            "edited": self.edited,
            "warnings": self.warnings(),
        }

    def warnings(self) -> list[str]:
        """What the operator should know, in words."""
        words = [
            f"no outcome of the kind {kind!r} came in these days: its column is 0 in every row." for kind in self.absent
        ]
        if excess := sum(day.excess for day in self.days.values()):
            words.append(
                f"{self.money.units(excess):,.10g} {self.money.unit} of what was paid were not covered by reservations "
                "(column excess): reserve what an action can cost at most, and let reservations last as long as an "
                "incentive can be redeemed."
            )
        if not self.torn.histories:
            return words
        return [
            *words,
            f"{self.torn.histories} decisions cannot have been drawn together with what their users got before in the "
            f"episode (the first: {self.torn.first}); their propensities count from there. Change salts and the share "
            "of the random slice between episodes.",
        ]


def export_log(
    ledger: str,
    out: str | Path,
    *,
    campaign: str | None = None,
    until: datetime.date | None = None,
    all_days: bool = False,
    threads: int | None = None,
    clock: Callable[[str], Clock] | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Write the closed days of a campaign.

    Args:
        ledger: `sqlite:///…` or `postgresql://…`.
        out: the folder; an older export of the same ledger is added to.
        campaign: whose; may be left out where the ledger has one only.
        until: the last day.
        all_days: days that are not closed as well; the next export writes them anew.
        threads: of DuckDB.
        clock: makes the server's clock in a time zone; None: the ledger's.
        progress: called with the share done and what is being done.

    Raises:
        OutlayError: if there is no such ledger or campaign, no day to export, `out` is not ours, the disk is full, or
            the log (which is written then) does not have what the campaign file asks for.
        LedgerError: if the ledger cannot be read, or contradicts itself.
    """
    out, report = Path(out), progress or silent
    with closing(open_ledger(ledger, create=False)) as books, own_errors(out):
        notes = CampaignHistory(books, _campaign(books, campaign))
        state = ExportState.load(out, notes.campaign)
        rehearsal = rehearsal_of(books, notes.campaign)
        timezone = notes.settings.timezone
        own = None if rehearsal is not None or clock is None else clock(timezone)
        zone = own or clock_with(books, rehearsal, timezone)
        tallies = books.totals(notes.campaign).days
        closed = zone.day(zone.now()) - notes.settings.wait_days - 1
        days = days_due(tallies, state, closed, until=until, all_days=all_days)
        if not state.days:
            state.save(out)  # the folder is ours from now on
        with workplace(out) as work:
            layout, total = _begun(notes, state), sum(tallies[day].decisions for day in days)
            tell = counted(within(report, 0, READ), total, "reading the ledger")
            seen = dict(read_days(books, notes, days, closed, zone, list(layout.types), work, tell))
            for met in seen.values():
                layout = layout.with_outcomes(met.kinds).widened(met.types, notes.numeric)
            with database(work, threads) as source:
                tell = counted(within(report, READ, DRAWN), total, "propensities")
                torn = _chances(source, notes, state, days, work, out, tell)
                if days or layout != state.layout:
                    for day in set(state.days) - set(days):
                        rewrite(source, out, day, layout)
                writing = within(report, DRAWN, WRITTEN)
                written = _write(source, notes, layout, seen, tallies, closed, work, out, writing)
            state = replace(state, layout=layout, days=state.days | written)
            report(WRITTEN, "campaign file")
            state, edited = _with_campaign_file(state, notes, layout, out, work)
            state.save(out)
    came = {kind.casefold() for met in seen.values() for kind in met.kinds}
    absent = tuple(kind for kind in notes.kinds if kind in layout.kinds and kind.casefold() not in came and written)
    return ExportResult(state, written, notes.money, torn, edited, absent)


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


def _begun(notes: CampaignHistory, state: ExportState) -> LogLayout:
    """The columns before anything is read: those of older days, what bundles decide from, outcomes that may come."""
    features = [*notes.categorical, *notes.numeric]
    layout = state.layout or LogLayout.begin(notes.bundle["campaign"]["log"], features)
    layout = layout.with_features(features)
    return layout.with_outcomes(_expected(notes, layout)).widened({}, notes.numeric)


def _expected(notes: CampaignHistory, layout: LogLayout) -> list[str]:
    """Kinds that may come: those of the settings, and what the campaign is made of that is not a column already."""
    taken = {name.casefold() for name in (*layout.names.values(), *notes.settings.outcomes)}
    return [*notes.settings.outcomes, *(kind for kind in notes.kinds if kind.casefold() not in taken)]


def _chances(
    source: Source,
    notes: CampaignHistory,
    state: ExportState,
    days: Sequence[int],
    work: Path,
    out: Path,
    tell: Counter,
) -> Told:
    """Propensities of all new rows."""
    if not days:
        return Told(0, None)
    files = ", ".join(literal(work / str(day) / "decisions.parquet") for day in days)
    old = [day for day in state.days if day not in days and day < days[-1]]
    history = None if state.layout is None else earlier(out, old, state.layout)
    return write_chances(source, f"read_parquet([{files}])", history, notes.salts, work / "chances.parquet", tell)


def _write(
    source: Source,
    notes: CampaignHistory,
    layout: LogLayout,
    seen: Mapping[int, DaySummary],
    tallies: Mapping[int, Tally],
    closed: int,
    work: Path,
    out: Path,
    report: Progress,
) -> dict[int, ExportedDay]:
    """The files of each day, held against the ledger's sums."""
    written = {}
    for number, (day, met) in enumerate(seen.items()):
        report(number / len(seen), f"writing {date_of(day)}")
        rows, sums = write_day(
            source, work / str(day), work / "chances.parquet", day, layout, notes.settings.minor, out
        )
        if list(sums) != met.sums:
            raise LedgerError(
                f"counts {describe_sums(met.sums)} on {date_of(day)}, and the file {describe_sums(sums)}."
            )
        written[day] = ExportedDay(rows, *sums, late=met.late, closed=day <= closed, excess=tallies[day].excess)
    return written


def _with_campaign_file(
    state: ExportState, notes: CampaignHistory, layout: LogLayout, out: Path, work: Path
) -> tuple[ExportState, bool]:
    """Write the campaign file, unless it was edited; whether it was."""
    file = out / FILE
    if state.edited(file):
        return state, True
    with open_source(out / SOURCE, work, memory=MEMORY) as source:
        content = campaign_of(notes.bundle, layout, source)
        state = replace(state, campaign_file=digest(write_campaign(file, content)))
        state.save(out)
        check_expressions(content, layout, source, file)
    return state, False
