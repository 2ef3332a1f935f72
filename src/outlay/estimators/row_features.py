"""Features of rows where states are too many to count: of the state, and of the user's days before.

Each value of a categorical field stands for the mean outcomes of the *learn* rows that have it, shrunk towards the mean
of all rows and in standard deviations; numbers stand for themselves. The means for a learn user come from the learn
users of other folds: where values are rare, means that hold a row's own outcome predict it, and what is fitted on them
is biased. The directions in which these columns vary most are kept. Next to a trained layer they are crude: what a
fitted evaluation finds with them has to be checked against estimators that rest on propensities. The days before a row
enter as means over them and as the last of them.

Source: Micci-Barreca (2001) for the encoding; the days before: ours (`sequential.py` says what they are for).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.transitions import LEARN, Transitions
from outlay.estimators.panel import Panel

CHUNK_CELLS = 16_000_000  # codes looked at in one go: 128 MB as whole numbers
LEARN_ROWS, SAMPLE_ROWS = 400_000, 20_000  # from which means and directions are taken, evenly spread
FOLDS = 5  # of users, whose means come from the others
SHRINK = 20.0  # rows that the mean of all counts as
MOST_FEATURES = 32  # directions that a fitted evaluation uses
WITHIN = 3.0  # standard deviations: products go no further
MOST_BENT, KNOTS = 8, (0.2, 0.4, 0.6, 0.8)  # numeric fields that are bent, and at which shares of their rows

Narrow = NDArray[np.float32]
Columns = Callable[[NDArray[np.int64]], Narrow]  # `[n, d]` of some rows


@dataclass(frozen=True)
class Directions:
    """A linear map of d columns onto the directions in which they vary most, each with spread 1, the largest first.

    Attributes:
        centre: `[d]`.
        matrix: `[d, ≤ MOST_FEATURES]`.
    """

    centre: Narrow
    matrix: Narrow

    @classmethod
    def of(cls, sample: Narrow) -> Directions:
        """Return the directions of rows `[n, d]`."""
        centre: Narrow = sample.mean(axis=0, dtype=np.float32)
        centred: Narrow = sample - centre
        variance, direction = np.linalg.eigh(centred.T @ centred / len(sample))
        kept = np.flatnonzero(variance > 1e-6 * max(variance[-1], 1e-12))[::-1][:MOST_FEATURES]
        return cls(centre, np.asarray(direction[:, kept] / np.sqrt(variance[kept]), np.float32))

    def __call__(self, columns: Narrow) -> Narrow:
        """`[n, ≤ MOST_FEATURES]` of rows `[n, d]`."""
        centred: Narrow = columns - self.centre
        return np.asarray(centred @ self.matrix, np.float32)


def plain_features(data: Transitions, rows: NDArray[np.int64]) -> Narrow:
    """Features `[n, ≤ MOST_FEATURES]` of the states of some rows."""
    return reduced(_encoder(data), rows, max(1, CHUNK_CELLS // max(1, len(data.schema.categorical))))


def directions(columns: Columns, rows: NDArray[np.int64], size: int) -> Directions:
    """Directions of many columns, found on evenly spread rows; `size` rows at a time."""
    spread = np.unique(np.linspace(0, len(rows) - 1, SAMPLE_ROWS).astype(np.int64))
    return Directions.of(np.concatenate([columns(rows[spread[i : i + size]]) for i in range(0, len(spread), size)]))


def reduced(columns: Columns, rows: NDArray[np.int64], size: int) -> Narrow:
    """`[n, ≤ MOST_FEATURES]` of the rows in these directions."""
    along = directions(columns, rows, size)
    return np.concatenate([along(columns(rows[i : i + size])) for i in range(0, len(rows), size)])


def hinges(numbers: NDArray[np.floating], first: NDArray[np.integer]) -> Narrow:
    """`[n, ≤ 4·MOST_BENT]` of numeric fields `[n, d]`: max(x − knot, 0), of those that move most within a user.

    Args:
        numbers: of every row.
        first: `[n]` each user's first row.
    """
    moved = np.abs(numbers - numbers[first]).mean(axis=0)
    columns = []
    for field in np.argsort(-moved, kind="stable")[:MOST_BENT]:
        if moved[field] > 0:
            x = numbers[:, field]
            columns += [np.maximum(x - knot, 0) for knot in np.unique(np.quantile(x, KNOTS))]
    return np.asarray(np.stack(columns, axis=1) if columns else np.empty((len(numbers), 0)), np.float32)


@dataclass(frozen=True)
class Products:
    """Pairwise products of columns, computed on demand for the rows requested; those of leading columns come first.

    Attributes:
        features: `[n, d]`.
    """

    features: Narrow

    @classmethod
    def of(cls, features: Narrow, most: int) -> Products:
        """At most so many products, of features `[n, d]` of spread 1."""
        kept = int((1 + np.sqrt(1 + 8 * max(0, most))) / 2)
        return cls(np.clip(features[:, :kept], -WITHIN, WITHIN))

    def __getitem__(self, rows: NDArray[np.integer]) -> Narrow:
        """`[r, d (d − 1) / 2]` of some rows."""
        features, d = self.features[rows], self.features.shape[1]
        found, done = np.empty((len(rows), d * (d - 1) // 2), np.float32), 0
        for i in range(d - 1):
            place = slice(done, done := done + d - 1 - i)
            np.multiply(features[:, i : i + 1], features[:, i + 1 :], out=found[:, place])
        return found


Block = NDArray[np.floating[Any]] | Products  # columns of rows


def _encoder(data: Transitions) -> Callable[[NDArray[np.int64]], Narrow]:
    """Columns `[n, F·(1+m) + 2·F']` of rows."""
    sizes = np.array([field.size for field in data.schema.categorical], np.int64)
    begin = np.cumsum(sizes) - sizes
    learn = data.rows_of(LEARN)
    learn = learn[:: max(1, len(learn) // LEARN_ROWS)]
    values, outcomes = int(sizes.sum()), data.outcome.shape[1]
    count, sums = np.zeros((FOLDS, values)), np.zeros((FOLDS, outcomes, values))
    step = max(1, CHUNK_CELLS // max(1, len(sizes)))
    for i in range(0, len(learn), step):
        part = learn[i : i + step]
        place = data.features(part)[0] + begin
        place += (values * _fold(data, part))[:, None]
        count += np.bincount(place.ravel(), minlength=count.size).reshape(count.shape)
        for j in range(outcomes):
            weight = np.repeat(np.asarray(data.outcome[part, j], np.float64), len(sizes))
            sums[:, j] += np.bincount(place.ravel(), weight, count.size).reshape(count.shape)
    every = np.asarray(data.outcome[learn], np.float64)
    mean, spread = every.mean(axis=0)[:, None], every.std(axis=0)[:, None]
    # Of each fold, what all others have; last, what all have, for users who do not learn.
    count = np.concatenate([count.sum(axis=0) - count, count.sum(axis=0, keepdims=True)])
    sums = np.concatenate([sums.sum(axis=0) - sums, sums.sum(axis=0, keepdims=True)])
    # Of spread 1 each: the unit of money must not decide which directions vary most.
    scaled = (sums + SHRINK * mean) / (count[:, None] + SHRINK) / np.where(spread > 0, spread, 1.0)
    means = scaled.transpose(0, 2, 1).reshape(-1, outcomes).astype(np.float32)

    def encode(some: NDArray[np.int64]) -> Narrow:
        codes, numbers = data.features(some)
        fold = np.where(data.users["split"][data.user[some]] == LEARN, _fold(data, some), FOLDS)
        by_value = means[codes + begin + (values * fold)[:, None]].reshape(len(some), -1)
        return np.hstack([by_value, numbers])

    return encode


def _fold(data: Transitions, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[n]` the fold of the user of each row; clusters stay together."""
    user = data.user[rows]
    return np.asarray(user if data.cluster is None else data.cluster[user], np.int64) % FOLDS


