"""Pure exploration: no reward at all; be everywhere as evenly as the world allows.

    max over mixed policies μ of  H(d) = −Σ d(s) ln d(s)        d: discounted share of time in each of S states

The measurement of a policy is its d itself, S coordinates, and d of a mixture is the mean of its members'. So the
Frank-Wolfe method is a game against the gradient, in which aim-mean takes the steps 1/t and keeps the mixture small:

    w = −ln d(μ)      π = best response to w, for the rarer a state the better      μ ← rule.step(μ, π, [0, d(π)])

Each best response also proves how high the entropy of any mixture ν can be: H(d(ν)) ≤ wᵀd(ν) ≤ wᵀd(π), by Gibbs.

Two worlds. Rooms with a door between any two: an even share of each is possible, so the answer is ln S. A river, where
it is easy to drift and hard to swim up: there the answer is another solver's.

Source: Hazan, Kakade, Singh & Van Soest (2019), Provably Efficient Maximum Entropy Exploration; the river is like
RiverSwim of Strehl & Littman (2008).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize

from outlay import TabularCMDP
from outlay.core.mixture import Mixture
from outlay.learning.mixing import RULES
from outlay.learning.mixing.rule import constraints
from outlay.ops.tabular import measure, policy_iteration

Floats = NDArray[np.float64]
Policy = NDArray[np.intp]

SHOWN = (1, 10, 100, 1000, 3000)
UNSEEN = 1e-9  # the share at which a state not met yet enters the logarithm


def explorable(transition: Floats, discount: float) -> TabularCMDP:
    """A world `[S, A, S]` entered in state 0, where a step in state s "costs" 1 in coordinate s: measured is d."""
    S, A, _ = transition.shape
    return TabularCMDP(
        transition=transition,
        reward=np.zeros((S, A)),
        cost=np.repeat(np.eye(S)[:, None], A, axis=1),
        start=np.eye(S)[0],
        discount=discount,
    )


def rooms(count: int = 8, discount: float = 0.9) -> TabularCMDP:
    """Action a goes to room a."""
    return explorable(np.repeat(np.eye(count)[None], count, axis=0), discount)


def river(length: int = 10, discount: float = 0.95) -> TabularCMDP:
    """Action 0 drifts one place down; action 1 swims up, which works in 35% of the steps and slips back in 5%."""
    here = np.eye(length)
    down, up = here[np.maximum(np.arange(length) - 1, 0)], here[np.minimum(np.arange(length) + 1, length - 1)]
    return explorable(np.stack([down, 0.35 * up + 0.6 * here + 0.05 * down], axis=1), discount)


def entropy(shares: Floats) -> float:
    """H of d `[S]`, in nats."""
    return float(-np.sum(shares * np.log(np.maximum(shares, np.finfo(np.float64).tiny))))


def explore(world: TabularCMDP, names: tuple[str, ...], steps: int) -> Iterator[tuple[list[Mixture[Policy]], float]]:
    """Play `steps` best responses against −ln d of the first rule's mixture.

    Yields:
        After each step the mixture of every rule, and the entropy that no mixture in this world can exceed.
    """
    rules = [RULES[name] for name in names]
    # No share is above 1: limits that nothing can break, for there is no budget.
    states = [rule.init(constraints(np.ones(world.num_states))) for rule in rules]
    shares, none_higher = world.start, np.inf
    for _ in range(steps):
        rarity = -np.log(np.maximum(shares, UNSEEN))
        policy = policy_iteration(world, np.concatenate([[0.0], rarity]))
        measurement = measure(world, policy)
        # exp(−rarity) adds up to no more than 1 + S · UNSEEN, which is all that Gibbs' inequality asks for.
        none_higher = min(none_higher, float(rarity @ measurement[1:]) + world.num_states * UNSEEN)
        states = [rule.step(state, policy, measurement) for rule, state in zip(rules, states, strict=True)]
        mixtures = [rule.mixture(state) for rule, state in zip(rules, states, strict=True)]
        shares = mixtures[0].measurement[1:]
        yield mixtures, none_higher


def most_entropy(world: TabularCMDP) -> float:
    """The answer by another road: a convex program over all occupancies d(s, a), no game and no mixture."""
    S, A = world.reward.shape
    flow = np.repeat(np.eye(S), A, axis=1) - world.discount * world.transition.reshape(S * A, S).T
    inflow = (1 - world.discount) * world.start
    aimless = measure(world, np.full((S, A), 1.0 / A))[1:]

    def negated(d: Floats) -> tuple[float, Floats]:
        shares = np.maximum(d.reshape(S, A).sum(axis=1), 1e-300)
        return -entropy(shares), np.repeat(np.log(shares) + 1.0, A)

    solution = minimize(
        negated,
        np.repeat(aimless / A, A),
        jac=True,
        bounds=[(0.0, None)] * (S * A),
        constraints=LinearConstraint(flow, inflow, inflow),
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return -float(solution.fun)


def main() -> None:
    """Explore both worlds; print the entropy, what bounds it and how many policies are kept; then the swimmers."""
    for title, world in {"rooms": rooms(), "a river": river()}.items():
        S, A = world.reward.shape
        aimless = entropy(measure(world, np.full((S, A), 1.0 / A))[1:])
        optimum = most_entropy(world)
        print(f"\n{title}, {S} states, ln S {np.log(S):.5f}: at random {aimless:.5f}, optimum {optimum:.5f}\n")
        print("  steps    entropy   none higher than   kept by uniform   by aim-mean")
        for step, ((mean, uniform), bound) in enumerate(explore(world, ("aim-mean", "uniform"), SHOWN[-1]), start=1):
            if step in SHOWN:
                kept = f"{len(uniform.members):18}{len(mean.members):14}"
                print(f"{step:7}{entropy(mean.measurement[1:]):11.5f}{bound:19.5f}{kept}")
    print("\nThe mixture on the river, as shares of episodes, each with its policy from the mouth to the source:\n")
    for k in np.argsort(-mean.weights):
        print(f"{mean.weights[k]:9.1%}  {''.join('←→'[action] for action in mean.members[k])}")


if __name__ == "__main__":
    main()
