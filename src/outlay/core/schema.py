"""How features become numbers: the same function for the log, for scoring and for serving.

A categorical field has a vocabulary: code 0 is padding, 1 is "missing", 2 is "unknown", then the values by frequency.
Values are compared as canonical text, so that 3, 3.0 and "3" are one value, and true is "true". A field with too many
values has buckets after its vocabulary, and every value that is not in the vocabulary gets the code of its bucket:
CRC-32 of its text in UTF-8, modulo their number.
A numeric field is centred and scaled, (x − mean) / scale, clipped to ±CLIP; a second number says
whether it was missing.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.core.text_index import TextIndex

MISSING, UNKNOWN, FIRST = 1, 2, 3  # 0 is padding
MISSING_TEXTS = ("", "NA", "NaN", "NULL")
# Made once: converting a Python value makes Arrow look for optional packages, which costs more than a small column.
_MISSING_TEXTS = pa.array(MISSING_TEXTS)
_NO_TEXT = pa.scalar(None, pa.string())
CLIP = 10.0
ROUNDING = 1e-12  # relative, of a variance from sums of squares
WHOLE = re.compile("0|-?[1-9][0-9]{0,17}")  # a whole number in canonical text
SPAN = 1 << 20  # of whole numbers whose codes are kept in one array, at most


@dataclass(frozen=True)
class Categorical:
    """A field with a vocabulary.

    Attributes:
        name: the column.
        values: `[V]` Arrow string array of canonical texts, most frequent first: `values[i]` has code `FIRST + i`. Any
            sequence of texts may be given.
        buckets: number of codes for all other values, after those of `values`.
        index: finds one value; made when it is needed, unless it is given.
    """

    name: str
    values: Any
    buckets: int = 0
    index: TextIndex | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.values, pa.Array):
            object.__setattr__(self, "values", pa.array(self.values, pa.string()))

    @property
    def size(self) -> int:
        """How many codes there are, the three special ones and the buckets included."""
        return FIRST + len(self.values) + self.buckets

    def other(self, text: str) -> int:
        """Code of a text that is not among the values: that of its bucket, or UNKNOWN where there are none."""
        return FIRST + len(self.values) + zlib.crc32(text.encode()) % self.buckets if self.buckets else UNKNOWN

    @cached_property
    def code_of(self) -> Callable[[str], int]:
        """Code of one canonical text. The first access makes the index if none was given."""
        index = self.index or TextIndex.of(self.values)

        def code(text: str) -> int:
            place = index.find(text)
            return self.other(text) if place < 0 else FIRST + place

        return code

    @cached_property
    def whole(self) -> tuple[int, NDArray[np.int32]] | None:
        """The values that are whole numbers, for look-ups: a number below all of them, and codes from it to above all.

        None where there are none, or they lie too far apart. Numbers that are not among the values have UNKNOWN.
        """
        code = {int(text): FIRST + i for i, text in enumerate(self.values.to_pylist()) if WHOLE.fullmatch(text)}
        if not code or max(code) - min(code) > SPAN:
            return None
        below = min(code) - 1
        table = np.full(max(code) - below + 2, UNKNOWN, np.int32)
        table[np.fromiter(code, np.int64) - below] = list(code.values())
        return below, table


@dataclass(frozen=True)
class Numeric:
    """A field with a scale: (x − mean) / scale."""

    name: str
    mean: float
    scale: float


@dataclass(frozen=True)
class Encoded:
    """Rows as numbers.

    Attributes:
        codes: `[N, F]` int32, a column per categorical field.
        numbers: `[N, 2·F']` float32, for each numeric field its scaled value and 1 where it was missing.
        unknown: rows × fields with a value that the vocabulary does not know.
    """

    codes: NDArray[np.int32]
    numbers: NDArray[np.float32]
    unknown: int


@dataclass(frozen=True)
class Schema:
    """The fields of a state, in the order of the campaign file."""

    categorical: tuple[Categorical, ...]
    numeric: tuple[Numeric, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Feature columns, categorical first."""
        return tuple(f.name for f in self.categorical) + tuple(f.name for f in self.numeric)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Codes per categorical field."""
        return tuple(field.size for field in self.categorical)

    def encode(self, table: Any, *, file: str | Path | None = None) -> Encoded:
        """Encode rows.

        Args:
            table: a pyarrow Table or RecordBatch with the feature columns (others are ignored).
            file: what to call the table in an error.

        Raises:
            LogError: if a feature column is missing, or a numeric one holds text.
        """
        present = set(table.schema.names)
        for name in self.names:
            if name not in present:
                raise LogError(
                    "the feature column is missing.",
                    file=file,
                    where=f"column {name!r}",
                    way_out=f"Add it (empty where unknown). Columns found: {', '.join(table.schema.names)}.",
                )
        count = table.num_rows
        codes = np.empty((count, len(self.categorical)), np.int32)
        numbers = np.empty((count, 2 * len(self.numeric)), np.float32)
        unknown = 0
        for i, field in enumerate(self.categorical):
            values = table.column(field.name)
            check_single(field.name, values.type, file)
            codes[:, i] = column = codes_of(field, values)
            unknown += int(np.count_nonzero(column == UNKNOWN))
        for i, scale in enumerate(self.numeric):
            value, missing = numbers_of(scale, table.column(scale.name), file)
            numbers[:, 2 * i] = value
            numbers[:, 2 * i + 1] = missing
        return Encoded(codes, numbers, unknown)

    def write(self, path: Path) -> None:
        """Write as vocabulary.parquet: a row per value (categorical) or per field (numeric)."""
        fields = self.categorical
        places = [np.arange(len(f.values), dtype=np.int64) for f in fields]
        names = pa.array([f.name for f in fields], pa.string())
        of_field = np.repeat(np.arange(len(fields)), [len(each) for each in places])
        categorical = pa.table(
            {
                "field": names.take(pa.array(of_field)),
                "kind": pa.repeat("categorical", len(of_field)),
                "code": FIRST + np.concatenate([*places, np.empty(0, np.int64)]),
                "value": pa.concat_arrays([*(f.values for f in fields), pa.array([], pa.string())]),
            }
        )
        numeric = pa.table(
            {
                "field": pa.array([f.name for f in self.numeric], pa.string()),
                "kind": pa.repeat("numeric", len(self.numeric)),
                "mean": pa.array([f.mean for f in self.numeric], pa.float64()),
                "scale": pa.array([f.scale for f in self.numeric], pa.float64()),
            }
        )
        facts = {b"categorical": "\n".join(f.name for f in fields).encode()}
        if buckets := {f.name: f.buckets for f in fields if f.buckets}:
            facts[b"buckets"] = json.dumps(buckets).encode()
        table = pa.concat_tables([categorical, numeric], promote_options="default").combine_chunks()
        pq.write_table(table.replace_schema_metadata(facts), path)

    @classmethod
    def read(cls, path: Path) -> Schema:
        """Read vocabulary.parquet."""
        table = pq.read_table(path)
        facts = table.schema.metadata or {}
        names = [n for n in facts.get(b"categorical", b"").decode().split("\n") if n]
        buckets = json.loads(facts.get(b"buckets", b"{}"))
        kinds = table.column("kind")
        rows = table.filter(pc.equal(kinds, "categorical"))
        of_field = pc.index_in(rows.column("field"), pa.array(names, pa.string())).to_numpy()
        ends = np.searchsorted(of_field, np.arange(len(names) + 1))  # the values of a field lie together
        values = pa.concat_arrays([*rows.column("value").chunks, pa.array([], pa.string())])
        categorical = (
            Categorical(name, values[start:end], buckets.get(name, 0))
            for name, (start, end) in zip(names, pairwise(ends), strict=True)
        )
        numeric = table.filter(pc.equal(kinds, "numeric")).select(["field", "mean", "scale"]).to_pylist()
        return cls(tuple(categorical), tuple(Numeric(row["field"], row["mean"], row["scale"]) for row in numeric))


def check_single(name: str, kind: Any, file: str | Path | None) -> None:
    """Raise LogError if the rows of a column hold lists, structures or maps, by its Arrow type."""
    if pa.types.is_nested(kind):
        raise LogError(
            f"is of type {kind}; a single value per row is expected.",
            file=file,
            where=f"column {name!r}",
            way_out="Give one value in each row (empty where unknown).",
        )


def scale_of(count: float, total: float, squares: float) -> tuple[float, float]:
    """Mean and standard deviation of a field from the number of its known values, their sum and that of their squares.

    0 and 1 where there are none, 1 where they do not vary.
    """
    mean = total / max(count, 1)
    variance = squares / max(count, 1) - mean * mean
    return float(mean), float(np.sqrt(variance)) if variance > ROUNDING * (1 + mean * mean) else 1.0


def canonical_text(column: Any) -> Any:
    """Values as canonical text (Arrow string array): whole numbers without a point, booleans lower case, null kept.

    The texts in `MISSING_TEXTS` become null.
    """
    text = _as_text(column)
    return pc.if_else(pc.is_in(text, _MISSING_TEXTS), _NO_TEXT, text)


def user_text(column: Any) -> Any:
    """User ids as canonical text. Only an empty text is null: a user may be called NA."""
    text = _as_text(column)
    return pc.if_else(pc.equal(text, ""), _NO_TEXT, text)


def _as_text(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        wide = column.cast(pa.float64())
        array = np.asarray(wide.to_numpy(zero_copy_only=False), np.float64)
        finite = array[np.isfinite(array)]
        if np.all(finite == np.rint(finite)) and np.all(np.abs(finite) < 2**62):
            column = pa.array(np.where(np.isfinite(array), array, 0).astype(np.int64), mask=~np.isfinite(array))
        else:
            column = pa.array(
                [None if not np.isfinite(x) else (str(int(x)) if x == int(x) else repr(float(x))) for x in array],
                pa.string(),
            )
    elif pa.types.is_decimal(column.type):
        return _as_text(column.cast(pa.float64()))
    return column.cast(pa.string())


def codes_of(field: Categorical, column: Any) -> NDArray[np.int32]:
    """`[N]` codes of a field's values, an Arrow column."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if _fits_int64(column.type) and field.whole is not None:
        below, table = field.whole
        numbers = pc.fill_null(column, 0).to_numpy().astype(np.int64)
        codes: NDArray[np.int32] = np.take(
            table, numbers - below, mode="clip"
        )  # the ends of the table stand for all beyond
        if column.null_count:
            codes[np.asarray(column.is_null())] = MISSING
        if field.buckets:
            rest = np.flatnonzero(codes == UNKNOWN)
            codes[rest] = _by_text(field, pa.array(numbers[rest]))
        return codes
    return _by_text(field, column)


