"""Rules that do not look ahead: constant actions, and the 1-day allocator with true responses.

    a_λ(s) = argmax_a  r(s, a) − λ c(s, a)          priced in every state, and solved again each day

a_λ changes only at the slopes of the states' upper hulls of (c, r), so finitely many policies hold every price. What
such a rule is worth over time is x(π), discounted, in the true model: the baseline that a claim of long-term gain has
to beat at equal total spend.

Source: the knapsack's greedy hull (Kellerer, Pferschy and Pisinger 2004, ch. 11); its use as a policy is ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.cmdp import ModelError, TabularCMDP
from outlay.ops.tabular import measure
from outlay.simulators.city import COUPONS
from outlay.simulators.city_truth import CityResponse, CityTruth


class OneDay(NamedTuple):
    """The 1-day allocator at every price, dearest first.

    Attributes:
        measurements: `[k, 2]` x(π): value and spend per decision, (1−γ)·J.
        policies: `[k, S]` action indices.
        prices: `[k]` λ, descending from ∞: policy i is the answer from prices[i] down to prices[i+1], the last one
            down to 0.
    """

    measurements: NDArray[np.float64]
    policies: NDArray[np.intp]
    prices: NDArray[np.float64]


def one_day_points(cmdp: TabularCMDP) -> OneDay:
    """All policies of the 1-day allocator with true responses; where two actions are alike, the cheaper.

    Raises:
        ModelError: if the model has not exactly one cost: a price is one number here.
    """
    if cmdp.num_costs != 1:
        raise ModelError(f"has {cmdp.num_costs} costs; expected 1.", where="cost")
    reward, cost = cmdp.reward, cmdp.cost[:, :, 0]
    policy = np.array([np.lexsort((-r, c))[0] for r, c in zip(reward, cost, strict=True)])
    steps = [
        (price, state, action)
        for state in range(cmdp.num_states)
        for price, action in _hull(reward[state], cost[state], int(policy[state]))
    ]
    steps.sort(key=lambda step: -step[0])
    policies, prices = [policy.copy()], [np.inf]
    for price, state, action in steps:
        policy[state] = action
        if price == prices[-1]:
            policies[-1] = policy.copy()
        else:
            policies.append(policy.copy())
            prices.append(price)
    measurements = np.array([measure(cmdp, policy) for policy in policies])
    return OneDay(measurements, np.array(policies), np.array(prices))


def one_day_city(truth: CityTruth, price: float) -> CityResponse:
    """The 1-day allocator of a city at one price, with true responses."""
    net = truth.worth[:, None] - price * COUPONS[:, None, None]  # [A, T, 1]

    def choose(p: NDArray[np.float64]) -> NDArray[np.int8]:
        return np.asarray((p * net[..., None, None]).argmax(axis=0), np.int8)

    return truth.value(choose)


def constant_points(cmdp: TabularCMDP) -> NDArray[np.float64]:
    """`[A, 1+m]` x(π) of the policies that always give the same action."""
    return np.array([measure(cmdp, np.full(cmdp.num_states, action)) for action in range(cmdp.num_actions)])


def _hull(reward: NDArray[np.float64], cost: NDArray[np.float64], cheapest: int) -> list[tuple[float, int]]:
    """One state's upper hull from the cheapest action on: the slope to each next corner, and the action there."""
    corners, at = [], cheapest
    while (better := np.flatnonzero(reward > reward[at])).size:
        slopes = (reward[better] - reward[at]) / (cost[better] - cost[at])
        best = int(slopes.argmax())
        at = int(better[best])
        corners.append((float(slopes[best]), at))
    return corners
