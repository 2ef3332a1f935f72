"""What measurement noise does to each rule, and what a second split and a margin put right.

The candidates of one play (148 responses) are measured with independent normal errors in every coordinate, as if each
were a network of its own. The error's sd is a share p of the limit (costs) and of the optimum (reward).

    one split           chosen and reported by the same measurements
    two splits          chosen by one draw (select), reported by another (certify)
    margin, choosing    the rule sees costs raised by z_α se_certify + z_β √(se_select² + se_certify²), se = p · limit,
                        α = 0.05, β = 0.1
    margin, throughout  so does λ: the whole game is played for limits lowered by as much

Certified: measured on certify, every cost + z_α ‖weights‖₂ se is within its limit. The truth of a choice is the
true measurement of its weights; it overspends if that is over any limit.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.learning.mixing import RULES, lp, rule
from outlay.ops.mixture_lp import solve_mixture
from random_games_instances import RandomGame, Spec, draw, lost, spend
from random_games_rules import COURSE_PLAYER, EVERY, play

Floats = NDArray[np.float64]
Record = dict[str, Any]

NOISE = (0.005, 0.02, 0.05)
Z_ALPHA = NormalDist().inv_cdf(0.95)
Z_BETA = NormalDist().inv_cdf(0.9)


def study(spec: Spec, draws: int) -> list[Record]:
    """One game: for every noise, draw and rule what was claimed and what is true."""
    game = draw(spec)
    rng = np.random.default_rng([spec.num_limits, round(100 * spec.discount), spec.seed, 1])
    usual = _candidates(game)
    found = []
    for noise in NOISE:
        std_error = noise * np.append(game.optimum, game.constraints.limits)
        margin = (Z_ALPHA + Z_BETA * 2**0.5) * np.append(0.0, std_error[1:])
        lowered = _candidates(
            replace(game, constraints=rule.constraints(game.constraints.limits - margin[1:], game.constraints.scale))
        )
        ways = {"plain": (usual, 0.0 * margin), "choosing": (usual, margin), "throughout": (lowered, margin)}
        for _ in range(draws):
            errors = std_error * rng.standard_normal((2, *usual.shape))
            for name in RULES:
                outcomes = {way: _outcome(game, name, *given, errors, std_error) for way, given in ways.items()}
                found.append({**spec._asdict(), "noise": noise, "rule": name, **outcomes})
    return found


def _candidates(game: RandomGame) -> Floats:
    return play(game, COURSE_PLAYER).history.response[EVERY - 1 :: EVERY]


def _outcome(game: RandomGame, name: str, truth: Floats, margin: Floats, errors: Floats, std_error: Floats) -> Record:
    """Chosen by `truth` `[n, 1+m]` with the first of `errors` `[2, n, 1+m]`, measured again with the second."""
    chosen = weights(game, name, truth + errors[0] + margin)
    true = chosen @ truth
    on_select, on_certify = true + chosen @ errors
    upper = on_certify + Z_ALPHA * float(np.sqrt(chosen @ chosen)) * std_error
    return {
        "optimism_one_split": float(on_select[0] / true[0] - 1),
        "optimism_two_splits": float(on_certify[0] / true[0] - 1),
        "over": not rule.feasible(game.constraints, true),
        "overspend": spend(game, true) - 1,
        "certified": rule.feasible(game.constraints, upper),
        "lost": lost(game, true) if margin.any() else None,
    }


def weights(game: RandomGame, name: str, measured: Floats) -> Floats:
    """`[n]` the rule's weights of the candidates, measured as `[n, 1+m]`."""
    mixing = RULES[name]
    if mixing is lp:  # what its steps lead to, at once
        return solve_mixture(measured, game.constraints.limits, game.constraints.scale).weights
    state = mixing.init(game.constraints)
    for i, x in enumerate(measured):
        state = mixing.step(state, i, x)
    mixture = mixing.mixture(state)
    chosen = np.zeros(len(measured))
    chosen[list(mixture.members)] = mixture.weights
    return chosen
