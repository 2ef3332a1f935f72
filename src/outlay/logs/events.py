"""Outcomes that come later: which rows are late enough to know them, and those of a table of their own.

A row is ripe if every value of it is known. With d the longest of `[log.delays]` and T the last time up to which
outcomes were collected (`log.as_of`), a row at time t is ripe if

    t + d ≤ T

Rows that are not ripe have outcomes that are known in part, so they are left out of the log: for training and
evaluation, the last ripe day is the end of the log.

Outcomes in a table of their own (`[log.events]`) are credited to the rows that brought them. An event at time t of a
user belongs to

    a cost      the user's latest row at or before t that gave an incentive (an action other than `campaign.none`)
    the reward  the user's latest row at or before t

or, with `decision`, to the row of that decision. It is credited if it came within the outcome's delay (`[log.delays]`);
values of one row are added up, and to the row's own value. All else is counted and told. The rows are those that pass
`log.where`, ripe or not.

Table `credits`: `user` and `time` of a row, as in `roles`, and what is added to `reward`, `cost0` … `cost{m−1}` (NULL:
nothing).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outlay.core.addresses import absolute
from outlay.core.campaign import Campaign, EventsSection
from outlay.core.errors import CampaignError, LogError
from outlay.core.wording import days as counted_days
from outlay.logs.findings import Finding
from outlay.logs.naming import action_sql
from outlay.logs.reading import literal
from outlay.logs.source import Asker, Copying, Resources, Source, open_source
from outlay.logs.values import counted, text_sql, time_sql, time_term, user_sql, user_term

COLLECTED = "log_collected"  # the rows that pass log.where, ripe or not
MUCH = 0.5  # share of rows that are not ripe from which it is a warning
EPOCH = datetime.date(1970, 1, 1)
CREDITS = "credits"
ROUNDING = 1e-6  # relative: actions that differ by less are the same
LOOK = "Check the users and times of both tables, and log.delays: what is not credited is in no figure."
LOST = 0.05  # share of events that are not credited from which it is a warning


@dataclass(frozen=True)
class Ripeness:
    """How much of a log is ripe.

    Attributes:
        longest: d, in units of `time`.
        as_of: T; dates as days since 1970-01-01.
        rows: of the log.
        left_out: those of them that are not ripe.
    """

    longest: int
    as_of: int
    rows: int
    left_out: int

    @property
    def last(self) -> int:
        """The last time of a ripe row."""
        return self.as_of - self.longest

    @property
    def words(self) -> str:
        """The rows left out, in words; empty if there are none."""
        if not self.left_out:
            return ""
        share = f"{self.left_out:,} rows ({self.left_out / self.rows:.1%})"
        if not self.longest:
            return f"{share} are later than log.as_of: left out"
        return (
            f"{share} of the last {self.longest} {'day is' if self.longest == 1 else 'days are'} not ripe, since "
            "their outcomes can still come: left out"
        )

    def findings(self) -> list[Finding]:
        """What `check` says of it."""
        if not self.left_out:
            return []
        if self.left_out <= MUCH * self.rows:
            return [Finding("note", "log.delays", f"{self.words}.", "", self.left_out)]
        way_out = "Collect outcomes for longer and say until when (log.as_of), or give a longer log."
        return [Finding("warning", "log.delays", f"{self.words}.", way_out, self.left_out)]


def keep_ripe(
    source: Source, campaign: Campaign, time: str, *, dates: bool, until: int | None = None
) -> Ripeness | None:
    """Take the rows that are not ripe out of `log_kept`; the view `log_collected` still has them.

    Args:
        source: the log.
        campaign: with `[log.delays]` or `log.as_of`; without both, every row is ripe and None is returned.
        time: SQL of a row's time, a whole number.
        dates: whether times are dates.
        until: the last time of an event; without `log.as_of`, outcomes were collected until then.

    Raises:
        CampaignError: if `log.as_of` is a date and times are numbers, or the other way round.
        LogError: if no row is ripe.
    """
    log = campaign.log
    if not log.delays and log.as_of is None:
        return None
    first, last, rows = source.run(f"SELECT min(t), max(t), count(*) FROM (SELECT {time} AS t FROM log_kept)")[0]
    if last is None:  # no row has a time, which is an error of its own
        return None
    collected = int(last) if until is None else max(int(last), until)
    as_of = collected if log.as_of is None else _as_number(campaign, dates=dates)
    if as_of < first:
        raise LogError(
            f"is {shown(as_of, dates=dates)}, and the first row of the log is of {shown(int(first), dates=dates)}.",
            file=source.file,
            where="log.as_of",
            way_out="Give the last time up to which outcomes were collected.",
        )
    ripe = as_of - log.longest_delay
    [(late,)] = source.run(f"SELECT count(*) FROM log_kept WHERE {time} > {ripe}")
    found = Ripeness(log.longest_delay, as_of, int(rows), int(late))
    if ripe < first:
        raise LogError(
            f"no row is ripe: outcomes come up to {log.longest_delay} days later (log.delays) and were collected until "
            f"{shown(as_of, dates=dates)}, which is {counted_days(as_of - int(first))} after the first row.",
            file=source.file,
            where="log.delays",
            way_out="Give a longer log, or collect outcomes for longer and say until when (log.as_of).",
        )
    source.run(f"ALTER VIEW log_kept RENAME TO {COLLECTED}")
    source.run(f"CREATE VIEW log_kept AS SELECT * FROM {COLLECTED} WHERE NOT coalesce({time} > {ripe}, false)")
    return found


def shown(time: int, *, dates: bool) -> int | str:
    """A time as it is shown: a date as text, else the number."""
    return str(np.datetime64(time, "D")) if dates else time  # of any year: logs have dates such as 99999-01-01


def _as_number(campaign: Campaign, *, dates: bool) -> int:
    as_of = campaign.log.as_of
    if dates and isinstance(as_of, datetime.date):
        return (as_of - EPOCH).days
    if dates or not isinstance(as_of, int):
        wanted, found = ("a date, as 2027-03-31", "a number") if dates else ("a whole number", "a date")
        raise CampaignError(
            f"is {found}, {as_of}; the times of the log are {'dates' if dates else 'numbers'}.",
            file=campaign.path,
            where="log.as_of",
            way_out=f"Give {wanted}.",
        )
    return as_of


@dataclass(frozen=True)
class Credited:
    """What became of the events.

    Attributes:
        events: values other than 0, of all outcomes.
        unmatched: those of them that have no row.
        late: those that came later than the outcome's delay.
        last: the time of the last event, dates as days since 1970-01-01; None if there is none.
        by_user: whether events name their user alone, so that the row is the user's latest one.
    """

    events: int
    unmatched: int
    late: int
    last: int | None
    by_user: bool

    @property
    def words(self) -> str:
        """What became of them, in words."""
        lost = [
            f"{count:,} {what}"
            for count, what in (
                (self.unmatched, "match no row"),
                (self.late, "came later than log.delays says"),
            )
            if count
        ]
        credited = self.events - self.unmatched - self.late
        where = "the user's latest row before them" if self.by_user else "the rows of their decisions"
        told = f"{credited:,} of {self.events:,} later outcomes (log.events) are credited to {where}"
        return f"{told}; {' and '.join(lost)}" if lost else told

    def findings(self) -> list[Finding]:
        """What `check` says of it."""
        lost = self.unmatched + self.late
        if lost <= LOST * self.events:
            return [Finding("note", "log.events", f"{self.words}.", "", lost)]
        return [Finding("warning", "log.events", f"{self.words}.", LOOK, lost)]


def credit_events(source: Source, campaign: Campaign, folder: Path, resources: Resources) -> Credited | None:
    """Make the table `credits`; None, and no table, if the campaign has no events.

    Args:
        source: the log, before rows that are not ripe are left out.
        campaign: with `[log.events]`.
        folder: takes temporary files.
        resources: what DuckDB may use.

    Raises:
        CampaignError: if the section names what the tables do not have, or their times are of two kinds.
        LogError: if the events cannot be read, there are none or none is credited, or two rows of the log have the same
            decision.
    """
    events = campaign.log.events
    if events is None:
        return None
    time = time_term(source, campaign)
    time_sql(source, time)  # a log whose own time is of the wrong type is told so first
    file = _read_events(campaign, events, folder, resources, dates=time.type == "DATE")
    names = ["reward", *(budget.name for budget in campaign.budgets)]
    columns = {name: "reward" if name == "reward" else f"cost{i - 1}" for i, name in enumerate(names)}
    counts, parts = np.zeros(3, np.int64), []
    for table, outcomes in (
        ("costs", [name for name in events.outcomes if name != "reward"]),
        ("rewards", [name for name in events.outcomes if name == "reward"]),
    ):
        if not outcomes:
            continue
        _match(source, campaign, events, file, table)
        delays = {name: campaign.log.delays[name] for name in outcomes}
        place = {name: f"v{list(events.outcomes).index(name)}" for name in outcomes}
        for name, found in zip(outcomes, _counts(source, table, place, delays), strict=True):
            counts += found
            credit = f"CASE WHEN lag <= {delays[name]} THEN {place[name]} END"
            listed = ", ".join(f"{credit if each == name else 'NULL'} AS {columns[each]}" for each in names)
            parts.append(f'SELECT "user", "time", lag, {listed} FROM {table} WHERE lag IS NOT NULL')
    sums = ", ".join(f"sum(CAST({c} AS DOUBLE) ORDER BY lag, {c}) AS {c}" for c in columns.values())
    source.run(
        f'CREATE TABLE {CREDITS} AS SELECT "user", "time", {sums} FROM ({" UNION ALL ".join(parts)}) GROUP BY ALL'
    )
    [(last,)] = source.run(f"SELECT max(t) FROM read_parquet({literal(file)})")
    all_events, unmatched, late = (int(count) for count in counts)
    told = Credited(all_events, unmatched, late, None if last is None else int(last), events.decision is None)
    if told.events and told.events == told.unmatched + told.late:
        raise LogError(f"{told.words}.", file=source.file, where="log.events", way_out=LOOK)
    return told


def _read_events(campaign: Campaign, events: EventsSection, folder: Path, resources: Resources, *, dates: bool) -> Path:
    """Write key `k`, time `t` and values `v0`, `v1`, … of the events to a Parquet file."""
    place = folder / "events"
    place.mkdir()
    path = absolute(events.source, campaign.path.parent)
    users = () if events.user is None else (events.user,)
    try:
        with open_source(
            path,
            place,
            users=users,
            asker=Asker(campaign.path, "log.events.source", str(events.source)),
            resources=resources,
            copying=Copying(events.query, reading=campaign.log.reading),
        ) as source:
            if not source.run("SELECT 1 FROM log LIMIT 1"):
                raise LogError(
                    "has no rows.",
                    file=path,
                    way_out=f"Leave log.events out of {campaign.path} until later outcomes have come.",
                )
            time = counted(source.term("log.events.time", events.time), campaign.rows)
            if (time.type == "DATE") != dates:
                kinds = ("dates", "numbers") if dates else ("numbers", "dates")
                raise CampaignError(
                    f"gives {kinds[1]}, and the times of the log are {kinds[0]}.",
                    file=campaign.path,
                    where="log.events.time",
                    way_out="Give both in the same unit.",
                )
            key = source.term(
                *(
                    ("log.events.user", events.user)
                    if events.user is not None
                    else ("log.events.decision", str(events.decision))
                )
            )
            values = [
                source.number(source.term(f"log.events.outcomes.{name}", text))
                for name, text in events.outcomes.items()
            ]
            listed = ", ".join(f"{sql} AS v{i}" for i, sql in enumerate(values))
            file = place / "credited.parquet"
            source.run(
                f"COPY (SELECT {text_sql(key)} AS k, {time_sql(source, time)} AS t, {listed} FROM log_kept) "
                f"TO {literal(file)} (FORMAT parquet)"
            )
    except LogError as error:
        raise LogError(
            error.found, file=error.file, where=error.where or "log.events.source", way_out=error.way_out
        ) from None
    return file


def _match(source: Source, campaign: Campaign, events: EventsSection, file: Path, table: str) -> None:
    """Make `table`: each event with the row it belongs to (NULL: none) and how much later it came."""
    log = campaign.log
    user, time = user_term(source, log), time_term(source, campaign)
    decision = None if events.decision is None else source.term("log.events.decision", events.decision)
    given = "true"
    none = campaign.none
    if table == "costs" and none is not None and decision is None:
        given = f"abs({action_sql(source, campaign)} - {none!r}) > {ROUNDING * max(abs(none), 1)!r}"
    source.run(f"""
        CREATE OR REPLACE TEMP VIEW recipients AS
        SELECT * FROM (
            SELECT {text_sql(decision or user)} AS k, {user_sql(user)} AS "user", {time_sql(source, time)} AS "time"
            FROM log_kept WHERE {given}
        ) WHERE k IS NOT NULL AND "user" IS NOT NULL AND "time" IS NOT NULL""")
    if decision is not None:
        _refuse_twice(source, campaign)
        how = 'LEFT JOIN recipients r ON e.k = r.k AND r."time" <= e.t'
    else:
        how = 'ASOF LEFT JOIN recipients r ON e.k = r.k AND e.t >= r."time"'
    source.run(f"""
        CREATE TEMP TABLE {table} AS SELECT r."user", r."time", e.t - r."time" AS lag, e.* EXCLUDE (k, t)
        FROM read_parquet({literal(file)}) e {how}""")


def _refuse_twice(source: Source, campaign: Campaign) -> None:
    twice = source.run("SELECT k, count(*) FROM recipients GROUP BY k HAVING count(*) > 1 ORDER BY k LIMIT 1")
    if twice:
        raise LogError(
            f"{twice[0][1]} rows of the log have the decision {twice[0][0]!r}.",
            file=source.file,
            where="log.events.decision",
            way_out=f"Name a column that is different in every row, or give user instead in {campaign.path}.",
        )


def _counts(source: Source, table: str, place: dict[str, str], delays: dict[str, int]) -> Sequence[tuple[Any, ...]]:
    """For each outcome: how many values other than 0, how many of them without a row, and how many came too late."""
    found = []
    for name, column in place.items():
        found += source.run(f"""
            SELECT count(*), count(*) FILTER (lag IS NULL), count(*) FILTER (lag > {delays[name]})
            FROM {table} WHERE coalesce({column}, 0) != 0""")
    return found
