"""A test's log as rows of one form, whatever its columns are called: a row per user and day, or per user.

`Roles` finds the columns: which are the user, the day, the arm and the metrics. Then views and tables of a DuckDB
connection are made of them: `all_rows` (the log), `test_rows` (users in arms on days of the test, and a marker row of
zeros for every assigned user), `before` (totals of the days before the start), `assigned` (the list, if there is one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlay.core.errors import LogError, OutlayError, nearest
from outlay.experiments.design import Experiment
from outlay.experiments.moments import BEFORE, Metric
from outlay.experiments.words import ExperimentNote, NoteKind
from outlay.logs.reading import copies_or, literal
from outlay.logs.source import WHOLE, Source, Term

DEFAULTS: dict[str, tuple[str, ...]] = {  # role → the columns that it may be in, the first that is there
    "user": ("user", "user_id"),
    "day": ("day", "date", "dt"),
    "arm": ("arm",),
    "segment": ("segment",),
    "cluster": ("cluster",),
    "cost": ("cost", "paid"),
    "redemption": ("redemption", "redeemed"),  # otherwise a day on which money was paid
}
DATES = """Write 2026-03-02, or say how dates are written: --column "day=strptime(day, '%d.%m.%Y')"."""
ZONED = r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"  # text that ends in a time zone
DRAWN = "arm_cluster"  # in which a server's log has the cluster by which it drew the arm
OUTSIDE = "policy", "random"  # what a server names users outside the test: its bundle, and the random slice
ASSIGN = "Give what outlay experiment assign wrote"
LARGEST = 1e60  # of an outcome: beyond it, sums of cubes overflow

Run = Callable[[str], list[tuple[Any, ...]]]  # runs an SQL statement and returns its rows


@dataclass(frozen=True)
class ExperimentColumns:
    """SQL expressions over the log, by what they stand for.

    Attributes:
        user: canonical text.
        arm: text; NULL if the user is in no arm.
        day: whole number, 0 on the first day of the test; None if a row is a user.
        segment: text, or None.
        values: metric → DOUBLE; NULL means missing, which is an error in a row of a user in the test.
        before: the same for the days before the start, if a row is a user; otherwise it comes from those days' rows.
            NULL counts as 0 here, which costs precision but does not bias the lift.
        cluster: text, if the test draws its arms by cluster.
    """

    user: str
    arm: str
    day: str | None
    segment: str | None
    values: Mapping[str, str]
    before: Mapping[str, str]
    cluster: str | None = None


@dataclass(frozen=True)
class Roles:
    """The columns of a log, by what they stand for.

    Attributes:
        source: the log.
        experiment: whose metrics are wanted.
        given: role or metric → column or SQL expression; the others are found by `DEFAULTS` or by their name.
        assigned: whether a list says who is in which arm, so the log need not.
        served: whether a server wrote the log; it also names users outside the test.
    """

    source: Source
    experiment: Experiment
    given: Mapping[str, str]
    assigned: bool
    served: bool = False

    def __post_init__(self) -> None:
        known = {*DEFAULTS, "eligible", self.experiment.meta.metric, *self.experiment.meta.guardrails}
        for name in self.given:
            if name not in known:
                raise OutlayError(
                    f"{name!r} is not a role.", where="column", way_out=f"Known: {', '.join(sorted(known))}."
                )

    def metrics(self) -> list[Metric]:
        """The verdict's metric, cost, cost per unit of that metric, redemption, then the other guardrails."""
        meta, ratio = self.experiment.meta, f"cost_per_{self.experiment.meta.metric}"
        found = [Metric(meta.metric, meta.metric)]
        if meta.metric != "cost" and self._found("cost"):
            found += [Metric("cost", "cost"), Metric(ratio, "cost", meta.metric)]
            if self._found("redemption") or self._found("day"):
                found.append(Metric("redemption", "redemption"))
        names = {metric.name for metric in found}
        more = [name for name in meta.guardrails if name not in names and name not in self.left_out()]
        return found + [Metric(name, name) for name in more]

    def left_out(self) -> list[str]:
        """`redemption`, if it is a guardrail but a row per user does not say on how many days money was paid."""
        asked = "redemption" in self.experiment.meta.guardrails
        return ["redemption"] if asked and not self._found("redemption") and not self._found("day") else []

    def columns(self, metrics: Sequence[Metric]) -> ExperimentColumns:
        """SQL for every role and every column of the metrics."""
        user = self._needed("user")
        arm = self._found("arm") if self.assigned else self._needed("arm")
        day, segment = self._found("day"), self._found("segment")
        values = {name: self._value(name) for name in dict.fromkeys(c for m in metrics for c in m.columns)}
        before = {}
        if day is None:
            before = {n: self._number(n + BEFORE, n + BEFORE) for n in values if n + BEFORE in self.source.columns}
        return ExperimentColumns(
            user=canonical_sql(user),
            arm=self._arm("NULL" if arm is None else arm.sql),
            day=None if day is None else self._day(day),
            segment=None if segment is None else f"CAST({segment.sql} AS VARCHAR)",
            values=values,
            before=before,
            cluster=self._cluster(),
        )

    def _cluster(self) -> str | None:
        """The cluster as given, as a server drew by it, or as in the experiment file; or a list of users says it."""
        text = self.experiment.meta.cluster
        if text is None:
            return None
        if "cluster" not in self.given and self._has_drawn_clusters():
            return canonical_sql(self.source.term("column cluster", DRAWN))
        if "cluster" not in self.given and self.assigned:
            try:
                return canonical_sql(self.source.term("column cluster", text))
            except LogError:
                found = self._found("cluster")
                return "CAST(NULL AS VARCHAR)" if found is None else canonical_sql(found)
        return canonical_sql(self.source.term("column cluster", self.given.get("cluster", text)))

    def _has_drawn_clusters(self) -> bool:
        """Whether a server wrote the log and drew its arms by cluster."""
        if not self.served or DRAWN not in self.source.columns:
            return False
        return bool(self.source.run(f"SELECT 1 FROM log_kept WHERE {DRAWN} IS NOT NULL LIMIT 1"))

    def eligible(self) -> str | None:
        """The experiment's condition as SQL over the log; None if it has none or the log lacks its columns."""
        text = self.given.get("eligible", self.experiment.meta.eligible)
        if text is None:
            return None
        try:
            sql = self.source.term("column eligible", text).sql
        except LogError:
            if "eligible" in self.given:
                raise
            return None
        return f"coalesce(CAST({sql} AS BOOLEAN), FALSE)"

    def _arm(self, sql: str) -> str:
        """Text; NULL if a server says that the user is outside the test, unless the test has an arm of that name."""
        own = {arm.name for arm in self.experiment.arms}
        outside = [literal(name) for name in OUTSIDE if self.served and name not in own]
        text = f"CAST({sql} AS VARCHAR)"
        return f"CASE WHEN {text} NOT IN ({', '.join(outside)}) THEN {text} END" if outside else text

    def _found(self, role: str) -> Term | None:
        """The role's term: as given, or the first of its columns that exists."""
        if role in self.given:
            return self.source.term(f"column {role}", self.given[role])
        name = next((name for name in DEFAULTS.get(role, (role,)) if name in self.source.columns), None)
        return None if name is None else self.source.term(f"column {role}", name)

    def _needed(self, role: str) -> Term:
        found = self._found(role)
        if found is None:
            way_out = f"{nearest(role, self.source.columns, 'Columns')} Or say what it is: --column '{role}=…'."
            raise LogError("is missing in the log.", file=self.source.file, where=f"column {role!r}", way_out=way_out)
        return found

    def _value(self, name: str) -> str:
        if name == "redemption" and self._found(name) is None:
            return f"CAST({self._value('cost')} > 0 AS DOUBLE)"  # a day on which money was paid
        return self.source.number(self._needed(name))

    def _number(self, role: str, column: str) -> str:
        return self.source.number(self.source.term(f"column {role}", column))

    def _day(self, term: Term) -> str:
        """Days since the start: of a date, or a whole number counted from it."""
        start = literal(self.experiment.meta.start.isoformat())
        if term.type in WHOLE:
            return f"CAST({term.sql} AS BIGINT)"
        if term.type == "TIMESTAMP WITH TIME ZONE":
            raise self._zoned(term, term.text)
        if term.type == "DATE" or term.type.startswith("TIMESTAMP"):
            return f"date_diff('day', DATE {start}, CAST({term.sql} AS DATE))"
        if term.type == "VARCHAR":
            date = f"TRY_CAST({term.sql} AS DATE)"
            wrong = self.source.run(
                f"SELECT {term.sql} FROM log_kept WHERE {term.sql} IS NOT NULL AND {date} IS NULL LIMIT 1"
            )
            if self.source.run(f"SELECT 1 FROM log_kept WHERE regexp_matches({term.sql}, '{ZONED}') LIMIT 1"):
                raise self._zoned(term, f"CAST({term.text} AS TIMESTAMPTZ)")
            if not wrong:
                return f"date_diff('day', DATE {start}, {date})"
            raise self.source.wrong_type(term, f"holds {wrong[0][0]!r}, which is not a date.", DATES)
        raise self.source.wrong_type(
            term, f"is of type {term.type}.", "Give dates, or whole numbers with 0 on the first day of the test."
        )

    def _zoned(self, term: Term, moment: str) -> OutlayError:
        """An error: the day of a time stamp would depend on the machine's time zone."""
        return self.source.wrong_type(
            term,
            "has a time zone, so the day depends on where you are.",
            f"Say it: --column \"day=CAST({moment} AT TIME ZONE 'Europe/Berlin' AS DATE)\".",
        )


