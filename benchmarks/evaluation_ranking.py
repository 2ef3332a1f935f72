"""Do estimates put policies in the right order? Spearman's correlation of estimate and truth over 30 policies.

    python benchmarks/evaluation_ranking.py                    # 10 logs of habit and of thirty-day
    python benchmarks/evaluation_ranking.py --logs 2
    python benchmarks/evaluation_ranking.py --city --logs 5    # where no state is met twice, by the 7-day total

Published pipelines rank policies on promotion logs hardly better than chance (fitted evaluation 0.02 to 0.10 over the
tasks of NeoRL). Here each log is drawn from a campaign whose truth is known, uniformly logged, and 30 policies of
different quality are ranked by their reward, (1−γ)·J: best responses to 12 prices, the same 6 softened, 6 constants, 6
drawn at random. An estimator that withholds a number puts that policy last.

On *city* they are linear one-day rules of 12 prices, made on another log, 6 of them softened, 5 constants, and 7 linear
rules drawn at random; their truth is simulated, and all 20,000 users of a log are evaluated.

Results: Markdown on stdout, benchmarks/out/evaluation_ranking.json.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import spearmanr

import outlay
from city_coverage import Policy as Rule
from city_coverage import always, column, linear, softened
from evaluation_logs import Policy, World, rows_of
from outlay.choosing.estimates import estimate_policy
from outlay.choosing.estimators import ESTIMATORS
from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.transitions import CERTIFY, EVERYONE
from outlay.ops.tabular import measure, totals
from outlay.simulators.city import COUPONS, City
from outlay.simulators.city_people import PolicyValues
from outlay.simulators.city_truth import CityTruth
from results import head, keep

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
    truth = {
        "reward": np.array([measure(world.model, policy)[0] for policy in some]),
        "reward@7": np.array([totals(world.model, policy, 7)[6, 0] for policy in some]),
    }
    found: dict[tuple[str, str], list[float]] = {}
    for policy in some:
        told = estimate_policy(
            at, EvaluatedPolicy("policy", "", (rows_of(policy, state),), np.ones(1), (0,), ""), at.panel.propensity
        )
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


def on_city(logs: int) -> Iterator[Ranking]:
    """All policies on some logs of *city*, by the estimators that a quick look takes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = outlay.simulate("city", folder / "pilot", users=20_000, days=7, seed=9_999)
        city, pilot = City.read(path.parent), pq.read_table(path.parent / "log.parquet")
        rules = [linear(pilot, city, price) for price in np.linspace(0, 0.5, 12)]
        some = [*rules, *map(softened, rules[::2]), *map(always, COUPONS), *(at_random(seed) for seed in range(7))]
        values = PolicyValues(CityTruth(city), users=5_000)
        truth = [values(policy, days=(7,)).value["reward@7"] for policy in some]
        for seed in range(logs):
            path = outlay.simulate("city", folder / f"log{seed}", users=20_000, days=7, seed=seed)
            data, log = outlay.prepare(path, folder / f"data{seed}"), pq.read_table(path.parent / "log.parquet")
            at, found = Measure(data, EVERYONE, None), dict[str, list[float]]()
            for policy in some:
                subject = EvaluatedPolicy("policy", "", (np.asarray(policy(log)),), np.ones(1), (0,), "")
                told = estimate_policy(at, subject, at.propensity(), estimators=("fqe", "fqe2"))
                for name, joint in told.joints.items():
                    found.setdefault(name, []).append(float(joint.value[joint.column("reward@7")]))
            for name, numbers in found.items():
                known = np.isfinite(numbers)
                last = np.where(known, numbers, np.nanmin(numbers) - 1)
                yield Ranking("city", seed, name, "reward@7", float(spearmanr(last, truth).statistic), int(known.sum()))


def at_random(seed: int) -> Rule:
    """A linear rule of the habit and two tastes."""
    slopes = np.random.default_rng(seed).normal(size=(3, len(COUPONS)))
    names = ("habit", "price_taste", "basket_mix")
    return lambda table: (np.column_stack([column(table, name) for name in names]) @ slopes).argmax(axis=1)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=10)
    parser.add_argument("--city", action="store_true", help="of city instead")
    options = parser.parse_args()
    results: list[Ranking] = []
    if options.city:
        results += on_city(options.logs)
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for name in () if options.city else CAMPAIGNS:
            for found in pool.map(on_one_log, [name] * options.logs, range(options.logs)):
                results += found
            print(f"{name}: done", file=sys.stderr)
    print(f"{os.cpu_count()} cores, {platform.machine()}; {options.logs} logs of each campaign\n")
    print(head("campaign", "target", "estimator", "Spearman, median (least)", "numbers given, of 30"))
    for key in dict.fromkeys((r.campaign, r.target, r.estimator) for r in results):
        some = [r for r in results if (r.campaign, r.target, r.estimator) == key]
        values = [r.correlation for r in some]
        print(
            f"| {' | '.join(key)} | {np.median(values):.3f} ({min(values):.3f}) "
            f"| {np.median([r.given for r in some]):.0f} |"
        )
    keep("evaluation_ranking", results=[asdict(r) for r in results])


if __name__ == "__main__":
    main()
