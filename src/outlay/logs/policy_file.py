"""A policy from outside, as a Parquet table: what it does in the rows of a log.

    user_id  day   1     1.5   2            two columns named as `user` and `time` in the campaign file (`user`, `time`
    ann      0     0.5   0.5   0.0          where those are expressions), then a column for each action, named by its
    ann      1     1.0   0.0   0.0          value, with the probability of giving it; drawn anew in every row

Rows are found by user and time; by user alone where the log has no time, and the table then needs none. Rows that are
not asked for may stand in the table; forced rows may be absent from it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.actions import ActionNames, all_named, named
from outlay.core.errors import LogError
from outlay.core.schema import user_text
from outlay.core.transitions import Transitions
from outlay.logs.events import shown
from outlay.logs.values import exactly, nearest_amounts

BATCH_ROWS = 262_144
ROUNDING = 1e-6  # by which probabilities may fail to sum to 1
PLAIN_NAME = re.compile(r"[^\W\d]\w*")

Array = NDArray[np.float64]


def read_policy(path: str | Path, data: Transitions, rows: NDArray[np.int64]) -> tuple[Array, str]:
    """The probabilities of a policy in some rows of the transitions.

    Takes 8 bytes for each row and action, and the table's rows a batch at a time.

    Args:
        path: Parquet.
        data: the transitions.
        rows: `[n]` ascending.

    Returns:
        `[n, K]`, 0 in forced rows that the table leaves out; and a hash of them, which names the policy however
        the file was written.

    Raises:
        LogError: if the file is no such table, names an action that the log does not have, leaves out a row with a
            choice, or its probabilities are none.
    """
    path = Path(path)
    wanted_names = [_names(data.campaign.log.user or "user", "user"), _names(data.campaign.log.time or "time", "time")]
    file = _open(path)
    if data.campaign.log.time is None and not {*file.schema_arrow.names[1:2]} & {*wanted_names[1]}:
        del wanted_names[1]
    columns = _columns(path, file.schema_arrow, wanted_names, data)
    names = file.schema_arrow.names[: len(wanted_names)]
    times = data.first_times()
    key, order = _keys(data, rows)
    span = int(data.users["window"].max()) + 1
    found = np.zeros((len(rows), data.num_actions))
    met = np.zeros(len(rows), np.int64)
    users = data.user_ids()
    done = 0
    for batch in _batches(path, file, [*names, *columns]):
        user = _integers(pc.index_in(user_text(batch.column(0)), users))
        day = np.zeros(len(batch), np.int64)
        if len(names) > 1:
            day = _times(path, batch.column(1), names[1], data.dates) - times[np.maximum(user, 0)]
        inside = (user >= 0) & (day >= 0) & (day < span)
        wanted = np.where(inside, user * span + day, -1)
        place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        hit = np.flatnonzero(key[place] == wanted)
        to = order[place[hit]]
        np.add.at(met, to, 1)
        for a, column in enumerate(columns):
            found[to, a] = _numbers(path, batch.column(len(names) + a), column, done)[hit]
        done += len(batch)
    _check(path, data, rows, found, met)
    return found, hashlib.sha256(found.data).hexdigest()


def _open(path: Path) -> Any:
    if not path.exists():
        raise LogError("does not exist.", file=path, where="policy", way_out="Check the path.")
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _batches(path: Path, file: Any, columns: list[str]) -> Iterator[Any]:
    try:
        yield from file.iter_batches(BATCH_ROWS, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> LogError:
    return LogError(
        f"cannot be read as Parquet ({str(error).rstrip('.')}).",
        file=path,
        where="policy",
        way_out="Give a Parquet table: user, time, then a column of probabilities for each action.",
    )


def _names(text: str, otherwise: str) -> tuple[str, ...]:
    """What a role's column may be called: what is no plain name may be an expression, or a column all the same."""
    return (text,) if PLAIN_NAME.fullmatch(text) else (otherwise, text)


def _columns(path: Path, schema: Any, names: list[tuple[str, ...]], data: Transitions) -> list[str]:
    """The column of each action, in the order of `data.actions`."""
    actions, labels = data.actions, data.campaign.names
    first, those = schema.names[: len(names)], "two columns are" if len(names) > 1 else "column is"
    if len(first) < len(names) or any(name not in allowed for name, allowed in zip(first, names, strict=True)):
        raise LogError(
            f"its first {those} {', '.join(map(repr, first)) or 'absent'}; "
            f"expected: {', '.join(repr(allowed[0]) for allowed in names)}.",
            file=path,
            where="policy",
            way_out=f"Name them as {' and '.join(('log.user', 'log.time')[: len(names)])} in the campaign file.",
        )
    given: dict[float, str] = {}
    for name in schema.names[len(names) :]:
        found = labels.value(name)
        value = float("nan") if found is None else found
        value = nearest_amounts([value], actions).get(value, value)
        if value not in actions:
            raise LogError(
                f"is not an action of this log ({_listed(actions, labels)}).",
                file=path,
                where=f"column {name!r}",
                way_out="Name each column of probabilities by its action, and leave out other columns.",
            )
        if value in given:
            raise LogError(
                f"is the same action as column {given[value]!r}.",
                file=path,
                where=f"column {name!r}",
                way_out="Keep one column for each action.",
            )
        given[value] = name
    absent = [value for value in actions if value not in given]
    if absent:
        raise LogError(
            f"has no column for {_listed(np.array(absent), labels)}.",
            file=path,
            where="policy",
            way_out="Add it, with 0 where it is never given.",
        )
    return [given[value] for value in actions]


