"""Rows of users and times out of tables of events: decisions, purchases, visits, redemptions.

    made = make_rows(campaign, folder, resources)      # made.file is Parquet, read as the log from there on

Take shops: a table of the coupons sent and one of the purchases become a row per customer and day, with the coupon of
that day and the money of its purchases. In general, with n the number of an hour, a day or a week, each user has a row
for every n from

    the unit of the first decision, or the one after the unit of the first other event, whichever is earlier

to the last unit of all events (or of the user's own). The unit of a first purchase is left out since the purchase is
why the user is there: kept, everybody would seem to begin by buying. In each row stand

    the action             of the decision in that unit, the first of several; `campaign.none` without one
    credited = "when"      the sum of the values in that unit
    credited = "decision"  the sum of the values whose latest decision of the user that gave an incentive is this row's,
                           `within` so long before them
    credited = "before"    the latest value before the unit begins
    without a time         the user's own value

With the unit "decision" a row is a decision, numbered from 0 for each user, and ends where the next one begins. All of
it is one SQL query, which `outlay check --sql` shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError, nearest
from outlay.core.event_tables import EventTable
from outlay.core.wording import percent
from outlay.logs.findings import Finding
from outlay.logs.formats import recognise_files
from outlay.logs.reading import find_files, literal, quoted
from outlay.logs.source import NUMBERS, WHOLE, Asker, Copying, Resources, Source, Term, open_source
from outlay.logs.values import text_sql

EPOCH = {"hour": "TIMESTAMP '1970-01-01'", "day": "TIMESTAMP '1970-01-01'", "week": "TIMESTAMP '1970-01-05'"}
MOST = 0.05  # share of events without a row from which it is a warning


@dataclass(frozen=True)
class MadeRows:
    """Rows that were made of events.

    Attributes:
        file: Parquet with the rows.
        rows: how many.
        users: of how many users.
        tables: how many tables they were made of.
        crowded: decisions that are in no row, since a unit of their user had one already.
        before: events that came before their user's first row.
        late: events that are credited to no decision, of all `later` that should be.
        later: see `late`.
    """

    file: Path
    rows: int
    users: int
    tables: int
    crowded: int
    before: int
    late: int
    later: int

    def findings(self) -> list[Finding]:
        """What `check` says of it."""
        told = f"{self.rows:,} rows of {self.users:,} users are made of {self.tables} tables (outlay check --sql)."
        found = [Finding("note", "events", told, "", self.rows)]
        if self.crowded:
            text = f"{self.crowded:,} decisions are left out: their user had one in the same unit before."
            way_out = 'Take a shorter unit, or rows.unit = "decision".'
            found.append(Finding("warning", "rows.unit", text, way_out, self.crowded))
        if self.before:
            text = f"{self.before:,} events came before their user's first row, which begins after the first of them."
            found.append(Finding("note", "events", text, "", self.before))
        if self.late:
            share, much = percent(self.late / self.later), self.late > MOST * self.later
            those = f"{self.late:,} of {self.later:,} events that count for a decision ({share})"
            text = f"{those} had none, or came too late."
            way_out = "Look at users and times of both tables, and at within." if much else ""
            found.append(Finding("warning" if much else "note", "events", text, way_out, self.late))
        return found


class _Table(NamedTuple):
    """A table of events as it was read.

    Attributes:
        spec: of the campaign file.
        sql: `SELECT u, t, columns …` of its own columns, as a person would write it.
        file: Parquet with that.
        whole: whether times are whole numbers.
        texts: those of its columns that are no numbers.
    """

    spec: EventTable
    sql: str
    file: Path
    whole: bool
    texts: tuple[str, ...]


def make_rows(campaign: Campaign, folder: Path, resources: Resources) -> MadeRows:
    """Make the rows.

    Args:
        campaign: with `[[events]]`.
        folder: for temporary files and the rows.
        resources: what DuckDB may use.

    Raises:
        CampaignError: if a key does not fit its table.
        LogError: if a table cannot be read, is empty, or has no place for a user.
    """
    place, tables, whole = _tables(campaign, folder, resources)
    with open_source(
        tables[0].file, place, resources=Resources(resources.threads, resources.memory, [t.file for t in tables])
    ) as source:
        for i, table in enumerate(tables):
            if table.spec.time is None:
                _refuse_twice(source, campaign, i, table)
        file = place / "rows.parquet"
        query = _query(campaign, tables, [f"read_parquet({literal(table.file)})" for table in tables], whole=whole)
        source.run(f"COPY ({query}) TO {literal(file)} (FORMAT parquet, COMPRESSION zstd)")
        rows, users = source.run(f"SELECT count(*), count(DISTINCT {_name(campaign, 'user')}) FROM '{file}'")[0]
        counted = _counted(source, campaign, tables)
    if not rows:
        raise LogError(
            "give no rows: no user has a decision, or a unit after the first event.",
            file=campaign.path,
            where="events",
            way_out="Look at the times and users of the tables.",
        )
    return MadeRows(file, int(rows), int(users), len(tables), *counted)


def rows_sql(campaign: Campaign, folder: Path, resources: Resources) -> str:
    """The query that makes the rows, as a person may run it beside the campaign file; arguments as of `make_rows`.

    Raises:
        CampaignError, LogError: as `make_rows`, of the tables.
    """
    _, tables, whole = _tables(campaign, folder, resources)
    return _query(campaign, tables, [f"({table.sql})" for table in tables], whole=whole)


def _tables(campaign: Campaign, folder: Path, resources: Resources) -> tuple[Path, list[_Table], bool]:
    """Where the tables are put, the tables, and whether their times are whole numbers."""
    place = folder / "events"
    place.mkdir()
    tables = [_read(campaign, i, place, resources) for i in range(len(campaign.events))]
    return place, tables, _whole(campaign, tables)


def _read(campaign: Campaign, i: int, place: Path, resources: Resources) -> _Table:
    """Read a table: user `u`, time `t` (a time stamp) and its columns, to Parquet."""
    spec, key, base = campaign.events[i], f"events[{i + 1}]", campaign.path.parent
    folder = place / str(i)
    folder.mkdir()
    path = (base / spec.source).absolute()
    asker = Asker(campaign.path, f"{key}.source", f"the table {spec.source}")
    own = recognise_files(find_files(path, campaign.path, f"{key}.source")).reading
    reading = own if campaign.log.reading is None else campaign.log.reading
    joined, file = f"{literal(spec.source)}", folder / "table.parquet"
    if spec.join is not None:
        path = _join(campaign, i, path, folder, resources)
        joined += f" LEFT JOIN {literal(spec.join.source)} USING ({quoted(spec.join.on)})"
        reading = None
    with open_source(
        path,
        folder,
        where=spec.where,
        asker=asker,
        resources=resources,
        copying=Copying(spec.query, reading=reading),
    ) as source:
        if not source.run("SELECT 1 FROM log_kept LIMIT 1"):
            empty = "has no rows." if spec.where is None else f"has no rows that pass {spec.where!r}."
            raise LogError(empty, file=path, where=key, way_out="Fix it, or take the table out.")
        user = source.term(f"{key}.user", spec.user or str(campaign.log.user))
        terms = {name: source.term(f"{key}.columns.{name}", text) for name, text in spec.columns.items()}
        summed = spec.time is not None and spec.credited != "before" and campaign.log.action not in spec.columns
        listed = {name: source.number(term) if summed else term.sql for name, term in terms.items()}
        time = None if spec.time is None else source.term(f"{key}.time", spec.time)
        when = {} if time is None else {"t": _time(source, campaign, time)}
        columns = {"u": text_sql(user), **when, **{quoted(name): sql for name, sql in listed.items()}}
        chosen = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
        missing = " OR ".join(f"{name} IS NULL" for name in ("u", *when))
        if rows := source.run(f"SELECT count(*) FROM (SELECT {chosen} FROM log_kept) WHERE {missing}")[0][0]:
            what = "user" if time is None else "user or time"
            way_out = f"Fix them, or leave them out: {key}.where."
            raise LogError(f"{rows:,} rows have no {what}.", file=path, where=key, way_out=way_out)
        source.run(f"COPY (SELECT {chosen} FROM log_kept) TO {literal(file)} (FORMAT parquet)")
    where = "" if spec.where is None else f" WHERE {spec.where}"
    sql = f"SELECT {chosen} FROM {joined}{where}"
    texts = tuple(name for name, term in terms.items() if term.type not in NUMBERS)
    return _Table(spec, sql, file, time is not None and time.type in WHOLE, texts)


def _join(campaign: Campaign, i: int, path: Path, folder: Path, resources: Resources) -> Path:
    """Put the columns of a second table beside those of the first; Parquet with both."""
    spec, key = campaign.events[i], f"events[{i + 1}]"
    assert spec.join is not None
    on, files = spec.join.on, []
    for n, source_path in enumerate((path, (campaign.path.parent / spec.join.source).absolute())):
        part = folder / f"join{n}"
        part.mkdir()
        where = f"{key}.source" if n == 0 else f"{key}.join.source"
        own = recognise_files(find_files(source_path, campaign.path, where)).reading
        with open_source(
            source_path,
            part,
            asker=Asker(campaign.path, where, f"the table {source_path.name}"),
            resources=resources,
            copying=Copying(spec.query if n == 0 else None, reading=campaign.log.reading or own),
        ) as source:
            if on not in source.columns:
                raise CampaignError(
                    f"is {on!r}, which {source_path.name} does not have.",
                    file=campaign.path,
                    where=f"{key}.join.on",
                    way_out=nearest(on, source.columns, "Columns"),
                )
            if n == 1 and (
                twice := source.run(f"SELECT {quoted(on)} FROM log GROUP BY 1 HAVING count(*) > 1 ORDER BY 1 LIMIT 1")
            ):
                way_out = "Give a table with one row for each, or the join the other way round."
                raise LogError(
                    f"has {on} {twice[0][0]!r} in several rows.", file=source_path, where=key, way_out=way_out
                )
            files.append(part / "part.parquet")
            source.run(f"COPY (SELECT * FROM log) TO {literal(files[n])} (FORMAT parquet)")
    both = folder / "joined.parquet"
    (folder / "both").mkdir()
    with open_source(files[0], folder / "both", resources=Resources(files=[files[1], both])) as source:
        others = {str(row[0]) for row in source.run(f"DESCRIBE SELECT * FROM read_parquet({literal(files[1])})")}
        again = [name for name in source.columns if name in others and name != on]
        left_out = ", ".join(map(quoted, [on, *again]))  # of a column that both have, the first table's stands
        source.run(
            f"COPY (SELECT a.*, b.* EXCLUDE ({left_out}) FROM read_parquet({literal(files[0])}) a "
            f"LEFT JOIN read_parquet({literal(files[1])}) b USING ({quoted(on)})) TO {literal(both)}"
        )
    return both


def _time(source: Source, campaign: Campaign, term: Term) -> str:
    """SQL of a time stamp in the users' own zone; whole numbers are days, from 1970-01-01."""
    if term.type in WHOLE:
        return f"TIMESTAMP '1970-01-01' + INTERVAL 1 DAY * CAST({term.sql} AS INTEGER)"
    if term.type in ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"):
        return f"CAST({term.sql} AS TIMESTAMP)"
    if term.type == "TIMESTAMP WITH TIME ZONE":
        return f"({term.sql}) AT TIME ZONE {literal(campaign.rows.zone)}"
    raise source.wrong_type(
        term,
        f"is of type {term.type}; a date, a time of day or a whole number is expected.",
        f"Write strptime({term.written}, '%d.%m.%Y') for 31.03.2027.",
    )


