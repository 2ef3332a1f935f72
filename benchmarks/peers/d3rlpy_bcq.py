"""Steps a second of d3rlpy's DiscreteBCQ: same hidden layers, batch, twin critics and discount as ours.

Run by benchmarks/training_speed.py with the Python of an environment that has d3rlpy:

    python benchmarks/peers/d3rlpy_bcq.py transitions.npz STEPS

transitions.npz holds observation [N, F] float32, action [N], reward [N] and timeout [N] (the end of a user's rows).
Prints one JSON line. The first epoch warms up and is not counted.
"""

from __future__ import annotations

import json
import sys
import time

import d3rlpy
import numpy as np


def main(path: str, steps: int) -> None:
    """Train and print steps a second."""
    log = np.load(path)
    dataset = d3rlpy.dataset.MDPDataset(
        observations=log["observation"],
        actions=log["action"].reshape(-1, 1),
        rewards=log["reward"].reshape(-1, 1),
        terminals=np.zeros(len(log["action"]), np.float32),
        timeouts=log["timeout"].astype(np.float32),
        action_space=d3rlpy.constants.ActionSpace.DISCRETE,
        action_size=int(log["action"].max()) + 1,
    )
    algo = d3rlpy.algos.DiscreteBCQConfig(
        batch_size=512,
        gamma=0.8,
        learning_rate=1e-3,
        n_critics=2,
        share_encoder=True,
        encoder_factory=d3rlpy.models.VectorEncoderFactory(hidden_units=[128, 64]),
    ).create(device="cpu:0")
    warm_up, began, seconds = 50, 0.0, 0.0

    def clock(_algo: object, _epoch: int, step: int) -> None:
        nonlocal began, seconds
        if step == warm_up:
            began = time.perf_counter()
        if step == warm_up + steps:
            seconds = time.perf_counter() - began

    algo.fit(
        dataset,
        n_steps=warm_up + steps,
        n_steps_per_epoch=warm_up + steps,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
        callback=clock,
    )
    print(json.dumps({"peer": f"d3rlpy {d3rlpy.__version__}", "steps_per_second": steps / seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
