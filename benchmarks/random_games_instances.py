"""Random constrained Markov decision processes whose optimum is known, and how much of the uplift a mixture loses.

    50 states, 4 actions; from each pair 4 states follow, drawn without replacement, with Dirichlet(1, 1, 1, 1)
    reward of a pair ~ uniform(0, 1), each cost ~ Beta(0.2, 0.2) (mostly near 0 or near 1), all independent
    start in one state

    limit_j = least_j + u_j (free_j − least_j),    u_j ~ uniform(0.2, 0.8)

`free` is the spend of the best policy without limits, `least` that of the policy of least Σ_j cost_j / free_j: so the
limits can be kept together. u is drawn again until every limit has a price above 0 at the optimum: so each binds.

    uplift lost = (optimum − value) / (optimum − reward of the policy of least spend)

A mixture that spends more than a limit is held against the optimum at that larger spend: what it lost there, and not
what the overspending bought.

Source: transitions and costs as in the random CMDPs of COptiDICE (Lee et al., ICLR 2022), whose one rewarded state
and one limit for all would leave little to choose; rewards and limits are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import outlay
from outlay.learning.mixing import rule
from outlay.ops.tabular import constrained_optimum, measure, policy_iteration

Floats = NDArray[np.float64]

STATES, ACTIONS, FOLLOWERS = 50, 4, 4
DISCOUNTS = (0.8, 0.95)
LIMITS = (1, 2, 3)
LEAST_PRICE = 1e-6


class Spec(NamedTuple):
    """Which game: it is drawn from these three numbers alone."""

    num_limits: int
    discount: float
    seed: int


@dataclass(frozen=True)
class RandomGame:
    """A game with its answer.

    Attributes:
        cmdp: the model.
        constraints: limits `[m]`, in (1−γ)·J, and their scale.
        optimum: reward of the best policy that keeps the limits, in (1−γ)·J (occupancy linear program).
        baseline: reward of the policy of least spend.
    """

    cmdp: outlay.TabularCMDP
    constraints: rule.Constraints
    optimum: float
    baseline: float


def specs(instances: int) -> list[Spec]:
    """So many games for each number of limits and each discount."""
    return [Spec(m, discount, seed) for m, discount, seed in product(LIMITS, DISCOUNTS, range(instances))]


def draw(spec: Spec) -> RandomGame:
    """The game of a spec."""
    m = spec.num_limits
    rng = np.random.default_rng([m, round(100 * spec.discount), spec.seed])
    transition = np.zeros((STATES, ACTIONS, STATES))
    for state, action in product(range(STATES), range(ACTIONS)):
        followers = rng.choice(STATES, FOLLOWERS, replace=False)
        transition[state, action, followers] = rng.dirichlet(np.ones(FOLLOWERS))
    cmdp = outlay.TabularCMDP(
        transition=transition,
        reward=rng.random((STATES, ACTIONS)),
        cost=rng.beta(0.2, 0.2, (STATES, ACTIONS, m)),
        start=np.eye(STATES)[0],
        discount=spec.discount,
    )
    free = measure(cmdp, policy_iteration(cmdp, np.eye(1 + m)[0]))
    least = measure(cmdp, policy_iteration(cmdp, np.append(0.0, -1.0 / free[1:])))
    while True:
        limits = least[1:] + rng.uniform(0.2, 0.8, m) * (free[1:] - least[1:])
        optimum = constrained_optimum(cmdp, limits)
        if (optimum.dual > LEAST_PRICE).all():
            return RandomGame(cmdp, rule.constraints(limits), optimum.value, float(least[0]))


def lost(game: RandomGame, x: Floats) -> float:
    """Share of the uplift that a measurement `[1+m]` loses, against the optimum at its own spend if that is larger."""
    optimum = game.optimum
    if not rule.feasible(game.constraints, x):
        optimum = outlay.solve(game.cmdp, np.maximum(game.constraints.limits, x[1:])).upper
    return (optimum - float(x[0])) / (optimum - game.baseline)


def spend(game: RandomGame, x: Floats) -> float:
    """The spend of a measurement `[1+m]` as a share of its limit, where that share is largest."""
    return float((x[1:] / game.constraints.limits).max())
