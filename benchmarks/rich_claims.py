"""Claims about policies between features: what `outlay train` and `evaluate` say, held against the truth.

    .venv/bin/python benchmarks/rich_claims.py                # 24 campaigns (an hour): make bench-claims
    .venv/bin/python benchmarks/rich_claims.py --campaigns 8

Campaigns of `slow_habits.py`: 20 features, no state met twice, habits that move over weeks; 7 and 21 days of log,
discount 0.9 and 0.8, with and without a counter that only grows, and limits at which the best policies gain little or
nothing. Each is trained as `outlay train` does by default, one training for every budget with a small network, and
evaluated.

    gains claimed       verdicts that are sure of a gain over the old policy, those where the truth is a loss, and those
                        where it is less than they are sure of
    certified           certificates, and those where the true cost is over its limit
    coverage            of the 95% intervals of recommended totals of k days, old and served policy
    served              verdicts "Serve it"

All in the unit that the verdict is in: means over the days claimed, or discounted where it claims those. A loss or an
excess counts where it is beyond `NOISE`, which the truth itself, a mean over 20,000 simulated users, may be off.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import outlay
from outlay.bundles.read import load_bundle
from outlay.core.errors import InfeasibleError
from outlay.evaluating.verdict import VerdictKind
from own_looks import count_looks_in
from slow_habits import World, served

OUT = Path(__file__).parent / "out" / "rich_claims.json"
NOISE = 0.002  # of the value
TRAIN = {"layers": [32, 16]}
USERS = {7: 20_000, 21: 8_000}


def main() -> None:
    """Run the campaigns, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=24)
    parser.add_argument("--first", type=int, default=0, help="number of the first campaign")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(asked.first, asked.first + asked.campaigns):
        rows.append(campaign(number))
        asked.out.write_text(json.dumps(rows, indent=1))
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "totals"}), flush=True)
    print(table(rows))


def world_of(number: int) -> World:
    """The campaigns in their order: every eight go through days, discount and counter."""
    return World(
        days=(7, 21)[number % 2],
        discount=(0.9, 0.8)[number // 2 % 2],
        counter=bool(number // 4 % 2),
        at_most=(0.6, 0.75, 0.9)[number % 3],
        train=TRAIN,
    )


def campaign(number: int) -> dict[str, Any]:
    """One campaign: what was said, and what is true."""
    world, began = world_of(number), time.perf_counter()
    row: dict[str, Any] = {
        "number": number,
        "days": world.days,
        "discount": world.discount,
        "counter": world.counter,
        "limit": world.at_most,
    }
    with tempfile.TemporaryDirectory() as folder:
        count_looks_in(Path(folder))
        path = world.write(Path(folder) / "log", users=USERS[world.days], seed=1000 + number)
        try:
            outlay.train(path, Path(folder) / "run", seed=number)
        except InfeasibleError as error:
            return {**row, "verdict": f"not trained: {error.found}", "certified": False, "claims": False, "totals": []}
        found = outlay.evaluate(Path(folder) / "run")
        new = world.daily(None), served(world, load_bundle(Path(folder) / "run" / "bundle"))
    window = found.window
    days = None if window is None else window.days
    spans = sorted({1, 3, 7, world.days, days or 1})
    before, after = (world.value(daily, spans) for daily in new)
    reward, cost = ("reward", "coupon_cost") if days is None else (f"reward@{days}", f"coupon_cost@{days}")
    per = 1 if days is None else days
    certificate = found.certificate
    gain = after[reward] / before[reward] - 1
    said = None if certificate.gain is None else certificate.gain / (before[reward] / per)
    least = None if certificate.gain_bound is None else certificate.gain_bound / (before[reward] / per)
    claims = certificate.certified and least is not None and least > 0
    return {
        **row,
        "window": days,
        "verdict": found.verdict.kind,
        "certified": certificate.certified,
        "claims": claims,
        "gain_said": said,
        "gain_least": least,
        "gain_true": gain,
        "gain_true_discounted": after["reward"] / before["reward"] - 1,
        "cost_true": after[cost] / per,
        "over": bool(certificate.certified and after[cost] / per > world.at_most * (1 + NOISE)),
        "false_gain": bool(claims and gain < -NOISE),
        "false_bound": bool(claims and least is not None and gain < least - NOISE),
        "totals": [
            {
                "policy": e.policy,
                "target": e.target,
                "value": e.value,
                "low": e.low,
                "high": e.high,
                "true": (before if e.policy == "old" else after)[e.target],
            }
            for e in (*found.beside, *found.estimates)
            if e.policy in ("old", found.subject)
            and e.estimator == "fqe"
            and e.recommended
            and "@" in e.target
            and e.target in before
        ],
        "seconds": time.perf_counter() - began,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, a line for each length of log and discount, and one for all."""
    counted = {
        "gain claimed": "claims",
        "a loss in truth": "false_gain",
        "less than said to be sure": "false_bound",
        "certified": "certified",
        "over in truth": "over",
    }
    head = ["log", "campaigns", *counted, "coverage of totals", "Serve it"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    kinds = [(days, discount) for days in (7, 21) for discount in (0.9, 0.8)]
    groups = [(f"{k[0]} days, γ {k[1]:g}", [r for r in rows if (r["days"], r["discount"]) == k]) for k in kinds]
    for name, part in [*groups, ("all", rows)]:
        totals = [t for row in part for t in row["totals"] if t["low"] is not None]
        inside = sum(t["low"] <= t["true"] <= t["high"] for t in totals)
        cells = [
            len(part),
            *(sum(bool(row.get(key)) for row in part) for key in counted.values()),
            f"{inside} of {len(totals)}",
            sum(row["verdict"] == VerdictKind.SERVE for row in part),
        ]
        lines.append(f"| {' | '.join(map(str, [name, *cells]))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
