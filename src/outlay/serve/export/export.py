"""`outlay export-log`: write the closed days of a ledger as a campaign log that `outlay prepare` can read.

    result = export_log("sqlite:///ledger.db", "next")    # next/campaign.toml, next/log/dt=2026-01-05/part-0.parquet

A day is closed when its wait window is over; later outcomes change only its money. A second run adds the days that have
closed since and rewrites days whose money has changed. The sums of every day's rows are compared with the ledger's own
counters, in minor units, and any difference is an error. Memory use does not grow with the ledger.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outlay.core.actions import ActionNames
from outlay.core.errors import OutlayError
from outlay.core.progress import Progress, counted, silent, within
from outlay.logs.reading import literal
from outlay.logs.source import Resources, Source, open_source
from outlay.serve.clock import Clock, date_of
from outlay.serve.export.campaign import FILE, SOURCE, campaign_notes, campaign_of, check_expressions, write_campaign
from outlay.serve.export.folder import (
    MEMORY,
    ExportedDay,
    ExportState,
    database,
    days_due,
    digest,
    earlier_decisions,
    held_otherwise,
    own_errors,
    rewrite,
    workplace,
    write_day,
)
from outlay.serve.export.propensities import Restarts, write_propensities
from outlay.serve.export.rows import DaySummary, decision_columns, describe_sums, read_days
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Tally
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.money import Money
from outlay.serve.rehearsal import clock_with, rehearsal_of
from outlay.serve.user_days.campaign_history import CampaignHistory
from outlay.serve.user_days.log_row import LogLayout

READ, DRAWN, WRITTEN = 0.6, 0.85, 0.97  # of the time, when the ledger is read, propensities and days are written


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Attributes:
        state: of the folder after the export.
        days: the days written by this run.
        money: the currency.
        restarts: histories that were restarted because their draws contradict each other, with an example.
        edited: whether the campaign file was changed by hand, and therefore kept.
        absent: kinds of outcomes that the campaign uses and that do not occur in the days written.
        notes: what to correct in the campaign file.
    """

    state: ExportState
    days: dict[int, ExportedDay]
    money: Money
    restarts: Restarts
    edited: bool
    absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values; money is in units."""
        units = self.money.units
        return {
            "campaign": self.state.campaign,
            "unit": self.money.unit,
            "days": len(self.state.days),
            "written": [
                {
                    "day": date_of(day).isoformat(),
                    **vars(summary),
                    "held": units(summary.held),
                    "paid": units(summary.paid),
                    "excess": units(summary.excess),
                }
                for day, summary in sorted(self.days.items())
            ],
            "edited": self.edited,
            "warnings": self.warnings(),
        }

    def warnings(self) -> list[str]:
        """Return warnings for the operator."""
        words = [
            f"no outcome of the kind {kind!r} was reported for these days: its column is 0 in every row."
            for kind in self.absent
        ]
        words += self.notes
        if excess := sum(day.excess for day in self.days.values()):
            words.append(
                f"{self.money.units(excess):,.10g} {self.money.unit} of the amount paid were not covered by "
                "reservations (column excess): reserve the most that an action can cost, and let reservations last as "
                "long as an incentive can be redeemed."
            )
        if not self.restarts.histories:
            return words
        return [
            *words,
            f"{self.restarts.histories:,} decisions contradict their users' earlier decisions in the episode (the "
            f"first: {self.restarts.first}); propensities are computed from there on. Change salts and the share of "
            "the random slice only between episodes.",
        ]


@dataclass(frozen=True)
class _Work:
    """What one run of an export works on.

    Attributes:
        history: the campaign's bundles and settings.
        tallies: the ledger's counters, by day.
        closed: the last day whose wait window is over.
        out: the folder of the export.
        folder: for temporary files.
    """

    history: CampaignHistory
    tallies: Mapping[int, Tally]
    closed: int
    out: Path
    folder: Path

    def decisions(self, days: Sequence[int]) -> int:
        """Return how many the ledger has on these days."""
        return sum(self.tallies[day].decisions for day in days)


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
        out: the folder; days are added to an existing export of the same ledger.
        campaign: its name; optional if the ledger has only one.
        until: the last day to export.
        all_days: also export days that are not closed; the next export rewrites them.
        threads: number of DuckDB threads.
        clock: makes the server's clock for a time zone; None: the ledger's clock.
        progress: called with the share done and a description of the current step.

    Raises:
        OutlayError: if there is no such ledger or campaign, there is no day to export, `out` is not an export folder,
            the disk is full, or the log (which is written all the same) lacks a column that the campaign file uses.
        LedgerError: if the ledger cannot be read, or is inconsistent.
    """
    out, report = Path(out), progress or silent
    with closing(open_ledger(ledger, create=False)) as opened, own_errors(out):
        history = CampaignHistory(opened, _campaign(opened, campaign))
        state = ExportState.load(out, history.campaign)
        zone = _clock_of(opened, history, clock)
        tallies = opened.totals(history.campaign).days
        yesterday = zone.day(zone.now()) - 1
        closed = yesterday - history.wait_days
        days = days_due(tallies, state, closed, until=until, all_days=all_days)
        if state.layout is not None:  # days whose actions the ledger writes anew, as the newest bundle reads them
            action = decision_columns(ActionNames.of_file(history.content))["action"]
            again = held_otherwise(out, set(state.days) - set(days), state.layout, action)
            days = sorted({*days, *again})
        if not state.days:
            state.save(out)  # marks the folder as an export
        with workplace(out) as folder:
            work = _Work(history, tallies, closed, out, folder)
            layout, summaries = _read(opened, work, state, days, zone, within(report, 0, READ))
            with database(folder, threads) as source:
                restarts = _propensities(source, work, state, days, within(report, READ, DRAWN))
                if days or layout != state.layout:
                    for day in set(state.days) - set(days):
                        rewrite(source, out, day, layout)
                written = _write(source, work, layout, summaries, within(report, DRAWN, WRITTEN))
            state = replace(state, layout=layout, days=state.days | written)
            report(WRITTEN, "campaign file")
            state, edited = _with_campaign_file(state, work, layout, yesterday)
            state.save(out)
    absent = _absent(history, layout, summaries) if written else ()
    notes = campaign_notes(out / FILE, history, date_of(yesterday), edited=edited)
    return ExportResult(state, written, history.money, restarts, edited, absent, tuple(notes))