def canonical_sql(term: Term) -> str:
    """SQL for `core.schema.canonical_text`: 3, 3.0 and "3" are one user."""
    if term.type == "VARCHAR":
        return term.sql
    if term.type in ("FLOAT", "DOUBLE", "DECIMAL"):
        whole = f"{term.sql} = round({term.sql}) AND abs({term.sql}) < 4e18"
        return (
            f"CASE WHEN {whole} THEN CAST(CAST({term.sql} AS BIGINT) AS VARCHAR) ELSE CAST({term.sql} AS VARCHAR) END"
        )
    return f"CAST({term.sql} AS VARCHAR)"


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
        way_out = "Give the log of its days; whole numbers are counted from its start."
        raise LogError(f"has no row of the test, which began on {experiment.meta.start}.", where="day", way_out=way_out)
    days = experiment.meta.days
    if columns.day is None:
        return Extent(days, (sum(rows.values()), *(0,) * (days - 1)), 0)
    if min(armed, default=0) == -1:
        raise LogError(
            f"{armed[-1]:,} rows in an arm are from the day before the test began, and none from earlier days. Are "
            "days in another time zone?",
            where="day",
            way_out='If so, shift them: --column "day=day + 1". If not, leave the arm empty before the test.',
        )
    observed = min(max(rows) + 1, counted)
    beyond = sum(count for day, count in armed.items() if day >= days)
    return Extent(observed, tuple(rows.get(day, 0) for day in range(days)), beyond)


