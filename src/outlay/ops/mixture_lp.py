"""The best mixture of measured policies: least scaled violation first, then reward.

    phase one   d = min ‖ (Gα)₊ ‖₂      Gⱼᵢ = (cⱼ(πᵢ) − limitⱼ) / scaleⱼ,   α a distribution
    phase two   max αᵀr   s.t.   Gα ≤ g*,   g* = (Gα)₊ of phase one (0 where the limits can be kept)

The violation is the Euclidean norm in both phases and in every report, the same as in the other mixing rules. Phase one
is the point of least norm in conv(G) + ℝᵐ₊, found by non-negative least squares: min ‖[G I; 1 0] z − e‖², z ≥ 0, α ∝ z.
The point g* is unique, so phase two loses nothing of phase one.

Phase two has m + 1 rows, so a basic solution has at most m + 1 policies. It is a dense primal simplex from the answer
of phase one, and never leaves what is feasible. HiGHS is not used: it takes matrix entries below 1e-9 for 0 and keeps
rows to an absolute tolerance, so next to one outlier of 1e9 it overspends and says feasible; here it is slower, too.

Source: Lawson & Hanson (1974), ch. 23, for phase one; Altman (1999) for the bound on the support; the revised simplex
method is textbook (Chvátal 1983, ch. 7), with Bland's rule where it stalls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.optimize import nnls

from outlay.core.cmdp import ModelError
from outlay.ops.simplex import independent_support

Floats = NDArray[np.float64]

FEASIBLE = 1e-9
"""A mixture keeps its limits if its scaled violation is at most this."""

_PRICE = 1e-13  # a smaller reduced cost, relative to the terms it is the difference of, is rounding
_SLACK = 1e-11  # Harris' ratio test: of what reaches 0 within this, the largest pivot goes
_PIVOT = 1e-10  # smaller pivots are rounding


class MixtureSolution(NamedTuple):
    """Weights and the multipliers that prove them best.

    Attributes:
        weights: `[k]` a distribution with at most m + 1 positive entries.
        duals: `[m]` λ ≥ 0 per cost unit. Feasible: in reward units, rᵢ − λᵀ(cᵢ − limit) ≤ αᵀr for every i.
            Infeasible: the proof, without reward, λᵀ(cᵢ − limit) ≥ violation for every i, with ‖λ · scale‖₂ = 1.
        violation: Euclidean norm of the scaled violation.
        feasible: whether the limits can be kept, to 1e-9 in scaled units.
        basis: `[m+1]` what the solution is made of: i ≥ 0 for policy i, −1 − j for the room left under limit j.
    """

    weights: Floats
    duals: Floats
    violation: float
    feasible: bool
    basis: NDArray[np.intp]


def scaled_violation(costs: Floats, limits: Floats, scale: Floats) -> float:
    """Euclidean norm of the positive part of (costs − limits) / scale, all `[m]`; no unit."""
    excess = np.maximum((costs - limits) / scale, 0.0)
    return float(np.sqrt(excess @ excess))


def solve_mixture(
    measurements: Floats,
    limits: Floats,
    scale: Floats,
    start: NDArray[np.intp] | None = None,
    *,
    margin: Floats | float = 0.0,
) -> MixtureSolution:
    """Weights of least scaled violation and, among those, of the highest reward.

    Args:
        measurements: `[k, 1+m]`, k ≥ 1, reward first, then costs in ≤ form.
        limits: `[m]` in the unit of the costs.
        scale: `[m]` > 0, what counts as one unit of violation of each limit.
        start: `[m+1]` basis of a solution that keeps the limits, if one is known: saves phase one and most pivots.
        margin: `[k, m]` by which the costs of each policy are raised (`certificate.margins`).

    Returns:
        A basic solution, with its duals.
    """
    rewards = measurements[:, 0]
    excess = ((measurements[:, 1:] + margin - limits) / scale).T
    rows, count = excess.shape
    if start is None:
        least, basis = _least_excess(rewards, excess)
    else:
        least, basis = np.zeros(rows), np.where(start < 0, count - 1 - start, start)
    violation = float(np.sqrt(least @ least))
    weights, row_duals, basis = _best_reward(rewards, excess, least, basis)
    reached = np.maximum(excess @ weights, 0.0)
    feasible = violation <= FEASIBLE
    duals = (row_duals if feasible else least / violation) / scale
    basis = np.where(basis < count, basis, count - 1 - basis)
    return MixtureSolution(weights, duals, float(np.sqrt(reached @ reached)), feasible, basis)


def value_at(measurements: Floats, spend: float) -> float:
    """Value of the best mixture of measured policies `[k, 2]` that spends at most `spend`, 0 included.

    Raises:
        ModelError: if every policy spends more.
    """
    if measurements[:, 1].min() > spend:
        raise ModelError(f"is {spend:g}; every policy spends {measurements[:, 1].min():g} or more.", where="spend")
    limit, unit = np.array([spend]), np.array([spend or 1.0])
    return float(solve_mixture(measurements, limit, unit).weights @ measurements[:, 0])


def _least_excess(rewards: Floats, excess: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """`[m]` g*, the positive part of `excess` `[m, k]` @ α where its norm is least, and a basis of such an α.

    The basis is `[m+1]` columns of [G I; 1 0]: i < k for a policy, k + j for the slack of limit j.
    """
    rows, count = excess.shape
    slacks = count + np.arange(rows)
    keeps = np.flatnonzero((excess <= 0.0).all(axis=0))
    if len(keeps):
        return np.zeros(rows), np.append(slacks, keeps[rewards[keeps].argmax()])
    columns = _columns(excess)
    lengths = np.sqrt((columns * columns).sum(axis=0))
    # Columns of length 1: the stopping rule compares with the largest, and one outlier must not blur the others.
    columns /= lengths
    solution, _ = nnls(columns, np.append(np.zeros(rows), 1.0))
    # On degenerate input the solver may let a dependent column in.
    kept, parts = independent_support(columns, solution)
    support = kept[kept < count]
    weights = parts[kept < count] / lengths[support]
    least: Floats = np.maximum(excess[:, support] @ (weights / weights.sum()), 0.0)

    # Each policy replaces a slack that is 0, except for one policy, which serves Σα = 1. Which is
    # safest is what pivoting finds; that row has no slack, so its size makes it the first pivot.
    met = np.append(rows, np.setdiff1d(np.arange(rows), kept - count))
    candidates = columns[np.ix_(met, support)].T
    candidates[:, 0] *= len(met) / np.abs(candidates[:, 0]).max()
    without = met[qr(candidates, mode="r", pivoting=True)[1][: len(support)]]
    return least, np.append(support, slacks[~np.isin(np.arange(rows), without)])


def _columns(excess: Floats) -> Floats:
    """`[m+1, k+m]` [G I; 1 0]: policies, then slacks."""
    rows, count = excess.shape
    columns = np.zeros((rows + 1, count + rows))
    columns[:rows, :count] = excess
    columns[:rows, count:] = np.eye(rows)
    columns[rows, :count] = 1.0
    return columns


def _best_reward(
    rewards: Floats, excess: Floats, bound: Floats, basis: NDArray[np.intp]
) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Basic `[k]` α of the highest reward with `excess` `[m, k]` @ α ≤ bound, the limits' duals `[m]`, and the basis.

    From a feasible basis: price all columns, let the best one in, let out the one that reaches 0 first.
    """
    rows, count = excess.shape
    # Rows of size about 1, whatever an outlier says, but a row of rounding alone is not blown up.
    sizes = np.abs(excess)
    row_unit = np.maximum(np.median(sizes, axis=1), np.minimum(sizes.max(axis=1), 1.0))
    row_unit[row_unit == 0.0] = 1.0
    columns = _columns(excess / row_unit[:, None])
    lengths = np.sqrt((columns * columns).sum(axis=0))
    right = np.append(bound / row_unit, 1.0)
    base = float(rewards[basis[basis < count]].max())
    gains = np.append(rewards - base, np.zeros(rows))
    unit = float(np.abs(gains / lengths).max()) or 1.0
    gains /= unit
    allowed = np.ones(len(gains), dtype=np.bool_)
    previous, enters, stalled, value = basis, -1, 0, -np.inf
    while True:
        inside = columns[:, basis]
        level = np.linalg.solve(inside, right)
        if enters >= 0 and (level * lengths[basis]).min() < -FEASIBLE:
            # The pivot was rounding, and the step has left what is feasible: take it back.
            allowed[enters] = False
            basis, enters = previous, -1
            continue
        level = np.maximum(level, 0.0)
        stalled += 1
        if gains[basis] @ level > value + _PRICE:
            value, stalled = float(gains[basis] @ level), 0
            allowed[:] = True
        prices = np.linalg.solve(inside.T, gains[basis])
        promise = (gains - prices @ columns) / lengths
        promise -= _PRICE * (1.0 + np.abs(prices) @ np.abs(columns) / lengths)
        promise[basis] = 0.0
        promise[~allowed] = 0.0
        # Bland's rule, once too many steps in a row have gained nothing, cannot cycle.
        careful = stalled > 2 * (rows + 1)
        enters = int((promise > 0.0).argmax()) if careful else int(promise.argmax())
        # Nor can it stall for long: what still promises something then does so by rounding.
        if promise[enters] <= 0.0 or stalled > 4 * (rows + count + 1):
            break
        falls = np.linalg.solve(inside, columns[:, enters])
        candidates = np.flatnonzero(falls > _PIVOT)
        steps = level[candidates] / falls[candidates]
        slack = _SLACK / (lengths[basis[candidates]] * falls[candidates])
        ties = candidates[steps <= (steps + slack).min()]
        leaves = ties[basis[ties].argmin()] if careful else ties[falls[ties].argmax()]
        previous, basis = basis, basis.copy()
        basis[leaves] = enters
    weights = np.zeros(count)
    member = basis < count
    weights[basis[member]] = level[member]
    weights[weights < 1e-15] = 0.0
    return weights / weights.sum(), np.maximum(prices[:rows], 0.0) * unit / row_unit, basis
