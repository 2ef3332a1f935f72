"""Backtest: learned on the log's first days, the old policy's last days are predicted, and compared with what came.

    t0      = two thirds of the log's days;    H = the days from t0 on, at most 14 and t0 − 2
    ŷ_h(s)  = mean outcome h days after a row in state s, of rows before t0 whose h days end before t0
    d_h     = mean over the users with a row on day t0 of  y_{t0+h} − ŷ_h(state on t0)
    error   = by user: their own surprises on day t0 + h, and those of the rows that ŷ was learned from

ŷ_h is the model that the evaluation rests on (the same state: a mean for each where states are counted, else least
squares on the columns of `StateModel`), asked directly for the day that is h days ahead, under the policy that the log
followed. A day without a row of the user counts as 0. Days that differ are no error of the model, so the interval is
widened by what `DayEffects` found: by the shock of the predicted day, by what the shocks since t0 left behind, by those
that the model was learned from, and along a trend.

Between features a prediction may leave what it was learned from: columns that move with the days, as days since an
event do, are held at the ends of what the first days showed, and means and intervals within what the outcome ever was.
An interval that reaches there is `vague`: that the mean lies in it says nothing, and is not counted.

Source: ours; out-of-time validation is textbook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.wording import exact
from outlay.estimators.clusters import by_cluster, freedom
from outlay.estimators.day_effects import DayEffects
from outlay.estimators.panel import Index, Panel
from outlay.ops.intervals import quantile, std_error, student

Array = NDArray[np.float64]
FEWEST_DAYS, FEWEST_USERS = 6, 100  # of a log, and of those that are predicted
LEARNED = 2 / 3  # of the days
FEWEST_LEARNED = 3  # days with rows to learn from: of fewer, states that move with the days are extrapolated
MOST_DAYS = 14  # that are predicted
MOST_CELLS = 400_000  # users times days that are looked at
MOST_COLUMNS, ROWS = 200, 50  # of the state, and rows for each of them


@dataclass(frozen=True, slots=True)
class BacktestDay:
    """One outcome on one predicted day, a mean per user.

    Attributes:
        name: `reward` or a budget.
        day: of the log, from 1.
        observed: what came.
        predicted: by the model of the days before.
        low: of the interval around the prediction in which the observed mean should lie.
        high: the same.
        vague: whether the interval reaches the least or the most that the outcome ever was in a row.
    """

    name: str
    day: int
    observed: float
    predicted: float
    low: float
    high: float
    vague: bool = False

    @property
    def inside(self) -> bool:
        """Whether what came lies in the interval."""
        return self.low <= self.observed <= self.high


@dataclass(frozen=True, slots=True)
class Backtest:
    """Predicted against observed, by day.

    Attributes:
        learned: days that the model was learned from; 0 if days or users were too few.
        users: who were predicted.
        confidence: of the intervals.
        days: by outcome, then by day.
        words: what was found, without a full stop.
    """

    learned: int
    users: int
    confidence: float
    days: tuple[BacktestDay, ...]
    words: str


def backtest(
    panel: Panel,
    time: NDArray[np.int64],
    columns: Sequence[NDArray[np.floating]] | None,
    effects: DayEffects,
    confidence: float,
) -> Backtest:
    """Learn on the first days of a log and predict the last.

    Args:
        panel: the rows.
        time: `[n]` calendar day of each row.
        columns: `[n, d]` blocks of columns of the state; None where states are counted.
        effects: how days differ.
        confidence: of the intervals.
    """
    first = int(time.min())
    length = int(time.max()) - first + 1
    if length < FEWEST_DAYS:
        return _none(f"not made: the log has {length} days, and {FEWEST_DAYS} are needed", confidence)
    split = int(LEARNED * length)
    grid = _Grid.of(panel, time - first, length)
    now = grid.rows[:, split] >= 0
    if now.sum() < FEWEST_USERS:
        words = f"not made: {now.sum()} of these users have a row on day {split + 1}, and {FEWEST_USERS} are needed"
        return _none(words, confidence)
    found: list[BacktestDay] = []
    least, most = grid.outcome.min(axis=(0, 1)), grid.outcome.max(axis=(0, 1))
    reach, z = quantile(0.5 + confidence / 2), student(quantile(0.5 + confidence / 2), freedom(panel.clusters))
    for ahead in range(min(length - split, split - FEWEST_LEARNED + 1, MOST_DAYS)):
        observed, predicted, error, age = _one(panel, grid, columns, split, ahead)
        for j, name in enumerate(panel.names):
            value = float(np.clip(predicted[j], least[j], most[j]))
            shock, drift = effects.ahead(name, value, ahead, learned=split - ahead, age=age)
            half = float(np.hypot(z * error[j], reach * shock))
            ends = value - half + min(drift, 0.0), value + half + max(drift, 0.0)
            low, high = (float(end) for end in np.clip(ends, least[j], most[j]))
            vague = bool(low < high and (low <= least[j] or high >= most[j]))
            found.append(BacktestDay(name, split + ahead + 1, float(observed[j]), value, low, high, vague))
    found.sort(key=lambda line: panel.names.index(line.name))
    return Backtest(split, int(now.sum()), confidence, tuple(found), _words(found, split, confidence))


@dataclass(frozen=True)
class _Grid:
    """`[U', D]`: the row of each user on each day, −1 without one; the users in them; `[U', D, 1+m]` outcomes."""

    rows: Index
    users: Index
    outcome: Array

    @classmethod
    def of(cls, panel: Panel, day: NDArray[np.int64], length: int) -> _Grid:
        every = max(1, -(-panel.num_users * length // MOST_CELLS))
        chosen = np.flatnonzero(panel.user % every == 0)
        user = panel.user[chosen] // every
        count = -(-panel.num_users // every)
        rows = np.full((count, length), -1)
        rows[user, day[chosen]] = chosen
        outcome = np.zeros((count, length, panel.outcome.shape[1]))
        outcome[user, day[chosen]] = panel.outcome[chosen]
        return cls(rows, np.arange(count) * every, outcome)


def _one(
    panel: Panel, grid: _Grid, columns: Sequence[NDArray[np.floating]] | None, split: int, ahead: int
) -> tuple[Array, Array, Array, float]:
    """Observed and predicted means `[1+m]` of one day ahead, the error of their difference, and the rows' mean age."""
    user, day = np.nonzero(grid.rows[:, : split - ahead] >= 0)
    now = np.flatnonzero(grid.rows[:, split] >= 0)
    before, asked = grid.rows[user, day], grid.rows[now, split]
    y, came = grid.outcome[user, day + ahead], grid.outcome[now, split + ahead]
    if columns is None:
        fitted, predicted, weight = _by_state(panel, before, asked, y)
    else:
        fitted, predicted, weight = _by_columns(columns, before, asked, y)
    influence = np.zeros((len(grid.users), y.shape[1]))
    np.add.at(influence, user, -weight[:, None] * (y - fitted))
    influence[now] += (came - predicted) / len(now)
    influence *= len(influence)
    if panel.clusters is not None:
        clusters = type(panel.clusters).among(panel.clusters.index.astype(np.int64), grid.users)
        influence = by_cluster(influence, clusters)
    age = float(split - day.mean())
    return came.mean(axis=0), predicted.mean(axis=0), std_error(influence), age


