"""Rows of Parquet and CSV read alike, in file order, with clear errors."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outlay.core.errors import LogError
from outlay.logs.source import read_rows


def rows(path: Path, expressions: dict[str, str], **options: Any) -> Any:
    return pa.Table.from_batches(list(read_rows(path, expressions, **options)))


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.csv.gz"])
def test_missing_values_are_missing_in_every_format(tmp_path: Path, name: str) -> None:
    texts, numbers = ["a", "NA", "", "NULL", "NaN", "b"], [1.5, float("nan"), 2.0, None, 3.0, float("nan")]
    path = tmp_path / name
    if name == "rows.parquet":
        pq.write_table(pa.table({"t": texts, "x": numbers}), path)
    else:
        lines = "\n".join(
            f"{t},{'' if x is None else 'NaN' if x != x else x}" for t, x in zip(texts, numbers, strict=True)
        )
        with pa.CompressedOutputStream(path, "gzip") if name.endswith(".gz") else path.open("wb") as handle:
            handle.write(f"t,x\n{lines}\n".encode())
    table = rows(path, {"t": "t", "x": "x", "double": "x * 2"})
    assert table.column("t").to_pylist() == ["a", None, None, None, None, "b"]
    assert table.column("x").to_pylist() == [1.5, None, 2.0, None, 3.0, None]
    assert table.column("double").to_pylist() == [3.0, None, 4.0, None, 6.0, None]


def test_rows_keep_their_order_over_files_and_row_groups(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(300_000)
    for i, part in enumerate(np.split(order, 3)):
        pq.write_table(pa.table({"n": part}), tmp_path / f"part{i}.parquet", row_group_size=7_000)
    batches = list(read_rows(tmp_path / "*.parquet", {"n": "n"}, batch_rows=10_000))
    assert np.array_equal(np.concatenate([batch.column("n").to_numpy() for batch in batches]), order)
    assert max(batch.num_rows for batch in batches) <= 12_288


def test_optional_columns_are_left_out_where_they_do_not_resolve(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "rows.parquet")
    table = rows(tmp_path / "rows.parquet", {"a": "a"}, optional={"user": "user_id", "b": "a + 1"})
    assert table.column_names == ["a", "b"]


def test_a_column_is_meant_before_an_expression(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "a + 1": [7, 8]}), tmp_path / "rows.parquet")
    assert rows(tmp_path / "rows.parquet", {"x": "a + 1", "y": "a + 2"}).to_pydict() == {"x": [7, 8], "y": [3, 4]}


def test_a_late_fraction_does_not_break_a_csv_column_of_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x\n" + "1\n" * 50_000 + "0.5\n")
    assert rows(path, {"x": "x"}).column("x").to_pylist()[-1] == 0.5


def test_only_dates_with_the_year_first_are_dates_in_a_csv(tmp_path: Path) -> None:
    """03/04/2027 is a day of April or of March, as the other rows happen to allow."""
    path = tmp_path / "rows.csv"
    path.write_text("us,de,iso\n03/04/2027,01.03.2027,2027-03-01\n03/05/2027,02.03.2027,2027-03-02\n")
    found = rows(path, {"us": "us", "de": "de", "iso": "iso"}).to_pydict()
    assert (found["us"][0], found["de"][0]) == ("03/04/2027", "01.03.2027")
    assert found["iso"][0] == datetime.date(2027, 3, 1)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("costumer", r"rows\.parquet, column 'x'.*'costumer'.*'customer'"),
        ("customer + 1 +", "nor SQL that fits.*Fix the expression. Columns: customer, word, order value"),
        ("order valu", "nor SQL that fits.*Did you mean 'order value'"),
        ("sum(customer)", "one value per row"),
        ("1; select 2", "';'"),
        ("nosuch(customer)", "nor SQL that fits"),
        ("cast(word as integer)", "cannot be read.*x1"),
    ],
)
def test_a_column_that_cannot_be_read_is_named(tmp_path: Path, expression: str, message: str) -> None:
    columns = {"customer": [1, 2], "word": ["x1", "x2"], "order value": [1, 2]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(LogError, match=message):
        rows(tmp_path / "rows.parquet", {"x": expression})


def test_unreadable_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        rows(tmp_path / "rows.parquet", {"x": "x"})
    with pytest.raises(LogError, match="matches no file"):
        rows(tmp_path / "*.parquet", {"x": "x"})
    with pytest.raises(LogError, match="is a folder"):
        rows(tmp_path, {"x": "x"})
    (tmp_path / "rows.pickle").write_text("x")
    with pytest.raises(LogError, match="extension"):
        rows(tmp_path / "rows.pickle", {"x": "x"})
    (tmp_path / "rows.parquet").write_text("no parquet")
    with pytest.raises(LogError, match=r"rows\.parquet.*cannot be read"):
        rows(tmp_path / "rows.parquet", {"x": "x"})
