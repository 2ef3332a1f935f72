"""How often 95% intervals hold the truth, estimator by estimator, and where each one fails.

    python benchmarks/evaluation_coverage.py                    # 500 logs of each kind, 20 by networks (half an hour)
    python benchmarks/evaluation_coverage.py --logs 50 --networks 0

Of each kind of log (`evaluation_logs.py`) and number of users, so many logs are drawn; on each, two policies are
evaluated by every estimator: a best response (one action in each state) and the same softened by half (drawn). A random
model is another one for every log. The truth is exact: the model's value and k-day totals.

    given         share of logs in which a number was given (not withheld)
    recommended   share in which it was recommended
    covered       of the recommended ones, share whose interval holds the truth; should be 92 to 98%
    shown         of those given and not recommended, the same: what the caution is for
    bias, width   of the numbers given: mean error, and half the mean width, both over the truth

By networks: habit logs whose states are hidden from the evaluation, so that it works on the features of a network that
was trained on other users of the same log (`train --oracle bcq`).

Results: Markdown on stdout, benchmarks/out/evaluation_coverage.json.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import outlay
from evaluation_logs import Policy, World, rows_of
from outlay.choosing.estimates import estimate_policy
from outlay.choosing.evaluated_policy import EvaluatedPolicy, mixture_of
from outlay.choosing.measure import Measure
from outlay.choosing.run import Run
from outlay.core.cmdp import TabularCMDP
from outlay.core.estimate import Estimate
from outlay.core.transitions import CERTIFY
from outlay.ops.tabular import measure, totals
from results import head, keep

KINDS = (("habit", 600), ("habit", 3000), ("habit", 20_000), ("random", 600), ("random", 3000), ("random", 20_000))
DAYS = (1, 3, 7)
CONFIDENCE = 0.95
HABIT_PRICE = 0.03  # λ of the best response: it spends about what the campaign's limit allows
RANDOM_PRICE = 0.3
LEAST_SHARE = 0.1  # of logs in which a number is recommended: below, its coverage is not told
NETWORK_USERS = 20_000
NETWORK_SETTINGS = "\n[train]\nlayers = [32, 16]\nepochs = 2.0\n"


@dataclass(frozen=True)
class Answer:
    """One number on one log."""

    kind: str
    users: int
    policy: str
    estimator: str
    target: str
    truth: float
    value: float | None
    low: float | None
    high: float | None
    recommended: bool


def on_one_log(kind: str, users: int, seed: int) -> list[Answer]:
    """Both policies by every estimator."""
    world = World.simulated("habit") if kind == "habit" else World.random(seed)
    data = world.log(users, seed)
    at = Measure(data, CERTIFY, None)
    assert at.panel.propensity is not None
    best = world.best_response(HABIT_PRICE if kind == "habit" else RANDOM_PRICE)
    answers = []
    for name, policy in (("best response", best), ("softened", world.softened(best))):
        subject = EvaluatedPolicy(name, name, (rows_of(policy, np.asarray(at.panel.state)),), np.ones(1), (0,), "")
        estimates = estimate_policy(at, subject, at.panel.propensity)
        found = estimates.rows(data.campaign, CONFIDENCE)
        answers += list(_answers(found, truth_of(world.model, policy), kind, users, name))
    return answers


def truth_of(model: TabularCMDP, policy: Policy) -> dict[str, float]:
    """Reward and cost by target."""
    exact = dict(zip(("reward", "cost"), measure(model, policy).tolist(), strict=True))
    whole = totals(model, policy, max(DAYS))
    return exact | {f"{name}@{k}": float(whole[k - 1, j]) for j, name in enumerate(("reward", "cost")) for k in DAYS}


def by_network(seed: int) -> list[Answer]:
    """The mixture of a network on a habit log, its states hidden."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = outlay.simulate("habit", folder / "log", users=NETWORK_USERS, seed=seed)
        with path.open("a") as file:
            file.write(NETWORK_SETTINGS)
        outlay.train(path, folder / "run", oracle="bcq", seed=seed)
        run = Run.open(folder / "run")
        data = run.data()
        bundle = outlay.load_bundle(run.bundle)
        with np.load(path.with_name("truth.npz")) as file:
            arrays = {part: file[part] for part in ("transition", "reward", "cost", "start")}
        model = TabularCMDP(**arrays, discount=data.campaign.meta.discount)
        states = data.schema.encode(pq.read_table(path.with_name("states.parquet")))
        weights = np.array([member.weight for member in bundle.members])
        policies = [bundle.member_actions(i, states.codes, states.numbers) for i in range(len(weights))]
        each = [truth_of(model, policy) for policy in policies]
        truth = {target: float(weights @ [one[target] for one in each]) for target in each[0]}
        hidden = replace(data, state=None, states=None)
        at = Measure(hidden, CERTIFY, bundle)
        found = estimate_policy(at, mixture_of(at, "network"), at.propensity()).rows(data.campaign, CONFIDENCE)
        named = [replace(e, target=e.target.replace("coupon_cost", "cost")) for e in found]
        return list(_answers(named, truth, "habit, by network", len(at.panel.first), "mixture"))


def _answers(
    found: Sequence[Estimate], truth: dict[str, float], kind: str, users: int, policy: str
) -> Iterator[Answer]:
    for e in found:
        if e.target in truth:
            yield Answer(
                kind, users, policy, e.estimator, e.target, truth[e.target], e.value, e.low, e.high, e.recommended
            )


