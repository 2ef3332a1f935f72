"""The multiple-choice knapsack: one action for each user, so that the values add up to most within every total.

    max  Σᵢ value[i, aᵢ]     s.t.     Σᵢ cost[i, aᵢ, j] ≤ totalⱼ   for j = 1 … m,     aᵢ allowed for i

Here are the problem, which is read block by block so that ten million users need no second copy of their predictions,
and the way from prices to one whole action for each user within every total: give up value until all totals hold, then
spend what is left. The prices come from `knapsack_prices.py`.

    bound − value = Σᵢ lossᵢ + Σⱼ λⱼ (totalⱼ − spendⱼ),      lossᵢ = maxₐ net[i, a] − net[i, aᵢ]
    net[i, a] = value[i, a] − Σⱼ λⱼ cost[i, a, j]

At the best prices nobody loses, but the totals hold only approximately: `apportion` divides the users who have two
best actions. `repair` moves users to other actions where the least value is lost for the relief; `fill` moves users to
better actions where the most is gained for the cost, at the prices. Both work in rounds: every user's best move, one
sort, and as many moves in that order as fit.

A spend is summed by `math.fsum`: the float64 nearest to the exact sum of the float64 costs, whatever their order. A
float64 stands for every number that rounds to it: 0.1 is a little more than a tenth, and three of them come to a little
more than 0.3. `reach` is the largest sum that still stands for one within a total.

Source: Kellerer, Pferschy & Pisinger (2004), *Knapsack Problems*, ch. 11; the repair is ours, after the greedy
heuristics in sections 9.5 and 11.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from outlay.core.machine import processors

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Rows = slice | Indices
_T = TypeVar("_T")

_STEP = 2.0**-53  # half a step of a float64, relative: how far the number that was meant may be from it
_BLOCK_CELLS = 80_000  # of float64 work arrays: 0.6 MB each, so that a few of them stay in a core's cache


@dataclass(frozen=True)
class Choices:
    """The actions that every user may get, with their values and costs.

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
        """Values `[B, A]` and costs `[B, A, m]` of some users in float64; −∞ and 0 where an action is not allowed."""
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
        """`[N]` the action of the highest value less its costs at these prices `[m]`; the first of equals."""
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


def reach(totals: Floats) -> Floats:
    """The largest sums of float64 costs that may stand for sums within the totals.

    Costs cᵢ(1 + εᵢ), a total T(1 + δ) and a sum that is rounded once, with every ε and δ at most u = 2⁻⁵³:

        Σ cᵢ ≤ T     ⇒     the float64 sum ≤ (1 + 3u + O(u²)) · the float64 total

    8u leave room for the rounding of what is left of a total. Amounts of money that are above a total are so by a minor
    unit at least, which 8u of the total stay below up to 8 · 10¹⁴ minor units.

    Args:
        totals: `[m]`; may be infinite.

    Returns:
        `[m]`, in the same units.
    """
    return totals * (1 + 8 * _STEP)


def net_values(value: Floats, cost: Floats, prices: Floats) -> Floats:
    """`[B, A]` value − Σⱼ priceⱼ costⱼ."""
    # One product of a matrix and a vector is twice as fast as a product for each user.
    net: Floats = value - (cost.reshape(-1, cost.shape[2]) @ prices).reshape(value.shape)
    return net


_ROUNDS = 200
_GOLDEN = (5**0.5 - 1) / 2


class _Moves(NamedTuple):
    """At most one move a user: to which action, how good it is (less is better), what it costs `[K, m]` more."""

    user: Indices
    action: Indices
    key: Floats
    extra: Floats

    def where(self, chosen: Indices | NDArray[np.bool_]) -> _Moves:
        return _Moves(self.user[chosen], self.action[chosen], self.key[chosen], self.extra[chosen])


def apportion(choices: Choices, corners: Floats, shares: Floats) -> Indices:
    """Whole actions near a mixture: each user gets the best action of one of several price vectors.

    Users between whose actions the prices differ in the same way form a group, and of each group the prices get
    their shares, to a few users. So many users alike (a few states, many users) are divided, not sent all one way.

    Args:
        choices: the problem.
        corners: `[K, m]` price vectors.
        shares: `[K]` a distribution.

    Returns:
        `[N]` actions; their spend is about the mixture's.
    """
    best = np.stack([choices.best_at(prices) for prices in corners])
    action: Indices = best[0].copy()
    split = np.flatnonzero((best != best[0]).any(axis=0))
    grouped = split[np.lexsort(best[:, split])]
    # Multiples of the golden ratio: every stretch of the order is divided evenly.
    position = np.arange(len(grouped)) * _GOLDEN % 1.0
    corner = np.minimum(np.searchsorted(np.cumsum(shares), position, side="right"), len(shares) - 1)
    action[grouped] = best[corner, grouped]
    return action


