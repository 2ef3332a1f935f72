"""SCOPE-RL's estimators of a fixed policy: totals of k days by path weights, discounted values by state weights.

Run by benchmarks/evaluation_peers.py with the Python of an environment that has d3rlpy and SCOPE-RL:

    python benchmarks/peers/scope_rl_estimators.py log.npz --days 3 7 --discount 0.8 --steps 5000 --seed 0

log.npz is that of d3rlpy_fqe.py, with propensity [N] besides, and as many rows for every user. Totals are undiscounted
and a path is cut after k days; the doubly robust ones get Q from d3rlpy's DiscreteFQE on the cut paths, whose last row
ends the story, as SCOPE-RL's own preparation has it; the fit knows no day, and outcomes are scaled for it so that its
loss stays square. State weights are learned by its BestDICE. Networks and learning rates are the libraries' defaults.
Prints one JSON line: a list with an entry for each estimator and target.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

import d3rlpy
import numpy as np
from d3rlpy_fqe import fit
from numpy.typing import NDArray
from scope_rl.ope import discrete  # type: ignore[import-not-found,unused-ignore]
from scope_rl.ope import weight_value_learning as learners  # type: ignore[import-not-found,unused-ignore]
from scope_rl.ope.weight_value_learning import function  # type: ignore[import-not-found,unused-ignore]

RESAMPLES = 1000  # of the bootstrap by user, which is its default interval; its default number is 10,000

Log = Mapping[str, NDArray[Any]]


def told(
    estimator: Any, name: str, target: str, inputs: Mapping[str, Any], unit: float, began: float
) -> dict[str, Any]:
    """Value, 95% interval and the seconds since `began`, the interval's own not counted."""
    value = float(estimator.estimate_policy_value(**inputs))
    seconds = time.perf_counter() - began
    _, low, high = estimator.estimate_interval(**inputs, n_bootstrap_samples=RESAMPLES, random_state=0).values()
    return {
        "estimator": f"SCOPE-RL {name}",
        "target": target,
        "value": unit * value,
        "low": unit * float(low),
        "high": unit * float(high),
        "seconds": seconds,
    }


def cut(log: Log, days: int) -> dict[str, NDArray[Any]]:
    """The first days of every user; the last of them is the end."""
    length = int(np.flatnonzero(log["timeout"])[0]) + 1
    kept = np.arange(len(log["action"])) % length < days
    short = {name: column[kept] for name, column in log.items() if name not in ("policy", "names")}
    short["timeout"] = np.arange(kept.sum()) % days == days - 1
    return {**log, **short}


def inputs_of(log: Log, outcome: int, discount: float) -> dict[str, Any]:
    """What all of its estimators are given."""
    return {
        "step_per_trajectory": int(np.flatnonzero(log["timeout"])[0]) + 1,
        "action": log["action"].astype(np.int64),
        "reward": log["outcome"][:, outcome].astype(np.float64),
        "pscore": log["propensity"].astype(np.float64),
        "evaluation_policy_action_dist": np.eye(int(log["action"].max()) + 1)[log["policy"][log["state"]]],
        "gamma": discount,
    }


def totals(log: Log, outcome: int, days: int, steps: int) -> list[dict[str, Any]]:
    """By path weights."""
    short, target = cut(log, days), f"{log['names'][outcome]}@{days}"
    inputs = inputs_of(short, outcome, 1.0)
    found = []
    for name in ("PerDecisionImportanceSampling", "SelfNormalizedPDIS"):
        found.append(told(getattr(discrete, name)(), name, target, inputs, 1.0, time.perf_counter()))
    began = time.perf_counter()
    unit = days * inputs["reward"].max()  # the loss of the fit is square below errors of 1 alone
    fqe, _ = fit(short, inputs["reward"] / unit, "terminals", 1.0, steps)
    states, actions = np.eye(len(log["policy"]), dtype=np.float32), inputs["evaluation_policy_action_dist"].shape[1]
    q = fqe.predict_value(np.repeat(states, actions, axis=0), np.tile(np.arange(actions), len(states)))
    inputs["state_action_value_prediction"] = unit * q.reshape(len(states), actions)[short["state"]]
    for name in ("DoublyRobust", "SelfNormalizedDR"):
        found.append(told(getattr(discrete, name)(), name, target, inputs, 1.0, began))
    return found


def discounted(log: Log, outcome: int, discount: float, steps: int, seed: int) -> list[dict[str, Any]]:
    """By state weights, times the one-step ratio; the mean of the log's days, weighted by γ^t, stands for all days."""
    inputs, states = inputs_of(log, outcome, discount), np.eye(len(log["policy"]), dtype=np.float32)
    began = time.perf_counter()
    learner = learners.DiscreteDiceStateWightValueLearning(
        v_function=function.VFunction(state_dim=len(states)),
        w_function=function.StateWeightFunction(state_dim=len(states), enable_gradient_reversal=True),
        gamma=discount,
        device="cpu",
    )
    seen = states[log["state"]]
    learner.fit(state=seen, **inputs, n_steps=steps, n_steps_per_epoch=steps, random_state=seed)
    inputs |= {"state_marginal_importance_weight": learner.predict_weight(seen), "n_step_pdis": 0}
    unit = (1 - discount) / (1 - discount ** inputs["step_per_trajectory"])
    return [
        told(
            discrete.StateMarginalSNIS(), "StateMarginalSNIS, BestDICE", str(log["names"][outcome]), inputs, unit, began
        )
    ]


def main() -> None:
    """Estimate and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("log")
    options.add_argument("--days", type=int, nargs="+", required=True)
    options.add_argument("--discount", type=float, required=True)
    options.add_argument("--steps", type=int, default=5000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    d3rlpy.seed(given.seed)
    log = dict(np.load(given.log))
    found: list[dict[str, Any]] = []
    for outcome in range(log["outcome"].shape[1]):
        found += discounted(log, outcome, given.discount, given.steps, given.seed)
        for days in given.days:
            found += totals(log, outcome, days, given.steps)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
