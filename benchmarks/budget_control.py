"""Greedy control of spend against a target, for users who come one after another and must be decided at once.

    aₜ = argmaxₐ value[t, a] − λ cost[t, a]      λ ← [ λ + η Σ (cost[t, aₜ] − ρ) ]₊      ρ = total / N

Each user gets the best action at the current price. After every so many users the spend since the last time is
compared with the target, ρ for each: above it the price rises, below it falls. So λ is, except for its floor at 0, a
constant times the running spend less the running target. An action that would take what later users are sure to need
is not given; the best one that leaves enough is, and the total holds whatever comes.

Source: Balseiro, Lu & Mirrokni (2023), *The best of many worlds: dual mirror descent for online allocation problems*,
Algorithm 1 with h(λ) = λ² / 2 (projected subgradient steps); regret of order √N for users drawn alike, at η of order
1/√N. Ours: one step for `every` users instead of one, and actions that all cost something (a reserve for each later
user).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outlay.ops.knapsack import Choices, Floats, Indices


@dataclass(frozen=True)
class ControlledSpend:
    """What the control did.

    Attributes:
        action: `[N]` the actions, in the users' order.
        price: `[P]` λ of each group of `every` users; value units per cost unit.
        spend: `[P]` running spend after each group.
    """

    action: Indices
    price: Floats
    spend: Floats


def control_spend(
    choices: Choices, total: float, price: float, *, step: float | None = None, reserve: float = 0.0, every: int = 100
) -> ControlledSpend:
    """Decide users in their order, without looking ahead.

    Args:
        choices: with one cost, m = 1. Every user has an action that costs `reserve` or less.
        total: finite, at least N · reserve.
        price: λ to begin with, ≥ 0; for instance `BudgetPath.price_at` of yesterday's users.
        step: η, price units per cost unit; None for price / (ρ √(N · every)), which a price of 0 has no use for.
        reserve: what every later user must still be able to spend.
        every: users between two looks at the spend; ≥ 1.

    Returns:
        The actions. Their running spend (float64, summed in order) is at most `total`, except for rounding where the
        total is just what the reserves add up to.

    Raises:
        ValueError: if the total is not finite or below N · reserve, if some user has no action that cheap, or if price
            is 0 and there is no step.
    """
    count = choices.num_users
    if not count * reserve <= total < np.inf:
        raise ValueError(f"total is {total}; expected a finite one, {count} users × reserve {reserve} or more")
    if price == 0 and step is None:
        raise ValueError("price is 0 and there is no step; give one of them, or nothing would adjust")
    target = total / count
    if step is None:
        step = price / (target * np.sqrt(count * every)) if target > 0 else 0.0
    action = np.empty(count, dtype=np.intp)
    prices, spends, spent = [], [], 0.0
    for begin in range(0, count, every):
        rows = slice(begin, min(begin + every, count))
        value, cost = choices.read(rows)
        cost = cost[:, :, 0]
        net = value - price * cost
        later = np.arange(count - rows.start, count - rows.stop, -1, dtype=np.float64) - 1
        action[rows], running = _within(net, cost, spent, total - reserve * later, reserve)
        prices.append(price)
        price = max(0.0, price + step * (running - spent - target * len(value)))
        spent = running
        spends.append(spent)
    return ControlledSpend(action, np.array(prices), np.array(spends))


def _within(net: Floats, cost: Floats, spent: float, ceiling: Floats, reserve: float) -> tuple[Indices, float]:
    """`[B]` the best actions whose running spend stays below the ceiling `[B]` after each user, and the spend then."""
    chosen = net.argmax(axis=1)
    running = np.cumsum(np.append(spent, cost[np.arange(len(net)), chosen]))
    if (running[1:] <= ceiling).all():
        return chosen, float(running[-1])
    for i in range(len(net)):
        possible = np.where((spent + cost[i] <= ceiling[i]) | (cost[i] <= reserve), net[i], -np.inf)
        chosen[i] = possible.argmax()
        if possible[chosen[i]] == -np.inf:
            raise ValueError(f"a user has no action that costs {reserve} or less; raise the reserve")
        spent += float(cost[i, chosen[i]])
    return chosen, spent
