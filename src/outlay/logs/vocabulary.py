"""How the fields of a log are encoded: vocabularies from counted values, and scales.

A vocabulary is ordered by frequency, ties by text. Values are counted block by block; a field with more than
`train.max_values` of them is counted by DuckDB instead, which writes to disk what memory does not hold, and keeps its
most frequent ones: the others share BUCKETS codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outlay.core.parallel import Mapper
from outlay.core.progress import Counter
from outlay.core.schema import Categorical, Numeric, Schema, canonical_text
from outlay.logs.blocks import Block, FeatureFiles
from outlay.logs.roles import Log
from outlay.logs.source import Term

AGGREGATES = 100  # numeric fields a scan
BUCKETS = 512  # codes that the rarer values of a field share; with max_values as it is, 16 bits hold all codes
PENDING = 8192  # counted values of a field that wait to be added up
DENSE = 4096  # span of whole numbers that are counted in one array, whatever the number of rows

Counts = tuple[Any, Any]  # values, and how often each occurs: two Arrow arrays


def make_schema(log: Log, files: FeatureFiles, blocks: Sequence[Block], tell: Counter, over: Mapper) -> Schema:
    """Vocabularies and scales from the rows of the log.

    Args:
        log: the log.
        files: where its features lie.
        blocks: of all rows.
        tell: takes the number of rows of each block, when it is counted.
        over: maps a function over blocks.
    """
    train = log.campaign.train
    sums = [_Sum(train.max_values) for _ in log.categorical]

    # Which fields are still counted is looked up when a block's turn comes.
    asked = ((block, [f for f, one in enumerate(sums) if not one.many]) for block in (blocks if sums else []))
    for block, found in zip(blocks, over(partial(count_block, files), asked), strict=False):
        for f, counts in found:
            sums[f].add(counts)
        tell(block.rows)
    fields = []
    for term, one in zip(log.categorical, sums, strict=True):
        counts = one.total()
        if one.many:
            counts = _most_frequent(log, term)
        values = vocabulary(counts, train.min_count)
        buckets = BUCKETS if len(values) > train.max_values else 0
        fields.append(Categorical(term.text, values[: train.max_values], buckets))
    return Schema(tuple(fields), _scales(log))


def count_block(files: FeatureFiles, asked: tuple[Block, Sequence[int]]) -> list[tuple[int, Counts]]:
    """How often each value of the requested features occurs in a block; nulls are not counted.

    Raises:
        LogError: if the file has changed, or cannot be read.
    """
    return [(f, _count(column)) for f, column in files.read(*asked)]


def vocabulary(counts: Any, min_count: int) -> Any:
    """Values in order of frequency, ties by text; those in fewer than `min_count` rows are left out.

    Args:
        counts: Arrow table with the columns `value` and `n`.
        min_count: rows a value needs.

    Returns:
        An Arrow string array.
    """
    texts = pa.table({"text": canonical_text(counts.column("value")), "n": counts.column("n")})
    merged = texts.filter(pc.is_valid(texts.column("text"))).group_by("text").aggregate([("n", "sum")])
    merged = merged.filter(pc.greater_equal(merged.column("n_sum"), min_count))
    ordered = merged.sort_by([("n_sum", "descending"), ("text", "ascending")])
    return ordered.column("text").combine_chunks()


def hashed_words(fields: int, most: int) -> str:
    """That the rarer values of so many fields share codes, in words that follow the names of the fields."""
    what = f"{'has' if fields == 1 else 'have'} more than {most:,} values"
    return f"{what}: the most frequent ones keep a code each, and all others share {BUCKETS} codes by a hash"


class _Sum:
    """How often each value of a field occurs in the blocks so far; it gives up beyond `most` values (`many`)."""

    def __init__(self, most: int) -> None:
        self.most, self.many = most, False
        self.parts: list[Counts] = []
        self.length = 0  # of all parts
        self.added = 0  # length of what was added up last

    def add(self, counts: Counts) -> None:
        if self.many:
            return
        self.parts.append(counts)
        self.length += len(counts[0])
        if self.length > self.added + max(self.added, PENDING):
            self.total()

    def total(self) -> Any:
        """Arrow table of each value once, `value` and `n`; empty where there are too many."""
        values, n = (pa.concat_arrays(arrays) for arrays in zip(*self.parts, strict=True))
        table = pa.table({"value": values, "n": n})
        if len(self.parts) > 1:
            found = table.group_by("value").aggregate([("n", "sum")]).combine_chunks()
            table = pa.table({"value": found.column("value"), "n": found.column("n_sum")})
        if self.many or table.num_rows > self.most:
            self.many, table = True, table.slice(0, 0)
        self.parts = [tuple(column.combine_chunks() for column in table.columns)]
        self.length = self.added = table.num_rows
        return table


def _count(column: Any) -> Counts:
    """The values of an Arrow column and how often each occurs."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count:
        column = column.drop_null()
    kind = column.type
    if pa.types.is_dictionary(kind):
        counts = np.bincount(column.indices.to_numpy(), minlength=len(column.dictionary))
        seen = np.flatnonzero(counts)
        return column.dictionary.take(pa.array(seen)), pa.array(counts[seen])
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind) and len(column):
        numbers = column.to_numpy()
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < max(DENSE, len(numbers)):
            counts = np.bincount(numbers.astype(np.int64) - low)
            seen = np.flatnonzero(counts)
            return pa.array(seen + low).cast(kind), pa.array(counts[seen])
    found = pc.value_counts(column)
    return found.field("values"), found.field("counts")


def _most_frequent(log: Log, term: Term) -> Any:
    """The values of a field that has too many, the most frequent ones and one more; ties by text."""
    train = log.campaign.train
    return log.source.table(
        f"SELECT value, count(*) AS n FROM (SELECT {term.sql} AS value FROM log_kept) WHERE value IS NOT NULL "
        f"GROUP BY value HAVING n >= {train.min_count} "
        f"ORDER BY n DESC, CAST(value AS VARCHAR) LIMIT {train.max_values + 1}"
    )


def _scales(log: Log) -> tuple[Numeric, ...]:
    """Mean and standard deviation of the numeric features."""
    numbers = []
    for i in range(0, len(log.numeric), AGGREGATES):
        part = log.numeric[i : i + AGGREGATES]
        sums = ", ".join(f"avg(v{j}), stddev_pop(v{j})" for j in range(len(part)))
        values = ", ".join(f"CASE WHEN isfinite({t.sql}) THEN {t.sql} END AS v{j}" for j, t in enumerate(part))
        row = log.source.run(f"SELECT {sums} FROM (SELECT {values} FROM log_kept)")[0]
        for j, term in enumerate(part):
            mean, spread = row[2 * j], row[2 * j + 1]
            numbers.append(Numeric(term.text, float(mean or 0), float(spread or 0) or 1.0))
    return tuple(numbers)
