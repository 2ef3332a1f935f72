"""From a Parquet log to a bundle and its certificate, as a user runs it: wall time, memory, and how good the result is.

    python benchmarks/whole_job.py                 # 600,000 users × 7 days: as it comes, by networks, as in the paper

Every command runs in a process of its own; memory is the peak resident set of that process (pages of the memory-mapped
columns included). The simulated campaign knows its truth, so the served mixture is judged exactly:

    optimum           the best policy that spends what the mixture spends (occupancy linear program)
    captured share    (mixture − best constant mixture) / (optimum − best constant mixture), all at the same spend

Results: Markdown on stdout, benchmarks/out/whole_job.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from own_looks import count_looks_in
from results import OUT, head, keep

PROGRAM = Path(sys.executable).with_name("outlay")
WAYS = {
    "default": (),
    "networks": ("--oracle", "bcq"),
    "paper": ("--preset", "paper", "--method", "aim-greedy", "--oracle", "bcq"),
}


def timed(*arguments: str | Path) -> dict[str, float]:
    """Run a command of outlay; seconds and peak GB.

    On Linux a child's peak starts at what its parent held, so this process imports nothing large before.
    """
    began = time.perf_counter()
    process = subprocess.Popen([PROGRAM, *arguments], stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"outlay {' '.join(map(str, arguments))} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    return {"seconds": time.perf_counter() - began, "peak_gb": usage.ru_maxrss * unit / 1e9}


def quality(campaign: Path, run: Path) -> dict[str, Any]:
    """True `(1−γ)·J` of the mixture, of the optimum and the best constants at its spend, and of the old policy."""
    import numpy as np
    import pyarrow.parquet as pq

    from outlay.bundles.read import load_bundle
    from outlay.core.campaign import Campaign
    from outlay.core.cmdp import TabularCMDP
    from outlay.ops.mixture_lp import solve_mixture
    from outlay.ops.tabular import constrained_optimum, measure

    truth = np.load(campaign / "truth.npz")
    model = TabularCMDP(
        transition=truth["transition"],
        reward=truth["reward"],
        cost=truth["cost"],
        start=truth["start"],
        discount=float(truth["discount"]),
    )
    bundle = load_bundle(run / "bundle")
    decided = bundle.decide(pq.read_table(campaign / "states.parquet"), members=True)
    index = decided.column("action_index").to_numpy().reshape(model.num_states, len(bundle.members))
    mixture = bundle.weights @ np.array([measure(model, policy) for policy in index.T])
    value, spend = float(mixture[0]), float(mixture[1])

    S, A = model.reward.shape
    constants = np.array([measure(model, np.full(S, a)) for a in range(A)])
    best = solve_mixture(constants, np.array([spend]), np.array([spend])).weights @ constants
    optimum = constrained_optimum(model, [spend])
    old = measure(model, np.full((S, A), 1 / A))
    limit = Campaign.load(campaign / "campaign.toml").budgets[0].limit
    at_limit = constrained_optimum(model, [limit])
    return {
        "members": len(bundle.members),
        "limit": limit,
        "spend": spend,
        "reward": value,
        "optimum_at_its_spend": optimum.value,
        "below_optimum": 1 - value / optimum.value,
        "constants_at_its_spend": float(best[0]),
        "captured_share": (value - best[0]) / (optimum.value - best[0]),
        "optimum_at_the_limit": at_limit.value,
        "below_optimum_at_the_limit": 1 - value / at_limit.value,
        "old_reward": float(old[0]),
        "old_spend": float(old[1]),
    }


def main() -> None:
    """Run the job, judge it, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=600_000)
    parser.add_argument("--seed", default="0")
    given = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    count_looks_in(OUT)
    campaign = OUT / "habit"
    timed("simulate", "habit", "--out", campaign, "--users", str(given.users))
    found = {name: whole(campaign, OUT / f"habit-{name}", given.seed, options) for name, options in WAYS.items()}
    keep("whole_job", rows=7 * given.users, **found)
    for name, options in WAYS.items():
        shown(" ".join(("train", *options)), found[name])


def whole(campaign: Path, run: Path, seed: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Train and evaluate one way, and judge it."""
    train = timed("train", campaign / "campaign.toml", "--out", run, "--overwrite", *options, "--seed", seed)
    return {"train": train, "evaluate": timed("evaluate", run), "quality": quality(campaign, run)}


def shown(command: str, result: dict[str, Any]) -> None:
    """Two tables and a sentence."""
    found = result["quality"]
    print(
        f"\n| step | seconds | peak memory |\n|---|---|---|\n| Parquet → bundle ({command}) "
        f"| {result['train']['seconds']:.0f} | {result['train']['peak_gb']:.2f} GB |"
    )
    print(f"| evaluate | {result['evaluate']['seconds']:.0f} | {result['evaluate']['peak_gb']:.2f} GB |\n")
    print(head("policy, true values", "reward", "cost per decision"))
    spend = found["spend"]
    print(f"| old | {found['old_reward']:.4f} | {found['old_spend']:.4f} |")
    print(f"| best constant mixture at the mixture's spend | {found['constants_at_its_spend']:.4f} | {spend:.4f} |")
    print(f"| mixture ({found['members']} members; limit {found['limit']:g}) | {found['reward']:.4f} | {spend:.4f} |")
    print(f"| optimum at the mixture's spend | {found['optimum_at_its_spend']:.4f} | {spend:.4f} |")
    print(f"| optimum at the limit | {found['optimum_at_the_limit']:.4f} | {found['limit']:.4f} |\n")
    print(f"{found['below_optimum']:.2%} below the optimum at its spend; captured share {found['captured_share']:.2f}.")


if __name__ == "__main__":
    main()
