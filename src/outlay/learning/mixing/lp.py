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
from numpy.typing import ArrayLike

from outlay.core.mixture import Mixture
from outlay.learning.mixing import rule
from outlay.ops.mixture_lp import FEASIBLE, MixtureSolution, solve_mixture


class State(NamedTuple):
    """Every policy that a mixture may use, and the best mixture.

    Attributes:
        terms: what the mixture is held to.
        spares: how many policies to keep beside the support; None keeps all.
        members: k policies.
        measurements: `[k, 1+m]`.
        solution: weights `[k]`, duals `[m]`, violation, feasible.
    """

    terms: rule.Terms
    spares: int | None
    members: tuple[Any, ...]
    measurements: rule.Floats
    solution: MixtureSolution


def init(limits: ArrayLike, scale: ArrayLike | None = None, *, spares: int | None = None) -> State:
    """State before the first policy; `spares` as in the module's docstring."""
    if spares is not None and spares < 0:
        raise ValueError(f"spares: expected 0 or more, found {spares}.")
    held_to = rule.terms(limits, scale)
    num_limits = len(held_to.limits)
    nothing = MixtureSolution(np.empty(0), np.zeros(num_limits), float("inf"), feasible=False)
    return State(held_to, spares, (), np.empty((0, 1 + num_limits)), nothing)


def step(state: State, member: Any, measurement: ArrayLike) -> State:
    """One more policy; the weights are solved again if it can improve the mixture."""
    vector = rule.checked(state.terms, measurement)
    members = (*state.members, member)
    measurements = np.concatenate([state.measurements, vector[None]])
    solution = state.solution._replace(weights=np.append(state.solution.weights, 0.0))
    if not state.members or reduced_cost(state, vector[None])[0] > 0.0:
        solved = solve_mixture(measurements, state.terms.limits, state.terms.scale)
        # On points that are all but dependent a solver can end below what is in hand; that is then kept.
        if not state.members or _order(solved, measurements) <= _order(solution, measurements):
            solution = solved
    return _pruned(State(state.terms, state.spares, members, measurements, solution))


def mixture(state: State) -> Mixture[Any]:
    """The policies that carry weight."""
    if not state.members:
        raise rule.no_policy_yet()
    support = np.flatnonzero(state.solution.weights)
    return Mixture(
        tuple(state.members[i] for i in support), state.solution.weights[support], state.measurements[support]
    )


def duals(state: State) -> rule.Floats:
    """`[m]` λ ≥ 0, reward units per cost unit. While infeasible a proof of it: λᵀ(c − limits) ≥ violation for all."""
    return state.solution.duals


def lower(state: State) -> float:
    """Reward of the best feasible mixture, −∞ until there is one."""
    return float(state.solution.weights @ state.measurements[:, 0]) if state.solution.feasible else float("-inf")


def reduced_cost(state: State, measurements: rule.Floats) -> rule.Floats:
    """How much each of `measurements` `[n, 1+m]` promises, `[n]`: at most 0 where it cannot improve the mixture.

    In reward units once feasible, r − λᵀ(c − limits) − value; before, in scaled violation.
    """
    priced = (measurements[:, 1:] - state.terms.limits) @ state.solution.duals
    if not state.solution.feasible:
        promise = state.solution.violation - priced
        # A policy on the supporting plane leaves the violation as it is but may bring reward.
        return np.asarray(promise + 1e-12 * state.solution.violation, dtype=np.float64)
    return np.asarray(measurements[:, 0] - priced - lower(state), dtype=np.float64)


def _order(solution: MixtureSolution, measurements: rule.Floats) -> tuple[float, float]:
    """Less is better: violation, where up to FEASIBLE counts as none, then reward with its sign turned."""
    return max(solution.violation, FEASIBLE), -float(solution.weights @ measurements[:, 0])


def _pruned(state: State) -> State:
    if state.spares is None:
        return state
    support = state.solution.weights > 0.0
    promise = np.where(support, np.inf, reduced_cost(state, state.measurements))
    # Stable: of equal promise the older stays.
    order = np.argsort(-promise, kind="stable")[: int(support.sum()) + state.spares]
    kept = np.sort(order)
    return state._replace(
        members=tuple(state.members[i] for i in kept),
        measurements=state.measurements[kept],
        solution=state.solution._replace(weights=state.solution.weights[kept]),
    )
