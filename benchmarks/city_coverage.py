"""Do 95% intervals hold the truth where no state is met twice? Logs of `outlay simulate city`, all users evaluated.

    python benchmarks/city_coverage.py                                      # 200 logs of each cell (hours)
    python benchmarks/city_coverage.py --settings slow --users 3000 --logs 50

Settings are options of `outlay simulate city`; logs are of 7 days. The policies were not fitted on the users they are
evaluated on: two constants, a rule on one feature, a rule on several (`tree`), a linear rule that a regression on
another log of 20,000 users makes one day ahead, the same drawn half at random, and the mixture of a network that was
trained on that other log. Their values are simulated once a setting, with common random numbers, on 100,000 users.

    recommended   share of logs in which the number was recommended; `dr` is asked in every fifth log alone
    covered       of those, the share whose interval holds the truth; 92 to 97% is wanted
    bias          mean error of all that were given, in standard errors
    width         half the mean width, over the truth (of a difference: over the old policy's value)

Results: Markdown on stdout, and benchmarks/out/city_coverage.json, to which further logs are added.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import outlay
from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.choosing.estimates import PolicyEstimates, estimate_policy
from outlay.choosing.evaluated_policy import OLD, EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.estimate import Estimate
from outlay.core.transitions import EVERYONE, Transitions
from outlay.estimators.observed import observe
from outlay.evaluating.check_result import Judged
from outlay.evaluating.checks import Checks
from outlay.simulators.city import CATEGORICAL, COUPONS, City
from outlay.simulators.city_people import PolicyValues
from outlay.simulators.city_truth import CityTruth
from results import head

OUT = Path(__file__).parent / "out" / "city_coverage.json"
SETTINGS = ("fast", "slow", "money", "hidden")
USERS = (3000, 20_000)
DAYS = (1, 3, 7)
PILOT, SIMULATED = 20_000, 100_000
PRICE = 0.1  # of the linear rule, in units of the mean reward
PAIRS = (("tree", "always 2"), ("linear", "habit rule"), ("network", "linear"))
ESTIMATORS = ("fqe", "fqe2", "dr")
FIFTH = 5  # the doubly robust estimate of whole paths, which takes longest, takes part in every fifth log
NETWORK = "\n[train]\nlayers = [32, 16]\nepochs = 1.0\n"

Policy = Callable[[Any], NDArray[Any]]


@dataclass(frozen=True)
class Answer:
    """One number on one log; `policy` is `a` or `a − b`."""

    setting: str
    users: int
    seed: int
    policy: str
    target: str
    truth: float
    scale: float
    value: float | None
    low: float | None
    high: float | None
    recommended: bool
    reason: str | None


def column(table: Any, name: str) -> NDArray[Any]:
    """A feature."""
    return np.asarray(table[name])


def always(coupon: float) -> Policy:
    """One coupon."""
    return lambda table: np.full(len(table), int(np.searchsorted(COUPONS, coupon)))


def habit_rule(table: Any) -> NDArray[Any]:
    """2 yuan for those without a habit."""
    return np.where(column(table, "habit") < 0.5, 2, 0)


def tree(table: Any) -> NDArray[Any]:
    """Seekers by their taste, others by how long they have been away."""
    seekers = np.where(column(table, "price_taste") > 0, 3, 1)
    others = np.where(column(table, "gap") > 2, 4, np.where(column(table, "habit") < 0.3, 2, 0))
    return np.where(column(table, "basket_mix") > 0.6, seekers, others)


def inputs(table: Any, numeric: Sequence[str]) -> NDArray[Any]:
    """Numbers, and a column for each value of a category."""
    wide = [np.eye(size)[column(table, name).astype(int)] for name, size in CATEGORICAL.items()]
    return np.hstack([np.column_stack([column(table, name) for name in numeric]), *wide])


def linear(log: Any, city: City, price: float = PRICE) -> Policy:
    """The best coupon of the day less its price, by a ridge regression for each coupon."""
    x, reward = inputs(log, city.numeric), column(log, "spend" if city.money else "active").astype(float)
    action, cost = np.searchsorted(COUPONS, column(log, "coupon")), column(log, "cost")
    goal = reward - price * reward.mean() * cost
    slopes = []
    for a in range(len(COUPONS)):
        rows = action == a
        slopes.append(np.linalg.solve(x[rows].T @ x[rows] + 100 * np.eye(x.shape[1]), x[rows].T @ goal[rows]))
    return lambda table: (inputs(table, city.numeric) @ np.stack(slopes, axis=1)).argmax(axis=1)


def softened(policy: Policy) -> Policy:
    """Half of it at random."""
    return lambda table: 0.5 * np.eye(len(COUPONS))[policy(table)] + 0.5 / len(COUPONS)


def member(bundle: Bundle, i: int) -> Policy:
    """A member of a bundle."""

    def policy(table: Any) -> NDArray[Any]:
        seen = bundle.schema.encode(table)
        return np.asarray(bundle.member_actions(i, seen.codes, seen.numbers))

    return policy


@dataclass(frozen=True)
class Ground:
    """A setting with its policies, each a sticky mixture of parts, and what they bring."""

    setting: str
    policies: dict[str, tuple[tuple[Policy, ...], tuple[float, ...]]]
    truth: dict[str, dict[str, float]]


def options(setting: str) -> dict[str, Any]:
    """Options of `outlay simulate city` for a setting."""
    return {} if setting == "fast" else {setting: True}


def ground(setting: str) -> Ground:
    """The policies, made on a log of their own, and their values."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = outlay.simulate("city", folder / "log", users=PILOT, days=7, seed=9_999, **options(setting))
        with path.open("a") as file:
            file.write(NETWORK)
        city, log = City.read(folder / "log"), pq.read_table(folder / "log" / "log.parquet")
        one_day = linear(log, city)
        policies: dict[str, tuple[tuple[Policy, ...], tuple[float, ...]]] = {
            name: ((policy,), (1.0,))
            for name, policy in {
                "always 2": always(2.0),
                "always 5": always(5.0),
                "habit rule": habit_rule,
                "tree": tree,
                "linear": one_day,
                "softened": softened(one_day),
            }.items()
        }
        outlay.train(path, folder / "run", oracle="bcq")
        bundle = load_bundle(folder / "run" / "bundle")
        parts = tuple(member(bundle, i) for i in range(len(bundle.members)))
        policies["network"] = (parts, tuple(float(w) for w in bundle.weights))
        values = PolicyValues(CityTruth(city), users=SIMULATED)
        truth = {name: values(*p, weights=w, days=DAYS).value for name, (p, w) in policies.items()}
        truth["old"] = values(None, days=DAYS).value
    return Ground(setting, policies, truth)


