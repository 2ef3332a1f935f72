"""What learning adds in worlds that are known: beside constants of equal cost, LightGBM's T-learner and the best known.

    python benchmarks/public_worlds.py --worlds shop --users 20000 --seeds 1 2 3
    python benchmarks/public_worlds.py --worlds mild slow --users 50000 --seeds 1 2

The worlds are those of `known_worlds.py`: a shop (14 days of amounts, percentages off, joiners, weeks, fatigue), and
people with 20 features (7 days), with mild carry-over and with slow habits. Outlay trains with all defaults; what it
serves is then played, as every constant is, on the same 10,000 users and the same luck: its value is the discounted
mean of the reward, its cost the mean of the days that the limit is about. The T-learner (a model of reward and of cost
for every offer, k-day labels, all rows of the log) is priced with five λ, and a knapsack's best mixture of its policies
is taken at equal spend, chosen by the truth, which favours it. The best known are mixtures of policies that know the
world (`World.known`), at five λ.

    share of what states are worth = (value − constants at equal spend) / (best known − constants at equal spend)

*At its spend*: what the policy truly costs. *At the budget*: constants and the best known have the whole budget; what
the policy left unspent brings nothing, and where it spends more, so many users get the free offer that it does not.
*Behind a cap*: the same of the mixture that keeps no margin, which the same training leaves for a server with a cap.
*Holds*: whether the 95% intervals of reward and cost of those days hold the truth of the same days, a mean over 10,000
users that is itself about 0.9% uncertain (shares are of the same users on both sides, and are not).
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from city_peers import Learners, write_log
from hidden_worlds import behind_cap, drawn_members
from known_worlds import WORLDS, Actions, Floats, People, Policy, World
from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.core.transitions import Transitions
from outlay.ops.mixture_lp import value_at
from peers_environment import peer_python
from public_jobs import job
from results import head, keep

PACKAGES = ("scikit-learn==1.7.2", "lightgbm==4.6.0")


def served(bundle: Bundle) -> Policy:
    """What a mixture does, every user keeping one member."""
    drawn: dict[int, NDArray[np.int64]] = {}

    def act(people: People) -> Actions:
        users = len(people.own)
        if users not in drawn:
            drawn[users] = drawn_members(bundle, users)
        seen = bundle.schema.encode(pa.table(people.table()))
        actions = np.stack([action for action, _ in bundle.choices(seen.codes, seen.numbers)])
        return np.asarray(actions[drawn[users], np.arange(users)])

    return act


def t_learner(world: World, data: Transitions, folder: Path, days: int) -> tuple[Floats, float]:
    """`[L, 2]` true value and cost of the T-learner's policies at the world's prices, and its seconds of fitting."""
    write_log(data, folder / "log.npz", np.arange(len(data)))
    asked = Learners(peer_python(PACKAGES), folder / "log.npz", folder)
    began = time.perf_counter()
    model = asked.fit(fit="T", days=days)
    took = time.perf_counter() - began

    def policy(price: float) -> Policy:
        def act(people: People) -> Actions:
            seen = data.schema.encode(pa.table(people.table()))
            chosen: NDArray[np.int64] = asked.act(model, seen.codes, seen.numbers, [price])[0]
            return chosen

        return act

    found = np.array([world.truth(policy(price)) for price in world.prices])
    asked.close()
    return found, took


def shares(world: World, value: float, cost: float, curves: dict[str, Floats]) -> dict[str, float]:
    """The share of what states are worth, at its spend and at the budget."""
    constants, known = curves["constants"], np.vstack([curves["constants"], curves["one day"], curves["known"]])
    kept = min(1.0, world.at_most / cost) if cost else 1.0
    at_budget = constants[0, 0] + kept * (value - constants[0, 0])

    def share(reached: float, spent: float) -> float:
        floor = value_at(constants, spent)
        return (reached - floor) / (value_at(known, spent) - floor)

    return {"own": share(value, cost), "budget": share(at_budget, world.at_most)}


def ground(world: World) -> dict[str, Floats]:
    """`[·, 2]` value and cost of constants, one-day rules and the best known."""
    return {
        "constants": world.constants(),
        "one day": np.array([world.truth(world.one_day(price)) for price in world.prices]),
        "known": np.array([world.truth(world.known(price)) for price in world.prices]),
    }


def one_log(world: World, users: int, seed: int, labels: Sequence[int], options: str, curves: Any) -> dict[str, Any]:
    """All methods on one log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = world.write(folder, users=users, seed=seed)
        found = job(path, folder / "run", seed=seed, options=shlex.split(options))
        bundle = load_bundle(folder / "run" / "bundle")
        played = world.daily(served(bundle))
        value, cost = world.of_days(played)
        reward = float(played[: world.counted, 0].mean())
        data = Transitions.open(folder / "run" / "data")
        found |= {"world": world.name, "users": users, "value": value, "cost": cost, "reward": reward}
        found["share"] = shares(world, value, cost, curves)
        capped, spent = world.truth(served(behind_cap(bundle)))
        found["behind_cap"] = {"value": capped, "cost": spent, **shares(world, capped, spent, curves)}
        found["constants"] = value_at(curves["constants"], cost)
        found["peers"] = {}
        for days in labels:
            points, took = t_learner(world, data, folder, days)
            points = np.vstack([points, curves["constants"][:1]])
            equal, full = value_at(points, cost), value_at(points, world.at_most)
            found["peers"][str(days)] = {
                "points": points.tolist(),
                "value": equal,
                "own": shares(world, equal, cost, curves)["own"],
                "budget": shares(world, full, min(world.at_most, float(points[:, 1].max())), curves)["budget"],
                "seconds": took,
            }
    return found


