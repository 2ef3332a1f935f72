"""The baseline by boosted trees: the day's outcomes, the log's policy, its V, and the value of later days.

    m₀(s) = E[x | s]                         trees; like all but V, on rows in which there was a choice
    b(a|s)                                   trees, on propensities where the log has them, on actions elsewhere
    V(s) = φ(s)ᵀ w                           φ: 1, z, u, u², u·z, and the codes of small fields that change
    m₁(s) = E[γ^Δ V(s') | s]                 φ(s)ᵀ v, and trees for what that leaves

z are the numbers that change from a user's row to the next, like a habit or the days since a visit, and
u(k) = E[x | k] are trees on what is left of the state, k, like the city: who the user is. 1, z and u are its traits.

w solves Σ φ (φ − γ^Δ φ')ᵀ w = (1−γ) Σ φ x. An action changes V(s') only through what changes, and by little: a habit
moves by a few per cent. So V is smooth in z, and so is its mean m₁. Trees on z would be flat between two thresholds and
jump at them, and such jumps are several times as large as the effects (docs/what-did-not-help.md). Everything is
learned on one half of the users and applied to the other.

Source: Bradtke and Barto (1996) for V; its features: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.transitions import Transitions
from outlay.learning.boosting import BinnedTable, Boosted, BoostingRows, BoostingSettings, boost, states
from outlay.learning.held_out import choice_rows
from outlay.learning.outcomes import outcomes

USUAL = BoostingSettings(leaves=31, rate=0.4, prior=20.0, rounds=16, patience=4)
MOST_ROWS = 4_000_000  # rows to learn from, about; of a larger log, those of evenly spaced users
HELD_ROWS = 20_000  # most rows of select users used for early stopping
FEW_CODES, MOST_CODES = 30, 1_500  # fields with more codes have no columns in V; most codes of all that have
CELLS = 1 << 22  # rows times columns of V that are in memory at a time
RIDGE = 1e-4  # as a share of the mean square of a column
CHANGES = 1e-3  # share of rows after which a field has another value, above which it is one that changes
LEAST = 0.01  # minimum probability of an allowed action

Ints = NDArray[np.int64]
Vector = NDArray[np.float64]


class Usual(NamedTuple):
    """Predictions of one half of the users for the rows `TrainingColumns.others`; outcomes in units of their spread.

    Attributes:
        day: `[n, H]` m₀.
        policy: `[n, K]` b.
        value: `[n, H]` y₁ by its V; 0 where the next row is not known.
        later: `[n, H]` m₁.
    """

    day: Vector
    policy: Vector
    value: Vector
    later: Vector


@dataclass(frozen=True)
class TrainingColumns:
    """The N rows of a training: rows to learn from, held-out rows, and the rows that follow those.

    Attributes:
        table: their states.
        outcome: `[N, H]` in units of the heads' spread.
        action: `[N]` index.
        chosen: `[N]` whether there was a choice.
        allowed: `[N, K]`.
        propensity: `[N]` of the logged action; None if the log has none.
        gamma: `[N]` γ^Δ, 0 where there is no next row.
        known: `[N]` whether what follows is known; false where the log was cut off.
        after: `[N]` the next row; the row itself if there is none.
        half: `[N]` half of the user, 0 or 1.
        learn: `[n]` rows to learn from.
        held: `[h]` rows of select users in which there was a choice.
        discount: γ.
    """

    table: BinnedTable
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
        """Gather the columns of a training.

        Args:
            data: the log.
            learn_rows: ascending; of more than MOST_ROWS, those of evenly spaced users are kept.
            spread: `[H]` of the heads.
            seed: for sampling the held-out rows, if there are more than needed.
        """
        held = choice_rows(data, HELD_ROWS, seed)
        if len(learn_rows) > MOST_ROWS:
            learn_rows = _of_fewer_users(data, learn_rows)
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
        if len(np.unique(half[learn])) < 2:  # a single user is split between both
            half = np.arange(len(rows)) % 2
        return cls(
            table=BinnedTable.of(*states(data, rows), data.schema.sizes, seed),
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

    @cached_property
    def changing(self) -> tuple[Ints, Ints]:
        """The numbers that change from a row to the next, and the small fields that do, for which V has columns."""
        rows, sizes = self.learn[self.gamma[self.learn] > 0], np.array(self.table.sizes, np.int64)
        smallest = np.argsort(sizes, kind="stable")
        small = np.zeros(len(sizes), np.bool_)
        small[smallest] = (np.cumsum(sizes[smallest]) <= MOST_CODES) & (sizes[smallest] <= FEW_CODES)

        def change(columns: NDArray[Any]) -> NDArray[np.bool_]:
            share: Vector = (columns[rows] != columns[self.after[rows]]).mean(axis=0)
            return share > CHANGES

        if not len(rows):
            return np.arange(0), np.arange(0)
        return np.flatnonzero(change(self.table.numbers)), np.flatnonzero(change(self.table.codes) & small)

    def of_half(self, half: int) -> Ints:
        """Return the rows to learn from of one half of the users."""
        mine: Ints = self.learn[self.half[self.learn] == half]
        return mine

    def others(self, half: int) -> Ints:
        """Return the rows to which one half of the users is applied: those of the other half, and held-out rows."""
        return np.union1d(self.of_half(1 - half), self.held)

    def crossed(self, halves: Sequence[Vector]) -> Vector:
        """Return cross-fitted predictions `[N, …]`: by the other half of the users, and by both for held-out rows.

        Args:
            halves: predictions of each half for the rows `others(half)`. Any further rows of the result are NaN.
        """
        whole = np.full((len(self.action), *halves[0].shape[1:]), np.nan)
        held = np.zeros((len(self.held), *halves[0].shape[1:]))
        for half, part in enumerate(halves):
            at = self.others(half)
            whole[at] = part
            held += part[np.searchsorted(at, self.held)] / len(halves)
        whole[self.held] = held
        return whole

    def fit(self, at: Ints, target: Vector, settings: BoostingSettings = USUAL, without: Sequence[int] = ()) -> Boosted:
        """Regress a target `[N, H]` on the state `without` some columns, in the rows `at`."""
        rows, held = (BoostingRows(part, target[part], np.ones((len(part), 1))) for part in (at, self.held))
        return boost(self.table, rows, held, settings, without)


def _of_fewer_users(data: Transitions, rows: Ints) -> Ints:
    """Return the rows of evenly spaced users, MOST_ROWS of them if users have equally many."""
    owner = np.asarray(data.user[rows])
    users = np.unique(owner)
    places = np.linspace(0, len(users) - 1, max(2, round(len(users) * MOST_ROWS / len(rows))))
    return rows[np.isin(owner, users[places.round().astype(np.int64)])]


def usual(columns: TrainingColumns, half: int) -> tuple[Usual, Vector, NDArray[Any]]:
    """Fit the baseline on one half of the users.

    Returns:
        Its predictions for the other half and for held-out rows; and for all rows y₁ − m₁ `[N, H]` and traits `[N, C]`.
    """
    mine, others, every = columns.of_half(half), columns.others(half), np.arange(len(columns.table))
    choice = mine[columns.chosen[mine]] if columns.chosen[mine].any() else mine
    policy = _policy(columns, choice, others)
    day = columns.fit(choice, columns.outcome).predict(columns.table, every)[:, :, 0]
    known = mine[columns.known[mine]]
    if columns.discount == 0 or not len(known):
        nothing = np.zeros_like(day)
        return Usual(day[others], policy, nothing[others], nothing[others]), nothing, nothing
    traits = _traits(columns, known)
    value = _solved(columns, known, traits, (1 - columns.discount) * columns.outcome, columns.gamma)
    value = columns.gamma[:, None] * value[columns.after]
    judged = choice[columns.known[choice]] if columns.known[choice].any() else known
    later = _solved(columns, judged, traits, value, np.zeros(len(every)))
    later += columns.fit(judged, value - later).predict(columns.table, every)[:, :, 0]
    return Usual(day[others], policy, value[others], later[others]), value - later, traits


def _policy(columns: TrainingColumns, rows: Ints, others: Ints) -> Vector:
    """Return `[n, K]` b in the rows `others`, learned from `rows`; 0 where an action is not allowed."""
    eye, parts = np.eye(columns.allowed.shape[1]), (rows, columns.held)
    if columns.propensity is None:
        given, held = (BoostingRows(at, eye[columns.action[at]], np.ones((len(at), 1))) for at in parts)
    else:
        # The logged propensity is a target without the noise of the draw.
        given, held = (BoostingRows(at, columns.propensity[at, None], eye[columns.action[at]]) for at in parts)
    predicted = boost(columns.table, given, held, USUAL).predict(columns.table, others).reshape(len(others), len(eye))
    some = np.where(columns.allowed[others], np.maximum(predicted, LEAST), 0.0)
    whole: Vector = some / np.maximum(some.sum(axis=1, keepdims=True), LEAST)
    return whole


def _traits(columns: TrainingColumns, rows: Ints) -> NDArray[np.float32]:
    """Return `[N, 1 + numbers + H]` 1, z and u, which is learned in `rows` and is 0 in their mean."""
    table, (numbers, fields) = columns.table, columns.changing
    who = columns.fit(rows, columns.outcome, without=[*numbers, *(table.num_numbers + fields)])
    user = who.predict(table, np.arange(len(table)))[:, :, 0]
    user -= user[rows].mean(axis=0)
    return np.hstack([np.ones((len(table), 1)), table.numbers[:, numbers], user], dtype=np.float32)


def _solved(columns: TrainingColumns, rows: Ints, traits: NDArray[Any], target: Vector, gamma: Vector) -> Vector:
    """Return `[N, H]` φᵀw, where Σ φ (φ − γ φ')ᵀ w = Σ φ y in `rows`: least squares where all γ are 0.

    Args:
        columns: the rows.
        rows: `[n]` those to learn from.
        traits: `[N, C]`.
        target: `[N, H]` y.
        gamma: `[N]` γ.
    """
    table, fields, heads = columns.table, columns.changing[1], target.shape[1]

    def features(at: Ints) -> Vector:
        own = traits[at].astype(np.float64)
        u = own[:, -heads:]
        parts = [own, *(u[:, [h]] * own[:, 1:-heads] for h in range(heads)), u**2]
        parts += [np.eye(table.sizes[f])[table.codes[at, f]] for f in fields]
        return np.hstack(parts)

    count = len(features(rows[:1])[0])
    parts = parts_of(rows, count)
    mean = sum(features(part).sum(axis=0) for part in parts) / len(rows)
    mean[0] = 0.0
    matrix, right, squares = np.zeros((count, count)), np.zeros((count, heads)), 0.0
    for part in parts:
        here, after = (features(at) - mean for at in (part, columns.after[part]))
        matrix += here.T @ (here - gamma[part, None] * after)
        right += here.T @ target[part]
        squares += float(np.square(here).sum())
    penalty = RIDGE * squares / count * np.append(0.0, np.ones(count - 1))
    weights = np.linalg.solve(matrix + np.diag(penalty), right)
    every = parts_of(np.arange(len(table)), count)
    value: Vector = np.concatenate([(features(part) - mean) @ weights for part in every])
    return value


def parts_of(rows: Ints, count: int) -> list[Ints]:
    """Split rows so that so many columns of a part are in memory at a time."""
    return np.array_split(rows, max(1, -(-len(rows) * count // CELLS)))
