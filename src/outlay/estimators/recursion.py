"""Totals of k days by the horizon h that is left, and the adjoint of that recursion.

    G_h θ_h = Σ φ (x + φ'ᵀθ_{h−Δ})       d_k = G_k⁻¹ mean φ₀,   d_{h−Δ} += G_{h−Δ}⁻¹ Σ φ' (φᵀd_h)

A next row Δ days later has h − Δ left; h ≤ 0 brings 0. Both run over cells of alike rows and points of the policy.

Source: ours; `fitted.py` says what it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outlay.estimators.basis import Array, Basis
from outlay.estimators.cells import Moves
from outlay.estimators.regression import Need, Stage


@dataclass(frozen=True)
class Forward:
    """Values by days left, H the longest horizon.

    Attributes:
        theta: `[H]` of `[P, 1+m]`: θ_1, …, θ_H.
        values: `[H + 1, Q, 1+m]` of every point, from 0 days left on.
    """

    theta: list[Array]
    values: Array


def forward(basis: Basis, moves: Moves, stages: Sequence[Stage], outcomes: int) -> Forward:
    """The recursion over `stages`, of which `stages[h − 1]` has h days left, for the first `outcomes` outcomes."""
    values = np.zeros((len(stages) + 1, moves.num_points, outcomes))
    theta: list[Array] = []
    for h, stage in enumerate(stages, start=1):
        future = stage.count[:, None] * future_values(stage, values, h)
        theta.append(stage.reg.solver.solve(stage.reg.outcome[:, :outcomes] + basis.project(stage.logged, future)))
        values[h] = stage.values(basis, theta[-1])
    return Forward(theta, values)


@dataclass(frozen=True)
class Backward:
    """What a row of each cell adds to the error of each horizon's total: slope · x + offset, x its outcome.

    Attributes:
        slope: `[C, H]` for H horizons.
        offset: `[C, H, 1+m]`.
        visits: `[C, H]` the policy's visits to the row.
        needs: `[H]` how many paths meet thin pairs.
    """

    slope: Array
    offset: Array
    visits: Array
    needs: list[Need]


def backward(
    basis: Basis,
    moves: Moves,
    stages: Sequence[Stage],
    horizons: Sequence[int],
    ahead: Forward,
    shares: Sequence[Array],
    actions: Array,
) -> Backward:
    """The adjoint recursion d_h for all `horizons` at once.

    `shares` has `[U]` of each user for each horizon; `actions` `[K]` are values.
    """
    points, cells, wanted = moves.num_points, len(moves.logged), len(horizons)
    outcomes = ahead.values.shape[2]
    found = Backward(
        slope=np.zeros((cells, wanted)),
        offset=np.zeros((cells, wanted, outcomes)),
        visits=np.zeros((cells, wanted)),
        needs=[Need(actions) for _ in horizons],
    )
    arriving: dict[int, Array] = {}  # days left → `[Q, H]` visits that reach each point with that many days left
    for h in range(len(stages), 0, -1):
        stage, theta = stages[h - 1], ahead.theta[h - 1]
        arrived = arriving.pop(h, np.zeros((points, wanted)))
        if h in horizons:
            k = horizons.index(h)
            arrived[:, k] += np.bincount(moves.first, shares[k], points)
            found.needs[k].add(stage, moves.first, shares[k])
        dual = stage.reg.solver.solve_transposed(stage.arrivals(basis, arrived))
        both = basis.evaluate(stage.logged, np.hstack([theta, dual]))
        fitted, visits = both[:, :outcomes], both[:, outcomes:]
        slope = stage.inflation[:, None] * visits
        found.slope[stage.cells] += slope
        found.visits[stage.cells] += visits
        found.offset[stage.cells] += slope[:, :, None] * (future_values(stage, ahead.values, h) - fitted)[:, None, :]
        if stage.thin.any():  # the state-free means are estimated too
            free = stage.logged.state_free
            off = fitted - basis.evaluate(free, theta)
            found.offset[stage.cells] += basis.evaluate(free, dual)[:, :, None] * off[:, None, :]
        moved, then = visits * stage.count[:, None], h - stage.gap
        for left in np.unique(then[(stage.following >= 0) & (then > 0)]):
            on = np.flatnonzero((stage.following >= 0) & (then == left))
            there = arriving.setdefault(int(left), np.zeros((points, wanted)))
            for k, need in enumerate(found.needs):
                there[:, k] += np.bincount(stage.following[on], moved[on, k], points)
                need.add(stages[left - 1], stage.following[on], np.abs(moved[on, k]))
    return found


def future_values(stage: Stage, values: Array, h: int) -> Array:
    """φ'ᵀθ_{h−Δ} in the usable cells: `[c, 1+m]`, from `Forward.values`."""
    then = h - stage.gap
    on = np.flatnonzero((stage.following >= 0) & (then > 0))
    future = np.zeros((len(stage.logged), values.shape[2]))
    future[on] = values[then[on], stage.following[on]]
    return future
