"""NeoRL's sales promotion, played day by day for public_neorl.py, in the environment of the peers.

    python neorl_sales.py CHECKOUT        # a line of JSON asks, a line of JSON answers

Asked `{"seed": 3, "outcomes": "o.npy"}` it starts over with its 10,000 users and writes what is seen of them. Asked
`{"actions": "a.npy", "outcomes": "o.npy"}` (`[users, 2]` number of coupons, price factor) it plays one day and writes
`[users, 6]`: the four observations of the next morning, gross merchandise value after coupons, and cost of coupons.
CHECKOUT is a copy of github.com/polixir/NeoRL, of which only the environment is used: its user model, initial users and
rules, unchanged.

Its `reset` hands out the initial users without a copy, so that a second game would start at the end of the first; they
are copied here.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def environment(checkout: Path) -> Any:
    """Its environment, without the imports of its data sets and other tasks."""
    package: Any = types.ModuleType("neorl")
    package.__path__ = [str(checkout / "neorl")]
    sys.modules["neorl"] = package
    utils: Any = types.ModuleType("neorl.utils")
    utils.get_json = utils.sample_dataset = utils.LOCAL_JSON_FILE_PATH = utils.DATA_PATH = None
    sys.modules["neorl.utils"] = package.utils = utils
    for name in ("neorl.neorl_envs", "neorl.neorl_envs.SalesPromotion"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(checkout / name.replace(".", "/"))]
    package.core = importlib.import_module("neorl.core")
    return importlib.import_module("neorl.neorl_envs.SalesPromotion.sales_promo.env.sp_env").SalesPromotion_v0()


def main() -> None:
    """Answer until the questions end."""
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):  # it prints every day
        game = environment(Path(sys.argv[1]))
        first = game.inner_env.val_initial_states.copy()
        for line in sys.stdin:
            asked = json.loads(line)
            if "seed" in asked:
                torch.manual_seed(asked["seed"])
                np.random.seed(asked["seed"])  # noqa: NPY002 (its own generator)
                game.inner_env.val_initial_states = first.copy()
                np.save(asked["outcomes"], game.reset().astype(np.float64))
            else:
                action = np.load(asked["actions"])
                cost, value = day(game, action)
                np.save(asked["outcomes"], np.column_stack([game.obs, value, cost]))
            answers.write("{}\n")


def day(game: Any, action: Floats) -> tuple[Floats, Floats]:
    """Play one day: cost and value `[users]`, which its `step` returns summed over all users only."""
    inner = game.inner_env
    played: list[Any] = []
    step = inner.step

    def remembered(given: Floats) -> tuple[Any, ...]:
        played[:] = step(given)
        return *played[:2], np.array(played[2])

    inner.step = remembered
    try:
        game.step(action.copy())
    finally:
        inner.step = step
    total_cost, total_value, acted = played
    orders, fee = np.array(acted).T
    cost = (1 - action[:, 1]) * np.minimum(orders, action[:, 0]) * fee
    value = orders * fee - cost
    assert np.allclose([cost.sum(), value.sum()], [total_cost, total_value])
    return cost, value


if __name__ == "__main__":
    main()