def _whole(campaign: Campaign, tables: Sequence[_Table]) -> bool:
    """Whether times are whole numbers, in all tables that have one."""
    timed = [table for table in tables if table.spec.time is not None]
    if len({table.whole for table in timed}) > 1:
        odd = next(i for i, table in enumerate(tables) if table.spec.time is not None and table.whole)
        raise CampaignError(
            "is a whole number, and other tables have dates.",
            file=campaign.path,
            where=f"events[{odd + 1}].time",
            way_out="Give all of them as dates, or all as numbers of days.",
        )
    whole = timed[0].whole
    if whole and campaign.unit in ("hour", "week"):
        raise CampaignError(
            f"is {campaign.unit!r}, and times are whole numbers, which are days.",
            file=campaign.path,
            where="rows.unit",
            way_out="Give times as dates.",
        )
    return whole


def _refuse_twice(source: Source, campaign: Campaign, i: int, table: _Table) -> None:
    rows = source.run(
        f"SELECT u, count(*) FROM read_parquet({literal(table.file)}) GROUP BY u HAVING count(*) > 1 ORDER BY u LIMIT 1"
    )
    if rows:
        raise LogError(
            f"user {rows[0][0]!r} has {rows[0][1]} rows, and the table has no time.",
            file=(campaign.path.parent / table.spec.source).absolute(),
            where=f"events[{i + 1}]",
            way_out="Give events[…].time, or a table with one row for each user.",
        )