def _listed(actions: Array, labels: ActionNames) -> str:
    if labels.labels:
        return all_named([labels.given(value) for value in actions.tolist()])
    shown = ", ".join(exactly(float(value)) for value in actions[:12])
    return f"{shown} …" if len(actions) > 12 else shown


def _keys(data: Transitions, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """User and day of the rows as one number, ascending, and the place of each in `rows`."""
    span = int(data.users["window"].max()) + 1
    key = data.user[rows].astype(np.int64) * span + data.day[rows]
    order = np.argsort(key)
    return key[order], order


def _integers(column: Any) -> NDArray[np.int64]:
    """Whole numbers of an Arrow column, −1 where it is null."""
    whole: NDArray[np.int64] = column.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return whole


def _times(path: Path, column: Any, name: str, dates: bool) -> NDArray[np.int64]:
    """Time units; a row without a time is in no log."""
    if pa.types.is_timestamp(column.type) and dates:
        column = column.cast(pa.date32(), safe=False)
    if pa.types.is_date(column.type) == dates and (dates or pa.types.is_integer(column.type)):
        whole = column.cast(pa.date32()).cast(pa.int32()) if dates else column
        known: NDArray[np.int64] = np.where(np.asarray(whole.is_valid()), _integers(whole), np.iinfo(np.int32).min)
        return known
    if pa.types.is_floating(column.type) and not dates:
        number = np.nan_to_num(column.to_numpy(zero_copy_only=False).astype(np.float64), nan=-1e9)
        if np.array_equal(number, np.rint(number)):
            whole_times: NDArray[np.int64] = number.astype(np.int64)
            return whole_times
    wanted = "dates" if dates else "whole numbers"
    raise LogError(
        f"is of type {column.type}; times of this log are {wanted}.",
        file=path,
        where=f"column {name!r}",
        way_out=f"Give {wanted}, as in the log.",
    )


def _numbers(path: Path, column: Any, name: str, first: int) -> Array:
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
        raise LogError(
            f"is of type {column.type}; probabilities are expected.",
            file=path,
            where=f"column {name!r}",
            way_out="Give numbers from 0 to 1.",
        )
    number = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    wrong = ~((number >= 0) & (number <= 1 + ROUNDING))
    if wrong.any():
        at = int(wrong.argmax())
        value = "missing" if np.isnan(number[at]) else f"{number[at]:g}"
        raise LogError(
            f"is {value} in row {first + at + 1} ({wrong.sum():,} such rows at least).",
            file=path,
            where=f"column {name!r}",
            way_out="Give a probability from 0 to 1 in every row.",
        )
    return number


def _check(path: Path, data: Transitions, rows: NDArray[np.int64], found: Array, met: NDArray[np.int64]) -> None:
    """Every row with a choice once, with a distribution over the actions allowed there."""
    free = ~np.asarray(data.forced[rows], np.bool_)
    total = found.sum(axis=1)
    beyond = np.zeros(len(rows), np.bool_)
    if data.eligible is not None:
        beyond = free & ((found > 0) & ~data.allowed(rows)).any(axis=1)

    def not_allowed(at: int) -> str:
        action = int(((found[at] > 0) & ~data.allowed(rows[at : at + 1])[0]).argmax())
        return f"gives a probability of {found[at, action]:g} to {named(data.given(action))}, which is not allowed,"

    for wrong, words, way_out in (
        (met > 1, lambda _: "has more than one row", "Keep one row for each user and time."),
        (free & (met == 0), lambda _: "has no row", "Give a row for every row of the log with a choice."),
        (
            free & (np.abs(total - 1) > ROUNDING),
            lambda at: f"has probabilities that sum to {total[at]:.6g}",
            "Make them sum to 1.",
        ),
        (beyond, not_allowed, "Choose among the eligible actions of each row."),
    ):
        if not wrong.any():
            continue
        at = int(wrong.argmax())
        raise LogError(
            f"{words(at)} for {_named(data, int(rows[at]))} ({wrong.sum():,} of the {len(rows):,} rows looked at).",
            file=path,
            where="policy",
            way_out=way_out,
        )


def _named(data: Transitions, row: int) -> str:
    """A row by its user and time."""
    user = int(data.user[row])
    time = int(data.first_times()[user] + data.day[row])
    return f"user {data.user_ids()[user].as_py()}, time {shown(time, dates=data.dates)}"
