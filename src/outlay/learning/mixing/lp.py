"""LP: the best mixture of every policy measured so far (fully corrective), with at most m + 1 policies.

    max αᵀr   s.t.   αᵀC ≤ limits,  Σα = 1,  α ≥ 0        where none is feasible: the least scaled violation first

Its duals are the next λ (column generation): ask for a best response to w = (1, −λ) once feasible, to (0, −λ) before.
r(π) − λᵀ(c(π) − limits) of an exact best response is then an upper bound and `lower` the value in hand.

Keeps every vector and every member. With `spares` = N, for members that are expensive to store, it keeps the support
and the N others of best reduced cost; the rest are gone, members *and* vectors, and no later mixture can use them: the
value never falls, but it need not reach the best over all seen, and column generation on top of it can cycle.

Source: ours, after Dantzig & Wolfe (1960); Altman (1999) for the bound on the support.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.mixture import Mixture
from outlay.learning.mixing import rule
from outlay.ops.mixture_lp import FEASIBLE, solve_mixture

FINAL_WEIGHTS: rule.FinalWeights = "solved again"
KEPT = 1e-12  # scaled violation of rounding alone


class LpState(NamedTuple):
    """Every policy that a mixture may use, and the best mixture.

    Attributes:
        constraints: of the mixture.
        members: k policies.
        measurements: `[k, 1+m]`.
        support: rows of the policies that carry weight, ascending `[k']`, k' ≤ m + 1.
        weights: `[k']` a distribution.
        value: the mixture's reward.
        violation: its scaled violation, ∞ before the first policy.
        duals: `[m]` λ, see `duals`.
        basis: `[m+1]` of the linear program, or empty where it is no safe start of the next.
    """

    constraints: rule.Constraints
    members: tuple[Any, ...]
    measurements: rule.Floats
    support: NDArray[np.intp]
    weights: rule.Floats
    value: float
    violation: float
    duals: rule.Floats
    basis: NDArray[np.intp]

    @property
    def feasible(self) -> bool:
        """Return whether the mixture keeps the limits."""
        return self.violation <= FEASIBLE


def init(constraints: rule.Constraints) -> LpState:
    """Return the state before the first policy."""
    count = len(constraints.limits)
    none = np.empty(0, dtype=np.intp)
    rows = np.empty((0, 1 + count))
    return LpState(constraints, (), rows, none, np.empty(0), -np.inf, np.inf, np.zeros(count), none)


def step(state: LpState, member: Any, measurement: ArrayLike) -> LpState:
    """Add a policy; the weights are solved again if it can improve the mixture."""
    vector = rule.checked(state.constraints, measurement)
    grown = state._replace(members=(*state.members, member), measurements=np.vstack([state.measurements, vector]))
    if not state.members or reduced_cost(state, vector[None])[0] > 0.0:
        solved = _solved(grown)
        # On points that are all but dependent a solver can end below what is in hand; that is then kept.
        if _order(solved) <= _order(state):
            grown = solved
    return _pruned(grown)


def mixture(state: LpState) -> Mixture[Any]:
    """Return the policies that carry weight."""
    if not state.members:
        raise rule.no_policy_yet()
    return Mixture(tuple(state.members[i] for i in state.support), state.weights, state.measurements[state.support])


def members(state: LpState) -> tuple[Any, ...]:
    """Return the policies that carry weight, and the spare ones."""
    return state.members


def duals(state: LpState) -> rule.Floats:
    """Return `[m]` λ ≥ 0, reward per unit of cost. While infeasible it is the proof: λᵀ(c − limits) ≥ violation."""
    return state.duals


def lower(state: LpState) -> float:
    """Return the reward of the best feasible mixture, −∞ until there is one."""
    return state.value if state.feasible else float("-inf")


def violation(state: LpState) -> float:
    """Return the scaled violation of the best mixture, ∞ before the first policy."""
    return state.violation


def reduced_cost(state: LpState, measurements: rule.Floats) -> rule.Floats:
    """Return how much each of `measurements` `[n, 1+m]` promises, `[n]`: at most 0 if it cannot improve the mixture.

    In reward units once feasible, r − λᵀ(c − limits) − value; before, in scaled violation.
    """
    priced = (measurements[:, 1:] - state.constraints.limits) @ state.duals
    if not state.feasible:
        promise = state.violation - priced
        # A policy on the supporting plane leaves the violation as it is but may bring reward.
        return np.asarray(promise + 1e-12 * state.violation, dtype=np.float64)
    return np.asarray(measurements[:, 0] - priced - state.value, dtype=np.float64)


def _solved(state: LpState) -> LpState:
    """The best mixture of all policies at hand, from the last one's basis where there is one."""
    constraints, measurements = state.constraints, state.measurements
    solution = solve_mixture(
        measurements, constraints.limits, constraints.scale, state.basis if len(state.basis) else None
    )
    support = np.flatnonzero(solution.weights)
    weights = solution.weights[support]
    return state._replace(
        support=support,
        weights=weights,
        value=float(weights @ measurements[support, 0]),
        violation=solution.violation,
        duals=solution.duals,
        basis=solution.basis if solution.violation <= KEPT else np.empty(0, dtype=np.intp),
    )


def _order(state: LpState) -> tuple[float, float]:
    """Less is better: violation, where up to FEASIBLE counts as none, then reward with its sign turned."""
    return max(state.violation, FEASIBLE), -state.value


def _pruned(state: LpState) -> LpState:
    spares = state.constraints.spares
    if spares is None:
        return state
    measurements = state.measurements
    promise = reduced_cost(state, measurements)
    promise[state.support] = np.inf
    # Stable: of equal promise the older stays.
    order = np.argsort(-promise, kind="stable")[: len(state.support) + spares]
    kept = np.sort(order)
    return state._replace(
        members=tuple(state.members[i] for i in kept),
        measurements=measurements[kept],
        support=np.searchsorted(kept, state.support),
        basis=np.empty(0, dtype=np.intp),
    )
