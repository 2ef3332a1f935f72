"""What the state, with or without the action, leaves of a row's values: by least squares, on cells if it is counted.

Where residuals of two values are multiplied with one another, as tests of a user's past do, they must not come from the
same fit: a user's earlier surprises are part of what the past says of later rows, and a fit that has seen them takes
some of them out. With d columns and n rows the products are then off by about d/n, always against their sign, which
looks like a dependence in small logs of many features. `off_state_unseen` therefore takes each user's residuals off
what other users say, and those of each group of values off what *other* others say: the errors of two fits on the same
rows are related as well.

Columns that are linear in what follows miss some of it: chances bend, and traits matter only together. What they miss
of a user's activity, the user's earlier activity tells, as if the state were not enough. Where the action is taken out,
a second fit therefore takes out a curve in what the first one said, and that curve times the amount.

Source: Chernozhukov et al. (2018) for cross-fitting; Newey and Robins (2018) for separate samples of the two fits;
Ramsey (1969) for curves in fitted values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from outlay.core.machine import processors
from outlay.core.parallel import in_threads
from outlay.estimators.panel import Index, Panel
from outlay.estimators.row_features import KNOTS, Block

Array = NDArray[np.float64]
CHUNK_ROWS = 16_384  # made to double precision at a time
RIDGE = 1e-6  # of a column's spread: directions in which columns hardly vary say nothing
FOLDS = 9  # of users, whose residuals are off what the users of other folds say
KNOWN = 1e-3  # of a value's spread: less than that is what rounding leaves of a value that state and action tell
ROWS = 20  # for each column that stands for what the state says, beyond those that a fit needs


def off_state(panel: Panel, rows: Index, columns: Sequence[Block] | None, values: Array) -> Array:
    """Residuals of values on state and action, by a fit on the same rows.

    Args:
        panel: of the rows.
        rows: `[r]` some of them.
        columns: `[n, d]` blocks of columns of the state; the first is also multiplied by the amount. None where
            states are counted: each state and action is then a cell.
        values: `[r, q]`.
    """
    if columns is None:
        cell = _cells(panel, rows, acted=True)
        return _untold(values - _means(cell, values)[cell], values)
    design = _Design.of(panel, rows, columns, np.empty((len(rows), 0), np.float32), acted=True)
    gram, moments = _sums(design, values, np.zeros(len(rows), np.intp), 1)
    return _untold(_less(design, np.arange(len(rows)), values, _solved(gram[0], moments[0])), values)


def off_state_unseen(
    panel: Panel,
    rows: Index,
    columns: Sequence[Block] | None,
    groups: Sequence[Array],
    time: NDArray[np.int64],
    *,
    acted: bool,
) -> list[Array]:
    """Residuals of values on state, calendar day and, if `acted`, action; each by fits on users of other folds.

    Users of one cluster are in one fold. The other folds are shared out among the groups of values, so that no two
    groups rest on a fit to the same rows.

    Args:
        panel: of the rows.
        rows: `[r]` some of them.
        columns: as for `off_state`.
        groups: of values, `[r, q]` each.
        time: `[r]` calendar days.
        acted: whether the action is taken out too; then also a curve in what is said of the first group.
    """
    _, day = np.unique(time, return_inverse=True)
    days = np.eye(day.max(initial=0) + 1, dtype=np.float32)[:, 1:][day]
    unit = panel.user if panel.clusters is None else panel.clusters.index[panel.user]
    fold = np.unique(unit[rows], return_inverse=True)[1] % FOLDS
    shares = np.array_split(np.arange(1, FOLDS), len(groups))
    if columns is None:
        cell = _cells(panel, rows, acted=acted)
        return [
            _untold(_off_cells(cell, days, values, fold, share), values)
            for values, share in zip(groups, shares, strict=True)
        ]
    needed = panel.data.num_actions + columns[0][rows[:0]].shape[1] + days.shape[1]
    most = max(needed, len(rows) * len(shares[-1]) // (FOLDS * ROWS))
    design = replace(_Design.of(panel, rows, columns, days, acted=acted), most=most)
    left = np.hstack(groups, dtype=np.float64)
    gram, moments = _sums(design, left, fold, FOLDS)
    ends = np.cumsum([values.shape[1] for values in groups])
    for k in range(FOLDS):
        coefficients = []
        for share, own in zip(shares, np.split(np.arange(ends[-1]), ends[:-1]), strict=True):
            others = (k + share) % FOLDS
            coefficients.append(_solved(gram[others].sum(axis=0), moments[others].sum(axis=0)[:, own]))
        seen = np.flatnonzero(fold == k)
        left[seen] = _less(design, seen, left[seen], np.hstack(coefficients))
    if design.action is not None:
        left[:, : ends[0]] = _off_curve(groups[0], left[:, : ends[0]], design.scaled[design.action], fold, shares[0])
    return np.split(_untold(left, np.hstack(groups)), ends[:-1], axis=1)


def _off_curve(values: Array, left: Array, amount: NDArray[np.float32], fold: Index, share: NDArray[np.intp]) -> Array:
    """Residuals `[r, q]` of values, less what a curve in what was said of them explains; by folds, as before."""
    said = values - left
    said = (said - said.mean(axis=0)) / np.maximum(said.std(axis=0), 1e-300)
    bent = [np.maximum(said - knot, 0) for knot in np.quantile(said, KNOTS, axis=0)]
    both = [said[:, [j]] * said[:, j + 1 :] for j in range(said.shape[1] - 1)]
    curve = np.hstack([np.ones((len(said), 1)), said, *bent, *both])
    curve = np.hstack([curve, curve * amount[:, None]])
    of = [np.flatnonzero(fold == k) for k in range(FOLDS)]
    gram, moments = (np.stack([curve[seen].T @ by[seen] for seen in of]) for by in (curve, left))
    off = np.empty(left.shape)
    for k, seen in enumerate(of):
        others = (k + share) % FOLDS
        found = _solved(gram[others].sum(axis=0), moments[others].sum(axis=0))
        off[seen] = left[seen] - curve[seen] @ found
    return off


def _untold(left: Array, values: Array) -> Array:
    """Residuals `[r, q]` of values, exactly 0 where state and action tell a value: a cost that is the action itself."""
    if len(left) == 0:
        return left
    return np.where(left.std(axis=0) > KNOWN * np.std(values, axis=0), left, 0.0)


def _cells(panel: Panel, rows: Index, *, acted: bool) -> Index:
    """`[r]` number of each row's cell: its state, and with `acted` its action."""
    assert panel.state is not None
    action = panel.action[rows] if acted else 0
    cell: Index = np.unique(panel.state[rows] * panel.data.num_actions + action, return_inverse=True)[1]
    return cell


