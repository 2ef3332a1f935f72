"""Marginalised importance sampling: the ratio of the policy's states to the log's × the ratio ρ of one step.

    V̂ = Σ_t w(s_t) ρ_t x_t        ψ_u = share_u·U (V(s₀_u) − V̂) + U Σ_{t∈u} w ρ (x + γ^Δ V(s') − V(s))

w and V come from one linear system, the ρ-weighted regression of what follows on the state f and its adjoint. It is
exact where states are counted, linear in the features elsewhere:

    totals        day d:  Σ ρ f (fᵀθ_d − x − V_{d+Δ}(s')) = 0          V_d = fᵀθ_d, 0 from day k on
                          Σ ρ f fᵀ β_d = what arrives on day d           w_d = fᵀβ_d
    discounted    A θ = Σ ρ f (1−γ) x,   A = Σ ρ f (f − γ^Δ f')ᵀ,   Aᵀβ = mean f₀,   w = fᵀβ

In both the value is mean V(s₀) and Σ w ρ x (with 1−γ), to the last digit. ρ is the ratio of one step alone, however
many days there are: the variance does not grow as K^days. Rows with ρ = 0 take no part; values are needed only in first
rows and after rows that do.

A row counts as min(ρ, 1) rows behind its state: of n rows Σ_a min(π, p)·n agree with the policy. A state with fewer
than `least_rows` behind it is thin and takes the state-free mean, of the day where days are apart.

What this rests on: the propensities; and that the state is Markov, so that what follows a state does not depend on how
it was reached. Totals of k days do not take days to be alike, nor outcomes to depend on the state and action alone
(a log whose propensities follow something outside the state is reweighted rightly), which `fitted.py` does; discounted
values take days to be alike, as the tail beyond the log must. Residuals are divided by √(1 − leverage), as there.

Where states are counted the totals are those of `sequential.py` on one-hot states. Its discounted means are not these:
they take all later days to be like the later half of those that the log shows, which is off by several standard errors
where users stay in their states for long. And its regressions are dense: a thousand states take it minutes.

Source: Xie, Ma & Wang (2019) for the ratio by day; Liu et al. (2018), Uehara, Huang & Jiang (2020) for the discounted
one; Kallus & Uehara (2020) for the influence function. Self-normalising, thin states: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from outlay.core.estimate import Target
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
from outlay.estimators.fitted import possible, range_of
from outlay.estimators.importance import few_users, mean_ratio, off_one, row_ratios
from outlay.estimators.joint import Joint, certain, joined, withheld
from outlay.estimators.panel import Index, Panel
from outlay.estimators.windowed import LEAST_ROWS, SUPPORT, over_window

LEAST_BEHIND = 40  # rows
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


@dataclass(frozen=True, kw_only=True)
class Marginal(Joint):
    """Reweighted values of one policy or mixture: reward, budgets, decisions, `reward@k`, ….

    Attributes:
        leverage: `[T]` mean over the mass: one over the number of rows that typically stand behind a state's value.
        mean_ratio: mean of ρ over the rows with a choice: 1, except for noise, if the propensities are right.
        mean_ratio_error: its standard error, by cluster; of a mixture the weighted sum, the most that it can be.
    """

    leverage: NDArray[np.float64]
    mean_ratio: float = np.nan
    mean_ratio_error: float = np.nan

    @classmethod
    def further(cls, parts: Sequence[Self], weights: Sequence[float], *, apart: bool) -> dict[str, Any]:
        """As in Joint; errors of users who are apart are independent."""
        found = super().further(parts, weights, apart=apart)
        if apart:
            errors = (w * part.mean_ratio_error for w, part in zip(weights, parts, strict=True))
            found["mean_ratio_error"] = sum(error**2 for error in errors) ** 0.5
        return found

    def cautions(self) -> list[Reason | None]:
        """`[T]` why not to rely on a number, or None.

        The mean ratio contradicts the propensities, it rests on few users, or so few rows stand behind a state
        that their weighted mean is biased.
        """
        misfit = off_one(self.mean_ratio, self.mean_ratio_error, self.freedom)
        return [
            misfit or few_users(ess) or _few_rows(float(leverage))
            for ess, leverage in zip(self.ess, self.leverage, strict=True)
        ]


@dataclass(frozen=True)
class Marginalised:
    """Marginalised importance sampling on the rows of a panel.

    It takes about 100 bytes for each row, and 16 for each of its outcomes, while it works; a result takes 16 for each
    user and target.

    Attributes:
        panel: the rows; `basis` is over the same rows.
        basis: of their states and actions; V takes the states.
        support: largest share of paths that meet thin states with which a number is still given.
        least_rows: a state with fewer rows behind it is thin.
        window: days k whose means stand in the place of discounted ones (`windowed.py`); None: discounted.
    """

    panel: Panel
    basis: Basis
    support: float = SUPPORT
    least_rows: int = LEAST_ROWS
    window: int | None = None

    def estimate(
        self,
        policy: NDArray[Any] | None,
        *,
        days: Sequence[int] = (),
        propensity: NDArray[np.floating] | None = None,
        among: NDArray[np.bool_] | None = None,
    ) -> Marginal:
        """Value of a policy: discounted from start rows, and totals of k days from first rows.

        Args:
            policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose ratios are 1.
            days: horizons k of the totals.
            propensity: `[n]` of the logged action; default as logged.
            among: `[U]` users whose value it is; default all. The rows of all users are used in any case.

        Raises:
            LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
        """
        panel, steady = self.panel, self.panel.data.steady
        _, ratio = row_ratios(panel, policy, propensity)
        chosen = np.ones(panel.num_users, np.bool_) if among is None else among
        horizons = sorted({*days, *([] if self.window is None else [self.window])})
        parts = [self._discounted(ratio, chosen)]
        if steady:
            parts.append(self._certain("decisions", 1.0))
        parts += [self._total(ratio, chosen, k) for k in horizons]
        if steady and self.window is not None:
            parts.append(self._certain(str(Target("decisions", self.window)), float(self.window)))
        whole = Marginal(**joined(parts, panel.clusters), leverage=np.concatenate([part.leverage for part in parts]))
        if ratio is not None:
            mean, error = mean_ratio(panel, ratio)
            whole = replace(whole, mean_ratio=mean, mean_ratio_error=error)
        return over_window(whole, (*panel.names, "decisions"), self.window)

    def _discounted(self, ratio: Array | None, chosen: NDArray[np.bool_]) -> Marginal:
        panel, outcome = self.panel, self._outcome(not self.panel.data.steady)
        names = panel.names if panel.data.steady else (*panel.names, "decisions")
        reason = _why_not(ratio, chosen) or (None if closed(panel).any() else Reason(ReasonKind.NOTHING_FOLLOWS))
        if reason is not None:
            return self._withheld(names, reason)
        assert ratio is not None
        share = chosen / chosen.sum()
        solution = discounted(panel, of_states(self.basis), outcome, ratio, share, self.least_rows)
        return self._part(names, solution, share, panel.start, outcome, 1)

    def _total(self, ratio: Array | None, chosen: NDArray[np.bool_], days: int) -> Marginal:
        """The totals of `days` days, where means over a window replace the discounted ones of decisions as well."""
        panel, ones = self.panel, self.window is not None and not self.panel.data.steady
        outcome = self._outcome(ones)
        names = tuple(str(Target(name, days)) for name in (*panel.names, *(["decisions"] if ones else [])))
        shown = (chosen & panel.covers(days)).any()
        reason = _why_not(ratio, chosen) or (None if shown else Reason(ReasonKind.NOT_SHOWN, {"days": days}))
        if reason is not None:
            return self._withheld(names, reason)
        assert ratio is not None
        share = chosen / chosen.sum()
        solution = totals(panel, of_states(self.basis), outcome, ratio, share, self.least_rows, days)
        return self._part(names, solution, share, panel.first, outcome, days)

    def _part(
        self,
        names: tuple[str, ...],
        found: StateSolution,
        share: Array,
        begin: Index,
        outcome: Array,
        rows_at_most: int,
    ) -> Marginal:
        """Values over users with this share `[U]` from the rows `begin` `[U]`, without those the log cannot carry.

        They add up the outcomes `[n, T]` of `rows_at_most` rows.
        """
        panel, first = self.panel, found.value[begin]
        value = share @ first
        shared = found.reason(self.support)
        influence = panel.num_users * (share[:, None] * (first - value) + panel.by_user(found.error))
        whole = Marginal(
            targets=names,
            value=value,
            influence=influence,
            mass=np.repeat(panel.by_user(found.mass[:, None]), len(names), axis=1),
            withheld=(None,) * len(names),
            leverage=np.full(len(names), found.leverage),
        )
        fits = possible(value, range_of(outcome), rows_at_most)
        return whole.without([shared or (None if ok else Reason(ReasonKind.UNSTABLE)) for ok in fits])

    def _outcome(self, decisions: bool) -> Array:
        """`[n, T]` reward and costs, and 1 per decision where that is asked for."""
        panel = self.panel
        return np.column_stack([panel.outcome, ~panel.forced]) if decisions else panel.outcome

    def _certain(self, target: str, value: float) -> Marginal:
        return Marginal(**vars(certain(target, value, self.panel.num_users)), leverage=np.zeros(1))

    def _withheld(self, names: tuple[str, ...], reason: Reason) -> Marginal:
        return Marginal(**withheld(names, self.panel.num_users, reason), leverage=np.ones(len(names)))


def _why_not(ratio: Array | None, chosen: NDArray[np.bool_]) -> Reason | None:
    """Why nothing can be told of these users, or None."""
    if ratio is None:
        return Reason(ReasonKind.NO_PROPENSITIES)
    return None if chosen.any() else Reason(ReasonKind.NOBODY)


def _few_rows(leverage: float) -> Reason | None:
    """Why so few rows behind a state's value are too few, or None."""
    if leverage <= 1 / LEAST_BEHIND:
        return None
    return Reason(ReasonKind.FEW_ROWS, {"count": 1 / leverage, "needed": LEAST_BEHIND})
