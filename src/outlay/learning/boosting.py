"""Boosted trees for coefficients that differ from state to state.

    y_h  ≈  Σ_j (c_hj + f_hj(s)) z_j                 z [d]: given for each row; with z = 1, a plain regression
    loss = Σ_rows Σ_h (y_h − ŷ_h)²                   one tree for each f_hj in every round, all on the same residuals

c is by least squares. Boosting ends when no y_h has become better explained for held-out users for a while, and each
y_h keeps the rounds that were best for it. Leaves are shrunk as if `prior` rows had a target of 0.

Source: Friedman (2001); coefficients, Zhou and Hooker (2022), "Decision tree boosted varying coefficient models"; the
trees are LightGBM's (Ke et al. 2017).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.machine import optional, processors
from outlay.core.schema import UNKNOWN
from outlay.core.transitions import Transitions
from outlay.core.trees import LEAF, Node

MOST_CODES = 250  # of a field, by frequency; rarer ones are taken for unknown
BINS = 63  # of a number
RIDGE = 1e-3  # rows that pull a constant to 0, for each row there is
CHECK = 2  # rounds between looks at held-out users
TINY = 1e-12

Vector = NDArray[np.float64]


class BoostingSettings(NamedTuple):
    """How trees are boosted."""

    leaves: int
    rate: float
    prior: float  # rows
    rounds: int  # at most
    patience: int  # rounds without a better one, after which it ends


class BoostingRows(NamedTuple):
    """A regression's data: `at [n]` rows of a table, targets `[n, H]`, and `[n, d]` what the coefficients multiply."""

    at: NDArray[np.int64]
    target: Vector
    by: Vector

    def mean_square(self) -> Vector:
        """`[H]` of the targets."""
        square: Vector = np.square(self.target).mean(axis=0)
        return square


@dataclass(frozen=True)
class BinnedTable:
    """Rows as LightGBM sees them: numbers, then codes.

    Attributes:
        x: `[N, n+F]` float32.
        num_numbers: n.
        sizes: codes per categorical field.
        binned: LightGBM's form of the same.
        seed: of everything random.
    """

    x: NDArray[np.float32]
    num_numbers: int
    sizes: tuple[int, ...]
    binned: Any
    seed: int

    @classmethod
    def of(cls, x: NDArray[np.float32], num_numbers: int, sizes: tuple[int, ...], seed: int) -> BinnedTable:
        """Bin the columns."""
        with optional():
            import lightgbm

        fields = list(range(num_numbers, num_numbers + len(sizes)))
        settings = _settings(seed) | {
            "max_bin": BINS,
            "max_bin_by_feature": [BINS] * num_numbers + [MOST_CODES + 5] * len(fields),
        }
        binned = lightgbm.Dataset(x, params=settings, categorical_feature=fields, free_raw_data=False)
        return cls(x, num_numbers, sizes, binned.construct(), seed)

    def with_columns(self, more: NDArray[np.float32]) -> BinnedTable:
        """Return the same rows with more numbers, `[N, k]`, before all others."""
        return BinnedTable.of(np.hstack([more, self.x]), more.shape[1] + self.num_numbers, self.sizes, self.seed)


