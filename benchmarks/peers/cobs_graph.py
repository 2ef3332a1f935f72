"""COBS' toy graph and its estimators, for public_cobs.py, in the environment of the peers.

    python cobs_graph.py CHECKOUT SEED TRAJECTORIES HORIZON log.npz

log.npz gets state, action, reward and chance `[n, T]` of the trajectories. The last line is JSON: what each of its
estimators says of the policy that takes the first action with probability 0.2, from a log that took it with 0.8.
CHECKOUT is a copy of github.com/clvoloshin/COBS, unchanged; what it imports for pictures and clouds is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import types
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

DISCOUNT, LOGGED, ASKED = 0.98, 0.8, 0.2
ABSENT = ("skimage", "skimage.transform", "skimage.color", "boto3", "matplotlib", "matplotlib.pyplot")
FITTED = {"model": "tabular", "convergence_epsilon": 1e-3, "max_epochs": 100}
LEFT = ("ON", "KLDivergence", "MAGIC")  # of what its experiments answer
METHODS = {
    "FQE": FITTED,
    "Retrace": {**FITTED, "divergence_epsilon": 1000, "lamb": 0.9},
    "Tree-Backup": {**FITTED, "divergence_epsilon": 1000, "lamb": 0.9},
    "Q^pi(lambda)": {**FITTED, "divergence_epsilon": 1000, "lamb": 0.9},
    "Q-Reg": FITTED,
    "MRDR": FITTED,
    "IH": FITTED,
    "MBased": {**FITTED, "max_traj_length": 20},
    "IS": {"model": "tabular"},
}


class Absent(types.ModuleType):
    """A module that is imported and not used."""

    def __getattr__(self, name: str) -> Any:
        """A stand-in for any name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def main(checkout: str, seed: int, trajectories: int, horizon: int, path: str) -> None:
    """Roll out, ask every method, write the log, print the answers."""
    warnings.filterwarnings("ignore")
    sys.modules |= {name: Absent(name) for name in ABSENT}
    sys.path.insert(0, checkout)
    experiment: Any = import_module("ope.experiment_tools.experiment")
    given = import_module("ope.policies.basics").BasicPolicy
    given.sample = lambda self, states: int(self(states)[0])  # NumPy no longer takes an array of one for a number
    roll, logs = experiment.rollout, list[Any]()

    def rolled(*about: Any, **named: Any) -> Any:
        """The truth is known, so only the log's policy is rolled out in earnest."""
        logs.append(roll(*about, **{**named, "N": trajectories if "pi_e" in named else 2}))
        return logs[-1]

    experiment.rollout = rolled
    experiment.MAGIC = lambda *_: types.SimpleNamespace(evaluate=lambda *_: [np.nan])  # which this NumPy stops
    import_module("ope.algos.dm_regression").int = lambda number: int(np.squeeze(number))  # type: ignore[attr-defined]
    told: dict[str, float] = {}
    failed: dict[str, str] = {}
    began = time.perf_counter()
    for method, settings in METHODS.items():  # one that fails takes none with it; the same seed gives the same log
        cfg = import_module("ope.experiment_tools.config").Config(
            {
                "gamma": DISCOUNT,
                "horizon": horizon,
                "num_traj": trajectories,
                "stochastic_env": True,
                "to_regress_pi_b": {"to_regress": False},
                "modeltype": "tabular",
                "frameskip": 1,
                "frameheight": 1,
            }
        )
        np.random.seed(seed)  # noqa: NPY002 (its own generator)
        env = import_module("ope.envs.graph").Graph(
            number_of_pomdp_states=2, transitions_deterministic=False, max_length=horizon
        )
        logged, asked = (given([0, 1], [p, 1 - p]) for p in (LOGGED, ASKED))
        absorbing = np.array([env.n_dim - 1])
        cfg.add({"env": env, "pi_e": asked, "pi_b": logged, "processor": lambda x: x, "absorbing_state": absorbing})
        cfg.add({"models": {method: settings}})
        try:
            found = experiment.ExperimentRunner().single_run(cfg)
        except Exception as error:  # whatever its methods raise is a finding
            failed[method] = f"{type(error).__name__}: {error}"
            continue
        told |= {k: float(np.squeeze(v[0])) for k, v in found.items() if k.split()[0] not in LEFT}
    seconds = time.perf_counter() - began
    log = logs[-1]
    action = log.actions()
    np.savez(
        path,
        state=log.states().reshape(action.shape),
        action=action,
        reward=log.rewards(),
        chance=np.take_along_axis(log.base_propensity(), action[:, :, None], axis=2)[:, :, 0],
    )
    print(json.dumps({"told": told, "failed": failed, "seconds": seconds}), file=ANSWERS)


if __name__ == "__main__":
    ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):  # it prints much
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
