"""Does the certificate hold? Whole campaigns, from the log to the verdict, with the truth beside it.

    python benchmarks/evaluation_certificate.py                  # 200 campaigns (twenty minutes)
    python benchmarks/evaluation_certificate.py --campaigns 20 --folds 1 --users 200000 --processes 1

Each campaign is a habit log of 20,000 users (`--users`) with a limit of its own between 1 and 4 yuan per decision:
simulate, prepare, train (counted model), evaluate, as a user would. The true spend of the served mixture is exact. Then
the whole curve: 21 budgets, each certified or not by the same look, each with its true spend.

    certified          share of campaigns
    certified, over    certified, and the true spend is above the limit: at most 5% may be (95% confidence)
    margin             limit less the true spend, over the limit: what is left unspent to be certified
    lost               reward below the exact optimum at the limit
    curve              campaigns in which some certified budget of the curve is truly over: at most 5% together

Results: Markdown on stdout, benchmarks/out/evaluation_certificate.json.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import outlay
from outlay.bundles.write import write_bundle
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.core.cmdp import TabularCMDP
from outlay.ops.tabular import constrained_optimum, measure
from own_looks import count_looks_in
from results import head, keep

LIMITS, BUDGETS = (1.0, 4.0), 21


@dataclass(frozen=True)
class Result:
    """One campaign.

    Attributes:
        limit: of the cost per decision.
        certified: whether the served mixture was.
        spend, reward: of it, truly; `optimum`: the best reward at the limit.
        curve_certified: how many budgets of the curve were certified.
        curve_over: how many of those were truly over.
        curve_unspent: median share of the budget that those leave unspent.
    """

    seed: int
    limit: float
    certified: bool
    spend: float
    reward: float
    optimum: float
    curve_certified: int
    curve_over: int
    curve_unspent: float


def campaign(seed: int, users: int, folds: int | None) -> Result:
    """One campaign, from the log to the verdict."""
    limit = float(np.round(np.random.default_rng([seed, 11]).uniform(*LIMITS), 2))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        count_looks_in(folder)
        path = outlay.simulate("habit", folder / "log", users=users, seed=seed)
        path.write_text(path.read_text().replace("at_most = 2.2 ", f"at_most = {limit} "))
        run = outlay.train(path, folder / "run", seed=seed, folds=folds)
        found = outlay.evaluate(run)
        opened = Run.open(folder / "run")
        data, bundle = opened.data(), outlay.load_bundle(opened.bundle)
        with np.load(path.with_name("truth.npz")) as file:
            arrays = {part: file[part] for part in ("transition", "reward", "cost", "start")}
        model = TabularCMDP(**arrays, discount=data.campaign.meta.discount)
        states = data.schema.encode(pq.read_table(path.with_name("states.parquet")))
        certified, over, left = curve(opened, model, states.codes, states.numbers)
        policies = [bundle.member_actions(i, states.codes, states.numbers) for i in range(len(bundle.members))]
        served = bundle.weights @ np.array([measure(model, policy) for policy in policies])
    return Result(
        seed=seed,
        limit=limit,
        certified=found.certificate.certified,
        spend=float(served[1]),
        reward=float(served[0]),
        optimum=constrained_optimum(model, [limit]).value,
        curve_certified=certified,
        curve_over=over,
        curve_unspent=left,
    )


def curve(
    run: Run, model: TabularCMDP, codes: NDArray[np.int32], numbers: NDArray[np.float32]
) -> tuple[int, int, float]:
    """Budgets of the curve that its look certified, those of them truly over, and the share of them left unspent."""
    stored = StoredFrontier.read(run.folder / "frontier")
    true: dict[tuple[int, float], float] = {}
    for fold in np.unique(stored.fold).tolist():  # a constant action of several folds is one member of a bundle
        own, folder = stored.fold == fold, run.folder.parent / f"fold-{fold}"
        write_bundle(folder, stored.spec(own / own.sum(), run.campaign, run.data()))
        bundle = outlay.load_bundle(folder)
        for i, price in enumerate(stored.multiplier[own]):
            true[fold, float(price[0])] = measure(model, bundle.member_actions(i, codes, numbers))[1]
    first = outlay.frontier(run)
    budgets = np.linspace(first.least, first.most, BUDGETS)[1:]  # the least itself is at the edge of what can be solved
    points = [point for point in outlay.frontier(run, budgets=budgets.tolist()).requested if point.certified]
    spends = [sum(m.weight * true[m.fold, m.multiplier[0]] for m in point.members) for point in points]
    over = [spend > point.budget for spend, point in zip(spends, points, strict=True)]
    left = [1 - spend / point.budget for spend, point in zip(spends, points, strict=True)]
    return len(points), int(sum(over)), float(np.median(left)) if left else float("nan")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--folds", type=int, default=None, help="default: as outlay train takes")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    each = partial(campaign, users=options.users, folds=options.folds)
    with ProcessPoolExecutor(max_workers=options.processes) as pool:
        results = []
        for result in pool.map(each, range(options.campaigns)):
            results.append(result)
            told = f"certified {result.certified}, spends {result.spend / result.limit:.1%} of its limit"
            print(f"campaign {result.seed}: {told}", file=sys.stderr)
    n = len(results)
    certified = [r for r in results if r.certified]
    over = sum(r.spend > r.limit for r in certified)
    allowed = 0.05 + 2 * np.sqrt(0.05 * 0.95 / n)
    margin, lost = np.array([[1 - r.spend / r.limit, 1 - r.reward / r.optimum] for r in results]).T
    print(
        f"{options.processes} processes, {platform.machine()}; {n} campaigns of {options.users:,} users, "
        f"folds {options.folds or 'by default'}\n"
    )
    print(head("", ""))
    print(f"| certified | {len(certified) / n:.1%} (wanted: 80% at least) |")
    print(f"| certified and truly over | {over / n:.1%} ({over} of {n}; {allowed:.1%} may be) |")
    print(
        f"| spend left to the margin, median (5% to 95%) | {np.median(margin):.1%} "
        f"({np.quantile(margin, 0.05):.1%} to {np.quantile(margin, 0.95):.1%}) |"
    )
    print(
        f"| reward below the optimum at the limit, median (95%) | {np.median(lost):.2%} "
        f"({np.quantile(lost, 0.95):.2%}) |"
    )
    share = np.mean([r.curve_certified for r in results]) / (BUDGETS - 1)
    print(f"| budgets of the curve that are certified | {share:.1%} |")
    print(f"| of those left unspent, median | {np.nanmedian([r.curve_unspent for r in results]):.1%} |")
    print(
        f"| campaigns with some certified budget of the curve truly over | "
        f"{np.mean([r.curve_over > 0 for r in results]):.1%} |"
    )
    keep("evaluation_certificate", results=[asdict(r) for r in results])


if __name__ == "__main__":
    main()
