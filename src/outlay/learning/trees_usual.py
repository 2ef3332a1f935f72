"""What happens anyway, by boosted trees: the day, the log's policy, its V, and what comes after the day.

    m₀(s) = E[x | s]                         trees, on rows in which there was a choice, as all but V
    b(a|s)                                   trees, on propensities where the log has them, on actions elsewhere
    V(s) = φ(s)ᵀ w                           φ: 1, numbers, codes of small fields, m₀(s), E[γ^Δ m₀(s') | s]
    m₁(s) = E[γ^Δ V(s') | s]                 trees

w solves Σ φ (φ − γ^Δ φ')ᵀ w = (1−γ) Σ φ x: m₀ and what comes of it a day later span most of what V is made of, and are
told by trees from interactions that a linear V would miss. All of it is learned on one half of the users, to be used
for the rows of the other.

Source: Bradtke and Barto (1996) for V; its features, Parr et al. (2007), "Analyzing feature generation for
value-function approximation".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.transitions import Transitions
from outlay.learning.boosting import BinnedTable, Boosted, BoostingRows, BoostingSettings, boost, states
from outlay.learning.fresh import outcomes
from outlay.learning.held_out import choice_rows

USUAL = BoostingSettings(leaves=31, rate=0.4, prior=20.0, rounds=16, patience=4)
HELD_ROWS = 20_000  # of select users, at most, whose loss ends boosting
FEW_CODES = 30  # fields with more of them have no columns of their own in V
RIDGE = 1e-4  # of the mean square of a column
LEAST = 0.01  # the probability that any allowed action has at least

Ints = NDArray[np.int64]
Vector = NDArray[np.float64]


class Usual(NamedTuple):
    """Predictions for all N rows from one half of the users; outcomes in units of their spread.

    Attributes:
        day: `[N, H]` m₀.
        policy: `[N, K]` b; NaN in rows of the half itself that are not held out, which nobody needs.
        value: `[N, H]` y₁ by its V; 0 where what comes after is not known.
        later: `[N, H]` m₁.
    """

    day: Vector
    policy: Vector
    value: Vector
    later: Vector


@dataclass(frozen=True)
class TrainingColumns:
    """The rows that a training looks at, N of them: those that teach, held-out ones, and the rows next to these.

    Attributes:
        table: their states.
        codes: `[N, F]`.
        outcome: `[N, H]` in units of the heads' spread.
        action: `[N]` index.
        chosen: `[N]` whether there was a choice.
        allowed: `[N, K]`.
        propensity: `[N]` of the logged action; None where the log has none.
        gamma: `[N]` γ^Δ, 0 where there is no next row.
        known: `[N]` whether what comes after is known: not so where the log was cut off.
        after: `[N]` the next row; the row itself where there is none.
        half: `[N]` of the user, 0 or 1.
        learn: `[n]` rows to learn from.
        held: `[h]` rows of select users in which there was a choice.
        discount: γ.
    """

    table: BinnedTable
    codes: NDArray[np.int32]
    outcome: Vector
    action: Ints
    chosen: NDArray[np.bool_]
    allowed: NDArray[np.bool_]
    propensity: Vector | None
    gamma: Vector
    known: NDArray[np.bool_]
    after: Ints
    half: Ints
    learn: Ints
    held: Ints
    discount: float

    @classmethod
    def of(cls, data: Transitions, learn_rows: Ints, spread: Vector, seed: int) -> TrainingColumns:
        """Gather them.

        Args:
            data: the log.
            learn_rows: ascending.
            spread: `[H]` of the heads.
            seed: of the held-out rows, where there are more than are needed.
        """
        held = choice_rows(data, HELD_ROWS, seed)
        following = np.asarray(data.next_row[held]).astype(np.int64)
        rows = np.unique(np.concatenate([learn_rows, held, following[following >= 0]]))
        ends = np.asarray(data.terminal[rows])
        following = np.asarray(data.next_row[rows]).astype(np.int64)
        place = np.minimum(np.searchsorted(rows, following), len(rows) - 1)
        linked = (following >= 0) & ~ends & (rows[place] == following)
        discount = data.campaign.meta.discount
        user = np.unique(data.user[rows], return_inverse=True)[1]
        half = user % 2
        learn = np.searchsorted(rows, learn_rows)
        if len(np.unique(half[learn])) < 2:  # one user alone is in both
            half = np.arange(len(rows)) % 2
        return cls(
            table=BinnedTable.of(states(data, rows), data.number_columns.shape[1], data.schema.sizes, seed),
            codes=data.features(rows)[0],
            outcome=outcomes(data, rows) / spread,
            action=np.asarray(data.action[rows]).astype(np.int64),
            chosen=~np.asarray(data.forced[rows]),
            allowed=data.allowed(rows),
            propensity=None if data.propensity is None else np.asarray(data.propensity[rows], np.float64),
            gamma=np.where(linked, discount ** np.asarray(data.gap[rows], np.float64), 0.0),
            known=linked | ends,
            after=np.where(linked, place, np.arange(len(rows))),
            half=half,
            learn=learn,
            held=np.searchsorted(rows, held),
            discount=discount,
        )

    def of_half(self, half: int) -> Ints:
        """Rows to learn from of one half of the users."""
        mine: Ints = self.learn[self.half[self.learn] == half]
        return mine

    def crossed(self, one: Vector, other: Vector) -> Vector:
        """Predictions for each row by the other half of the users, `[N, …]`; for held-out rows the mean of both."""
        half = self.half.reshape(-1, *[1] * (one.ndim - 1))
        both: Vector = np.where(half == 0, other, one)
        both[self.held] = (one[self.held] + other[self.held]) / 2
        return both

    def fit(self, at: Ints, target: Vector, settings: BoostingSettings = USUAL) -> Boosted:
        """A plain regression of `[N, H]` on the state in some rows."""
        ones, held = np.ones((len(target), 1)), self.held
        return boost(
            self.table, BoostingRows(at, target[at], ones[at]), BoostingRows(held, target[held], ones[held]), settings
        )


def usual(columns: TrainingColumns, half: int) -> Usual:
    """Predictions for all rows from one half of the users."""
    mine, x = columns.of_half(half), columns.table.x
    choice = mine[columns.chosen[mine]] if columns.chosen[mine].any() else mine
    day = columns.fit(choice, columns.outcome)(x)[:, :, 0]
    policy = np.full(columns.allowed.shape, np.nan)
    others = np.union1d(columns.of_half(1 - half), columns.held)
    policy[others] = _policy(columns, choice, others)
    known = mine[columns.known[mine]]
    if columns.discount == 0 or not len(known):
        nothing = np.zeros_like(day)
        return Usual(day, policy, nothing, nothing)
    next_day = columns.gamma[:, None] * day[columns.after]
    predicted = columns.fit(known, next_day)(x)[:, :, 0]
    value = columns.gamma[:, None] * _solved(columns, known, np.hstack([day, predicted]))[columns.after]
    judged = choice[columns.known[choice]] if columns.known[choice].any() else known
    return Usual(day, policy, value, columns.fit(judged, value)(x)[:, :, 0])


def _policy(columns: TrainingColumns, rows: Ints, others: Ints) -> Vector:
    """`[n, K]` b of some rows, learned from others; 0 where an action is not allowed."""
    count, x = columns.allowed.shape[1], columns.table.x[others]
    taken = np.eye(count)[columns.action]
    if columns.propensity is None:
        predicted = columns.fit(rows, taken)(x)[:, :, 0]
    else:
        # The row states the probability of its own action, without the noise of a draw.
        own, held = columns.propensity[:, None], columns.held
        given = BoostingRows(rows, own[rows], taken[rows])
        predicted = boost(columns.table, given, BoostingRows(held, own[held], taken[held]), USUAL)(x)[:, 0]
    some = np.where(columns.allowed[others], np.maximum(predicted, LEAST), 0.0)
    whole: Vector = some / np.maximum(some.sum(axis=1, keepdims=True), LEAST)
    return whole


def _solved(columns: TrainingColumns, rows: Ints, told: Vector) -> Vector:
    """`[N, H]` V of the log's policy, on features of which `told [N, k]` are some."""
    table = columns.table
    parts: list[NDArray[Any]] = [np.ones((len(told), 1)), told, table.x[:, : table.num_numbers]]
    for f, size in enumerate(table.sizes):
        if size <= FEW_CODES:
            parts.append(np.eye(size)[columns.codes[:, f]])
    features = np.hstack(parts).astype(np.float64)
    features[:, 1:] -= features[rows, 1:].mean(axis=0)
    here = features[rows]
    matrix = here.T @ (here - columns.gamma[rows, None] * features[columns.after[rows]])
    right = (1 - columns.discount) * here.T @ columns.outcome[rows]
    penalty = RIDGE * np.square(here).sum(axis=0).mean() * np.append(0.0, np.ones(features.shape[1] - 1))
    value: Vector = features @ np.linalg.solve(matrix + np.diag(penalty), right)
    return value
