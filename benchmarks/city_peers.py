"""Peers beside outlay on rich states, against the exact optimum: d3rlpy's DiscreteCQL and DiscreteBCQ, LightGBM uplift.

    python benchmarks/city_peers.py                             # fast, slow and money; five logs each (many hours)
    python benchmarks/city_peers.py --settings fast --seeds 1 --trainings 4 --steps 10000

The logs, budgets and captured shares are those of `city_quality.py`. All learn from the same *learn* users:

    d3rlpy       a network for the reward r − λc, hidden layers (128, 64), batch 512, learning rate 3e-4, `--steps`
                 gradient steps for each λ; λ by bisection between the budgets, `--trainings` of them for all 11
    LightGBM     regressions of the k-day totals of reward and cost, one model for all actions (S) or one for each (T),
                 100 trees of at least 200 rows a leaf; argmax of reward − λ·cost, λ from a grid of 41
    ours         `--ours` of city_quality.py

Which λ serves a budget is decided by outlay's fitted evaluation on *select* users, for all peers alike, as they bring
none of their own: the policy of the largest measured spend within the budget. A budget below every policy that was
found is left out, which favours them. With so few steps and λ the networks are not at their best; the figures say what
they reach in that time.

The peers run in an environment of their own (`peers_environment.py`). Results: Markdown on stdout, and
benchmarks/out/city_peers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outlay
from city_quality import METHODS, OUT, PRICES, SIMULATED, USERS, Result, ground, learned, of_mixtures, table
from outlay.choosing.measure import Measure
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.estimators.units import coordinates, needed_days
from outlay.response.labels import k_day_labels
from outlay.simulators.city import City
from outlay.simulators.city_people import PolicyValues
from outlay.simulators.city_truth import CityCurve
from peers_environment import D3RLPY, HERE, peer_python

PACKAGES = (*D3RLPY, "lightgbm==4.6.0")
LABELS = (1, 3, 7)
PEERS = ("cql", "bcq", *(f"{kind}-{days}" for kind in ("S", "T") for days in LABELS))
TITLES = {"cql": "d3rlpy DiscreteCQL", "bcq": "d3rlpy DiscreteBCQ"}

Vector = NDArray[np.float64]
Actions = NDArray[np.int64]


class Learners:
    """The process that the peers run in, and how it is asked."""

    def __init__(self, python: Path, log: Path, folder: Path) -> None:
        self.folder, self.fitted = folder, 0
        self.process = subprocess.Popen(
            [str(python), str(HERE / "peers" / "city_learners.py"), str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def fit(self, **what: Any) -> int:
        """The number of the model."""
        self._ask(what)
        self.fitted += 1
        return self.fitted - 1

    def act(self, model: int, codes: NDArray[Any], numbers: NDArray[Any], prices: Sequence[float]) -> Actions:
        """`[L, n]` action indices at L prices."""
        seen, out = self.folder / "seen.npz", self.folder / "actions.npy"
        np.savez(seen, codes=codes, numbers=numbers)
        self._ask({"act": str(seen), "model": model, "prices": list(prices), "out": str(out)})
        return np.asarray(np.load(out), np.int64)

    def tell(self, model: int, codes: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.float64]:
        """`[2, n, K]` reward and cost that a model of trees expects of every action."""
        seen, out = self.folder / "seen.npz", self.folder / "told.npy"
        np.savez(seen, codes=codes, numbers=numbers)
        self._ask({"tell": str(seen), "model": model, "out": str(out)})
        return np.asarray(np.load(out), np.float64)

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _ask(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:  # which the peers' own messages share
            if line.strip() == "ANSWER":
                return
        raise RuntimeError(f"the peers' process ended at {request}")


def write_log(data: Transitions, path: Path, rows: NDArray[np.int64] | None = None) -> None:
    """What the peers learn from: these rows, the learn users' by default, encoded as outlay encodes them."""
    rows = data.rows_of(LEARN) if rows is None else rows
    codes, numbers = data.features(rows)
    labels: dict[str, Any] = {}
    for days in LABELS:
        having, label = k_day_labels(data, days, rows)
        labels |= {f"rows_{days}": np.searchsorted(rows, having), f"label_{days}": label[:, :2]}
    np.savez(
        path,
        codes=codes,
        numbers=numbers,
        sizes=np.array(data.schema.sizes),
        action=data.action[rows],
        outcome=data.outcome[rows],
        timeout=np.asarray(data.next_row[rows]) < 0,
        discount=data.campaign.meta.discount,
        **labels,
    )


def spender(data: Transitions) -> Callable[[Actions], float]:
    """What a policy `[n]` of the select rows spends per decision, by a fitted evaluation."""
    at = Measure(data, SELECT, None)
    evaluator, days = at.second or at.evaluator(), needed_days(data.campaign)
    return lambda actions: float(coordinates(evaluator.fit(actions, days=days), data.campaign)[0][1])


