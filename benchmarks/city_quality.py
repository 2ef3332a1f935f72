"""Learning on rich states against the exact optimum: `outlay simulate city`, where no log shows a state twice.

    python benchmarks/city_quality.py                           # fast, slow and money; five logs each (hours)
    python benchmarks/city_quality.py --settings fast --seeds 1 --methods orthogonal

50,000 users for 7 days, of whom 35,000 teach. Every method learns from the same log; all its policies are measured on
the *select* users as `train` does. For 11 budgets between 0 and the cost of the largest constant coupon the mixture is
solved on those measurements, without the certificate's margin, constant actions taking part as in `train`, and its
true value is simulated:

    captured share    (value − best constant mixture) / (optimum − best constant mixture), all at its own true spend
    spent             its true spend, of the budget: a mixture that leaves most of it unspent can have a large share too

The 1-day rule is priced in every state, with true responses: what no method that looks one day ahead can beat. The
settings are options of `outlay simulate city`; the optimum knows what a `hidden` city leaves out.

Results: Markdown on stdout, and benchmarks/out/city_quality.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outlay
from myopic import one_day_city
from outlay.bundles.decide import Bundle
from outlay.choosing.candidates import MeasuredPolicy, RunContext, constant_actions, without_luck
from outlay.choosing.choose import SolvedMixture, with_constants
from outlay.core.transitions import Transitions
from outlay.estimators.frontier import Points
from outlay.ops.mixture_lp import solve_mixture, value_at
from outlay.simulators.city import City
from outlay.simulators.city_people import PolicyValues
from outlay.simulators.city_truth import CityCurve, CityTruth, optimum
from outlay.training import every_budget, two_stage
from outlay.training.record import Learned
from results import head

OUT = Path(__file__).parent / "out" / "city_quality.json"
USERS, BUDGETS, SIMULATED = 50_000, 11, 20_000
PRICES = np.geomspace(0.005, 0.6, 40)  # of the 1-day rule, in units of the largest mean reward
METHODS = ("auto", "trees", "orthogonal", "bcq", "DeepFM, 1-day label", "DeepFM, 3-day label", "DeepFM, 7-day label")

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """One method on one log: `share` of every budget, NaN where no mixture keeps it; `spend` against the budget."""

    setting: str
    seed: int
    method: str
    seconds: float
    budgets: list[float]
    share: list[float]
    spend: list[float]


def act(bundle: Bundle, member: int) -> Callable[[Any], NDArray[Any]]:
    """A member of a bundle as a policy of the city's features."""

    def policy(table: Any) -> NDArray[Any]:
        seen = bundle.schema.encode(table)
        return np.asarray(bundle.member_actions(member, seen.codes, seen.numbers))

    return policy


def of_mixtures(learned: Learned, curve: CityCurve, values: PolicyValues, budgets: Vector) -> list[Any]:
    """Captured share and spend of every budget's mixture, chosen by what was measured; constants as in `train`."""
    chosen, context = learned.chosen, learned.context
    own = [kept for kept in chosen.measured if kept.withheld is None and kept.policy.number is not None]
    constants = without_luck(constant_actions(context, chosen.measure), context)
    policies = {id(kept): act(chosen.measure.served, i) for i, kept in enumerate(chosen.measured)}
    policies |= {id(kept): always(action) for action, kept in enumerate(constants)}
    true: dict[int, Vector] = {}

    def truth(kept: MeasuredPolicy) -> Vector:
        if id(kept) not in true:
            value = values(policies[id(kept)]).value
            true[id(kept)] = np.array([value["reward"], value["coupon_cost"]])
        return true[id(kept)]

    judged = []
    for budget in budgets:
        served = with_constants(*(mixture(pool, context, budget) for pool in (own, own + constants)))
        if served is None:
            judged.append((np.nan, np.nan))
            continue
        members = np.flatnonzero(served.weights)
        reward, cost = (served.weights[members] @ np.array([truth(served.pool[i]) for i in members])).tolist()
        judged.append((curve.captured(reward, cost), cost / budget - 1))
    return judged


def mixture(pool: list[MeasuredPolicy], context: RunContext, budget: float) -> SolvedMixture | None:
    """The best mixture of some policies that keeps a budget without a margin."""
    cost = Points.of([kept.fitted for kept in pool], context.campaign).value[:, 1]
    points = np.column_stack([[kept.objective for kept in pool], cost])
    solution = solve_mixture(points, np.array([budget]), np.array([budget]))
    return SolvedMixture(pool, solution.weights, np.zeros(1)) if solution.feasible else None


