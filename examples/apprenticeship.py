"""Apprenticeship: act like an expert whose reward nobody knows, by bringing about the same features as often.

    min over mixed policies μ of  ‖ f(μ) − f(expert) ‖₂        f: discounted share of time with each of m features

To match a feature expectation is to keep a budget from both sides, f ≤ f(expert) and −f ≤ −f(expert). At scale 1 the
violation of these 2m limits is the distance, so every mixing rule can play the game as it is:

    w = f(expert) − f(μ)      π = best response to w      μ ← rule.step(μ, π, [0, f(π), −f(π)])

Then aim-mean is the Frank-Wolfe method with steps 1/t. aim-greedy goes to the nearest point of the segment from μ to π:
the projection method. lp goes to the nearest mixture of all policies seen: the quadratic program. Each best response
also proves how near any mixture ν can come: ‖f(ν) − f(expert)‖ ≥ wᵀ(f(expert) − f(π)) / ‖w‖.

Source: Abbeel & Ng (2004), Apprenticeship Learning via Inverse Reinforcement Learning, section 3. The world is a small
copy of theirs (section 5.1): 6 × 6 cells in 9 regions, a feature each, where 30% of the moves slip.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from outlay import TabularCMDP
from outlay.core.mixture import Mixture
from outlay.learning.mixing import RULES
from outlay.learning.mixing.rule import constraints
from outlay.ops.tabular import measure, policy_iteration

Floats = NDArray[np.float64]
Policy = NDArray[np.intp]

SHOWN = (1, 3, 10, 100, 1000)
PLAYS = (("aim-mean", "uniform"), ("aim-greedy",), ("lp",))  # uniform is shown the policies that aim-mean meets


def grid(slip: float, side: int = 6, block: int = 2, discount: float = 0.9) -> TabularCMDP:
    """Cells in rows from the corner where one starts; a move that slips goes any way. Costs: features, negated too."""
    cells = side * side
    row, column = np.divmod(np.arange(cells), side)
    ways = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    goal = [np.clip(row + down, 0, side - 1) * side + np.clip(column + right, 0, side - 1) for down, right in ways]
    moves = np.eye(cells)[np.stack(goal, axis=1)]
    regions = np.eye((side // block) ** 2)[row // block * (side // block) + column // block]
    return TabularCMDP(
        transition=(1 - slip) * moves + slip * moves.mean(axis=1, keepdims=True),
        reward=np.zeros((cells, 4)),
        cost=np.repeat(np.concatenate([regions, -regions], axis=1)[:, None], 4, axis=1),
        start=np.eye(cells)[0],
        discount=discount,
    )


def features(world: TabularCMDP, measurement: Floats) -> Floats:
    """`[m]` f of a measurement `[1+2m]`."""
    return measurement[1 : 1 + world.num_costs // 2]


def best_response(world: TabularCMDP, weights: Floats) -> Policy:
    """`[S]` the deterministic policy with the largest wᵀf, w `[m]`."""
    return policy_iteration(world, np.concatenate([[0.0], weights, np.zeros(len(weights))]))


def imitate(
    world: TabularCMDP, expert: Floats, names: tuple[str, ...], steps: int
) -> Iterator[tuple[list[Mixture[Policy]], float]]:
    """Play `steps` best responses to what the first rule's mixture lacks of f(expert) `[m]`.

    Yields:
        After each step the mixture of every rule, and the distance below which no mixture can come.
    """
    rules = [RULES[name] for name in names]
    both = constraints(np.concatenate([expert, -expert]), np.ones(2 * len(expert)))
    states = [rule.init(both) for rule in rules]
    missing, none_nearer = expert, 0.0
    for _ in range(steps):
        policy = best_response(world, missing)
        measurement = measure(world, policy)
        if (length := float(np.linalg.norm(missing))) > 0.0:
            none_nearer = max(none_nearer, float(missing @ (expert - features(world, measurement))) / length)
        states = [rule.step(state, policy, measurement) for rule, state in zip(rules, states, strict=True)]
        mixtures = [rule.mixture(state) for rule, state in zip(rules, states, strict=True)]
        missing = expert - features(world, mixtures[0].measurement)
        yield mixtures, none_nearer


def least_distance(world: TabularCMDP, expert: Floats) -> float:
    """The answer by another road: least squares over all occupancies d(s, a) ≥ 0, no game and no mixture."""
    S, A = world.reward.shape
    flow = np.repeat(np.eye(S), A, axis=1) - world.discount * world.transition.reshape(S * A, S).T
    inflow = (1 - world.discount) * world.start
    features_of = world.cost.reshape(S * A, -1)[:, : len(expert)].T
    # What flows into a state must flow out: rows so heavy that the distance is right to about 1e-9.
    occupancy, _ = nnls(np.vstack([1e5 * flow, features_of]), np.concatenate([1e5 * inflow, expert]))
    return float(np.linalg.norm(features_of @ occupancy - expert))


def experts(world: TabularCMDP) -> dict[str, Floats]:
    """Their f `[m]`: one moves at random, by odds of its own; the other has three goals, and its moves never slip."""
    rng = np.random.default_rng(0)
    odds = rng.dirichlet(np.ones(4), size=world.num_states)
    sure = grid(slip=0.0)
    goals = rng.normal(size=(3, world.num_costs // 2))
    pursuits = [features(sure, measure(sure, best_response(sure, goal))) for goal in goals]
    return {
        "an expert who wavers": features(world, measure(world, odds)),
        "an expert who never slips": np.mean(pursuits, axis=0),
    }


def main() -> None:
    """Imitate both experts; print how near each rule has come, with how many policies."""
    world = grid(slip=0.3)
    for title, expert in experts(world).items():
        print(f"\n{title}: the nearest mixture is at {least_distance(world, expert):.5f}\n")
        print("  steps" + "".join(f"{name:>12} kept" for names in PLAYS for name in names) + "   none nearer than")
        plays = [imitate(world, expert, names, SHOWN[-1]) for names in PLAYS]
        for step, played in enumerate(zip(*plays, strict=True), start=1):
            if step in SHOWN:
                mixtures = [mixture for mixtures, _ in played for mixture in mixtures]
                distances = [np.linalg.norm(features(world, mixture.measurement) - expert) for mixture in mixtures]
                cells = [f"{d:12.5f} {len(mix.members):4}" for d, mix in zip(distances, mixtures, strict=True)]
                print(f"{step:7}" + "".join(cells) + f"{max(bound for _, bound in played):19.5f}")


if __name__ == "__main__":
    main()