def summary(answers: Sequence[Answer]) -> str:
    """Coverage of recommended intervals by kind of log, policy and target, a column for each estimator."""
    names = list(dict.fromkeys(a.estimator for a in answers))
    groups = {"reward": "discounted", "cost": "discounted"} | {
        f"{x}@{k}": f"{k} d" for x in ("reward", "cost") for k in DAYS
    }
    lines = [f"| log | users | policy | target | {' | '.join(names)} |", "|" + "---|" * (4 + len(names))]
    for kind, users, policy in dict.fromkeys((a.kind, a.users, a.policy) for a in answers):
        for group in dict.fromkeys(groups.values()):
            cells = []
            for name in names:
                some = [
                    a
                    for a in answers
                    if (a.kind, a.users, a.policy, a.estimator) == (kind, users, policy, name)
                    and groups[a.target] == group
                ]
                relied = [a for a in some if a.recommended]
                share = len(relied) / max(1, len(some))
                cells.append(f"{covered(relied)} ({share:.0%})" if share >= LEAST_SHARE else "–")
            lines.append(f"| {kind} | {users:,} | {policy} | {group} | {' | '.join(cells)} |")
    return "\n".join(lines)


def failures(answers: Sequence[Answer]) -> str:
    """Reward totals on the largest logs: bias, half the width and coverage of all that was given."""
    users = max(users for _, users in KINDS)
    names = list(dict.fromkeys(a.estimator for a in answers))
    lines = [f"| log, {users:,} users | policy | total | {' | '.join(names)} |", "|" + "---|" * (3 + len(names))]
    for kind, policy in dict.fromkeys((a.kind, a.policy) for a in answers if a.users == users):
        for days in DAYS[1:]:
            cells = []
            for name in names:
                some = [
                    a
                    for a in answers
                    if (a.kind, a.users, a.policy, a.estimator, a.target)
                    == (kind, users, policy, name, f"reward@{days}")
                ]
                given = [a for a in some if a.value is not None and a.low is not None and a.high is not None]
                if len(given) < LEAST_SHARE * len(some):
                    cells.append(f"withheld ({1 - len(given) / max(1, len(some)):.0%})")
                    continue
                bias = np.mean([(a.value or 0.0) / a.truth - 1 for a in given])
                width = np.mean([((a.high or 0.0) - (a.low or 0.0)) / 2 / a.truth for a in given])
                star = "" if np.mean([a.recommended for a in given]) > 0.5 else "\\*"
                cells.append(f"{bias:+.1%} ±{width:.1%}, {covered(given)}{star}")
            lines.append(f"| {kind} | {policy} | {days} d | {' | '.join(cells)} |")
    return "\n".join(lines)


def table(answers: Sequence[Answer], kind: str, users: int | None) -> str:
    """A line for each policy, estimator and target."""
    lines = [head("policy", "estimator", "target", "given", "recommended", "covered", "shown", "bias", "width")]
    rows = [a for a in answers if a.kind == kind and users in (None, a.users)]
    for policy, estimator, target in dict.fromkeys((a.policy, a.estimator, a.target) for a in rows):
        if target.startswith("cost@"):
            continue  # as with the reward
        some = [a for a in rows if (a.policy, a.estimator, a.target) == (policy, estimator, target)]
        given = [a for a in some if a.value is not None]
        relied = [a for a in given if a.recommended]
        doubted = [a for a in given if not a.recommended]
        bias = np.mean([a.value / a.truth - 1 for a in given if a.value is not None]) if given else np.nan
        widths = [(a.high - a.low) / 2 / a.truth for a in given if a.high is not None and a.low is not None]
        lines.append(
            f"| {policy} | {estimator} | {target} | {len(given) / len(some):.0%} | {len(relied) / len(some):.0%} "
            f"| {covered(relied)} | {covered(doubted)} | {bias:+.1%} | {np.mean(widths) if widths else np.nan:.1%} |"
        )
    return "\n".join(lines).replace("+nan%", "–").replace("nan%", "–")


def covered(answers: Sequence[Answer]) -> str:
    """Share whose interval holds the truth."""
    if len(answers) == 0:
        return "–"
    return f"{np.mean([holds(a) for a in answers]):.1%}"


def holds(a: Answer) -> bool:
    """Whether an interval holds the truth; a number without one does not."""
    return a.low is not None and a.high is not None and a.low <= a.truth <= a.high


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--networks", type=int, default=20)
    options = parser.parse_args()
    answers: list[Answer] = []
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for kind, users in KINDS:
            count = options.logs
            jobs = pool.map(on_one_log, [kind] * count, [users] * count, range(count), chunksize=5)
            answers += [answer for found in jobs for answer in found]
            print(f"{kind}, {users} users: done", file=sys.stderr)
    for seed in range(options.networks):
        answers += by_network(seed)
        print(f"network {seed}: done", file=sys.stderr)
    print(f"{os.cpu_count()} cores, {platform.machine()}; {options.logs} logs of each kind\n")
    print("Coverage of recommended 95% intervals, reward and cost together (share recommended)\n")
    print(f"{summary(answers)}\n\n{failures(answers)}")
    for kind, users in KINDS:
        print(f"\n**{kind}, {users:,} users**\n\n{table(answers, kind, users)}\n")
    if options.networks:
        print(f"\n**habit by network, {options.networks} logs**\n\n{table(answers, 'habit, by network', None)}\n")
    keep("evaluation_coverage", results=[asdict(a) for a in answers])


if __name__ == "__main__":
    main()
