"""What is certified and promised on logs that hide something, against the truth.

    python benchmarks/trust.py --worlds hidden "hidden, past" --seeds 4 --users 20000

For every world (`hidden_worlds.py`) and seed: write a log, train a frontier, evaluate its mixture, and play the mixture
in the world; of `rare_payers.py`, evaluate a policy from outside whose true cost is over its limit. Reported are the
runs, how many were certified, of those how many truly cost more than the limit, how many promised gains lie above the
true gain, and how many recommended intervals of reward@7 and coupon_cost@7 (of the mixture and of the log's policy)
hold the truth.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import outlay
from hidden_worlds import WORLDS as HIDDEN
from hidden_worlds import World, logged, served
from outlay.bundles.read import load_bundle
from outlay.core.estimate import Target
from outlay.evaluating.evaluation import Evaluation
from own_looks import count_looks_in
from rare_payers import RARE, RarePayers
from results import head

WORLDS: dict[str, World | RarePayers] = {**HIDDEN, **RARE}
LIMIT_SLACK = 0.002  # relative: the truth is simulated
TRUTH_USERS, TRUTH_USERS_PAST = 160_000, 30_000  # the latter where policies look at the past, which takes longer


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        certified: whether its limit is certified.
        over: by how much the truth is over the limit, relative; below 0 it is kept.
        promised: lower bound of the gain, a day; None where none is claimed.
        gain: the true gain a day.
        kept: of recommended intervals, how many hold the truth, and of how many.
        grade: of the evaluation.
        later: the true gain a day on days 15 to 28, relative.
        doubt: why nothing is certified, or `certified`.
    """

    world: str
    seed: int
    certified: bool
    over: float
    promised: float | None
    gain: float
    old: float
    kept: tuple[int, int]
    grade: str
    later: float
    doubt: str
    seconds: float


def judged(world: World, seed: int, users: int, folder: Path) -> tuple[Evaluation, dict[str, dict[str, float]]]:
    """Train on one log and evaluate; and play the mixture and the log's policy."""
    path = world.write(folder / "log", users, seed)
    trained = outlay.train(path, folder / "run", seed=seed)
    result = outlay.evaluate(trained)
    days = result.window.days if result.window is not None else world.horizon
    many = TRUTH_USERS_PAST if world.history else TRUTH_USERS
    policies = {"mixture": served(load_bundle(trained.bundle)), "old": logged}
    return result, {name: world.truth(policy, users=many, days=days) for name, policy in policies.items()}


def run(world: World | RarePayers, seed: int, users: int, folder: Path) -> Outcome:
    """Evaluate what is to be judged on one log, against the truth."""
    begin = time.time()
    if isinstance(world, RarePayers):
        path, policy = world.write(folder / "log", users, seed)
        data, truth = outlay.prepare(path, folder / "data"), world.truth()
        result = outlay.evaluate(data, policy=policy, learned_here=True)
    else:
        result, truth = judged(world, seed, users, folder)
    certificate, window = result.certificate, result.window
    kind = "" if window is not None or world.horizon == 1 else "/discounted"
    spent, gain = truth["mixture"][f"coupon_cost{kind}"], [truth[n][f"reward{kind}"] for n in ("mixture", "old")]
    told = [
        e
        for e in (*result.estimates, *result.beside)
        if e.recommended
        and e.estimator == "fqe"
        and Target.parse(e.target).days == world.horizon
        and e.policy in (result.subject, "old")
        and e.low is not None
        and e.high is not None
    ]
    held = sum(
        e.low <= truth["old" if e.policy == "old" else "mixture"][e.target] <= e.high  # type: ignore[operator]
        for e in told
    )
    later = truth["mixture"]["reward/later"] / truth["old"]["reward/later"] - 1
    return Outcome(
        world.name,
        seed,
        certificate.certified,
        spent / world.at_most - 1,
        certificate.gain_bound if certificate.certified else None,
        gain[0] - gain[1],
        gain[1],
        (held, len(told)),
        result.grade,
        later,
        str(certificate.withheld or certificate.words),
        time.time() - begin,
    )


def main() -> None:
    """Print a line per run and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS), metavar="WORLD")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--out", type=Path, help="append a JSON line per run")
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    for name in options.worlds:
        for seed in range(options.first, options.first + options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                count_looks_in(Path(folder))
                one = run(WORLDS[name], seed, options.users, Path(folder))
            outcomes.append(one)
            print(json.dumps(asdict(one)), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
    print(f"\n{options.users:,} users, {options.seeds} logs a world\n")
    heads = (
        "world",
        "certified",
        "truly over",
        "promised above the truth",
        "intervals that hold the truth",
        "promising",
        "gain, true",
        "on days 15–28",
    )
    print(head(*heads))
    for name in options.worlds:
        print(_line(name, [one for one in outcomes if one.world == name]))


def _line(name: str, runs: list[Outcome]) -> str:
    certified = [one for one in runs if one.certified]
    over = sum(one.over > LIMIT_SLACK for one in certified)
    promises = [one for one in certified if one.promised is not None and one.promised > 0]
    broken = sum(one.promised > one.gain for one in promises)  # type: ignore[operator]
    held, of = (sum(one.kept[i] for one in runs) for i in (0, 1))
    gain, later = sum(one.gain / one.old for one in runs) / len(runs), sum(one.later for one in runs) / len(runs)
    graded = sum(one.grade == "promising" for one in runs)
    return (
        f"| {name} | {len(certified)} of {len(runs)} | {over} of {len(certified)} | {broken} of {len(promises)} | "
        f"{held} of {of} | {graded} | {gain:+.1%} | {later:+.1%} |"
    )


if __name__ == "__main__":
    main()
