"""The value of a fixed policy by d3rlpy's DiscreteFQE, at its defaults but for the discount.

Run by benchmarks/evaluation_peers.py with the Python of an environment that has d3rlpy:

    python benchmarks/peers/d3rlpy_fqe.py log.npz --outcome 0 --discount 0.8 --steps 5000 --seed 0 --scale 1

log.npz holds state [N] (index of the distinct state, rows of a user together and in order), action [N], outcome [N, T],
timeout [N] (the end of a user's rows: truncated, not terminal) and policy [S] (the action it takes in each state). The
network sees states one-hot. `--scale` multiplies the outcome before the fit and divides the value after it. Prints one
JSON line; `course` is the estimate after every 250 steps.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

import d3rlpy
import numpy as np
from numpy.typing import NDArray

EPOCH = 250  # gradient steps between two looks at the estimate


class FixedPolicy:
    """What DiscreteFQE asks of the algorithm that it evaluates: `impl.predict_best_action` of one-hot states."""

    def __init__(self, policy: NDArray[np.int64]) -> None:
        self.policy = policy
        self.impl = self

    def predict_best_action(self, observation: Any) -> Any:
        """`[B]` actions in the states `[B, S]`."""
        return observation.new_tensor(self.policy)[observation.argmax(dim=1)]


def fit(
    log: Mapping[str, NDArray[Any]], reward: NDArray[np.floating], ends: str, discount: float, steps: int
) -> tuple[Any, list[float]]:
    """DiscreteFQE after so many steps, and (1−γ)·Q over the users' first rows after every 250.

    Args:
        log: as in the head of this file.
        reward: `[N]`.
        ends: what a user's last row is: `timeouts` or `terminals`.
        discount: γ.
        steps: gradient steps.
    """
    states = np.eye(len(log["policy"]), dtype=np.float32)
    last = log["timeout"].astype(np.float32)
    marks = {"terminals": np.zeros_like(last), "timeouts": np.zeros_like(last), ends: last}
    dataset = d3rlpy.dataset.MDPDataset(
        observations=states[log["state"]],
        actions=log["action"].reshape(-1, 1),
        rewards=reward.astype(np.float32).reshape(-1, 1),
        action_space=d3rlpy.constants.ActionSpace.DISCRETE,
        action_size=int(log["action"].max()) + 1,
        **marks,
    )
    fqe = d3rlpy.ope.DiscreteFQE(FixedPolicy(log["policy"]), d3rlpy.ope.FQEConfig(gamma=discount), device="cpu:0")
    first = np.flatnonzero(np.append(True, log["timeout"][:-1]))
    share = np.bincount(log["state"][first], minlength=len(states)) / len(first)
    course: list[float] = []

    def look(algo: Any, _epoch: int, _step: int) -> None:
        course.append(float((1 - discount) * share @ algo.predict_value(states, log["policy"])))

    fqe.fit(
        dataset,
        n_steps=steps,
        n_steps_per_epoch=min(EPOCH, steps),
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
        epoch_callback=look,
    )
    return fqe, course


def main() -> None:
    """Fit and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("log")
    options.add_argument("--outcome", type=int, default=0, help="column of the outcomes")
    options.add_argument("--discount", type=float, required=True)
    options.add_argument("--steps", type=int, default=5000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--scale", type=float, default=1.0)
    given = options.parse_args()
    d3rlpy.seed(given.seed)
    log = dict(np.load(given.log))
    began = time.perf_counter()
    _, course = fit(log, given.scale * log["outcome"][:, given.outcome], "timeouts", given.discount, given.steps)
    seconds = time.perf_counter() - began
    print(
        json.dumps(
            {
                "peer": f"d3rlpy {d3rlpy.__version__}",
                "value": course[-1] / given.scale,
                "course": [value / given.scale for value in course],
                "steps": given.steps,
                "seconds": seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
