"""Tables that jobs read for a bundle, and the tables that they write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from outlay.bundles.decide import Bundle
from outlay.bundles.rows import users_of
from outlay.core.errors import LogError, OutlayError
from outlay.core.files import as_path
from outlay.logs.past_days import UserPast
from outlay.logs.reading import Part
from outlay.logs.source import read_rows

SUFFIXES = (".parquet", ".csv")
ARROW = ".arrow"  # of parts that are joined later: quick to write and to read
TIME = "outlay time"  # name of the days to decide for, which no feature has
USER_COLUMN = "COLUMNS('^user$')"  # a column or an error, never a function
BATCH_ROWS = 65_536
CELLS = 8_000_000  # values of a batch, at most
VARIED = ("row", "user", "value", "cost", "q")  # columns whose values hardly repeat: a dictionary costs time and room


def checked_out(out: str | Path, rows: str | Path) -> Path:
    """Where a table may be written.

    Raises:
        OutlayError: if it ends in neither .parquet nor .csv, or is the file of rows.
    """
    out = as_path(out, "out", "the path to write to")
    if out.suffix not in SUFFIXES or out.is_dir():
        raise OutlayError("is not a .parquet or .csv file.", file=out, where="out", way_out="Change its ending.")
    if out.resolve() == Path(rows).resolve():
        raise OutlayError("is the file of rows itself.", file=out, where="out", way_out="Give another --out.")
    return out


def read_past(bundle: Bundle, rows: str | Path, history: str | Path | None) -> UserPast | None:
    """The users' past days where a bundle looks at them.

    Args:
        bundle: what decides.
        rows: the file of rows to decide for, for errors.
        history: a log or a DATA folder with the past days.

    Raises:
        LogError: if the past is needed and not given, or given and not needed, or cannot be read.
    """
    if history is None and bundle.history is not None:
        raise LogError(
            "the policy looks at each user's past days, which a table of rows does not have.",
            file=rows,
            where="history",
            way_out="Give the log or a DATA folder with them: --history LOG.",
        )
    return None if history is None else UserPast.read(bundle.campaign, history, bundle.actions)


def needed_batches(
    bundle: Bundle,
    rows: str | Path,
    past: UserPast | None = None,
    *,
    part: Part | None = None,
    threads: int | None = None,
) -> Iterator[Any]:
    """Batches of the columns that a decision needs, named as the bundle names them.

    Args:
        bundle: what decides.
        rows: the file.
        past: the users' past days, where the bundle looks at them.
        part: the rows to read; None: all.
        threads: of the reader; None leaves the choice to it.

    Raises:
        LogError: if a column or a user is missing.
    """
    user, eligible = bundle.manifest.user, bundle.manifest.eligible
    summaries = bundle.history.names if bundle.history else ()
    needed = {
        name: name for name in (*bundle.schema.names, *((eligible,) if eligible else ())) if name not in summaries
    }
    # In SQL `user`, even in quotes, is the user who is logged in if there is no such column.
    optional = {name: USER_COLUMN if name == "user" else name for name in (user, "user") if name not in needed}
    if past is not None:
        optional[TIME] = bundle.campaign.log.time or "0"
    done = 0 if part is None else part.first
    for batch in read_rows(
        rows,
        needed,
        optional=optional,
        users=(user, "user"),
        part=part,
        threads=threads,
        reading=bundle.campaign.log.reading,
        batch_rows=min(BATCH_ROWS, max(2_048, CELLS // (len(needed) + 1))),
    ):
        if past is None:
            yield batch
            continue
        users = users_of(batch, user, first_row=done, file=rows)
        if users is None:
            raise LogError(
                "has no column of users, so their past days are unknown.",
                file=rows,
                where=f"column {user!r}",
                way_out="Add it.",
            )
        yield past.with_features(batch, user=users, time=batch.column(TIME) if TIME in batch.schema.names else None)
        done += batch.num_rows


@contextmanager
def table_writer(path: Path, suffix: str) -> Iterator[Callable[[Any], None]]:
    """A function that appends a table to the file, written as `suffix` says; the first one sets the columns."""
    opened: list[Any] = []

    def write(table: Any) -> None:
        table = table.replace_schema_metadata()
        if suffix == ".csv" and "q" in table.column_names:
            inner = pc.binary_join(table["q"].cast(pa.list_(pa.string())), ", ")
            texts = pc.binary_join_element_wise("[", inner, "]", "")
            table = table.set_column(table.column_names.index("q"), "q", texts)
        if not opened:
            make = {".csv": pacsv.CSVWriter, ARROW: pa.ipc.new_file}.get(suffix, _parquet_writer)
            opened.append(make(path, table.schema))
        opened[0].write_table(table)

    try:
        yield write
    finally:
        if opened:
            opened[0].close()


def _parquet_writer(path: Path, schema: Any) -> Any:
    ordered = {"row": "DELTA_BINARY_PACKED"} if "row" in schema.names else None
    repeated = [name for name in schema.names if name not in VARIED]
    return pq.ParquetWriter(path, schema, use_dictionary=repeated, column_encoding=ordered)
