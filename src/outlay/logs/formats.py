"""Files that are neither Parquet nor plain CSV, and texts that are numbers or dates.

    JSON lines, Arrow IPC (Feather), Excel, SQLite   copied to Parquet
    12,50   1.234,56   $1,234.50   15 %   (2.00)     numbers, by the sign of decimals that all rows agree with
    04.05.2026   05/13/2026   4.5.26 14:30           dates, by the one order of day and month that all rows agree with

What is recognised is a `ReadingSection`, which `init` writes as `[log.reading]`; a log is read by that alone.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as paipc
import pyarrow.parquet as pq

from outlay.core.addresses import SQLITE
from outlay.core.campaign import ReadingSection
from outlay.core.errors import LogError
from outlay.core.machine import optional
from outlay.core.schema import MISSING_TEXTS

PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
JSON = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
ARROW = (".arrow", ".feather", ".ipc")
EXCEL = (".xlsx", ".xlsm", ".xls", ".ods")
KINDS = (PARQUET, CSV, JSON, ARROW, EXCEL, SQLITE)
DELIMITERS = ";\t|,"
SIGNS = "[€$£¥₹₽%]|EUR|USD|GBP|CHF"

DAY_FIRST, YEAR_FIRST = r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}([ T].*)?", r"\d{4}[./-]\d{1,2}[./-]\d{1,2}([ T].*)?"
MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
NAMED_MONTHS = tuple(
    form.format(month=month, year=year)
    for month in ("%b", "%B")
    for year in ("%y", "%Y")  # %Y takes 26 for the year 26
    for form in (
        "%d-{month}-{year}",
        "%d {month} {year}",
        "{month} %d, {year}",
        "{month} %d {year}",
        "%a {month} %d {year}",
    )
)
MOSTLY = 0.5  # of a column's texts, from which on it is one of dates, or by its name of amounts, with some else

TRUTH = (("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"))  # words that a reader of CSV makes truth values of
Run = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Recognised:
    """How texts are to be read.

    Attributes:
        reading: what a campaign file says of it; None where nothing needs to be said.
        words: what was recognised, a sentence each.
        open: where both orders of day and month fit: the column, and both formats.
        percents: columns whose texts are per cent.
        truths: column → the two words of its truth values, as the first file writes them.
        mixed: column whose texts are mostly dates of one form → what the others are.
    """

    reading: ReadingSection | None
    words: tuple[str, ...]
    open: tuple[str, str, str] | None = None
    percents: frozenset[str] = frozenset()
    truths: dict[str, tuple[str, str]] = field(default_factory=dict)
    mixed: dict[str, str] = field(default_factory=dict)


def kind_of(name: str) -> tuple[str, ...] | None:
    """The endings of the kind of a file; None where it is of none."""
    return next((kind for kind in KINDS if name.lower().endswith(kind)), None)


def copied(run: Run, files: list[str], folder: Path, query: str | None, reading: ReadingSection | None) -> list[str]:
    """Parquet copies of JSON lines, Arrow, Excel or SQLite files.

    Raises:
        LogError: if one cannot be read.
    """
    kind = kind_of(files[0])
    if kind not in (JSON, ARROW, EXCEL, SQLITE):
        return files
    copies = []
    for i, name in enumerate(files):
        copy = folder / f"copied{i}.parquet"
        if kind is JSON:
            listed = str(name).replace("'", "''")
            read = f"read_json('{listed}', sample_size = -1, dateformat = '%Y-%m-%d', maximum_object_size = 100000000)"
            run(f"COPY (SELECT * FROM {read}) TO '{str(copy).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")
        elif kind is ARROW:
            _copy_arrow(name, copy)
        elif kind is EXCEL:
            _copy_excel(name, copy, None if reading is None else reading.sheet)
        else:
            _copy_sqlite(name, copy, query)
        copies.append(str(copy))
    return copies


def _copy_arrow(name: str, copy: Path) -> None:
    try:
        with pa.memory_map(name) as file:
            try:
                reader = paipc.open_file(file)
                batches: Iterator[Any] = (reader.get_batch(i) for i in range(reader.num_record_batches))
            except pa.ArrowInvalid:
                file.seek(0)
                reader = paipc.open_stream(file)
                batches = iter(reader)
            with pq.ParquetWriter(copy, reader.schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"cannot be read ({error}).", file=name, way_out="Write it again as Arrow or Parquet.") from None


def _copy_excel(name: str, copy: Path, sheet: str | None) -> None:
    book, sizes = _open_excel(name)
    if sheet is not None and sheet not in sizes:
        raise LogError(
            f"has no sheet {sheet!r}.", file=name, where="log.reading.sheet", way_out=f"Sheets: {', '.join(sizes)}."
        )
    sheet = sheet or _longest(sizes)
    rows = book.get_sheet_by_name(sheet).to_python()
    heads = [str(head).strip() for head in rows[0]] if rows else []
    if not any(heads):
        raise LogError(
            f"sheet {sheet!r} has no header in its first row.",
            file=name,
            way_out=f"Name the sheet with log.reading.sheet, or put the names first. Sheets: {', '.join(sizes)}.",
        )
    columns = {
        head: _one_type([row[i] if i < len(row) else None for row in rows[1:]]) for i, head in enumerate(heads) if head
    }
    pq.write_table(pa.table(columns), copy)


def _open_excel(name: str) -> tuple[Any, dict[str, int]]:
    """The workbook, and the number of rows of each sheet."""
    with optional():
        import python_calamine as calamine
    try:
        book = calamine.CalamineWorkbook.from_path(name)
        return book, {sheet: len(book.get_sheet_by_name(sheet).to_python()) for sheet in book.sheet_names}
    except (OSError, calamine.CalamineError) as error:
        raise LogError(f"cannot be read ({error}).", file=name, way_out="Save it again as .xlsx, or as CSV.") from None


def _longest(sizes: dict[str, int]) -> str:
    return max(sizes, key=lambda sheet: sizes[sheet])


def _one_type(values: list[Any]) -> Any:
    """A column of Excel or SQLite: numbers, dates or truth values where all are, else texts."""
    values = [None if value == "" else value for value in values]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and kinds:
        if all(value is None or float(value).is_integer() for value in values):
            return pa.array([None if value is None else int(value) for value in values], pa.int64())
        return pa.array(values, pa.float64())
    if len(kinds) == 1:
        return pa.array(values)
    texts = (int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
    return pa.array([None if value is None else str(value) for value in texts], pa.string())


def _copy_sqlite(name: str, copy: Path, query: str | None) -> None:
    try:
        with closing(sqlite3.connect(f"{Path(name).absolute().as_uri()}?mode=ro", uri=True)) as store:
            listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
            tables = [str(row[0]) for row in store.execute(listed)]
            if query is None and len(tables) != 1:
                raise LogError(
                    f"has {len(tables)} tables.",
                    file=name,
                    where="log.query",
                    way_out=f'Say which rows: query = "SELECT * FROM …". Tables: {", ".join(tables)}.',
                )
            found = store.execute(query or 'SELECT * FROM "{}"'.format(tables[0].replace('"', '""')))
            heads = [str(each[0]) for each in found.description or ()]
            rows = found.fetchall()
    except sqlite3.Error as error:
        raise LogError(f"cannot be read ({error}).", file=name, way_out="Fix the file, or the query.") from None
    pq.write_table(pa.table({head: _one_type([row[i] for row in rows]) for i, head in enumerate(heads)}), copy)


# CSV: its encoding and its delimiter.


def readable(files: list[str], folder: Path, encoding: str | None) -> list[str]:
    """The files, or copies in UTF-8 where they are in another encoding, or where each end of a line stands doubled.

    Programs that write CR LF to a file of texts leave CR CR LF on Windows.

    Raises:
        LogError: if bytes of a file are none of that encoding.
    """
    copies, encoding = [], encoding or "utf-8"
    for i, name in enumerate(files):
        doubled = _doubled(name)
        if encoding == "utf-8" and not doubled:
            copies.append(name)
            continue
        copy = folder / f"recoded{i}.csv"
        try:
            with _bytes(name) as file, copy.open("wb") as out:
                for text in codecs.iterdecode(_chunks(file), encoding):
                    text = text.replace("\r", "") if doubled else text
                    out.write(text.removeprefix("\ufeff").encode())
        except UnicodeError as error:
            raise LogError(
                f"is not in the encoding {encoding} ({error}).",
                file=name,
                where="log.reading.encoding",
                way_out='Write another, as "latin-1", "cp1252" or "utf-16".',
            ) from None
        copies.append(str(copy))
    return copies


def _doubled(name: str) -> bool:
    with _bytes(name) as file:
        return b"\r\r\n" in file.read(1 << 16)


@contextmanager
def _bytes(name: str) -> Iterator[Any]:
    with gzip.open(name, "rb") if name.lower().endswith(".gz") else Path(name).open("rb") as file:
        yield file


def _chunks(file: Any) -> Iterator[bytes]:
    while chunk := file.read(1 << 20):
        yield chunk


def encoding_of(name: str) -> str:
    """utf-8, utf-16 by its mark, or else cp1252, latin-1 where that has no such letter."""
    with _bytes(name) as file:
        first = file.read(4)
        if first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        try:
            with _bytes(name) as file:
                for _ in codecs.iterdecode(_chunks(file), encoding):
                    pass
        except UnicodeDecodeError:
            continue
        return encoding
    return "iso8859-1"


def delimiter_of(name: str, encoding: str) -> str | None:
    """What parts the columns: the sign that is most often in the first lines, as often in each; None: not clear."""
    with _bytes(name) as file:
        text = file.read(1 << 16).decode(encoding, "ignore").removeprefix("\ufeff")
    lines = [line for line in text.splitlines() if line.strip()][:20]
    for sign in DELIMITERS:
        counts = {_unquoted(line).count(sign) for line in (lines[:-1] if len(lines) > 2 else lines)}
        if len(counts) == 1 and counts != {0}:
            return sign
    return None


def is_page(name: str) -> bool:
    """Whether a file of text is a page of HTML, as a download that has failed often is."""
    with _bytes(name) as file:
        return bool(re.match(rb"(\xef\xbb\xbf)?\s*<(!doctype|html|\?xml)", file.read(512), re.IGNORECASE))


def refuse_ragged(name: str, reading: ReadingSection | None, read: AbstractSet[str] = frozenset()) -> None:
    """Raise LogError, with the line, if one of a CSV file has more or fewer values than its header, and so is misread.

    Args:
        name: the file.
        reading: its encoding and delimiter.
        read: the columns that were found in it; none if it could not be read.
    """
    encoding, sign = (None, None) if reading is None else (reading.encoding, reading.delimiter)
    with _bytes(name) as file, suppress(csv.Error):  # no quote ends, or the like: whoever reads the file says it
        text = io.TextIOWrapper(file, encoding or "utf-8-sig", errors="replace", newline="")
        first = text.readline()
        sign = sign or max(DELIMITERS, key=_unquoted(first).count)
        lines = csv.reader(chain([first], text), delimiter=sign[0])
        header, second = next(lines, []), next(lines, [])
        misread = len(read) < 2 or (len(second) == len(header) and not read >= {*header})  # not a title above a table
        if len(sign) > 1 or len(header) < 2 or not misread:
            return
        for values in chain([second], lines):
            if values and len(values) != len(header):
                raise LogError(
                    f"has {len(values)} values, and the header {len(header)} columns (with {sign!r} between them).",
                    file=name,
                    where=f"line {lines.line_num}",
                    way_out="Fix the line; put values that hold that sign into double quotes.",
                )


def _unquoted(line: str) -> str:
    return "".join(part for i, part in enumerate(line.split('"')) if i % 2 == 0)


# Texts that are numbers or dates.


def _bare(column: str) -> str:
    """SQL of a text without signs of money and percent, and with a minus for brackets."""
    spaces = "[\\s\u00a0\u202f'’]"
    bare = f"regexp_replace({column}, '{spaces.replace(chr(39), chr(39) * 2)}|{SIGNS}', '', 'g')"
    return f"regexp_replace({bare}, '^\\((.*)\\)$', '-\\1')"


NUMBERS = {
    ",": r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?",
    ".": r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?",
}


def number_sql(column: str, decimal: str) -> str:
    """SQL of the number in a text; NULL where it is none."""
    bare, other = _bare(column), "." if decimal == "," else ","
    plain = f"replace(replace({bare}, '{other}', ''), ',', '.')"
    return f"CASE WHEN regexp_full_match({bare}, '{NUMBERS[decimal]}') THEN TRY_CAST({plain} AS DOUBLE) END"


def date_sql(column: str, dates: str) -> str:
    """SQL of the date, or of the time where there is a time of day; NULL where it is none."""
    day = f"trim({column})" if " " in dates else f"split_part(split_part(trim({column}), ' ', 1), 'T', 1)"
    return f"TRY_CAST(try_strptime({day}, '{dates}') AS DATE)"


def moment_sql(column: str, dates: str) -> str:
    """SQL of a date with a time of day."""
    clock = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
    forms = ", ".join(f"'{dates}{apart}{form}'" for form in clock for apart in (" ", "T"))
    return f"try_strptime(trim({column}), [{forms}])"


def converted(run: Run, relation: str, columns: dict[str, str], reading: ReadingSection) -> dict[str, str]:
    """Text columns all of whose values are numbers or dates as a reading says → SQL."""
    found: dict[str, str] = {}
    missing = ", ".join("'" + text.replace("'", "''") + "'" for text in MISSING_TEXTS)
    for name, type_ in columns.items():
        if type_ != "VARCHAR":
            continue
        column = '"' + name.replace('"', '""') + '"'
        held = f"CASE WHEN trim({column}) NOT IN ({missing}) THEN {column} END"
        tries = []
        if reading.dates is not None:
            tries += [date_sql(held, reading.dates), moment_sql(held, reading.dates)]
            tries[0] = f"CASE WHEN NOT contains(trim({held}), ':') THEN {tries[0]} END"
        if reading.decimal is not None:
            tries += [number_sql(held, reading.decimal), f"TRY_CAST({held} AS DOUBLE)"]
        counts = ", ".join(f"count({sql})" for sql in tries)
        [(present, *good)] = run(f"SELECT count({held}){', ' + counts if tries else ''} FROM {relation}")
        sql = next((sql for sql, count in zip(tries, good, strict=True) if present and count == present), None)
        if sql is not None:
            found[name] = sql
    return found


def recognise_files(files: list[str]) -> Recognised:
    """The encoding and the delimiter of CSV files, by the first; the sheet of Excel files."""
    said: dict[str, Any] = {}
    words: list[str] = []
    truths: dict[str, tuple[str, str]] = {}
    if kind_of(files[0]) is EXCEL and len(sizes := _open_excel(files[0])[1]) > 1:
        said["sheet"] = _longest(sizes)
        words.append(f"Of {len(sizes)} sheets the longest is read, {said['sheet']}.")
    if kind_of(files[0]) is CSV and Path(files[0]).stat().st_size:
        encoding = encoding_of(files[0])
        if encoding != "utf-8":
            said["encoding"] = encoding
            words.append(f"Texts are encoded as {encoding}.")
        sign = delimiter_of(files[0], encoding)
        if sign not in (None, ",", "\t"):
            said["delimiter"] = sign
            words.append(f"Columns are parted by {sign!r}.")
        rows = _first_rows(files[0], encoding, sign or ",")
        heads = [head.strip() for head in rows[0]] if rows else []
        for head in dict.fromkeys(head for head in heads if heads.count(head) > 1 and head):
            words.append(f"CHECK: {heads.count(head)} columns are called {head}; a number tells the later ones apart.")
        for i, head in enumerate(heads):
            held = {row[i].strip() for row in rows[1:] if i < len(row)} - set(MISSING_TEXTS)
            for no, yes in TRUTH:
                if {text.lower() for text in held} == {no, yes} and len(held) == 2:
                    truths[head] = min(held, key=lambda t: t.lower() != no), min(held, key=lambda t: t.lower() != yes)
    return Recognised(ReadingSection(**said) if said else None, tuple(words), truths=truths)


def _first_rows(name: str, encoding: str, sign: str) -> list[list[str]]:
    """The header of a CSV file and its first rows, as texts."""
    with _bytes(name) as file:
        text = file.read(1 << 16).decode(encoding, "ignore").removeprefix("\ufeff")
    try:
        return list(csv.reader(text.replace("\x00", "").splitlines()[:-1] or text.splitlines(), delimiter=sign))
    except csv.Error:
        return []


def recognise(run: Run, relation: str, columns: dict[str, str], first: Recognised) -> Recognised:
    """How the texts of a log are to be read.

    Args:
        run: runs a statement.
        relation: the log, its texts as they are.
        columns: name → DuckDB type.
        first: what was recognised of the files.
    """
    said = {} if first.reading is None else first.reading.model_dump(exclude_none=True)
    words, undecided = list(first.words), None
    numbers = _decimal(run, relation, columns, commas=said.get("delimiter") == ";")
    if numbers is not None:
        said["decimal"], example = numbers
        words.append(f"{example} is read as a number, with {said['decimal']!r} before decimals.")
    mixed = _mixed(run, relation, columns)
    dates = _dates(run, relation, columns, mixed)
    words += [f"CHECK: column {column} is not read as dates: {what}." for column, what in mixed.items()]
    if dates is not None:
        said["dates"], example, undecided = dates
        words.append(f"{example} is read as a date, {said['dates']}.")
    signs = {column: f"coalesce(bool_and(contains({column}, '%')), false)" for column in _texts(columns)}
    found = run(f"SELECT {', '.join(signs.values())} FROM {relation}")[0] if signs else ()
    percents = frozenset(_name(c) for c, all_ in zip(signs, found, strict=True) if all_)
    reading = ReadingSection(**said) if said else None
    return Recognised(reading, tuple(words), undecided, percents, first.truths, mixed)


def _mixed(run: Run, relation: str, columns: dict[str, str]) -> dict[str, str]:
    """Text columns of dates of one form with something else among them, and what that is."""
    found = {}
    for column in _texts(columns):
        rows = f"(SELECT nullif(trim({column}), '') AS t, row_number() OVER () AS row FROM {relation})"
        forms = (DAY_FIRST, YEAR_FIRST)
        counts = ", ".join(f"count(*) FILTER (regexp_full_match(t, '{form}'))" for form in forms)
        (present, *good) = run(f"SELECT count(t), {counts} FROM {rows}")[0]
        most = max(good)
        if MOSTLY * present <= most < present:
            is_one = f"regexp_full_match(t, '{forms[good.index(most)]}')"
            [(t, row)] = run(f"SELECT t, row FROM {rows} WHERE NOT {is_one} ORDER BY row LIMIT 1")
            [(like,)] = run(f"SELECT min(t) FROM {rows} WHERE {is_one}")
            found[_name(column)] = (
                f"{most:,} of its {present:,} texts are dates like {like!r}, the others are not: row {row} is {t!r}"
            )
    return found


def _texts(columns: dict[str, str]) -> list[str]:
    return ['"' + name.replace('"', '""') + '"' for name, type_ in columns.items() if type_ == "VARCHAR"]


def _name(quoted: str) -> str:
    return quoted[1:-1].replace('""', '"')


def _decimal(run: Run, relation: str, columns: dict[str, str], *, commas: bool) -> tuple[str, str] | None:
    """The sign of decimals that a text column of numbers agrees with, and an example; of several, the surer."""
    missing = ", ".join("'" + text.replace("'", "''") + "'" for text in MISSING_TEXTS)
    found: list[tuple[int, str, str]] = []
    for column in _texts(columns):
        held = f"CASE WHEN trim({column}) NOT IN ({missing}) THEN {column} END"
        bare = _bare(held)
        row = run(
            f"SELECT count({held}), "
            + ", ".join(f"count(*) FILTER (regexp_full_match({bare}, '{NUMBERS[sign]}'))" for sign in ",.")
            + f", count(*) FILTER (regexp_matches({bare}, ',(\\d{{1,2}}|\\d{{4,}})$')), "
            f"count(*) FILTER (regexp_matches({bare}, '\\.(\\d{{1,2}}|\\d{{4,}})$')), "
            f"min({held}) FILTER (regexp_matches({held}, '[^0-9-]')), count(*) FILTER (regexp_matches({bare}, '\\d')) "
            f"FROM {relation}"
        )[0]
        present, german, english, comma, dot, example, digits = row
        if not present or digits < present or example is None:
            continue
        if german == present and (comma or english < present):
            found.append((2, ",", str(example)))
        elif english == present and (dot or german < present):
            found.append((2, ".", str(example)))
        elif german == present and english == present:  # 1,234 or 1.234 alone
            found.append((1, "," if commas else ".", str(example)))
    best = max(found, default=None, key=lambda each: each[0])
    return None if best is None else best[1:]


def _dates(
    run: Run, relation: str, columns: dict[str, str], mixed: dict[str, str]
) -> tuple[str, str, tuple[str, str, str] | None] | None:
    """The format of a text column of dates, an example, and both formats where the rows do not decide.

    Columns of which some rows fit neither order go to `mixed`.
    """
    for column in _texts(columns):
        [(present, dates, sign, short)] = run(
            f"SELECT count(t), count(*) FILTER (regexp_matches(t, '^\\d{{1,2}}[./-]\\d{{1,2}}[./-]\\d{{2,4}}( |$)')), "
            "min(regexp_extract(t, '[./-]')), "
            "max(length(regexp_extract(t, '^\\d+[./-]\\d+[./-](\\d+)', 1))) FROM "
            f"(SELECT nullif(trim({column}), '') AS t FROM {relation})"
        )
        if present and not dates:  # the year first
            whole = f"regexp_full_match(trim({column}), '{YEAR_FIRST}')"
            first = f"min(regexp_extract({column}, '[./-]')), min({column})"
            [(good, sign, example)] = run(f"SELECT count(*) FILTER ({whole}), {first} FROM {relation}")
            if good == present:
                return f"%Y{sign}%m{sign}%d", str(example), None
            if (form := _named_month(run, relation, column)) is not None:
                return form, str(example), None
        if not present or dates < present or sign is None:
            continue
        year = "%y" if short == 2 else "%Y"
        forms = [f"%d{sign}%m{sign}{year}", f"%m{sign}%d{sign}{year}"]
        row = run(
            "SELECT min(t), "
            + ", ".join(f"count({_day(form)}), max({_day(form)}) - min({_day(form)})" for form in forms)
            + f" FROM (SELECT nullif(trim({column}), '') AS t FROM {relation})"
        )[0]
        example, spans = str(row[0]), [(row[1], row[2]), (row[3], row[4])]
        fitting = [i for i in (0, 1) if spans[i][0] == present]
        if not fitting:
            rows = f"(SELECT nullif(trim({column}), '') AS t, row_number() OVER () AS row FROM {relation})"
            wrong = [
                run(f"SELECT t, row FROM {rows} WHERE t IS NOT NULL AND {_day(form)} IS NULL ORDER BY row LIMIT 1")[0]
                for form in forms
            ]
            told = " and ".join(
                f"{t!r} in row {row} is none by {form}" for (t, row), form in zip(wrong, forms, strict=True)
            )
            mixed[_name(column)] = told
            continue
        if len(fitting) == 1 or sign == ".":  # 04.05. is the fourth of May, wherever points are written
            return forms[fitting[0]], example, None
        best = min(fitting, key=lambda i: spans[i][1])  # days of a log lie close together
        return forms[best], example, (column.strip('"'), forms[best], forms[1 - best])
    return None


def _named_month(run: Run, relation: str, column: str) -> str | None:
    """The format of a text column of dates with months by their English names, such as 10-Mar-2026; or None."""
    held = f"nullif(trim({column}), '')"
    whole = f"regexp_matches({held}, '\\d.*({MONTHS})|({MONTHS}).*\\d', 'i')"
    [(present, named, one)] = run(f"SELECT count({held}), count(*) FILTER ({whole}), min({held}) FROM {relation}")
    if not named or named < present:
        return None

    def counted(forms: Sequence[str], text: str, rows: str) -> tuple[Any, ...]:
        fits = (f"count(coalesce({date_sql(text, form)}, {moment_sql(text, form)}))" for form in forms)
        return run(f"SELECT {', '.join(fits)}{rows}")[0]

    example = "'" + one.replace("'", "''") + "'"
    likely = [form for form, fits in zip(NAMED_MONTHS, counted(NAMED_MONTHS, example, ""), strict=True) if fits]
    counts = counted(likely, held, f" FROM {relation}") if likely else ()
    return next((form for form, count in zip(likely, counts, strict=True) if count == present), None)


def _day(form: str) -> str:
    return f"CAST(try_strptime(split_part(t, ' ', 1), '{form}') AS DATE)"
