from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from outlay.bundles.vocabulary import KEPT, shared_schema
from outlay.core.schema import Categorical, Numeric, Schema


def schema(values: int = 1_000) -> Schema:
    texts = tuple(f"é{value}" for value in range(values))
    return Schema(
        (Categorical("many", texts, 7), Categorical("few", ("a", "1")), Categorical("none", ())),
        (Numeric("x", 0.1, 3.0), Numeric("y", 1e-300, 1.0)),
    )


def written(folder: Path, values: int = 1_000) -> bytes:
    schema(values).write(folder / "vocabulary.parquet")
    return (folder / "vocabulary.parquet").read_bytes()


def test_the_shared_schema_is_the_bundles(tmp_path: Path) -> None:
    content = written(tmp_path)
    first, second = (shared_schema(content, tmp_path / "shared") for _ in range(2))
    assert first == second == schema() == Schema.read(tmp_path / "vocabulary.parquet")
    many = second.categorical[0]
    assert [many.code_of(text) for text in ("é0", "é999")] == [3, 1002]
    assert many.code_of("other") == schema().categorical[0].other("other")
    table = pa.table(
        {"many": ["é5", None, "new"], "few": [1, 1, 2], "none": ["a"] * 3, "x": [1.0] * 3, "y": [None] * 3}
    )
    assert np.array_equal(second.encode(table).codes, schema().encode(table).codes)


def test_values_are_in_the_mapped_file_and_not_in_the_memory_of_the_process(tmp_path: Path) -> None:
    content = written(tmp_path, 300_000)
    shared_schema(content, tmp_path / "shared")
    before = pa.total_allocated_bytes()
    shared = shared_schema(content, tmp_path / "shared")
    assert pa.total_allocated_bytes() - before < 10_000
    assert sum(buffer.size for buffer in shared.categorical[0].values.buffers() if buffer) > 3_000_000
    before = pa.total_allocated_bytes()
    own = Schema.read(pa.BufferReader(content))
    assert pa.total_allocated_bytes() - before > 3_000_000
    assert own == shared


def test_a_folder_that_cannot_be_written_leaves_each_process_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = written(tmp_path)
    (tmp_path / "shared").write_text("a file")
    with caplog.at_level(logging.WARNING):
        assert shared_schema(content, tmp_path / "shared") == schema()
    assert "not shared with other workers" in caplog.text


def test_vocabularies_of_bundles_long_out_of_use_go_away(tmp_path: Path) -> None:
    shared = [shared_schema(written(tmp_path, values), tmp_path / "shared") for values in range(1, KEPT + 4)]
    assert len(list((tmp_path / "shared").iterdir())) == KEPT
    assert shared[0].categorical[0].code_of("é0") == 3  # what a process has mapped stays