def _name(campaign: Campaign, role: str) -> str:
    return quoted(str(getattr(campaign.log, role)))


def _decisions(campaign: Campaign) -> int:
    """Which table holds the decisions."""
    return next(i for i, table in enumerate(campaign.events) if campaign.log.action in table.columns)


def _none(campaign: Campaign, table: _Table) -> str:
    """SQL of the action of a row without a decision."""
    none = campaign.meta.none
    if none is None:
        raise CampaignError(
            "is not given, and there are rows in which nothing was decided.",
            file=campaign.path,
            where="campaign.none",
            way_out='Say what such rows are called, as none = "none".',
        )
    return literal(str(none)) if campaign.log.action in table.texts else f"{none!r}"


def _query(campaign: Campaign, tables: Sequence[_Table], relations: Sequence[str], *, whole: bool) -> str:
    """The rows as one query, of tables `u`, `t` and columns that stand in `relations`."""
    parts, joins, chosen = _parts(campaign, tables, relations), [], []
    decided = _decisions(campaign)
    for i, table in enumerate(tables):
        names = [quoted(name) for name in table.spec.columns]
        if table.spec.time is None:
            joins.append(f"LEFT JOIN e{i} ON e{i}.u = r.u")
        elif i == decided:
            joins.append("LEFT JOIN decided d ON d.u = r.u AND d.n = r.n")
            action = quoted(campaign.log.action)
            none = "" if campaign.unit == "decision" else f", {_none(campaign, table)}"
            chosen += [f"coalesce(d.{c}{none}) AS {c}" if c == action and none else f"d.{c}" for c in names]
            continue
        elif table.spec.credited == "before":
            joins.append(f"ASOF LEFT JOIN e{i} ON e{i}.u = r.u AND e{i}.t < r.begins")
        else:
            joins.append(f"LEFT JOIN s{i} ON s{i}.u = r.u AND s{i}.n = r.n")
            chosen += [f"coalesce(s{i}.{c}, 0) AS {c}" for c in names]
            continue
        chosen += [f"e{i}.{c}" for c in names]
    time = "r.n" if campaign.unit != "day" or whole else "CAST(r.begins AS DATE)"
    listed = ",\n       ".join([f"r.u AS {_name(campaign, 'user')}", f"{time} AS {_name(campaign, 'time')}", *chosen])
    ordered = "ORDER BY r.u, r.n"
    return f"WITH {parts}\nSELECT {listed}\nFROM r\n{chr(10).join(joins)}\n{ordered}"


