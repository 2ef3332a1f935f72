"""Boosted trees for varying coefficients: coefficients that are functions of the state.

    y_h  ≈  Σ_j (c_hj + f_hj(s)) z_j                 z [d]: given for each row; with z = 1, a plain regression
    loss = Σ_rows Σ_h (y_h − ŷ_h)²                   one tree for each f_hj in every round, all on the same residuals

c is the least-squares fit. Boosting stops when the held-out loss of no y_h has improved for a while, and each y_h keeps
its own best number of rounds. Leaves are shrunk as if `prior` additional rows had a target of 0.

Source: Friedman (2001); coefficients, Zhou and Hooker (2022), "Decision tree boosted varying coefficient models"; the
trees are LightGBM's (Ke et al. 2017).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.bodies import LEAF, Node, Trees, joined
from outlay.core.machine import optional, processors
from outlay.core.schema import UNKNOWN
from outlay.core.transitions import Transitions

MOST_CODES = 250  # codes of a field, by frequency; rarer ones are treated as unknown
BINS = 63  # bins of a number
RIDGE = 1e-3  # ridge penalty of the constants, relative to the number of rows
CHECK = 2  # rounds between evaluations on held-out users
CHUNK = 65_536  # rows that are predicted at a time
TINY = 1e-12

Vector = NDArray[np.float64]


class BoostingSettings(NamedTuple):
    """Settings of boosting."""

    leaves: int
    rate: float
    prior: float  # rows
    rounds: int  # maximum
    patience: int  # rounds without improvement after which boosting stops


class BoostingRows(NamedTuple):
    """A regression's data: `at [n]` rows of a table, targets `[n, H]`, and `[n, d]` what the coefficients multiply."""

    at: NDArray[np.int64]
    target: Vector
    by: Vector

    def mean_square(self) -> Vector:
        """Return the mean square `[H]` of the targets."""
        square: Vector = np.square(self.target).mean(axis=0)
        return square


@dataclass(frozen=True)
class BinnedTable:
    """Rows of numbers and codes, and the same as a LightGBM dataset.

    Attributes:
        numbers: `[N, n]`.
        codes: `[N, F]`; those of rare values are replaced by the unknown code.
        sizes: codes per categorical field.
        binned: the LightGBM dataset, without its raw data.
        seed: random seed.
    """

    numbers: NDArray[np.float32]
    codes: NDArray[np.uint8]
    sizes: tuple[int, ...]
    binned: Any
    seed: int

    @classmethod
    def of(
        cls, numbers: NDArray[np.float32], codes: NDArray[np.uint8], sizes: tuple[int, ...], seed: int
    ) -> BinnedTable:
        """Bin the columns."""
        with optional():
            import lightgbm

        fields = list(range(numbers.shape[1], numbers.shape[1] + len(sizes)))
        settings = _settings(seed) | {
            "max_bin": BINS,
            "max_bin_by_feature": [BINS] * numbers.shape[1] + [MOST_CODES + 5] * len(fields),
        }
        binned = lightgbm.Dataset(
            np.hstack([numbers, codes], dtype=np.float32), params=settings, categorical_feature=fields
        ).construct()
        return cls(numbers, codes, sizes, binned, seed)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def num_numbers(self) -> int:
        """Number of columns of numbers, n."""
        return int(self.numbers.shape[1])

    def x(self, rows: NDArray[np.int64] | slice) -> NDArray[np.float32]:
        """Return the numbers and codes of rows, `[r, n+F]`, as boosters read them."""
        return np.hstack([self.numbers[rows], self.codes[rows]], dtype=np.float32)