def _odd(letter: str, num_columns: int) -> str:
    """SQL condition: one of the columns has a value that cannot be added up."""
    return " OR ".join(f"coalesce(NOT abs({letter}{i}) <= {LARGEST}, false)" for i in range(num_columns))


def _no_numbers(columns: Iterable[str], count: int) -> LogError:
    return LogError(
        f"hold NaN, infinity or numbers beyond {LARGEST:g} in {count:,} rows.",
        where=", ".join(columns),
        way_out="Fix them, or leave these rows out.",
    )


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


def refuse_wrong_rows(run: Run, relation: str, faults: Mapping[str, bool], assigned: bool) -> None:
    """Find and report an example of wrong rows of the log `relation`, if the sums say that there are any (`faults`)."""
    if faults["other"] and assigned:
        user, given, logged, count = run(
            'SELECT "user", min(arm), min(logged_arm) FILTER (logged_arm <> arm), count(*) OVER () FROM test_rows '
            'GROUP BY "user" HAVING bool_or(logged_arm <> arm) LIMIT 1'
        )[0]
        raise LogError(
            f"{count:,} users are in another arm in the log than on the list of assigned users, for example user "
            f"{user!r}: {logged!r} in the log, {given!r} on the list.",
            where="arm",
            way_out="Give the list of this test. If this is the list, find what moved them; do not drop them.",
        )
    if faults["moved"] or faults["other"]:
        user, one, other, count = run(
            'SELECT "user", min(arm), max(arm), count(*) OVER () FROM test_rows GROUP BY "user" '
            "HAVING min(arm) <> max(arm) LIMIT 1"
        )[0]
        found = f"{count:,} users are in two arms, for example user {user!r} in {one!r} and {other!r}."
        way_out = "An arm holds for the whole test: find what moved them; do not drop them."
        raise LogError(found, where="arm", way_out=way_out)
    if faults["early"]:
        example = run(
            'SELECT "user", min(day) FILTER (NOT marker) AS seen, min(day) FILTER (marker) AS given, count(*) OVER () '
            'FROM test_rows GROUP BY "user" HAVING seen < given OR given IS NULL LIMIT 1'
        )[0]
        when = "after the test" if example[2] is None else f"on day {example[2]}"
        raise LogError(
            f"{example[3]:,} users have outcomes from before they were assigned, for example user {example[0]!r} on "
            f"day {example[1]}, who was assigned {when}.",
            where="day",
            way_out="Leave the arm empty in rows before assignment.",
        )
    if faults["twice"] or faults["doubled"]:
        rows = "test_rows WHERE NOT marker"
        if not faults["twice"]:
            rows = 'all_rows SEMI JOIN test_rows USING ("user") WHERE day < 0'
        example = run(
            f'SELECT "user", day, count(*) OVER () FROM {rows} GROUP BY "user", day HAVING count(*) > 1 LIMIT 1'
        )[0]
        copied, way_out = copies_or(run, relation, "Sum them into one row per user and day.")
        raise LogError(
            f"{example[2]:,} users and days have more than one row, for example user {example[0]!r} on day "
            f"{example[1]}.{copied}",
            where="user, day",
            way_out=way_out,
        )


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
        raise LogError(
            f"is missing in the log, and users have several rows, for example user {found[0][0]!r}.",
            file=source.file,
            where="column 'day'",
            way_out="Say which column is the day: --column day=NAME; a log without days has one row for a user.",
        )


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
        found = f"has {twice[0][1]:,} users more than once, for example {twice[0][0]!r}."
        raise LogError(found, file=path, where="column 'user'", way_out="Give one row per user.")
    return "assigned"


def list_notes(source: Source, assigned: str | None) -> list[ExperimentNote]:
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
            f"has {count:,} users, and {more:,} others are in an arm in the log.",
            where="assigned",
            way_out="Write the list for the last day of the test: outlay experiment assign --day.",
        )
    if more:
        notes.append(NoteKind.NOT_LISTED(count=more))
    if fewer:
        notes.append(NoteKind.WITHOUT_ROWS(count=fewer, assigned=count))
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
            where="experiment.eligible",
            way_out="Find who let them in. If the log's columns have changed since they "
            "were assigned, say who was eligible: --column eligible=SQL.",
        )
