"""The past of users as the ledger knows it, for policies that look at it and tests that draw their arms by cluster.

    past = LedgerPast(ledger, config, clock)
    past.of(loaded, summaries, users, day)               for each user, the days that the bundle looks back at
    past.first_clusters(campaign, given, first, day)     for each user, the cluster of the first decision in a test

A user's days are the rows that an export would have for them (`user_days/log_row.py`), with what is known by now: an
outcome that arrives later counts from then on. `DayValues` gives a day's action, reward, costs and features as numbers.
Reward, costs and features are SQL over the columns of the exported log. A plain column is read directly. All else is
computed by DuckDB, once for every combination of values that occurs: a query takes a millisecond, and days are much
alike. The cost of money is what was paid.
"""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from outlay.core.actions import ActionNames
from outlay.logs.source import lock
from outlay.serve.clock import Clock, date_of
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import decode_draw
from outlay.serve.deciding.features import PastDay, Summaries, value_text
from outlay.serve.deciding.loaded_bundle import LoadedBundle
from outlay.serve.ledger.ledger import DecisionRow, Ledger, LedgerError
from outlay.serve.user_days.campaign_history import (
    CampaignHistory,
    PossibleActions,
    campaign_outcome_kinds,
    expression_columns,
    money_budget,
)
from outlay.serve.user_days.log_row import FEATURE, KIND, LogLayout, outcomes_in_time, row_of_day, window_end

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
        campaign, minor = loaded.bundle.manifest.campaign, loaded.money.minor
        getters = _getters(campaign, [field.name for field in loaded.request_schema.numeric], config, minor)
        texts = _expressions(campaign, summaries.history.columns)
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


