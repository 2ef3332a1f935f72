"""How features become numbers: the same function for the log, for scoring and for serving.

A categorical field has a vocabulary: code 0 is padding, 1 is "missing", 2 is "unknown", then the values by frequency.
Values are compared as canonical text, so that 3, 3.0 and "3" are one value, and true is "true".
A numeric field is centred and scaled, (x − mean) / scale, clipped to ±CLIP; a second number says
whether it was missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.errors import LogError

MISSING, UNKNOWN, FIRST = 1, 2, 3  # 0 is padding
MISSING_TEXTS = ("", "NA", "NaN", "NULL")
# Made once: converting a Python value makes Arrow look for optional packages, which costs more than a small column.
_MISSING_TEXTS = pa.array(MISSING_TEXTS)
_NO_TEXT = pa.scalar(None, pa.string())
CLIP = 10.0
ROUNDING = 1e-12  # relative, of a variance from sums of squares


@dataclass(frozen=True)
class Categorical:
    """A field with a vocabulary. `values[i]` (canonical text) has code `FIRST + i`."""

    name: str
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many codes there are, the three special ones included."""
        return FIRST + len(self.values)

    @cached_property
    def value_set(self) -> Any:
        """The values as an Arrow array, for look-ups."""
        return pa.array(self.values, pa.string())


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
            codes[:, i] = column = _codes(field, table.column(field.name))
            unknown += int(np.count_nonzero(column == UNKNOWN))
        for i, scale in enumerate(self.numeric):
            value, missing = _numbers(scale, table.column(scale.name), file)
            numbers[:, 2 * i] = value
            numbers[:, 2 * i + 1] = missing
        return Encoded(codes, numbers, unknown)

    def write(self, path: Path) -> None:
        """Write as vocabulary.parquet: a row per value (categorical) or per field (numeric)."""
        rows: list[dict[str, object]] = [
            {"field": f.name, "kind": "categorical", "code": FIRST + i, "value": value, "mean": None, "scale": None}
            for f in self.categorical
            for i, value in enumerate(f.values)
        ]
        rows += [
            {"field": f.name, "kind": "numeric", "code": None, "value": None, "mean": f.mean, "scale": f.scale}
            for f in self.numeric
        ]
        columns = {"field": pa.string(), "kind": pa.string(), "code": pa.int64(), "value": pa.string(),
                   "mean": pa.float64(), "scale": pa.float64()}  # fmt: skip
        fields = pa.schema(columns.items(), {b"categorical": "\n".join(f.name for f in self.categorical).encode()})
        pq.write_table(pa.Table.from_pylist(rows, fields), path)

    @classmethod
    def read(cls, path: Path) -> Schema:
        """Read vocabulary.parquet."""
        table = pq.read_table(path)
        names = [n for n in (table.schema.metadata or {}).get(b"categorical", b"").decode().split("\n") if n]
        values: dict[str, list[str]] = {name: [] for name in names}
        numeric = []
        for row in table.to_pylist():
            if row["kind"] == "categorical":
                values[row["field"]].append(row["value"])
            else:
                numeric.append(Numeric(row["field"], row["mean"], row["scale"]))
        return cls(tuple(Categorical(name, tuple(v)) for name, v in values.items()), tuple(numeric))


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
            column = pa.array([None if not np.isfinite(x) else (str(int(x)) if x == int(x) else repr(float(x)))
                               for x in array], pa.string())  # fmt: skip
    elif pa.types.is_decimal(column.type):
        return _as_text(column.cast(pa.float64()))
    return column.cast(pa.string())


def _codes(field: Categorical, column: Any) -> NDArray[np.int32]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()  # values are few: each is turned into text and looked up once
    text = canonical_text(column.dictionary)
    place = pc.index_in(text, field.value_set)
    known = _filled(place, UNKNOWN - FIRST) + FIRST
    of_value = np.where(np.asarray(text.is_null()), MISSING, known)
    # One more entry, for rows whose value is null itself.
    return np.append(of_value, MISSING)[_filled(column.indices, len(of_value))].astype(np.int32)


def _filled(integers: Any, nulls: int) -> NDArray[np.int64]:
    """An Arrow integer array as NumPy, nulls replaced."""
    array = np.full(len(integers), nulls, np.int64)
    valid = np.asarray(integers.is_valid())
    array[valid] = np.asarray(integers.drop_null())
    return array


def _numbers(field: Numeric, column: Any, file: str | Path | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
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
            f"holds text where numbers are expected ({error}).", file=file, where=f"column {field.name!r}",
            way_out="List it under categorical, or fix the values.",
        ) from None  # fmt: skip
    array = np.asarray(wide.to_numpy(zero_copy_only=False), np.float64)
    missing = ~np.isfinite(array)
    with np.errstate(over="ignore"):  # a value near the largest float may become infinite, and is clipped
        scaled = (np.where(missing, field.mean, array) - field.mean) / field.scale
    return np.clip(scaled, -CLIP, CLIP), missing