def days_before(panel: Panel) -> NDArray[np.float32]:
    """Columns `[n, ≤ 2·(3+m) + 1]` of spread 1: reward, costs, the amount and whether one was given; rows before."""
    amount = panel.data.actions[panel.action]
    was = np.column_stack([panel.outcome, amount, amount > panel.data.actions.min()])
    count = before(panel, np.ones((len(panel), 1)), total=True)[:, :1]
    return standardised(np.hstack([before(panel, was), count]))


def before(panel: Panel, was: NDArray[Any], *, total: bool = False) -> NDArray[np.float64]:
    """`[n, 2·q]` from `[n, q]`: means over the user's rows before each, or sums, and the last of them; 0 if none."""
    q, count = was.shape[1], np.zeros((len(panel), 1))
    columns, rows = np.zeros((len(panel), 2 * q)), panel.first
    while len(rows):
        then = panel.following[rows]
        rows, then = rows[then >= 0], then[then >= 0]
        last = was[rows]
        columns[then, :q] = columns[rows, :q] + last
        columns[then, q:] = last
        count[then] = count[rows] + 1
        rows = then
    if not total:
        columns[:, :q] /= np.maximum(count, 1)
    return columns


def standardised(columns: NDArray[np.floating]) -> NDArray[np.float32]:
    """Columns `[n, d]` of mean 0 and spread 1, without those that hardly vary."""
    centred = columns - columns.mean(axis=0)
    spread = centred.std(axis=0)
    kept = spread > 1e-6 * np.maximum(np.abs(columns).max(axis=0, initial=0), 1e-12)
    return np.asarray(centred[:, kept] / spread[kept], np.float32, order="C")  # read row by row from here on
