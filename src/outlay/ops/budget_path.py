"""The best spending of every budget at once: a hull for each user and one sort.

The relaxation of the knapsack with one total (shares of arms allowed) is solved for every total together. A user's
arms are points (cost, value); only the corners of their upper hull, rising from the cheapest arm, can be worth their
cost. The way from one corner to the next is a step with a price, Δvalue / Δcost, and a user's prices fall. So:
everybody starts with the cheapest arm, and the steps of all users are taken in the order of their prices. Where the
total runs out in the middle of a step the relaxation takes a part of it; an allocation stops before it.

    value*(total) = Σ start + Σ Δvalue over the steps that fit + the part of the next one

Corners are found by wrapping: from a corner, the next is the arm of the steepest slope among the dearer ones. That
needs no sorting within users and works on whole blocks, and most users are done after one or two rounds.

Source: Sinha & Zoltners (1979) for the relaxation; Sverdrup, Wu, Athey & Wager (2025), *Qini curves for multi-armed
treatment rules*, for the path as a result (their package `maq` keeps a priority queue; one sort does here). Jarvis
(1973) for the wrapping.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.ops.knapsack import Choices, Floats, Indices


@dataclass(frozen=True)
class BudgetPath:
    """The path, or the part of it between two prices.

    Attributes:
        start: `[N]` the arm of each user at the first point.
        user: `[K]` who takes step k.
        action: `[K]` the arm that the step leads to.
        price: `[K]` Δvalue / Δcost of the step, not rising; value units per cost unit.
        spend: `[K+1]` spend before the first step and after each one; it rises.
        value: `[K+1]` the value there.
    """

    start: Indices
    user: Indices
    action: NDArray[np.int32]
    price: Floats
    spend: Floats
    value: Floats

    def steps_within(self, total: float) -> int:
        """How many steps fit entirely."""
        return max(0, int(np.searchsorted(self.spend, total, side="right")) - 1)

    def value_at(self, total: float) -> float:
        """The most that any allocation with spend ≤ total can bring, shares of arms included.

        The first point's value if `total` is below its spend, the last one's if it is beyond the last.
        """
        return float(np.interp(total, self.spend, self.value))

    def price_at(self, total: float) -> float:
        """Value of one more unit of spend: the price of the first step that does not fit; 0 after the last."""
        steps = self.steps_within(total)
        return float(self.price[steps]) if steps < len(self.price) else 0.0

    def actions_at(self, total: float) -> Indices:
        """`[N]` the arms after all steps that fit entirely."""
        steps = self.steps_within(total)
        action = self.start.copy()
        # Of a user's steps the last one stands: NumPy assigns repeated positions in order.
        action[self.user[:steps]] = self.action[:steps]
        return action


def budget_path(choices: Choices, low_price: float = 0.0, high_price: float = np.inf) -> BudgetPath:
    """The path of one total, from `high_price` (everybody at the best arm for it) down to `low_price`.

    Args:
        choices: with one cost, m = 1.
        low_price: ≥ 0, where the path ends; 0 for its natural end.
        high_price: where it starts; infinite for the cheapest arm of every user.

    Returns:
        The path. Of arms that cost the same only the best is ever taken, of equals the first; an arm on or below the
        hull of the others never is.
    """
    parts = choices.map_blocks(lambda rows: _block_steps(choices, rows, low_price, high_price))
    user, action, price, extra, gain = (np.concatenate([part[2][i] for part in parts]) for i in range(5))
    # Stable, so that a user's steps of the same price stay in their order and ties do not depend on the processor.
    order = np.argsort(-price, kind="stable")
    first = np.array([part[1] for part in parts]).sum(axis=0)
    return BudgetPath(
        start=np.concatenate([part[0] for part in parts]),
        user=user[order],
        action=action[order],
        price=price[order],
        spend=np.cumsum(np.append(first[0], extra[order])),
        value=np.cumsum(np.append(first[1], gain[order])),
    )


_Steps = tuple[Indices, NDArray[np.int32], Floats, Floats, Floats]


def _block_steps(choices: Choices, rows: slice, low: float, high: float) -> tuple[Indices, tuple[float, float], _Steps]:
    """First arms `[B]`, their spend and value, and the steps: user, arm, price, Δcost, Δvalue, in a user's order."""
    value, cost = choices.read(rows)
    cost = cost[:, :, 0]
    start = _first_arms(value, cost, high)
    position = np.arange(len(value))
    first = float(cost[position, start].sum()), float(value[position, start].sum())

    net = value - low * cost
    # Who is content at the low price has no step on the way to it: a test that spares most users of a narrow path.
    user = np.flatnonzero(net.max(axis=1) > net[position, start])
    value, cost, at = value[user], cost[user], start[user]
    price = np.full(len(user), high)
    found: list[_Steps] = []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        while len(user):
            position = np.arange(len(user))
            extra = cost - cost[position, at][:, None]
            gain = value - value[position, at][:, None]
            slope = np.where(extra > 0, gain / extra, -np.inf)
            at = slope.argmax(axis=1)
            # By rounding a slope may come out a little above the one before it, which must stay the first.
            price = np.minimum(slope[position, at], price)
            goes = np.flatnonzero(price > low)
            user, value, cost, at, price = user[goes], value[goes], cost[goes], at[goes], price[goes]
            found.append((user + rows.start, at.astype(np.int32), price, extra[goes, at], gain[goes, at]))
    if not found:
        empty = np.empty(0)
        return start, first, (user, start[:0].astype(np.int32), empty, empty, empty)
    user, arms, price, extra, gain = (np.concatenate([step[i] for step in found]) for i in range(5))
    return start, first, (user, arms, price, extra, gain)


def _first_arms(value: Floats, cost: Floats, price: float) -> Indices:
    """`[B]` the best arm at a price; of equals the cheapest, or at an infinite price the most valuable."""
    allowed = value > -np.inf
    if np.isinf(price):
        first, second = np.where(allowed, -cost, -np.inf), value
    else:
        first, second = value - price * cost, -cost
    ties = first == first.max(axis=1, keepdims=True)
    best: Indices = np.where(ties, second, -np.inf).argmax(axis=1)
    return best
