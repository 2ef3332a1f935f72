"""Exact values, best responses and constrained optima of a tabular CMDP.

    measurement  x(π) = (1−γ) J(π) = startᵀ V_π         V_π = (I − γ P_π)⁻¹ (1−γ) X_π
    Q            Q_π(s, a) = (1−γ) x(s, a) + γ Σ P(s' | s, a) V_π(s')
    optimum      max Σ d r   s.t.  Σ_a d(s', a) − γ Σ P(s' | s, a) d(s, a) = (1−γ) start(s'),  Σ d c ≤ limits,  d ≥ 0

x = [reward, costs]. A policy is an integer array `[S]` (deterministic) or an array of probabilities `[S, A]` (drawn
anew at every step). The occupancy d(s, a) adds up to 1. All arrays are dense: meant for up to a few thousand states.

Source: Howard (1960) for policy iteration; Altman (1999), ch. 3, for the occupancy program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack

from outlay.core.cmdp import ModelError, TabularCMDP
from outlay.core.errors import InfeasibleError

Policy = NDArray[np.intp] | NDArray[np.float64]

IMPROVEMENT = 1e-13  # least gain that changes an action, times scale / (1−γ): below it ties would cycle on rounding
SLACK = 1e-9  # scaled violation that still counts as kept, so that the smallest reachable cost is itself a limit
HIGHS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best policy under limits.

    Attributes:
        value: (1−γ)·J_r of the policy: the largest within the limits.
        measurement: `[1+m]` of the policy.
        dual: `[m]` ≥ 0: by how much `value` grows per unit of each limit.
        policy: `[S, A]` probabilities; at most m states of those it reaches are randomised (a basic solution).
    """

    value: float
    measurement: NDArray[np.float64]
    dual: NDArray[np.float64]
    policy: NDArray[np.float64]


def action_values(cmdp: TabularCMDP, policy: Policy) -> NDArray[np.float64]:
    """Q_π: `[S, A, 1+m]` in (1−γ)·J, reward first."""
    outcome = (1 - cmdp.discount) * cmdp.outcome
    values = np.linalg.solve(_resolvent(cmdp, policy), _under(policy, outcome))
    following: NDArray[np.float64] = outcome + cmdp.discount * cmdp.transition @ values
    return following


def measure(cmdp: TabularCMDP, policy: Policy) -> NDArray[np.float64]:
    """Measurement vector x(π): `[1+m]` (1−γ)·J over the start population, reward first."""
    occupancy = np.linalg.solve(_resolvent(cmdp, policy).T, (1 - cmdp.discount) * cmdp.start)
    measurement: NDArray[np.float64] = occupancy @ _under(policy, cmdp.outcome)
    return measurement


def totals(cmdp: TabularCMDP, policy: Policy, days: int) -> NDArray[np.float64]:
    """Undiscounted totals per user: row k−1 of `[days, 1+m]` is the expected sum over the first k days."""
    move = _under(policy, cmdp.transition)
    outcome = _under(policy, cmdp.outcome)
    states = cmdp.start
    daily = np.empty((days, outcome.shape[1]))
    for day in range(days):
        daily[day] = states @ outcome
        states = states @ move
    return daily.cumsum(axis=0)