def _clock_of(ledger: Ledger, history: CampaignHistory, own: Callable[[str], Clock] | None) -> Clock:
    """Return the servers' clock: that of a rehearsal, else the given one, else the ledger's."""
    rehearsal, timezone = rehearsal_of(ledger, history.campaign), history.settings.timezone
    return own(timezone) if rehearsal is None and own is not None else clock_with(ledger, rehearsal, timezone)


def _campaign(ledger: Ledger, requested: str | None) -> str:
    known = ledger.campaigns()
    if requested in known:
        return str(requested)
    listed = ", ".join(map(repr, known)) or "none"
    if requested is not None:
        raise OutlayError(f"the ledger has no campaign {requested!r}.", where="--name", way_out=f"It has: {listed}.")
    if len(known) != 1:
        raise OutlayError(
            f"the ledger has {len(known)} campaigns: {listed}.", where="--name", way_out="Name one of them."
        )
    return known[0]


def _first_layout(history: CampaignHistory, state: ExportState) -> LogLayout:
    """Columns known before a row is read: those of older days, the bundles' features, and the expected outcomes."""
    features = [*history.categorical, *history.numeric]
    layout = state.layout or LogLayout.begin(history.bundle.campaign["log"], features)
    layout = layout.with_decisions().with_features(features)
    return layout.with_outcomes(_expected(history, layout)).widened({}, history.numeric)


def _expected(history: CampaignHistory, layout: LogLayout) -> list[str]:
    """Kinds of outcomes in the settings, and those that the campaign uses and that are not columns yet."""
    taken = {name.casefold() for name in (*layout.names.values(), *history.settings.outcomes)}
    return [*history.settings.outcomes, *(kind for kind in history.kinds if kind.casefold() not in taken)]


def _absent(history: CampaignHistory, layout: LogLayout, summaries: Mapping[int, DaySummary]) -> tuple[str, ...]:
    """Return the columns of outcomes that the campaign uses and that none of these days has."""
    present = {kind.casefold() for summary in summaries.values() for kind in summary.kinds}
    return tuple(kind for kind in history.kinds if kind in layout.kinds and kind.casefold() not in present)


def _read(
    ledger: Ledger, work: _Work, state: ExportState, days: Sequence[int], clock: Clock, report: Progress
) -> tuple[LogLayout, dict[int, DaySummary]]:
    """Write the ledger's rows of each day to temporary files. Return the columns that all days need, and summaries."""
    history, layout = work.history, _first_layout(work.history, state)
    reading = counted(report, work.decisions(days), "reading the ledger")
    features = list(layout.types)
    summaries = dict(read_days(ledger, history, days, work.closed, clock, features, work.folder, reading))
    for summary in summaries.values():
        layout = layout.with_outcomes(summary.kinds).widened(summary.types, history.numeric)
    return layout, summaries


def _propensities(source: Source, work: _Work, state: ExportState, days: Sequence[int], report: Progress) -> Restarts:
    """Write the propensities of all new rows."""
    if not days:
        return Restarts(0, None)
    drawing = counted(report, work.decisions(days), "propensities")
    files = ", ".join(literal(work.folder / str(day) / "decisions.parquet") for day in days)
    old = [day for day in state.days if day not in days and day < days[-1]]
    before = None if state.layout is None else earlier_decisions(work.out, old, state.layout)
    file = work.folder / "propensities.parquet"
    return write_propensities(source, f"read_parquet([{files}])", before, work.history.salts, file, drawing)


def _write(
    source: Source, work: _Work, layout: LogLayout, summaries: Mapping[int, DaySummary], report: Progress
) -> dict[int, ExportedDay]:
    """Write the files of each day, and compare their sums with the ledger's."""
    written, minor = {}, work.history.settings.minor
    drawn = work.folder / "propensities.parquet"
    for number, (day, summary) in enumerate(summaries.items()):
        report(number / len(summaries), f"writing {date_of(day)}")
        rows, sums = write_day(source, work.folder / str(day), drawn, day, layout, minor, work.out)
        if list(sums) != summary.sums:
            raise LedgerError(
                f"counts {describe_sums(summary.sums)} on {date_of(day)}, but the file has {describe_sums(sums)}."
            )
        closed, excess = day <= work.closed, work.tallies[day].excess
        written[day] = ExportedDay(rows, *sums, late=summary.late, closed=closed, excess=excess)
    return written


def _with_campaign_file(state: ExportState, work: _Work, layout: LogLayout, as_of: int) -> tuple[ExportState, bool]:
    """Write the campaign file unless it was edited; also return whether it was."""
    file, history = work.out / FILE, work.history
    if state.edited(file):
        return state, True
    with open_source(work.out / SOURCE, work.folder, resources=Resources(memory=MEMORY)) as source:
        content = campaign_of(history, layout, source, date_of(as_of))
        state = replace(state, campaign_file=digest(write_campaign(file, content)))
        state.save(work.out)
        check_expressions(content, layout, source, file)
    return state, False
