"""Estimates of a policy's value beside the Open Bandit Pipeline's, on its two grounds.

    python benchmarks/public_obp.py synthetic --seeds 1 2 3 4 5 6 7
    python benchmarks/public_obp.py open-bandit --seeds 0 1 2 3 4 5 6 7 8 9

*synthetic*: its bandit with 10 actions, five numbers of context and 10,000 rows, a world of its own for every seed; the
truth is the mean of the policy's true rewards over 400,000 fresh contexts. *open-bandit*: its sample of the Open
Bandit data, "all", 10,000 rows: what Bernoulli Thompson sampling would have got, from the log of random items (80 items
at three positions, 38 clicks); seed 0 is the log as it is, every other seed a bootstrap of it. The truth is the mean of
the other log, itself 42 clicks in 10,000, with a standard error of 15%.

Both sides get the same rows, propensities and policy. Error: |value − truth| / truth. *Holds*: how often the 95%
interval holds the truth; OBP's are of 100 bootstraps. A figure of ours that is withheld or not recommended is counted
as such. Of its version 0.4.1 τ and λ are 100, and not tuned.

Published, for the relative error on open-bandit (30 bootstraps, tuned by SLOPE): DM .157, IPW .311, SNIPW .312, DR
.292, SNDR .302, Switch-DR .258, DRos .160; on its synthetic bandit with 30 actions (20 worlds): DM .074, IPW .0095,
SNIPW .0067, DR .0062, SNDR .0061, DRos .022.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import outlay
from own_looks import count_looks_in
from peers_environment import ask, peer_python
from results import head, keep

PACKAGES = ("torch==2.13.0", "pandas==3.1.1", "scikit-learn==1.7.2", "obp==0.4.1")
OURS = ("fqe", "fqe2", "dr", "mis", "snpdis", "pdis")
PUBLISHED = {
    "open-bandit": {
        "dm": 0.157,
        "ipw": 0.311,
        "snipw": 0.312,
        "dr": 0.292,
        "sndr": 0.302,
        "switch-dr": 0.258,
        "dr-os": 0.160,
    },
    "synthetic": {"dm": 0.074, "ipw": 0.0095, "snipw": 0.0067, "dr": 0.0062, "sndr": 0.0061, "dr-os": 0.022},
}

CAMPAIGN = """[campaign]
name = "bandit"
unit = "actions"
discount = 0.0
horizon_days = 1
report_days = [1]

[log]
source = "log.parquet"
user = "row"
time = "day"
action = "action"
actions = {actions}
reward = "reward"
propensity = "p"

[log.features]
categorical = {categorical}
numeric = {numeric}

[[budget]]
name = "number"
cost = "action"
at_most = {most}
per = "decision"
money = true
"""


def write(folder: Path, log: dict[str, Any]) -> Path:
    """The log, the policy and the campaign file; the latter's path."""
    actions = log["chances"].shape[1]
    rows = {"row": np.arange(len(log["action"])), "day": np.zeros(len(log["action"]), int)}
    fields = {f"c{i}": column for i, column in enumerate(log["codes"].T)}
    numbers = {f"x{i}": column for i, column in enumerate(log["numbers"].T)}
    outcome = {"action": log["action"].astype(float), "reward": log["reward"].astype(float), "p": log["pscore"]}
    pq.write_table(pa.table({**rows, **fields, **numbers, **outcome}), folder / "log.parquet")
    chances = {str(a): column for a, column in enumerate(log["chances"].T)}
    pq.write_table(pa.table({**rows, **chances}), folder / "policy.parquet")
    path = folder / "campaign.toml"
    text = CAMPAIGN.format(
        actions=[float(a) for a in range(actions)],
        categorical=json.dumps(list(fields)),
        numeric=json.dumps(list(numbers)),
        most=actions,
    )
    path.write_text(text)
    return path


def ours(path: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """Each estimator's value, interval and whether it is recommended; and the seconds of preparing and evaluating."""
    began = time.perf_counter()
    outlay.prepare(path, path.parent / "data")
    middle = time.perf_counter()
    result = outlay.evaluate(path.parent / "data", policy=path.parent / "policy.parquet")
    took = {"prepare_s": middle - began, "evaluate_s": time.perf_counter() - middle}
    told = {
        e.estimator: [e.value, e.low, e.high, e.recommended]
        for e in result.estimates
        if e.policy == result.subject and e.target == "reward@1"
    }
    return told, took


def line(runs: list[dict[str, Any]], side: str, name: str) -> str:
    """An estimator's cells of the table."""
    found = [(r["truth"], r[side][name]) for r in runs if name in r[side] and r[side][name][0] is not None]
    doubted = f"{len(runs) - sum(figures[3] for _, figures in found)} of {len(runs)}" if side == "ours" else "–"
    if not found:
        return f"– | – | – | – | – | {doubted}"
    errors = [abs(figures[0] / truth - 1) for truth, figures in found]
    ends = [(truth, *figures[1:3]) for truth, figures in found if figures[1] is not None]
    holds = sum(low <= truth <= high for truth, low, high in ends)
    width = f"{np.median([(high - low) / 2 / truth for truth, low, high in ends]):.1%}" if ends else "–"
    middle = f"{np.mean(errors):.4f} | {np.median(errors):.4f} | {max(errors):.4f}"
    return f"{middle} | {holds} of {len(ends)} | {width} | {doubted}"


def published(ground: str, side: str, name: str) -> str:
    """The error that OBP's own pages tell of its estimator."""
    return str(PUBLISHED[ground].get(name, "–")) if side == "obp" else "–"


def main() -> None:
    """Print a line per log and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ground", choices=sorted(PUBLISHED))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5, 6, 7])
    asked = parser.parse_args()
    python, runs = peer_python(PACKAGES), []
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            count_looks_in(folder)
            said = ask(python, "obp_estimators.py", asked.ground, seed, folder / "log.npz", threads=1)
            with np.load(folder / "log.npz") as file:
                path = write(folder, dict(file))
            told, took = ours(path)
            runs.append({"seed": seed, "truth": said["truth"], "truth_se": said["truth_se"], "ours": told, **took})
            runs[-1] |= {"obp": said["told"], "obp_s": said["seconds"]}
            print(json.dumps(runs[-1]), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
    keep(f"public_obp_{asked.ground}", runs=runs, peak_gb=peak)
    print(head("estimator", "mean error", "median", "worst", "holds", "half width", "not recommended", "published"))
    for title, side, names in (("outlay", "ours", OURS), ("OBP", "obp", tuple(runs[0]["obp"]))):
        for name in names:
            print(f"| {title} {name} | {line(runs, side, name)} | {published(asked.ground, side, name)} |")
    seconds = [np.median([r[k] for r in runs]) for k in ("prepare_s", "evaluate_s", "obp_s")]
    print(
        f"\nSeconds a log: outlay {seconds[0]:.1f} to prepare and {seconds[1]:.1f} to evaluate, OBP {seconds[2]:.1f}; "
    )


if __name__ == "__main__":
    main()
