"""The plug-in frontier: exact best responses of a counted model to every λ that matters.

One limit: the corners of the counted model's frontier, all of them or the MOST_CORNERS that stand out most; between two
corners, of slope λ, the best response to λ is another corner or there is none. Several limits: the best responses to a
product of axes, and those that the optima need which keep the campaign's limits, the money budget's moving.

It is the best answer that counting can give, and a bound of what it counted: where states are few, what a log cannot
tell by counts it cannot tell at all, unless similar amounts may inform each other (`ops/action_basis.py`).

Source: Cohon (1979) for finding corners by slopes.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import NetworkArrays, lookup_network
from outlay.core.bodies import StateTable
from outlay.core.cmdp import TabularCMDP
from outlay.core.transitions import States
from outlay.learning.exact import solve
from outlay.learning.heads import Coordinates
from outlay.ops.tabular import action_values, measure, policy_iteration

MOST_CORNERS = 64
AXIS_CORNERS = {2: 8, 3: 4}  # along each axis, by the number of limits
BUDGETS = 12  # of the money budget, with several limits
TIE = 1e-5  # of the largest value: what the policy's own action is raised by, so that ties fall as it decided

Vector = NDArray[np.float64]


def plug_in(
    model: TabularCMDP, coords: Coordinates, allowed: NDArray[np.bool_], money: int = 0
) -> tuple[Vector, NDArray[np.intp]]:
    """Policies of a counted model.

    Args:
        model: counted, costs as logged.
        coords: for the signs of the limits; every policy decides once a day.
        allowed: `[S, K]`.
        money: the limit along which the curve is told.

    Returns:
        `[L, m]` λ, in reward units per unit of coordinate, and `[L, S]` the best responses.
    """
    signed = _signed(model, coords)
    count = signed.num_costs
    axes = [
        _corners(signed, allowed, unit, MOST_CORNERS if count == 1 else AXIS_CORNERS[count]) for unit in np.eye(count)
    ]
    multipliers = [np.array(point) for point in product(*axes)]
    policies, last = [], None
    for multiplier in multipliers:
        last = _respond(signed, allowed, multiplier, last)
        policies.append(last)
    if count > 1:
        spends = np.array([measure(signed, policy)[1 + money] for policy in policies])
        for limit in [coords.limits[money], *np.linspace(spends.min(), spends.max(), BUDGETS)[1:]]:
            limits = np.where(np.arange(count) == money, limit, coords.limits)
            result = solve(signed, limits, scale=coords.scale, allowed=allowed)
            if result.feasible:
                multipliers += [result.multiplier] * len(result.mixture.members)
                policies += list(result.mixture.members)
    _, first = np.unique(np.array(policies), axis=0, return_index=True)
    order = np.sort(first)
    return np.array(multipliers)[order], np.array(policies)[order]


def respond(
    model: TabularCMDP, coords: Coordinates, allowed: NDArray[np.bool_], multiplier: Vector
) -> NDArray[np.intp]:
    """`[S]` the exact best response of a counted model to a λ `[m]`; arguments as of `plug_in`."""
    return _respond(_signed(model, coords), allowed, multiplier, None)


def table_network(
    model: TabularCMDP,
    states: States,
    share: Vector,
    sizes: tuple[int, ...],
    multipliers: Vector,
    policies: NDArray[np.intp],
    coords: Coordinates,
) -> NetworkArrays:
    """Return the Q-values of policies in the counted model, as a table that can be served.

    Args:
        model: S states, K actions.
        states: of the log.
        share: `[S]` of the rows that are in each state.
        sizes: codes per categorical field.
        multipliers: `[L, m]` λ that the policies answer.
        policies: `[L, S]` actions.
        coords: for the signs of the limits.
    """
    q = np.stack([action_values(model, policy) for policy in policies], axis=2)
    place = np.arange(len(policies))
    for l, (multiplier, policy) in enumerate(zip(multipliers, policies, strict=True)):  # noqa: E741
        value = q[:, :, l] @ coords.weights(multiplier)
        q[np.arange(len(policy)), policy, place[l], 0] += TIE * max(float(np.abs(value).max()), 1e-9)
    outcome = np.concatenate([model.reward[:, :, None], model.cost], axis=2)
    return lookup_network(StateTable(states.codes, states.numbers), sizes, q, outcome, share)


def _signed(model: TabularCMDP, coords: Coordinates) -> TabularCMDP:
    """The model with its costs in coordinates: in ≤ form, of a budget per user over the horizon."""
    return replace(model, cost=np.diag(coords.matrix[:, 1:]) * model.cost)


def _respond(
    model: TabularCMDP, allowed: NDArray[np.bool_], multiplier: Vector, initial: NDArray[np.intp] | None
) -> NDArray[np.intp]:
    return policy_iteration(model, np.concatenate([[1.0], -multiplier]), allowed=allowed, initial=initial)


def _corners(model: TabularCMDP, allowed: NDArray[np.bool_], unit: Vector, most: int) -> list[float]:
    """λ along one axis whose best responses are the corners of the frontier of reward and that cost, from 0 on."""
    last: NDArray[np.intp] | None = None

    def responds(price: float) -> tuple[float, float]:
        """Reward and cost of the best response to a price; at ∞ of the cheapest policy."""
        nonlocal last
        weights = np.concatenate([[0.0], -unit]) if np.isinf(price) else np.concatenate([[1.0], -price * unit])
        last = policy_iteration(model, weights, allowed=allowed, initial=last)
        x = measure(model, last)
        return float(x[0]), float(x[1:] @ unit)

    costly, cheap = responds(0.0), responds(np.inf)
    corners = {0.0: costly}
    if costly[1] - cheap[1] <= 1e-12 * max(abs(costly[1]), 1e-12):
        return [0.0]
    # Between the most expensive corner and the cheapest; the widest gap under the chord first.
    steepest = (costly[0] - cheap[0]) / (costly[1] - cheap[1])
    heap = [(-np.inf, steepest, costly, cheap)]
    while heap and len(corners) < most:
        _, slope, left, right = heapq.heappop(heap)
        corner = responds(slope)
        gain = (corner[0] - slope * corner[1]) - (left[0] - slope * left[1])
        if gain <= 1e-10 * max(abs(left[0]), 1e-12):
            continue
        corners[slope] = corner
        for a, b in ((left, corner), (corner, right)):
            if a[1] - b[1] > 1e-12:
                heapq.heappush(heap, (-gain, (a[0] - b[0]) / (a[1] - b[1]), a, b))
    top = max(max(corners), steepest)
    return sorted({*corners, 2 * top + 1e-9})
