"""The columns of a history on a user's day in the ledger: action, reward, costs and features, as an export has them.

    values = DayValues(loaded, config)
    values.of(days)                  for each day, a number per column of the history; NaN where unknown

Reward, costs and features are SQL over the columns of the exported log. A plain column is read directly. All else is
computed by DuckDB, once for every combination of values that occurs: a query takes a millisecond, and days are much
alike. The cost of money is what was paid.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from outlay.logs.source import lock
from outlay.serve.clock import EPOCH
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.features import value_text
from outlay.serve.deciding.loaded_bundle import LoadedBundle
from outlay.serve.deciding.outcome_kinds import campaign_outcome_kinds, expression_columns
from outlay.serve.deciding.past import Summaries
from outlay.serve.ledger.ledger import DecisionRow
from outlay.serve.user_days.layout import FEATURE, KIND, LogLayout

MOST = 200_000  # combinations of values that are kept
OF_DECISION = ("arm", "reason", "bundle", "episode", "member", "decision_id", "request_id")
Cell = Any  # what a column of the log holds: text, a number, a date or None
Getter = Callable[["UserDay"], Cell]

log = logging.getLogger("outlay.serve")


class UserDay(NamedTuple):
    """A user's day in the ledger.

    Attributes:
        row: the decision that is the day's row in the log.
        outcomes: kind → sum of the values of all the day's decisions.
        paid: minor units that they paid.
    """

    row: DecisionRow
    outcomes: Mapping[str, float]
    paid: int


class DayValues:
    """Computes the columns of one bundle's history.

    Attributes:
        unknown: columns that the ledger does not record, such as one of the log that is no feature.
    """

    def __init__(self, loaded: LoadedBundle, summaries: Summaries, config: ServeConfig) -> None:
        manifest, minor = loaded.bundle.manifest, loaded.money.minor
        getters = _getters(manifest, [field.name for field in loaded.request_schema.numeric], config, minor)
        texts = _expressions(manifest, summaries.history.columns)
        self._plain: dict[int, Getter] = {}
        self._computed: list[int] = []
        self.unknown: list[str] = []
        terms, needed = [], dict[str, Getter]()
        with closing(duckdb.connect()) as parser:
            for place, (column, text) in enumerate(zip(summaries.history.columns, texts, strict=True)):
                if text.casefold() in getters:
                    self._plain[place] = getters[text.casefold()]
                    continue
                names = {name.casefold(): name for name in expression_columns(parser, text)}
                if not names.keys() <= getters.keys():
                    self.unknown.append(column)
                    continue
                self._computed.append(place)
                terms.append(text)
                needed |= {names[name]: getters[name] for name in sorted(names)}
        self._width = len(texts)
        self._inputs = needed
        self._known: dict[tuple[Cell, ...], tuple[float, ...]] = {}
        self._connection = duckdb.connect(config={"threads": 1})
        lock(self._connection)
        self._query = f"SELECT {', '.join(map(_number, terms))} FROM inputs"

    def of(self, days: Sequence[UserDay]) -> list[list[float]]:
        """Return a number per column for each day."""
        values = [[math.nan] * self._width for _ in days]
        for place, getter in self._plain.items():
            for row, each in zip(values, days, strict=True):
                row[place] = _plain_number(getter(each))
        if self._computed:
            keys = [tuple(getter(each) for getter in self._inputs.values()) for each in days]
            self._compute(keys)
            for row, key in zip(values, keys, strict=True):
                for place, value in zip(self._computed, self._known[key], strict=True):
                    row[place] = value
        return values

    def _compute(self, keys: Sequence[tuple[Cell, ...]]) -> None:
        """Have the values of these combinations."""
        if len(self._known) > MOST:
            self._known.clear()
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if not new:
            return
        columns = zip(*new, strict=True)
        table = {name: _column(column) for name, column in zip(self._inputs, columns, strict=True)}
        table["__row"] = pa.array(range(len(new)))
        try:
            self._connection.register("inputs", pa.table(table))
            rows = self._connection.execute(self._query).fetchall()
        except duckdb.Error:
            log.exception("the past of users in the ledger cannot be computed")
            rows = [(None,) * len(self._computed)] * len(new)
        for key, row in zip(new, rows, strict=True):
            self._known[key] = tuple(math.nan if value is None else float(value) for value in row)


def _expressions(manifest: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """Return the SQL of each column of a history over the exported log."""
    campaign = manifest["campaign"]
    budgets = campaign["budget"]
    money = next((budget for budget in budgets if budget.get("money")), budgets[0])
    texts = {"action": campaign["log"]["action"], "reward": campaign["log"]["reward"]}
    texts |= {budget["name"]: budget["cost"] for budget in budgets} | {money["name"]: _PAID}
    return [_ACTION if column == "action" else texts.get(column, column) for column in columns]


_ACTION, _PAID = "\0action", "\0paid"  # whatever the columns of the log are called


def _getters(manifest: Mapping[str, Any], numeric: Sequence[str], config: ServeConfig, minor: int) -> dict[str, Getter]:
    """Return how to read each column of the exported log, by its name in lower case."""
    campaign = manifest["campaign"]
    features = [name for part in ("categorical", "numeric") for name in campaign["log"]["features"].get(part, ())]
    layout = LogLayout.begin(campaign["log"], features)
    taken = {name.casefold() for name in layout.names.values()}
    kinds = [*config.outcomes, *campaign_outcome_kinds(campaign)]
    layout = layout.with_outcomes({kind for kind in kinds if kind in config.outcomes or kind.casefold() not in taken})

    def paid(day: UserDay) -> Cell:
        return day.paid / minor

    found: dict[str, Getter] = {_ACTION: lambda day: day.row.action, _PAID: paid}
    for role, name in layout.names.items():
        getter = _getter(role, numeric)
        if getter is not None:
            found[name.casefold()] = paid if role == "paid" else getter
    return found


def _getter(role: str, numeric: Sequence[str]) -> Getter | None:
    """Return how to read the column of a role; None if a server does not keep it."""
    if role.startswith(KIND):
        kind = role.removeprefix(KIND)
        return lambda day: day.outcomes.get(kind, 0.0)
    if role.startswith(FEATURE):
        name = role.removeprefix(FEATURE)
        if name in numeric:
            return lambda day: _plain_number(json.loads(day.row.features).get(name), None)
        return lambda day: json.loads(day.row.features).get(name)
    if role == "time":
        return lambda day: EPOCH + datetime.timedelta(day.row.day)
    if role in ("user", "action", *OF_DECISION):
        return lambda day: getattr(day.row, role)
    return (lambda _day: None) if role == "paid" else None


def _plain_number(value: Cell, unknown: Any = math.nan) -> Any:
    """Return a value as a number; `unknown` if it is missing or none."""
    try:
        return unknown if value is None or value_text(value) is None else float(value)
    except (TypeError, ValueError):
        return unknown


def _column(values: Sequence[Cell]) -> Any:
    """Return a column as the export types it: whole numbers, numbers, or text if there is any."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2 or kinds == {int, float}:
        return pa.array([None if value is None else float(value) for value in values] if len(kinds) > 1 else values)
    return pa.array([value_text(value) for value in values])


def _number(text: str) -> str:
    """Return the SQL of an expression as a number; 1.1 as a short float is 1.1 (`logs/source.py`)."""
    sql = f"(\n{text}\n)"
    short = f"TRY_CAST(CAST({sql} AS VARCHAR) AS DOUBLE)"
    return f"CASE WHEN typeof({sql}) = 'FLOAT' THEN {short} ELSE TRY_CAST({sql} AS DOUBLE) END"