def always(action: int) -> Callable[[Any], NDArray[Any]]:
    """The same action for everybody."""
    return lambda table: np.full(len(table), action)


def one_log(setting: str, seed: int, methods: list[str], users: int, simulated: int) -> Iterator[Result]:
    """The methods on one log, the 1-day rule with true responses first."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        options = {setting: True} if setting != "fast" else {}
        path = outlay.simulate("city", folder / "log", users=users, seed=seed, **options)  # type: ignore[arg-type]
        outlay.prepare(path, folder / "data")
        data = Transitions.open(folder / "data")
        city = City.read(folder / "log")
        truth, curve, budgets = ground(city, setting)
        values = PolicyValues(truth, users=simulated)
        yield one_day(setting, seed, truth, curve, budgets)
        for method in methods:
            began = time.perf_counter()
            found = learned(method, data, seed, folder)
            seconds = time.perf_counter() - began
            shares, spends = zip(*of_mixtures(found, curve, values, budgets), strict=True)
            yield Result(setting, seed, method, seconds, budgets.tolist(), list(shares), list(spends))


def ground(city: City, setting: str) -> tuple[CityTruth, CityCurve, Vector]:
    """A city's truth, its optimum, which is that of the setting, whatever the log, and the budgets `[BUDGETS]`."""
    kept = OUT.parent / f"city_{setting}"
    kept.mkdir(parents=True, exist_ok=True)
    city.write(kept)
    curve = optimum(kept)
    return CityTruth(city), curve, np.linspace(0, curve.constants[:, 1].max(), BUDGETS + 2)[1:-1]


def one_day(setting: str, seed: int, truth: CityTruth, curve: CityCurve, budgets: Vector) -> Result:
    """The 1-day rule with true responses, as near to each budget as it comes."""
    myopic = (one_day_city(truth, price) for price in PRICES * curve.constants[:, 0].max())
    rule = np.array([[each.reward, each.cost] for each in myopic])
    at = np.clip(budgets, rule[:, 1].min(), rule[:, 1].max())
    share = [curve.captured(value_at(rule, cost), cost) for cost in at]
    spend = (at / budgets - 1).tolist()
    return Result(setting, seed, "1-day rule, true responses", 0.0, budgets.tolist(), share, spend)


def learned(method: str, data: Transitions, seed: int, folder: Path) -> Learned:
    """What a method learns, measured as `train` measures it."""

    def quiet(_share: float, _text: str) -> None:
        pass

    if method.startswith("DeepFM"):
        days = int(method.split()[1][0])
        return two_stage.learn(data, data.campaign, "deepfm", days, seed, folder, quiet)
    own = folder / method
    own.mkdir()
    return every_budget.learn(data, data.campaign.with_train(folds=1), method, seed, own, False, quiet)


def table(results: list[Result]) -> str:
    """Captured share over budgets and logs, in Markdown."""
    lines = [
        head("setting", "method", "logs", "captured share, median", "worst tenth", "least", "spent, median", "seconds")
    ]
    for setting, method in dict.fromkeys((r.setting, r.method) for r in results):
        mine = [r for r in results if (r.setting, r.method) == (setting, method)]
        share = np.array([s for r in mine for s in r.share])
        share = share[np.isfinite(share)]
        spent = 1 + np.nanmedian([s for r in mine for s in r.spend])
        seconds = np.median([r.seconds for r in mine])
        lines.append(
            f"| {setting} | {method} | {len(mine)} | {np.median(share):.2f} | {np.quantile(share, 0.1):.2f} "
            f"| {share.min():.2f} | {spent:.0%} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the logs, print a table after each, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=["fast", "slow", "money"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="number of the first log")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--simulated", type=int, default=SIMULATED, help="users of the true values")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for seed in range(asked.first, asked.first + asked.seeds):
        for setting in asked.settings:
            for result in one_log(setting, seed, asked.methods, asked.users, asked.simulated):
                results.append(result)
                print(
                    f"{setting} {seed} {result.method}: {np.round(result.share, 2)} {result.seconds:.0f} s", flush=True
                )
                asked.out.write_text(json.dumps([asdict(r) for r in results], indent=1))
    print(table(results))


if __name__ == "__main__":
    main()