def _means(cell: Index, values: Array, size: int | None = None) -> Array:
    """`[cells, q]` means of values `[r, q]`; that of all rows in a cell without any."""
    count = np.bincount(cell, minlength=size or 0)
    mean = np.tile(values.mean(axis=0), (len(count), 1))
    met = count > 0
    for j, column in enumerate(values.T):
        mean[met, j] = np.bincount(cell, column, len(count))[met] / count[met]
    return mean


def _off_cells(cell: Index, days: NDArray[np.float32], values: Array, fold: Index, share: NDArray[np.intp]) -> Array:
    """Residuals of values `[r, q]` on cells and days: those of fold k by a fit on folds k + `share`."""
    size, left = int(cell.max(initial=-1)) + 1, np.empty(values.shape)
    for k in range(FOLDS):
        seen, others = np.flatnonzero(fold == k), np.flatnonzero(np.isin(fold, (k + share) % FOLDS))
        mean, mean_day = (_means(cell[others], np.asarray(part[others], np.float64), size) for part in (values, days))
        off, off_day = values - mean[cell], days - mean_day[cell]
        gram, moments = off_day[others].T @ off_day[others], off_day[others].T @ off[others]
        left[seen] = off[seen] - off_day[seen] @ _solved(gram, moments)
    return left


