"""Multipliers λ: a player that chooses the next one, when it has settled, and a grid of them for every budget.

The multiplier player, in a game against best responses:

    ogd     λ ← clip(λ + (x_c − limit) / √t, 0, λ_max)                                          λ₁ = 0
    eg      λ_j = λ_max,j · z_j,   z ∝ exp(η_t Σ λ_max,j (x_c,j − limit_j)),  with one z more, for "no price"
    bisect  λ = the middle of what is left of [0, λ_max]; the half that is left is told by whether the limit was kept
    duals   λ = (1 − s) · dual of the linear program over the policies so far + s · λ of the least upper bound

Without a bound on λ the regret, and so the duality gap of the averaged play, is unbounded where the limits cannot be
met. With it, after T rounds against exact best responses, for the mean policy μ̄ and the mean multiplier λ̄,

    max_π L(π, λ̄) − min_λ L(μ̄, λ) ≤ regret(T) / T,         L(π, λ) = r(π) − λᵀ(c(π) − limit)

λ begins at 0 and has to find its place, and a step of 1/√t is large at first: λ jumps between prices at which nothing
is spent and prices at which far too much is. It meets policies on the way that nobody would serve, and a rule that
searches the segment between its mixture and the newest policy (AIM-greedy) never forgets one that it once found useful.
So candidates count once λ has settled: over the second half of its steps so far,

    it was on both sides:  the limit was broken in some of them and kept in some;   max λ − min λ ≤ mean λ
    or it rests:           λ was 0 and the limit kept in all of them

for every limit. Both sides have the unit of λ, and the window grows with the steps, so nothing depends on a scale. What
a rule guarantees, it guarantees on the candidates that it was given: AIM-greedy is never worse than the best single one
*of these* (`mixing/aim_greedy.py`), whichever they are.

The grid is for learners that answer every λ: for which prices of the budgets they have policies.

    pilot = pilot_grid(bound)                  # far apart, up to a price that none can exceed
    grid = refined(pilot, costs)               # closer together where the cost falls faster

For m = 1 the grid is a line. For m limits the pilot runs along each axis, and the grid is the product of the axes; when
refined, it is drawn around the target multipliers.

Source: Zinkevich (2003) for ogd, its step 1/√t from Cai et al. (WSDM 2023), section 4.2, the bound is ours; Le,
Voloshin & Yue (2019) for eg, here with a step that needs no horizon; Xiao et al. (2019) for bisection; Wentges (1997)
for the smoothing of duals. When λ has settled: ours. To leave out the beginning is usual for averages of gradient
steps: Rakhlin, Shamir & Sridharan (2012) take the second half, and so does a game whose λ has not settled by then. The
grid: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import NetworkArrays
from outlay.learning.heads import Coordinates
from outlay.ops.mixture_lp import solve_mixture

POINTS = {1: 33, 2: 7, 3: 4}  # of the grid along each axis, by the number of limits
AROUND = {2: (0.0, 0.5, 0.8, 1.0, 1.25, 2.0), 3: (0.0, 0.8, 1.25)}  # times the target multipliers
PILOT_RANGE = 4096  # from the largest λ of the pilot down to its smallest above 0
LOOK_ROWS = 4096  # rows of select users from which the grid of λ is chosen for one Q
FLAT = 0.03  # of the range of a cost: λ_max is where no more than this is left to fall

Vector = NDArray[np.float64]


def ogd_step(multiplier: Vector, excess: Vector, step_number: int, bound: Vector | float) -> Vector:
    """The next λ.

    Args:
        multiplier: `[m]` λ ≥ 0.
        excess: `[m]` x_c − limit in ≤ form, in the unit that λ is stepped in (scaled costs, or raw in the paper).
        step_number: t = 1, 2, ….
        bound: `[m]` λ_max.

    Returns:
        `[m]` the new λ in [0, bound].
    """
    moved: Vector = (multiplier + excess / step_number**0.5).clip(0, bound)
    return moved


def eg_multiplier(total: Vector, step_number: int, bound: Vector, largest: Vector) -> Vector:
    """λ of round t by exponentiated gradient: `[m]`, in the simplex Σ λ_j / bound_j ≤ 1.

    Args:
        total: `[m]` Σ excess of the rounds before.
        step_number: t = 1, 2, ….
        bound: `[m]` λ_max.
        largest: `[m]` bound on |excess|.
    """
    gains = np.append(bound * total, 0.0)
    exponents = gains * (np.log(len(gains)) / step_number) ** 0.5 / max(float((bound * largest).max()), 1e-300)
    weights = np.exp(exponents - exponents.max())
    shares: Vector = bound * (weights[:-1] / weights.sum())
    return shares


def bisected(over: Sequence[bool], bound: float) -> float:
    """λ of the next round of a bisection, for one limit: 0 first, and for good where the limit is kept there.

    Args:
        over: `[t]` whether the limit was broken in each round before.
        bound: λ_max.
    """
    if not over or not over[0]:
        return 0.0
    low, high = 0.0, bound
    for broken in over[1:]:
        middle = (low + high) / 2
        low, high = (middle, high) if broken else (low, middle)
    return (low + high) / 2


def smoothed(dual: Vector, best: Vector, share: float) -> Vector:
    """`[m]` a λ between the dual of the master program and the λ that has proved the least upper bound.

    The duals of early masters jump from end to end; asking near the best known λ needs fewer best responses.
    """
    between: Vector = share * best + (1 - share) * dual
    return between


def settled(multipliers: Vector, excess: Vector) -> bool:
    """Whether λ has settled at every limit.

    Args:
        multipliers: `[T, m]` λ of each step so far, in any unit.
        excess: `[T, m]` x_c − limit in ≤ form of the policy that acted under it.
    """
    late = len(multipliers) // 2
    return all(_one(*pair) for pair in zip(multipliers[late:].T, excess[late:].T, strict=True))


def _one(multiplier: Vector, excess: Vector) -> bool:
    """The same of one limit over the steps that are looked at, both `[T]`."""
    over = excess > 0
    if not over.any():
        return not multiplier.any()
    return not over.all() and bool(multiplier.max() - multiplier.min() <= multiplier.mean())


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


class Answers(NamedTuple):
    """The policies of a finished training.

    Attributes:
        network: one Q, which answers every λ.
        multiplier: `[L, m]` λ, in reward units per unit of coordinate.
        estimate: `[L, 1+m]` the critic's reward and coordinates for them, with the log's policy after the first day.
        estimate_at: returns the same `[n, 1+m]` for the policies of any λ `[n, m]`.
    """

    network: NetworkArrays
    multiplier: Vector
    estimate: Vector
    estimate_at: Callable[[Vector], Vector]


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
    last = min(int(np.argmax(fall >= (1 - FLAT) * fall[-1])), len(prices) - 2)
    if fall[last] <= 0:  # nowhere, or at the last price alone
        flat: Vector = np.linspace(0, prices[-1], points)
        return flat
    share = fall[: last + 1] / fall[last]
    # Falls say where policies change; the root of λ keeps some points where, by noise, none seem to.
    place = 0.75 * share + 0.25 * np.sqrt(prices[: last + 1] / prices[last])
    axis: Vector = np.interp(np.linspace(0, 1, points - 1), place, prices[: last + 1])
    whole: Vector = np.append(axis, prices[-1])
    return whole
