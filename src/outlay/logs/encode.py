"""Roles and features as memory-mapped columns, batch by batch; rows keep the order of the log.

A vocabulary is ordered by frequency, ties by text. Fields are grouped by the smallest integer type that holds their
codes, one matrix per type. Where the log has few distinct states, each row also gets the index of its state.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outlay.core.errors import FolderError, LogError
from outlay.core.progress import Counter
from outlay.core.schema import MISSING, Categorical, Numeric, Schema, canonical_text
from outlay.core.transitions import CODE_TYPES
from outlay.logs.reading import quoted
from outlay.logs.roles import Log
from outlay.logs.source import ROW, Term
from outlay.logs.states import StateCollector

BATCH_ROWS, BATCH_VALUES = 131_072, 8_000_000  # a batch has at most so many rows, and about so many values
AGGREGATES = 100  # numeric fields a scan
GROUPS = (
    16  # categorical fields a scan: many, because a wide log takes long to bind; few, because all are counted at once
)


class Columns:
    """The columns of a DATA folder while they are written: `columns/NAME.npy`, memory-mapped."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder / "columns"
        self.folder.mkdir()
        self.rows = rows
        self.arrays: dict[str, NDArray[Any]] = {}

    def add(self, name: str, dtype: Any, width: int | None = None) -> NDArray[Any]:
        """A new column of zeros, `[N]`, or `[N, width]`."""
        shape = (self.rows,) if width is None else (self.rows, width)
        path = self.folder / f"{name}.npy"
        if width == 0:  # nothing to map
            np.save(path, np.zeros(shape, dtype))
            self.arrays[name] = np.zeros(shape, dtype)
        else:
            self.arrays[name] = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
            _allocate(path)
        return self.arrays[name]

    def drop(self, name: str) -> None:
        """Take a column back."""
        del self.arrays[name]
        (self.folder / f"{name}.npy").unlink()

    def finish(self) -> dict[str, dict[str, Any]]:
        """Write all to disk; shape and dtype of each column."""
        facts = {name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in self.arrays.items()}
        for array in self.arrays.values():
            if isinstance(array, np.memmap):
                array.flush()
        self.arrays.clear()
        return facts


