"""Prices of the multiple-choice knapsack: the relaxation, in which shares of actions are allowed, and its bound.

One total: every total is solved at once, by a hull for each user and one sort. A user's actions are points (cost,
value); only the corners of their upper hull, rising from the cheapest action, can be worth their cost. The way from one
corner to the next is a step with a price, Δvalue / Δcost, and a user's prices fall. Everybody starts with the cheapest
action, and the steps of all users are taken in the order of their prices. Where the total runs out in the middle of a
step the relaxation takes a part of it; an allocation stops before it.

    value*(total) = Σ start + Σ Δvalue over the steps that fit + the part of the next one

Corners are found by wrapping: from a corner, the next is the action of the steepest slope among the more expensive
ones. That needs no sorting within users and works on whole blocks, and most users are done after one or two rounds. A
sample of the users shows between which two prices the total lies; only that part of the path is computed for all.

Several totals: the marginal value of each, from the dual.

    D(λ) = Σⱼ λⱼ totalⱼ + Σᵢ maxₐ (value[i, a] − Σⱼ λⱼ cost[i, a, j])  ≥  the value of every allocation, for each λ ≥ 0

The least D is the value of the linear program. D is convex and piecewise linear in few variables, so it is minimised by
cutting planes, each an evaluation of all users, with the next point kept in a box around the best one (plain cutting
planes jump about). The multipliers of the last cuts are the shares in which their actions mix to the solution of the
linear program.

Source: Sinha & Zoltners (1979) for the relaxation; Sverdrup, Wu, Athey & Wager (2025), *Qini curves for multi-armed
treatment rules*, for the path as a result (their package `maq` keeps a priority queue; one sort does here); Jarvis
(1973) for the wrapping; Everett (1963) for the prices; Marsten, Hogan & Blankenship (1975) for the box; Dantzig & Wolfe
(1960) for the shares; the sample is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from outlay.ops.knapsack import Choices, Floats, Indices, net_values


@dataclass(frozen=True)
class BudgetPath:
    """The path, or the part of it between two prices.

    Attributes:
        start: `[N]` the action of each user at the first point.
        user: `[K]` who takes step k.
        action: `[K]` the action that the step leads to.
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
        """The most that any allocation with spend ≤ total can bring, shares of actions included.

        The first point's value if `total` is below its spend, the last one's if it is beyond the last.
        """
        return float(np.interp(total, self.spend, self.value))

    def price_at(self, total: float) -> float:
        """Marginal value of spend: the price of the first step that does not fit; 0 after the last."""
        steps = self.steps_within(total)
        return float(self.price[steps]) if steps < len(self.price) else 0.0

    def actions_at(self, total: float) -> Indices:
        """`[N]` the actions after all steps that fit entirely."""
        steps = self.steps_within(total)
        action = self.start.copy()
        # Of a user's steps the last one stands: NumPy assigns repeated positions in order.
        action[self.user[:steps]] = self.action[:steps]
        return action


