"""Features of single requests as numbers: what `core/schema.py` does for columns, for JSON values without Arrow.

A test compares the two on many values. Looking up a value in a dictionary takes well under a microsecond; a table of
one row would take a hundred. Dictionaries hold the most frequent values of each field, so that their memory is bounded;
the others are found in the vocabulary itself, which workers share, in one or two microseconds (`core/text_index.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.schema import CLIP, FIRST, MISSING, MISSING_TEXTS, UNKNOWN, Categorical, Schema

IN_DICTIONARIES = 1 << 17  # values of all fields together, at most: about 30 MB
Value = str | int | float | bool | None
Features = Mapping[str, Value]


class FeatureValueError(Exception):
    """A feature has a value of the wrong type.

    Attributes:
        name: the feature.
        problem: what is wrong, in words.
    """

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"the feature {name!r} {problem}")


class EncodedRow(NamedTuple):
    """The features of one request as numbers.

    Attributes:
        codes: one for each of the F categorical fields.
        numbers: two for each of the F' numeric fields: the scaled value, and 1 if it is missing.
    """

    codes: list[int]
    numbers: list[float]


class RowEncoder:
    """Encodes rows by one schema.

    Attributes:
        unknown: categorical field → how many values so far were not in its vocabulary.
        absent: field → how many rows so far lacked it.
    """

    def __init__(self, schema: Schema) -> None:
        most = IN_DICTIONARIES // max(1, len(schema.categorical))
        self._categorical = [(field.name, _codes(field, most)) for field in schema.categorical]
        self._further = [
            (i, field.name, field.code_of)
            for i, field in enumerate(schema.categorical)
            if field.buckets or len(field.values) > most
        ]
        self.unknown = {field.name: 0 for field in schema.categorical}
        self.absent = dict.fromkeys(schema.names, 0)
        self._numeric = [(field.name, field.mean, field.scale) for field in schema.numeric]

    def encode(self, features: Features) -> EncodedRow | None:
        """Return one row, or None if a feature is absent, which is not the same as a missing value (null).

        Features that the schema does not name are ignored.

        Raises:
            FeatureValueError: if a numeric feature is text.
        """
        numbers: list[float] = []
        try:
            codes = [known[type(value := features[name])].get(value, UNKNOWN) for name, known in self._categorical]
            for name, mean, scale in self._numeric:
                value = _number(name, features[name])
                if value is None:
                    numbers += (0.0, 1.0)
                else:
                    z = (value - mean) / scale
                    numbers += (CLIP if z > CLIP else -CLIP if z < -CLIP else z, 0.0)
        except KeyError as absent:
            self.absent[absent.args[0]] += 1
            return None
        for i, name, code_of in self._further:
            if codes[i] == UNKNOWN and (text := value_text(features[name])) is not None:
                codes[i] = code_of(text)
        if UNKNOWN in codes:
            for (name, _), code in zip(self._categorical, codes, strict=True):
                self.unknown[name] += code == UNKNOWN
        return EncodedRow(codes, numbers)


def _codes(field: Categorical, most: int) -> dict[type, dict[Any, int]]:
    """Return the codes of the first `most` values by JSON type: 3, 3.0 and "3" are one value, 1 and true are two."""
    texts = {value: FIRST + i for i, value in enumerate(field.values[:most].to_pylist())}
    numbers: dict[float, int] = {}
    for text, code in texts.items():
        for kind in (int, float):
            with suppress(ValueError):
                number = kind(text)
                if math.isfinite(number) and value_text(number) == text:
                    numbers[number] = code
    return {
        str: texts | dict.fromkeys(MISSING_TEXTS, MISSING),
        int: numbers,
        float: numbers,
        bool: {truth: texts[text] for text, truth in (("true", True), ("false", False)) if text in texts},
        type(None): {None: MISSING},
    }


def arrays(rows: Sequence[EncodedRow]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return codes `[N, F]` and numbers `[N, 2·F']` of N rows."""
    codes = np.array([row.codes for row in rows], np.int32).reshape(len(rows), -1)
    numbers = np.array([row.numbers for row in rows], np.float64).reshape(len(rows), -1)
    return codes, numbers.astype(np.float32)


def value_text(value: Value) -> str | None:
    """Return a JSON value as the canonical text of `core/schema.py`; None if it is missing."""
    if isinstance(value, str):
        return None if value in MISSING_TEXTS else value
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if value == int(value) else repr(value)


def _number(name: str, value: Value) -> float | None:
    if isinstance(value, str):
        if value in MISSING_TEXTS:
            return None
        raise FeatureValueError(name, f"is the text {value[:40]!r}; a number or null is expected")
    return value
