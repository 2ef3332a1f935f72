"""Roles and features as memory-mapped columns, batch by batch; rows keep the order of the log.

Fields are grouped by the smallest integer type that holds their codes, one matrix per type. `encode_block` encodes the
features of a block of rows, and needs no more than its arguments and the files they name. Where the log has few
distinct states, each row also gets the index of its state: what a counted model and a lookup policy are made of.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from outlay.core.errors import FolderError
from outlay.core.files import map_array
from outlay.core.journal import Journal
from outlay.core.parallel import Mapper
from outlay.core.progress import Counter
from outlay.core.schema import MISSING, Encoded, Schema, codes_of, numbers_of
from outlay.core.transitions import CODE_TYPES
from outlay.logs.blocks import VALUES, Block, FeatureFiles
from outlay.logs.roles import Log

MAX_STATES = 4096  # beyond, a log has no state index
BATCH_ROWS = 131_072  # rows of a batch of roles or links, at most
STRIP, FIELDS = 512, 256  # rows and fields written at once
SAVE_SECONDS = 5.0  # between two times that what is done is put on disk for good


class StateCollector:
    """The distinct states met so far. A state is codes, numbers and the set of allowed actions.

    Rows are told apart by a random 64-bit sum of their parts, and compared in full with the state they hash to.
    """

    def __init__(self, num_actions: int, column: NDArray[Any]) -> None:
        self.num_actions, self.column = num_actions, column
        self.keys = np.empty(0, np.uint64)  # ascending
        self.index = np.empty(0, np.int64)  # of the state with that key
        self.parts: NDArray[np.uint32] | None = None  # `[S, P]` codes, numbers (as bits) and mask bytes
        self.fields = 0
        self.factors = np.empty(0, np.uint64)

    def put(self, at: Any, encoded: Encoded, mask: NDArray[np.uint8] | None) -> bool:
        """Give each row its state; False if there are more than MAX_STATES."""
        if mask is None:
            mask = np.packbits(np.ones((len(encoded.codes), self.num_actions), np.bool_), axis=1)
        bits = np.ascontiguousarray(encoded.numbers + np.float32(0)).view(np.uint32)  # + 0: −0 is 0
        parts = np.concatenate([encoded.codes.astype(np.uint32), bits.reshape(len(mask), -1), mask], axis=1)
        if self.parts is None:
            self.parts, self.fields = parts[:0], encoded.codes.shape[1]
            self.factors = np.random.default_rng(0).integers(1, 2**64, parts.shape[1], np.uint64, endpoint=False)
        keys = np.zeros(len(parts), np.uint64)
        for j, factor in enumerate(self.factors):
            word = (parts[:, j].astype(np.uint64) + np.uint64(1)) * factor
            keys += word ^ (word >> np.uint64(29))
        if not self._learn(keys, parts):
            return False
        state = self.index[np.searchsorted(self.keys, keys)]
        if not np.array_equal(self.parts[state], parts):  # two states, one key: give up rather than be wrong
            return False
        self.column[at] = state
        return True

    def _learn(self, keys: NDArray[np.uint64], parts: NDArray[np.uint32]) -> bool:
        place = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        new = np.flatnonzero(self.keys[place] != keys) if len(self.keys) else np.arange(len(keys))
        found, first = np.unique(keys[new], return_index=True)
        if len(self.keys) + len(found) > MAX_STATES:
            return False
        rows = np.sort(new[first])  # in order of first appearance
        assert self.parts is not None
        index = np.concatenate([self.index, len(self.parts) + np.arange(len(rows))])
        every = np.concatenate([self.keys, keys[rows]])
        order = np.argsort(every)
        self.keys, self.index = every[order], index[order]
        self.parts = np.concatenate([self.parts, parts[rows]])
        return True

    def write(self, folder: Path) -> int:
        """Write state_codes.npy, state_numbers.npy and state_allowed.npy; how many states there are."""
        assert self.parts is not None
        width = (self.num_actions + 7) // 8
        codes, mask = self.parts[:, : self.fields], self.parts[:, self.parts.shape[1] - width :]
        numbers = np.ascontiguousarray(self.parts[:, self.fields : self.parts.shape[1] - width]).view(np.float32)
        np.save(folder / "state_codes.npy", codes.astype(np.int32))
        np.save(folder / "state_numbers.npy", numbers)
        allowed = np.unpackbits(mask.astype(np.uint8), axis=1, count=self.num_actions).astype(np.bool_)
        np.save(folder / "state_allowed.npy", allowed)
        return len(codes)


class Columns:
    """The columns of a DATA folder while they are written: `columns/NAME.npy`, memory-mapped."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder / "columns"
        self.folder.mkdir(exist_ok=True)
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

    def open(self, name: str) -> NDArray[Any]:
        """A column of an earlier try."""
        self.arrays[name] = map_array(self.folder / f"{name}.npy", "r+")
        return self.arrays[name]

    def sync(self) -> None:
        """Put what was written on disk, so that it is there after a loss of power."""
        for array in self.arrays.values():
            if isinstance(array, np.memmap):
                array.flush()

    def drop(self, name: str) -> None:
        """Take a column back."""
        del self.arrays[name]
        (self.folder / f"{name}.npy").unlink()

    def finish(self) -> dict[str, dict[str, Any]]:
        """Write all to disk; shape and dtype of each column."""
        facts = {name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in self.arrays.items()}
        self.sync()
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
        raise FolderError(
            f"cannot be written ({error.strerror}).", file=path, way_out="Free some space, or give another path."
        ) from None


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


