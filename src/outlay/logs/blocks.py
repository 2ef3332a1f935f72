"""Features of a log in blocks of rows: where their values lie, and how a block is read.

A feature that is a column of the log's Parquet files, and of a simple type, is read from them as it is. Any other (an
expression, say) is evaluated once by DuckDB into an Arrow file with a row per kept row. A filter becomes a list of the
rows it keeps. So a block is read without SQL, in any thread, process or machine that sees the files.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.addresses import Place
from outlay.core.errors import LogError
from outlay.core.files import map_array
from outlay.logs.roles import Log
from outlay.logs.source import Term
from outlay.logs.values import time_sql, time_term

ROWS = 65_536  # of a block; a row group with more is a block by itself
VALUES = 8_000_000  # in memory at a time, for each thread: a wide block is read some columns at a time
PLACE = "__place"  # row of the log, before the filter


@dataclass(frozen=True)
class Block:
    """Row groups that follow one another in one file.

    Attributes:
        file: of Parquet.
        stamp: its size in bytes and its time of change, in ns, when the block was planned.
        groups: the first row group, and the one after the last.
        start, length: its rows of the log, before the filter.
        first, rows: its kept rows.
    """

    file: str
    stamp: tuple[int, int]
    groups: tuple[int, int]
    start: int
    length: int
    first: int
    rows: int


@dataclass(frozen=True)
class FeatureFiles:
    """Where the values of the features lie.

    Attributes:
        columns: of each feature, its column in the log's files, or None.
        texts: those of the columns that hold text.
        evaluated: an Arrow file whose columns `v{i}` are the features i that are no column of the log; None: there are
            none.
        ends: kept row after each batch of that file.
        kept: a .npy of the rows that pass the filter, ascending; None: all.
    """

    columns: tuple[str | None, ...]
    texts: tuple[str, ...]
    evaluated: Path | None = None
    ends: tuple[int, ...] = ()
    kept: Path | None = None

    def read(self, block: Block, features: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """The kept rows of a block: number of each feature and its Arrow column.

        Raises:
            LogError: if the file has changed, or cannot be read.
        """
        if _stamp(block.file) != block.stamp:
            raise changed(block.file)
        size = max(1, VALUES // block.length)
        try:
            metadata = _metadata(block.file, block.stamp)
            with pq.ParquetFile(block.file, metadata=metadata, read_dictionary=list(self.texts)) as file:
                for i in range(0, len(features), size):
                    part = features[i : i + size]
                    plain = sorted({name for f in part if (name := self.columns[f]) is not None})
                    table = self._of_log(file, block, plain)
                    further = [f for f in part if self.columns[f] is None]
                    values = self._evaluated(block, further) if further else None
                    for f in part:
                        name = self.columns[f]
                        yield f, values.column(f"v{f}") if name is None else table.column(name)  # type: ignore[union-attr]
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(block, error) from None

    def _of_log(self, file: Any, block: Block, names: list[str]) -> Any:
        table = file.read_row_groups(range(*block.groups), columns=names, use_threads=False)
        if table.num_rows != block.length:
            raise changed(block.file)
        if block.rows == block.length:
            return table
        kept = map_array(self.kept, "r") if self.kept else np.empty(0, np.int64)
        return table.take(pa.array(kept[block.first : block.first + block.rows] - block.start))

    def _evaluated(self, block: Block, features: list[int]) -> Any:
        first, last = block.first, block.first + block.rows
        begin, end = np.searchsorted(self.ends, (first, last - 1), side="right").tolist()
        with pa.memory_map(str(self.evaluated)) as file:
            options = pa.ipc.IpcReadOptions(use_threads=False)
            reader = pa.ipc.open_file(file, options=options)
            batches = [reader.get_batch(i).select([f"v{f}" for f in features]) for i in range(begin, end + 1)]
            before = self.ends[begin - 1] if begin else 0
            return pa.Table.from_batches(batches).slice(first - before, block.rows)


def find_features(log: Log, folder: Path) -> tuple[FeatureFiles, list[Block]]:
    """Where the features of a log lie, the categorical first, and its blocks in order.

    Args:
        log: the log.
        folder: for what has to be evaluated; it must stay while blocks are read.

    Raises:
        LogError: if the log cannot be read, or an expression cannot be evaluated.
    """
    terms = (*log.categorical, *log.numeric)
    stamps = [_stamp(file) for file in log.source.files]
    try:
        found = [_metadata(file, stamp) for file, stamp in zip(log.source.files, stamps, strict=True)]
        columns = _simple_columns([metadata.schema.to_arrow_schema() for metadata in found])
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"cannot be read ({error}).", file=log.source.file, way_out="Fix the file.") from None
    names = tuple(_column(term, columns, numeric=i >= len(log.categorical)) for i, term in enumerate(terms))
    texts = tuple(sorted({name for name in names if name is not None and columns[name] == "text"}))
    kept = _kept(log, folder)
    files = FeatureFiles(names, texts, kept=None if kept is None else folder / "kept.npy")
    if further := {f"v{i}": term for i, term in enumerate(terms) if names[i] is None}:
        evaluated = folder / "evaluated.arrow"
        files = FeatureFiles(names, texts, evaluated, _evaluate(log, further, evaluated), files.kept)
    return files, list(_blocks(log.source.files, stamps, found, kept))


def changed(file: Place) -> LogError:
    """The error of a log that is not what it was when reading began."""
    return LogError(
        "changed while it was read.",
        file=file,
        where="log.source",
        way_out="Do not write to the log while it is read, and use no random() in log.where.",
    )


def _blocks(
    files: Sequence[str], stamps: list[tuple[int, int]], found: list[Any], kept: NDArray[np.int64] | None
) -> Iterator[Block]:
    start = first = 0
    for file, stamp, metadata in zip(files, stamps, found, strict=True):
        lengths = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
        begin = 0
        while begin < len(lengths):
            within = itertools.takewhile(lambda total: total <= ROWS, itertools.accumulate(lengths[begin:]))
            end = begin + max(1, len(list(within)))
            length = sum(lengths[begin:end])
            rows = length if kept is None else int(np.searchsorted(kept, start + length)) - first
            if rows:
                yield Block(file, stamp, (begin, end), start, length, first, rows)
            start, first, begin = start + length, first + rows, end


def _simple_columns(schemas: list[Any]) -> dict[str, str]:
    """Columns that mean the same to Arrow and to DuckDB, and have one type in all files: name → kind of type."""
    first, *others = ({field.name: field.type for field in schema} for schema in schemas)
    same = Counter(name.lower() for name in schemas[0].names)  # DuckDB calls the second of them otherwise
    return {
        name: kind
        for name, type_ in first.items()
        if (kind := _kind(type_)) and same[name.lower()] == 1 and all(other.get(name) == type_ for other in others)
    }


def _kind(type_: Any) -> str | None:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "text"
    if pa.types.is_integer(type_) or pa.types.is_float64(type_) or pa.types.is_boolean(type_):
        return "number"
    return "other" if pa.types.is_float32(type_) or pa.types.is_date32(type_) else None


def _column(term: Term, columns: dict[str, str], *, numeric: bool) -> str | None:
    """The column that a feature is, or None. A column of the log's name wins over an expression."""
    kind = columns.get(term.text)
    return term.text if kind is not None and (kind == "number" or not numeric) else None


