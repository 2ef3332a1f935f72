"""What the columns of a log do, on some of its rows: which go together, which are constant per user, which look back.

    association   Cramér's V of two columns, without what chance gives; 0 where chance explains it
    constant      one value in all rows of a user who has several
    lag of y      x in the user's next row is y in this one: x is known before, y happens after
    adds up y     x in the user's next row is x + y
    calibrated    Σ 1/p over the rows with a value is the number of rows: p is the probability of that value
    only where    y varies, but is one value in all rows with one value of a: y follows from a

Numbers are cut into at most eight spans. A log of more than 20,000 rows is looked at in part, by whole users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from outlay.logs.columns import FEW, PAIRS, ScannedColumn
from outlay.logs.reading import quoted
from outlay.logs.source import NO_CATEGORY, Source

ROWS = 20_000  # that are looked at
SPANS = 8  # of a number
BY_CHANCE = 1e-4  # an association below this p-value is one
MOST_ARMS = 12  # actions of which one may be nothing
CALIBRATED = 0.1  # relative, or four standard errors: how far Σ 1/p may be off

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Evidence:
    """Some rows of a log, by user and time.

    Attributes:
        codes: column → `[n]` its value as a code from 0.
        values: column → `[n]` its numbers, NaN where missing; texts: their codes.
        user: `[n]` code of the user; None where every row is a user's only one.
    """

    codes: dict[str, Codes]
    values: dict[str, NDArray[np.float64]]
    user: Codes | None

    @property
    def rows(self) -> int:
        """How many."""
        return len(next(iter(self.codes.values()), ()))

    def association(self, one: str, other: str, *, first: bool = False) -> float:
        """Cramér's V of two columns without its bias, in [0, 1]; `first`: in users' first rows alone."""
        a, b = self.codes[one], self.codes[other]
        if first:
            rows = np.concatenate([[True], ~self.pairs])[: self.rows]
            a, b = a[rows], b[rows]
        A, B = int(a.max(initial=0)) + 1, int(b.max(initial=0)) + 1
        table = np.bincount(a * B + b, minlength=A * B).reshape(A, B).astype(float)
        table = table[table.sum(1) > 0][:, table.sum(0) > 0]
        rows, columns = table.shape
        if min(rows, columns) < 2:
            return 0.0
        n = table.sum()
        expected = table.sum(1, keepdims=True) * table.sum(0) / n
        chi2, free = float(((table - expected) ** 2 / expected).sum()), (rows - 1) * (columns - 1)
        if chdtrc(free, chi2) > BY_CHANCE:
            return 0.0
        return float(np.sqrt(max(chi2 / n - free / n, 0) / min(rows - 1, columns - 1)))

    @property
    def pairs(self) -> NDArray[np.bool_]:
        """`[n − 1]` whether the row after is the same user's next."""
        if self.user is None:
            return np.zeros(max(self.rows - 1, 0), bool)
        return np.asarray(self.user[1:] == self.user[:-1])

    def constant(self, name: str) -> bool:
        """Whether users have one value each."""
        same, pairs = self.values[name][1:] == self.values[name][:-1], self.pairs
        both = np.isnan(self.values[name])
        return bool(pairs.sum() >= PAIRS and (same | (both[1:] & both[:-1]))[pairs].all())

    def grows(self, name: str) -> bool:
        """Whether it never falls within a user, and rises in some: a counter or a running total."""
        step = (self.values[name][1:] - self.values[name][:-1])[self.pairs]
        return bool(len(step) >= PAIRS and (step >= 0).all() and (step > 0).any())

    def lags(self, names: Sequence[str]) -> dict[str, str]:
        """Column → the one whose value in the row before it holds, or adds up."""
        pairs = self.pairs
        if pairs.sum() < PAIRS:
            return {}
        after = {name: self.values[name][1:][pairs] for name in names}
        before = {name: self.values[name][:-1][pairs] for name in names}
        alive = [name for name in names if len(np.unique(after[name][~np.isnan(after[name])])) > 1]
        found: dict[str, str] = {}
        for x in alive:
            for y in alive:
                if x == y or (after[y] == before[y]).all():
                    continue
                first = slice(0, 200)
                for predicted in (before[y], before[x] + before[y]):
                    if _equal(after[x][first], predicted[first]) and _equal(after[x], predicted):
                        found.setdefault(x, y)
        return found

    def calibrated(self, name: str, propensity: str) -> bool:
        """Whether a propensity is that of this column's value."""
        p, of = self.values[propensity], self.codes[name]
        usable = (p > 1e-12) & (p <= 1)
        if usable.mean() < 0.5 or (p[usable] == 1).all():
            return False
        n, K = int(usable.sum()), int(of.max()) + 1
        total = np.bincount(of[usable], 1 / p[usable], K)
        spread = np.sqrt(np.bincount(of[usable], (1 - p[usable]) / p[usable] ** 2, K))
        return bool((np.abs(total - n) <= np.maximum(CALIBRATED * n, 4 * spread)).all())

    def only_where(self, name: str, action: str) -> bool:
        """Whether a column has one value wherever the action has one of its values, and several elsewhere."""
        of, value = self.codes[action], self.values[name]
        known = ~np.isnan(value)
        if not known.any():
            return False
        levels, counts = np.unique(value[known], return_counts=True)
        if len(levels) < 2:
            return False
        given = np.unique(of[known])
        for a in given if len(given) <= MOST_ARMS else ():
            here = value[known & (of == a)]
            chance = len(here) * np.log(counts[levels == here[0]][0] / known.sum())
            if (here == here[0]).all() and chance < np.log(BY_CHANCE / len(given)):
                return True
        return False

    def above_zero(self, one: str, other: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Where each of two columns is above 0, of the rows with both."""
        a, b = self.values[one], self.values[other]
        known = ~np.isnan(a) & ~np.isnan(b)
        return a[known] > 0, b[known] > 0

    def tells(self, name: str, of: str) -> bool:
        """Whether each value of a column has one value of another: `of` is a function of it."""
        a, b = self.codes[name], self.codes[of]
        pair = np.unique(a * (int(b.max()) + 1) + b)
        return len(pair) == len(np.unique(a))


def _equal(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return bool((np.isclose(one, other, rtol=1e-6, atol=1e-9) | (np.isnan(one) & np.isnan(other))).all())


def gather(source: Source, rows: int, columns: Sequence[ScannedColumn], user: str | None, time: str | None) -> Evidence:
    """Read some rows.

    Args:
        source: the log.
        rows: of the log.
        columns: those to look at.
        user: SQL, where users have more than one row.
        time: SQL, in whose order a user's rows stand.
    """
    chosen = [column for column in columns if column.type not in NO_CATEGORY]
    parts = [f"{_number(column)} AS c{i}" for i, column in enumerate(chosen)]
    by = "0 AS u" if user is None else f"dense_rank() OVER (ORDER BY {user}) AS u"
    order = f"ORDER BY u{'' if time is None else f', {time}'}" if user is not None else ""
    kept = ""
    if rows > ROWS:
        part = -(-rows // ROWS)
        kept = (
            f"WHERE hash({user}) % {part} = 0"
            if user is not None
            else f"USING SAMPLE reservoir({ROWS} ROWS) REPEATABLE (1)"
        )
    table = source.table(f"SELECT {', '.join([by, *parts])} FROM (SELECT * FROM log {kept}) {order}")
    arrays = [np.asarray(table.column(i).to_numpy(zero_copy_only=False)) for i in range(table.num_columns)]
    codes, values = {}, {}
    for column, array in zip(chosen, arrays[1:], strict=True):
        codes[column.name], values[column.name] = _coded(array, column)
    return Evidence(codes, values, None if user is None else np.asarray(arrays[0], np.int64))


def _number(column: ScannedColumn) -> str:
    name = quoted(column.name)
    if column.is_number:
        return f"CAST({column.sql} AS DOUBLE)"
    if column.type == "DATE" or column.type.startswith("TIME"):  # TIMESTAMP, or TIME of the day
        return f"CAST(epoch({name}) AS DOUBLE)"
    return f"CAST({name} AS VARCHAR)"


def _coded(array: NDArray[Any], column: ScannedColumn) -> tuple[Codes, NDArray[np.float64]]:
    """Codes, and the numbers or the codes as numbers; a missing value has a code of its own."""
    if array.dtype == object:
        empty = np.array([value is None for value in array], bool)
        texts, of = np.unique(np.where(empty, "", array).astype(str), return_inverse=True)
        values = np.where(empty, np.nan, of.ravel().astype(float))
        if len(texts) > FEW:  # the commonest, and all others
            common = np.argsort(-np.bincount(of.ravel()), kind="stable")[:FEW]
            place = np.full(len(texts), FEW)
            place[common] = np.arange(len(common))
            of = place[of.ravel()]
        return np.where(empty, int(of.max(initial=0)) + 1, of.ravel()).astype(np.int64), values
    values = np.asarray(array, np.float64)
    known = ~np.isnan(values)
    distinct = np.unique(values[known])
    if len(distinct) > 2 * SPANS and column.distinct > FEW:
        edges = np.unique(np.quantile(values[known], np.arange(1, SPANS) / SPANS))
        of = np.searchsorted(edges, values, side="right")
    else:
        of = np.searchsorted(distinct, values)
    return np.where(known, of, int(of[known].max(initial=-1)) + 1).astype(np.int64), values
