"""Estimates of several days beside those of COBS (Voloshin et al., 2019), on its toy graph, from the same trajectories.

    git clone https://github.com/clvoloshin/COBS /tmp/cobs
    python benchmarks/public_cobs.py /tmp/cobs --seeds 1 2 3 4 5 --trajectories 256 1024 --horizon 4

The ground: a chain of T steps with two states each; the first action leads to the better one (+1, the other −1) with
probability 0.75, the second with 0.25; the last step pays by the state it is taken in. The log takes the first action
with probability 0.8, the policy with 0.2, γ = 0.98. So its value is −0.3 Σ γᵗ exactly, whatever the state.

COBS' methods run as its example sets them up (tabular); AM is a fitted method alone, DR, WDR and SDR are its doubly
robust forms of each. MAGIC does not run with today's NumPy. Ours get the rewards γᵗ r, so that the total of T days is
the value. Relative MSE: mean of (value − truth)² / truth². *Holds*: 95% intervals, which COBS has none of. Its pages
have no table of this graph to be published beside it; the paper's figures are of other settings.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import outlay
from outlay.core.errors import OutlayError
from own_looks import count_looks_in
from peers_environment import ask, peer_python
from results import head, keep

PACKAGES = ("torch==2.13.0", "pandas==3.1.1", "scikit-learn==1.7.2", "tqdm==4.70.1", "quadprog==0.1.13")
DISCOUNT, ASKED = 0.98, 0.2

CAMPAIGN = """[campaign]
name = "graph"
unit = "steps"
discount = 0.98
horizon_days = {horizon}
report_days = [{horizon}]

[log]
source = "log.parquet"
user = "user"
time = "day"
action = "action"
actions = [0.0, 1.0]
reward = "reward"
propensity = "p"
terminal = "last"

[log.features]
categorical = ["state"]

[[budget]]
name = "number"
cost = "action"
at_most = 1.0
per = "decision"
money = true
"""


def write(folder: Path, log: dict[str, Any]) -> Path:
    """Log, policy and campaign file of `[n, T]` trajectories; the latter's path."""
    users, days = log["action"].shape
    rows = {"user": np.repeat(np.arange(users), days), "day": np.tile(np.arange(days), users)}
    columns = {
        "state": log["state"].ravel().astype(int),
        "action": log["action"].ravel().astype(float),
        "reward": (log["reward"] * DISCOUNT ** np.arange(days)).ravel(),
        "p": log["chance"].ravel(),
        "last": rows["day"] == days - 1,
    }
    pq.write_table(pa.table({**rows, **columns}), folder / "log.parquet")
    chances = {"0": np.full(users * days, ASKED), "1": np.full(users * days, 1 - ASKED)}
    pq.write_table(pa.table({**rows, **chances}), folder / "policy.parquet")
    path = folder / "campaign.toml"
    path.write_text(CAMPAIGN.format(horizon=days))
    return path


def ours(path: Path, horizon: int) -> dict[str, Any]:
    """Each estimator's value, interval and whether it is recommended, under `outlay NAME`."""
    outlay.prepare(path, path.parent / "data")
    result = outlay.evaluate(path.parent / "data", policy=path.parent / "policy.parquet")
    return {
        f"outlay {e.estimator}": [e.value, e.low, e.high, e.recommended]
        for e in result.estimates
        if e.policy == result.subject and e.target == f"reward@{horizon}"
    }


def main() -> None:
    """Print a line per log and a table per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a copy of github.com/clvoloshin/COBS")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--trajectories", nargs="+", type=int, default=[512])
    parser.add_argument("--horizon", nargs="+", type=int, default=[4, 16])
    asked = parser.parse_args()
    python, runs = peer_python(PACKAGES), []
    for horizon in asked.horizon:
        truth = -0.3 * float(np.sum(DISCOUNT ** np.arange(horizon)))
        for size in asked.trajectories:
            for seed in asked.seeds:
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    count_looks_in(folder)
                    given = (asked.checkout, seed, size, horizon, folder / "log.npz")
                    said = ask(python, "cobs_graph.py", *given, threads=1)
                    with np.load(folder / "log.npz") as file:
                        path = write(folder, dict(file))
                    began = time.perf_counter()
                    try:
                        told, refused = ours(path, horizon), None
                    except OutlayError as error:
                        told, refused = {}, str(error)
                    run = {"horizon": horizon, "size": size, "seed": seed, "truth": truth, "ours": told}
                    run |= {"seconds": time.perf_counter() - began, "refused": refused, "cobs": said}
                    runs.append(run)
                    print(json.dumps(run), flush=True)
    keep("public_cobs", runs=runs)
    for horizon in asked.horizon:
        for size in asked.trajectories:
            show([r for r in runs if (r["horizon"], r["size"]) == (horizon, size)])


def show(runs: list[dict[str, Any]]) -> None:
    """The table of one size: methods by relative MSE."""
    truth, lines = runs[0]["truth"], []
    for name in dict.fromkeys(name for r in runs for name in (*r["ours"], *r["cobs"]["told"])):
        found = [r["ours"].get(name) or [r["cobs"]["told"].get(name)] for r in runs]
        values = np.array([f[0] for f in found if f[0] is not None])
        ends = [f[1:3] for f in found if len(f) > 1 and f[1] is not None]
        holds = f"{sum(low <= truth <= high for low, high in ends)} of {len(ends)}" if ends else "–"
        doubted = f"{sum(not f[3] for f in found if len(f) > 3)} of {len(runs)}" if name in runs[0]["ours"] else "–"
        errors = (values / truth - 1) ** 2
        middle, worst = (errors.mean(), errors.max()) if len(errors) else (np.inf, np.inf)
        cells = f"{middle:.2g} | {worst:.2g}" if len(errors) else "withheld | withheld"
        lines.append((middle, f"| {name} | {cells} | {holds} | {doubted} |"))
    seconds = [np.median([r["seconds"] for r in runs]), np.median([r["cobs"]["seconds"] for r in runs])]
    print(f"\n{runs[0]['horizon']} steps, {runs[0]['size']} trajectories, {len(runs)} logs; truth {truth:.3f}; seconds")
    print(f"a log: outlay {seconds[0]:.1f}, COBS {seconds[1]:.1f}. Failed: {runs[0]['cobs']['failed'] or 'none'}\n")
    print(head("estimator", "relative MSE", "worst", "holds", "not recommended"))
    print("\n".join(line for _, line in sorted(lines)))


if __name__ == "__main__":
    main()
