"""Vocabularies and distinct states, longhand against the code."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from outlay.core.schema import Encoded
from outlay.logs.encode import MAX_STATES, StateCollector
from outlay.logs.vocabulary import vocabulary


def test_values_that_are_one_text_are_counted_together() -> None:
    counts = pa.table({"value": pa.array(["3", "a", "NA", None, "b"]), "n": pa.array([2, 1, 9, 9, 2], pa.int64())})
    assert vocabulary(counts, 1).to_pylist() == ["3", "b", "a"]
    assert vocabulary(counts, 2).to_pylist() == ["3", "b"]
    numbers = pa.table({"value": pa.array([1.0, 2.5, float("nan")]), "n": pa.array([1, 5, 9], pa.int64())})
    assert vocabulary(numbers, 1).to_pylist() == ["2.5", "1"]


def random_rows(rng: np.random.Generator, rows: int, values: int) -> tuple[Encoded, np.ndarray]:
    codes = rng.integers(0, values, (rows, 2)).astype(np.int32)
    numbers = rng.choice([-0.0, 0.0, 1.5, 2.0], (rows, 2)).astype(np.float32)
    mask = np.packbits(rng.integers(0, 2, (rows, 9)).astype(bool), axis=1)
    return Encoded(codes, numbers, 0), mask


def test_states_are_the_distinct_rows_over_batches() -> None:
    rng = np.random.default_rng(0)
    column = np.zeros(3000, np.uint16)
    states = StateCollector(9, column)
    keys: list[tuple[float, ...]] = []
    index: dict[tuple[float, ...], int] = {}
    for start in range(0, 3000, 1000):
        encoded, mask = random_rows(rng, 1000, 2)
        mask[:, :] = mask[:, :] & np.array([128, 128], np.uint8)
        assert states.put(slice(start, start + 1000), encoded, mask)
        parts = zip(encoded.codes.tolist(), encoded.numbers.tolist(), mask.tolist(), strict=True)
        keys += [(*c, *(x + 0.0 for x in n), *m) for c, n, m in parts]
    for key in keys:
        index.setdefault(key, len(index))
    np.testing.assert_array_equal(column, [index[key] for key in keys])


def test_states_give_up_beyond_the_limit() -> None:
    codes = np.arange(MAX_STATES + 1, dtype=np.int32)[:, None]
    numbers = np.empty((MAX_STATES + 1, 0), np.float32)
    states = StateCollector(2, np.zeros(MAX_STATES + 1, np.uint16))
    assert states.put(slice(0, MAX_STATES), Encoded(codes[:-1], numbers[:-1], 0), None)
    assert not states.put(slice(MAX_STATES, None), Encoded(codes[-1:], numbers[-1:], 0), None)
