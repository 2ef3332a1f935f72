"""Which files a path means, and the SQL that reads them with missing values as NULL."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from outlay.core.addresses import Place, scheme_of
from outlay.core.campaign import ReadingSection
from outlay.core.errors import LogError
from outlay.core.schema import MISSING_TEXTS
from outlay.core.wording import counted
from outlay.logs.formats import CSV, KINDS, PARQUET, converted, copied, is_page, kind_of, readable, refuse_ragged

GERMAN = r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?"  # 1.234,56
DECIMALS = r",(\d{1,2}|\d{4,})$"  # three digits after a comma may be thousands

ONCE = (
    "Remove the copies, and do not add them up. Of CSV, where each row is a line: python -c \"lines = open('LOG.csv', "
    "'rb').read().split(b'\\n'); open('once.csv', 'wb').write(b'\\n'.join(dict.fromkeys(lines)))\"; of Parquet: python "
    "-c \"import duckdb; duckdb.read_parquet('LOG.parquet').distinct().write_parquet('once.parquet')\"; of a database: "
    "SELECT DISTINCT."
)
PLAIN = re.compile(r"[a-z_][a-z0-9_]*")

Run = Callable[[str], list[tuple[Any, ...]]]  # runs a statement, gives its rows

# Columns that DuckDB adds to say where a row lies.
FILE, ROW_OF_FILE = "__file", "file_row_number"


@dataclass(frozen=True)
class Part:
    """Some rows of one Parquet file of a source.

    Attributes:
        file: as `find_files` names it.
        begin: its first row in that file, from 0.
        rows: how many.
        first: position of its first row among all rows of the source.
    """

    file: str
    begin: int
    rows: int
    first: int


class LogView(NamedTuple):
    """What the view `log` shows.

    Attributes:
        columns: name → DuckDB type, of the columns that all files have.
        files: the Parquet files that it reads; those of CSV are copies.
        varying: columns that cannot be used, as the files differ: name → how.
    """

    columns: dict[str, str]
    files: list[str]
    varying: dict[str, str]


def find_files(path: Path | tuple[Path, ...], asked_by: Path | None, key: str = "log.source") -> list[str]:
    """The files that a path or glob means, sorted by name, or several in their order; `key` of `asked_by` gave them.

    Raises:
        LogError: if there are none, or they are not all of one kind by their extension.
    """
    if isinstance(path, tuple):
        every = [file for each in path for file in find_files(each, asked_by, key)]
        check_endings(every, path)
        return list(dict.fromkeys(every))
    way_out = f"Fix {key} in {asked_by}." if asked_by else "Check the path."
    if path.is_dir():
        raise LogError("is a folder.", file=path, way_out=f"Name its files, as in {path}/*.parquet.")
    found = [str(path)] if path.is_file() else sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (an absolute pattern)
    if not found:
        what = "matches no file." if glob.has_magic(str(path)) else "does not exist."
        raise LogError(what, file=path, way_out=way_out)
    check_endings(found, path)
    return found


def check_endings(files: Sequence[str], path: Place) -> None:
    """Raise LogError unless the files of a source are all of one kind by their extension."""
    kinds = {kind_of(name) for name in files}
    if None in kinds or len(kinds) > 1:
        raise LogError(
            "is of no known kind by its extension." if None in kinds else "holds files of several kinds.",
            file=path,
            way_out=f"Known extensions, one kind for all files: {', '.join(end for kind in KINDS for end in kind)}.",
        )


def make_log_view(
    run: Run,
    files: list[str],
    folder: Path,
    users: Sequence[str] = (),
    part: Part | None = None,
    reading: ReadingSection | None = None,
    query: str | None = None,
) -> LogView:
    """Make the view `log`, with missing values as NULL.

    Args:
        run: runs a statement.
        files: all of one kind.
        folder: for copies of files that are not Parquet.
        users: columns of user ids. Where they hold text only an empty one is missing: a user may be called NA.
        part: the rows that the view shows, of Parquet; None: all.
        reading: how texts are read.
        query: of an SQLite file: the rows.
    """
    if empty := next((name for name in files if Path(name).stat().st_size == 0), None):
        raise LogError("is empty: it has no bytes.", file=empty, way_out="Write it again, or leave it out.")
    if page := next((name for name in files if kind_of(name) is CSV and is_page(name)), None):
        way_out = "Save the table itself: a link to a file may give the page around it, or a page to sign in."
        raise LogError("is a page of HTML, no table.", file=page, way_out=way_out)
    files = copied(run, files, folder, query, reading)
    listed = ", ".join(literal(name) for name in files)
    if files[0].lower().endswith(CSV):
        given, files = files, readable(files, folder, None if reading is None else reading.encoding)
        listed = ", ".join(literal(name) for name in files)
        nulls = ", ".join(literal(text) for text in MISSING_TEXTS)
        # sample_size = -1: types come from all rows, so that a late 0.5 does not break a column of whole numbers.
        # dateformat: without it 03/04/2027 is a day of April or of March, as the other rows happen to allow.
        options = f"header = true, nullstr = [{nulls}], sample_size = -1, dateformat = '%Y-%m-%d'"
        sign = "" if reading is None or reading.delimiter is None else f", delim = {literal(reading.delimiter)}"
        options += sign
        csv = f"SELECT * FROM read_csv([{listed}], {options})"
        with _told_by_line(given, reading):
            types = {str(row[0]): str(row[1]) for row in run(f"DESCRIBE {csv}")}
        for name in given:
            refuse_ragged(name, reading, types.keys())
        if reading is not None and reading.decimal == "," and "DOUBLE" in types.values():  # 1.234 is not 1.234
            texts = ", ".join(f"{literal(name)}: 'VARCHAR'" for name, type_ in types.items() if type_ == "DOUBLE")
            csv = f"SELECT * FROM read_csv([{listed}], {options}, types = {{{texts}}})"
        group = max(2048, min(122_880, 8_000_000 // max(len(types), 1)))
        written = f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group})"
        copy = folder / "source.parquet"
        with _told_by_line(given, reading):
            run(f"COPY ({csv}) TO {literal(copy)} {written}")
        for i, name in enumerate(name for name in users if types.get(name) == "VARCHAR"):
            column = quoted(name)
            one = f"SELECT 1 FROM read_parquet({literal(copy)}) WHERE {column} IS NULL LIMIT 1"
            if run(one):  # or are they called NA?
                texts = f"read_csv([{listed}], header = true, nullstr = [''], all_varchar = true{sign})"
                both = f"read_parquet({literal(copy)}) POSITIONAL JOIN (SELECT {column} AS __called FROM {texts})"
                copy = folder / f"named{i}.parquet"
                query = f"SELECT * EXCLUDE __called REPLACE (__called AS {column}) FROM {both}"
                run(f"COPY ({query}) TO {literal(copy)} {written}")
        files, listed = [str(copy)], literal(copy)
    if reading is not None and files and (read := _read(run, files, folder, reading)):
        files, listed = [read], literal(read)
    varying, types_differ = compare_columns(files)
    chosen = ["binary_as_string = true", *_nan_aware(run)]
    if varying or types_differ:
        chosen.append("union_by_name = true")  # else all numbers are read as the first file's type, and rounded to it
    relation = f"read_parquet([{listed}], {', '.join(chosen)})"
    columns = {
        str(row[0]): str(row[1]) for row in run(f"DESCRIBE SELECT * FROM {relation}") if str(row[0]) not in varying
    }
    if part is not None:
        chosen += [f"filename = {literal(FILE)}", "file_row_number = true"]
        within = f"{ROW_OF_FILE} BETWEEN {part.begin} AND {part.begin + part.rows - 1}"
        place = f"{FILE} = {literal(part.file)} AND {within}"
        relation = f"read_parquet([{listed}], {', '.join(chosen)}) WHERE {place}"
    parts = ", ".join(
        f"{_with_nulls(name, type_, ('',) if name in users else MISSING_TEXTS)} AS {quoted(name)}"
        for name, type_ in columns.items()
    )
    run(f"CREATE VIEW log AS SELECT {parts} FROM {relation}")
    return LogView(columns, files, varying)


@contextmanager
def _told_by_line(files: list[str], reading: ReadingSection | None) -> Iterator[None]:
    """Name the line, if files of CSV cannot be read since one of it has more or fewer values than the header."""
    try:
        yield
    except LogError:
        for name in files:
            refuse_ragged(name, reading)
        raise


def _read(run: Run, files: list[str], folder: Path, reading: ReadingSection) -> str | None:
    """A copy of Parquet files with numbers and dates for the texts that a reading says are such; None if none are."""
    relation = f"read_parquet([{', '.join(literal(name) for name in files)}], union_by_name = true)"
    columns = {str(row[0]): str(row[1]) for row in run(f"DESCRIBE SELECT * FROM {relation}")}
    found = converted(run, relation, columns, reading)
    if not found:
        return None
    changed = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in found.items())
    path = folder / "read.parquet"
    run(f"COPY (SELECT * REPLACE ({changed}) FROM {relation}) TO {literal(path)} (FORMAT parquet, COMPRESSION zstd)")
    return str(path)


def find_parts(path: str | Path, rows: int) -> list[Part]:
    """The rows of Parquet files in parts of at most `rows`, in order; no part where only a whole can be read.

    Args:
        path: a file, a glob or an address.
        rows: of a part.

    Raises:
        LogError: if no file matches.
    """
    if scheme_of(path) is not None:
        return []
    parts: list[Part] = []
    first = 0
    for file in find_files(Path(path), None):
        if not file.lower().endswith(PARQUET):
            return []
        try:
            metadata = pq.read_metadata(file)
        except (OSError, pa.ArrowException):
            return []  # the error is told where the file is read
        if ROW_OF_FILE in map(str.lower, metadata.schema.names):
            return []
        count = metadata.num_rows
        parts += [Part(file, begin, min(rows, count - begin), first + begin) for begin in range(0, count, rows)]
        first += count
    return parts


def stamps(files: Sequence[str | Path]) -> list[list[Any]]:
    """Name, size in bytes and time of change in ns of each file, as JSON gives them back."""
    found = [(str(file), Path(file).stat()) for file in files]
    return [[name, about.st_size, about.st_mtime_ns] for name, about in found]


def compare_columns(files: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Columns that cannot be read as one, with how they differ between Parquet files; whether any types differ."""
    try:
        schemas = [pq.read_schema(file) for file in files] if len(files) > 1 else []
    except (OSError, pa.ArrowException):
        return {}, False  # the error is told where the file is read
    varying: dict[str, str] = {}
    differ = False
    found: dict[str, tuple[Any, str]] = {}
    for file, schema in zip(files, schemas, strict=False):
        for field in schema:
            type_, of = found.setdefault(field.name, (field.type, file))
            differ |= field.type != type_
            if pa.types.is_null(type_):  # as writers type a column that has no value in a file
                found[field.name] = field.type, file
            elif _kind(field.type) != _kind(type_) and not pa.types.is_null(field.type):
                varying[field.name] = f"is of type {type_} in {of} and of type {field.type} in {file}."
    for file, schema in zip(files, schemas, strict=False):
        for name in found.keys() - set(schema.names) - varying.keys():
            varying[name] = f"is in {found[name][1]} but not in {file}."
    return varying, differ


