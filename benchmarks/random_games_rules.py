"""Every rule under the paper's schedule, beside column generation, bisection and the occupancy program.

The rules do not change the play: λ sees the responses alone. So each game is played once with each player of λ, and
every rule is given the same candidates, the response of every 10th of 1,480 rounds, as `outlay.solve(every=10)` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import outlay
from outlay.learning import exact
from outlay.learning.exact import SolveHistory, SolveResult
from outlay.learning.mixing import RULES, rule
from random_games_instances import RandomGame, Spec, draw, lost, spend

Floats = NDArray[np.float64]
Record = dict[str, Any]

EVERY = 10
PLAYERS: dict[str, tuple[Literal["ogd", "eg"], bool]] = {
    "OGD, raw": ("ogd", False),
    "OGD, scaled": ("ogd", True),
    "EG, scaled": ("eg", True),
}
COURSE_PLAYER = "OGD, scaled"
EVERY_ROUND = "uniform, every round"
PLAY_GAPS = (1e-2, 1e-3)
COLUMN_GAPS = (1e-6, 1e-9)
COURSE_OF = (2, 0.95)  # limits and discount of the games in the figure
COURSE_STEPS = 18  # points of a line of it


def study(spec: Spec) -> Record:
    """One game, all methods: where each ends, how soon it proves how much, and how it gets there."""
    game = draw(spec)
    ends, proofs, course = [], [], []
    for player in PLAYERS:
        history = play(game, player).history
        # A play that has settled repeats itself after a few rounds, and every 10th of those may be always the same.
        all_rounds = {"player": player, "rule": EVERY_ROUND, "members": len(history.response)}
        ends.append({**all_rounds, **_end(game, history.mixture[-1])})
        for name in RULES:
            mixtures, members = _mixtures(game, name, history.response[EVERY - 1 :: EVERY])
            ends.append({"player": player, "rule": name, "members": members, **_end(game, mixtures[-1])})
            proofs.append({"player": player, "rule": name, **_proof(game, history, mixtures)})
            if player == COURSE_PLAYER and spec[:2] == COURSE_OF:
                course += _course(game, name, history.best_responses[EVERY - 1 :: EVERY], mixtures)
    solved = outlay.solve(game.cmdp, game.constraints.limits)
    if spec[:2] == COURSE_OF:
        course += _course(game, "column generation", solved.history.best_responses, solved.history.mixture)
    solvers: dict[str, SolveResult] = {"column generation": solved}
    if spec.num_limits == 1:
        solvers["bisection"] = outlay.solve(game.cmdp, game.constraints.limits, method="bisection")
    solvers["exact"] = outlay.solve(game.cmdp, game.constraints.limits, method="exact")
    for name, result in solvers.items():
        end = _end(game, result.mixture.measurement)
        ends.append({"player": "", "rule": name, "members": len(result.mixture.members), **end})
    return {
        **spec._asdict(),
        "ends": ends,
        "proofs": proofs,
        "course": course,
        "responses": _responses(solved),
        "responses_unsmoothed": _unsmoothed(game),
        "gap": solved.gap,
    }


def play(game: RandomGame, player: str) -> SolveResult:
    """1,480 rounds of λ against best responses, every one in the history."""
    multipliers, scaled = PLAYERS[player]
    return outlay.solve(
        game.cmdp, game.constraints.limits, method="aim-mean", multipliers=multipliers, scaled_multipliers=scaled
    )


def _mixtures(game: RandomGame, name: str, candidates: Floats) -> tuple[Floats, int]:
    """`[n, 1+m]` the rule's mixture after each of `candidates` `[n, 1+m]`, and the members of the last one."""
    mixing = RULES[name]
    state = mixing.init(game.constraints)
    found = np.empty_like(candidates)
    for i, x in enumerate(candidates):
        state = mixing.step(state, i, x)
        found[i] = mixing.mixture(state).measurement
    return found, len(mixing.mixture(state).members)


def _end(game: RandomGame, x: Floats) -> Record:
    violation = rule.violation(game.constraints, x)
    feasible = rule.feasible(game.constraints, x)
    return {"feasible": feasible, "violation": violation, "spend": spend(game, x), "lost": lost(game, x)}


def _proof(game: RandomGame, history: SolveHistory, mixtures: Floats) -> Record:
    """The first round after which least upper bound − reward of a mixture that keeps the limits is small; or None."""
    feasible = np.array([rule.feasible(game.constraints, x) for x in mixtures])
    gaps = np.where(feasible, history.upper[EVERY - 1 :: EVERY] - mixtures[:, 0], np.inf)
    rounds = {}
    for most in PLAY_GAPS:
        proven = np.flatnonzero(gaps <= most)
        rounds[f"{most:g}"] = int(EVERY * (1 + proven[0])) if len(proven) else None
    return {"rounds": rounds}


def _course(game: RandomGame, name: str, responses: NDArray[np.intp], mixtures: Floats) -> list[Record]:
    """Uplift lost and violation after so many best responses, at points that are even on a logarithmic axis."""
    at = np.unique(np.geomspace(1, len(mixtures), COURSE_STEPS).round().astype(int)) - 1
    if name == "column generation":
        at = np.arange(len(mixtures))
    return [
        {
            "rule": name,
            "responses": int(responses[i]),
            "lost": lost(game, mixtures[i]),
            "violation": rule.violation(game.constraints, mixtures[i]),
        }
        for i in at
    ]


def _responses(solved: SolveResult) -> dict[str, int]:
    """Best responses until the certificate's gap is small."""
    gaps = solved.history.upper - solved.history.lower
    asked = solved.history.best_responses
    return {f"{most:g}": int(asked[np.flatnonzero(gaps <= most)[0]]) for most in COLUMN_GAPS}


def _unsmoothed(game: RandomGame) -> dict[str, int]:
    with _smoothing(0.0):
        return _responses(outlay.solve(game.cmdp, game.constraints.limits))


@contextmanager
def _smoothing(share: float) -> Iterator[None]:
    usual = exact.SMOOTHING
    exact.SMOOTHING = share
    try:
        yield
    finally:
        exact.SMOOTHING = usual