def _allocate(path: Path) -> None:
    """Take the room on the disk now: to write where a mapped file has none kills the process (SIGBUS).

    Raises:
        FolderError: if there is not enough.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        raise FolderError(f"cannot be written ({error.strerror}).", file=path,
                          way_out="Free some space, or give another path.") from None  # fmt: skip


def make_schema(log: Log, tell: Counter) -> Schema:
    """Vocabularies and scales from the rows of the log."""
    fields = []
    for i in range(0, len(log.categorical), GROUPS):
        part = log.categorical[i : i + GROUPS]
        for term, counts in zip(part, _count_values(log, part), strict=True):
            fields.append(Categorical(term.text, vocabulary(counts, log.campaign.train.min_count)))
        tell(len(part))
    numbers = []
    for i in range(0, len(log.numeric), AGGREGATES):
        part = log.numeric[i : i + AGGREGATES]
        sums = ", ".join(f"avg(v{j}), stddev_pop(v{j})" for j in range(len(part)))
        values = ", ".join(f"CASE WHEN isfinite({t.sql}) THEN {t.sql} END AS v{j}" for j, t in enumerate(part))
        row = log.source.run(f"SELECT {sums} FROM (SELECT {values} FROM log_kept)")[0]
        for j, term in enumerate(part):
            mean, spread = row[2 * j], row[2 * j + 1]
            numbers.append(Numeric(term.text, float(mean or 0), float(spread or 0) or 1.0))
    return Schema(tuple(fields), tuple(numbers))


def _count_values(log: Log, terms: Sequence[Term]) -> list[Any]:
    """For each term, an Arrow table of its values and how often they occur, all in one scan."""
    names = [f"v{j}" for j in range(len(terms))]
    values = ", ".join(f"{term.sql} AS {name}" for term, name in zip(terms, names, strict=True))
    listed, sets = ", ".join(names), ", ".join(f"({name})" for name in names)
    counts = log.source.table(
        f"SELECT {listed}, GROUPING_ID({listed}) AS which, count(*) AS n FROM (SELECT {values} FROM log_kept) "
        f"GROUP BY GROUPING SETS ({sets})"
    )
    tables = []
    for j, name in enumerate(names):  # GROUPING_ID has a bit for every column that is not grouped by, the first highest
        which = 2 ** len(names) - 1 - 2 ** (len(names) - 1 - j)
        rows = counts.filter(pc.equal(counts.column("which"), which))
        tables.append(pa.table({"value": rows.column(name), "n": rows.column("n")}))
    return tables


def vocabulary(counts: Any, min_count: int) -> tuple[str, ...]:
    """Values in order of frequency, ties by text; those in fewer than `min_count` rows are left out.

    Args:
        counts: Arrow table with the columns `value` and `n`.
        min_count: rows a value needs.
    """
    texts = pa.table({"text": canonical_text(counts.column("value")), "n": counts.column("n")})
    merged = texts.filter(pc.is_valid(texts.column("text"))).group_by("text").aggregate([("n", "sum")])
    merged = merged.filter(pc.greater_equal(merged.column("n_sum"), min_count))
    return tuple(merged.sort_by([("n_sum", "descending"), ("text", "ascending")]).column("text").to_pylist())


def write_roles(log: Log, table: str, actions: NDArray[np.float64], columns: Columns, tell: Counter) -> None:
    """Write the columns of action, outcome, propensity, forced, terminal and eligible."""
    settings = log.campaign.log
    filled = table == "completed"
    action = columns.add("action", np.uint8)
    outcome = columns.add("outcome", np.float32, 1 + len(log.costs))
    forced = columns.add("forced", np.bool_) if settings.forced or filled else None
    terminal = columns.add("terminal", np.bool_) if settings.terminal else None
    propensity = columns.add("propensity", np.float32) if settings.propensity else None
    eligible = columns.add("eligible", np.uint8, (len(actions) + 7) // 8) if settings.eligible else None
    names = ["row", "action", "reward", *log.costs, "forced", "terminal", "propensity", "eligible"]
    for batch in log.source.batches(f"SELECT {', '.join(names)} FROM {table}", BATCH_ROWS):
        at = _place(_array(batch, "row"))
        action[at] = np.searchsorted(actions, _array(batch, "action"))
        outcome[at] = np.stack([_array(batch, name) for name in ("reward", *log.costs)], axis=1)
        no_choice = _array(batch, "forced").astype(np.bool_)
        if forced is not None:
            forced[at] = no_choice
        if terminal is not None:
            terminal[at] = _array(batch, "terminal")
        if propensity is not None:
            propensity[at] = np.where(no_choice, 1.0, _array(batch, "propensity"))
        if eligible is not None:
            eligible[at] = np.packbits(_allowed(batch.column("eligible"), actions, no_choice), axis=1)
        tell(batch.num_rows)


def write_links(log: Log, columns: Columns) -> bool:
    """Write next_row, gap, day and user; whether every gap is 1."""
    index = np.int32 if columns.rows < 2**31 else np.int64
    next_row, gap = columns.add("next_row", index), columns.add("gap", np.int32)
    day, user = columns.add("day", np.int32), columns.add("user", np.uint32)
    even = True
    query = "SELECT row, id, day, coalesce(next_row, -1) AS next_row, coalesce(gap, 0) AS gap FROM links"
    for batch in log.source.batches(query, BATCH_ROWS):
        at = _place(_array(batch, "row"))
        next_row[at] = following = _array(batch, "next_row")
        gap[at] = units = _array(batch, "gap")
        day[at] = _array(batch, "day")
        user[at] = _array(batch, "id")
        even &= bool(np.all(units[following >= 0] == 1))
    return even


def write_features(
    log: Log,
    schema: Schema,
    columns: Columns,
    places: NDArray[np.int64] | None,
    num_actions: int,
    tell: Counter,
    *,
    summaries: int = 0,
) -> tuple[dict[str, list[int]], StateCollector | None]:
    """Stream the features through `Schema.encode` into code and number columns.

    Args:
        log: the log.
        schema: how to encode.
        columns: where to write.
        places: row of the log → row of the columns, where days were filled in; None: the same.
        num_actions: K.
        tell: takes the number of rows of each batch, when it is done.
        summaries: number of further numeric fields, which come later (`logs/history.py`); states are then not counted.

    Returns:
        Positions of the fields in each code column, and the distinct states (None: too many).

    Raises:
        LogError: if the log changed since its roles were read.
    """
    groups = {name: [i for i, size in enumerate(schema.sizes) if _code_type(size) == name] for name in CODE_TYPES}
    groups = {name: positions for name, positions in groups.items() if positions}
    codes = {name: columns.add(f"codes_{name}", name, len(positions)) for name, positions in groups.items()}
    numbers = columns.add("numbers", np.float32, 2 * (len(schema.numeric) + summaries))
    logged = slice(2 * len(schema.numeric))
    eligible = columns.arrays.get("eligible")
    states = None if summaries else StateCollector(num_actions, columns.add("state", np.uint16))
    if places is not None:  # days that were filled in have no features
        for array in codes.values():
            array[:] = MISSING
        numbers[:, 1 : logged.stop : 2] = 1
    terms = (*log.categorical, *log.numeric)
    chosen = ", ".join(f"{term.sql} AS {quoted(term.text)}" for term in terms)
    batch_rows = max(2048, min(BATCH_ROWS, BATCH_VALUES // max(len(terms), 1)))
    seen, total = 0, columns.rows if places is None else len(places)
    for batch in log.source.batches(f"SELECT {ROW}, {chosen} FROM log_numbered", batch_rows):
        rows = _array(batch, ROW)
        seen += len(rows)
        if seen > total or (len(rows) and rows.max() >= total):
            raise _changed(log)
        at = _place(rows if places is None else places[rows])
        encoded = schema.encode(batch, file=log.source.file)
        for name, positions in groups.items():
            codes[name][at] = encoded.codes[:, positions]
        numbers[at, logged] = encoded.numbers
        if states and not states.put(at, encoded, None if eligible is None else eligible[at]):
            states = None
        tell(batch.num_rows)
    if seen != total:
        raise _changed(log)
    if states and places is not None and not states.put_missing(schema, places, eligible):
        states = None
    if states is None and "state" in columns.arrays:
        columns.drop("state")
    return {f"codes_{name}": positions for name, positions in groups.items()}, states


def _code_type(size: int) -> str:
    return CODE_TYPES[0] if size <= 2**8 else CODE_TYPES[1] if size <= 2**16 else CODE_TYPES[2]


def _array(batch: Any, name: str) -> NDArray[Any]:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False))


def _place(rows: NDArray[Any]) -> Any:
    """An index for `rows`: a slice where they are consecutive, which writes faster."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and np.all(np.diff(rows) == 1):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _allowed(lists: Any, actions: Sequence[float] | NDArray[Any], forced: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """`[B, K]` from lists of action values. A missing list allows all, and so does an empty one in a forced row."""
    allowed = np.zeros((len(lists), len(actions)), np.bool_)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(lists)), lengths)
    values = np.asarray(lists.flatten().to_numpy(zero_copy_only=False), np.float64)
    place = np.minimum(np.searchsorted(actions, values), len(actions) - 1)
    known = np.asarray(actions)[place] == values
    allowed[rows[known], place[known]] = True
    allowed[np.asarray(pc.is_null(lists))] = True
    allowed[forced & ~allowed.any(axis=1)] = True
    return allowed


def _changed(log: Log) -> LogError:
    return LogError("gave other rows when it was read again.", file=log.source.file, where="log.source",
                    way_out="Do not write to the log while it is read, and use no random() in log.where.")  # fmt: skip
