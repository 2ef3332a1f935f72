"""Do estimates put policies in the right order? Spearman's correlation of estimate and truth over 30 policies.

    python benchmarks/evaluation_ranking.py                    # 10 logs of habit and of thirty-day
    python benchmarks/evaluation_ranking.py --logs 2

Published pipelines rank policies on promotion logs hardly better than chance (fitted evaluation 0.02 to 0.10 over the
tasks of NeoRL). Here each log is drawn from a campaign whose truth is known, uniformly logged, and 30 policies of
different quality are ranked by their reward, (1−γ)·J: best responses to 12 prices, the same 6 softened, 6 constants, 6
drawn at random. An estimator that withholds a number puts that policy last.

Results: Markdown on stdout, benchmarks/out/evaluation_ranking.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from evaluation_logs import Policy, World, rows_of
from outlay.core.transitions import CERTIFY
from outlay.jobs.measure import Measure
from outlay.jobs.side_by_side import ESTIMATORS, tell
from outlay.jobs.subject import Subject
from outlay.ops.tabular import measure, totals

OUT = Path(__file__).parent / "out"
CAMPAIGNS = {"habit": 30_000, "thirty-day": 20_000}
PRICES = {"habit": (0.0, 0.8), "thirty-day": (0.0, 2.0)}


@dataclass(frozen=True)
class Ranking:
    """One estimator on one log: its correlation with the truth, for the reward and for the longest total of 7 days."""

    campaign: str
    seed: int
    estimator: str
    target: str
    correlation: float
    given: int


def policies(world: World, seed: int) -> list[Policy]:
    """30 of them."""
    rng = np.random.default_rng([seed, 3])
    states, actions = world.behaviour.shape
    low, high = PRICES[world.name]
    best = [world.best_response(price) for price in np.linspace(low, high, 12)]
    soft = [world.softened(policy) for policy in best[::2]]
    constant = [np.full(states, a) for a in np.linspace(0, actions - 1, 6).astype(np.intp)]
    drawn = [np.asarray(rng.integers(actions, size=states), np.intp) for _ in range(6)]
    return [*best, *soft, *constant, *drawn]


def on_one_log(name: str, seed: int) -> list[Ranking]:
    """All policies by every estimator."""
    world = World.simulated(name)
    at = Measure(world.log(CAMPAIGNS[name], seed), CERTIFY, None)
    assert at.panel.propensity is not None
    state = np.asarray(at.panel.state)
    some = policies(world, seed)
    truth = {"reward": np.array([measure(world.model, policy)[0] for policy in some]),
             "reward@7": np.array([totals(world.model, policy, 7)[6, 0] for policy in some])}  # fmt: skip
    found: dict[tuple[str, str], list[float]] = {}
    for policy in some:
        told = tell(at, Subject("policy", "", (rows_of(policy, state),), np.ones(1), (0,), ""), at.panel.propensity)
        values = {(e.estimator, e.target): e.value for e in told.rows(world.campaign, 0.95)}
        for estimator in ESTIMATORS:
            for target in truth:
                value = values.get((estimator, target))
                found.setdefault((estimator, target), []).append(np.nan if value is None else value)
    rankings = []
    for (estimator, target), numbers in found.items():
        known = np.isfinite(numbers)
        if known.any():
            last = np.where(known, numbers, np.nanmin(numbers) - 1)
            correlation = float(spearmanr(last, truth[target]).statistic)
            rankings.append(Ranking(name, seed, estimator, target, correlation, int(known.sum())))
    return rankings


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=10)
    options = parser.parse_args()
    results: list[Ranking] = []
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for name in CAMPAIGNS:
            for found in pool.map(on_one_log, [name] * options.logs, range(options.logs)):
                results += found
            print(f"{name}: done", file=sys.stderr)
    print(f"{os.cpu_count()} cores, {platform.machine()}; {options.logs} logs of each campaign\n")
    print("| campaign | target | estimator | Spearman, median (least) | numbers given, of 30 |\n|---|---|---|---|---|")
    for key in dict.fromkeys((r.campaign, r.target, r.estimator) for r in results):
        some = [r for r in results if (r.campaign, r.target, r.estimator) == key]
        values = [r.correlation for r in some]
        print(f"| {' | '.join(key)} | {np.median(values):.3f} ({min(values):.3f}) "
              f"| {np.median([r.given for r in some]):.0f} |")  # fmt: skip
    OUT.mkdir(exist_ok=True)
    (OUT / "evaluation_ranking.json").write_text(json.dumps([asdict(r) for r in results], indent=1))


if __name__ == "__main__":
    main()