def _kind(type_: Any) -> str:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    if any(test(type_) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)):
        return "text"
    return "time" if pa.types.is_date(type_) or pa.types.is_timestamp(type_) else str(type_)


def _nan_aware(run: Run) -> list[str]:
    """The option that keeps DuckDB from dropping isnan(): other writers' statistics do not count NaN.

    Source: github.com/duckdb/duckdb/issues/25521.
    """
    if _knows_nan():
        return ["can_have_nan = true"]
    run("SET disabled_optimizers = 'statistics_propagation'")  # before DuckDB 1.3
    return []


@cache
def _knows_nan() -> bool:
    asked = "list_contains(parameters, 'can_have_nan') FROM duckdb_functions() WHERE function_name = 'read_parquet'"
    return any(known for (known,) in duckdb.execute(f"SELECT {asked}").fetchall())


def _with_nulls(name: str, type_: str, missing: Sequence[str]) -> str:
    column = quoted(name)
    if type_ == "VARCHAR":
        return f"CASE WHEN {column} IN ({', '.join(literal(text) for text in missing)}) THEN NULL ELSE {column} END"
    if type_ in ("FLOAT", "DOUBLE"):
        return f"CASE WHEN isnan({column}) THEN NULL ELSE {column} END"
    return column


def copies_or(run: Run, relation: str, way_out: str) -> tuple[str, str]:
    """More on rows that repeat others, and the way out: of copies, which must not be added up, or else as given."""
    [(copies,)] = run(f"SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT * FROM {relation})) FROM {relation}")
    return (f" {counted(copies, 'row', 'repeat')} another row of the log exactly.", ONCE) if copies else ("", way_out)


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def plain(name: str) -> str:
    """A column's name as a person would write it in SQL: in quotes only where it needs them."""
    return name if PLAIN.fullmatch(name) and name not in reserved_words() else quoted(name)


