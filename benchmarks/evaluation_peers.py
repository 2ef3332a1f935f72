"""A fixed policy's value from one log: our estimators, d3rlpy's FQE and SCOPE-RL's, against the truth.

    python benchmarks/evaluation_peers.py          # 140,000 users, 5 logs; the peers' environment is made if absent

Every log is drawn anew from *habit* (11 coupons at random for 7 days). The policy is the best response to a price of
0.03 a yuan in the true model, so it takes 8 different coupons in 10 states. All see the same users: those of the
*certify* split. Bias is (estimate − truth) / truth. Results: Markdown on stdout, benchmarks/out/evaluation_peers.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.comparing.true_values import Truth
from outlay.core.campaign import Campaign
from outlay.core.transitions import CERTIFY
from outlay.estimators import doubly_robust, fitted, importance, marginalised
from outlay.estimators.basis import CountedBasis, FeatureBasis
from outlay.estimators.joint import Joint
from outlay.estimators.panel import Panel
from outlay.jobs.prepare import prepare
from outlay.jobs.simulate import simulate
from outlay.ops.tabular import policy_iteration
from peers_environment import SCOPE_RL, THREADS, ask, peer_python
from results import OUT, keep

PRICE = 0.03  # of a yuan, in active days
DAYS = (3, 7)
CONFIDENCE = 0.95
UNITS = 32  # of the random layer that stands for a network's

Policy = NDArray[np.intp]
Row = dict[str, Any]


def counted(panel: Panel) -> CountedBasis:
    """One coordinate for each state and action."""
    assert panel.state is not None
    assert panel.data.states is not None
    return CountedBasis(panel.state, len(panel.data.states), panel.data.num_actions)


def layer(panel: Panel) -> FeatureBasis:
    """A layer of random ReLU units over the one-hot fields: what a log with too many states to count would be given."""
    codes, _ = panel.data.features(panel.rows)
    shown = np.hstack([np.eye(codes.max() + 1)[column] for column in codes.T])
    rng = np.random.default_rng(0)
    hidden = shown @ rng.normal(size=(shown.shape[1], UNITS)) + rng.normal(size=UNITS)
    return FeatureBasis(np.maximum(hidden, 0), panel.data.num_actions)


OURS: dict[str, Callable[[Panel, Policy], Joint]] = {
    "fqe": lambda panel, policy: fitted.Evaluator(panel, counted(panel)).fit(policy, days=DAYS),
    f"fqe, {UNITS} features, row by row": lambda panel, policy: fitted.Evaluator(panel, layer(panel)).fit(
        policy, days=DAYS
    ),
    "mis": lambda panel, policy: marginalised.Marginalised(panel, counted(panel)).estimate(policy, days=DAYS),
    "dr": lambda panel, policy: doubly_robust.DoublyRobust(panel, counted(panel)).estimate(policy, days=DAYS),
    "pdis, clip 20": lambda panel, policy: importance.weigh(panel, policy, days=DAYS),
    "snpdis, clip 20": lambda panel, policy: importance.weigh(panel, policy, days=DAYS, kind="self-normalised"),
}


def ours(panel: Panel, policy: Policy) -> Iterator[Row]:
    """All targets of each estimator; seconds are of all of them together."""
    for name, estimate in OURS.items():
        began = time.perf_counter()
        joint = estimate(panel, policy)
        seconds = time.perf_counter() - began
        for found in joint.estimates("fixed", name, confidence=CONFIDENCE):
            yield {
                "estimator": f"outlay {name}",
                "target": found.target,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "seconds": seconds,
            }


def by_d3rlpy(python: Path, log: Path, panel: Panel, steps: int, seed: int, threads: int) -> Iterator[Row]:
    """Its FQE twice: as it comes; and with outcomes of 1 at most, as its loss is square only there, and the looks of
    the second half averaged, as the last one depends on where the steps happened to stop.
    """
    for outcome, name in enumerate(panel.names):
        scale = 1 / float(panel.outcome[:, outcome].max())
        given = ("--outcome", outcome, "--discount", panel.discount, "--steps", steps, "--seed", seed, "--scale")
        answers = {s: ask(python, "d3rlpy_fqe.py", log, *given, s, threads=threads) for s in {1.0, scale}}
        course = answers[scale]["course"]
        for way, value, answer in (
            ("as it comes", answers[1.0]["value"], answers[1.0]),
            ("scaled and averaged", statistics.mean(course[len(course) // 2 :]), answers[scale]),
        ):
            yield {
                "estimator": f"d3rlpy FQE, {way}",
                "target": name,
                "value": value,
                "low": None,
                "high": None,
                "seconds": answer["seconds"],
            }


@cache
def fastest(python: Path, log: Path, discount: float) -> int:
    """The number of threads with which the peers are faster, by 200 steps of a fit."""

    def seconds(threads: int) -> float:
        given = ("--discount", discount, "--steps", 200)
        return float(ask(python, "d3rlpy_fqe.py", log, *given, threads=threads)["seconds"])

    return min(THREADS, key=seconds)


def one_log(seed: int, users: int, steps: int, python: Path) -> list[Row]:
    """What everybody says about one log."""
    path = simulate("habit", OUT / "evaluation-habit", users=users, seed=seed)
    data = prepare(path, OUT / "evaluation-data")
    truth, panel = Truth.beside(Campaign.load(path), data), Panel.of(data, CERTIFY)
    assert truth is not None
    assert data.states is not None
    assert panel.state is not None
    assert panel.propensity is not None
    best = policy_iteration(truth.model, [1, -PRICE])
    place = (truth.codes[:, None] == data.states.codes).all(axis=2).argmax(axis=0)
    log = OUT / "evaluation-log.npz"
    np.savez(
        log,
        state=panel.state,
        action=panel.action,
        outcome=panel.outcome,
        propensity=panel.propensity,
        timeout=panel.following < 0,
        policy=best[place],
        names=np.array(panel.names),
    )

    threads = fastest(python, log, panel.discount)
    rows = [*ours(panel, best[place][panel.state]), *by_d3rlpy(python, log, panel, steps, seed, threads)]
    rows += ask(
        python,
        "scope_rl_estimators.py",
        log,
        "--days",
        *DAYS,
        "--discount",
        panel.discount,
        "--steps",
        steps,
        "--seed",
        seed,
        threads=threads,
    )
    true = truth.values(best, DAYS)
    return [{**row, "seed": seed, "truth": true[row["target"]]} for row in rows if row["target"] in true]


def shown(rows: list[Row], targets: Sequence[str]) -> None:
    """A table: a line for each estimator that says something about these targets."""
    print(f"\n| estimator | {' | '.join(f'bias of {target}' for target in targets)} | interval covers | seconds |")
    print("|---|" + "---|" * (len(targets) + 2))
    for name in dict.fromkeys(row["estimator"] for row in rows if row["target"] in targets):
        own = [row for row in rows if row["estimator"] == name and row["target"] in targets]
        biases = " | ".join(bias([row for row in own if row["target"] == target]) for target in targets)
        sure = [row for row in own if row["low"] is not None]
        covers = sum(row["low"] <= row["truth"] <= row["high"] for row in sure)
        seconds = statistics.median(row["seconds"] for row in own)
        print(f"| {name} | {biases} | {f'{covers} of {len(sure)}' if sure else '–'} | {seconds:.2g} |")


def bias(rows: list[Row]) -> str:
    """Mean ± standard deviation over the logs on which a number was given."""
    errors = [row["value"] / row["truth"] - 1 for row in rows if row["value"] is not None]
    if not errors:
        return "withheld"
    spread = f" ± {statistics.stdev(errors):.1%}" if len(errors) > 1 else ""
    some = "" if len(errors) == len(rows) else f" ({len(rows) - len(errors)} of {len(rows)} withheld)"
    return f"{statistics.mean(errors):+.1%}{spread}{some}"


def main() -> None:
    """Ask everybody about every log, print and write the result."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--users", type=int, default=140_000, help="of whom 15% are in the certify split")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--steps", type=int, default=5000, help="gradient steps of everything that the peers fit")
    given = options.parse_args()
    OUT.mkdir(exist_ok=True)
    python = peer_python(SCOPE_RL)
    rows = [row for seed in range(given.seeds) for row in one_log(seed, given.users, given.steps, python)]
    keep("evaluation_peers", **vars(given), peers=SCOPE_RL, rows=rows)
    names = list(dict.fromkeys(row["target"].split("@")[0] for row in rows))
    for unit in ("", *(f"@{k}" for k in DAYS)):
        shown(rows, [name + unit for name in names])


if __name__ == "__main__":
    main()
