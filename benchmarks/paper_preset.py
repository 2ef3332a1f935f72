"""The paper's method at the paper's own size, against the exact optimum: does every run keep its budget?

    python benchmarks/paper_preset.py                                   # four logs × five training seeds (half an hour)
    python benchmarks/paper_preset.py --users 60000 --logs 0 --seeds 2 --methods aim-greedy aim-mean bisection

*habit* with 600,000 users, 4.2 million rows, limit 2.2: `outlay train --preset paper --oracle bcq` as it is. What is
served is scored in every state and valued in the model that the log was drawn from:

    cost             true spend per decision; over: what it is above the limit
    below            1 − value / optimum at its own true spend
    captured share   (value − best constant mixture) / (optimum − best constant mixture), all at its own true spend

Results: Markdown on stdout, every run and then the worst, and benchmarks/out/paper_preset.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import outlay
from myopic import constant_points
from outlay.bundles.read import load_bundle
from outlay.comparing.true_values import Truth
from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.ops.mixture_lp import value_at
from outlay.ops.tabular import constrained_optimum, measure

OUT = Path(__file__).parent / "out" / "paper_preset.json"
LOGS, LIMIT = (0, 5, 41, 7), 2.2


@dataclass(frozen=True)
class Run:
    """One training: true `cost`, `value`, and what follows from them; `networks` that it serves."""

    method: str
    log: int
    seed: int
    cost: float
    value: float
    below: float
    share: float
    networks: int
    seconds: float


def trained(data: Transitions, truth: Truth, method: str, log: int, seed: int, folder: Path) -> Run:
    """Train once, and value what is served."""
    began = time.perf_counter()
    run = outlay.train(data.folder, folder, method=method, oracle="bcq", seed=seed)
    seconds = time.perf_counter() - began
    bundle = load_bundle(run.bundle)
    members = [
        measure(truth.model, bundle.member_actions(i, truth.codes, truth.numbers)) for i in range(len(bundle.members))
    ]
    value, cost = (bundle.weights @ np.array(members)).tolist()
    best = constrained_optimum(truth.model, [cost]).value
    constant = value_at(constant_points(truth.model), cost)
    return Run(
        method, log, seed, cost, value, 1 - value / best, (value - constant) / (best - constant), len(members), seconds
    )


def table(runs: list[Run]) -> str:
    """Every run, in Markdown; then the median and the worst of each method."""
    lines = [
        "| method | log | seed | cost (limit 2.2) | over | below optimum | captured share | networks | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in runs:
        lines.append(
            f"| {r.method} | {r.log} | {r.seed} | {r.cost:.3f} | {r.cost / LIMIT - 1:+.1%} | {r.below:.2%} "
            f"| {r.share:.2f} | {r.networks} | {r.seconds:.0f} |"
        )
    for method in dict.fromkeys(r.method for r in runs):
        mine = [r for r in runs if r.method == method]
        costs, below, share = (np.array([getattr(r, name) for r in mine]) for name in ("cost", "below", "share"))
        for name, figures in {
            "median": (np.median(costs), np.median(below), np.median(share)),
            "**worst**": (costs.max(), below.max(), share.min()),
        }.items():
            cost, least, captured = figures
            lines.append(
                f"| **{method}** | {len(mine)} runs | {name} | {cost:.3f} | {cost / LIMIT - 1:+.1%} "
                f"| {least:.2%} | {captured:.2f} | {max(r.networks for r in mine)} | |"
            )
    return "\n".join(lines)


def main() -> None:
    """Train, print a line after each run and the table at the end, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=600_000)
    parser.add_argument("--logs", type=int, nargs="+", default=list(LOGS), help="seeds of the simulated logs")
    parser.add_argument("--seeds", type=int, default=5, help="trainings on each")
    parser.add_argument("--methods", nargs="+", default=["aim-greedy"])
    asked = parser.parse_args()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    runs: list[Run] = []
    for log in asked.logs:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            path = outlay.simulate("habit", folder / "log", users=asked.users, seed=log)
            campaign = Campaign.load(path).with_train(preset="paper")
            data = outlay.prepare(campaign, folder / "data")
            truth = Truth.beside(campaign, data)
            assert truth is not None, "a log that was just simulated has its truth beside it"
            for method in asked.methods:
                for seed in range(asked.seeds):
                    run = trained(data, truth, method, log, seed, folder / "run")
                    runs.append(run)
                    print(f"{method}, log {log}, seed {seed}: cost {run.cost:.3f}, {run.below:.2%} below", flush=True)
                    OUT.write_text(json.dumps([asdict(r) for r in runs], indent=1) + "\n", encoding="utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()
