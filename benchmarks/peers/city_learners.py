"""Learners of d3rlpy and LightGBM that answer benchmarks/city_peers.py, one request a line.

    python benchmarks/peers/city_learners.py log.npz            # requests on stdin, "ANSWER" on stdout after each

log.npz holds codes [N, F], numbers [N, n] and sizes [F] of the encoded features, action [N], outcome [N, 2] (reward and
cost), timeout [N] (the end of a user's rows), discount, and for each label of k days rows_k [n] and label_k [n, 2].

    {"fit": "cql" | "bcq", "price": λ, "steps": …, "seed": …}            a network for the reward r − λc
    {"fit": "S" | "T", "days": k}                                        trees of the k-day totals of reward and cost
    {"act": features.npz, "model": 0, "prices": [λ, …], "out": actions.npy}   [L, n], by the first that was fitted
    {"tell": features.npz, "model": 0, "out": told.npy}                  [2, n, K] reward and cost that trees expect

Prices are for the trees: a network has its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

BATCH, RATE, LAYERS = 512, 3e-4, [128, 64]
TREES: dict[str, Any] = {
    "n_estimators": 100,
    "learning_rate": 0.05,
    "min_child_samples": 200,
    "n_jobs": 1,
    "verbose": -1,
}

Act = Callable[[Any, Any, list[float]], Any]  # codes, numbers, L prices → actions [L, n]


def network(log: Any, kind: str, price: float, steps: int, seed: int) -> Act:
    """DiscreteCQL or DiscreteBCQ on rewards r − λc."""
    import d3rlpy

    d3rlpy.seed(seed)
    hot = [np.eye(size, dtype=np.float32) for size in log["sizes"]]

    def observed(codes: Any, numbers: Any) -> Any:
        return np.concatenate([*(table[column] for table, column in zip(hot, codes.T, strict=True)), numbers], axis=1)

    dataset = d3rlpy.dataset.MDPDataset(
        observations=observed(log["codes"], log["numbers"]),
        actions=log["action"].reshape(-1, 1),
        rewards=(log["outcome"][:, 0] - price * log["outcome"][:, 1]).reshape(-1, 1).astype(np.float32),
        terminals=np.zeros(len(log["action"]), np.float32),
        timeouts=log["timeout"].astype(np.float32),
        action_space=d3rlpy.constants.ActionSpace.DISCRETE,
        action_size=int(log["action"].max()) + 1,
    )
    config = {"cql": d3rlpy.algos.DiscreteCQLConfig, "bcq": d3rlpy.algos.DiscreteBCQConfig}[kind](
        batch_size=BATCH,
        gamma=float(log["discount"]),
        learning_rate=RATE,
        encoder_factory=d3rlpy.models.VectorEncoderFactory(hidden_units=LAYERS),
    )
    learner = config.create(device="cpu:0")
    learner.fit(
        dataset,
        n_steps=steps,
        n_steps_per_epoch=steps,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    return lambda codes, numbers, _prices: learner.predict(observed(codes, numbers))[None]


def trees(log: Any, kind: str, days: int) -> Callable[[Any, Any], Any]:
    """One model for all actions (S) or one for each (T), of reward and of cost: what they expect, `[2, n, K]`."""
    import lightgbm

    rows, label = log[f"rows_{days}"], log[f"label_{days}"]
    table = np.concatenate([log["codes"], log["numbers"]], axis=1).astype(np.float32)[rows]
    fields, action, count = list(range(len(log["sizes"]))), log["action"][rows], int(log["action"].max()) + 1

    def model(x: Any, y: Any) -> Any:
        return lightgbm.LGBMRegressor(**TREES).fit(x, y, categorical_feature=fields)

    if kind == "S":
        one = [model(np.column_stack([table, action]), y) for y in label.T]
        models = [[one[j]] * count for j in range(2)]
    else:
        models = [[model(table[action == a], y[action == a]) for a in range(count)] for y in label.T]

    def tell(codes: Any, numbers: Any) -> Any:
        seen = np.concatenate([codes, numbers], axis=1).astype(np.float32)
        told = np.empty((2, len(seen), count))
        for a in range(count):
            x = np.column_stack([seen, np.full(len(seen), a, np.float32)]) if kind == "S" else seen
            for j in range(2):
                told[j, :, a] = models[j][a].predict(x)
        return told

    return tell


def priced(tell: Callable[[Any, Any], Any]) -> Act:
    """The largest reward − λ·cost."""

    def act(codes: Any, numbers: Any, prices: list[float]) -> Any:
        reward, cost = tell(codes, numbers)
        return np.stack([(reward - price * cost).argmax(axis=1) for price in prices])

    return act


def main(path: str) -> None:
    """Answer requests until there are no more."""
    with np.load(path) as file:
        log = {name: file[name] for name in file.files}
    models: list[Act] = []
    tells: dict[int, Callable[[Any, Any], Any]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "act" in asked:
            with np.load(asked["act"]) as seen:
                found = models[asked["model"]](seen["codes"], seen["numbers"], asked["prices"])
            np.save(asked["out"], np.asarray(found, np.int64))
        elif "tell" in asked:
            with np.load(asked["tell"]) as seen:
                np.save(asked["out"], tells[asked["model"]](seen["codes"], seen["numbers"]))
        elif asked["fit"] in ("cql", "bcq"):
            models.append(network(log, asked["fit"], asked["price"], asked["steps"], asked["seed"]))
        else:
            tells[len(models)] = trees(log, asked["fit"], asked["days"])
            models.append(priced(tells[len(models)]))
        print("ANSWER", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
