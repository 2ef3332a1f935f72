"""Tables in memory where a job takes a log: anything that speaks Arrow's PyCapsule interface.

    outlay.check(frame)                              pandas, polars, pyarrow, a relation of DuckDB
    outlay.train(frame, "run", campaign="campaign.toml")

A table is written to a temporary Parquet file, which is read like any other. Without a campaign file its roles are
guessed as `init` guesses them.
"""

from __future__ import annotations

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
def as_file(value: Any) -> Iterator[Any]:
    """The path of a temporary file that holds a table; whatever is no table as it is."""
    if not is_table(value):
        yield value
        return
    with tempfile.TemporaryDirectory(prefix="outlay-") as folder:
        yield write(value, Path(folder) / "table.parquet")


@contextmanager
def campaign_of(log: Any, campaign: Campaign | str | Path | None) -> Iterator[Any]:
    """The campaign that a table in memory is the log of; whatever is no table as it is.

    Args:
        log: a table, or what the job takes else.
        campaign: what the columns of the table mean; None: guessed as `init` does.
    """
    if not is_table(log):
        if campaign is not None:
            raise OutlayError(
                "is for a table in memory, and the log is none.", where="campaign", way_out="Leave it out."
            )
        yield log
        return
    with as_file(log) as path:
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