def main() -> None:
    """Print a line per log and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--labels", nargs="*", type=int, default=[1, 3], help="days of the T-learner's labels")
    parser.add_argument("--train", default="", help="further options of outlay train, in one string")
    asked = parser.parse_args()
    runs, grounds = [], {}
    for name in asked.worlds:
        world = WORLDS[name]
        grounds[name] = curves = ground(world)
        for kind, points in curves.items():
            print(f"{name}, {kind}: {points.round(3).tolist()}", flush=True)
        for seed in asked.seeds:
            runs.append(one_log(world, asked.users, seed, asked.labels, asked.train, curves))
            print(json.dumps(runs[-1]), flush=True)
    curves_ = {name: {kind: points.tolist() for kind, points in curves.items()} for name, curves in grounds.items()}
    keep(f"public_worlds_{'_'.join(asked.worlds)}", runs=runs, grounds=curves_)
    print(
        head(
            *("world, seed", "value", "cost of the limit", "constants", "share", "behind a cap"),
            *("T-learner", "told", "seconds, GB"),
        )
    )
    print_rows(runs)
    print()
    print(head("world", "method", "share at its spend: median, worst", "share at the budget: median, worst"))
    for name in asked.worlds:
        these = [r for r in runs if r["world"] == name]
        print(f"| {name} | outlay, certified | {both([r['share'] for r in these])} |")
        print(f"| {name} | outlay, behind a cap | {both([r['behind_cap'] for r in these])} |")
        for days in map(str, asked.labels):
            print(f"| {name} | LightGBM T-learner, {days} days | {both([r['peers'][days] for r in these])} |")


def print_rows(runs: list[dict[str, Any]]) -> None:
    """A line per log; then what was said of each."""
    for r in runs:
        limit, own, capped = WORLDS[r["world"]].at_most, r["share"], r["behind_cap"]
        peers = ", ".join(f"{p['own']:+.2f}/{p['budget']:+.2f} ({days})" for days, p in r["peers"].items())
        words = ", ".join(
            said(r["told"].get(name), true) for name, true in (("reward", r["reward"]), ("cost", r["cost"]))
        )
        print(
            f"| {r['world']} {r['seed']} | {r['value']:.4f} | {r['cost'] / limit:.1%} | {r['constants']:.4f} | "
            f"{own['own']:+.2f}/{own['budget']:+.2f} | "
            f"{capped['own']:+.2f}/{capped['budget']:+.2f} at {capped['cost'] / limit:.1%} | {peers} | {words} | "
            f"{r['train_s'] + r['evaluate_s']:.0f}, {r['peak_gb']:.2f} |"
        )
    print()
    print(head("world, seed", "verdict", "certified", "constants"))
    for r in runs:
        certified = "yes" if r["certified"] else "no"
        print(f"| {r['world']} {r['seed']} | {r['verdict']} | {certified} | {r['to_constants']:.0%} |")


def said(told: list[float] | None, true: float) -> str:
    """An estimate, and whether its interval holds the truth."""
    if told is None:
        return "withheld"
    return f"{told[0]:.3f} {'holds' if told[1] <= true <= told[2] else 'is off'}"


def both(these: list[dict[str, float]]) -> str:
    """Median and worst share, at its spend and at the budget."""
    columns = ([t[kind] for t in these] for kind in ("own", "budget"))
    return " | ".join(f"{np.median(column):+.2f}, {min(column):+.2f}" for column in columns)


if __name__ == "__main__":
    main()