def one_log(at: Ground, users: int, seed: int) -> Iterator[Answer]:
    """All policies on one log, and differences to the old one and between pairs."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = outlay.simulate("city", folder / "log", users=users, days=7, seed=seed, **options(at.setting))
        outlay.prepare(path, folder / "data")
        data, log = Transitions.open(folder / "data"), pq.read_table(folder / "log" / "log.parquet")
        measure = Measure(data, EVERYONE, None)
        propensity = measure.propensity()
        old = estimate_policy(measure, OLD, propensity, estimators=("fqe",))
        seen, checks = observe(measure.panel, days=measure.days), None
        told: dict[str, PolicyEstimates] = {}
        for name, (parts, weights) in at.policies.items():
            subject = EvaluatedPolicy(
                name, name, tuple(np.asarray(part(log)) for part in parts), np.array(weights), (0,) * len(parts), name
            )
            each = estimate_policy(measure, subject, propensity, estimators=ESTIMATORS[: 2 if seed % FIFTH else 3])
            checks = Checks.of(Judged(measure, each, old, seen, propensity, follows_past=False), checks)
            told[name] = checks.with_cautions(each)
            rows = told[name].rows(data.campaign, 0.95)
            yield from answers_of(at, users, seed, name, rows, at.truth[name])
        for name, other in [*((name, "old") for name in told), *PAIRS]:
            gain = told[name].rows_less(told[other] if other != "old" else old, data.campaign, 0.95)
            truth = {target: at.truth[name][target] - at.truth[other][target] for target in at.truth[name]}
            yield from answers_of(at, users, seed, f"{name} − {other}", gain, truth)


def answers_of(
    at: Ground, users: int, seed: int, policy: str, found: Sequence[Estimate], truth: dict[str, float]
) -> Iterator[Answer]:
    """The numbers of a policy that are windows of days whose truth is known."""
    for e in found:
        if e.estimator == "fqe" and "@" in e.target and e.target in truth:
            yield Answer(
                at.setting,
                users,
                seed,
                policy,
                e.target,
                truth[e.target],
                abs(at.truth["old"][e.target]),
                e.value,
                e.low,
                e.high,
                e.recommended,
                str(e.withheld or e.caution or "") or None,
            )


def holds(a: Answer) -> bool:
    """Whether its interval holds the truth; ±0 around it does."""
    return a.low is not None and a.high is not None and a.low - 1e-9 <= a.truth <= a.high + 1e-9


def summary(answers: Sequence[Answer]) -> str:
    """A line for each cell and group of numbers: the means over policies, and the worst policy."""
    lines = [head("setting", "users", "logs", "number", "recommended", "covered", "worst policy", "bias", "width")]
    for setting, users in dict.fromkeys((a.setting, a.users) for a in answers):
        cell = [a for a in answers if (a.setting, a.users) == (setting, users)]
        logs = len({a.seed for a in cell})
        for name, kind in (
            ("values", lambda p: "−" not in p),
            ("less old", lambda p: p.endswith("− old")),
            ("less another", lambda p: "−" in p and not p.endswith("− old")),
        ):
            for target in ("reward@1", "reward@7", "coupon_cost@7"):
                some = [a for a in cell if kind(a.policy) and a.target == target]
                relied = [a for a in some if a.recommended]
                by = {p: [a for a in relied if a.policy == p] for p in dict.fromkeys(a.policy for a in relied)}
                if not by:
                    continue
                worst = min(by, key=lambda p: np.mean([holds(a) for a in by[p]]))
                given = [a for a in some if a.low is not None and a.high is not None and a.high > a.low]
                z = [((a.value or 0) - a.truth) / ((a.high or 0) - (a.low or 0)) * 3.92 for a in given]
                worst_one = f"{worst}: {np.mean([holds(a) for a in by[worst]]):.1%}"
                width = np.mean([((a.high or 0) - (a.low or 0)) / 2 / a.scale for a in given])
                lines.append(
                    f"| {setting} | {users:,} | {logs} | {target} {name} | {len(relied) / len(some):.0%} "
                    f"| {np.mean([holds(a) for a in relied]):.1%} "
                    f"| {worst_one} | {np.mean(z):+.2f} | ±{width:.1%} |"
                )
    return "\n".join(lines)


def main() -> None:
    """Run the logs, print a table after each cell, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--users", nargs="+", type=int, default=list(USERS))
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first log")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    answers = [Answer(**row) for row in json.loads(asked.out.read_text())] if asked.out.exists() else []
    for setting in asked.settings:
        at = ground(setting)
        for users in asked.users:
            began, done = time.perf_counter(), {a.seed for a in answers if (a.setting, a.users) == (setting, users)}
            for seed in range(asked.first, asked.first + asked.logs):
                if seed not in done:
                    answers += one_log(at, users, seed)
                    asked.out.write_text(json.dumps([asdict(a) for a in answers]))
            print(f"{setting}, {users:,} users: {time.perf_counter() - began:.0f} s", flush=True)
    print(summary(answers))


if __name__ == "__main__":
    main()
