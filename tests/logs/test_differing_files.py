"""Parquet files that do not have the same columns, or not of the same types, read as one source."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outlay.core.errors import LogError
from outlay.logs.reading import find_parts
from outlay.logs.source import read_rows


def write(folder: Path, *files: dict[str, Any]) -> Path:
    for i, columns in enumerate(files):
        pq.write_table(pa.table(columns), folder / f"log-{i}.parquet")
    return folder / "log-*.parquet"


def read(path: Path, *names: str, **named: Any) -> list[dict[str, Any]]:
    batches = list(read_rows(path, {name: name for name in names}, **named))
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist()
    return rows


def test_numbers_keep_their_fractions(tmp_path: Path) -> None:
    path = write(tmp_path, {"spend": [1, 2]}, {"spend": [0.5, 2.5]})
    assert [row["spend"] for row in read(path, "spend")] == [1, 2, 0.5, 2.5]


def test_columns_may_stand_in_another_order(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": ["x"], "b": [1]}, {"b": [2], "a": ["y"]})
    assert read(path, "a", "b") == [{"a": "x", "b": 1}, {"a": "y", "b": 2}]


def test_a_column_without_any_value_in_a_file_has_no_type_there(tmp_path: Path) -> None:
    nothing = pa.nulls(1)
    path = write(
        tmp_path, {"a": nothing, "t": nothing}, {"a": ["y"], "t": [date(2026, 1, 2)]}, {"a": nothing, "t": nothing}
    )
    assert [row["a"] for row in read(path, "a")] == [None, "y", None]
    assert [row["t"] for row in read(path, "t")] == [None, date(2026, 1, 2), None]


def test_a_column_that_is_not_in_every_file_cannot_be_used_and_the_others_can(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": [1], "old": [1]}, {"a": [2], "new": [2]})
    assert read(path, "a") == [{"a": 1}, {"a": 2}]
    for name, here, there in (("old", 0, 1), ("new", 1, 0)):
        with pytest.raises(LogError, match=rf"column '{name}' is in .*log-{here}.parquet but not in .*log-{there}"):
            read(path, f"{name} + 1")


def test_a_column_that_is_text_in_one_file_and_a_number_in_another_cannot_be_used(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": [1], "b": [1]}, {"a": [2], "b": ["2"]})
    assert read(path, "a") == [{"a": 1}, {"a": 2}]
    with pytest.raises(LogError, match=r"'b' .*int64 .*0\.parquet .*string .*1\.parquet"):
        read(path, "b")


def test_parts_are_all_rows_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": [1, 2, 3]}, {"a": [4.5]}, {"a": [5, 6]})
    parts = find_parts(path, 2)
    assert [(part.begin, part.rows, part.first) for part in parts] == [(0, 2, 0), (2, 1, 2), (0, 1, 3), (0, 2, 4)]
    assert [row["a"] for part in parts for row in read(path, "a", part=part)] == [1, 2, 3, 4.5, 5, 6]


def test_a_file_with_a_column_of_row_numbers_is_read_whole(tmp_path: Path) -> None:
    path = write(tmp_path, {"file_row_number": [7, 8]})
    assert find_parts(path, 1) == []
    assert read(path, "file_row_number") == [{"file_row_number": 7}, {"file_row_number": 8}]
