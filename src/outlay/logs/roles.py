"""The roles of a log, evaluated once into one narrow table, and the rows of each user linked in time.

Table `roles`, a row per kept row of the log: `row`, `user`, `time` (whole number; dates as days since 1970-01-01),
`action`, `reward`, `cost0` … `cost{m−1}`, `propensity`, `forced`, `terminal`, `eligible`, `segment`, `cluster`. Roles
that the campaign file does not give are NULL (false for `forced` and `terminal`). Features stay in the source until
they are encoded.

Table `users`, a row per user in the order of their first rows: `id` (from 0), `user`, `first_row`, `last_row`,
`first_time`, `last_time`, `ended` (a terminal row).
Table `links`, a row per row: `row`, `id`, `day` (since the user's first row), `next_row` and `gap` (NULL where none).

With `complete = true` a day without a row is information: the table `completed` holds a row for every day of a user
from the first row to the end of the log (or to a terminal row), with no incentive, no reward and no cost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError, OutlayError
from outlay.core.event_tables import unit_called
from outlay.logs.event_rows import MadeRows, make_rows
from outlay.logs.events import CREDITS, Credited, Ripeness, credit_events, keep_ripe, shown
from outlay.logs.fetch import Tell
from outlay.logs.naming import action_sql, bin_sql, cost_sql, named_as, table_sql, value_sql
from outlay.logs.source import NO_CATEGORY, NUMBERS, ROW, Asker, Copying, Resources, Source, Term, open_source
from outlay.logs.values import (
    is_counted,
    start_of,
    text_sql,
    time_sql,
    time_term,
    user_sql,
    user_term,
    without_rounding,
)

MAX_GROWTH = 100  # times the rows: beyond, a wrong time is likelier than a sparse log


@dataclass(frozen=True)
class Log:
    """A campaign's log, opened: the table `roles` is there, every feature resolves.

    Attributes:
        campaign: its campaign file.
        source: the relation.
        dates: whether `time` is a date.
        counted: the unit, longer or shorter than a day, in which `time` counts the log's dates; None where it does not.
        categorical, numeric: the features, in the order of the campaign file; numeric ones give DOUBLE.
        ripeness: which rows were left out since their outcomes can still come; None where none can.
        credited: which later events were credited to rows; None where there is no table of them.
        made: of what the rows were made; None where the log has them.
    """

    campaign: Campaign
    source: Source
    dates: bool
    counted: str | None
    categorical: tuple[Term, ...]
    numeric: tuple[Term, ...]
    ripeness: Ripeness | None = None
    credited: Credited | None = None
    made: MadeRows | None = None

    @property
    def costs(self) -> list[str]:
        """Columns of the costs in `roles`."""
        return [f"cost{j}" for j in range(len(self.campaign.budgets))]

    @property
    def choice(self) -> str:
        """SQL condition on `roles`: a row with a choice."""
        return "NOT forced" if self.campaign.log.forced else "TRUE"

    def choice_of(self, row: str) -> str:
        """The same of a row of `roles` that a query calls so, beside others."""
        return self.choice.replace("forced", f"{row}.forced")

    def when(self, time: int) -> int | str:
        """A time as it is shown: a date as text, of a week its Monday; else the number."""
        return shown(time, dates=self.dates) if self.counted is None else start_of(time, self.counted)


@contextmanager
def open_log(
    campaign: Campaign,
    folder: Path,
    *,
    threads: int | None = None,
    memory: str | None = None,
    fetched: Path | None = None,
    tell: Tell | None = None,
) -> Iterator[Log]:
    """Read the roles of a campaign's log.

    Args:
        campaign: which log, and what it means.
        folder: for temporary files.
        threads: of DuckDB.
        memory: of DuckDB.
        fetched: where the copy of a log that lies elsewhere is kept, or is from an earlier try; None: in `folder`.
        tell: called with how much of it is copied.

    Raises:
        CampaignError: if a role or a feature does not fit the log.
        LogError: if the log cannot be read, is empty, or holds text where numbers are expected.
    """
    log, resources = campaign.log, Resources(threads, memory)
    made = make_rows(campaign, folder, resources) if campaign.events else None
    with open_source(
        campaign.source if made is None else made.file,
        folder,
        where=log.where,
        users=() if log.user is None else (log.user,),
        asker=Asker(campaign.path),
        resources=resources,
        copying=Copying(log.query, fetched, tell, log.reading if made is None else None),
    ) as source:
        _refuse_empty(source, campaign)
        campaign = _read_once(source, named_as(source, campaign))
        time = time_term(source, campaign)
        dates = time.type == "DATE"
        written = None if dates or campaign.log.time is None else source.term("log.time", campaign.log.time)
        counted = campaign.rows.unit if written is not None and is_counted(written, campaign.rows) else None
        campaign = _read_unit(campaign, dates=dates)
        credited = credit_events(source, campaign, folder, resources)
        until = None if credited is None else credited.last
        ripeness = keep_ripe(source, campaign, time_sql(source, time), dates=dates, until=until)
        columns = _columns(campaign, source, time)
        categorical = tuple(_category(source, name) for name in log.features.categorical)
        numeric = tuple(_measure(source, name) for name in log.features.numeric)
        _make_roles(source, campaign, columns)
        yield Log(campaign, source, dates, counted, categorical, numeric, ripeness, credited, made)


def _refuse_empty(source: Source, campaign: Campaign) -> None:
    """Raise LogError if the log has no rows, or none passes the filter."""
    if not source.run("SELECT 1 FROM log LIMIT 1"):
        raise LogError(
            "the log is empty: it has no rows.",
            file=source.file,
            where="log.source",
            way_out="Give a log with a row per user and day.",
        )
    if not source.run("SELECT 1 FROM log_kept LIMIT 1"):
        raise LogError(
            f"no row passes the filter {campaign.log.where!r}.",
            file=source.file,
            where="log.where",
            way_out=f"Fix log.where in {campaign.path}.",
        )


def _read_once(source: Source, campaign: Campaign) -> Campaign:
    """The campaign with what follows from it that each user has one row, if that is so.

    Raises:
        CampaignError: if it has to be so, and is not.
    """
    log = campaign.log
    if log.user is None:
        return campaign.with_one_row()
    if log.once is False or log.complete:
        return campaign
    named = f"(SELECT {user_sql(user_term(source, log))} AS u FROM log_numbered)"
    [(rows, users)] = source.run(f"SELECT count(u), count(DISTINCT u) FROM {named}")
    if not rows:  # no row names its user, which `check` says
        return campaign if log.time is not None else campaign.with_one_row()
    if rows == users:
        return campaign.with_one_row()
    if log.time is None or log.once:
        key, state = ("log.time", "absent") if log.time is None else ("log.once", "true")
        [(name, most)] = source.run(
            f"SELECT u, count(*) FROM {named} WHERE u IS NOT NULL GROUP BY u ORDER BY 2 DESC, 1 LIMIT 1"
        )
        raise CampaignError(
            f"is {state}, as where each user has one row, but {rows:,} rows are of {users:,} users: user {name!r} has "
            f"{most:,}.",
            file=campaign.path,
            where=key,
            way_out="Name the column that says when each row was: a whole number or a date. If each row is somebody "
            "else, leave log.user out.",
        )
    return campaign


def _read_unit(campaign: Campaign, *, dates: bool) -> Campaign:
    """The campaign with what a unit of time is called, where the file leaves that to the log."""
    if campaign.rows.unit is not None or campaign.log.time is None:
        return campaign
    unit = "day" if dates or campaign.events else unit_called(campaign.log.time)
    return campaign.model_copy(update={"rows": campaign.rows.model_copy(update={"unit": unit})})


def _make_roles(source: Source, campaign: Campaign, columns: dict[str, tuple[str, Term | None]]) -> None:
    """Make the table `roles`. Raises CampaignError, which names the role, if one cannot be evaluated."""
    chosen = ", ".join(f"{sql} AS {name}" for name, (sql, _) in columns.items())
    rows = f"SELECT {ROW} AS row, {chosen} FROM log_numbered"
    try:
        source.run(f"CREATE TABLE roles AS {_with_credits(campaign, rows)}")
    except OutlayError as error:
        raise _blamed(source, columns) or error from None


def _with_credits(campaign: Campaign, rows: str) -> str:
    """SQL of the roles, with the values of later events added to the outcomes of the rows they belong to."""
    if campaign.log.events is None:
        return rows
    added = ", ".join(
        f"r.{name} + coalesce(c.{name}, 0) AS {name}"
        for name in ("reward", *(f"cost{j}" for j in range(len(campaign.budgets))))
    )
    return f"""SELECT r.* REPLACE ({added}) FROM ({rows}) r
        LEFT JOIN {CREDITS} c ON r."user" = c."user" AND r."time" = c."time" """


def _columns(campaign: Campaign, source: Source, time: Term) -> dict[str, tuple[str, Term | None]]:
    """SQL for each column of `roles` with the term it came from."""
    log = campaign.log
    columns: dict[str, tuple[str, Term | None]] = {}
    user = user_term(source, log)
    columns['"user"'] = (user_sql(user), user)
    columns['"time"'] = (time_sql(source, time), time)
    amounts = None if log.labels else tuple(each for each in log.actions or () if isinstance(each, float)) or None
    known: Sequence[float] | None = campaign.names.values if log.labels else amounts
    columns["action"] = (action_sql(source, campaign, known), source.term("log.action", log.action))
    if known is None and log.eligible is not None:
        known = [
            value
            for (value,) in source.run(f"SELECT DISTINCT {columns['action'][0]} FROM log_numbered")
            if value is not None
        ]
    numbers = {"reward": ("log.reward", log.reward), "propensity": ("log.propensity", log.propensity)}
    numbers |= {
        f"reserve{j}": (f"budget {b.name}.reserve", b.reserve)
        for j, b in enumerate(campaign.budgets)
        if isinstance(b.reserve, str)
    }
    for name, (key, text) in numbers.items():
        found = None if text is None else source.term(key, text)
        columns[name] = (source.number(found) if found else "CAST(NULL AS DOUBLE)", found)
    columns |= {
        f"reserve{j}": table_sql(source, campaign, b.reserve)
        for j, b in enumerate(campaign.budgets)
        if isinstance(b.reserve, dict)
    }
    columns |= {f"cost{j}": cost_sql(source, campaign, j) for j in range(len(campaign.budgets))}
    for name, text in (("forced", log.forced), ("terminal", log.terminal)):
        found = None if text is None else source.term(f"log.{name}", text)
        columns[name] = (_flag(source, found) if found else "false", found)
    eligible = None if log.eligible is None else source.term("log.eligible", log.eligible)
    columns["eligible"] = (
        _actions_list(source, campaign, eligible, known) if eligible else "CAST(NULL AS DOUBLE[])",
        eligible,
    )
    segment = None if log.segment is None else source.term("log.segment", log.segment)
    columns["segment"] = (_as_text(source, "log.segment", log.segment) if log.segment else "'all'", segment)
    cluster = None if log.cluster is None else source.term("log.cluster", log.cluster)
    columns["cluster"] = (
        _as_text(source, "log.cluster", log.cluster) if log.cluster else "CAST(NULL AS VARCHAR)",
        cluster,
    )
    return columns


def _flag(source: Source, term: Term) -> str:
    if term.type == "BOOLEAN":
        return f"coalesce({term.sql}, false)"
    way_out = f"Give a column of true and false (or 0 and 1), or an expression such as {term.written} = 'yes'."
    return f"coalesce({source.number(term, way_out)} != 0, false)"


def _actions_list(source: Source, campaign: Campaign, term: Term, known: Sequence[float] | None) -> str:
    labels, named = campaign.log.labels, campaign.names.holds != "amounts"
    example = json.dumps(list(labels[:2]) if named else [1.0, 2.0], ensure_ascii=False)
    if term.type not in ("LIST", "VARCHAR"):
        raise source.wrong_type(
            term,
            f"is of type {term.type}; a list of actions is expected.",
            f"Give a list column, or an expression such as '{example}'.",
        )
    kind, wanted = ("VARCHAR[]", "names") if named else ("DOUBLE[]", "numbers")
    wrong = source.run(
        f"SELECT {ROW}, {term.sql} FROM log_numbered "
        f"WHERE {term.sql} IS NOT NULL AND TRY_CAST({term.sql} AS {kind}) IS NULL LIMIT 1"
    )
    if wrong:
        raise source.wrong_type(
            term,
            f"holds {wrong[0][1]!r} in row {wrong[0][0] + 1}; lists of {wanted} are expected.",
            f"Give lists of actions, as {example}.",
        )
    lists = f"TRY_CAST({term.sql} AS {kind})"
    if labels:
        value = value_sql(campaign, "given") if named else bin_sql(campaign, "given")
        return f"[{value} FOR given IN {lists}]"
    amount = without_rounding(source, "amount", f"unnest({lists})", known)
    return lists if amount == "amount" else f"[{amount} FOR amount IN {lists}]"


def _as_text(source: Source, key: str, text: str) -> str:
    """SQL for a segment or a cluster as text."""
    return text_sql(_category(source, text, key))


def _category(source: Source, text: str, key: str = "log.features.categorical") -> Term:
    term = source.term(key, text)
    if term.type in NO_CATEGORY:
        raise source.wrong_type(
            term,
            f"is of type {term.type}; a single value per row is expected.",
            "Give an expression that takes one value out of it.",
        )
    return term


def _measure(source: Source, text: str) -> Term:
    key = "log.features.numeric"
    term = source.term(key, text)
    if term.type not in (*NUMBERS, "VARCHAR"):
        way_out = "List it under categorical, or make it a number."
        if term.type == "DATE" or term.type.startswith("TIMESTAMP"):
            way_out = f"Make it a number: date_diff('day', date '2020-01-01', cast({term.written} as date))."
        raise source.wrong_type(term, f"is of type {term.type}; numbers are expected.", way_out)
    if term.type == "FLOAT":
        return Term(key, text, f"CAST({term.sql} AS DOUBLE)", "DOUBLE")
    return Term(key, text, source.number(term, "List it under categorical, or fix the values."), "DOUBLE")


def _blamed(source: Source, columns: dict[str, tuple[str, Term | None]]) -> OutlayError | None:
    """The error of the first role that fails alone; the common scan does not say which one it was."""
    for sql, term in columns.values():
        if term is None:
            continue
        try:
            source.run(f"SELECT count({sql}) FROM log_numbered")
        except OutlayError as error:
            return CampaignError(
                f"{term.text!r} cannot be evaluated ({error.found})",
                file=source.asker.file,
                where=term.key,
                way_out="Fix the expression, or the values it meets.",
            )
    return None


def link(log: Log, table: str = "roles") -> None:
    """Make the tables `users` and `links` of `roles` or `completed`."""
    run = log.source.run
    run(f"""
        CREATE OR REPLACE TABLE users AS
        SELECT row_number() OVER (ORDER BY first_row) - 1 AS id, * FROM (
            SELECT "user", arg_min(row, "time") AS first_row, arg_max(row, "time") AS last_row,
                min("time") AS first_time, max("time") AS last_time, bool_or(terminal) AS ended
            FROM {table} WHERE "user" IS NOT NULL AND "time" IS NOT NULL GROUP BY "user")""")
    run(f"""
        CREATE OR REPLACE TABLE links AS
        SELECT r.row, u.id, r."time" - u.first_time AS day, r.terminal, r.forced,
            lead(r.row) OVER w AS next_row, lead(r."time") OVER w - r."time" AS gap
        FROM {table} r JOIN users u ON r."user" = u."user" WHERE r."time" IS NOT NULL
        WINDOW w AS (PARTITION BY u.id ORDER BY r."time", r.row)""")


def last_time(log: Log) -> int:
    """The last time unit of the log."""
    return int(log.source.run('SELECT max("time") FROM roles')[0][0])


def complete(log: Log) -> int:
    """Make the table `completed`; needs `users` and `links` of `roles`. Gives its number of rows.

    Raises:
        CampaignError: if the campaign file does not say which action means "no incentive".
        LogError: if the completed log would be absurdly longer than the log.
    """
    campaign, run = log.campaign, log.source.run
    none = campaign.none
    if none is None:
        raise CampaignError(
            "log.complete = true adds days without an incentive, but no action is named for them.",
            file=campaign.path,
            where="campaign.none",
            way_out="Add, as in: none = 0.0",
        )
    end = f"CASE WHEN u.ended THEN u.last_time ELSE {last_time(log)} END"
    days, rows = run(f"SELECT sum({end} - u.first_time + 1), (SELECT count(*) FROM roles) FROM users u")[0]
    if days > MAX_GROWTH * rows:
        raise LogError(
            f"completing {rows:,} rows to daily ones would make {days:,}.",
            file=log.source.file,
            where="log.complete",
            way_out="Check log.time: is its unit the day?",
        )
    costs = ", ".join(f"CASE WHEN r.row IS NULL THEN 0 ELSE r.{name} END AS {name}" for name in log.costs)
    run(f"""
        CREATE OR REPLACE TABLE completed AS
        SELECT row_number() OVER (ORDER BY d.first_row, d."time") - 1 AS row, r.row AS source_row, d."user", d."time",
            CASE WHEN r.row IS NULL THEN CAST({none} AS DOUBLE) ELSE r.action END AS action,
            CASE WHEN r.row IS NULL THEN 0 ELSE r.reward END AS reward, {costs},
            r.propensity, r.row IS NULL OR r.forced AS forced, coalesce(r.terminal, false) AS terminal,
            r.eligible, r.segment
        FROM (SELECT u."user", u.first_row, unnest(range(u.first_time, {end} + 1)) AS "time" FROM users u) d
        LEFT JOIN roles r ON r."user" = d."user" AND r."time" = d."time" """)
    return int(days)
