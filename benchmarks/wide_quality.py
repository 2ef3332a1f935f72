"""Learning on a log with many fields against the exact optimum: `outlay simulate wide`, 1,000 fields, 100,000 values.

    python benchmarks/wide_quality.py                           # a tenth of the paper's rows, one log
    python benchmarks/wide_quality.py --users 20000 --fields 200 --values 20000 --seeds 3

Ground: the city's people with fast habits, logged propensities, 10 of the fields matter. Every method learns from the
same log; budgets, mixtures and captured shares are those of `city_quality.py`. Rows:

    1-day rule           with true responses: what no method that looks one day ahead can beat
    true fields          `train`, told which ten fields matter
    screened             `train` as it is: it finds the fields by itself (`learning/screening.py`)
    all fields           `train` with [train] screening = false (with --all; ten minutes)
    DeepFM, k-day label  two-stage, from the screened fields
    LightGBM T-learner, k-day label    regressions of the k-day totals of reward and cost, one for each action, priced;
                         from the screened fields, with the prices and budgets of `city_peers.py`

Results: Markdown on stdout, and benchmarks/out/wide_quality.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

import outlay
from city_peers import Learners, peer, write_log
from city_quality import Result, ground, learned, of_mixtures, one_day, table
from outlay.core.transitions import Transitions
from outlay.learning.screening import screen
from outlay.simulators import wide
from outlay.simulators.city_people import PolicyValues
from peers_environment import peer_python

OUT = Path(__file__).parent / "out" / "wide_quality.json"
USERS, FIELDS, VALUES, SIMULATED = 60_000, 1000, 100_000, 4000
ALL_SIMULATED = 2000  # users of the true values of policies that read all fields
LABELS = (1, 3, 7)
PACKAGES = ("scikit-learn==1.7.2", "lightgbm==4.6.0")


def one_log(
    seed: int, users: int, fields: int, values: int, simulated: int, every: bool, rows: list[str]
) -> Iterator[Result]:
    """The methods on one log, of those whose names begin as one of `rows` does."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = outlay.simulate("wide", folder / "log", users=users, seed=seed, fields=fields, values=values)
        outlay.prepare(path, folder / "data")
        data = Transitions.open(folder / "data")
        world = wide.WideWorld.read(folder / "log")
        truth, curve, budgets = ground(world.city, "fast")
        yield one_day("wide", seed, truth, curve, budgets)
        began = time.perf_counter()
        found = screen(data)
        names = [data.schema.categorical[field].name for field in found.kept]
        seconds = time.perf_counter() - began
        matter = world.fields_of(*wide.MATTER)
        noise = set(names) - set(world.fields_of(*wide.SHOWN))
        print(
            f"screening: {seconds:.1f} s, {len(names)} fields kept, of the ten that matter "
            f"{len(set(names) & set(matter))}, of noise {len(noise)}"
        )
        runs = [
            ("true fields", "auto", matter),
            ("screened", "auto", names),
            *((f"DeepFM, {days}-day label", f"DeepFM, {days}-day label", names) for days in LABELS),
            *([("all fields", "auto", world.names)] if every else []),
        ]
        for title, method, read in runs:
            if not title.startswith(tuple(rows)):
                continue
            began = time.perf_counter()
            (folder / title).mkdir()
            narrow = data if len(read) == fields else data.with_fields(read)
            policies = learned(method, narrow, seed, folder / title)
            took = time.perf_counter() - began + (seconds if read is names else 0)
            show = partial(world.show, fields=set(read))
            values_of = PolicyValues(truth, users=ALL_SIMULATED if len(read) == fields else simulated, show=show)
            shares, spends = zip(*of_mixtures(policies, curve, values_of, budgets), strict=True)
            yield Result("wide", seed, title, took, budgets.tolist(), list(shares), list(spends))
        narrow, show = data.with_fields(names), partial(world.show, fields=set(names))
        write_log(narrow, folder / "log.npz")
        trees = Learners(peer_python(PACKAGES), folder / "log.npz", folder)
        try:
            for days in LABELS if "LightGBM".startswith(tuple(rows)) else ():
                values_of = PolicyValues(truth, users=simulated, show=show)
                found_by = peer(f"T-{days}", trees, narrow, curve, values_of, budgets, None, seed)
                title = f"LightGBM T-learner, {days}-day label"
                yield Result("wide", seed, title, found_by[2] + seconds, budgets.tolist(), *found_by[:2])
        finally:
            trees.close()


def main() -> None:
    """Run the logs, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--fields", type=int, default=FIELDS)
    parser.add_argument("--values", type=int, default=VALUES)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--simulated", type=int, default=SIMULATED, help="users of the true values")
    parser.add_argument("--rows", nargs="+", default=[""], help="only those that begin so, beside the 1-day rule")
    parser.add_argument("--all", action="store_true", help="also learn from all fields")
    asked = parser.parse_args()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for seed in range(1, asked.seeds + 1):
        for result in one_log(seed, asked.users, asked.fields, asked.values, asked.simulated, asked.all, asked.rows):
            results.append(result)
            print(f"{seed} {result.method}: {np.round(result.share, 2)} {result.seconds:.0f} s", flush=True)
            OUT.write_text(json.dumps([asdict(r) for r in results], indent=1))
    print(table(results))


if __name__ == "__main__":
    main()
