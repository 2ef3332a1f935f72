"""Discounted values (1−γ)·J by one linear system, and its adjoint; `recursion.py` does the same for totals.

    M θ = Σ φ (1−γ) x        M = Σ φ (φ − γ^Δ φ')ᵀ        d = M⁻ᵀ g

over rows with a next row or a terminal end, φ' = φ(s', π(s')) (0 where terminal); g is what arrives at the points that
a value is read at.

Source: Lagoudakis & Parr (2003); `fitted.py` says what it is for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outlay.estimators.basis import Array, Basis, Solver
from outlay.estimators.recursion import Backward
from outlay.estimators.regression import Need, Stage


@dataclass(frozen=True)
class Discounted:
    """Values of T outcomes.

    Attributes:
        stage: the policy's moves in the regression.
        weight: `[c]` γ^Δ; 0 where there is no next row.
        discount: γ.
        solver: of M.
        theta: `[P, T]`.
        values: `[Q, T]` of every point.
    """

    stage: Stage
    weight: Array
    discount: float
    solver: Solver
    theta: Array
    values: Array


def solve(basis: Basis, stage: Stage, discount: float) -> Discounted:
    """The values of the policy whose moves are in `stage`."""
    reg, moves = stage.reg, stage.moves
    weight = np.where(stage.following >= 0, discount ** stage.gap.astype(float), 0.0)
    on = np.flatnonzero(weight > 0)
    place, pair = moves.expand(stage.following[on])
    mass = (weight * stage.count)[on]
    flow = basis.moment(stage.logged[on[place]], stage.taken[pair], mass[place] * moves.chance[pair])
    solver = Solver(reg.gram - flow) if len(on) else reg.solver
    theta = solver.solve((1 - discount) * reg.outcome)
    return Discounted(stage, weight, discount, solver, theta, stage.values(basis, theta))


def adjoint(basis: Basis, found: Discounted, arriving: Array, need: Need) -> Backward:
    """What every row adds to the error of a value that is read with mass `arriving` `[Q]` at the points (H = 1).

    The paths that meet thin pairs from there on are added to `need`.
    """
    stage, theta = found.stage, found.theta
    dual = found.solver.solve_transposed(stage.arrivals(basis, arriving[:, None]))
    both = basis.evaluate(stage.logged, np.hstack([theta, dual]))
    fitted, visits = both[:, :-1], both[:, -1]
    on = np.flatnonzero(found.weight > 0)
    following = stage.following[on]
    ahead = -fitted
    ahead[on] += found.weight[on, None] * found.values[following]
    slope = visits * stage.inflation
    offset = slope[:, None] * ahead
    if stage.thin.any():  # the state-free means are estimated too
        free = stage.logged.state_free
        offset += basis.evaluate(free, dual) * (fitted - basis.evaluate(free, theta))
    need.arrive(stage, arriving)
    need.add(stage, following, np.abs(visits[on]) * (found.weight * stage.count)[on])
    cells = len(stage.moves.logged)
    back = Backward(np.zeros((cells, 1)), np.zeros((cells, 1, theta.shape[1])), np.zeros((cells, 1)), [need])
    back.slope[stage.cells, 0] = (1 - found.discount) * slope
    back.offset[stage.cells, 0] = offset
    back.visits[stage.cells, 0] = visits
    return back
