"""A sample of a log's rows, and the values of columns in it as a few cells: what tests of many columns look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outlay.logs.roles import Log
from outlay.logs.source import ROW, Term

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SAMPLE = 100_000  # rows looked at
CELLS = 8_000_000  # values in memory at a time
BINS = 32  # of a number
VALUES = 200  # of a text that are told apart; rarer ones are one


@dataclass(frozen=True)
class ColumnValues:
    """Which of V values, or spans of values, each of the r rows has."""

    of: Index
    names: list[str]


def draw(log: Log, columns: str, *, where: str = "TRUE", first: bool = False) -> Any:
    """Make the table `sampled` of at most `SAMPLE` rows of a linked log, the same ones every time.

    Args:
        log: with the tables `roles`, `users` and `links`.
        columns: SQL of its columns beside `row`, over the row `r`, its user `u` and the user's row before, `b`.
        where: SQL condition on `r`.
        first: of users' first rows alone.

    Returns:
        the table as Arrow, in the order of the log.
    """
    only = "JOIN users u ON u.first_row = r.row" if first else ""
    log.source.run(f"""
        CREATE OR REPLACE TEMP TABLE sampled AS SELECT r.row, {columns}
        FROM (SELECT r.* FROM roles r {only} WHERE {where} ORDER BY hash(r.row) LIMIT {SAMPLE}) r
        JOIN users u ON u."user" = r."user"
        LEFT JOIN links k ON k.next_row = r.row LEFT JOIN roles b ON b.row = k.row""")
    return log.source.table("SELECT * FROM sampled ORDER BY row")


def features_of(log: Log, terms: Sequence[Term]) -> Iterator[ColumnValues]:
    """The values of features in the rows of the table `sampled`, in its order."""
    size, categorical = max(1, CELLS // SAMPLE), set(log.categorical)
    for i in range(0, len(terms), size):
        part = terms[i : i + size]
        chosen = ", ".join(f"s.__f{j} AS __f{j}" for j in range(len(part)))
        inner = ", ".join(f"{term.sql} AS __f{j}" for j, term in enumerate(part))
        table = log.source.table(
            f"SELECT {chosen} FROM (SELECT {ROW} AS __place, {inner} FROM log_numbered) s "
            "JOIN sampled c ON c.row = s.__place ORDER BY c.row"
        )
        for j, term in enumerate(part):
            column = table.column(f"__f{j}")
            yield by_value(column) if term in categorical else by_size(numbers(column))


def by_value(column: Any) -> ColumnValues:
    """The commonest values; the others are one."""
    encoded = column.combine_chunks().dictionary_encode()
    texts = [*encoded.dictionary.cast(pa.string()).to_pylist(), "missing"]
    code = np.asarray(encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False), np.intp)
    order = np.argsort(-np.bincount(code, minlength=len(texts)), kind="stable")
    place = np.full(len(texts), VALUES)
    place[order[:VALUES]] = np.arange(min(VALUES, len(texts)))
    return ColumnValues(place[code], [*(texts[i] for i in order[:VALUES]), "any of the rarer values"])


def by_size(x: Array) -> ColumnValues:
    """Quantiles, with frequent values by themselves; what is missing is one more, the last."""
    known = np.isfinite(x)
    if not known.any():
        return ColumnValues(np.zeros(len(x), np.intp), ["missing"])
    edges = np.unique(np.quantile(x[known], np.arange(1, BINS) / BINS, method="lower"))
    of = np.where(known, np.searchsorted(edges, x, side="left"), len(edges) + 1)
    names = [f"up to {edges[0]:.4g}", *(f"above {low:.4g}" for low in edges), "missing"]
    return ColumnValues(of.astype(np.intp), names)


def numbers(column: Any) -> Array:
    """An Arrow column as doubles; NaN where nothing is."""
    return np.asarray(pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy(), np.float64)
