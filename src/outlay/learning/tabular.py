"""The counted model: a small log as an exact CMDP, where distinct states are few, and its best responses to every λ.

    P̂(s'|s, a) = n(s, a, s') / n(s, a)      r̂, ĉ: means of (s, a)

A pair that the log never shows takes the means of its action over all states, and the moves of its state over all
actions. It measures candidates in milliseconds; the numbers that are reported come from `estimators/`. `smoothed` lets
similar amounts inform each other, as the networks do: in every state each mean and each probability is a regression
over the amounts, in the action basis, weighted by the rows behind each.

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
from outlay.core.errors import OutlayError
from outlay.core.progress import Progress
from outlay.core.transitions import LEARN, States, Transitions
from outlay.learning import COUNTED, LEARNERS
from outlay.learning.exact import solve
from outlay.learning.heads import Coordinates
from outlay.learning.learner import BestResponses, Task
from outlay.ops.action_basis import ActionBasis, smooth_basis
from outlay.ops.tabular import action_values, measure, policy_iteration

WITHOUT_LUCK = False

MOST_STATES = 512  # beyond it a dense model is neither small nor well counted
ROWS_A_PAIR = 30  # learn rows for each state and action, on average, with which `auto` takes the counted model
MOST_CORNERS = 64
AXIS_CORNERS = {2: 8, 3: 4}  # along each axis, by the number of limits
BUDGETS = 12  # of the money budget, with several limits
TIE = 1e-5  # of the largest value: what the policy's own action is raised by, so that ties fall as it decided
Vector = NDArray[np.float64]


def counted_model(data: Transitions, split: int) -> TabularCMDP | None:
    """The counted model of the users of one split, or None where it does not apply.

    It applies where distinct states are few and every policy decides once a day (`data.steady`).
    """
    if data.state is None or data.states is None or not data.steady or len(data.states) > MOST_STATES:
        return None
    rows = data.rows_of(split)
    starts = data.users["start_row"][data.users_of(split)]
    count, actions = len(data.states), data.num_actions
    pair = data.state[rows].astype(np.int64) * actions + data.action[rows]
    outcome = _means(pair, data.outcome[rows].astype(np.float64), count, actions)
    linked = rows[data.next_row[rows] >= 0]
    moves = data.state[linked].astype(np.int64) * actions + data.action[linked]
    following = data.state[data.next_row[linked]].astype(np.int64)
    counts = np.bincount(moves * count + following, minlength=count * actions * count).reshape(count, actions, count)
    return TabularCMDP(
        transition=_shares(counts.astype(np.float64)),
        reward=outcome[:, :, 0],
        cost=outcome[:, :, 1:],
        start=np.bincount(data.state[starts], minlength=count) / len(starts),
        discount=data.campaign.meta.discount,
    )


def smoothed(model: TabularCMDP, data: Transitions, split: int, basis: ActionBasis | None) -> TabularCMDP:
    """A counted model with its action axis smoothed.

    Args:
        model: from `counted_model`, of the same split.
        data: the transitions.
        split: whose rows weigh.
        basis: R rows of K; None leaves the model as it is.
    """
    if basis is None:
        return model
    assert data.state is not None
    rows, actions = data.rows_of(split), data.num_actions
    pair = data.state[rows].astype(np.int64) * actions + data.action[rows]
    # What fills an unseen pair counts as one row, so that a polynomial does not run away where there are none.
    weight = 1.0 + np.bincount(pair, minlength=model.num_states * actions).reshape(-1, actions)
    B = np.array(basis)
    gram = np.einsum("rk,sk,qk->srq", B, weight, B)
    project = np.einsum("rk,srj->skj", B, np.linalg.solve(gram, B * weight[:, None, :]))  # [S, K, K] means → fitted

    def fitted(table: NDArray[np.float64]) -> NDArray[np.float64]:
        smooth = np.einsum("skj,sj...->sk...", project, table)
        inside: NDArray[np.float64] = np.clip(smooth, table.min(1, keepdims=True), table.max(1, keepdims=True))
        return inside

    transition = fitted(model.transition)
    transition /= transition.sum(2, keepdims=True)
    return replace(model, transition=transition, reward=fitted(model.reward), cost=fitted(model.cost))


def _means(pair: NDArray[np.int64], outcome: NDArray[np.float64], count: int, actions: int) -> NDArray[np.float64]:
    """`[S, K, 1+m]` mean outcomes; unseen pairs take their action's mean."""
    rows = np.bincount(pair, minlength=count * actions).reshape(count, actions, 1)
    sums = np.stack([np.bincount(pair, column, count * actions) for column in outcome.T], 1).reshape(count, actions, -1)
    free = sums.sum(0) / np.maximum(rows.sum(0), 1)
    return np.where(rows > 0, sums / np.maximum(rows, 1), free)


def _shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[S, K, S]` counts → probabilities; unseen pairs move as their state does, unseen states stay."""
    any_action = counts.sum(1, keepdims=True) + 1e-12 * np.eye(len(counts))[:, None, :]
    filled = np.where(counts.sum(2, keepdims=True) > 0, counts, any_action)
    shares: NDArray[np.float64] = filled / filled.sum(2, keepdims=True)
    return shares


def learn(task: Task, report: Progress) -> BestResponses:
    """Count, and answer every λ that matters exactly.

    Raises:
        OutlayError: if the states of the log cannot be counted.
    """
    report(0.0, "counting states")
    data, coords, names = task.data, task.coords, task.campaign.names
    degree = names.degree(task.campaign.train.action_degree)
    model, states = countable(data), data.states
    if model is None or states is None or data.state is None:
        raise OutlayError(
            "needs few distinct states, each known by its features, and a decision every day; this log lacks that.",
            where=f"oracle {task.learner}",
            way_out="Take --oracle orthogonal, trees, or auto.",
        )
    basis = smooth_basis(data.actions, degree, task.campaign.none)
    model = smoothed(model, data, LEARN, basis)
    multiplier, policies = plug_in(model, coords, states.allowed, task.campaign.money)
    share = np.bincount(data.state[task.rows], minlength=len(states)) / len(task.rows)

    def network(multipliers: Vector, policies: NDArray[np.intp]) -> NetworkArrays:
        return table_network(model, states, share, data.schema.sizes, multipliers, policies, coords)

    *others, last = (name for name in LEARNERS if name != COUNTED)
    smooth = "" if basis is None else f", smoothed over the amounts by polynomials of degree {degree}"
    return BestResponses(
        task.learner,
        network(multiplier, policies),
        policy=np.arange(len(multiplier)),
        multiplier=multiplier,
        description="the counted model, whose best responses are exact,",
        notes=[
            f"The log has {len(states)} distinct states, few enough to count: the counted model{smooth}, "
            f"with exact best responses, instead of networks or trees (--oracle {', '.join(others)} or {last})."
        ],
        exact=lambda price: network(price[None], respond(model, coords, states.allowed, price)[None]),
    )


def countable(data: Transitions) -> TabularCMDP | None:
    """The counted model of the learn users, where features tell its states apart; else None."""
    model = counted_model(data, LEARN)
    if model is None or data.states is None:
        return None
    seen = np.concatenate([data.states.codes, np.ascontiguousarray(data.states.numbers).view(np.int32)], axis=1)
    return model if len(np.unique(seen, axis=0)) == len(seen) else None


def well_counted(data: Transitions) -> bool:
    """Whether `auto` counts: the states can be counted, and learn users met them often enough."""
    if countable(data) is None or data.states is None:
        return False
    return len(data.rows_of(LEARN)) >= ROWS_A_PAIR * len(data.states) * data.num_actions


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
