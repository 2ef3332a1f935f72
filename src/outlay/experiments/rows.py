"""A test's rows in one form for every log: a row per user and day, or per user, with or without a list of the assigned.

Views and tables of a DuckDB connection: `all_rows` (the log), `test_rows` (users in arms on days of the test, and a
marker row of zeros for every assigned user), `before` (totals of the days before the start), `assigned` (the list).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlay.core.errors import LogError, nearest
from outlay.experiments.columns import ExperimentColumns, canonical_sql
from outlay.experiments.design import Experiment
from outlay.experiments.moments import BEFORE
from outlay.logs.reading import literal
from outlay.logs.source import Source, Term

ASSIGN = "Give what outlay experiment assign wrote"
LARGEST = 1e60  # of an outcome: beyond it, sums of cubes overflow

Run = Callable[[str], list[tuple[Any, ...]]]  # runs an SQL statement and returns its rows


@dataclass(frozen=True)
class Extent:
    """The days that a log has.

    Attributes:
        observed: days of the test that count, from the first to the last one with a row.
        rows: `[D]` of any user, in an arm or not, on each planned day; if a row is a user, all count on the first.
        beyond: rows in an arm after the planned end.
    """

    observed: int
    rows: tuple[int, ...]
    beyond: int


def make_rows(
    run: Run, relation: str, columns: ExperimentColumns, experiment: Experiment, assigned: str | None, days: int
) -> Extent:
    """Make the view `test_rows` of the first `days` days: user, day, arm, logged_arm, segment, cluster, marker, x0 … .

    Raises:
        LogError: if a row lacks a user, a day or a number, if no row is from the test, or if users are in arms on the
            day before it began.
    """
    day = columns.day or "0"
    values = ", ".join(f"{sql} AS x{i}" for i, sql in enumerate(columns.values.values()))
    segment = "CAST(NULL AS VARCHAR)" if columns.segment is None else f"coalesce({columns.segment}, 'missing')"
    cluster = columns.cluster or "CAST(NULL AS VARCHAR)"
    run(
        f'CREATE OR REPLACE TEMP VIEW all_rows AS SELECT {columns.user} AS "user", {day} AS day, {columns.arm} AS arm, '
        f"{segment} AS segment, {cluster} AS cluster, {values} FROM {relation}"
    )
    extent = _extent(run, columns, experiment, days)
    if assigned is None:
        rows = (
            "SELECT *, arm AS logged_arm, false AS marker FROM all_rows "
            f"WHERE arm IS NOT NULL AND day >= 0 AND day < {days}"
        )
    else:
        zeros = ", ".join(f"0.0 AS x{i}" for i in range(len(columns.values)))
        rows = (
            f"SELECT l.* REPLACE (a.arm AS arm), l.arm AS logged_arm, false AS marker FROM all_rows l "
            f'JOIN {assigned} a USING ("user") WHERE l.day >= 0 AND l.day < {days} '
            "AND (l.arm IS NOT NULL OR l.day >= a.day) UNION ALL "
            f'SELECT "user", greatest(day, 0) AS day, arm, NULL AS segment, NULL AS cluster, {zeros}, '
            "arm AS logged_arm, true AS marker "
            f"FROM {assigned} WHERE day < {days}"
        )
    run(f"CREATE OR REPLACE TEMP VIEW test_rows AS {rows}")
    return extent


def _extent(run: Run, columns: ExperimentColumns, experiment: Experiment, counted: int) -> Extent:
    found = run(
        'SELECT day, count(*), count(*) FILTER ("user" IS NULL OR day IS NULL), count(*) FILTER (arm IS NOT NULL), '
        f"count(*) FILTER ({_odd('x', len(columns.values))}) FROM all_rows GROUP BY day"
    )
    missing, odd = (sum(row[i] for row in found) for i in (2, 4))
    if missing:
        raise LogError(
            f"user or day is missing in {missing:,} rows.", where="user, day", way_out="Fix them, or leave them out."
        )
    if odd:
        raise _no_numbers(columns.values, odd)
    rows = {int(row[0]): int(row[1]) for row in found}
    armed = {int(row[0]): int(row[3]) for row in found if row[3]}
    if max(rows, default=-1) < 0:
        raise LogError(f"has no row of the test, which began on {experiment.meta.start}.", where="day",
                       way_out="Give the log of its days; whole numbers are counted from its start.")  # fmt: skip
    days = experiment.meta.days
    if columns.day is None:
        return Extent(days, (sum(rows.values()), *(0,) * (days - 1)), 0)
    if min(armed, default=0) == -1:
        raise LogError(
            f"{armed[-1]:,} rows in an arm are from the day before the test began, and none from earlier days. Are "
            "days in another time zone?", where="day",
            way_out="If so, shift them: --column \"day=day + 1\". If not, leave the arm empty before the test.",
        )  # fmt: skip
    observed = min(max(rows) + 1, counted)
    beyond = sum(count for day, count in armed.items() if day >= days)
    return Extent(observed, tuple(rows.get(day, 0) for day in range(days)), beyond)


def _odd(letter: str, num_columns: int) -> str:
    """SQL condition: one of the columns has a value that cannot be added up."""
    return " OR ".join(f"coalesce(NOT abs({letter}{i}) <= {LARGEST}, false)" for i in range(num_columns))


def _no_numbers(columns: Iterable[str], count: int) -> LogError:
    return LogError(f"hold NaN, infinity or numbers beyond {LARGEST:g} in {count:,} rows.", where=", ".join(columns),
                    way_out="Fix them, or leave these rows out.")  # fmt: skip


def make_before(run: Run, relation: str, columns: ExperimentColumns) -> tuple[str, ...]:
    """Make the table `before`: user, c0 …, and whether a day is there twice. Return its metrics, if there are any."""
    if columns.day is None:
        names = tuple(name for name in columns.values if name in columns.before)
        parts = ", ".join(f"coalesce({columns.before[name]}, 0) AS c{i}" for i, name in enumerate(names))
        if names:
            run(
                f'CREATE OR REPLACE TEMP VIEW before AS SELECT {columns.user} AS "user", {parts}, false AS doubled '
                f"FROM {relation}"
            )
            [(odd,)] = run(f"SELECT count(*) FROM before WHERE {_odd('c', len(names))}")
            if odd:
                raise _no_numbers([name + BEFORE for name in names], odd)
        return names
    if not run("SELECT 1 FROM all_rows WHERE day < 0 LIMIT 1"):
        return ()
    parts = ", ".join(f"sum(x{i}) AS c{i}" for i in range(len(columns.values)))
    run(
        f'CREATE OR REPLACE TEMP TABLE before AS SELECT "user", {parts}, count(*) > list_unique(list(day)) AS doubled '
        'FROM all_rows WHERE day < 0 GROUP BY "user"'
    )
    return tuple(columns.values)


def refuse_wrong_rows(run: Run, faults: Mapping[str, bool], assigned: bool) -> None:
    """Find and report an example of wrong rows, if the sums say that there are any (`faults`)."""
    if faults["other"] and assigned:
        user, given, logged, count = run(
            'SELECT "user", min(arm), min(logged_arm) FILTER (logged_arm <> arm), count(*) OVER () FROM test_rows '
            'GROUP BY "user" HAVING bool_or(logged_arm <> arm) LIMIT 1'
        )[0]
        raise LogError(
            f"{count:,} users are in another arm in the log than on the list of assigned users, for example user "
            f"{user!r}: {logged!r} in the log, {given!r} on the list.", where="arm",
            way_out="Give the list of this test. If this is the list, find what moved them; do not drop them.",
        )  # fmt: skip
    if faults["moved"] or faults["other"]:
        user, one, other, count = run(
            'SELECT "user", min(arm), max(arm), count(*) OVER () FROM test_rows GROUP BY "user" '
            "HAVING min(arm) <> max(arm) LIMIT 1"
        )[0]
        raise LogError(
            f"{count:,} users are in two arms, for example user {user!r} in {one!r} and {other!r}.", where="arm",
            way_out="An arm holds for the whole test: find what moved them; do not drop them.",
        )  # fmt: skip
    if faults["early"]:
        example = run(
            'SELECT "user", min(day) FILTER (NOT marker) AS seen, min(day) FILTER (marker) AS given, count(*) OVER () '
            'FROM test_rows GROUP BY "user" HAVING seen < given OR given IS NULL LIMIT 1'
        )[0]
        when = "after the test" if example[2] is None else f"on day {example[2]}"
        raise LogError(
            f"{example[3]:,} users have outcomes from before they were assigned, for example user {example[0]!r} on "
            f"day {example[1]}, who was assigned {when}.", where="day",
            way_out="Leave the arm empty in rows before assignment.",
        )  # fmt: skip
    if faults["twice"] or faults["doubled"]:
        rows = "test_rows WHERE NOT marker"
        if not faults["twice"]:
            rows = 'all_rows SEMI JOIN test_rows USING ("user") WHERE day < 0'
        example = run(
            f'SELECT "user", day, count(*) OVER () FROM {rows} GROUP BY "user", day HAVING count(*) > 1 LIMIT 1'
        )[0]
        raise LogError(
            f"{example[2]:,} users and days have more than one row, for example user {example[0]!r} on day "
            f"{example[1]}.",
            where="user, day", way_out="Sum them into one row per user and day.",
        )  # fmt: skip


def refuse_several_rows(source: Source, columns: ExperimentColumns) -> None:
    """Check that a row is a user if the log has no days.

    Raises:
        LogError: if a user has several rows.
    """
    if columns.day is not None:
        return
    found = source.run(
        f"SELECT u, count(*) FROM (SELECT {columns.user} AS u FROM log_kept) GROUP BY u HAVING count(*) > 1 LIMIT 1"
    )
    if found:
        raise LogError(f"is missing in the log, and users have several rows, for example user {found[0][0]!r}.",
                       file=source.file, where="column 'day'", way_out="Say which column is the day: --column "
                       "day=NAME; a log without days has one row for a user.")  # fmt: skip


def read_assigned(source: Source, path: Path, *, daily: bool) -> str:
    """Make the table `assigned`: user, arm, day (0 if a row of the log is a user), cluster. Return its name.

    Raises:
        LogError: if the file is not what `outlay experiment assign` wrote, or has a user twice.
    """
    if not path.is_file():
        raise LogError("does not exist.", file=path, where="assigned", way_out=f"{ASSIGN}.")
    if path.suffix not in (".parquet", ".csv"):
        raise LogError("is neither .parquet nor .csv.", file=path, where="assigned", way_out=f"{ASSIGN}.")
    read = "read_parquet({})" if path.suffix == ".parquet" else "read_csv({}, header = true, all_varchar = true)"
    relation = read.format(literal(path))
    types = {str(row[0]): str(row[1]).split("(")[0] for row in source.run(f"DESCRIBE SELECT * FROM {relation}")}
    for name in ("user", "arm"):
        if name not in types:
            raise LogError("is missing.", file=path, where=f"column {name!r}", way_out=nearest(name, types, "Columns"))
    user = canonical_sql(Term("user", "user", '"user"', types["user"]))
    day = "CAST(day AS BIGINT)" if daily and "day" in types else "0"
    cluster = canonical_sql(Term("cluster", "cluster", "cluster", types["cluster"])) if "cluster" in types else "NULL"
    source.run(
        f'CREATE TEMP TABLE assigned AS SELECT {user} AS "user", CAST(arm AS VARCHAR) AS arm, {day} AS day, '
        f"CAST({cluster} AS VARCHAR) AS cluster "
        f"FROM {relation} WHERE arm IS NOT NULL"
    )
    twice = source.run('SELECT "user", count(*) OVER () FROM assigned GROUP BY "user" HAVING count(*) > 1 LIMIT 1')
    if twice:
        raise LogError(f"has {twice[0][1]:,} users more than once, for example {twice[0][0]!r}.", file=path,
                       where="column 'user'", way_out="Give one row per user.")  # fmt: skip
    return "assigned"


def list_notes(source: Source, assigned: str | None) -> list[str]:
    """Note how the list of assigned users and the log differ. Reads `all_rows`.

    Raises:
        LogError: if most users who are in an arm in the log are not on the list, which is then from an early day of the
            ramp.
    """
    if assigned is None:
        return []
    [(more, fewer, count)] = source.run(
        f'WITH seen AS (SELECT DISTINCT "user" FROM all_rows WHERE day >= 0), '
        f'inside AS (SELECT DISTINCT "user" FROM all_rows WHERE day >= 0 AND arm IS NOT NULL) '
        f'SELECT (SELECT count(*) FROM inside ANTI JOIN {assigned} USING ("user")), '
        f'(SELECT count(*) FROM {assigned} ANTI JOIN seen USING ("user")), (SELECT count(*) FROM {assigned})'
    )
    notes = []
    if more > count:
        raise LogError(
            f"has {count:,} users, and {more:,} others are in an arm in the log.", where="assigned",
            way_out="Write the list for the last day of the test: outlay experiment assign --day.",
        )  # fmt: skip
    if more:
        notes.append(
            f"{more:,} users are in an arm in the log but not on the list of assigned users, so they do not count. "
            "Write the list for the last day of the test."
        )
    if fewer:
        notes.append(f"{fewer:,} of {count:,} assigned users have no row in the log; they count as 0.")
    return notes


def refuse_ineligible(
    source: Source, columns: ExperimentColumns, eligible: str, days: int, assigned: str | None
) -> None:
    """Check that users in an arm were eligible on their first row in it.

    Args:
        source: the log.
        columns: SQL over it.
        eligible: SQL of the condition.
        days: of the test.
        assigned: the list, whose arms and days are used instead of the log's.

    Raises:
        LogError: if a user was not.
    """
    listed = f'JOIN {assigned} a ON a."user" = l.u AND l.d >= a.day' if assigned else ""
    found = source.run(
        f"SELECT u, min(arm), count(*) OVER () FROM (SELECT l.u, l.d, l.may, {'a' if assigned else 'l'}.arm FROM "
        f"(SELECT {columns.user} AS u, {columns.day or '0'} AS d, {columns.arm} AS arm, {eligible} AS may "
        f"FROM log_kept) l {listed}) WHERE arm IS NOT NULL AND d >= 0 AND d < {days} "
        "GROUP BY u HAVING NOT arg_min(may, d) LIMIT 1"
    )
    if found:
        user, arm, count = found[0]
        raise LogError(
            f"{count:,} users in an arm were not eligible on their first row in it, for example user {user!r} in "
            f"{arm!r}.",
            where="experiment.eligible", way_out="Find who let them in. If the log's columns have changed since they "
            "were assigned, say who was eligible: --column eligible=SQL.",
        )  # fmt: skip