def by_bisection(
    spend_at: Callable[[float], float], budgets: Vector, prices: Vector, trainings: int
) -> dict[float, float]:
    """λ and its spend, of so many trainings: each between the two λ that bracket the budget worst served so far."""
    found: dict[float, float] = {}
    while len(found) < trainings:
        gaps = []
        for budget in budgets:
            low = max((price for price, spend in found.items() if spend > budget), default=prices[0])
            high = min((price for price, spend in found.items() if spend <= budget), default=prices[-1])
            within = [spend for spend in found.values() if spend <= budget]
            gaps.append((budget - max(within, default=0.0), low, high))
        _, low, high = max(gaps)
        price = float(np.sqrt(low * high))
        if price in found:
            break
        found[price] = spend_at(price)
    return found


def serving(spend: dict[float, float], budgets: Vector) -> list[float | None]:
    """For each budget the λ of the largest spend within it; None where there is none."""
    best = [max(((s, price) for price, s in spend.items() if s <= budget), default=None) for budget in budgets]
    return [None if pair is None else pair[1] for pair in best]


def peer(
    name: str,
    learners: Learners,
    data: Transitions,
    curve: CityCurve,
    values: PolicyValues,
    budgets: Vector,
    asked: Any,
    seed: int,
) -> tuple[list[float], list[float], float]:
    """Captured shares and spends of a peer, and its seconds of learning and choosing."""
    began = time.perf_counter()
    prices, spend_of = PRICES * curve.constants[:, 0].max(), spender(data)
    codes, numbers = data.features(data.rows_of(SELECT))
    models: dict[float, int] = {}
    if name in TITLES:

        def spend_at(price: float) -> float:
            models[price] = learners.fit(fit=name, price=price, steps=asked.steps, seed=seed)
            return spend_of(learners.act(models[price], codes, numbers, [price])[0])

        spend = by_bisection(spend_at, budgets, prices, asked.trainings)
    else:
        kind, days = name.split("-")
        model, grid = learners.fit(fit=kind, days=int(days)), [0.0, *prices]
        models = dict.fromkeys(grid, model)
        spend = dict(zip(grid, map(spend_of, learners.act(model, codes, numbers, grid)), strict=True))
    chosen = serving(spend, budgets)
    seconds = time.perf_counter() - began
    true: dict[float, tuple[float, float]] = {}
    for price in {price for price in chosen if price is not None}:

        def policy(features: Any, price: float = price) -> Actions:
            seen = data.schema.encode(features)
            found: Actions = learners.act(models[price], seen.codes, seen.numbers, [price])[0]
            return found

        value = values(policy, days=(1,)).value
        true[price] = value["reward"], value["coupon_cost"]
    shares = [np.nan if price is None else curve.captured(*true[price]) for price in chosen]
    spends = [
        np.nan if price is None else true[price][1] / budget - 1 for price, budget in zip(chosen, budgets, strict=True)
    ]
    return shares, spends, seconds


def one_log(setting: str, seed: int, asked: Any, python: Path) -> Iterator[Result]:
    """All peers and ours on one log."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        options = {setting: True} if setting != "fast" else {}
        path = outlay.simulate("city", folder / "log", users=asked.users, seed=seed, **options)  # type: ignore[arg-type]
        outlay.prepare(path, folder / "data")
        data, city = Transitions.open(folder / "data"), City.read(folder / "log")
        truth, curve, budgets = ground(city, setting)
        values = PolicyValues(truth, users=asked.simulated)
        for method in asked.ours:
            began = time.perf_counter()
            found = learned(method, data, seed, folder)
            seconds = time.perf_counter() - began
            shares, spends = zip(*of_mixtures(found, curve, values, budgets), strict=True)
            yield Result(setting, seed, f"outlay {method}", seconds, budgets.tolist(), list(shares), list(spends))
        write_log(data, folder / "log.npz")
        learners = Learners(python, folder / "log.npz", folder)
        try:
            for name in asked.peers:
                share, spend, seconds = peer(name, learners, data, curve, values, budgets, asked, seed)
                title = TITLES.get(name) or "LightGBM {}-learner, {}-day label".format(*name.split("-"))
                yield Result(setting, seed, title, seconds, budgets.tolist(), share, spend)
        finally:
            learners.close()


def main() -> None:
    """Run the logs, print a table, write JSON after each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=["fast", "slow", "money"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="number of the first log")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--ours", nargs="*", default=[METHODS[0]], choices=METHODS)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--simulated", type=int, default=SIMULATED // 2, help="users of the true values")
    parser.add_argument("--steps", type=int, default=20_000, help="gradient steps of a network")
    parser.add_argument("--trainings", type=int, default=8, help="networks of a peer for all budgets")
    parser.add_argument("--out", type=Path, default=OUT.parent / "city_peers.json")
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    python, results = peer_python(PACKAGES), list[Result]()
    for seed in range(asked.first, asked.first + asked.seeds):
        for setting in asked.settings:
            for result in one_log(setting, seed, asked, python):
                results.append(result)
                print(
                    f"{setting} {seed} {result.method}: {np.round(result.share, 2)} {result.seconds:.0f} s", flush=True
                )
                asked.out.write_text(json.dumps([asdict(r) for r in results], indent=1))
    print(table([result for result in results if np.isfinite(result.share).any()]))
    for result in results:
        if not np.isfinite(result.share).any():
            print(f"\n{result.setting} {result.seed} {result.method}: all that was found spends more than any budget.")


if __name__ == "__main__":
    main()