@dataclass(frozen=True)
class Encoding:
    """How a block of features becomes rows of the columns of DATA.

    Attributes:
        files: where the features lie.
        schema: how to encode.
        folder: of the columns, which are there already.
        groups: code column → positions of its fields.
        places: a .npy of the row of the columns for each row of the log, where days were filled in; None: the same.
    """

    files: FeatureFiles
    schema: Schema
    folder: Path
    groups: Mapping[str, Sequence[int]]
    places: Path | None

    @classmethod
    def of(cls, schema: Schema, files: FeatureFiles, folder: Path, places: Path | None) -> Encoding:
        """The fields of a schema in columns by the smallest integer type that holds their codes."""
        groups = {name: [i for i, size in enumerate(schema.sizes) if _code_type(size) == name] for name in CODE_TYPES}
        return cls(
            files, schema, folder, {f"codes_{name}": fields for name, fields in groups.items() if fields}, places
        )

    def rows(self, block: Block) -> Any:
        """An index for the rows of a block in the columns."""
        rows = slice(block.first, block.first + block.rows)
        return rows if self.places is None else _place(map_array(self.places, "r")[rows])

    def filled(self, count: int) -> NDArray[np.int64]:
        """The rows of the columns, of `count`, that the log lacks."""
        if self.places is None:
            return np.empty(0, np.int64)
        lacking = np.ones(count, np.bool_)
        lacking[map_array(self.places, "r")] = False
        return np.flatnonzero(lacking)


def encode_block(encoding: Encoding, block: Block) -> None:
    """Write the codes and numbers of a block of rows into the memory-mapped columns; to do it again changes nothing.

    Raises:
        LogError: if the file has changed, or cannot be read.
    """
    rows, schema = encoding.rows(block), encoding.schema
    for name, positions in encoding.groups.items():
        column = map_array(encoding.folder / f"{name}.npy", "r+")
        codes = np.empty((min(len(positions), FIELDS), block.rows), column.dtype)
        for j, (f, values) in enumerate(encoding.files.read(block, positions), 1):
            codes[(j - 1) % FIELDS] = codes_of(schema.categorical[f], values)
            if j % FIELDS == 0 or j == len(positions):
                begin = (j - 1) // FIELDS * FIELDS
                _write_rows(column, rows, slice(begin, j), codes[: j - begin])
    first = len(schema.categorical)
    if schema.numeric:
        column = map_array(encoding.folder / "numbers.npy", "r+")
        for f, values in encoding.files.read(block, range(first, first + len(schema.numeric))):
            pair = numbers_of(schema.numeric[f - first], values, block.file)
            _write_rows(column, rows, slice(2 * (f - first), 2 * (f - first) + 2), np.stack(pair).astype(np.float32))