def budget_path(choices: Choices, low_price: float = 0.0, high_price: float = np.inf) -> BudgetPath:
    """The path of one total, from `high_price` (everybody at the best action for it) down to `low_price`.

    Args:
        choices: with one cost, m = 1.
        low_price: ≥ 0, where the path ends; 0 for its natural end.
        high_price: where it starts; infinite for the cheapest action of every user.

    Returns:
        The path. Among actions that cost the same only the best is ever taken, among equals the first; an action on or
        below the hull of the others never is.
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
    """First actions `[B]`, their spend and value, and the steps, user by user: user, action, price, Δcost, Δvalue."""
    value, cost = choices.read(rows)
    cost = cost[:, :, 0]
    start = _first_arms(value, cost, high)
    position = np.arange(len(value))
    first = float(cost[position, start].sum()), float(value[position, start].sum())

    net = value - low * cost
    # Users whose first action is also best at the low price have no step: this skips most users of a narrow path.
    user = np.flatnonzero(net.max(axis=1) > net[position, start])
    value, cost, at = value[user], cost[user], start[user]
    price = np.full(len(user), high)
    steps: list[_Steps] = []
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
            steps.append((user + rows.start, at.astype(np.int32), price, extra[goes, at], gain[goes, at]))
    if not steps:
        empty = np.empty(0)
        return start, first, (user, start[:0].astype(np.int32), empty, empty, empty)
    user, action, price, extra, gain = (np.concatenate([step[i] for step in steps]) for i in range(5))
    return start, first, (user, action, price, extra, gain)


def _first_arms(value: Floats, cost: Floats, price: float) -> Indices:
    """`[B]` the best action at a price; of equals the cheapest, or at an infinite price the most valuable."""
    allowed = value > -np.inf
    if np.isinf(price):
        first, second = np.where(allowed, -cost, -np.inf), value
    else:
        first, second = value - price * cost, -cost
    ties = first == first.max(axis=1, keepdims=True)
    best: Indices = np.where(ties, second, -np.inf).argmax(axis=1)
    return best


_SAMPLE_SEED = 0
_DEVIATIONS = 4.0  # of the sample's spend, on each side of the total: missed once in 16,000 times, and then widened
_ROUNDS = 300
_CLOSE = 1e-9  # of the range of values


def price_search(choices: Choices, total: float, *, sample: int = 100_000) -> BudgetPath:
    """The part of the budget path around one total, of millions of users in a few readings of the block.

    Args:
        choices: with one cost, m = 1.
        total: in the unit of the cost, at least the cheapest allocation's; may be infinite.
        sample: users to estimate the price from. With no more users than that, the whole path is returned.

    Returns:
        A path with the total between its ends (or with an end where the whole path has one), so that its `value_at`,
        `price_at` and `actions_at` of the total are the whole path's.
    """
    count = choices.num_users
    if count <= sample:
        return budget_path(choices)
    drawn = choices.take(np.random.default_rng(_SAMPLE_SEED).integers(count, size=sample))
    guess = budget_path(drawn)
    share = total * (sample / count)
    chosen = np.take_along_axis(drawn.cost[:, :, 0], guess.actions_at(share)[:, None], axis=1).astype(np.float64)
    spread = max(float(chosen.std()), 1e-3 * float(guess.spend[-1] - guess.spend[0]) / sample)
    deviations = _DEVIATIONS
    while True:
        aside = deviations * spread * math.sqrt(sample)
        # A margin, so that a price which many users share lies inside.
        high = guess.price_at(share - aside) * (1 + 1e-9) if share - aside >= guess.spend[0] else math.inf
        low = guess.price_at(share + aside) * (1 - 1e-9)
        path = budget_path(choices, low, high)
        if (total >= path.spend[0] or high == math.inf) and (total <= path.spend[-1] or low == 0.0):
            return path
        deviations *= 8.0


@dataclass(frozen=True)
class LimitPrices:
    """Prices of several totals.

    Attributes:
        prices: `[m]` ≥ 0, value units per cost unit.
        bound: D(prices): no allocation within the totals has a higher value.
        feasible: False if the prices prove that not even shares of actions keep all totals together:
            Σᵢ minₐ Σⱼ λⱼ cost[i, a, j] > Σⱼ λⱼ totalⱼ.
        corners: `[K, m]` other prices of about the same bound, K ≤ m + 1. The mixture of their best actions keeps the
            totals and reaches the bound: it solves the linear program.
        shares: `[K]` of that mixture, a distribution.
    """

    prices: Floats
    bound: float
    feasible: bool
    corners: Floats
    shares: Floats


def limit_prices(choices: Choices, totals: Floats) -> LimitPrices:
    """The least bound over all prices, to 1e-9 of the range of values, or a proof that the totals cannot be kept.

    Args:
        choices: with any number of costs.
        totals: `[m]` ≥ 0; may be infinite.
    """
    bounded = np.isfinite(totals)
    least_value = math.fsum(choices.map_blocks(lambda rows: _least_value(choices, rows)))
    best = np.zeros(choices.num_limits)
    first, spend = _evaluate(choices, totals, best)
    # In these units prices are about as large as what the totals can be worth.
    unit = np.where(bounded & (totals > 0), totals, np.where(spend > 0, spend, 1.0))
    extent = max(first - least_value, 1e-9 * abs(first)) or 1.0
    # Cut k says: D(λ) ≥ first + extent · (heightₖ + slopeₖ · λ in these units).
    tried, slopes, heights = [best], [_slope(totals, spend, unit)], [0.0]
    bound, level, centre, radius = first, 0.0, best, 1.0
    shares = np.ones(1)
    for _ in range(_ROUNDS):
        ceiling = np.where(bounded, centre + radius, 0.0)
        box = np.column_stack([np.maximum(centre - radius, 0.0), ceiling])
        point, model, shares = _lowest(np.array(slopes), np.array(heights), box)
        if level - model <= _CLOSE:
            if ((point < ceiling) | ~bounded).all() and ((point > box[:, 0]) | (box[:, 0] == 0.0)).all():
                break
            radius *= 8.0
            continue
        prices = point * extent / unit
        value, spend = _evaluate(choices, totals, prices)
        height = (value - first) / extent
        tried.append(prices)
        slopes.append(_slope(totals, spend, unit))
        heights.append(height - float(slopes[-1] @ point))
        if value < least_value - _CLOSE * extent:
            return LimitPrices(prices, value, False, prices[None], np.ones(1))
        promised, kept = level - model, level - height
        if kept > 0:
            best, bound, centre, level = prices, value, point, height
        radius *= 2.0 if kept > 0.5 * promised else 0.5 if kept <= 0 else 1.0
    used = np.flatnonzero(shares)
    return LimitPrices(best, bound, True, np.array(tried)[used], shares[used] / shares[used].sum())


def _slope(totals: Floats, spend: Floats, unit: Floats) -> Floats:
    """`[m]` of D, where everybody's best actions spend this much; 0 for a total without end, whose price stays 0."""
    slope: Floats = np.where(np.isfinite(totals), (totals - spend) / unit, 0.0)
    return slope