def _parts(campaign: Campaign, tables: Sequence[_Table], relations: Sequence[str]) -> str:
    """The query's parts: events `e0` …; the rows `r`; the decisions that count, `decided`; and sums `s0` …."""
    unit, decided = campaign.unit, _decisions(campaign)
    parts = [f"e{i} AS (SELECT * FROM {relation})" for i, relation in enumerate(relations)]
    order = ", ".join(quoted(name) for name in tables[decided].spec.columns)
    if unit == "decision":
        numbered = (
            f"SELECT *, row_number() OVER (PARTITION BY u ORDER BY t, {order}) - 1 AS n, t AS begins FROM e{decided}"
        )
        parts += [f"decided AS ({numbered})", "r AS (SELECT u, n, begins FROM decided)"]
    else:
        n = f"date_diff('{unit}', {EPOCH[unit]}, t)"
        if unit == "week":
            n = f"CAST(floor(date_diff('day', {EPOCH[unit]}, t) / 7) AS BIGINT)"
        spans = " UNION ALL ".join(
            f"SELECT u, min({n}){'' if i == decided else ' + 1'} AS f, max({n}) AS l FROM e{i} GROUP BY u"
            for i, table in enumerate(tables)
            if table.spec.time is not None
        )
        last = "max(l)" if campaign.rows.until == "user" else "max(max(l)) OVER ()"
        parts += [
            f"spans AS (SELECT u, min(f) AS f, {last} AS l FROM ({spans}) GROUP BY u)",
            "numbered AS (SELECT u, unnest(generate_series(f, l)) AS n FROM spans)",
            f"r AS (SELECT u, n, {EPOCH[unit]} + INTERVAL 1 {unit} * CAST(n AS INTEGER) AS begins FROM numbered)",
            f"decided AS (SELECT * FROM (SELECT *, {n} AS n, row_number() OVER (PARTITION BY u, {n} "
            f"ORDER BY t, {order}) AS place FROM e{decided}) WHERE place = 1)",
        ]
    for i, table in enumerate(tables):
        if _summed(campaign, i):
            sums = ", ".join(f"sum({quoted(name)}) AS {quoted(name)}" for name in table.spec.columns)
            parts.append(f"s{i} AS (SELECT u, n, {sums} FROM ({_placed(campaign, tables, i)}) GROUP BY u, n)")
    return ",\n".join(parts)


