"""Short forms of results, and their tables as data frames."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlay.core.errors import OutlayError
from outlay.core.shown import Shown


@dataclass
class Line:
    """A row."""

    name: str
    value: float | None
    more: dict[str, int] = field(default_factory=dict)


@dataclass(repr=False)
class Result(Shown):
    """A result with two tables."""

    lines: list[Line]

    def headline(self) -> str:
        """Return its words."""
        return "two <b> lines."

    def tables(self) -> dict[str, Any]:
        """Return its tables."""
        return {"empty": [], "lines": self.lines}


RESULT = Result([Line("a<b", 0.123456), Line("c", None, {"x": 1})])


def test_a_console_shows_a_line() -> None:
    assert repr(RESULT) == "Result: two <b> lines. Tables: empty (0), lines (2)."


def test_print_breaks_sentences_into_lines_of_a_screen() -> None:
    long = Result([])
    long.headline = lambda: f"It is 2.5 of 3. {'Very long ' * 12}indeed. So it is."  # type: ignore[method-assign]
    lines = str(long).splitlines()
    assert lines[0] == "Result: It is 2.5 of 3."
    assert lines[-2:] == ["So it is.", "Tables: empty (0), lines (0)."]
    assert max(map(len, lines)) <= 80
    assert "\n" not in repr(long)


def test_a_notebook_shows_the_first_table_that_has_rows_and_names_the_others() -> None:
    page = RESULT._repr_html_()
    assert "two &lt;b&gt; lines" in page
    assert "<td>a&lt;b</td><td>0.1235</td>" in page
    assert "<td>–</td>" in page
    assert ".to_pandas(&quot;empty&quot;)" in page
    long = Result([Line(str(i), i) for i in range(50)])._repr_html_()
    assert "the first 20 of 50 rows" in long
    assert long.count("<tr>") == 21


def test_tables_become_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = RESULT.to_pandas("lines")
    assert isinstance(frame, pandas.DataFrame)
    assert frame["name"].tolist() == ["a<b", "c"]
    assert frame["more"].tolist() == ["{}", '{"x": 1}']
    assert RESULT.to_arrow().num_rows == 0


def test_a_package_that_is_missing_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(OutlayError, match="polars is not installed"):
        RESULT.to_polars()


def test_an_unknown_table_is_one_error_that_names_those_there_are() -> None:
    with pytest.raises(OutlayError, match=r"has no table 'line'.*Did you mean 'lines'"):
        RESULT.to_pandas("line")
