"""Named actions get the numbers in their names, and what means nothing means nothing; decimal commas are told."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.logs.reading import quoted, without_commas
from outlay.logs.values import amounts, case_sql, means_nothing


@pytest.mark.parametrize(
    ("texts", "none", "wanted"),
    [
        (["10% off", "20% off", "none"], 0.0, {"none": 0, "10% off": 10, "20% off": 20}),
        (["10% off", "5% off", "100% off"], 0.0, {"5% off": 5, "10% off": 10, "100% off": 100}),
        (["-10%", "-5%", "0%"], 0.0, {"0%": 0, "-5%": 5, "-10%": 10}),
        (["2,50 EUR", "1,50 EUR", "0 EUR"], None, {"0 EUR": 0, "1,50 EUR": 1.5, "2,50 EUR": 2.5}),
        (["1.000 EUR", "500 EUR"], None, {"500 EUR": 500, "1.000 EUR": 1000}),
        (["$1,000.50", "$9.5"], None, {"$9.5": 9.5, "$1,000.50": 1000.5}),
        (["gate_40", "gate_30"], None, {"gate_30": 30, "gate_40": 40}),
        (["Mens E-Mail", "No E-Mail", "Womens E-Mail"], None, {"No E-Mail": 0, "Mens E-Mail": 1, "Womens E-Mail": 2}),
        (["A", "B", "control"], 1.0, {"control": 1, "A": 2, "B": 3}),
        (["big", "small"], 0.0, {"big": 1, "small": 2}),  # neither means nothing, so neither is 0
        (["10% off over 50", "9% off over 50", "no"], 0.0, {"no": 0, "9% off over 50": 1, "10% off over 50": 2}),
        (["10%", "10 EUR", "kein Gutschein"], 0.0, {"kein Gutschein": 0, "10 EUR": 1, "10%": 2}),
        (["none", "control", "5"], 0.0, {"none": 0, "control": 0, "5": 5}),
    ],
)
def test_texts_get_the_numbers_that_their_names_say(
    texts: list[str], none: float | None, wanted: dict[str, float]
) -> None:
    for order in (texts, texts[::-1]):
        found = amounts(order, none)
        assert found == wanted
        assert list(found.values()) == sorted(found.values())


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


@given(
    st.lists(st.text("abn0123.,% -", min_size=1, max_size=6), min_size=1, max_size=8, unique=True),
    st.sampled_from([None, 0.0, 2.0]),
)
def test_every_text_gets_one_number_and_only_nothing_gets_that_of_none(texts: list[str], none: float | None) -> None:
    found = amounts(texts, none)
    assert found.keys() == set(texts)
    nothing = [text for text in texts if means_nothing(text)]
    named = [found[text] for text in texts if text not in nothing]
    assert len(set(named)) == len(named)
    assert all(found[text] == (none or 0.0) for text in nothing)
    if nothing:
        assert (none or 0.0) not in named
    sql = case_sql("t", found)
    for text in texts:
        [row] = duckdb.execute(f"SELECT {sql} FROM (SELECT ? AS t)", [text]).fetchall()
        assert float(row[0]) == found[text]


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
