"""Tables in memory where a job takes a log: anything that speaks Arrow's PyCapsule interface.

    outlay.check(frame)                              pandas, polars, pyarrow, a relation of DuckDB
    outlay.train(frame, "run", campaign="campaign.toml")

A table is written to a temporary Parquet file, which is read like any other. Without a campaign file its roles are
guessed as `init` guesses them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from outlay.core.campaign import Campaign, ReadingSection
from outlay.core.errors import OutlayError

ISO = "%Y-%m-%d"
STREAM, ARRAY = "__arrow_c_stream__", "__arrow_c_array__"


def is_table(value: Any) -> bool:
    """Whether it is a table in memory."""
    return hasattr(value, STREAM) or hasattr(value, ARRAY)


def write(table: Any, path: Path) -> Path:
    """Write a table in memory as Parquet, batch by batch.

    Raises:
        OutlayError: if it has columns that Parquet does not hold.
    """
    try:
        if hasattr(table, STREAM):
            reader = pa.RecordBatchReader.from_stream(table)
        else:
            batch = pa.record_batch(table)
            reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
        schema = reader.schema.remove_metadata()
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch.replace_schema_metadata())
    except (pa.ArrowException, TypeError) as error:
        raise OutlayError(
            f"cannot be read as a table ({error}).", where="the table", way_out="Give columns of one type each."
        ) from None
    return path


@contextmanager
def as_file(value: Any, name: str) -> Iterator[Any]:
    """The path of a temporary file that holds a table; whatever is no table as it is.

    Args:
        value: an argument of a job.
        name: of the argument, by which errors call it.

    Raises:
        OutlayError: if it is neither a table nor a path.
    """
    if not is_table(value):
        if not isinstance(value, str | os.PathLike | Campaign):
            raise OutlayError(
                f"is {repr(value)[:40]}, which is neither a file nor a table.",
                where=name,
                way_out="Give the path of a file, or a table of pandas, polars, pyarrow or DuckDB.",
            )
        yield value
        return
    with tempfile.TemporaryDirectory(prefix="outlay-") as folder:
        path = Path(folder) / "table.parquet"
        try:
            yield write(value, path)
        except OutlayError as error:  # the file is ours: people know the argument
            called, way_out = f"the table {name!r}", error.way_out
            found = error.found.replace(str(path), called)
            way_out = way_out and way_out.replace(str(path), called)
            file = called if folder in (error.file or "") else error.file
            OutlayError.__init__(error, found, file=file, where=error.where, way_out=way_out)
            raise


@contextmanager
def campaign_of(log: Any, campaign: Campaign | str | Path | None) -> Iterator[Any]:
    """The campaign that a table in memory is the log of; whatever is no table as it is.

    Args:
        log: a table, or what the job takes else.
        campaign: what the columns of the table mean; None: guessed as `init` does.
    """
    if not is_table(log) and campaign is not None:
        raise OutlayError("is for a table in memory, and the log is none.", where="campaign", way_out="Leave it out.")
    with as_file(log, "log") as path:
        if not is_table(log):
            yield path
            return
        if campaign is None:
            from outlay.jobs.init import init

            init(path, path.with_name("campaign.toml"))
            yield Campaign.load(path.with_name("campaign.toml"))
            return
        known = campaign if isinstance(campaign, Campaign) else Campaign.load(campaign)
        before = known.log.reading or ReadingSection()
        reading = ReadingSection(decimal=before.decimal, dates=before.dates or ISO)  # pandas keeps dates of CSV as text
        section = known.log.model_copy(update={"source": str(path), "query": None, "reading": reading})
        yield known.model_copy(update={"log": section, "events": ()})
