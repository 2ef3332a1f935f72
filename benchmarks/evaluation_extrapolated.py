"""How far may values be extrapolated? Errors of `fqe` by the share that is, on policies from weak to strong.

    python benchmarks/evaluation_extrapolated.py --worlds shop mild slow --logs 8

The worlds are those of `known_worlds.py`. Policies: the mixture that each log's own run serves, the weakest and the
dearest offer to all, and LightGBM's T-learner of 1 and 3 days at four prices, fitted on a log of their own. Each is
measured on the run's folds, as `outlay evaluate` measures, and played on 60,000 users. Figures are reward and cost,
means over the days that limits are about.

    covered    share of figures whose 95% interval holds what is true
    over       share of those of cost whose upper bound of 95%, one-sided, is below what is true
    error      root of the mean square, and mean, in standard errors
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import outlay
from city_peers import Learners, write_log
from known_worlds import WORLDS, Actions, Floats, People, Policy, World
from outlay.bundles.read import load_bundle
from outlay.choosing.estimates import estimate_policy, extrapolated
from outlay.choosing.evaluated_policy import EvaluatedPolicy, mixture_of
from outlay.choosing.rotation import measured_on
from outlay.choosing.run import Run
from outlay.core.transitions import Transitions
from peers_environment import peer_python
from public_worlds import served
from results import head, keep

PACKAGES = ("scikit-learn==1.7.2", "lightgbm==4.6.0")
PILOT, TRUE_USERS = 9_999, 60_000
OWN = "own mixture"
LABELS = (1, 3)
TIMES = (0.1, 0.5, 1.0, 2.0)  # of the world's middle price
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0)


class Ground:
    """A world's policies, and what they bring."""

    def __init__(self, world: World, users: int, folder: Path) -> None:
        self.world = world
        outlay.prepare(world.write(folder / "log", users=users, seed=PILOT), folder / "data")
        data = Transitions.open(folder / "data")
        self.schema = data.schema
        write_log(data, folder / "log.npz", np.arange(len(data)))
        self.asked = Learners(peer_python(PACKAGES), folder / "log.npz", folder)
        self.models = {days: self.asked.fit(fit="T", days=days) for days in LABELS}
        price = float(np.median(world.prices))
        self.prices = {f"T {days} days, {x:g}": (m, x * price) for days, m in self.models.items() for x in TIMES}
        self.truth = {name: self.true(self._acting(name)) for name in self.names}

    @property
    def names(self) -> list[str]:
        """Names of the policies that are the same on every log."""
        return ["always 1", f"always {len(self.world.offers) - 1}", *self.prices]

    def acts(self, name: str, table: pa.Table) -> Actions:
        """A policy's actions in the rows of a table of features."""
        if name not in self.prices:
            return np.full(len(table), int(name.split()[1]))
        model, price = self.prices[name]
        seen = self.schema.encode(table)
        found: Actions = self.asked.act(model, seen.codes, seen.numbers, [price])[0]
        return found

    def _acting(self, name: str) -> Policy:
        def act(people: People) -> Actions:
            return self.acts(name, pa.table(people.table()))

        return act

    def true(self, policy: Policy) -> list[float]:
        """Reward and cost of the days that limits are about."""
        days: Floats = self.world.daily(policy, TRUE_USERS, span=self.world.counted)
        return [float(x) for x in days.mean(axis=0)]


def in_order(log: pa.Table, data: Transitions) -> pa.Table:
    """The rows of a log as those of its transitions are ordered."""
    log = log.sort_by([("user", "ascending"), ("day", "ascending")])
    first = np.searchsorted(np.asarray(log["user"]), np.asarray(data.user_ids()).astype(np.int64))
    found = log.take(first[data.user] + data.day)
    assert np.array_equal(data.schema.encode(found).codes, data.features(np.arange(len(data)))[0])
    return found


def one_log(at: Ground, users: int, seed: int) -> Iterator[dict[str, Any]]:
    """Every policy's figures on one log."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = at.world.write(folder / "log", users=users, seed=seed)
        outlay.prepare(path, folder / "data")
        outlay.train(folder / "data", folder / "run", seed=seed)
        data, run = Transitions.open(folder / "data"), Run.open(folder / "run")
        log = in_order(pq.read_table(folder / "log" / "log.parquet"), data)
        bundle = load_bundle(run.bundle)
        measure = measured_on(data, bundle, run.fold_weights)
        propensity = measure.propensity()
        own = mixture_of(measure, OWN)
        policies, truth = [replace(own, name=OWN)], at.truth | {OWN: at.true(served(bundle))}
        for name in at.names:
            part = at.acts(name, log)[measure.panel.rows]
            policies.append(EvaluatedPolicy(name, name, (part,), np.ones(1), (0,), name))
        for policy in policies:
            name = policy.name
            told = estimate_policy(measure, policy, propensity, estimators=("fqe", "fqe2"))
            far = extrapolated(told.fitted)
            found = {e.target: e for e in told.rows(data.campaign, 0.95) if e.estimator == "fqe"}
            for target, true in zip(("reward", "cost"), truth[name], strict=True):
                if (e := found.get(target)) is not None:
                    yield {
                        "world": at.world.name,
                        "users": users,
                        "seed": seed,
                        "policy": name,
                        "far": far,
                        "target": target,
                        "true": true,
                        "value": e.value,
                        "low": e.low,
                        "high": e.high,
                        "refused": None if told.vague is None else told.vague.kind.value,
                    }


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each share of what is extrapolated."""
    lines = [head("extrapolated", "figures", "covered", "over", "error", "mean error: reward, cost")]
    told = [r for r in rows if r["value"] is not None and r["high"] is not None and r["high"] > r["low"]]
    for low, high in pairwise(EDGES):
        these = [r for r in told if low <= r["far"] < high]
        if not these:
            continue
        z = np.array([(r["value"] - r["true"]) * 3.92 / (r["high"] - r["low"]) for r in these])
        cost = np.array([r["target"] == "cost" for r in these])
        lines.append(
            f"| {low:.0%} to {high:.0%} | {len(z)} | {np.mean(abs(z) <= 1.96):.1%} | {np.mean(z[cost] < -1.645):.1%} | "
            f"{np.sqrt(np.mean(z**2)):.2f} | {z[~cost].mean():+.2f}, {z[cost].mean():+.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print a line per log and the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--logs", type=int, default=8)
    parser.add_argument("--first", type=int, default=1, help="seed of the first log")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in asked.worlds:
        with tempfile.TemporaryDirectory() as place:
            at = Ground(WORLDS[name], asked.users, Path(place))
            print(json.dumps({"world": name, "true": at.truth}), flush=True)
            for seed in range(asked.first, asked.first + asked.logs):
                rows += one_log(at, asked.users, seed)
                print(f"{name} {seed}\n{table(rows)}", flush=True)
            at.asked.close()
        keep(f"evaluation_extrapolated_{'_'.join(asked.worlds)}", rows=rows)
    print(table(rows))
    for name in asked.worlds:
        print(f"\n{name}\n{table([r for r in rows if r['world'] == name])}")


if __name__ == "__main__":
    main()
