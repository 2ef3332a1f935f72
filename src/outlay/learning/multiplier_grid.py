"""The grid of λ: for which prices of the budgets a training that answers every λ has policies.

    pilot = pilot_grid(bound)                  # far apart, up to a price that none can exceed
    grid = refined(pilot, costs)               # closer together where the cost falls faster

For m = 1 the grid is a line. For m limits the pilot runs along each axis, and the grid is the product of the axes; when
refined, it is drawn around the target multipliers. Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from outlay.learning.heads import Coordinates
from outlay.ops.mixture_lp import solve_mixture

POINTS = {1: 33, 2: 7, 3: 4}  # of the grid along each axis, by the number of limits
AROUND = {2: (0.0, 0.5, 0.8, 1.0, 1.25, 2.0), 3: (0.0, 0.8, 1.25)}  # times the target multipliers
PILOT_RANGE = 4096  # from the largest λ of the pilot down to its smallest above 0
FLAT = 0.03  # of the range of a cost: λ_max is where no more than this is left to fall

Vector = NDArray[np.float64]


def pilot_grid(bound: Vector) -> Vector:
    """`[L, m]` 0, and λ far apart along each axis up to `bound` `[m]`; m as in POINTS."""
    count = len(bound)
    along = (POINTS[count] ** count - 1) // count
    steps = np.geomspace(1 / PILOT_RANGE, 1, along)
    return np.concatenate([np.zeros((1, count)), *(steps[:, None] * row for row in np.diag(bound))])


def refined(multipliers: Vector, costs: Vector, focus: Vector | None = None) -> Vector:
    """Return the grid that replaces one whose policies have these costs.

    Args:
        multipliers: `[L, m]` of the pilot, or of a product of axes.
        costs: `[L, m]` coordinates of its policies.
        focus: `[m]` λ to draw the axes around; an axis whose λ is 0 here is placed by its cost.

    Returns:
        `[L, m]` the product of the axes, each from 0 to its λ_max.
    """
    count = multipliers.shape[1]
    axes = []
    for j in range(count):
        on_axis = np.flatnonzero((np.delete(multipliers, j, axis=1) == 0).all(axis=1))
        order = on_axis[np.argsort(multipliers[on_axis, j], kind="stable")]
        axis = _axis(multipliers[order, j], costs[order, j], POINTS[count])
        if focus is not None and focus[j] > 0:
            axis = np.append(np.array(AROUND[count]) * focus[j], axis[-1])
        axes.append(axis)
    return np.array(list(product(*axes)))


def answered(
    coords: Coordinates, bound: Vector, money: int, q: Vector, allowed: NDArray[np.bool_]
) -> tuple[Vector, Vector, Callable[[Vector], Vector]]:
    """Return the grid of λ for the policies of one Q, and its values of them if the log's policy goes on tomorrow.

    Args:
        coords: from heads to the coordinates of the limits.
        bound: `[m]` above which no λ is looked for.
        money: the limit along whose axis the curve runs.
        q: `[n, K, H]` in some rows, raw.
        allowed: `[n, K]` there.

    Returns:
        λ `[L, m]`, in reward units per unit of coordinate, reward and coordinates `[L, 1+m]`, and a function that gives
        the same `[n, 1+m]` for any λ `[n, m]`.
    """
    rows, count = np.arange(len(q)), len(bound)

    def values(multipliers: Vector) -> Vector:
        out = []
        for multiplier in multipliers:
            best = np.where(allowed, q @ coords.weights(multiplier), -np.inf).argmax(axis=1)
            out.append(coords.of(q[rows, best].mean(axis=0)))
        return np.array(out)

    grid = pilot_grid(bound)
    grid = refined(grid, values(grid)[:, 1:])
    if count > 1:
        target_multipliers = solve_mixture(values(grid), coords.limits, coords.scale).duals
        grid = refined(grid, values(grid)[:, 1:], np.where(np.arange(count) == money, 0, target_multipliers))
    return grid, values(grid), values


def _axis(prices: Vector, cost: Vector, points: int) -> Vector:
    """λ along one axis, closer together where the cost falls faster.

    Args:
        prices: `[n]` λ from 0 to the bound, ascending.
        cost: `[n]` of their policies; where it rises with λ, which is noise, it counts as flat.
        points: how many λ there will be.
    """
    falling = np.minimum.accumulate(cost)
    fall = falling[0] - falling
    if fall[-1] <= 0:
        flat: Vector = np.linspace(0, prices[-1], points)
        return flat
    last = min(int(np.argmax(fall >= (1 - FLAT) * fall[-1])), len(prices) - 2)
    share = fall[: last + 1] / fall[last]
    # Falls say where policies change; the root of λ keeps some points where, by noise, none seem to.
    place = 0.75 * share + 0.25 * np.sqrt(prices[: last + 1] / prices[last])
    axis: Vector = np.interp(np.linspace(0, 1, points - 1), place, prices[: last + 1])
    whole: Vector = np.append(axis, prices[-1])
    return whole
