"""Which files a path means, and the SQL that reads them with missing values as NULL."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from outlay.core.errors import LogError
from outlay.core.schema import MISSING_TEXTS

PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz", ".tsv", ".tsv.gz")

PLAIN = re.compile(r"[a-z_][a-z0-9_]*")

Run = Callable[[str], list[tuple[Any, ...]]]  # runs a statement, gives its rows


def find_files(path: Path, asked_by: Path | None) -> list[str]:
    """The files that a path or glob means, sorted by name.

    Raises:
        LogError: if there are none, or they are not all Parquet or all CSV by their extension.
    """
    way_out = f"Fix log.source in {asked_by}." if asked_by else "Check the path."
    if path.is_dir():
        raise LogError("is a folder.", file=path, way_out=f"Name its files, as in {path}/*.parquet.")
    found = [str(path)] if path.is_file() else sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (an absolute pattern)
    if not found:
        what = "matches no file." if glob.has_magic(str(path)) else "does not exist."
        raise LogError(what, file=path, way_out=way_out)
    kinds = {next((kind for kind in (PARQUET, CSV) if name.lower().endswith(kind)), None) for name in found}
    if None in kinds or len(kinds) > 1:
        raise LogError("is not Parquet or CSV by its extension.", file=path,
                       way_out=f"Known extensions, one kind for all files: {', '.join(PARQUET + CSV)}.")  # fmt: skip
    return found


def make_log_view(
    run: Run, files: list[str], folder: Path, users: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Make the view `log`, with missing values as NULL; its columns and types, and the Parquet files that it reads.

    Args:
        run: runs a statement.
        files: all Parquet or all CSV.
        folder: for a copy of CSV files.
        users: columns of user ids. Where they hold text only an empty one is missing: a user may be called NA.
    """
    listed = ", ".join(literal(name) for name in files)
    if empty := next((name for name in files if Path(name).stat().st_size == 0), None):
        raise LogError("is empty: it has no bytes.", file=empty, way_out="Write it again, or leave it out.")
    if files[0].lower().endswith(CSV):
        nulls = ", ".join(literal(text) for text in MISSING_TEXTS)
        # sample_size = -1: types come from all rows, so that a late 0.5 does not break a column of whole numbers.
        # dateformat: without it 03/04/2027 is a day of April or of March, as the other rows happen to allow.
        options = f"header = true, nullstr = [{nulls}], sample_size = -1, dateformat = '%Y-%m-%d'"
        csv = f"SELECT * FROM read_csv([{listed}], {options})"
        types = {str(row[0]): str(row[1]) for row in run(f"DESCRIBE {csv}")}
        group = max(2048, min(122_880, 8_000_000 // max(len(types), 1)))
        written = f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group})"
        copied = folder / "source.parquet"
        run(f"COPY ({csv}) TO {literal(copied)} {written}")
        for i, name in enumerate(name for name in users if types.get(name) == "VARCHAR"):
            column = quoted(name)
            one = f"SELECT 1 FROM read_parquet({literal(copied)}) WHERE {column} IS NULL LIMIT 1"
            if run(one):  # or are they called NA?
                texts = f"read_csv([{listed}], header = true, nullstr = [''], all_varchar = true)"
                both = f"read_parquet({literal(copied)}) POSITIONAL JOIN (SELECT {column} AS __called FROM {texts})"
                copied = folder / f"named{i}.parquet"
                query = f"SELECT * EXCLUDE __called REPLACE (__called AS {column}) FROM {both}"
                run(f"COPY ({query}) TO {literal(copied)} {written}")
        files, listed = [str(copied)], literal(copied)
    relation = f"read_parquet([{listed}], binary_as_string = true{_nan_aware(run)})"
    columns = {str(row[0]): str(row[1]) for row in run(f"DESCRIBE SELECT * FROM {relation}")}
    parts = ", ".join(
        f"{_with_nulls(name, type_, ('',) if name in users else MISSING_TEXTS)} AS {quoted(name)}"
        for name, type_ in columns.items()
    )
    run(f"CREATE VIEW log AS SELECT {parts} FROM {relation}")
    return columns, files


def _nan_aware(run: Run) -> str:
    """The option that keeps DuckDB from dropping isnan(): other writers' statistics do not count NaN.

    Source: github.com/duckdb/duckdb/issues/25521.
    """
    options = (
        "SELECT list_contains(parameters, 'can_have_nan') FROM duckdb_functions() WHERE function_name = 'read_parquet'"
    )
    if any(known for (known,) in run(options)):
        return ", can_have_nan = true"
    run("SET disabled_optimizers = 'statistics_propagation'")  # before DuckDB 1.3
    return ""


def _with_nulls(name: str, type_: str, missing: Sequence[str]) -> str:
    column = quoted(name)
    if type_ == "VARCHAR":
        return f"CASE WHEN {column} IN ({', '.join(literal(text) for text in missing)}) THEN NULL ELSE {column} END"
    if type_ in ("FLOAT", "DOUBLE"):
        return f"CASE WHEN isnan({column}) THEN NULL ELSE {column} END"
    return column


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


def setting(key: str, text: str) -> str:
    """A line of a TOML file, ready to be pasted."""
    plainly = '"' not in text or any(character in text for character in "'\\\n")
    return f"{key} = {json.dumps(text, ensure_ascii=False)}" if plainly else f"{key} = '{text}'"


def literal(text: str | Path) -> str:
    """A text as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"