def states(data: Transitions, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """`[N, n+F]` the features of rows, as a table takes them."""
    codes, numbers = data.features(rows)
    return np.hstack([numbers, capped(codes).astype(np.float32)])


def capped(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Codes of rare values as that of unknown ones; the more frequent a value, the smaller its code."""
    return np.where(codes > MOST_CODES, np.int32(UNKNOWN), codes)


@dataclass(frozen=True)
class Boosted:
    """Coefficients of H targets by d functions.

    Attributes:
        booster: LightGBM's, with a tree for each (target, function) in every round.
        start: `[H, d]` c.
        rounds: `[H]` that are kept.
        explained: `[H]` share of a held-out target's mean square that is explained.
    """

    booster: Any
    start: Vector
    rounds: NDArray[np.int64]
    explained: Vector

    def __call__(self, x: NDArray[np.float32]) -> Vector:
        """`[N, H, d]` c + f for rows of a table."""
        out, done = np.tile(self.start, (len(x), 1, 1)), 0
        for rounds in np.unique(self.rounds[self.rounds > 0]).tolist():
            predicted = _predictions(self.booster, x, done, rounds - done)
            kept = self.rounds >= rounds
            out[:, kept] += predicted.reshape(len(x), *self.start.shape)[:, kept]
            done = rounds
        return out

    def trees(self, num_numbers: int, sizes: tuple[int, ...]) -> list[tuple[int, Node]]:
        """The trees that are kept, with the output h·d + j that each adds to."""
        count, d = self.start.size, self.start.shape[1]
        dumped = self.booster.dump_model(num_iteration=int(self.rounds.max(initial=0)) or 1)["tree_info"]
        kept = [(i % count, tree) for i, tree in enumerate(dumped) if i // count < self.rounds[i % count // d]]
        return [(output, _node(tree["tree_structure"], num_numbers, sizes)) for output, tree in kept]


def boost(table: BinnedTable, rows: BoostingRows, held_out: BoostingRows, settings: BoostingSettings) -> Boosted:
    """Fit coefficients on some rows of a table, and stop by others.

    Args:
        table: of both.
        rows: to learn from.
        held_out: whose loss ends it; where there are none, the rows themselves.
        settings: of the trees.
    """
    with optional():
        import lightgbm

    heads, d = rows.target.shape[1], rows.by.shape[1]
    held_out = held_out if len(held_out.at) else rows
    start = constants(rows)
    booster = lightgbm.Booster(_settings(table.seed) | {
        "objective": "none", "num_class": heads * d, "learning_rate": settings.rate, "num_leaves": settings.leaves,
        "lambda_l2": settings.prior, "min_data_in_leaf": 20, "min_sum_hessian_in_leaf": 10.0,
        "cat_l2": settings.prior, "cat_smooth": 50.0, "min_data_per_group": 50, "max_bin": BINS,
    }, table.binned.subset(rows.at.tolist()).construct())  # fmt: skip
    # Functions are stored one after another, as LightGBM keeps its scores.
    residual, by = (np.ascontiguousarray(part.T, np.float32) for part in (_residual(rows, start), rows.by))
    hessian = np.tile(np.square(by), (heads, 1)).ravel()

    def gradient(predicted: NDArray[np.float64], _data: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        score = predicted.T.astype(np.float32).reshape(heads, d, -1)
        left = np.einsum("hjn,jn->hn", score, by) - residual
        return (left[:, None] * by[None]).ravel(), hessian

    x = table.x[held_out.at]
    left = _residual(held_out, start)
    best, rounds, done = np.square(left).mean(axis=0), np.zeros(heads, np.int64), 0
    while done < settings.rounds and done - rounds.max() < settings.patience:
        for _ in range(CHECK):
            booster.update(fobj=gradient)
        predicted = _predictions(booster, x, done, CHECK)
        left = left - np.einsum("nhj,nj->nh", predicted.reshape(len(x), heads, d), held_out.by)
        done += CHECK
        loss = np.square(left).mean(axis=0)
        rounds, best = np.where(loss < best, done, rounds), np.minimum(loss, best)
    return Boosted(booster, start, rounds, 1 - best / np.maximum(held_out.mean_square(), 1e-30))


def _predictions(booster: Any, x: NDArray[np.float32], first: int, rounds: int) -> Vector:
    """Predictions of some rounds, `[N, H·d]`."""
    predicted: Any = booster.predict(
        x, start_iteration=first, num_iteration=rounds, raw_score=True, num_threads=_threads()
    )
    return np.asarray(predicted, np.float64).reshape(len(x), -1)


def constants(rows: BoostingRows) -> Vector:
    """`[H, d]` c: least squares, with a little ridge where functions are alike."""
    square = rows.by.T @ rows.by
    square += (RIDGE * np.trace(square) / len(square) + TINY) * np.eye(len(square))
    coefficients: Vector = np.asarray(np.linalg.solve(square, rows.by.T @ rows.target).T, np.float64)
    return coefficients


def _residual(rows: BoostingRows, start: Vector) -> Vector:
    left: Vector = rows.target - rows.by @ start.T
    return left


def _settings(seed: int) -> dict[str, Any]:
    return {"seed": seed, "deterministic": True, "force_row_wise": True, "num_threads": _threads(), "verbosity": -1,
            "use_missing": False, "feature_pre_filter": False, "max_cat_to_onehot": 1}  # fmt: skip


def _threads() -> int:
    """Half of the processors that may be used, or as many as OMP_NUM_THREADS asks for; `--threads` takes others away.

    Threads of boosted trees wait for one another many times a second: with one for every processor, a machine that has
    something else to do is ten times slower.
    """
    free = processors()
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(free, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else max(1, free // 2)


def _node(dumped: dict[str, Any], num_numbers: int, sizes: tuple[int, ...]) -> Node:
    """A tree as LightGBM describes it. A set that has the unknown code has those that were taken for it, too."""
    if "leaf_value" in dumped:
        return Node(LEAF, 0.0, float(dumped["leaf_value"]))
    low, high = (_node(dumped[name], num_numbers, sizes) for name in ("left_child", "right_child"))
    column = int(dumped["split_feature"])
    if dumped["decision_type"] != "==":
        return Node(column, float(dumped["threshold"]), 0.0, None, low, high)
    codes = {int(code) for code in dumped["threshold"].split("||")}
    codes |= set(range(MOST_CODES + 1, sizes[column - num_numbers])) if UNKNOWN in codes else set()
    return Node(column, 0.0, 0.0, frozenset(codes), low, high)