def repair(choices: Choices, totals: Floats, prices: Floats, action: Indices) -> Indices | None:
    """Move users to cheaper actions until every total holds.

    Args:
        choices: the problem.
        totals: `[m]` in the units of the costs; may be infinite.
        prices: `[m]` ≥ 0, that the loss of a move is counted at.
        action: `[N]` to start from.

    Returns:
        `[N]` actions whose `spend_of` is within the totals (`action` itself if they are already), or None where no
        user's move makes the sum of the excesses smaller, each as a share of its total. That does not prove that
        there is no such allocation.
    """
    given = action
    unit = np.where(np.isfinite(totals) & (totals > 0), totals, 1.0)
    for _ in range(_ROUNDS):
        excess = choices.spend_of(action) - totals
        if (excess <= 0).all():
            return action
        moves = _joined(choices.map_blocks(partial(_relieving, choices, prices, action, excess, unit)))
        if not len(moves.user):
            return None
        moves = moves.where(np.argsort(moves.key, kind="stable"))
        left = _excess(excess + np.cumsum(moves.extra, axis=0), unit)
        # As many as bring relief one after another, of which the first always does.
        rises = np.flatnonzero(np.diff(left) >= 0)
        count = rises[0] + 1 if len(rises) else len(left)
        if action is given:
            action = action.copy()
        action[moves.user[:count]] = moves.action[:count]
    return None


def fill(choices: Choices, totals: Floats, prices: Floats, action: Indices) -> Indices:
    """Move users to more valuable actions while what is left of the totals allows it.

    Args:
        choices: the problem.
        totals: `[m]` in the units of the costs; may be infinite.
        prices: `[m]` ≥ 0, that the cost of a move is counted at.
        action: `[N]` whose spend is within the totals.

    Returns:
        `[N]` actions. No single user could now get a more valuable action within what is left, unless 200 rounds were
        not enough. Rounding in the running sums may put a spend above its total in the last digits: `repair` again.
    """
    action = action.copy()
    left, exact = totals - choices.spend_of(action), True
    everybody = who = np.arange(choices.num_users)
    for _ in range(_ROUNDS):
        moves = _joined(choices.map_blocks(partial(_gaining, choices, prices, action, left, who), len(who)))
        if not len(moves.user):
            if exact:
                break
            # Running sums lose a little with every move, which may be what the last one lacks.
            left, exact, who = totals - choices.spend_of(action), True, everybody
            continue
        exact = False
        # What is left becomes less, so who has no move now has none later, unless some move gives something back.
        who = moves.user if (moves.extra >= 0).all() else everybody
        moves = moves.where(np.argsort(moves.key, kind="stable"))
        while len(moves.user):
            running = np.cumsum(moves.extra, axis=0)
            count = max(1, _first(running > left))
            action[moves.user[:count]] = moves.action[:count]
            left = left - running[count - 1]
            moves = moves.where(np.arange(len(moves.user)) >= count)
            moves = moves.where((moves.extra <= left).all(axis=1))
    return action


def _first(flags: NDArray[np.bool_]) -> int:
    """Position of the first row with a True, or how many rows there are."""
    rows = np.flatnonzero(flags.any(axis=1))
    return int(rows[0]) if len(rows) else len(flags)


def _joined(parts: list[_Moves]) -> _Moves:
    user, action, key, extra = zip(*parts, strict=True)
    return _Moves(np.concatenate(user), np.concatenate(action), np.concatenate(key), np.concatenate(extra))


def _excess(excess: Floats, unit: Floats) -> Floats:
    """`[...]` Σⱼ (excessⱼ / unitⱼ)₊ of `[..., m]`."""
    total: Floats = np.maximum(excess / unit, 0.0).sum(axis=-1)
    return total


def _relieving(choices: Choices, prices: Floats, action: Indices, excess: Floats, unit: Floats, rows: slice) -> _Moves:
    """Moves that alone make the excess smaller: key = loss / relief."""
    value, cost, extra, at = _from_here(choices, rows, action)
    net = net_values(value, cost, prices)
    relief = _excess(excess, unit) - _excess(excess + extra, unit)
    possible = (relief > 0) & (value > -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        key = (net[np.arange(len(at)), at][:, None] - net) / relief
    return _best_moves(np.arange(rows.start, rows.stop), np.where(possible, key, np.inf), extra)


def _gaining(choices: Choices, prices: Floats, action: Indices, left: Floats, who: Indices, rows: slice) -> _Moves:
    """Moves to a higher value that fit alone: key = −gain / extra cost at the prices."""
    user = who[rows]
    value, _, extra, at = _from_here(choices, user, action)
    gain = value - value[np.arange(len(at)), at][:, None]
    priced = np.maximum(-net_values(np.zeros_like(gain), extra, prices), np.finfo(np.float64).tiny)
    possible = (extra <= left).all(axis=2) & (gain > 0)
    with np.errstate(over="ignore"):
        # A gain that costs nothing: the greatest number, so that it is first and still counts as a move.
        key = np.maximum(-gain / priced, -np.finfo(np.float64).max)
    return _best_moves(user, np.where(possible, key, np.inf), extra)


def _from_here(choices: Choices, rows: Rows, action: Indices) -> tuple[Floats, Floats, Floats, Indices]:
    """Values `[B, A]`, costs and costs above the present action's `[B, A, m]`, and the present action `[B]`."""
    value, cost = choices.read(rows)
    at = action[rows]
    return value, cost, cost - cost[np.arange(len(at)), at][:, None, :], at


def _best_moves(user: Indices, key: Floats, extra: Floats) -> _Moves:
    """The move of the least key of each user who has one (the key of no move is infinite)."""
    action = key.argmin(axis=1)
    least = key[np.arange(len(action)), action]
    can = np.flatnonzero(least < np.inf)
    return _Moves(user[can], action[can], least[can], extra[can, action[can]])
