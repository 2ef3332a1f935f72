"""Learning by games on rich states: aim-greedy against the best single policy and the constants, one limit.

    python benchmarks/city_games.py                             # 7 and 14 days, three logs each (an hour and more)
    python benchmarks/city_games.py --days 7 --logs 1 --seeds 2

Logs of `outlay simulate city` with 50,000 users, whose states no log shows twice, at the limit that it writes into its
campaign file. Reported is the captured share of what `train --method METHOD --oracle bcq` serves (see
`city_quality.py`): 0 is the best mixture of constant actions, 1 the optimum, both at the spend of the policy itself.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import outlay
from city_quality import act
from outlay.simulators.city import City
from outlay.simulators.city_people import PolicyValues
from outlay.simulators.city_truth import CityTruth, optimum
from results import head

SIMULATED = 20_000  # users of the true values


def rows(days: int, log: int, seeds: int, methods: list[str], users: int) -> Iterator[str]:
    """A row of the table for every training on one log."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        campaign = outlay.simulate("city", folder / "log", users=users, seed=log, days=days)
        data = folder / "data"
        outlay.prepare(campaign, data)
        city = City.read(folder / "log")
        curve, values = optimum(folder / "log"), PolicyValues(CityTruth(city), users=SIMULATED)
        for method in methods:
            for seed in range(seeds):
                began = time.perf_counter()
                run = outlay.train(data, folder / f"{method}-{seed}", method=method, oracle="bcq", seed=seed)
                seconds = time.perf_counter() - began
                bundle = outlay.load_bundle(run.bundle)
                true = [values(act(bundle, member)).value for member in range(len(bundle.members))]
                reward, cost = bundle.weights @ np.array([[v["reward"], v["coupon_cost"]] for v in true])
                share = f"{curve.captured(reward, cost):.2f}"
                yield f"| {days} | {log} | {method} | {seed} | {share} | {reward:.4f} | {cost:.3f} | {seconds:.0f} |"


def main() -> None:
    """Print a row after each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, nargs="+", default=[7, 14])
    parser.add_argument("--logs", type=int, nargs="+", default=[1, 2, 3], help="seeds of the logs")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each log")
    parser.add_argument("--methods", nargs="+", default=["aim-greedy", "single-best"])
    parser.add_argument("--users", type=int, default=50_000)
    asked = parser.parse_args()
    print(head("days", "log", "method", "seed", "captured share", "reward", "cost", "seconds"))
    for days in asked.days:
        for log in asked.logs:
            for row in rows(days, log, asked.seeds, asked.methods, asked.users):
                print(row, flush=True)


if __name__ == "__main__":
    main()
