"""Costs that follow from action and reward, like `coupon * active`: they are derived, not learned a second time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.transitions import Transitions

DETERMINED = 1e-5  # of a cost's spread: the most by which one that follows from action and reward may be off

Vector = NDArray[np.float64]


class Determined(NamedTuple):
    """Costs that follow from action and reward: cost = base + per_reward · reward for each action."""

    known: NDArray[np.bool_]  # [m]
    base: Vector  # [m, K]
    per_reward: Vector  # [m, K]


def determined_costs(data: Transitions, rows: NDArray[np.int64], spread: Vector) -> Determined:
    """Which costs are a straight line in the reward, given the action: all of a reward of 0 or 1 that look at no more.

    Args:
        data: the log.
        rows: `[n]` that have to agree.
        spread: `[H]` of the heads.
    """
    action = np.asarray(data.action[rows])
    outcome = np.asarray(data.outcome[rows], np.float64)
    count = outcome.shape[1] - 1
    known, base, per_reward = (
        np.ones(count, np.bool_),
        np.zeros((count, data.num_actions)),
        np.zeros((count, data.num_actions)),
    )
    for a in np.unique(action):
        reward, costs = outcome[action == a, 0], outcome[action == a, 1:]
        off = reward - reward.mean()
        variance = float(off @ off)
        slope = off @ costs / variance if variance > 0 else np.zeros(count)
        start = costs.mean(axis=0) - slope * reward.mean()
        error = np.abs(costs - start - np.outer(reward, slope)).max(axis=0)
        known &= error <= DETERMINED * spread[1 : 1 + count]
        base[:, a], per_reward[:, a] = start, slope
    return Determined(known, base, per_reward)
