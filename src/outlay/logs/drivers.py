"""What the actions of a log go with, although the campaign file says that they do not.

Every column of the log is looked at, whatever the campaign file lists, and the calendar. For a row i with a choice and
an action a,

    e_ia = s_a·(1[a_i = a] / p_i − 1[a allowed])    propensities p stated; s_a: share of the action
    e_ia = 1[a_i = a] − q_a(features)               else; q: shares given the features, found from other users

has mean 0, given all that was known before the draw, if the propensities are true, or if nothing beside the features
drives the actions. For the values v of a column (numbers, dates and times: spans of them)

    T = Σ_v (Σ_{i: x_i = v} e_ia)² / (n_v σ²) / d     d = Σ_{user, v} (Σ e_ia)² / Σ e_ia² ≥ 1

is χ² with V − 1 degrees of freedom; d, the design effect of Kish (1965), allows for users who keep an action. A column
counts if that is beyond chance and the dependence (η, corrected for bias) is not negligible, as in `randomisation.py`.
Where the action hangs on the one before beyond all that and the calendar, what followed yesterday's action looks like a
cause of today's: then only the first rows of users are looked at. An action that by its propensities had no chance in
some rows may come more rarely anywhere, and is left out.

Not looked at: columns by which the campaign file names the user, the action, outcomes, propensities or kinds of rows; a
column that the action determines, alone or with the features (its name, its probability); and without stated
propensities the features, which may drive the actions. With them, features are looked at: right propensities are those
given the features.

Source: Rosenbaum and Rubin (1984) for balance as a check of propensities; the rest: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.sparse import csr_array
from scipy.special import chdtrc

from outlay.core.assignment import Assignment, Driver, Role
from outlay.core.history import History
from outlay.logs.columns import PARSED
from outlay.logs.quality import Facts
from outlay.logs.randomisation import CHANCE, STRONG, WEAK
from outlay.logs.reading import quoted, used
from outlay.logs.roles import Log
from outlay.logs.sampled import CELLS, SAMPLE, Array, ColumnValues, Index, by_size, by_value, draw, features_of, numbers
from outlay.logs.source import NUMBERS, ROW
from outlay.ops.intervals import BY_CHANCE

MOST_ACTIONS = 20  # the commonest
EXPECTED = 20  # times that each action comes, and does not, in a cell: rarer values are put together
FEWEST = 100  # rows with a choice
LEAST = 1e-9  # propensity: of smaller ones the inverse has a square that a float does not hold
COPY = 0.01  # of a column's variety that the action leaves: below, the column is the action
MOST_FEATURES = 20  # that shares are found from: those that the action goes with most
JOINT_ROWS = 100  # for each joint value of the strongest features
FOLDS = 5  # of users
DATE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|^20\d{6}$"  # how a text that is a time begins
FORMATS = "['%d/%m/%Y', '%m/%d/%Y', '%d.%m.%Y', '%Y/%m/%d', '%d-%m-%Y', '%Y%m%d']"  # besides those of SQL


@dataclass(frozen=True)
class _Spans:
    """The cells of a column; where they are in order, the last is what is missing, and the others have their ends."""

    cells: ColumnValues
    low: tuple[str, ...] = ()
    high: tuple[str, ...] = ()

    def called(self, those: list[int]) -> str:
        """The name of a few cells together."""
        if not self.low:
            texts = [self.cells.names[v] for v in those]
            return repr(texts[0]) if len(texts) == 1 else f"any of {len(texts)} rarer values"
        spans = [v for v in those if v < len(self.low)]
        if not spans:
            return "missing"
        low, high = self.low[spans[0]], self.high[spans[-1]]
        return low if low == high else f"from {low} to {high}"


def assignment(log: Log, facts: Facts) -> Assignment:
    """Look at a linked log (tables `roles`, `users`, `links`) in which there was a choice.

    Stated propensities that cannot be used are errors of their own: nothing is looked at then.
    """
    stated = log.campaign.log.propensity is not None
    if stated and facts.propensities is None:
        return Assignment(True, 0, ())
    features = {term.text for term in (*log.categorical, *log.numeric)}
    columns: dict[str, Role] = dict.fromkeys(_unnamed(log), "column")
    if stated:
        columns |= {name: "feature" for name in features if name in log.source.columns}
    rows = _SampledChoices.of(log, facts, first=False)
    if len(rows.action) < FEWEST:
        return Assignment(stated, 0, ())
    if rows.kept:
        rows = _SampledChoices.of(log, facts, first=True)
    tests = (1 + len(columns)) * len(rows.actions)
    found = [_driver(rows, "log.time", "calendar", _in_order(rows.time, _shown_time(log)), tests)]
    for (name, role), (spans, dated) in zip(columns.items(), _cells(log, list(columns)), strict=True):
        if dated or not _copy(rows, spans.cells):
            found.append(_driver(rows, name, role, spans, tests))
    drivers = sorted((each for each in found if each is not None), key=lambda each: -each.strength)
    drivers = [replace(each, action=log.campaign.given(float(each.action))) for each in drivers]
    return Assignment(stated, 1 + len(columns), tuple(drivers))


@dataclass(frozen=True)
class _SampledChoices:
    """r sampled rows with a choice.

    Attributes:
        actions: `[K]` the commonest ones.
        action, before: `[r]`; `before` that of the user's row before, NaN without one.
        unit: `[r]` number of the user or cluster.
        time: `[r]`.
        surplus: `[r, K]` e of the module's docstring.
        joint: `[r]` joint value of the features that the action goes with most; 0 where propensities are stated.
        supported: `[K]` whether an action had a chance in every row that allows it.
        events: `[K]` for each row, how many equally weighted ones that tell of the action: its share or that of the
            others, whichever is less, and fewer where weights differ.
    """

    actions: Array
    action: Array
    before: Array
    unit: Index
    time: Array
    surplus: Array
    joint: Index
    supported: NDArray[np.bool_]
    events: Array

    @classmethod
    def of(cls, log: Log, facts: Facts, *, first: bool) -> _SampledChoices:
        """Draw the table `sampled`, the same every time; of the first rows of users alone if `first`."""
        unit = "u.id" if log.campaign.log.cluster is None else "hash(r.cluster) % 4611686018427387904"
        common = sorted((a for a in facts.actions if a.choices), key=lambda a: -a.choices)[:MOST_ACTIONS]
        actions = np.array([a.value for a in common], np.float64)
        allowed = ", ".join(
            f"coalesce(list_contains(r.eligible, {a!r}), true) AS allowed{k}" for k, a in enumerate(actions.tolist())
        )
        columns = f'r.action, r.propensity, r."time", b.action AS before, CAST({unit} AS BIGINT) AS unit, {allowed}'
        table = draw(log, columns, where=log.choice_of("r"), first=first)
        action, propensity, before, time = (
            numbers(table.column(name)) for name in ("action", "propensity", "before", "time")
        )
        unit_of = np.unique(np.asarray(table.column("unit")), return_inverse=True)[1]
        given = action[:, None] == actions
        may = np.stack([numbers(table.column(f"allowed{k}")) for k in range(len(actions))], axis=1)
        joint = np.zeros(len(action), np.intp)
        supported, events = np.ones(len(actions), np.bool_), np.minimum(given.mean(axis=0), 1 - given.mean(axis=0))
        if log.campaign.log.propensity is not None:
            propensity = np.maximum(propensity, LEAST)
            weighted = given / propensity[:, None]
            error = np.sqrt((given * ((1 - propensity) / propensity**2)[:, None]).sum(axis=0))
            supported = (weighted - may).sum(axis=0) > -BY_CHANCE * error
            surplus = given.mean(axis=0) * (weighted - may)
            square = np.maximum((weighted**2).mean(axis=0) * given.mean(axis=0), 1e-300)
            events = np.minimum(events, given.mean(axis=0) * weighted.mean(axis=0) ** 2 / square)
        else:
            patterns = ColumnValues(np.unique(may, axis=0, return_inverse=True)[1].ravel(), [])
            cells = features_of(log, [*log.categorical, *log.numeric])
            share, joint = _shares(given, [patterns, *cells], unit_of)
            surplus = given - share
        return cls(actions, action, before, unit_of, time, surplus, joint, supported, np.maximum(events, 1e-9))

    @property
    def kept(self) -> bool:
        """Whether the action hangs on the one before, beyond propensities or features, and beyond the calendar.

        Where it goes by weekday, yesterday's action says which day it is.
        """
        later = np.isfinite(self.before)
        if later.sum() < FEWEST:
            return False
        of = np.unique(self.before[later], return_inverse=True)[1].ravel()
        pair = _pairs(of, self.unit[later])
        when = by_size(self.time).of
        off = [e - _mean_by(when, e)[when] for e in self.surplus.T]
        found = [_dependence(each[later], of, pair) for each in off]
        return any(strength > STRONG and p_value < CHANCE for strength, p_value in found)


def _mean_by(of: Index, e: Array) -> Array:
    """`[V]` mean of e `[r]` in each cell; 0 in one without rows."""
    mean: Array = np.bincount(of, e) / np.maximum(np.bincount(of), 1)
    return mean


def _unnamed(log: Log) -> list[str]:
    """Columns of the log of which the campaign file says nothing."""
    of, history = log.campaign.log, History.of(log.campaign)
    texts = [of.user, of.time, of.action, of.reward, of.propensity, of.forced, of.eligible, of.terminal, *of.outcomes]
    texts += [
        text for budget in log.campaign.budgets for text in (budget.cost, budget.reserve) if isinstance(text, str)
    ]
    texts += [*of.features.names, *of.delays]
    if of.events is not None:
        texts += [of.events.decision]
    if history is not None:
        texts += [*history.columns, *history.names]
    named = {name for text in texts if text is not None for name in used(text, list(log.source.columns))}
    opaque = ("BLOB", "BIT")
    return [name for name, kind in log.source.columns.items() if name not in named and not kind.startswith(opaque)]


def _cells(log: Log, names: list[str]) -> Iterator[tuple[_Spans, bool]]:
    """The sampled values of columns, and whether they are times; text that holds times or numbers counts as such."""
    size = CELLS // SAMPLE
    for i in range(0, len(names), size):
        part = names[i : i + size]
        chosen = ", ".join(f"{quoted(name)} AS c{j}" for j, name in enumerate(part))
        log.source.run(
            f"CREATE OR REPLACE TEMP TABLE looked_at AS SELECT {ROW} AS place, {chosen} FROM log_numbered "
            f"WHERE {ROW} IN (SELECT row FROM sampled)"
        )
        kinds = [log.source.columns[name].split("(")[0] for name in part]
        read = ", ".join(_readings(f"c{j}", kind) for j, kind in enumerate(kinds))
        table = log.source.table(f"SELECT {read} FROM looked_at ORDER BY place")
        for j in range(len(part)):
            yield _read(
                {name[len(f"c{j}_") :]: table.column(name) for name in table.column_names if name.startswith(f"c{j}_")}
            )


def _readings(column: str, kind: str) -> str:
    """SQL of a column of some DuckDB type as seconds, as a number and as text: what it may be."""
    moment, text = f"TRY_CAST({column} AS TIMESTAMP)", f"CAST({column} AS VARCHAR) AS {column}_text"
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return f"epoch({moment}) AS {column}_seconds"
    if kind in NUMBERS and kind != "BOOLEAN":
        return f"CAST({column} AS DOUBLE) AS {column}_number"
    if kind == "VARCHAR":
        moment = f"coalesce({moment}, TRY_STRPTIME({column}, {FORMATS}))"
        moment = f"CASE WHEN regexp_matches({column}, '{DATE}') THEN {moment} END"
        return f"epoch({moment}) AS {column}_seconds, TRY_CAST({column} AS DOUBLE) AS {column}_number, {text}"
    return text


def _read(readings: dict[str, Any]) -> tuple[_Spans, bool]:
    """The first reading that nearly all values have."""
    text = readings.get("text")
    known = 0 if text is None else PARSED * max(1, len(text) - text.null_count)
    for what, show in (("seconds", _shown_date), ("number", "{:.6g}".format)):
        if what in readings:
            read = numbers(readings[what])
            if np.isfinite(read).sum() >= known:
                return _in_order(read, show), what == "seconds"
    return _Spans(by_value(text)), False


def _in_order(x: Array, show: Callable[[float], str]) -> _Spans:
    """Numbers `[r]` as spans, with their ends in words."""
    cells = by_size(x)
    low, high = np.full(len(cells.names), np.inf), np.full(len(cells.names), -np.inf)
    known = np.isfinite(x)
    np.minimum.at(low, cells.of[known], x[known])
    np.maximum.at(high, cells.of[known], x[known])
    ends = [tuple(show(float(value)) if np.isfinite(value) else "" for value in part[:-1]) for part in (low, high)]
    return _Spans(cells, *ends)


def _shown_date(seconds: float) -> str:
    moment = str(np.datetime64(round(seconds), "s")).replace(
        "T", " "
    )  # of any year: logs have dates such as 99999-01-01
    return moment.removesuffix(" 00:00:00") if seconds % 86_400 == 0 else moment[:-3]


def _shown_time(log: Log) -> Callable[[float], str]:
    return lambda time: str(log.when(round(time)))


def _copy(rows: _SampledChoices, cells: ColumnValues) -> bool:
    """Whether the action, given the features, says nearly all of a column."""
    known = np.argmax(rows.action[:, None] == rows.actions, axis=1) + len(rows.actions) * rows.joint
    pair, count = np.unique(known * len(cells.names) + cells.of, return_counts=True)
    commonest = np.zeros(int(known.max()) + 1, np.intp)
    np.maximum.at(commonest, pair // len(cells.names), count)
    alone = len(known) - int(np.bincount(cells.of).max())
    return alone > 0 and len(known) - int(commonest.sum()) <= COPY * alone


def _driver(rows: _SampledChoices, name: str, role: Role, spans: _Spans, tests: int) -> Driver | None:
    """What an action does with a column, the calendar or a feature, if any does; the strongest."""
    found: list[Driver] = []
    pairs: dict[bytes, Index] = {}  # of unit and cell, by how cells are put together
    for k in np.flatnonzero(rows.supported):
        e = rows.surplus[:, k]
        group, names = _merged(spans, int(np.ceil(EXPECTED / rows.events[k])))
        of = group[spans.cells.of]
        if (pair := pairs.get(group.tobytes())) is None:
            pair = pairs.setdefault(group.tobytes(), _pairs(of, rows.unit))
        strength, p_value = _dependence(e, of, pair)
        if strength >= WEAK and p_value < CHANCE / tests:
            count = np.bincount(of, minlength=len(names))
            off = _mean_by(of, e)
            z = (off - e.mean()) * np.sqrt(count)
            high, low = int(z.argmax()), int(z.argmin())
            found.append(
                Driver(
                    name,
                    role,
                    float(rows.actions[k]),
                    names[high],
                    float(off[high]),
                    names[low],
                    float(-off[low]),
                    strength,
                    p_value,
                )
            )
    return max(found, key=lambda each: (round(each.strength, 6), float(each.action)), default=None)


def _merged(spans: _Spans, least: int) -> tuple[Index, list[str]]:
    """`[V]` which of fewer cells, of at least `least` rows, each cell goes into; and their names.

    Spans join their neighbours; rare values are one.
    """
    count = np.bincount(spans.cells.of, minlength=len(spans.cells.names))
    group, sizes = np.full(len(count), -1), list[int]()
    members: list[list[int]] = []
    order = np.arange(len(count)) if spans.low else np.argsort(-count, kind="stable")
    for v in order:
        if count[v] == 0:
            continue
        if not members or sizes[-1] >= least:
            members.append([])
            sizes.append(0)
        members[-1].append(int(v))
        sizes[-1] += int(count[v])
    if len(members) > 1 and sizes[-1] < least:
        last = members.pop()
        members[-1] += last
    for g, those in enumerate(members):
        group[those] = g
    return group, [spans.called(those) for those in members]


def _shares(given: NDArray[np.bool_], features: list[ColumnValues], unit: Index) -> tuple[Array, Index]:
    """`[r, K]` the share of each action given features, by a ridge regression on users of other folds.

    The features that the action goes with most enter by their joint values as long as those are frequent, the others
    by their own. Also `[r]`, the joint values.
    """
    strengths = []
    for cells in features:
        pair = _pairs(cells.of, unit)
        strengths.append(max(_dependence(each.astype(np.float64), cells.of, pair)[0] for each in given.T))
    chosen = [int(f) for f in np.argsort(strengths)[::-1][:MOST_FEATURES] if strengths[f] > 0]
    joint, blocks = np.zeros(len(given), np.intp), list[Index]()
    for f in chosen:
        of = features[f].of
        _, tried = np.unique(joint * (int(of.max()) + 1) + of, return_inverse=True)
        if tried.max() + 1 <= len(given) // JOINT_ROWS:
            joint = tried
        else:
            blocks.append(of)
    blocks.insert(0, joint)
    starts = np.cumsum([0, *(int(of.max()) + 1 for of in blocks)])
    places = np.stack([of + start for of, start in zip(blocks, starts, strict=False)], axis=1)
    ends = np.arange(len(given) + 1) * len(blocks)
    X = csr_array((np.ones(places.size), places.ravel(), ends), (len(given), int(starts[-1])))
    share, fold = np.empty(given.shape), unit % FOLDS
    for k in range(FOLDS):
        seen, others = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        if not len(seen) or not len(others):
            share[seen] = given.mean(axis=0)
            continue
        mean = given[others].mean(axis=0)
        part = X[others]
        gram = (part.T @ part).toarray() + np.eye(X.shape[1])  # as if each value had one more row, of the mean
        share[seen] = mean + X[seen] @ solve(gram, part.T @ (given[others] - mean), assume_a="pos")
    return share, joint


def _pairs(of: Index, unit: Index) -> Index:
    """`[r]` number of each row's pair of unit and cell."""
    pair: Index = np.unique(unit * (int(of.max()) + 1) + of, return_inverse=True)[1]
    return pair


def _dependence(e: Array, of: Index, pair: Index) -> tuple[float, float]:
    """η of a surplus `[r]` by cell `[r]`, corrected for bias, and the chance of as much, with errors by unit.

    Args:
        e: the surplus.
        of: cell of each row.
        pair: of cell and unit, of each row.
    """
    e = e - e.mean()
    total = float((e**2).sum())
    count = np.bincount(of)
    freedom = int((count > 0).sum()) - 1
    if freedom < 1 or total <= 0:
        return 0.0, 1.0
    between = float((np.bincount(of, e)[count > 0] ** 2 / count[count > 0]).sum()) * len(e) / total
    design = max(1.0, float((np.bincount(pair, e) ** 2).sum()) / total)
    strength = float(np.sqrt(max(0.0, between - design * freedom) / len(e)))
    return strength, float(chdtrc(freedom, between / design))
