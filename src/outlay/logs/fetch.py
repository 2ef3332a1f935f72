"""Rows that do not lie on this machine, copied to it: of a database, or of object storage.

    files = fetch("postgresql://reader@host/shop", "SELECT …", folder)

A log is scanned many times, so it is copied once: the rows of a query to Parquet as they stream in, objects as they
are. The folder appears when the copy is whole. Passwords come from where the clients of these services look for them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from outlay.core.addresses import DATABASES, scheme_of
from outlay.core.errors import LogError, OutlayError
from outlay.core.machine import optional, says_full

Tell = Callable[[str], None]  # takes what is done so far, in words
READ_ONLY = "options=-c%20default_transaction_read_only%3Don"
EXACT = 18  # digits of a whole number that fit into 64 bits
CHUNK = 8 << 20  # bytes of an object at a time


def fetch(source: str, query: str | None, folder: Path, tell: Tell | None = None) -> list[str]:
    """Copy the rows of a source to a folder, unless it has them already.

    Args:
        source: an address.
        query: SQL, for a database. It may only read.
        folder: where to; it is there only when the copy is whole.
        tell: called with what is done.

    Returns:
        The files, in order.

    Raises:
        LogError: if the source cannot be reached or read, or goes away meanwhile.
        OutlayError: if the driver is not installed.
    """
    if not folder.exists():
        begun = folder.with_name(f"{folder.name}.begun")
        shutil.rmtree(begun, ignore_errors=True)
        begun.mkdir()
        tell = tell or (lambda _: None)
        if scheme_of(source) in DATABASES:
            _copy_query(source, str(query), begun / "rows.parquet", tell)
        else:
            _copy_objects(source, begun, tell)
        begun.rename(folder)
    return sorted(map(str, folder.iterdir()))


def _copy_query(source: str, query: str, path: Path, tell: Tell) -> None:
    """Write the rows of a query as they stream in."""
    with optional():
        import adbc_driver_postgresql.dbapi as driver

    address = f"{source}{'&' if urlsplit(source).query else '?'}{READ_ONLY}"
    rows = 0
    with _in_words(source, (driver.Error,)), driver.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        reader = cursor.fetch_record_batch()
        plain = pa.schema([pa.field(field.name, _plain_type(field, source)) for field in reader.schema])
        twice = sorted({name for name in plain.names if plain.names.count(name) > 1})
        if twice:
            raise LogError(
                f"gives the column {twice[0]!r} more than once.",
                file=source,
                where="query",
                way_out="Name the columns apart: SELECT … AS …",
            )
        with pq.ParquetWriter(path, plain, compression="zstd") as writer:
            for batch in reader:
                columns = [_plain(column, type_) for column, type_ in zip(batch.columns, plain.types, strict=True)]
                writer.write_batch(pa.record_batch(columns, schema=plain))
                rows += batch.num_rows
                tell(f"reading the database: {rows:,} rows")


def _plain_type(field: Any, source: str) -> Any:
    """The type in which a column of PostgreSQL is written.

    Raises:
        LogError: if a table of features cannot hold it.
    """
    told = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind = told.get("POSTGRESQL:type", str(field.type))
    if kind == "numeric":
        precision, scale = _digits(int(told.get("POSTGRESQL:typmod", -1)))
        return pa.int64() if scale == 0 and precision <= EXACT else pa.float64()
    if kind == "money" or pa.types.is_interval(field.type) or pa.types.is_duration(field.type):
        raise LogError(
            f"is of type {kind}, which no column of a log has.",
            file=source,
            where=f"column {field.name!r}",
            way_out=f"Make it a number in the query: {_number_of(kind, field.name)}.",
        )
    if pa.types.is_list(field.type):
        return pa.list_(_plain_type(field.type.value_field, source))
    if isinstance(field.type, pa.BaseExtensionType):
        return pa.string() if kind == "uuid" else field.type.storage_type
    return field.type


def _digits(typmod: int) -> tuple[int, int]:
    """Precision and scale of PostgreSQL's numeric(p, s); without them it holds any number."""
    return ((typmod - 4) >> 16, (typmod - 4) & 0xFFFF) if typmod >= 0 else (1000, 1000)


def _number_of(kind: str, name: str) -> str:
    return f"{name}::numeric AS {name}" if kind == "money" else f"extract(epoch FROM {name}) AS {name}"


def _plain(column: Any, type_: Any) -> Any:
    if pa.types.is_list(type_):
        values = _plain(column.values, type_.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
    if isinstance(column.type, pa.BaseExtensionType):
        if isinstance(column.type, pa.UuidType):
            return pa.array([None if value is None else str(value) for value in column.to_pylist()], type_)
        column = column.storage
    return column.cast(type_)


def _copy_objects(source: str, folder: Path, tell: Tell) -> None:
    """Copy the files that an address or a glob names, as they are."""
    bare, _, options = source.partition("?")
    scheme, _, path = bare.partition("://")
    if scheme == "gs" and "retry_limit_seconds" not in options:
        options = f"{options}{'&' if options else ''}retry_limit_seconds=20"  # else it tries for a quarter of an hour
    with _in_words(source, (ValueError,)):
        system, _ = pafs.FileSystem.from_uri(f"{scheme}://{path.partition('/')[0]}{options and '?' + options}")
        found = _matching(system, path)
        if not found:
            raise LogError("matches no file.", file=source, way_out="Check the bucket and the path.")
        total, done = sum(info.size for info in found), 0
        for number, info in enumerate(found):
            copy = folder / f"{number:05d}-{info.base_name}"
            with system.open_input_stream(info.path) as stream, copy.open("wb") as file:
                while chunk := stream.read(CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    tell(f"copying {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")


def _matching(system: Any, path: str) -> list[Any]:
    """The files of a bucket that a path or a glob names, by name; `**/` stands for any folders."""
    if "*" not in path:
        info = system.get_file_info(path)
        return [info] if info.type == pafs.FileType.File else []
    fixed = path.partition("*")[0].rpartition("/")[0]
    pattern = re.compile(re.escape(path).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*"))
    infos = system.get_file_info(pafs.FileSelector(fixed, recursive=True, allow_not_found=True))
    found = [info for info in infos if info.type == pafs.FileType.File and pattern.fullmatch(info.path)]
    return sorted(found, key=lambda info: str(info.path))


@contextmanager
def _in_words(source: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Errors of a driver as ours."""
    try:
        yield
    except OutlayError:
        raise
    except (*errors, OSError, pa.ArrowException) as error:
        if says_full(error):
            raise
        said = shorten(" ".join(str(error).split()), 400, placeholder=" …").removesuffix(".")
        way_out = "Check the address, the rights and the query, and run the command again."
        raise LogError(f"cannot be read ({said}).", file=source, way_out=way_out) from None
