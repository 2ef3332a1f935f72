"""A log, or a table of rows, as one DuckDB relation.

A source is Parquet or CSV (.gz), by extension, one file or a glob. Empty texts, NA, NaN and NULL are missing in both;
of user ids only empty ones. A role is a column where one of exactly that name exists, else an SQL expression. Rows
keep the order of the files and are numbered from 0 after the filter. DuckDB's own errors are put into words: file,
key, text, nearest column.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from outlay.core import machine
from outlay.core.addresses import Place, scheme_of
from outlay.core.campaign import ReadingSection
from outlay.core.errors import CampaignError, LogError, OutlayError, listed, nearest
from outlay.logs.fetch import Tell, fetch
from outlay.logs.formats import Recognised, recognise, recognise_files
from outlay.logs.reading import Part, check_endings, find_files, literal, make_log_view, plain, quoted, without_commas

MEMORY = "4GB"  # what DuckDB may hold before it writes to disk
ROW = "__row"  # number of a kept row, from 0
WHOLE = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "HUGEINT",
    "UHUGEINT",
)
NUMBERS = (*WHOLE, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
NO_CATEGORY = ("LIST", "STRUCT", "MAP", "UNION", "VARIANT", "BLOB", "INTERVAL")  # whose values are no single texts


@dataclass(frozen=True)
class Asker:
    """Who asks for rows, as messages say it.

    Attributes:
        file: the one whose keys name columns (campaign.toml), or None where a program asks.
        key: what gave the path there.
        called: what messages call the rows.
    """

    file: Path | None = None
    key: str = "log.source"
    called: str = "the log"


@dataclass(frozen=True)
class Resources:
    """What DuckDB may use.

    Attributes:
        threads: how many; None leaves the choice to it.
        memory: the most it may hold before it writes to disk, as "4GB"; None: `MEMORY`.
        files: other files that queries of ours will read.
    """

    threads: int | None = None
    memory: str | None = None
    files: Sequence[str | Path] = ()


@dataclass(frozen=True)
class Copying:
    """How rows that lie elsewhere, or in other forms, are copied.

    Attributes:
        query: of a database or an SQLite file: the rows.
        kept: where the copy is kept, or is from an earlier try; None: in the temporary folder.
        tell: called with how much of it is copied.
        reading: how the texts of its files are read.
    """

    query: str | None = None
    kept: Path | None = None
    tell: Tell | None = None
    reading: ReadingSection | None = None


@dataclass(frozen=True)
class Term:
    """A column or an SQL expression that was found to make sense.

    Attributes:
        key: the key that gave it, as `log.reward`.
        text: as written in the campaign file.
        sql: what DuckDB gets.
        type: DuckDB's name of its type, without parameters: BIGINT, DOUBLE, VARCHAR, DECIMAL, LIST …
    """

    key: str
    text: str
    sql: str
    type: str

    @property
    def written(self) -> str:
        """As a part of a longer expression that a person may paste."""
        return plain(self.text) if self.sql == quoted(self.text) else f"({self.text})"


class NoColumnError(LogError):
    """An expression names something that is no column of the log.

    Attributes:
        column: the name.
    """

    def __init__(self, found: str, *, file: Place, where: str, way_out: str, column: str) -> None:
        super().__init__(found, file=file, where=where, way_out=way_out)
        self.column = column


@dataclass(frozen=True)
class Source:
    """An open log. Views: `log_kept` (rows that pass the filter), `log_numbered` (the same with their row number).

    Attributes:
        connection: of DuckDB; its tables lie in a temporary folder.
        file: the path, glob or address, for messages.
        columns: name → DuckDB type.
        asker: who asks for its rows.
        files: the Parquet files that it reads, in order; those of CSV are copies.
        varying: columns that cannot be used, as the files differ: name → how.
    """

    connection: Any
    file: Place
    columns: Mapping[str, str]
    asker: Asker = Asker()
    files: tuple[str, ...] = ()
    varying: Mapping[str, str] = field(default_factory=dict)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement; its rows."""
        try:
            return [tuple(row) for row in self.connection.execute(sql).fetchall()]
        except duckdb.Error as error:
            raise self.in_words(error) from None

    def table(self, sql: str) -> Any:
        """The rows of a query as an Arrow table."""
        return pa.Table.from_batches(list(reader := self._reader(sql, 1_000_000)), reader.schema)

    def batches(self, sql: str, rows: int) -> Iterator[Any]:
        """The rows of a query as Arrow record batches of at most about `rows` rows."""
        try:
            yield from self._reader(sql, rows)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self.in_words(error) from None

    def _reader(self, sql: str, rows: int) -> Any:
        try:
            if hasattr(self.connection, "fetch_record_batch"):  # DuckDB 1.x
                return self.connection.execute(sql).fetch_record_batch(rows)
            return self.connection.sql(sql).to_arrow_reader(rows)
        except duckdb.Error as error:
            raise self.in_words(error) from None

    def term(self, key: str, text: str) -> Term:
        """Resolve a column or an SQL expression.

        Raises:
            CampaignError: if it names no column of the log or is not an expression over one row.
            LogError: the same where no campaign file asked.
        """
        if text in self.columns:
            return Term(key, text, quoted(text), _bare(self.columns[text]))
        if ";" in text:
            raise self._refused(key, text, "has a ';'.", "Give one SQL expression.")
        sql = f"(\n{text}\n)"  # the line break ends a comment in the expression
        try:
            found = self.connection.execute(f"DESCRIBE SELECT {ROW}, {sql} AS term FROM log_numbered").fetchall()
        except duckdb.Error as error:
            raise self.in_words(error, key, text) from None
        return Term(key, text, sql, _bare(str(found[1][1])))

    def in_words(self, error: Exception, key: str | None = None, text: str | None = None) -> OutlayError:
        """DuckDB's error as ours."""
        if (told := machine.in_words(error)) is not None:  # of a file that is written, not of the log
            return told
        message = str(error).split("\n\n")[0].split("\nLINE ")[0].split("\n\t")[0].replace("\n", " ").strip()
        missing = re.search(r'(?:Referenced column|column|Column) "([^"]+)"', message)
        said = f"{key} = {text!r}" if key else None
        if key and missing and missing.group(1) == ROW:
            return self._refused(
                key,
                text or "",
                "does not give one value per row.",
                "Use an expression over the columns of one row; no sum() or avg().",
            )
        if missing and isinstance(error, duckdb.BinderException):
            near = nearest(missing.group(1), self.columns, "Columns")
            where = f"{key} = {text!r}: " if key and text != missing.group(1) else ""
            found = f"{where}{self.asker.called} has no column {missing.group(1)!r}."
            if missing.group(1) in self.varying:
                found = f"{where}the files differ: column {missing.group(1)!r} {self.varying[missing.group(1)]}"
                near = "Write the files again with the same columns and types, or leave the column out."
            place = key or f"column {missing.group(1)!r}"
            if self.asker.file:
                return CampaignError(found, file=self.asker.file, where=place, way_out=near)
            if missing.group(1) in self.varying:
                return LogError(found, file=self.file, where=place, way_out=near)
            return NoColumnError(found, file=self.file, where=place, way_out=near, column=missing.group(1))
        if isinstance(error, duckdb.OutOfMemoryException):
            way_out = "Write Parquet with smaller row groups (8,192 rows), or allow more memory."
            found = f"does not fit in the memory allowed ({message})."
            return LogError(found, file=self.file, where=said, way_out=way_out)
        if key and isinstance(error, duckdb.PermissionException):
            return self._refused(
                key, text or "", "reads something other than the log.", "Use an expression over the columns of one row."
            )
        if key and isinstance(error, duckdb.BinderException | duckdb.ParserException | duckdb.CatalogException):
            return self._refused(
                key,
                text or "",
                f"is not a column, nor SQL that fits the log ({message}).",
                nearest(text or "", self.columns, "Fix the expression. Columns", cutoff=0.8),
            )
        message = message.split(" The search space used was")[0].split(" Possible fixes")[0]  # a page of CSV options
        fix = "Fix the file." if key is None else "Fix the file, or the expression."
        if "detect the CSV" in message:
            message, fix = (
                "no table of CSV is found in it",
                "Give a header, the same sign between values in all lines, and the same end to all lines.",
            )
        return LogError(f"cannot be read ({message}).", file=self.file, where=said, way_out=fix)

    def _refused(self, key: str, text: str, found: str, way_out: str) -> OutlayError:
        if self.asker.file:
            return CampaignError(f"{text!r} {found}", file=self.asker.file, where=key, way_out=way_out)
        return LogError(f"{text!r} {found}", file=self.file, where=key, way_out=way_out)

    def wrong_type(self, term: Term, found: str, way_out: str) -> OutlayError:
        """An error about a role whose values are of a kind that cannot be used."""
        return self._refused(term.key, term.text, found, way_out)

    def number(self, term: Term, way_out: str = "Give a column of numbers, or an expression that makes one.") -> str:
        """SQL that gives the term as DOUBLE. Text that holds numbers only is accepted.

        Raises:
            OutlayError: if it holds anything else; names the first such value.
        """
        if term.type == "FLOAT":  # 1.1 as a short float is 1.1, not 1.10000002384
            return f"CAST(CAST({term.sql} AS VARCHAR) AS DOUBLE)"
        if term.type in NUMBERS:
            return f"CAST({term.sql} AS DOUBLE)"
        if term.type != "VARCHAR":
            raise self.wrong_type(term, f"is of type {term.type}; numbers are expected.", way_out)
        wrong = self.run(
            f"SELECT {ROW}, {term.sql} FROM log_numbered "
            f"WHERE {term.sql} IS NOT NULL AND TRY_CAST({term.sql} AS DOUBLE) IS NULL ORDER BY {ROW} LIMIT 1"
        )
        if wrong:
            found = f"is text: {wrong[0][1]!r} in row {wrong[0][0] + 1} is not a number."
            if written := without_commas(self.run, "log_numbered", term.sql, term.written):
                found = f"has decimal commas: {wrong[0][1]!r} in row {wrong[0][0] + 1} is not read as a number."
                here, there = (json.dumps(text, ensure_ascii=False) for text in (term.text, written))
                way_out = f"Write {there} for {here}."
            raise self.wrong_type(term, found, way_out)
        return f"TRY_CAST({term.sql} AS DOUBLE)"


