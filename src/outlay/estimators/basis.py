"""Linear bases for Q(s, a) = φ(s, a)ᵀθ: counts of the states, or features of a trained network.

    counted    φ(s, a) = one-hot of (s, a)           exact where distinct states are few
    smooth     φ(s, a) = one-hot of s ⊗ B[:, a]      the same, smooth in the amount (`ops/action_basis.py`)
    features   φ(s, a) = e_a ⊗ [f(s), 1]             f: last hidden layer, [n, d]

Both end with K state-free coordinates, one per action: the feature of a pair (s, a) about which the log says too
little. A pair is named by a row, whose state is meant, and an action; row −1 means "state unknown". Nothing of size
n × K·d is ever built: the work goes by blocks of rows that share an action.

Source: Lagoudakis & Parr (2003) for the block features of LSTDQ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse import block_diag, coo_array, csc_array, diags_array, eye_array, issparse, kron
from scipy.sparse.linalg import splu

from outlay.core.cached import cached_property

Array = NDArray[np.float64]
Matrix = Any  # Array, or csc_array [P, P]
BLOCK_ROWS = 4096  # rows widened to float64 at a time: few enough to stay in the processor's cache
RIDGE = 1e-9  # relative: decides only directions in which the rows do not vary at all


@dataclass(frozen=True)
class StateActions:
    """State-action pairs: rows `[n]` (−1: state unknown) and action indices `[n]`."""

    rows: NDArray[np.intp]
    actions: NDArray[np.intp]

    def __getitem__(self, index: NDArray[Any]) -> StateActions:
        return StateActions(self.rows[index], self.actions[index])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def state_free(self) -> StateActions:
        """The same actions without their states."""
        return StateActions(np.full_like(self.rows, -1), self.actions)


class Basis(Protocol):
    """The operations on φ that fitted evaluation needs; P = `size` coordinates, the last K of them state-free."""

    @property
    def size(self) -> int:
        """P."""

    @property
    def alike(self) -> NDArray[np.intp] | None:
        """`[n]` rows with the same number have the same φ for every action; None where no two are known to."""

    def moment(self, left: StateActions, right: StateActions, weight: Array) -> Matrix:
        """Σ_i weight_i φ(left_i) φ(right_i)ᵀ: `[P, P]`."""

    def project(self, pairs: StateActions, values: Array) -> Array:
        """Σ_i φ(pair_i) values_iᵀ: `[P, T]` from `[n, T]`."""

    def evaluate(self, pairs: StateActions, theta: Array) -> Array:
        """φ(pair_i)ᵀθ: `[n, T]` from `[P, T]`."""

    def regular(self, gram: Matrix) -> Matrix:
        """The Gram matrix with a tiny ridge in directions in which the rows do not vary."""

    def leverage(self, pairs: StateActions, gram: Matrix) -> Array:
        """φᵀ G⁻¹ φ `[n]`: one over the number of rows behind a pair (1/count if states are counted)."""


@dataclass(frozen=True)
class CountedBasis:
    """One coordinate for each state and action.

    Attributes:
        state: `[n]` index of each row's state.
        num_states: S.
        num_actions: K.
    """

    state: NDArray[np.intp]
    num_states: int
    num_actions: int

    @property
    def size(self) -> int:
        """(S + 1)·K."""
        return (self.num_states + 1) * self.num_actions

    @property
    def alike(self) -> NDArray[np.intp]:
        """The states."""
        return self.state

    def column(self, pairs: StateActions) -> NDArray[np.intp]:
        """`[n]` the coordinate of each pair."""
        state = np.where(pairs.rows >= 0, self.state[pairs.rows], self.num_states)
        place: NDArray[np.intp] = state * self.num_actions + pairs.actions
        return place

    def moment(self, left: StateActions, right: StateActions, weight: Array) -> Matrix:
        """As in Basis; sparse."""
        entries = (weight, (self.column(left), self.column(right)))
        return csc_array(coo_array(entries, shape=(self.size, self.size)))

    def project(self, pairs: StateActions, values: Array) -> Array:
        """As in Basis."""
        column = self.column(pairs)
        return np.stack([np.bincount(column, v, self.size) for v in values.T], axis=1)

    def evaluate(self, pairs: StateActions, theta: Array) -> Array:
        """As in Basis."""
        return theta[self.column(pairs)]

    def regular(self, gram: Matrix) -> Matrix:
        """As in Basis: only pairs without a row get a ridge."""
        open_ = np.flatnonzero(gram.diagonal() == 0)
        return csc_array(gram + coo_array((np.full(len(open_), RIDGE), (open_, open_)), shape=gram.shape))

    def leverage(self, pairs: StateActions, gram: Matrix) -> Array:
        """As in Basis."""
        lever: Array = 1 / gram.diagonal()[self.column(pairs)]
        return lever


@dataclass(frozen=True)
class SmoothBasis:
    """R coordinates for each state, in an action basis.

    Attributes:
        counted: the states.
        basis: `[R, K]` B.
    """

    counted: CountedBasis
    basis: Array

    @property
    def size(self) -> int:
        """S·R + K."""
        return self.counted.num_states * len(self.basis) + self.counted.num_actions

    @property
    def alike(self) -> NDArray[np.intp]:
        """The states."""
        return self.counted.state

    @cached_property
    def _wide(self) -> Matrix:
        """`[(S + 1)·K, P]` from these coordinates to the counted ones."""
        by_state = kron(eye_array(self.counted.num_states), csc_array(self.basis.T))
        return csc_array(block_diag([by_state, eye_array(self.counted.num_actions)]))

    def moment(self, left: StateActions, right: StateActions, weight: Array) -> Matrix:
        """As in Basis; sparse."""
        return csc_array(self._wide.T @ self.counted.moment(left, right, weight) @ self._wide)

    def project(self, pairs: StateActions, values: Array) -> Array:
        """As in Basis."""
        total: Array = self._wide.T @ self.counted.project(pairs, values)
        return total

    def evaluate(self, pairs: StateActions, theta: Array) -> Array:
        """As in Basis."""
        return self.counted.evaluate(pairs, self._wide @ theta)

    def regular(self, gram: Matrix) -> Matrix:
        """As in Basis: relative to the mean diagonal of each state's block."""
        diagonal = gram.diagonal()
        states = diagonal[: -self.counted.num_actions].reshape(self.counted.num_states, -1).mean(axis=1)
        mean = np.concatenate([np.repeat(states, len(self.basis)), diagonal[-self.counted.num_actions :]])
        return csc_array(gram + diags_array(RIDGE * np.where(mean > 0, mean, 1.0)))

    def leverage(self, pairs: StateActions, gram: Matrix) -> Array:
        """As in Basis."""
        states, width, actions = self.counted.num_states, len(self.basis), self.counted.num_actions
        blocks = np.zeros((states, width, width))
        inner = gram[: states * width, : states * width].tocoo()  # one block for each state
        blocks[inner.row // width, inner.row % width, inner.col % width] = inner.data
        table = np.einsum("rk,srq,qk->sk", self.basis, np.linalg.inv(blocks), self.basis)
        free = 1 / gram.diagonal()[-actions:]
        return np.vstack([table, free]).ravel()[self.counted.column(pairs)]


@dataclass(frozen=True)
class FeatureBasis:
    """A block of at most d + 1 coordinates for each action: the row's features and a constant.

    Attributes:
        f: `[n, d]` features of each row's state.
        num_actions: K.
        kept: `[K, d]` which features the block of each action has; None: all of them.
    """

    f: NDArray[np.floating]
    num_actions: int
    kept: NDArray[np.bool_] | None = None

    @property
    def size(self) -> int:
        """(d + 2)·K where every block has all features."""
        return int(self._begin[-1]) + self.num_actions

    @property
    def alike(self) -> None:
        """None."""
        return None

    @cached_property
    def _begin(self) -> NDArray[np.intp]:
        """`[K + 1]` the first coordinate of each action's block, and the end of the last."""
        d = self.f.shape[1]
        width = np.full(self.num_actions, d) if self.kept is None else self.kept.sum(axis=1)
        return np.concatenate([[0], np.cumsum(width + 1)]).astype(np.intp)

    def _place(self, code: int) -> slice:
        """Coordinates of a code: action a has code a, state-free action a has code K + a."""
        if code < self.num_actions:
            return slice(int(self._begin[code]), int(self._begin[code + 1]))
        free = int(self._begin[-1]) + code - self.num_actions
        return slice(free, free + 1)

    def _block(self, pairs: StateActions, code: int, index: NDArray[np.intp]) -> Array:
        """The coordinates `_place(code)` of φ for pairs that all have this code."""
        if code >= self.num_actions:
            return np.ones((len(index), 1))
        features = np.take(self.f, pairs.rows[index], axis=0)
        block = np.empty((len(index), int(self._begin[code + 1] - self._begin[code])))
        kept = None if self.kept is None else self.kept[code]
        block[:, :-1] = features if kept is None or kept.all() else features[:, kept]
        block[:, -1] = 1
        return block

    def _codes(self, pairs: StateActions) -> NDArray[np.intp]:
        return np.where(pairs.rows >= 0, pairs.actions, pairs.actions + self.num_actions)

    def moment(self, left: StateActions, right: StateActions, weight: Array) -> Matrix:
        """As in Basis; dense, one block product for each pair of actions."""
        total = np.zeros((self.size, self.size))
        codes = 2 * self.num_actions
        for code, index in _blocks(self._codes(left) * codes + self._codes(right)):
            a, b = divmod(code, codes)
            block = self._block(left, a, index) * weight[index, None]
            total[self._place(a), self._place(b)] += block.T @ self._block(right, b, index)
        return total

    def project(self, pairs: StateActions, values: Array) -> Array:
        """As in Basis."""
        total = np.zeros((self.size, values.shape[1]))
        for code, index in _blocks(self._codes(pairs)):
            total[self._place(code)] += self._block(pairs, code, index).T @ values[index]
        return total

    def evaluate(self, pairs: StateActions, theta: Array) -> Array:
        """As in Basis."""
        out = np.empty((len(pairs), theta.shape[1]))
        for code, index in _blocks(self._codes(pairs)):
            out[index] = self._block(pairs, code, index) @ theta[self._place(code)]
        return out

    def regular(self, gram: Matrix) -> Matrix:
        """As in Basis: relative to the mean diagonal of each action's block."""
        ridge = np.empty(self.size)
        for code in range(2 * self.num_actions):
            mean = gram.diagonal()[self._place(code)].mean()
            ridge[self._place(code)] = RIDGE * (mean if mean > 0 else 1.0)
        return gram + np.diag(ridge)

    def leverage(self, pairs: StateActions, gram: Matrix) -> Array:
        """As in Basis."""
        inverse = {
            code: np.linalg.inv(gram[self._place(code), self._place(code)]) for code in range(2 * self.num_actions)
        }
        out = np.empty(len(pairs))
        for code, index in _blocks(self._codes(pairs)):
            block = self._block(pairs, code, index)
            out[index] = np.einsum("np,np->n", block @ inverse[code], block)
        return out


class Solver:
    """A square matrix, factorised once; solves it and its transpose."""

    def __init__(self, matrix: Matrix) -> None:
        self._sparse = splu(csc_array(matrix)) if issparse(matrix) else None
        self._dense = None if issparse(matrix) else lu_factor(matrix)

    def solve(self, right: Array) -> Array:
        """matrix⁻¹ right: `[P, T]`."""
        return self._solve(right, 0)

    def solve_transposed(self, right: Array) -> Array:
        """matrix⁻ᵀ right: `[P, T]`."""
        return self._solve(right, 1)

    def _solve(self, right: Array, transposed: int) -> Array:
        out: Array
        if self._sparse is not None:
            out = self._sparse.solve(right, trans="NT"[transposed])
        else:
            out = lu_solve(self._dense, right, trans=transposed)
        return out


def _blocks(codes: NDArray[np.intp]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """(code, positions with that code), at most BLOCK_ROWS positions at a time."""
    count = np.bincount(codes)
    small = codes.astype(np.int16) if len(count) <= 2**15 else codes  # NumPy sorts int16 by radix
    order = np.argsort(small, kind="stable")
    ends = np.cumsum(count)
    for code in np.flatnonzero(count):
        for at in range(ends[code] - count[code], ends[code], BLOCK_ROWS):
            yield int(code), order[at : min(at + BLOCK_ROWS, ends[code])]
