"""The one table layout of the terminal: no line is wider than a screen, and nothing is cut off or left out."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import too_wide
from outlay.cli.console import WIDTH, show, table
from outlay.pages.tables import Cell, Table, numbers, row, words

WORD = st.text(alphabet="abcdefg/._-", min_size=1, max_size=40)
CELL = st.lists(WORD, min_size=1, max_size=6).map(" ".join)


def printed(*arguments: object, **options: object) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        table(*arguments, **options)  # type: ignore[arg-type]
    return out.getvalue()


@given(st.integers(1, 9).flatmap(lambda n: st.lists(st.lists(CELL, min_size=n, max_size=n), min_size=2, max_size=5)))
@settings(max_examples=60, deadline=None)
def test_no_line_is_wider_than_a_screen_and_every_letter_is_there(cells: list[list[str]]) -> None:
    heads, *rows = cells
    found = printed("", heads, rows)
    assert max(map(len, found.splitlines())) <= WIDTH
    for line in rows:
        for cell in line:
            assert not set(re.sub(r"\s", "", cell)) - set(found)


def test_columns_that_do_not_fit_follow_below_with_the_first_one_again() -> None:
    heads = ["arm", *(f"metric_number_{i}" for i in range(9))]
    found = printed("wide", heads, [["new", *(123_456.7 + i for i in range(9))], ["old", *(7.0 for _ in range(9))]])
    assert not too_wide(found)
    assert found.count("arm") == found.count("new") > 1
    for i in range(9):
        assert f"metric_number_{i}" in re.sub(r"\s", "", found) or f"number_{i}" in found
    blocks = found.split("\n\n")
    assert len(blocks) == found.count("arm")
    assert printed("wide", heads, [["new", *range(9)]], screen=False).count("arm") == 1


def test_a_table_that_fits_is_as_it_was() -> None:
    assert printed("", ["a", "b"], [["x", 1.5], ["yy", 20]]).splitlines() == [
        "  a       b",
        "  x    1.50",
        "  yy     20",
    ]


def test_words_that_span_columns_are_broken_too() -> None:
    long = "not shown: " + "a reason of many words " * 8
    columns = (*words("metric"), *numbers("control", "treatment", "difference"))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show(Table("", columns, (row("active", "1", "2", "3"), row("redemption", Cell(long, span=3)))))
    assert not too_wide(out.getvalue())
    assert " ".join(out.getvalue().split()).count("a reason of many words") >= 7


@pytest.mark.parametrize("path", ["/a/very/long/path/" + "x" * 120])
def test_a_word_longer_than_the_screen_is_broken_last(path: str) -> None:
    assert not too_wide(printed("", ["what", "where"], [["bundle", path]]))
