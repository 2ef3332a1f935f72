"""From prices to one whole arm for each user within every total: give up until all hold, then spend what is left.

    bound − value = Σᵢ lossᵢ + Σⱼ λⱼ (totalⱼ − spendⱼ),      lossᵢ = maxₐ net[i, a] − net[i, aᵢ]
    net[i, a] = value[i, a] − Σⱼ λⱼ cost[i, a, j]

At the best prices nobody loses, but the totals hold only about: `apportion` divides the users who are in two minds.
`repair` moves users to other arms where the least is lost for the relief it brings; `fill` moves users to better arms
where the most is gained for the cost, at the prices. Both work in rounds: every user's best move, one sort, and of that
order as many as go.

Source: ours, after the greedy heuristics in Kellerer, Pferschy & Pisinger (2004), *Knapsack Problems*, sections 9.5
and 11.6.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.ops.knapsack import Choices, Floats, Indices, Rows, net_values

_ROUNDS = 200
_GOLDEN = (5**0.5 - 1) / 2


class _Moves(NamedTuple):
    """At most one move a user: to which arm, how good it is (less is better), what it costs `[K, m]` more."""

    user: Indices
    arm: Indices
    key: Floats
    extra: Floats

    def where(self, chosen: Indices | NDArray[np.bool_]) -> _Moves:
        return _Moves(self.user[chosen], self.arm[chosen], self.key[chosen], self.extra[chosen])


def apportion(choices: Choices, corners: Floats, shares: Floats) -> Indices:
    """Whole arms near a mixture: each user gets the best arm of one of several price vectors.

    Users between whose arms the prices differ in the same way form a group, and of each group the prices get
    their shares, to a few users. So many users alike (a few states, many users) are divided, not sent all one way.

    Args:
        choices: the problem.
        corners: `[K, m]` price vectors.
        shares: `[K]` a distribution.

    Returns:
        `[N]` arms; their spend is about the mixture's.
    """
    arms = np.stack([choices.best_at(prices) for prices in corners])
    action: Indices = arms[0].copy()
    split = np.flatnonzero((arms != arms[0]).any(axis=0))
    grouped = split[np.lexsort(arms[:, split])]
    # Multiples of the golden ratio: every stretch of the order is divided evenly.
    position = np.arange(len(grouped)) * _GOLDEN % 1.0
    corner = np.minimum(np.searchsorted(np.cumsum(shares), position, side="right"), len(shares) - 1)
    action[grouped] = arms[corner, grouped]
    return action


def repair(choices: Choices, totals: Floats, prices: Floats, action: Indices) -> Indices | None:
    """Move users to cheaper arms until every total holds.

    Args:
        choices: the problem.
        totals: `[m]` in the units of the costs; may be infinite.
        prices: `[m]` ≥ 0, that the loss of a move is counted at.
        action: `[N]` to start from.

    Returns:
        `[N]` arms whose `spend_of` is within the totals (`action` itself if they are already), or None where no
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
        action[moves.user[:count]] = moves.arm[:count]
    return None


def fill(choices: Choices, totals: Floats, prices: Floats, action: Indices) -> Indices:
    """Move users to more valuable arms while what is left of the totals allows it.

    Args:
        choices: the problem.
        totals: `[m]` in the units of the costs; may be infinite.
        prices: `[m]` ≥ 0, that the cost of a move is counted at.
        action: `[N]` whose spend is within the totals.

    Returns:
        `[N]` arms. No single user could now get a more valuable arm within what is left, unless 200 rounds were not
        enough. Rounding in the running sums may put a spend above its total by some last digits: `repair` once more.
    """
    action = action.copy()
    left = totals - choices.spend_of(action)
    everybody = who = np.arange(choices.num_users)
    for _ in range(_ROUNDS):
        moves = _joined(choices.map_blocks(partial(_gaining, choices, prices, action, left, who), len(who)))
        if not len(moves.user):
            break
        # What is left becomes less, so who has no move now has none later, unless some move gives something back.
        who = moves.user if (moves.extra >= 0).all() else everybody
        moves = moves.where(np.argsort(moves.key, kind="stable"))
        while len(moves.user):
            running = np.cumsum(moves.extra, axis=0)
            count = max(1, _first(running > left))
            action[moves.user[:count]] = moves.arm[:count]
            left = left - running[count - 1]
            moves = moves.where(np.arange(len(moves.user)) >= count)
            moves = moves.where((moves.extra <= left).all(axis=1))
    return action


def _first(flags: NDArray[np.bool_]) -> int:
    """Position of the first row with a True, or how many rows there are."""
    rows = np.flatnonzero(flags.any(axis=1))
    return int(rows[0]) if len(rows) else len(flags)


def _joined(parts: list[_Moves]) -> _Moves:
    user, arm, key, extra = zip(*parts, strict=True)
    return _Moves(np.concatenate(user), np.concatenate(arm), np.concatenate(key), np.concatenate(extra))


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
    """Values `[B, A]`, costs and costs above the present arm's `[B, A, m]`, and the present arm `[B]`."""
    value, cost = choices.read(rows)
    at = action[rows]
    return value, cost, cost - cost[np.arange(len(at)), at][:, None, :], at


def _best_moves(user: Indices, key: Floats, extra: Floats) -> _Moves:
    """The move of the least key of each user who has one (the key of no move is infinite)."""
    arm = key.argmin(axis=1)
    least = key[np.arange(len(arm)), arm]
    can = np.flatnonzero(least < np.inf)
    return _Moves(user[can], arm[can], least[can], extra[can, arm[can]])
