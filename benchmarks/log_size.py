"""Whether the next log is as exact as plan-log says, and costs what it says.

    python benchmarks/log_size.py --seeds 3
    python benchmarks/log_size.py --rich mild shop --users 20000 --seeds 3

The ground: the habit world, whose old policy gives 2 yuan to the less active and 1.5 to the others, but for a share
that is drawn evenly. `plan_log` reads a past log with 5% drawn. Then logs of other shares and sizes are drawn, learned
from and evaluated, and what the evaluation says of its own error is compared with the plan; what drawing costs is
compared with the exact values of both policies.

`--rich`: worlds of `known_worlds.py`, whose states are too many to count and whose logs are drawn evenly; the past log
has 20,000 users as well.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import outlay
from known_worlds import WORLDS
from outlay.ops.intervals import quantile
from outlay.ops.tabular import measure
from outlay.simulators.habit import COUPONS, DISCOUNT, INACTIVE_UP_TO, model, states
from own_looks import count_looks_in
from results import head, keep

PAST, PAST_USERS, DAYS = 0.05, 20_000, 7
# ε, users, days
NEXT = (
    (0.05, 100_000, 7),
    (0.1, 20_000, 7),
    (0.1, 60_000, 7),
    (0.3, 20_000, 7),
    (1.0, 10_000, 7),
    (0.3, 10_000, 14),
)

CAMPAIGN = f"""[campaign]
name = "habit"
unit = "yuan"
discount = {DISCOUNT}
[log]
source = "log.parquet"
user = "user"
time = "day"
action = "coupon"
actions = {COUPONS.tolist()}
reward = "active"
propensity = "p"
[log.features]
categorical = ["yesterday", "level"]
[[budget]]
name = "coupons"
cost = "cost"
at_most = 1.5
money = true
"""


def drawn(share: float) -> NDArray[np.float64]:
    """`[S, A]` the old policy, of which a share is drawn evenly."""
    _, level = states()
    usual = np.where(level <= INACTIVE_UP_TO, np.searchsorted(COUPONS, 2.0), np.searchsorted(COUPONS, 1.5))
    policy = np.full((len(level), len(COUPONS)), share / len(COUPONS))
    policy[np.arange(len(level)), usual] += 1 - share
    return policy


def played(policy: NDArray[np.float64], users: int, days: int, seed: int) -> dict[str, NDArray[Any]]:
    """A log of the habit world under a policy `[S, A]`, ordered by day; `state` and `choice` are indices."""
    world, rng = model(), np.random.default_rng(seed)
    yesterday, level = states()
    state, parts = world.newcomers(rng, users), []
    for day in range(days):
        choice = (rng.random(users)[:, None] > policy[state].cumsum(axis=1)).sum(axis=1).clip(max=len(COUPONS) - 1)
        active, after = world.day(rng, state, choice)
        parts.append((np.arange(users), np.full(users, day), state, choice, active))
        state = after
    user, days_of, state, choice, active = map(np.concatenate, zip(*parts, strict=True))
    found: dict[str, NDArray[Any]] = {"user": user, "day": days_of, "state": state, "choice": choice}
    found |= {"yesterday": yesterday[state], "level": level[state], "coupon": COUPONS[choice], "active": active}
    return found | {"cost": COUPONS[choice] * active, "p": policy[state, choice]}


def write(folder: Path, log: dict[str, NDArray[Any]]) -> Path:
    """A log; its campaign file."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({name: column for name, column in log.items() if name not in ("state", "choice")}),
        folder / "log.parquet",
    )
    path = folder / "campaign.toml"
    path.write_text(CAMPAIGN)
    return path


def half_width(log: Path, seed: int) -> float | None:
    """Half of the 95% interval of the gain that is found with a log, relative to its reward."""
    result = outlay.evaluate(outlay.train(log, log.parent / "run", seed=seed))
    [gain] = [
        d
        for d in result.differences
        if (d.estimator, d.target, d.against) == ("fqe", "reward", "old") and d.policy == result.subject
    ]
    [own] = [e for e in result.estimates if (e.policy, e.estimator, e.target) == (result.subject, "fqe", "reward")]
    old = (own.value or 0.0) - (gain.value or 0.0)
    return quantile(0.975) * gain.std_error / old if gain.std_error else None


def of_rich(names: Sequence[str], users: int, seeds: int, folder: Path) -> None:
    """Print what is planned and found on worlds of many states."""
    print(head("world", "users", "half-width planned", "found"))
    for name in names:
        for seed in range(1, seeds + 1):
            past = WORLDS[name].write(folder / f"{name}-{seed}", users=PAST_USERS, seed=seed)
            planned = outlay.plan_log(past, users=users, shares=[1.0]).sizes[0].half_width
            found = half_width(WORLDS[name].write(folder / f"{name}-next-{seed}", users=users, seed=100 + seed), seed)
            told = "withheld" if found is None else f"{found:.1%}"
            print(f"| {name} {seed} | {users:,} | {planned:.1%} | {told} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rich", nargs="+", default=[], choices=sorted(WORLDS))
    parser.add_argument("--users", type=int, default=20_000, help="of the next log of a rich world")
    options = parser.parse_args()
    cmdp, rows = model().cmdp(), list[dict[str, Any]]()
    before = float(measure(cmdp, drawn(PAST))[0])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count_looks_in(folder)
        if options.rich:
            of_rich(options.rich, options.users, options.seeds, folder)
            return
        for seed in range(1, options.seeds + 1):
            past = write(folder / f"past-{seed}", played(drawn(PAST), PAST_USERS, DAYS, seed))
            for share, users, days in NEXT:
                plan = outlay.plan_log(past, users=users, days=days, shares=[share])
                log = played(drawn(share), users, days, 100 + seed)
                path = write(folder / f"next-{seed}-{share}-{users}-{days}", log)
                found = half_width(path, seed)
                size, exact = (
                    plan.sizes[0],
                    1 - float(measure(cmdp, (1 - share) * drawn(PAST) + share * drawn(1.0))[0]) / before,
                )
                rows.append(
                    {
                        "seed": seed,
                        "share": share,
                        "users": users,
                        "days": days,
                        "supported": size.supported,
                        "planned": size.half_width,
                        "found": found,
                        "cost planned": size.cost,
                        "cost error": size.cost_error,
                        "cost exact": exact,
                    }
                )
                print(rows[-1], flush=True)
    keep("log_size", rows=rows)
    print(head("drawn", "users x days", "half-width planned / found", "cost planned", "exact"))
    for share, users, days in NEXT:
        these = [r for r in rows if (r["share"], r["users"], r["days"]) == (share, users, days)]
        ratios = [float(r["planned"]) / float(r["found"]) for r in these if r["found"]]
        cost = np.median([float(r["cost planned"]) for r in these])
        told = f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "–"
        print(f"| {share:g} | {users:,} x {days} | {told} | {100 * cost:.2f}% | {100 * these[0]['cost exact']:.2f}% |")


if __name__ == "__main__":
    main()