def _write_rows(column: NDArray[Any], rows: Any, fields: slice, values: NDArray[Any]) -> None:
    """Write `values` `[f, B]` to some fields of some rows, in strips that the processor's caches hold."""
    count = values.shape[1]
    for start in range(0, count, STRIP):
        strip = slice(start, min(start + STRIP, count))
        at = slice(rows.start + strip.start, rows.start + strip.stop) if isinstance(rows, slice) else rows[strip]
        column[at, fields] = values[:, strip].T


def write_features(
    encoding: Encoding,
    blocks: Sequence[Block],
    columns: Columns,
    tell: Counter,
    *,
    over: Mapper,
    done: Journal,
    summaries: int = 0,
) -> None:
    """Encode the features into code and number columns, block by block; blocks that are done already are left.

    Args:
        encoding: how, and where the features lie.
        blocks: of all rows.
        columns: where to write.
        tell: takes the number of rows of each block, when it is done.
        over: maps a function over blocks.
        done: which blocks are done.
        summaries: number of further numeric fields, which come later (`logs/past_days.py`).

    Raises:
        LogError: if the log has changed, or cannot be read.
    """
    schema, groups = encoding.schema, encoding.groups
    left = [block for block in blocks if _name(block) not in done]
    if len(left) < len(blocks):
        for name in (*groups, "numbers"):
            columns.open(name)
        tell(sum(block.rows for block in blocks) - sum(block.rows for block in left))
    else:
        for name, fields in groups.items():
            columns.add(name, name.removeprefix("codes_"), len(fields))
        columns.add("numbers", np.float32, 2 * (len(schema.numeric) + summaries))
    finished: list[Block] = []
    saved = time.monotonic()
    for block, _ in zip(left, over(partial(encode_block, encoding), left), strict=True):
        finished.append(block)
        tell(block.rows)
        if time.monotonic() - saved > SAVE_SECONDS:
            columns.sync()
            done.add(*map(_name, finished))
            finished, saved = [], time.monotonic()
    _carry_on(encoding, columns)


def _carry_on(encoding: Encoding, columns: Columns) -> None:
    """Give days that were filled in the features of the user's last row, with all numbers marked as missing.

    So a day off is known from a day with a row, and a user who is away is still known for who they are. Without numbers
    there is nothing to mark, and the fields stay missing.
    """
    count, filled = len(encoding.schema.numeric), encoding.filled(columns.rows)
    # A run of filled rows follows the row that it carries on: a user's first row is in the log.
    begins = np.flatnonzero(np.diff(filled, prepend=-1) > 1)
    last = np.repeat(filled[begins] - 1, np.diff(begins, append=len(filled)))
    for start in range(0, len(filled), BATCH_ROWS):
        rows, of = filled[start : start + BATCH_ROWS], last[start : start + BATCH_ROWS]
        for name in encoding.groups:
            columns.arrays[name][rows] = columns.arrays[name][of] if count else MISSING
        kept = columns.arrays["numbers"][of, : 2 * count]
        kept[:, 1::2] = 1
        columns.arrays["numbers"][rows, : 2 * count] = kept


def find_states(
    encoding: Encoding, blocks: Sequence[Block], columns: Columns, num_actions: int
) -> StateCollector | None:
    """The distinct states of the encoded rows, and a column of each row's; None: too many.

    Args:
        encoding: how the features were encoded.
        blocks: of all rows.
        columns: with codes, numbers and eligible actions.
        num_actions: K.
    """
    schema, eligible = encoding.schema, columns.arrays.get("eligible")
    states = StateCollector(num_actions, columns.add("state", np.uint16))
    size = max(2048, min(BATCH_ROWS, VALUES // max(len(schema.names), 1)))
    for rows in [*(encoding.rows(block) for block in blocks), _place(encoding.filled(columns.rows))]:
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        for start in range(0, count, size):
            stop = min(start + size, count)
            at = slice(rows.start + start, rows.start + stop) if isinstance(rows, slice) else rows[start:stop]
            codes = np.empty((stop - start, len(schema.categorical)), np.int32)
            for name, positions in encoding.groups.items():
                codes[:, positions] = columns.arrays[name][at]
            seen = Encoded(codes, columns.arrays["numbers"][at], 0)
            if not states.put(at, seen, None if eligible is None else eligible[at]):
                columns.drop("state")
                return None
    return states


def _name(block: Block) -> str:
    """What a block is called among those that are done."""
    return f"rows {block.first} to {block.first + block.rows}"


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