def _expressions(campaign: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """Return the SQL of each column of a history over the exported log."""
    texts = {"action": campaign["log"]["action"], "reward": campaign["log"]["reward"]}
    texts |= {each["name"]: _cost(each) for each in campaign["budget"]} | {money_budget(campaign)["name"]: _PAID}
    return [_ACTION if column == "action" else texts.get(column, column) for column in columns]


_ACTION, _PAID = "\0action", "\0paid"  # whatever the columns of the log are called


def _cost(budget: Mapping[str, Any]) -> str:
    """Return the SQL of a budget's cost, or the name of its table of what actions cost."""
    cost = budget["cost"]
    return cost if isinstance(cost, str) else f"\0cost of {budget['name']}".casefold()


def _priced(cost: Mapping[str, float], names: ActionNames) -> Getter:
    """Return how to read what a day's action costs by such a table."""
    prices = names.numbered(cost)
    return lambda day: prices.get(day.row.action, 0.0)


def _getters(campaign: Mapping[str, Any], numeric: Sequence[str], config: ServeConfig, minor: int) -> dict[str, Getter]:
    """Return how to read each column of the exported log, by its name in lower case."""
    features = [name for part in ("categorical", "numeric") for name in campaign["log"]["features"].get(part, ())]
    layout = LogLayout.begin(campaign["log"], features)
    taken = {name.casefold() for name in layout.names.values()}
    kinds = [*config.outcomes, *campaign_outcome_kinds(campaign)]
    layout = layout.with_outcomes({kind for kind in kinds if kind in config.outcomes or kind.casefold() not in taken})

    def paid(day: UserDay) -> Cell:
        return day.paid / minor

    found: dict[str, Getter] = {_ACTION: lambda day: day.row.action, _PAID: paid}
    names = ActionNames.of_file(campaign)
    found |= {_cost(b): _priced(b["cost"], names) for b in campaign["budget"] if not isinstance(b["cost"], str)}
    for role, name in layout.names.items():
        getter = (lambda day: names.logged(day.row.action)) if role == "action" else _getter(role, numeric)
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
        return lambda day: date_of(day.row.day)
    if role in ("user", *OF_DECISION):
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


class LedgerPast:
    """Reads the past of users from a ledger, and from what was known before it began."""

    def __init__(self, ledger: Ledger, config: ServeConfig, clock: Clock) -> None:
        self._ledger = ledger
        self._config = config
        self._window_end = cache(lambda day, wait_days: window_end(day, wait_days, clock))
        self._campaign: CampaignHistory | None = None
        self._values: dict[str, DayValues] = {}

    def unknown(self, loaded: LoadedBundle, summaries: Summaries) -> list[str]:
        """Return the columns of a bundle's history that the ledger does not record."""
        return self._values_of(loaded, summaries).unknown

    def of(self, loaded: LoadedBundle, summaries: Summaries, users: Sequence[str], day: int) -> list[list[PastDay]]:
        """Return the past of each user before a day number.

        Raises:
            LedgerError: if the ledger cannot be read.
        """
        history = summaries.history
        first = day - history.days
        rows, earlier = self._ledger.past(loaded.campaign, users, first, day)
        decisions: defaultdict[tuple[str, int], list[DecisionRow]] = defaultdict(list)
        for row in rows:
            decisions[row.user, row.day].append(row)
        wait_days = max(self._config.wait_days, loaded.bundle.campaign.log.longest_delay)
        days = [self._user_day(each, loaded.campaign, wait_days) for each in decisions.values()]
        found: defaultdict[str, dict[int, PastDay]] = defaultdict(dict)
        if loaded.first_past is not None:
            for user in set(users):
                known, longer = loaded.first_past.days(user, first, day)
                found[user] = {each.day: each for each in known}
                earlier |= {user} if longer else set()
        for each, values in zip(days, self._values_of(loaded, summaries).of(days), strict=True):
            found[each.row.user][each.row.day] = PastDay(each.row.day, values)
        if history.complete:  # a day without a row counts if it is after the user's first row
            for user in earlier:
                found[user][first - 1] = PastDay(first - 1, [0.0] * len(history.columns))
        return [list(found[user].values()) for user in users]

    def first_clusters(self, campaign: str, given: Sequence[tuple[str, str]], first: int, day: int) -> list[str]:
        """Return the cluster of each user in a test that draws its arms by cluster: that of the first decision in it.

        Its arm holds for the whole test, whatever later requests say, so that no user is in two arms and no cluster in
        the log has users of two.

        Args:
            campaign: that pays.
            given: users and the clusters that their requests give, in order.
            first: day number of the test's first day.
            day: number of today.

        Raises:
            LedgerError: if the ledger cannot be read.
        """
        rows, _ = self._ledger.past(campaign, {user for user, _ in given}, first, day + 1)
        known: dict[str, str] = {}
        for row in rows:
            if row.user not in known and (cluster := decode_draw(row.members).cluster) is not None:
                known[row.user] = cluster
        return [known.setdefault(user, cluster) for user, cluster in given]

    def _user_day(self, decisions: Sequence[DecisionRow], campaign: str, wait_days: int) -> UserDay:
        row = decisions[0] if len(decisions) == 1 else row_of_day(decisions, lambda *at: self._terms(campaign, *at))
        ends = self._window_end(row.day, wait_days)
        outcomes: defaultdict[str, float] = defaultdict(float)
        for each in decisions:
            for kind, value in outcomes_in_time(each, ends):
                outcomes[kind] += value
        return UserDay(row, outcomes, sum(each.paid for each in decisions))

    def _terms(self, campaign: str, bundle: str, ts: int) -> PossibleActions:
        """Return the possible actions of a bundle; the ledger's bundles are read again if one is new."""
        if self._campaign is not None:
            try:
                return self._campaign.terms(bundle, ts)
            except LedgerError:
                pass
        self._campaign = CampaignHistory(self._ledger, campaign)
        return self._campaign.terms(bundle, ts)

    def _values_of(self, loaded: LoadedBundle, summaries: Summaries) -> DayValues:
        if loaded.bundle.id not in self._values:
            self._values[loaded.bundle.id] = DayValues(loaded, summaries, self._config)
        return self._values[loaded.bundle.id]
