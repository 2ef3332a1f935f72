"""Named actions get the numbers in their names, and what means nothing means nothing; decimal commas are told."""

from __future__ import annotations

import duckdb
import pytest

from outlay.logs.reading import quoted, without_commas
from outlay.logs.values import means_nothing


@pytest.mark.parametrize(
    "text", ["none", "No", "NONE", "no offer", "Control", "control group", "holdout", "ohne", "0%", "-"]
)
def test_some_texts_mean_nothing(text: str) -> None:
    assert means_nothing(text)


@pytest.mark.parametrize(
    "text", ["Nova", "Northern", "10% off", "controlled release", "noon", "1) $0 - $100", "none of 3"]
)
def test_others_do_not(text: str) -> None:
    assert not means_nothing(text)


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["0,1", "12,50", "3"], [0.1, 12.5, 3.0]),
        (["1.234,5", "-2,25"], [1234.5, -2.25]),
        (["1,234", "2,500"], None),  # thousands, perhaps
        (["0,1", "x"], None),
        (["0,1", "0.5"], None),  # both kinds
        (["1", "2"], None),
    ],
)
def test_decimal_commas_become_numbers(texts: list[str], wanted: list[float] | None) -> None:
    connection = duckdb.connect()
    connection.execute('CREATE TABLE log AS SELECT unnest(?) AS "how much"', [texts])

    def run(sql: str) -> list[tuple[object, ...]]:
        return list(connection.execute(sql).fetchall())

    sql = without_commas(run, "log", quoted("how much"), quoted("how much"))
    assert (sql is None) == (wanted is None)
    if sql is not None:
        assert [value for (value,) in run(f"SELECT {sql} FROM log")] == wanted