def _lowest(slopes: Floats, heights: Floats, box: Floats) -> tuple[Floats, float, Floats]:
    """The point in the box `[m, 2]` where the highest cut is lowest, that height, and each cut's multiplier."""
    size = slopes.shape[1]
    solution = linprog(
        np.append(np.zeros(size), 1.0),
        A_ub=np.column_stack([slopes, -np.ones(len(slopes))]),
        b_ub=-heights,
        bounds=[*box.tolist(), (None, None)],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert solution.x is not None, solution.message
    return solution.x[:size], float(solution.x[size]), np.maximum(-solution.ineqlin.marginals, 0.0)


def _evaluate(choices: Choices, totals: Floats, prices: Floats) -> tuple[float, Floats]:
    """D at these prices, and the spend `[m]` of everybody's best action."""

    def part(rows: slice) -> tuple[float, Floats]:
        value, cost = choices.read(rows)
        net = net_values(value, cost, prices)
        cell = np.arange(len(net)) * net.shape[1] + net.argmax(axis=1)
        return float(net.take(cell).sum()), cost.reshape(-1, len(prices)).take(cell, axis=0).sum(axis=0)

    parts = choices.map_blocks(part)
    priced = prices > 0
    bound = math.fsum([*(net for net, _ in parts), *(prices[priced] * totals[priced])])
    return bound, np.array([spend for _, spend in parts]).sum(axis=0)


def _least_value(choices: Choices, rows: slice) -> float:
    value, _ = choices.read(rows)
    return float(np.where(value > -np.inf, value, np.inf).min(axis=1).sum())
