"""How long a step of a rule and a whole problem take, and whether the geometry drifts in 100,000 steps.

The vectors are normal, each coordinate with a unit of its own between 10⁻⁴·⁵ and 10⁴·⁵; a limit lies in the middle of
its costs. For the clock each has more reward than the one before it, so that no rule can pass it over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outlay
from outlay.learning.mixing import aim_greedy, aim_mean, lp, rule
from outlay.ops.tabular import constrained_optimum
from random_games_instances import RandomGame, Spec, draw

Floats = NDArray[np.float64]
Record = dict[str, Any]

WARM, STEPS = 100, 5_000  # steps before the clock starts, and timed steps
SEEN = 1_500  # vectors that the LP rule holds before
LP_STEPS = 300
REPEATS = 5  # of a problem; the median counts
TOLERANCE = 1e-6


def steps(drift_steps: int) -> list[Record]:
    """Microseconds a step of the rules, and the drift of AIM-mean."""
    rows = []
    for m in (1, 10):
        vectors, units = _improving(m, WARM + STEPS)
        for name, mixing in (("aim-mean", aim_mean), ("aim-greedy", aim_greedy)):
            rows.append({"rule": name, "m": m, **_step_seconds(mixing, vectors, units, WARM)})
    vectors, units = _improving(10, SEEN + LP_STEPS)
    rows.append({"rule": "lp", "m": 10, **_step_seconds(lp, vectors, units, SEEN)})
    rows.append({"rule": "drift", "m": 10, "steps": drift_steps, "worst": drift(drift_steps)})
    return rows


def _vectors(m: int, count: int, seed: int) -> tuple[Floats, Floats]:
    """`[count, 1+m]` measurements for limits of 0, and their units `[1+m]`."""
    units = 10.0 ** np.linspace(-4.5, 4.5, 1 + m)
    return np.random.default_rng(seed).standard_normal((count, 1 + m)) * units, units


def _improving(m: int, count: int) -> tuple[Floats, Floats]:
    vectors, units = _vectors(m, count, seed=m)
    vectors[:, 0] += 10 * units[0] * np.arange(count)
    return vectors, units


def _step_seconds(mixing: rule.Rule, vectors: Floats, units: Floats, warm: int) -> Record:
    state = mixing.init(rule.constraints(np.zeros(len(units) - 1), units[1:]))
    seconds = []
    for i, x in enumerate(vectors):
        began = time.perf_counter()
        state = mixing.step(state, i, x)
        seconds.append(time.perf_counter() - began)
    timed = np.array(seconds[warm:])
    return {"median": float(np.median(timed)), "p99": float(np.quantile(timed, 0.99))}


def drift(count: int) -> float:
    """Largest error of AIM-mean's Xα against the true mean, m = 10, in units of each coordinate, at 100 looks."""
    vectors, units = _vectors(10, count, seed=0)
    state = aim_mean.init(rule.constraints(np.zeros(10), units[1:]))
    total = np.zeros(11, dtype=np.longdouble)
    worst = 0.0
    for i, x in enumerate(vectors):
        state = aim_mean.step(state, i, x)
        total += x
        if (i + 1) % max(1, count // 100) == 0:
            error = aim_mean.mixture(state).measurement - total / (i + 1)
            worst = max(worst, float(np.abs(error / units).max()))
    return worst


def problems(all_specs: list[Spec]) -> list[Record]:
    """Milliseconds of column generation to a gap of 1e-6, and of the occupancy program, for every game."""
    rows = []
    for spec in all_specs:
        game = draw(spec)
        own, program = _solve_seconds(game)
        rows.append({**spec._asdict(), "column_generation": own, "occupancy_program": program})
    return rows


def _solve_seconds(game: RandomGame) -> tuple[float, float]:
    limits = game.constraints.limits
    return (
        _median_seconds(lambda: outlay.solve(game.cmdp, limits, tolerance=TOLERANCE)),
        _median_seconds(lambda: constrained_optimum(game.cmdp, limits)),
    )


def _median_seconds(call: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))
