"""The error of a fitted evaluation along its policy, as the propensities show it.

    D_h = mean over rows of ρ r       r = x + V_{h−1}(s') − Q_h(s, a),   ρ = π(a) / p(a) of the one step
    D(k) = D_1 + … + D_k              of the total of k days

Every row that has a next row, or days enough after it, is a start, so far more rows go the policy's way for one step
than users do for days on end, and no ratios are multiplied. If the propensities are right and Q is, D is 0 but for
noise. It is not where the basis cannot hold Q and the rows that decide it lie elsewhere than the policy's: a linear
basis is then wrong by as much in the states of the log, and says nothing of it. The error of D,

    ψ_u = U Σ_{t∈u} (ρ_t/n − dᵀφ_t) r_t        d = (Σ φφᵀ)⁻¹ Σ φ ρ/n

is large where few rows are like those that the policy makes. So it is a measure of overlap, in the unit of the value,
for states that are not counted. Where they are, and p depends on them alone, ρ lies in the basis and D is 0 always.

The states are those of the log, not of the policy: what it errs by in states that the log hardly has is not seen.

Source: Robins, Rotnitzky & Zhao (1994) for one step; Kallus & Uehara (2020) for weighted Bellman residuals. As a test
of a basis and a measure of overlap: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.target import Target
from outlay.estimators.clusters import by_cluster
from outlay.estimators.importance import row_ratios
from outlay.estimators.joint import Joint
from outlay.estimators.linear.basis import Array
from outlay.estimators.linear.cells import PolicyMoves
from outlay.estimators.linear.recursion import forward, future_values
from outlay.estimators.linear.sample import Sample


def weighted_residuals(
    sample: Sample,
    policy: NDArray[Any] | None,
    propensity: NDArray[np.floating],
    *,
    days: Sequence[int],
    least_rows: int = 2,
) -> Joint:
    """Return D of the totals `reward@k`, `cost@k` of a policy: the totals by the propensities less the fitted ones.

    Args:
        sample: the rows, and the basis of the fitted values.
        policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose D is 0.
        propensity: `[n]` of the logged action.
        days: horizons k that the log shows (`Panel.covers`).
        least_rows: a pair with fewer rows behind it is thin, and takes the state-free mean of its action.

    Returns:
        A joint; `mass` `[U, T]` are the weights of each user's rows.

    Raises:
        LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
    """
    panel, basis, horizons = sample.panel, sample.basis, sorted(set(days))
    target, ratio = row_ratios(panel, policy, propensity)
    assert ratio is not None  # propensities were given
    moves, T = PolicyMoves.of(panel, sample.log, target), len(panel.names)
    stages = sample.stages(moves, range(1, max(horizons, default=0) + 1), least_rows)
    ahead = forward(basis, moves, stages, T)
    value, errors = np.zeros(T), np.zeros((panel.num_users, T))
    values: list[Array] = []
    influences: list[Array] = []
    for h, stage in enumerate(stages, start=1):
        place = np.full(len(moves.logged), -1)
        place[stage.cells] = np.arange(len(stage.cells))
        rows = np.flatnonzero(place[moves.cells.of] >= 0)
        cell = place[moves.cells.of[rows]]
        weight = ratio[rows] / max(1, len(rows))
        by_cell: Array = np.bincount(cell, weight, len(stage.cells))[:, None].astype(np.float64)
        dual = stage.reg.solver.solve_transposed(basis.project(stage.logged, by_cell))
        both = basis.evaluate(stage.logged, np.hstack([ahead.theta[h - 1], dual]))
        fitted = both[:, :-1] - future_values(stage, ahead.values, h)
        residual = panel.outcome[rows] - fitted[cell]
        value = value + weight @ residual
        slope = (weight - both[cell, -1]) * stage.inflation[cell]
        user = panel.user[rows]
        errors = errors + np.stack([np.bincount(user, slope * r, panel.num_users) for r in residual.T], axis=1)
        if h in horizons:
            values.append(value)
            influences.append(panel.num_users * errors)
    names = tuple(str(Target(name, k)) for k in horizons for name in panel.names)
    mass = np.bincount(panel.user, ratio, panel.num_users)[:, None]
    return Joint(
        targets=names,
        value=np.concatenate([np.zeros(0), *values]),
        influence=by_cluster(np.hstack([np.zeros((panel.num_users, 0)), *influences]), panel.clusters),
        mass=np.repeat(mass, len(names), axis=1),
        withheld=(None,) * len(names),
        clusters=panel.clusters,
    )
