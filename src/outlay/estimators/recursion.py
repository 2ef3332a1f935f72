"""Fitted values and their adjoints: what a value is, and what every row adds to its error.

Discounted, (1−γ)·J, by one linear system over rows with a next row or a terminal end, φ' = φ(s', π(s')) (0 where
terminal); g is what arrives at the points at which a value is read:

    M θ = Σ φ (1−γ) x        M = Σ φ (φ − γ^Δ φ')ᵀ        d = M⁻ᵀ g

Totals of k days by the horizon h that is left. A next row Δ days later has h − Δ left; h ≤ 0 brings 0:

    G_h θ_h = Σ φ (x + φ'ᵀθ_{h−Δ})       d_k = G_k⁻¹ mean φ₀,   d_{h−Δ} += G_{h−Δ}⁻¹ Σ φ' (φᵀd_h)

Both run over cells of alike rows and points of the policy.

Source: Lagoudakis & Parr (2003) for the system; the recursion over horizons: ours. `fitted.py` says what they are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outlay.core.actions import Given
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.basis import Array, Basis, Solver
from outlay.estimators.panel import Index
from outlay.estimators.regression import PolicyMoves, Stage


class Need:
    """How many of a policy's paths meet a thin pair, by action; a path met later counts γ^t.

    A path that meets one is worth the state-free mean from there on, so the share bounds the part of the value that the
    log does not support: visits after that are not counted again.
    """

    def __init__(self, actions: Sequence[Given]) -> None:
        self._called = actions
        self._paths = np.zeros(len(actions))
        self._never = np.zeros(len(actions), np.bool_)

    def add(self, stage: Stage, points: Index, mass: Array) -> None:
        """Visits with `mass` `[…]` arrive at `points` `[…]`, where the policy acts."""
        place, pair = stage.moves.expand(points)
        thin = stage.thin[pair]
        place, pair = place[thin], pair[thin]
        paths = np.bincount(stage.taken.actions[pair], mass[place] * stage.moves.chance[pair], len(self._paths))
        self._paths += paths
        self._never |= (paths > 0) & ~stage.reg.seen

    def arrive(self, stage: Stage, mass: Array) -> None:
        """Add visits with mass `[Q]`, one number for every point."""
        points = np.flatnonzero(mass)
        self.add(stage, points, mass[points])

    @property
    def share(self) -> float:
        """Share of the policy's paths, at most 1."""
        return min(1.0, float(self._paths.sum()))

    def reason(self, support: float) -> Reason | None:
        """Return why no number can be given, or None."""
        if self._never.any():
            action = self._called[int(np.argmax(self._paths * self._never))]
            return Reason(ReasonKind.NEVER_GIVEN_IN_USE, {"action": action})
        if self.share <= support:
            return None
        action = self._called[int(np.argmax(self._paths))]
        figures = {"share": self.share, "action": action, "most": support}
        return Reason(ReasonKind.HARDLY_GIVEN_MOST, figures)


@dataclass(frozen=True)
class Forward:
    """Values by days left, H the longest horizon.

    Attributes:
        theta: `[H]` of `[P, 1+m]`: θ_1, …, θ_H.
        values: `[H + 1, Q, 1+m]` of every point, from 0 days left on.
    """

    theta: list[Array]
    values: Array


def forward(basis: Basis, moves: PolicyMoves, stages: Sequence[Stage], outcomes: int) -> Forward:
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
    """The errors that a row of each cell adds to each horizon's total: slope · x + offset, x its outcome.

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
    moves: PolicyMoves,
    stages: Sequence[Stage],
    horizons: Sequence[int],
    ahead: Forward,
    share: Array,
    actions: Sequence[Given],
) -> Backward:
    """The adjoint recursion d_h for all `horizons` at once.

    `share` `[U]` is that of each user in the totals; `actions` `[K]` are what people call them.
    """
    points, cells, wanted = moves.num_points, len(moves.logged), len(horizons)
    outcomes = ahead.values.shape[2]
    back = Backward(
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
            arrived[:, k] += np.bincount(moves.first, share, points)
            back.needs[k].add(stage, moves.first, share)
        dual = stage.reg.solver.solve_transposed(stage.arrivals(basis, arrived))
        both = basis.evaluate(stage.logged, np.hstack([theta, dual]))
        fitted, visits = both[:, :outcomes], both[:, outcomes:]
        slope = stage.inflation[:, None] * visits
        back.slope[stage.cells] += slope
        back.visits[stage.cells] += visits
        back.offset[stage.cells] += slope[:, :, None] * (future_values(stage, ahead.values, h) - fitted)[:, None, :]
        if stage.thin.any():  # the state-free means are estimated too
            free = stage.logged.state_free
            off = fitted - basis.evaluate(free, theta)
            back.offset[stage.cells] += basis.evaluate(free, dual)[:, :, None] * off[:, None, :]
        moved, then = visits * stage.count[:, None], h - stage.gap
        for left in np.unique(then[(stage.following >= 0) & (then > 0)]):
            on = np.flatnonzero((stage.following >= 0) & (then == left))
            there = arriving.setdefault(int(left), np.zeros((points, wanted)))
            for k, need in enumerate(back.needs):
                there[:, k] += np.bincount(stage.following[on], moved[on, k], points)
                need.add(stages[left - 1], stage.following[on], np.abs(moved[on, k]))
    return back


def future_values(stage: Stage, values: Array, h: int) -> Array:
    """φ'ᵀθ_{h−Δ} in the usable cells: `[c, 1+m]`, from `Forward.values`."""
    then = h - stage.gap
    on = np.flatnonzero((stage.following >= 0) & (then > 0))
    future = np.zeros((len(stage.logged), values.shape[2]))
    future[on] = values[then[on], stage.following[on]]
    return future


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
    """Return what every row adds to the error of a value read with mass `arriving` `[Q]` at the points (H = 1).

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
