"""The ρ-weighted regression of what follows on the state, and its adjoint: the state ratio.

    totals        day d:  Σ ρ f (fᵀθ_d − x − V_{d+Δ}(s')) = 0          V_d = fᵀθ_d, 0 from day k on
                          Σ ρ f fᵀ β_d = what arrives on day d           w_d = fᵀβ_d
    discounted    A θ = Σ ρ f (1−γ) x,   A = Σ ρ f (f − γ^Δ f')ᵀ,   Aᵀβ = mean f₀,   w = fᵀβ

In both the value is mean V(s₀) and Σ w ρ x (with 1−γ), to the last digit. ρ is the ratio of one step alone, however
many days there are. Rows with ρ = 0 take no part; values are needed only in first rows and after rows that do.

A row counts as min(ρ, 1) rows behind its state: of n rows Σ_a min(π, p)·n agree with the policy. A state with fewer
than `least_rows` behind it is thin and takes the state-free mean, of the day where days are apart.

Source: Xie, Ma & Wang (2019) for the ratio by day; Liu et al. (2018), Uehara, Huang & Jiang (2020) for the discounted
one. Self-normalising, thin states: ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.basis import (
    Array,
    Basis,
    CountedBasis,
    FeatureBasis,
    Matrix,
    SmoothBasis,
    Solver,
    StateActions,
)
from outlay.estimators.panel import Index, Panel

TINY = 1e-300


def of_states(basis: Basis) -> Basis:
    """The basis of V(s) that belongs to one of Q(s, a): the same states or features, and one "action"."""
    match basis:
        case SmoothBasis():
            return of_states(basis.counted)
        case CountedBasis():
            return CountedBasis(basis.state, basis.num_states, 1)
        case FeatureBasis():
            return FeatureBasis(basis.f, 1)
    raise TypeError(f"{type(basis).__name__} is no basis with states of its own.")


@dataclass(frozen=True)
class StateRegression:
    """r rows regressed on their states, and q places (rows) whose value is wanted.

    Attributes:
        logged: `[r]` states of the rows.
        ratio: `[r]` ρ > 0.
        taken: `[q]` states of the places; thin ones are state-free.
        gram: `[P, P]` Σ ρ f fᵀ, and below it the equation of the state-free coordinate.
        leverage: `[r]` ρ fᵀ(Σ ρ f fᵀ)⁻¹f of each row, counted as one half at most.
    """

    logged: StateActions
    ratio: Array
    taken: StateActions
    gram: Matrix
    leverage: Array

    @classmethod
    def of(cls, basis: Basis, rows: Index, ratio: Array, places: Index, least_rows: int) -> StateRegression:
        """The regression over `rows` with weights `ratio`."""
        logged, there = _states(rows), _states(places)
        gram = basis.regular(
            basis.moment(logged, logged, ratio)
            + basis.moment(logged.state_free, logged.state_free, ratio)
            - basis.moment(logged.state_free, logged, ratio)
        )
        behind = basis.regular(basis.moment(logged, logged, np.minimum(ratio, 1)))
        thin = basis.leverage(there, behind) > (1 + 1e-6) / least_rows
        return cls(
            logged=logged,
            ratio=ratio,
            taken=StateActions(np.where(thin, -1, places), there.actions),
            gram=gram,
            leverage=np.minimum(ratio * basis.leverage(logged, gram), 0.5),
        )

    def weigh(self, basis: Basis, theta: Array, dual: Array, ahead: Array) -> tuple[Array, Array, float]:
        """Mass w ρ of each row `[r]`, what it adds to the error of the value `[r, T]`, and Σ mass · leverage.

        Errors are those of a jackknife: rows that had no part in the fit would have the residual e/(1 − leverage).

        Args:
            basis: of the regression.
            theta: `[P, T]` θ.
            dual: `[P, 1]` β.
            ahead: `[r, T]` what the rows are regressed on.
        """
        both = basis.evaluate(self.logged, np.hstack([theta, dual]))
        fitted, mass = both[:, :-1], both[:, -1] * self.ratio
        residual = ahead - fitted
        error = (mass / (1 - self.leverage))[:, None] * residual
        if (self.taken.rows < 0).any():  # the state-free mean is estimated too
            free = self.logged.state_free
            error += self.ratio[:, None] * basis.evaluate(free, dual) * (fitted - basis.evaluate(free, theta))
        return mass, error, float(np.abs(mass) @ self.leverage)


@dataclass(frozen=True)
class StateSolution:
    """Values and ratios of one policy on the n rows of a panel.

    Attributes:
        value: `[n, T]` V where it was wanted: start or first rows, and rows after one that took part.
        mass: `[n]` w ρ, the ratio of states and actions; 0 in rows that do not take part.
        error: `[n, T]` what each row adds to the error of the value.
        leverage: mean over the mass: one over the number of rows that typically stand behind a value.
        unsupported: share of the policy's paths that meet a thin state (a path met later counts γ^t).
        never: whether they meet one where no row at all took part.
    """

    value: Array
    mass: Array
    error: Array
    leverage: float
    unsupported: float
    never: bool

    def reason(self, support: float) -> Reason | None:
        """Return why no number can be given if `support` of the paths may meet thin states, or None."""
        if self.never:
            return Reason(ReasonKind.NEVER_GIVEN_ON)
        if self.unsupported <= support:
            return None
        return Reason(ReasonKind.HARDLY_GIVEN, {"share": min(1.0, float(self.unsupported)), "most": support})


def discounted(
    panel: Panel, basis: Basis, outcome: Array, ratio: Array, share: Array, least_rows: int
) -> StateSolution:
    """(1−γ)·J of outcomes `[n, T]` from the start rows of users with this share `[U]`; ρ is `[n]`."""
    rows = np.flatnonzero(closed(panel) & (ratio > 0))
    reg = StateRegression.of(basis, rows, ratio[rows], np.arange(len(panel)), least_rows)
    following = panel.following[rows]
    weight = np.where(following >= 0, panel.discount ** panel.gap[rows].astype(float), 0.0)
    on = np.flatnonzero(weight > 0)
    after = following[on]
    flow = basis.moment(reg.logged[on], reg.taken[after], (reg.ratio * weight)[on])
    solver = Solver(reg.gram - flow)
    ahead = (1 - panel.discount) * outcome[rows]
    theta = solver.solve(basis.project(reg.logged, reg.ratio[:, None] * ahead))
    dual = solver.solve_transposed(basis.project(reg.taken[panel.start], share[:, None]))
    value = basis.evaluate(reg.taken, theta)
    ahead[on] += weight[on, None] * value[after]

    mass, error = np.zeros(len(panel)), np.zeros_like(outcome)
    mass[rows], error[rows], leverage = reg.weigh(basis, theta, dual, ahead)
    thin = reg.taken.rows < 0
    unsupported = float(share @ thin[panel.start] + np.abs(mass[rows[on]]) * weight[on] @ thin[after])
    mean = leverage / max(float(np.abs(mass).sum()), TINY)
    return StateSolution(value, mass, error, mean, unsupported, unsupported > 0 and len(rows) == 0)


def totals(
    panel: Panel, basis: Basis, outcome: Array, ratio: Array, share: Array, least_rows: int, days: int
) -> StateSolution:
    """Totals of so many days from first rows of users with a share `[U]`.

    Rows take part after which all of these days are known; the others are valued by their states.
    It takes about 100 bytes for each row, and 16 for each of its outcomes, while it works.
    """
    inside = panel.day < days
    live = inside & (ratio > 0) & (panel.known_until(days) >= days)
    wanted = np.zeros(len(panel), np.bool_)  # where a path arrives
    wanted[panel.first] = True
    wanted[panel.following[live & (panel.following >= 0)]] = True
    wanted &= inside
    value, mass, error = np.zeros_like(outcome), np.zeros(len(panel)), np.zeros_like(outcome)
    stages = []
    for day in range(days - 1, -1, -1):
        today = panel.day == day
        rows, places = np.flatnonzero(live & today), np.flatnonzero(wanted & today)
        if len(places) == 0:
            continue
        reg = StateRegression.of(basis, rows, ratio[rows], places, least_rows)
        solver = Solver(reg.gram)
        theta = solver.solve(basis.project(reg.logged, reg.ratio[:, None] * _ahead(panel, outcome, value, rows)))
        value[places] = basis.evaluate(reg.taken, theta)
        stages.append((rows, places, reg, solver, theta))

    arriving = np.zeros(len(panel))
    arriving[panel.first] = share
    unsupported, never, total = 0.0, False, 0.0
    for rows, places, reg, solver, theta in reversed(stages):
        dual = solver.solve_transposed(basis.project(reg.taken, arriving[places, None]))
        mass[rows], error[rows], leverage = reg.weigh(basis, theta, dual, _ahead(panel, outcome, value, rows))
        total += leverage
        on = rows[panel.following[rows] >= 0]
        arriving[panel.following[on]] = mass[on]
        met = float(np.abs(arriving[places[reg.taken.rows < 0]]).sum())
        unsupported, never = unsupported + met, never or (met > 0 and len(rows) == 0)
    mean = total / max(float(np.abs(mass).sum()), TINY)
    return StateSolution(value, mass, error, mean, unsupported, never)


def closed(panel: Panel) -> NDArray[np.bool_]:
    """`[n]` rows whose future is known or does not matter: those that a discounted value rests on."""
    known: NDArray[np.bool_] = (panel.following >= 0) | panel.terminal
    return known if panel.discount > 0 else np.ones(len(panel), np.bool_)


def _states(rows: Index) -> StateActions:
    return StateActions(rows, np.zeros(len(rows), np.intp))


def _ahead(panel: Panel, outcome: Array, value: Array, rows: Index) -> Array:
    """The targets of the regression, x + V(s'): `[r, T]`. V is 0 in rows beyond the horizon, where no path arrives."""
    following = panel.following[rows]
    return outcome[rows] + np.where(following[:, None] >= 0, value[following], 0.0)