def _kept(log: Log, folder: Path) -> NDArray[np.int64] | None:
    """Write `kept.npy`: the rows that pass `log.where` and are ripe; None where all do."""
    conditions = []
    if log.campaign.log.where is not None:
        conditions.append(f"(\n{log.campaign.log.where}\n)")
    if log.ripeness is not None and log.ripeness.left_out:
        time = time_sql(log.source, time_term(log.source, log.campaign))
        conditions.append(f"NOT coalesce({time} > {log.ripeness.last}, false)")
    if not conditions:
        return None
    placed = f"SELECT row_number() OVER () - 1 AS {PLACE}, * FROM log"
    query = f"SELECT {PLACE} FROM ({placed}) WHERE {' AND '.join(conditions)}"
    parts = [batch.column(0).to_numpy() for batch in log.source.batches(query, 1_000_000)]
    kept = np.concatenate([np.empty(0, np.int64), *parts])
    np.save(folder / "kept.npy", kept)
    return kept


def _evaluate(log: Log, terms: dict[str, Term], path: Path) -> tuple[int, ...]:
    """Write the values of terms in every kept row as an Arrow file; the row after each of its batches."""
    chosen = ", ".join(f"{term.sql} AS {name}" for name, term in terms.items())
    ends, writer = [0], None
    rows = max(2048, min(ROWS, VALUES // len(terms)))
    try:
        for batch in log.source.batches(f"SELECT {chosen} FROM log_kept", rows):
            plain = pa.record_batch([_decoded(column) for column in batch.columns], batch.schema.names)
            if writer is None:
                writer = pa.ipc.new_file(path, plain.schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
            writer.write_batch(plain)
            ends.append(ends[-1] + batch.num_rows)
    finally:
        if writer is not None:
            writer.close()
    return tuple(ends[1:])


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _stamp(file: str) -> tuple[int, int]:
    try:
        found = Path(file).stat()
    except OSError as error:
        raise LogError(f"cannot be read ({error.strerror}).", file=file, way_out="Put it back.") from None
    return found.st_size, found.st_mtime_ns


@lru_cache(maxsize=64)
def _metadata(file: str, _stamp: tuple[int, int]) -> Any:
    """The footer of a Parquet file; of a wide log it is long."""
    return pq.read_metadata(file)


def _unreadable(block: Block, error: Exception) -> LogError:
    begin, end = block.groups
    groups = f"row group {begin}" if end - begin == 1 else f"row groups {begin} to {end - 1}"
    return LogError(
        f"cannot be read ({str(error).strip().splitlines()[0]}).",
        file=block.file,
        where=groups,
        way_out="The file is damaged: write it again.",
    )