def _fits_int64(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) and not pa.types.is_uint64(kind))


def _by_text(field: Categorical, column: Any) -> NDArray[np.int32]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()  # values are few: each is turned into text and looked up once
    text = canonical_text(column.dictionary)
    place = pc.index_in(text, field.values)
    known = _filled(place, UNKNOWN - FIRST) + FIRST
    if field.buckets:
        rest = np.flatnonzero(known == UNKNOWN)
        known[rest] = [0 if one is None else field.other(one) for one in text.take(pa.array(rest)).to_pylist()]
    of_value = np.where(np.asarray(text.is_null()), MISSING, known)
    # One more entry, for rows whose value is null itself.
    return np.append(of_value, MISSING)[_filled(column.indices, len(of_value))].astype(np.int32)


def _filled(integers: Any, nulls: int) -> NDArray[np.int64]:
    """An Arrow integer array as NumPy, nulls replaced."""
    array = np.full(len(integers), nulls, np.int64)
    valid = np.asarray(integers.is_valid())
    array[valid] = np.asarray(integers.drop_null())
    return array


def numbers_of(field: Numeric, column: Any, file: str | Path | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """`[N]` scaled values of a field, an Arrow column, and where they are missing.

    Raises:
        LogError: if it holds text.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.if_else(pc.is_in(column, _MISSING_TEXTS), _NO_TEXT.cast(column.type), column)
    try:
        wide = column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise LogError(
            f"holds text where numbers are expected ({error}).",
            file=file,
            where=f"column {field.name!r}",
            way_out="List it under categorical, or fix the values.",
        ) from None
    array = np.asarray(wide.to_numpy(zero_copy_only=False), np.float64)
    missing = ~np.isfinite(array)
    with np.errstate(over="ignore"):  # a value near the largest float may become infinite, and is clipped
        scaled = (np.where(missing, field.mean, array) - field.mean) / field.scale
    return np.clip(scaled, -CLIP, CLIP), missing
