"""How a result looks where a person looks at it: a line in a console, a table in a notebook, a data frame.

@dataclass(frozen=True, repr=False)
class Found(Shown):
def headline(self) -> str: ...
def tables(self) -> Mapping[str, Sequence[Any]]: ...      # rows are dataclasses, the first table is shown

>>> result                      # Found: 140,000 rows of 20,000 users … Tables: findings (2), effects (6)
>>> result.to_pandas("effects")
"""

from __future__ import annotations

import copy
import html
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from importlib import import_module
from textwrap import wrap
from typing import Any, TypeVar

import pyarrow as pa

from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError, nearest
from outlay.core.machine import optional

ROWS = 20  # of a table in a notebook
DIGITS = 4  # of a number there
SENTENCES = ("words", "message", "way_out", "condition", "check", "question", "note")  # fields of results
SENTENCE_END, WIDTH = re.compile(r"(?<=[.?!]) (?=[A-Z0-9])"), 80
R = TypeVar("R")


class Shown(ABC):
    """A result with a short form, and tables that become data frames."""

    __slots__ = ()

    @abstractmethod
    def headline(self) -> str:
        """What it says, in a sentence or two."""

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """Its tables by name; their rows are dataclasses."""
        return {}

    def _columns(self, row: Any) -> dict[str, Any]:
        """The columns of a row of its tables: by default its fields."""
        return asdict(row)

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} ({len(rows)})" for name, rows in self.tables().items())
        return f"{type(self).__name__}: {self.headline()}{f' Tables: {listed}.' if listed else ''}"

    def __str__(self) -> str:
        """For `print`: each sentence on lines of its own, no wider than a screen."""
        return "\n".join(part for each in SENTENCE_END.split(repr(self)) for part in wrap(each, WIDTH))

    def _repr_html_(self) -> str:
        """For notebooks: the headline, and the first rows of the first table."""
        tables = self.tables()
        parts = [f"<p><b>{type(self).__name__}</b>: {html.escape(self.headline())}</p>"]
        name = next((name for name, rows in tables.items() if rows), None)
        if name is not None:
            table = self.to_arrow(name)
            head = "".join(f"<th>{html.escape(column)}</th>" for column in table.column_names)
            rows = "".join(
                f"<tr>{''.join(f'<td>{html.escape(_cell(value))}</td>' for value in row.values())}</tr>"
                for row in table.slice(0, ROWS).to_pylist()
            )
            more = f", the first {ROWS} of {table.num_rows} rows" if table.num_rows > ROWS else ""
            parts.append(f"<p>{name}{more}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
        listed = ", ".join(f'.to_pandas("{each}")' for each in tables if each != name)
        if listed:
            parts.append(f"<p>More: {html.escape(listed)}</p>")
        return "".join(parts)

    def to_arrow(self, table: str | None = None) -> Any:
        """One of the tables as a pyarrow Table; columns that hold more than a value are JSON.

        Args:
            table: its name; None: the first.

        Raises:
            OutlayError: if there is no such table.
        """
        tables = self.tables()
        name = next(iter(tables), "") if table is None else table
        if name not in tables:
            found = f"has no table {name!r}." if tables else "has no tables."
            raise OutlayError(found, where=type(self).__name__, way_out=nearest(name, tables, "Tables"))
        rows = [{key: _value(value) for key, value in self._columns(row).items()} for row in tables[name]]
        return pa.Table.from_pylist(rows) if rows else pa.table({})

    def to_pandas(self, table: str | None = None) -> Any:
        """The same as a pandas DataFrame; needs pandas."""
        _needed("pandas")
        return self.to_arrow(table).to_pandas()

    def plot(self, what: str | None = None) -> Any:
        """A chart of the result (Altair), for notebooks; needs the extra report.

        Args:
            what: which one, where there are several; None: the first.

        Raises:
            OutlayError: if there is no such chart.
        """
        with optional():
            plots = import_module("outlay.pages.plots")  # above this floor: loaded only when it is asked for
        return plots.plot(self, what)

    def to_polars(self, table: str | None = None) -> Any:
        """The same as a polars DataFrame; needs polars."""
        return _needed("polars").from_arrow(self.to_arrow(table))


def _needed(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise OutlayError(f"{package} is not installed.", way_out=f"Install it: pip install {package}.") from None


def _value(value: Any) -> Any:
    """A value as a column holds it."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list | tuple) else value


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def told_in(result: R, campaign: Campaign) -> R:
    """A result with its sentences in the unit of time of a log (`Campaign.timed`); names and figures stay."""
    return result if campaign.unit == "day" else _told(result, campaign.timed)


def _told(value: Any, told: Callable[[str], str]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for name in (field.name for field in fields(value)):
            each = getattr(value, name)
            said = told(each) if name in SENTENCES and isinstance(each, str) else _told(each, told)
            object.__setattr__(changed, name, said)  # also of what is frozen, or made from other fields
        return changed
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return tuple(_told(each, told) for each in value)
    return value
