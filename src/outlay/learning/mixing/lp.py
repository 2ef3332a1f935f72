"""LP: the best mixture of every policy measured so far (fully corrective), with at most m + 1 policies.

    max αᵀr   s.t.   αᵀC ≤ limits,  Σα = 1,  α ≥ 0        where none is feasible: the least scaled violation first

Its duals are the next λ (column generation): ask for a best response to w = (1, −λ) once feasible, to (0, −λ) before.
r(π) − λᵀ(c(π) − limits) of an exact best response is then an upper bound and `lower` the value in hand.

Keeps every vector and every member. With `spares=N`, for members that are dear to store, it keeps the support and the
N others of best reduced cost; the rest are gone, members *and* vectors, and no later mixture can use them: the value
never falls, but it need not reach the best over all seen, and column generation on top of it can cycle.

Source: ours, after Dantzig & Wolfe (1960); Altman (1999) for the bound on the support.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.mixture import Mixture
from outlay.learning.mixing import rule
from outlay.learning.mixing.growing import Growing, GrowingRows
from outlay.ops.mixture_lp import FEASIBLE, solve_mixture

KEPT = 1e-12  # scaled violation of rounding alone


class State(NamedTuple):
    """Every policy that a mixture may use, and the best mixture.

    Attributes:
        terms: what the mixture is held to.
        spares: how many policies to keep beside the support; None keeps all.
        members: k policies.
        measurements: `[k, 1+m]`.
        support: rows of the policies that carry weight, ascending `[k']`, k' ≤ m + 1.
        weights: `[k']` a distribution.
        value: the mixture's reward.
        violation: its scaled violation, ∞ before the first policy.
        duals: `[m]` λ, see `duals`.
        basis: `[m+1]` of the linear program, or empty where it is no safe start of the next.
    """

    terms: rule.Terms
    spares: int | None
    members: Growing
    measurements: GrowingRows
    support: NDArray[np.intp]
    weights: rule.Floats
    value: float
    violation: float
    duals: rule.Floats
    basis: NDArray[np.intp]

    @property
    def feasible(self) -> bool:
        """Whether the mixture keeps the limits."""
        return self.violation <= FEASIBLE


def init(limits: ArrayLike, scale: ArrayLike | None = None, *, spares: int | None = None) -> State:
    """State before the first policy; `spares` as in the module's docstring."""
    if spares is not None and spares < 0:
        raise ValueError(f"spares: expected 0 or more, found {spares}.")
    held_to = rule.terms(limits, scale)
    count = len(held_to.limits)
    none = np.empty(0, dtype=np.intp)
    rows = GrowingRows(np.empty((0, 1 + count)))
    return State(held_to, spares, Growing(), rows, none, np.empty(0), -np.inf, np.inf, np.zeros(count), none)


def step(state: State, member: Any, measurement: ArrayLike) -> State:
    """One more policy; the weights are solved again if it can improve the mixture."""
    vector = rule.checked(state.terms, measurement)
    grown = state._replace(members=state.members.appended(member), measurements=state.measurements.appended(vector))
    if not len(state.members) or reduced_cost(state, vector[None])[0] > 0.0:
        solved = _solved(grown)
        # On points that are all but dependent a solver can end below what is in hand; that is then kept.
        if _order(solved) <= _order(state):
            grown = solved
    return _pruned(grown)


def mixture(state: State) -> Mixture[Any]:
    """The policies that carry weight."""
    if not len(state.members):
        raise rule.no_policy_yet()
    return Mixture(
        tuple(state.members[i] for i in state.support), state.weights, state.measurements.array[state.support]
    )


def duals(state: State) -> rule.Floats:
    """`[m]` λ ≥ 0, reward units per cost unit. While infeasible a proof of it: λᵀ(c − limits) ≥ violation for all."""
    return state.duals


def lower(state: State) -> float:
    """Reward of the best feasible mixture, −∞ until there is one."""
    return state.value if state.feasible else float("-inf")


def reduced_cost(state: State, measurements: rule.Floats) -> rule.Floats:
    """How much each of `measurements` `[n, 1+m]` promises, `[n]`: at most 0 where it cannot improve the mixture.

    In reward units once feasible, r − λᵀ(c − limits) − value; before, in scaled violation.
    """
    priced = (measurements[:, 1:] - state.terms.limits) @ state.duals
    if not state.feasible:
        promise = state.violation - priced
        # A policy on the supporting plane leaves the violation as it is but may bring reward.
        return np.asarray(promise + 1e-12 * state.violation, dtype=np.float64)
    return np.asarray(measurements[:, 0] - priced - state.value, dtype=np.float64)


def _solved(state: State) -> State:
    """The best mixture of all policies at hand, from the last one's basis where there is one."""
    terms, measurements = state.terms, state.measurements.array
    solution = solve_mixture(measurements, terms.limits, terms.scale, state.basis if len(state.basis) else None)
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


def _order(state: State) -> tuple[float, float]:
    """Less is better: violation, where up to FEASIBLE counts as none, then reward with its sign turned."""
    return max(state.violation, FEASIBLE), -state.value


def _pruned(state: State) -> State:
    if state.spares is None:
        return state
    measurements = state.measurements.array
    promise = reduced_cost(state, measurements)
    promise[state.support] = np.inf
    # Stable: of equal promise the older stays.
    order = np.argsort(-promise, kind="stable")[: len(state.support) + state.spares]
    kept = np.sort(order)
    return state._replace(
        members=Growing([state.members[i] for i in kept]),
        measurements=GrowingRows(measurements[kept]),
        support=np.searchsorted(kept, state.support),
        basis=np.empty(0, dtype=np.intp),
    )