def _by_state(panel: Panel, before: Index, asked: Index, y: Array) -> tuple[Array, Array, Array]:
    """Means of states: fitted `[r, 1+m]`, predicted `[q, 1+m]`, and each row's part `[r]` in the mean prediction.

    A state that no row was in before gets the mean of all rows.
    """
    assert panel.state is not None
    size = int(panel.state.max()) + 1
    count = np.bincount(panel.state[before], minlength=size)
    total = np.stack([np.bincount(panel.state[before], column, size) for column in y.T], axis=1)
    mean = np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], y.mean(axis=0)).astype(np.float64)
    wanted = np.bincount(panel.state[asked], minlength=size) / len(asked)
    new = float(wanted[count == 0].sum())
    weight = (wanted / np.maximum(count, 1))[panel.state[before]] + new / len(before)
    return mean[panel.state[before]], mean[panel.state[asked]], weight


def _by_columns(
    columns: Sequence[NDArray[np.floating]], before: Index, asked: Index, y: Array
) -> tuple[Array, Array, Array]:
    """The same by least squares on as many blocks of columns as the rows carry.

    Columns are less their means, so that what these rows never showed (the weekday of the predicted day, in a log of
    one week) takes nothing from the prediction; and no further than these rows went.
    """
    blocks, width = [np.asarray(columns[0], np.float32)], columns[0].shape[1]
    for block in columns[1:]:
        width += block.shape[1]
        if width > min(MOST_COLUMNS, len(before) // ROWS):
            break
        blocks.append(np.asarray(block, np.float32))
    X, Q = (np.hstack([block[rows] for block in blocks]).astype(np.float64) for rows in (before, asked))
    Q = np.clip(Q, X.min(axis=0), X.max(axis=0))
    centre = X.mean(axis=0)
    X, Q = X - centre, Q - centre
    scale = np.sqrt((X**2).mean(axis=0))
    varies = scale > 1e-9
    X, Q = X[:, varies] / scale[varies], Q[:, varies] / scale[varies]
    inverse = np.linalg.pinv(X.T @ X, rcond=1e-6, hermitian=True)
    mean = y.mean(axis=0)
    coefficients: Array = inverse @ (X.T @ (y - mean))
    return mean + X @ coefficients, mean + Q @ coefficients, 1 / len(X) + X @ (inverse @ Q.mean(axis=0))


def _none(words: str, confidence: float) -> Backtest:
    return Backtest(0, 0, confidence, (), words)


def _words(found: Sequence[BacktestDay], split: int, confidence: float) -> str:
    days = sorted({line.day for line in found})
    parts = []
    for name in dict.fromkeys(line.name for line in found):
        lines = [line for line in found if line.name == name]
        predicted, observed = (sum(getattr(line, what) for line in lines) / len(lines)
                               for what in ("predicted", "observed"))  # fmt: skip
        parts.append(f"{name} {predicted:.4g} a day, and it was {observed:.4g}")
    telling = [line for line in found if not line.vague]
    inside, vague = sum(line.inside for line in telling), len(found) - len(telling)
    held = f"{inside} of {len(telling)} daily means within their {exact(confidence)} intervals"
    if vague:
        held = f"{held if telling else 'no daily mean is tested'}; {vague} intervals are too wide to say anything"
    return (
        f"learned on days 1 to {split}, the model predicts for days {days[0]} to {days[-1]} {'; '.join(parts)} ({held})"
    )
