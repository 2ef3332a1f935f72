"""Prices that make a total hold: what one more unit of each budget would buy, and a bound on what anybody can reach.

    D(λ) = Σⱼ λⱼ totalⱼ + Σᵢ maxₐ (value[i, a] − Σⱼ λⱼ cost[i, a, j])  ≥  the value of every allocation, for each λ ≥ 0

The least D is the value of the linear program. One total: D's slope at λ is the total less the spend, so λ is where
the budget path crosses the total. A sample of the users tells between which two prices; only that part of the path is
made for all. Several totals: D is convex and piecewise linear in few variables, so it is minimised by cutting planes,
each an evaluation of all users, with the next point kept in a box around the best one (plain cutting planes jump
about). The multipliers of the last cuts are the shares in which their arms mix to the linear program's solution.

Source: Everett (1963) for the prices; Marsten, Hogan & Blankenship (1975) for the box; Dantzig & Wolfe (1960) for
the shares; the sample is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from outlay.ops.budget_path import BudgetPath, budget_path
from outlay.ops.knapsack import Choices, Floats, net_values

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
        feasible: False if the prices prove that not even shares of arms keep all totals together:
            Σᵢ minₐ Σⱼ λⱼ cost[i, a, j] > Σⱼ λⱼ totalⱼ.
        corners: `[K, m]` other prices of about the same bound, K ≤ m + 1. The mixture of their best arms keeps the
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
    """`[m]` of D, where everybody's best arms spend this much; 0 for a total without end, whose price stays 0."""
    slope: Floats = np.where(np.isfinite(totals), (totals - spend) / unit, 0.0)
    return slope


def _lowest(slopes: Floats, heights: Floats, box: Floats) -> tuple[Floats, float, Floats]:
    """Where the highest of the cuts is lowest within the box `[m, 2]`, that height, and each cut's multiplier."""
    size = slopes.shape[1]
    found = linprog(
        np.append(np.zeros(size), 1.0),
        A_ub=np.column_stack([slopes, -np.ones(len(slopes))]),
        b_ub=-heights,
        bounds=[*box.tolist(), (None, None)],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.x is not None, found.message
    return found.x[:size], float(found.x[size]), np.maximum(-found.ineqlin.marginals, 0.0)


def _evaluate(choices: Choices, totals: Floats, prices: Floats) -> tuple[float, Floats]:
    """D at these prices, and the spend `[m]` of everybody's best arm."""

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