@cache
def reserved_words() -> frozenset[str]:
    """Words of DuckDB's grammar that cannot name a column without quotes."""
    rows = duckdb.execute("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'").fetchall()
    return frozenset({str(name) for (name,) in rows} | {"user"})  # `user` alone is the one who is logged in


def toml_value(value: Any) -> str:
    """A text, a number, a truth value or a list of them as TOML: JSON, but that TOML does not allow a raw DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def setting(key: str, text: str) -> str:
    """A line of a TOML file, ready to be pasted."""
    plainly = '"' not in text or any(character in text for character in "'\\\n")
    return f"{key} = {toml_value(text)}" if plainly else f"{key} = '{text}'"


def literal(text: str | Path) -> str:
    """A text as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"


def without_commas(run: Run, relation: str, sql: str, written: str) -> str | None:
    """SQL for a campaign file that makes numbers of texts with decimal commas; None where they are not all such.

    Args:
        run: runs a statement.
        relation: where the texts are.
        sql: of the text.
        written: the same, as a person writes it.
    """
    text = f"trim(CAST({sql} AS VARCHAR))"
    [(present, numbers, commas, dots)] = run(
        f"SELECT count({sql}), count(*) FILTER (regexp_full_match({text}, '{GERMAN}')), "
        f"count(*) FILTER (regexp_matches({text}, '{DECIMALS}')), count(*) FILTER (contains({text}, '.')) "
        f"FROM {relation}"
    )
    if not commas or numbers < present:
        return None
    whole = f"replace({written}, '.', '')" if dots else written
    return f"cast(replace({whole}, ',', '.') as double)"


def used(text: str, columns: list[str]) -> set[str]:
    """The columns that a column's name or an SQL expression mentions."""
    if text in columns:
        return {text}
    bare = re.sub(r"'(?:[^']|'')*'", "", text)
    words = {
        (quoted_name or word).replace('""', '"').lower()
        for quoted_name, word in re.findall(r'"((?:[^"]|"")+)"|(\w+)', bare)
    }
    return {name for name in columns if name.lower() in words}
