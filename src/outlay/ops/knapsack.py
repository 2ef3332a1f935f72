"""The multiple-choice knapsack: one arm for each user, so that the values add up to most within every total.

    max  Σᵢ value[i, aᵢ]     s.t.     Σᵢ cost[i, aᵢ, j] ≤ totalⱼ   for j = 1 … m,     aᵢ allowed for i

Here are the problem, read block by block so that ten million users need no second copy of their predictions, and its
sums. The solvers stand beside: `budget_path` and `knapsack_prices` (the relaxation for one total and for several),
`knapsack_repair` (from prices to whole arms within the totals).

A spend is summed by `math.fsum`: the float64 nearest to the exact sum of the float64 costs, whatever their order.

Source: Kellerer, Pferschy & Pisinger (2004), *Knapsack Problems*, ch. 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from outlay.core.machine import processors

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Rows = slice | Indices
_T = TypeVar("_T")

_BLOCK_CELLS = 80_000  # of float64 work arrays: 0.6 MB each, so that a few of them stay in a core's cache


@dataclass(frozen=True)
class Choices:
    """What every user may get, and what it brings and costs.

    Attributes:
        value: `[N, A]` float32 or float64, in any unit.
        cost: `[N, A, m]` ≥ 0, float32 or float64; column j in the unit of total j.
        allowed: `[N, A]`, None if everything is. What stands in other cells of `value` and `cost` is not read.
    """

    value: NDArray[np.floating]
    cost: NDArray[np.floating]
    allowed: NDArray[np.bool_] | None = None

    @property
    def num_users(self) -> int:
        """N."""
        return len(self.value)

    @property
    def num_limits(self) -> int:
        """The totals, m of them."""
        return int(self.cost.shape[2])

    def take(self, rows: Indices) -> Choices:
        """The problem of some users, in this order; copies."""
        return Choices(self.value[rows], self.cost[rows], None if self.allowed is None else self.allowed[rows])

    def read(self, rows: Rows) -> tuple[Floats, Floats]:
        """Values `[B, A]` and costs `[B, A, m]` of some users in float64; −∞ and 0 where an arm is not allowed."""
        value = self.value[rows].astype(np.float64)
        cost = self.cost[rows].astype(np.float64)
        if self.allowed is not None:
            barred = ~self.allowed[rows]
            value[barred] = -np.inf
            cost[barred] = 0.0
        return value, cost

    def blocks(self, count: int | None = None) -> list[slice]:
        """All users' rows, or `count` rows, cut so that a block's work arrays fit a core's cache."""
        end = self.num_users if count is None else count
        size = max(1, _BLOCK_CELLS // (self.value.shape[1] * self.num_limits))
        return [slice(start, min(start + size, end)) for start in range(0, end, size)]

    def map_blocks(self, function: Callable[[slice], _T], count: int | None = None) -> list[_T]:
        """`function` of every block, in order, on all cores (NumPy lets go of the interpreter's lock)."""
        blocks = self.blocks(count)
        if len(blocks) == 1:
            return [function(blocks[0])]
        with ThreadPoolExecutor(processors()) as pool:
            return list(pool.map(function, blocks))

    def best_at(self, prices: Floats) -> Indices:
        """`[N]` the arm of the highest value less its costs at these prices `[m]`; the first of equals."""
        return np.concatenate(self.map_blocks(lambda rows: net_values(*self.read(rows), prices).argmax(axis=1)))

    def value_of(self, action: Indices) -> float:
        """Σᵢ value[i, actionᵢ], the exact sum rounded once."""
        return math.fsum(self._chosen(self.value, action))

    def spend_of(self, action: Indices) -> Floats:
        """`[m]` Σᵢ cost[i, actionᵢ, j], each the exact sum rounded once."""
        spend = np.zeros(self.num_limits)
        for j in range(self.num_limits):
            spend[j] = math.fsum(self._chosen(self.cost[:, :, j], action))
        return spend

    def _chosen(self, cells: NDArray[np.floating], action: Indices) -> Iterable[float]:
        def parts() -> Iterator[list[float]]:
            for rows in self.blocks():
                yield np.take_along_axis(cells[rows], action[rows, None], axis=1)[:, 0].tolist()

        return chain.from_iterable(parts())


def net_values(value: Floats, cost: Floats, prices: Floats) -> Floats:
    """`[B, A]` value − Σⱼ priceⱼ costⱼ."""
    # One product of a matrix and a vector is twice as fast as a product for each user.
    net: Floats = value - (cost.reshape(-1, cost.shape[2]) @ prices).reshape(value.shape)
    return net
