"""Seconds, memory and gap of the allocation of long lists.

    python benchmarks/allocation_speed.py            # ten million users need 1.5 GB of memory
    python benchmarks/allocation_speed.py --small    # a hundredth of the users

Values and costs are uniform on [0, 1]. Each line is measured in a process of its own, with its peak resident memory
(the input counted in): the whole budget path of a million users, the allocation of ten million under one total and of a
million under two, the online control, and HiGHS on a list that it can do, beside the path for the same list.

Results: Markdown on stdout, benchmarks/out/allocation_speed.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budget_control import control_spend
from knapsack_highs import linear_program
from outlay.ops.knapsack import Choices
from outlay.ops.knapsack_prices import budget_path
from outlay.response.allocation import allocate
from results import head, keep


def uniform(users: int, arms: int, limits: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Values `[N, A]` and costs `[N, A, m]`."""
    rng = np.random.default_rng(0)
    return rng.random((users, arms), dtype=np.float32), rng.random((users, arms, limits), dtype=np.float32)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and the seconds it takes."""
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def whole_path(users: int) -> dict[str, float]:
    """All budgets of a million users × 5 arms."""
    value, cost = uniform(users, 5, 1)
    path, seconds = timed(lambda: budget_path(Choices(value, cost)))
    return {"seconds": seconds, "steps": len(path.price)}


def one_total(users: int) -> dict[str, float]:
    """Ten million users × 10 arms under one total: checks, price search, allocation, exact sums."""
    value, cost = uniform(users, 10, 1)
    done, seconds = timed(lambda: allocate(value, cost, [0.2 * users]))
    return {"seconds": seconds, "relative_gap": done.gap / done.bound}


def two_totals(users: int) -> dict[str, float]:
    """A million users × 5 arms under two totals."""
    value, cost = uniform(users, 5, 2)
    done, seconds = timed(lambda: allocate(value, cost, [0.3 * users, 0.35 * users]))
    return {"seconds": seconds, "relative_gap": done.gap / done.bound}


def online(users: int) -> dict[str, float]:
    """A million users × 5 arms, one after another, the price at first a third too low."""
    value, cost = uniform(users, 5, 1)
    cost[:, 0] = 0.0
    choices, total = Choices(value, cost), 0.15 * users
    path = budget_path(choices)
    start = path.price_at(total) / 1.5
    done, seconds = timed(lambda: control_spend(choices, total, start))
    best = path.value_at(total)
    return {"seconds": seconds, "relative_gap": (best - choices.value_of(done.action)) / best}


def reference(users: int) -> dict[str, float]:
    """HiGHS on 20,000 users × 5 arms, and how far the path is from it."""
    value, cost = uniform(users, 5, 1)
    choices, total = Choices(value, cost), 0.2 * users
    program, seconds = timed(lambda: linear_program(choices, np.array([total])))
    path, path_seconds = timed(lambda: budget_path(choices))
    difference = abs(path.value_at(total) - program.value) / program.value
    return {"seconds": seconds, "path_seconds": path_seconds, "relative_gap": difference}


TASKS: dict[str, tuple[str, Callable[[int], dict[str, float]], int, str]] = {
    "path": ("whole budget path, 1 million × 5", whole_path, 1_000_000, "2 s"),
    "one": ("one total, 10 million × 10, float32", one_total, 10_000_000, "15 s, 2 GB, 1e-4"),
    "two": ("two totals, 1 million × 5", two_totals, 1_000_000, "–"),
    "online": ("online control, 1 million × 5", online, 1_000_000, "–"),
    "highs": ("HiGHS, 20,000 × 5; gap: the path's difference", reference, 20_000, "1e-9"),
}


def main() -> None:
    """Run every task in a process of its own, print and write the results."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--small", action="store_true", help="a hundredth of the users (HiGHS: a tenth)")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.task:
        _, function, users, _ = TASKS[given.task]
        result = function(users // (10 if given.task == "highs" else 100) if given.small else users)
        print(json.dumps(result | {"peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}))
        return
    command = [sys.executable, __file__, *(["--small"] if given.small else [])]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in TASKS}
    for _ in range(given.rounds):
        for name, rounds in found.items():
            done = subprocess.run([*command, "--task", name], check=True, stdout=subprocess.PIPE, text=True)
            rounds.append(json.loads(done.stdout))
    keep("allocation_speed", small=given.small, rounds=found)
    print(head("list", "seconds, median (all rounds)", "peak memory", "gap / bound", "wanted"))
    for name, rounds in found.items():
        seconds = [one["seconds"] for one in rounds]
        each = ", ".join(f"{s:.2f}" for s in seconds)
        gap = f"{rounds[0]['relative_gap']:.1e}" if "relative_gap" in rounds[0] else "–"
        peak = max(one["peak_gb"] for one in rounds)
        print(f"| {TASKS[name][0]} | {np.median(seconds):.2f} ({each}) | {peak:.2f} GB | {gap} | {TASKS[name][3]} |")


if __name__ == "__main__":
    main()
