"""Who counts in a test's analysis: rows that are users, the list of the assigned, users who were not eligible."""

from __future__ import annotations

from pathlib import Path

from outlay.core.errors import LogError
from outlay.experiments.columns import canonical_sql
from outlay.experiments.rows import ExperimentColumns
from outlay.logs.reading import literal
from outlay.logs.source import Source, Term, nearest

ASSIGN = "Give what outlay experiment assign wrote"


def refuse_rows_without_days(source: Source, columns: ExperimentColumns) -> None:
    """Where there is no day, a row must be a user.

    Raises:
        LogError: if one has several.
    """
    if columns.day is not None:
        return
    found = source.run(
        f"SELECT u, count(*) FROM (SELECT {columns.user} AS u FROM log_kept) GROUP BY u HAVING count(*) > 1 LIMIT 1"
    )
    if found:
        raise LogError(f"is missing in the log, and users have several rows, as user {found[0][0]!r}.",
                       file=source.file, where="column 'day'", way_out="Say which column is the day: --column "
                       "day=NAME; a log without days has one row for a user.")  # fmt: skip


def read_assigned(source: Source, path: Path, *, daily: bool) -> str:
    """The table `assigned`: user, arm, day; where a row of the log is a user, the day counts as 0.

    Raises:
        LogError: if the file is not what `outlay experiment assign` wrote, or holds a user twice.
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
            raise LogError("is missing.", file=path, where=f"column {name!r}", way_out=nearest(name, types))
    user = canonical_sql(Term("user", "user", '"user"', types["user"]))
    day = "CAST(day AS BIGINT)" if daily and "day" in types else "0"
    source.run(
        f'CREATE TEMP TABLE assigned AS SELECT {user} AS "user", CAST(arm AS VARCHAR) AS arm, {day} AS day '
        f"FROM {relation} WHERE arm IS NOT NULL"
    )
    twice = source.run('SELECT "user", count(*) OVER () FROM assigned GROUP BY "user" HAVING count(*) > 1 LIMIT 1')
    if twice:
        raise LogError(f"holds {twice[0][1]} users more than once, as {twice[0][0]!r}.", file=path,
                       where="column 'user'", way_out="Give one row per user.")  # fmt: skip
    return "assigned"


def listed(source: Source, assigned: str | None) -> list[str]:
    """Notes on how the list of the assigned and the log differ. Reads `all_rows`.

    Raises:
        LogError: if most users who are in an arm in the log are not on the list: it is of an early day of the ramp.
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
            f"holds {count:,} users, and {more:,} others are in an arm in the log.", where="assigned",
            way_out="Write the list for the last day of the test: outlay experiment assign --day.",
        )  # fmt: skip
    if more:
        notes.append(
            f"{more:,} users are in an arm in the log but not on the list of the assigned, and do not count. Write "
            "the list for the last day of the test."
        )
    if fewer:
        notes.append(f"{fewer:,} of {count:,} assigned users have no row in the log, and count with 0.")
    return notes


def refuse_ineligible(
    source: Source, columns: ExperimentColumns, eligible: str, days: int, assigned: str | None
) -> None:
    """Users in an arm must have been eligible on their first row in it.

    Args:
        source: the log.
        columns: SQL over it.
        eligible: SQL of the condition.
        days: of the test.
        assigned: the list, whose arms and days count in place of the log's.

    Raises:
        LogError: if one was not.
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
            f"{count:,} users in an arm were not eligible on their first row in it, as user {user!r} in {arm!r}.",
            where="experiment.eligible", way_out="Find who let them in. If the log's columns have changed since they "
            "were assigned, say who was eligible: --column eligible=SQL.",
        )  # fmt: skip