def states(data: Transitions, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return the numbers `[N, n]` and codes `[N, F]` of rows of a log, as in `BinnedTable`."""
    codes = np.empty((len(rows), len(data.schema.sizes)), np.uint8)
    for part in slices(len(rows)):
        codes[part] = capped(data.codes(rows[part], np.int32))
    return data.numbers(rows), codes


def capped(codes: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Replace the codes of rare values by the unknown code; codes are sorted by frequency."""
    return np.where(codes > MOST_CODES, UNKNOWN, codes).astype(np.uint8)


def slices(count: int) -> Iterator[slice]:
    """Yield slices of CHUNK rows that cover `count` rows."""
    return (slice(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK))


@dataclass(frozen=True)
class Boosted:
    """Coefficients of H targets by d functions.

    Attributes:
        trees: those that are kept, each with the index h·d + j of its output.
        plain: the same as arrays, which answer several times faster than LightGBM does.
        start: `[H, d]` c.
        explained: `[H]` share of the held-out target's mean square that is explained.
    """

    trees: list[tuple[int, Node]]
    plain: Trees
    start: Vector
    explained: Vector

    def __call__(self, numbers: NDArray[np.float32], codes: NDArray[np.integer[Any]]) -> Vector:
        """Return `[N, H, d]` c + f for `numbers [N, n]` and `codes [N, F]`."""
        found: Vector = self.start + self.plain.sums(codes, numbers).reshape(len(codes), *self.start.shape)
        return found

    def predict(self, table: BinnedTable, rows: NDArray[np.int64]) -> Vector:
        """Return `[N, H, d]` c + f for rows of a table."""
        out = np.empty((len(rows), *self.start.shape))
        for part in slices(len(rows)):
            out[part] = self(table.numbers[rows[part]], table.codes[rows[part]])
        return out


def boost(
    table: BinnedTable,
    rows: BoostingRows,
    held_out: BoostingRows,
    settings: BoostingSettings,
    without: Sequence[int] = (),
) -> Boosted:
    """Fit coefficients on some rows of a table, with early stopping on others.

    Args:
        table: the table of both.
        rows: rows to learn from.
        held_out: rows for early stopping; if empty, `rows`.
        settings: settings of boosting.
        without: columns that no tree may use: numbers first, then fields.
    """
    with optional():
        import lightgbm

    heads, d = rows.target.shape[1], rows.by.shape[1]
    used = np.ones(table.num_numbers + len(table.sizes))
    used[list(without)] = 0
    held_out = held_out if len(held_out.at) else rows
    start = constants(rows)
    booster = lightgbm.Booster(
        _settings(table.seed)
        | {
            "objective": "none",
            "num_class": heads * d,
            "learning_rate": settings.rate,
            "num_leaves": settings.leaves,
            "lambda_l2": settings.prior,
            "min_data_in_leaf": 20,
            "min_sum_hessian_in_leaf": 10.0,
            "cat_l2": settings.prior,
            "cat_smooth": 50.0,
            "min_data_per_group": 50,
            "max_bin": BINS,
            "feature_contri": used.tolist(),  # what a split gains is multiplied by it, and must be above 0
        },
        table.binned.subset(rows.at.tolist()).construct(),
    )
    # Functions are stored one after another, as LightGBM keeps its scores.
    residual, by = (np.ascontiguousarray(part.T, np.float32) for part in (_residual(rows, start), rows.by))
    hessian = np.tile(np.square(by), (heads, 1)).ravel()
    slope = np.empty((heads, d, by.shape[1]), np.float32)  # holds the gradients after each call

    def gradient(predicted: NDArray[np.float64], _data: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        np.copyto(slope, predicted.T.reshape(slope.shape), casting="same_kind")
        left = np.einsum("hjn,jn->hn", slope, by) - residual
        np.multiply(left[:, None], by[None], out=slope)
        return slope.ravel(), hessian

    x = table.x(held_out.at)
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
    trees = _kept(booster, rounds, d, table)
    plain = joined(trees, table.sizes, table.num_numbers, heads * d)
    return Boosted(trees, plain, start, 1 - best / np.maximum(held_out.mean_square(), 1e-30))


def _kept(booster: Any, rounds: NDArray[np.int64], functions: int, table: BinnedTable) -> list[tuple[int, Node]]:
    """The trees of the first `rounds` `[H]` of each target, with the index h·d + j of the output of each."""
    count = len(rounds) * functions
    dumped = booster.dump_model(num_iteration=int(rounds.max(initial=0)) or 1)["tree_info"]
    kept = [(i % count, tree) for i, tree in enumerate(dumped) if i // count < rounds[i % count // functions]]
    return [(output, _node(tree["tree_structure"], table.num_numbers, table.sizes)) for output, tree in kept]


def _predictions(booster: Any, x: NDArray[np.float32], first: int, rounds: int) -> Vector:
    """Return the predictions `[N, H·d]` of some rounds."""
    predicted: Any = booster.predict(
        x, start_iteration=first, num_iteration=rounds, raw_score=True, num_threads=_threads()
    )
    return np.asarray(predicted, np.float64).reshape(len(x), -1)


def constants(rows: BoostingRows) -> Vector:
    """Return `[H, d]` c: least squares, with a small ridge penalty for collinear functions."""
    square = rows.by.T @ rows.by
    square += (RIDGE * np.trace(square) / len(square) + TINY) * np.eye(len(square))
    coefficients: Vector = np.asarray(np.linalg.solve(square, rows.by.T @ rows.target).T, np.float64)
    return coefficients


def _residual(rows: BoostingRows, start: Vector) -> Vector:
    left: Vector = rows.target - rows.by @ start.T
    return left


def _settings(seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": _threads(),
        "verbosity": -1,
        "use_missing": False,
        "feature_pre_filter": False,
        "max_cat_to_onehot": 1,
    }


def _threads() -> int:
    """Return the number of threads: OMP_NUM_THREADS, or else half of the processors that `--threads` allows.

    LightGBM's threads synchronise many times a second: with one thread per processor, training is ten times slower as
    soon as the machine has other work.
    """
    free = processors()
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(free, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else max(1, free // 2)


def _node(dumped: dict[str, Any], num_numbers: int, sizes: tuple[int, ...]) -> Node:
    """Convert a tree from LightGBM's dump. A set with the unknown code also gets the codes treated as unknown."""
    if "leaf_value" in dumped:
        return Node(LEAF, 0.0, float(dumped["leaf_value"]))
    low, high = (_node(dumped[name], num_numbers, sizes) for name in ("left_child", "right_child"))
    column = int(dumped["split_feature"])
    if dumped["decision_type"] != "==":
        return Node(column, float(dumped["threshold"]), 0.0, None, low, high)
    codes = {int(code) for code in dumped["threshold"].split("||")}
    codes |= set(range(MOST_CODES + 1, sizes[column - num_numbers])) if UNKNOWN in codes else set()
    return Node(column, 0.0, 0.0, frozenset(codes), low, high)