@dataclass(frozen=True)
class RememberedSource(Source):
    """A log that stays as it is: the same question is put to it once.

    Attributes:
        answers: statement → its rows.
    """

    answers: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement, or remember its rows."""
        if sql not in self.answers:
            self.answers[sql] = super().run(sql)
        return list(self.answers[sql])


@contextmanager
def open_source(
    path: Place,
    folder: Path,
    *,
    where: str | None = None,
    users: Sequence[str] = (),
    part: Part | None = None,
    asker: Asker = Asker(),
    resources: Resources = Resources(),
    copying: Copying = Copying(),
) -> Iterator[Source]:
    """Open Parquet or CSV files, or rows that lie elsewhere; everything temporary goes to `folder`.

    CSV is copied to Parquet first: every later scan then reads only the columns it needs. A time with a zone is read in
    UTC, whatever the zone of the machine. Expressions can read no other file of the machine.

    Args:
        path: a file, a glob or an address, which is copied first.
        folder: a folder for temporary files, removed by the caller.
        where: an SQL filter.
        users: columns of user ids, in which only an empty text is missing.
        part: the rows to read, out of those of Parquet files; None: all.
        asker: who asks, for messages.
        resources: what DuckDB may use.
        copying: how rows that lie elsewhere are copied.

    Raises:
        LogError: if no file matches, or one cannot be read.
        CampaignError: if the filter makes no sense.
    """
    files = _files(path, folder, asker, copying)
    path = path if isinstance(path, tuple) or scheme_of(path) else Path(path)
    with closing(_connected(folder, resources)) as connection:
        bare = Source(connection, path, {}, asker)
        query = copying.query if isinstance(path, Path) else None
        view = make_log_view(bare.run, files, folder, users, part, copying.reading, query)
        source = Source(connection, path, view.columns, asker, tuple(view.files), view.varying)
        lock(connection, files=[*files, *resources.files], folder=folder)
        _filter(source, where)
        yield source


@contextmanager
def open_recognised(
    path: Place,
    folder: Path,
    copying: Copying,
    settle: Callable[[tuple[str, str, str]], str] | None = None,
) -> Iterator[tuple[Source, Recognised]]:
    """Open a log as `open_source` does, its texts read as they look; with what was recognised.

    Args:
        path: as of `open_source`.
        folder: as of `open_source`.
        copying: as of `open_source`.
        settle: says which format of dates is meant where two fit (`Recognised.open`); None: the likelier.
    """
    first = recognise_files(_files(path, folder, Asker(), copying))
    (folder / "first").mkdir()
    with open_source(path, folder / "first", copying=replace(copying, reading=first.reading)) as bare:
        found = recognise(bare.run, "log", dict(bare.columns), first)
        if found.reading == first.reading and found.open is None:
            yield bare, found
            return
    if found.open is not None and settle is not None and found.reading is not None:
        reading = found.reading.model_copy(update={"dates": settle(found.open)})
        found = replace(found, reading=reading, open=None)
    (folder / "read").mkdir()
    with open_source(path, folder / "read", copying=replace(copying, reading=found.reading)) as source:
        yield source, found


def _files(path: Place, folder: Path, asker: Asker, copying: Copying) -> list[str]:
    """The files with the rows, copied first where they lie elsewhere."""
    if isinstance(path, tuple):
        return find_files(path, asker.file, asker.key)
    if scheme_of(path) is None:
        return find_files(Path(path), asker.file, asker.key)
    files = fetch(str(path), copying.query, copying.kept or folder / "fetched", copying.tell)
    check_endings(files, path)
    return files


def _connected(folder: Path, resources: Resources) -> Any:
    """A DuckDB database of its own in `folder`."""
    config: dict[str, Any] = {"memory_limit": resources.memory or MEMORY, "temp_directory": str(folder / "spill")}
    if resources.threads:
        config["threads"] = resources.threads
    connection = duckdb.connect(str(folder / "work.duckdb"), config=config)
    with suppress(duckdb.Error):  # in a notebook without widgets, which shows none
        connection.execute("SET enable_progress_bar = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET parquet_metadata_cache = true")
    return connection


def lock(connection: Any, *, files: Sequence[str | Path] = (), folder: Path | None = None) -> None:
    """Take from all later SQL the way to files, network and settings, but for these files and this folder.

    Expressions come from campaign files and bundles, which may be somebody else's.
    """
    listed = ", ".join(literal(Path(name).absolute()) for name in files)
    connection.execute(f"SET allowed_paths = [{listed}]")
    if folder is not None:
        connection.execute(f"SET allowed_directories = [{literal(folder.absolute())}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def read_rows(
    path: str | Path,
    expressions: Mapping[str, str],
    *,
    optional: Mapping[str, str] | None = None,
    users: Sequence[str] = (),
    batch_rows: int = 100_000,
    part: Part | None = None,
    threads: int | None = None,
    reading: ReadingSection | None = None,
) -> Iterator[Any]:
    """Stream rows of Parquet or CSV files as Arrow record batches, in file order.

    Args:
        path: a file or a glob.
        expressions: name of the column given → column or SQL expression.
        optional: the same; those that do not resolve are left out.
        users: columns of user ids, in which only an empty text is missing.
        batch_rows: rows a batch, at most.
        part: the rows to read, out of those of Parquet files; None: all.
        threads: of DuckDB; None leaves the choice to it.
        reading: how texts of the log were read; the rows are in an encoding and with a delimiter of their own.

    Raises:
        LogError: if a file or a column is missing or cannot be read.
    """
    copying = Copying()
    if part is None and scheme_of(path) is None:
        own = recognise_files(find_files(Path(path), None)).reading or ReadingSection()
        said = {} if reading is None else reading.model_dump(exclude={"delimiter", "encoding"}, exclude_none=True)
        copying = Copying(reading=own.model_copy(update=said))
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_source(
            path, Path(folder), users=users, part=part, resources=Resources(threads), copying=copying
        ) as source,
    ):
        terms = {name: _needed(source, name, text) for name, text in expressions.items()}
        for name, text in (optional or {}).items():
            try:
                terms[name] = source.term(f"column {name!r}", text)
            except LogError:
                continue
        columns = ", ".join(f"{term.sql} AS {quoted(name)}" for name, term in terms.items())
        chosen = ", ".join(quoted(name) for name in terms)
        inner = f"SELECT {ROW}{', ' if columns else ''}{columns} FROM log_numbered"
        yield from source.batches(f"SELECT {chosen or ROW} FROM ({inner})", batch_rows)


def _needed(source: Source, name: str, text: str) -> Term:
    where = f"column {name!r}"
    try:
        return source.term(where, text)
    except NoColumnError as error:
        if not name == text == error.column:
            raise
        raise LogError(
            "there is no such column in the rows, and it is needed.",
            file=source.file,
            where=where,
            way_out=f"Add it (empty where unknown). Columns: {listed(source.columns)}.",
        ) from None


def _bare(name: str) -> str:
    """DuckDB's type without its parameters: DECIMAL(5,1) → DECIMAL, DOUBLE[] → LIST."""
    return "LIST" if name.endswith("]") else name.split("(")[0].strip()


def _filter(source: Source, where: str | None) -> None:
    condition = ""
    if ROW in source.columns:
        raise LogError(
            "is a name that is kept for the number of a row.",
            file=source.file,
            where=f"column {ROW}",
            way_out="Give the column another name.",
        )
    if where is not None:
        if ";" in where:
            raise source._refused("log.where", where, "has a ';'.", "Give one SQL condition.")
        condition = f" WHERE (\n{where}\n)"
    try:
        source.connection.execute(f"CREATE VIEW log_kept AS SELECT * FROM log{condition}")
    except duckdb.Error as error:
        raise source.in_words(error, "log.where", where) from None
    source.run(f"CREATE VIEW log_numbered AS SELECT row_number() OVER () - 1 AS {ROW}, * FROM log_kept")