@dataclass(frozen=True)
class _Design:
    """What values are explained by, the most important first; made for a part of the rows at a time.

    Attributes:
        blocks: `[n, d]` columns of the state, by row of the panel; the first is also multiplied by the amount.
        rows: `[r]` the rows.
        days: `[r, D]` one column a day.
        action: `[r]` of each row; None: actions explain nothing.
        scaled: `[K]` amounts, of spread 1 in the rows.
        given: `[K]` whether an amount is more than the least.
        most: columns that are kept; None: all.
    """

    blocks: Sequence[Block]
    rows: Index
    days: NDArray[np.float32]
    action: Index | None
    scaled: NDArray[np.float32]
    given: NDArray[np.bool_]
    most: int | None = None

    @classmethod
    def of(
        cls,
        panel: Panel,
        rows: Index,
        columns: Sequence[Block],
        days: NDArray[np.float32],
        *,
        acted: bool,
    ) -> _Design:
        """Return the design of some rows of a panel."""
        action, amounts = panel.action[rows], panel.data.actions
        amount = amounts[action]
        scaled = ((amounts - amount.mean()) / (amount.std() or 1.0)).astype(np.float32)
        return cls(columns, rows, days, action if acted else None, scaled, amounts > amounts.min())

    def __call__(self, part: Index) -> Array:
        """`[p, d]` of some of the rows."""
        first, *others = (block[self.rows[part]] for block in self.blocks)
        if self.action is None:
            columns = [np.ones((len(part), 1), np.float32), first, self.days[part], *others]
        else:
            action = self.action[part]
            actions = np.eye(len(self.scaled), dtype=np.float32)[action]  # with an intercept in them
            by_amount = [first * self.scaled[action, None], first * self.given[action, None]]
            columns = [actions, first, self.days[part], *by_amount, *others]
        return np.hstack(columns, dtype=np.float64)[:, : self.most]


def _sums(design: _Design, values: Array, fold: Index, folds: int) -> tuple[Array, Array]:
    """By fold `[F, d, d]` products of columns and `[F, d, q]` of columns and values."""
    d, q = design(np.arange(0)).shape[1], values.shape[1]
    gram, moments = np.zeros((folds, d, d)), np.zeros((folds, d, q))
    parts = [(k, part) for k in range(folds) for part in _chunks(np.flatnonzero(fold == k))]

    def of(part: tuple[int, Index]) -> tuple[Array, Array]:
        x = design(part[1])
        return x.T @ x, x.T @ values[part[1]]

    for (k, _), (square, product) in zip(parts, in_threads(of, parts, processors()), strict=True):
        gram[k] += square
        moments[k] += product
    return gram, moments


def _chunks(rows: Index) -> list[Index]:
    return [rows[i : i + CHUNK_ROWS] for i in range(0, len(rows), CHUNK_ROWS)]


def _solved(gram: Array, moments: Array) -> Array:
    """Coefficients `[d, q]`; directions in which the columns hardly vary are left out."""
    if len(gram) == 0:
        return moments
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    found: Array = solve(
        gram / np.outer(scale, scale) + RIDGE * np.eye(len(gram)), moments / scale[:, None], assume_a="pos"
    )
    return found / scale[:, None]


def _less(design: _Design, rows: Index, values: Array, coefficients: Array) -> Array:
    """Values `[p, q]` of some of the rows, less what the columns say of them."""
    said = list(in_threads(lambda part: design(part) @ coefficients, _chunks(rows), processors()))
    left: Array = values - np.concatenate(said) if said else np.array(values, np.float64)
    return left
