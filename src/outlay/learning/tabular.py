"""The counted model: a small log as an exact CMDP, where distinct states are few.

    P̂(s'|s, a) = n(s, a, s') / n(s, a)      r̂, ĉ: means of (s, a)

A pair that the log never shows takes the means of its action over all states, and the moves of its state over all
actions. It measures candidates in milliseconds; the numbers that are reported come from `estimators/`.

`smoothed` lets similar amounts inform each other, as the networks do: in every state each mean and each
probability is a regression over the amounts, in the action basis, weighted by the rows behind each.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP
from outlay.core.transitions import Transitions
from outlay.ops.action_basis import ActionBasis

MOST_STATES = 512  # beyond it a dense model is neither small nor well counted


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