def policy_iteration(
    cmdp: TabularCMDP,
    weights: ArrayLike,
    *,
    allowed: NDArray[np.bool_] | None = None,
    initial: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """Best response: the deterministic policy that maximises wᵀx from every state.

    Args:
        cmdp: the model.
        weights: `[1+m]` w, e.g. (1, −λ).
        allowed: `[S, A]` the actions that may be chosen; default all.
        initial: `[S]` the policy to start from, of allowed actions; default the best immediate outcome. The best
            response to a λ nearby saves steps.

    Returns:
        `[S]` action indices. An action changes only for a gain.

    Raises:
        ModelError: if the weights have another shape, or a state has no allowed action.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (1 + cmdp.num_costs,):
        raise ModelError(f"shape is {w.shape}; expected ({1 + cmdp.num_costs},): reward, costs.", where="weights")
    mask = _mask(cmdp, allowed)
    states = np.arange(cmdp.num_states)
    immediate = np.where(mask, (1 - cmdp.discount) * (cmdp.reward * w[0] + cmdp.cost @ w[1:]), -np.inf)
    size = float((np.abs(cmdp.reward) * abs(w[0]) + np.abs(cmdp.cost) @ np.abs(w[1:])).max())
    least_gain = IMPROVEMENT * size / (1 - cmdp.discount)
    identity = np.eye(cmdp.num_states)
    policy: NDArray[np.intp] = immediate.argmax(axis=1) if initial is None else initial
    while True:
        resolvent = identity - cmdp.discount * cmdp.transition[states, policy]
        values = np.linalg.solve(resolvent, immediate[states, policy])
        scores = immediate + cmdp.discount * cmdp.transition @ values
        gain = scores.max(axis=1) - scores[states, policy]
        if not (gain > least_gain).any():
            return policy
        policy = np.where(gain > least_gain, scores.argmax(axis=1), policy)


def constrained_optimum(cmdp: TabularCMDP, limits: ArrayLike, *, allowed: NDArray[np.bool_] | None = None) -> Optimum:
    """Largest (1−γ)·J_r with (1−γ)·J_c ≤ limits, by the occupancy linear program (HiGHS).

    Args:
        cmdp: the model.
        limits: `[m]` in the unit of the costs, per decision; inf means no limit. For a floor negate cost and limit.
        allowed: `[S, A]` the actions that may be chosen; default all.

    Raises:
        ModelError: if the limits have another shape, are NaN or −inf, or a state has no allowed action.
        InfeasibleError: if no policy keeps all limits; it gives the least joint violation and the λ that proves it.
    """
    limit = np.asarray(limits, dtype=np.float64)
    if limit.shape != (cmdp.num_costs,) or not (limit > -np.inf).all():
        raise ModelError(f"are {limit}; expected {cmdp.num_costs} numbers (or inf), one a cost.", where="limits")
    mask = _mask(cmdp, allowed)
    flow, inflow = _flow(cmdp)
    costs, bound, scale = _limit_rows(cmdp, limit)
    bounds = np.stack([np.zeros(mask.size), np.where(mask.ravel(), np.inf, 0.0)], axis=1)
    for slack in (0.0, SLACK):
        solution = linprog(
            -cmdp.reward.ravel(),
            A_ub=costs,
            b_ub=bound + slack,
            A_eq=flow,
            b_eq=inflow,
            bounds=bounds,
            method="highs",
            options=HIGHS,
        )
        if solution.status != 2:
            break
    if solution.status == 2:
        raise _infeasible(cmdp, limit, mask)
    if not solution.success:
        raise RuntimeError(f"HiGHS: {solution.message}")
    dual = np.zeros(cmdp.num_costs)
    dual[np.isfinite(limit)] = np.maximum(0.0, -solution.ineqlin.marginals) / scale
    # States that are never reached get the best response to the dual, so that the policy is good from anywhere.
    policy = np.eye(cmdp.num_actions)[policy_iteration(cmdp, np.concatenate([[1.0], -dual]), allowed=mask)]
    occupancy = np.maximum(0.0, solution.x).reshape(cmdp.num_states, cmdp.num_actions)
    reached = occupancy.sum(axis=1) > 1e-12
    policy[reached] = occupancy[reached] / occupancy[reached].sum(axis=1, keepdims=True)
    measurement = measure(cmdp, policy)
    return Optimum(float(measurement[0]), measurement, dual, policy)


def reachable_limits(
    cmdp: TabularCMDP, limits: NDArray[np.float64], *, allowed: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Raise limits that no policy keeps, all by the same share of their scale, until some policy keeps them.

    Args:
        cmdp: the model.
        limits: `[m]` in the unit of the costs, per decision; inf means no limit. For a floor negate cost and limit.
        allowed: `[S, A]` the actions that may be chosen; default all.

    Returns:
        `[m]` in the same unit; a single limit becomes the least cost that any policy reaches.
    """
    return _raised(cmdp, np.asarray(limits, dtype=np.float64), _mask(cmdp, allowed))[0]


def _under(policy: Policy, array: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[S, …]` the mean of `[S, A, …]` over the actions that the policy takes."""
    if policy.ndim == 1:
        taken: NDArray[np.float64] = array[np.arange(len(array)), policy]
        return taken
    mean: NDArray[np.float64] = np.einsum("sa,sa...->s...", policy, array)
    return mean


def _resolvent(cmdp: TabularCMDP, policy: Policy) -> NDArray[np.float64]:
    """`[S, S]` I − γ P_π."""
    return np.eye(cmdp.num_states) - cmdp.discount * _under(policy, cmdp.transition)


def _mask(cmdp: TabularCMDP, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    mask = np.ones(cmdp.reward.shape, dtype=np.bool_) if allowed is None else np.asarray(allowed, dtype=np.bool_)
    if mask.shape != cmdp.reward.shape:
        raise ModelError(f"shape is {mask.shape}; expected {cmdp.reward.shape}.", where="allowed")
    if not mask.any(axis=1).all():
        raise ModelError("no action is allowed; expected at least one.", where=f"allowed[{mask.any(axis=1).argmin()}]")
    return mask


def _flow(cmdp: TabularCMDP) -> tuple[csr_array, NDArray[np.float64]]:
    """`[S, S·A]` and `[S]`: what leaves a state equals what enters it."""
    S, A = cmdp.reward.shape
    leaving = np.repeat(np.eye(S), A, axis=1)
    entering = cmdp.transition.reshape(S * A, S).T
    return csr_array(leaving - cmdp.discount * entering), (1 - cmdp.discount) * cmdp.start


def _limit_rows(
    cmdp: TabularCMDP, limit: NDArray[np.float64]
) -> tuple[csr_array, NDArray[np.float64], NDArray[np.float64]]:
    """Rows Σ d c ≤ limit of the finite limits, divided by their scale (HiGHS tolerances are absolute)."""
    finite = np.isfinite(limit)
    costs = cmdp.cost.reshape(cmdp.reward.size, cmdp.num_costs).T[finite]
    scale = np.maximum(np.abs(limit[finite]), np.abs(costs).max(axis=1, initial=0.0))
    scale[scale == 0] = 1.0
    return csr_array(costs / scale[:, None]), limit[finite] / scale, scale


def _infeasible(cmdp: TabularCMDP, limit: NDArray[np.float64], mask: NDArray[np.bool_]) -> Exception:
    raised, multiplier = _raised(cmdp, limit, mask)
    parts = [
        f"cost {j}: limit {limit[j]:.6g}, kept from {raised[j]:.6g} (λ {multiplier[j]:.4g})"
        for j in np.flatnonzero(np.isfinite(limit))
    ]
    return InfeasibleError(
        f"no policy keeps {'the limit' if len(parts) == 1 else 'these limits together'}; " + "; ".join(parts) + ".",
        where="limits",
        way_out="Raise the limits at least that far.",
    )


def _raised(
    cmdp: TabularCMDP, limit: NDArray[np.float64], mask: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return limits `[m]` that can be kept, limit + t·scale with the least t ≥ 0, and the λ `[m]` that prove it."""
    flow, inflow = _flow(cmdp)
    costs, bound, scale = _limit_rows(cmdp, limit)
    count = mask.size
    upper = np.append(np.where(mask.ravel(), np.inf, 0.0), np.inf)
    solution = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=hstack([costs, csr_array(-np.ones((len(bound), 1)))]),
        b_ub=bound,
        A_eq=hstack([flow, csr_array((flow.shape[0], 1))]),
        b_eq=inflow,
        bounds=np.stack([np.zeros(count + 1), upper], axis=1),
        method="highs",
        options=HIGHS,
    )
    finite = np.isfinite(limit)
    raised, multiplier = limit.copy(), np.zeros_like(limit)
    raised[finite] += solution.x[-1] * scale
    multiplier[finite] = np.maximum(0.0, -solution.ineqlin.marginals) / scale
    return raised, multiplier
