"""What a table of rows says besides its features: its batches, its users, the actions it allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outlay.core.actions import ActionNames, all_named, named
from outlay.core.errors import LogError
from outlay.core.schema import check_single, user_text

BATCH_ROWS = 65_536  # decided at a time


def record_batches(table: Any) -> tuple[Any, Iterator[Any]]:
    """The Arrow schema of any table and its rows in batches of at most BATCH_ROWS.

    Raises:
        LogError: if it is not a table that Arrow can read.
    """
    try:
        stream = hasattr(table, "__arrow_c_stream__")
        reader = pa.RecordBatchReader.from_stream(table) if stream else pa.table(table).to_reader()
    except (TypeError, ValueError) as error:
        raise LogError(
            f"{type(table).__name__} is not a table that Arrow can read ({error}).",
            way_out="Give a pyarrow, polars or pandas table, or a DuckDB relation.",
        ) from None
    return reader.schema, _pieces(reader)


def users_of(batch: Any, name: str, *, first_row: int = 0, file: str | Path | None = None) -> Any:
    """The user column as one Arrow array: the column `name`, else `user`, else None.

    Args:
        batch: a pyarrow RecordBatch or Table.
        name: what the campaign calls a user.
        first_row: position of the batch's first row in `file`, for errors, which count from 1.
        file: what to call the table in an error.

    Raises:
        LogError: if a user is missing.
    """
    found = next((n for n in (name, "user") if n in batch.schema.names), None)
    if found is None:
        return None
    users = _flat(batch.column(found))
    check_single(found, users.type, file)
    if pa.types.is_dictionary(users.type):
        users = users.dictionary_decode()
    nameless = user_text(users).is_null().to_numpy(zero_copy_only=False)
    if nameless.any():
        raise LogError(
            "has no user.",
            file=file,
            where=f"row {first_row + int(nameless.argmax()) + 1}, column {found!r}",
            way_out="Fill it, or leave the whole column out: then every row is drawn alone.",
        )
    return users


def eligible_actions(
    batch: Any,
    name: str,
    actions: NDArray[np.float64],
    names: ActionNames,
    *,
    first_row: int = 0,
    file: str | Path | None = None,
) -> NDArray[np.bool_]:
    """Which actions each row allows.

    Args:
        batch: a pyarrow RecordBatch or Table.
        name: its list column of action values; null allows all.
        actions: `[K]` the values there are, ascending.
        names: what they are called, as the lists have them.
        first_row: position of the batch's first row in `file`, for errors, which count from 1.
        file: what to call the table in an error.

    Returns:
        `[N, K]`, at least one per row.

    Raises:
        LogError: if the column is missing or holds no lists, or a list is empty or has a value that is no action.
    """
    column = f"column {name!r}"
    lists = _lists_of_actions(batch, name, names, file)
    row = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    value = _values(lists.flatten(), names)
    index = np.searchsorted((actions[1:] + actions[:-1]) / 2, value)
    known = np.isclose(actions[index], value, rtol=1e-6, atol=0)  # single precision is near enough
    if not known.all():
        first = int(known.argmin())
        wrong = lists.flatten()[first].as_py() if names.labels else float(value[first])
        raise LogError(
            f"holds {'null' if wrong is None else named(wrong)}, which is not one of the actions "
            f"{_every(actions, names)}.",
            file=file,
            where=f"row {first_row + int(row[first]) + 1}, {column}",
            way_out="Fix the list.",
        )
    eligible = np.repeat(lists.is_null().to_numpy(zero_copy_only=False)[:, None], len(actions), axis=1)
    eligible[row, index] = True
    some = eligible.any(1)
    if not some.all():
        raise LogError(
            "allows no action.",
            file=file,
            where=f"row {first_row + int(some.argmin()) + 1}, {column}",
            way_out="Leave the row out, or list at least one value (null allows all).",
        )
    return eligible


def _values(given: Any, names: ActionNames) -> NDArray[np.float64]:
    """The numbers of actions, an Arrow array; NaN where there is no such action."""
    if not names.labels:
        return np.asarray(given.to_numpy(zero_copy_only=False), np.float64)
    known = given.unique()
    numbers = [np.nan if (value := names.allowed(each or "")) is None else value for each in known.to_pylist()]
    place: NDArray[np.int32] = pc.index_in(given, known).to_numpy(zero_copy_only=False)
    return np.array(numbers, np.float64)[place]


def _every(actions: NDArray[np.float64], names: ActionNames) -> str:
    return f"[{all_named([names.given(value) for value in actions.tolist()], len(actions))}]"


def _lists_of_actions(batch: Any, name: str, names: ActionNames, file: str | Path | None) -> Any:
    """The column as an Arrow array of lists of actions. Raises LogError if it is missing or holds no lists."""
    if name not in batch.schema.names:
        raise LogError(
            "the column of allowed actions is missing.",
            file=file,
            where=f"column {name!r}",
            way_out="Add it (a list of action values; null allows all).",
        )
    lists = _flat(batch.column(name))
    try:
        return lists.cast(pa.list_(pa.string() if names.labels else pa.float64()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise LogError(
            f"holds {lists.type}; expected lists of action values.",
            file=file,
            where=f"column {name!r}",
            way_out="Give a list column (Parquet has them).",
        ) from None


def _pieces(reader: Any) -> Iterator[Any]:
    for batch in reader:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