def _summed(campaign: Campaign, i: int) -> bool:
    table = campaign.events[i]
    return table.time is not None and table.credited != "before" and i != _decisions(campaign)


def _placed(campaign: Campaign, tables: Sequence[_Table], i: int) -> str:
    """A query of the events of a table, with the row `n` of each that has one."""
    if tables[i].spec.credited == "when":
        return f"SELECT r.n, e{i}.* FROM e{i} ASOF JOIN r ON r.u = e{i}.u AND e{i}.t >= r.begins"
    table = tables[_decisions(campaign)]
    given = "" if campaign.meta.none is None else f" WHERE {quoted(campaign.log.action)} != {_none(campaign, table)}"
    within = "" if tables[i].spec.within is None else f" WHERE e{i}.t < g.t + INTERVAL '{tables[i].spec.within}'"
    return (
        f"SELECT g.n, e{i}.* FROM e{i} ASOF JOIN (SELECT u, t, n FROM decided{given}) g "
        f"ON g.u = e{i}.u AND e{i}.t >= g.t{within}"
    )


def _counted(source: Source, campaign: Campaign, tables: Sequence[_Table]) -> tuple[int, int, int, int]:
    """Count decisions that share a unit with another; events before a first row; late ones, of those of decisions."""
    parts = _parts(campaign, tables, [f"read_parquet({literal(table.file)})" for table in tables])
    decided, summed = _decisions(campaign), [i for i in range(len(tables)) if _summed(campaign, i)]
    asked = [f"FROM e{decided}", "FROM decided"]
    asked += [text for i in summed for text in (f"FROM e{i}", f"FROM ({_placed(campaign, tables, i)})")]
    counts = ", ".join(f"(SELECT count(*) {text})" for text in asked)
    every, first, *others = map(int, source.run(f"WITH {parts} SELECT {counts}")[0])
    lost, events = {"when": 0, "decision": 0}, {"when": 0, "decision": 0}
    for i, count, placed in zip(summed, others[::2], others[1::2], strict=True):
        lost[tables[i].spec.credited] += count - placed
        events[tables[i].spec.credited] += count
    return every - first, lost["when"], lost["decision"], events["decision"]
