"""Several limits at once on rich states: what of each is spent, what the margin leaves over, and the gap.

    python benchmarks/city_limits.py                                    # m = 1, 2, 3; three logs each (half an hour)
    python benchmarks/city_limits.py --budgets 2 --seeds 1 --folds 4 --per user

Logs of `outlay simulate city`, 30,000 users for 7 days. Limits are on the money, on how many coupons are given, and on
how many of the largest. Each training is served twice: with the grid of λ alone, and with the policies that column
generation adds to it. Shares are of the limit; `true` is simulated, over the same 7 days that the mixture is chosen by.

    spent       as select users measure it, and true
    margin      left over for the certificate
    idle        1 − spent − margin: what nothing is done with
    gap         what the critic's best response would still add, in % of the reward, with its standard error

Results: Markdown on stdout, and benchmarks/out/city_limits.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import outlay
from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.write import write_bundle
from outlay.choosing.candidates import bundle_spec
from outlay.core.progress import silent
from outlay.core.transitions import Transitions
from outlay.simulators.city import COUPONS, DAYS, City
from outlay.simulators.city_people import People
from outlay.training import column_generation, every_budget
from own_looks import count_looks_in

OUT = Path(__file__).parent / "out" / "city_limits.json"
USERS, SIMULATED = 30_000, 40_000
LIMITS = {"coupon_cost": 0.6, "sent": 0.5, "large": 0.08}
COSTS = {"sent": "case when coupon > 0 then 1 else 0 end", "large": "case when coupon >= 5 then 1 else 0 end"}


def campaign(folder: Path, budgets: int, per: str, seed: int) -> Path:
    """A log with so many limits."""
    path = outlay.simulate("city", folder, users=USERS, seed=seed)
    days = DAYS if per == "user" else 1
    text = path.read_text().replace("at_most = 0.8 ", f"at_most = {LIMITS['coupon_cost'] * days} ")
    text = text.replace('per = "decision"', f'per = "{per}"')
    for name in list(LIMITS)[1:budgets]:
        text += f'\n[[budget]]\nname = "{name}"\ncost = "{COSTS[name]}"\n'
        text += f'at_most = {LIMITS[name] * days}\nper = "{per}"\n'
    path.write_text(text)
    return path


def truth(bundle: Bundle, city: City) -> NDArray[np.float64]:
    """`[4]` reward and the three costs of a mixture, means per day of a user's first days."""
    found = []
    for member in range(len(bundle.members)):
        people = People.draw(city, SIMULATED, np.random.default_rng(77))
        total = np.zeros(4)
        for _ in range(DAYS):
            seen = bundle.schema.encode(pa.table(people.features(people.table())))
            action = np.asarray(bundle.member_actions(member, seen.codes, seen.numbers))
            chance, _ = people.live(action)
            coupon = COUPONS[action]
            total += [chance.mean(), (coupon * chance).mean(), (coupon > 0).mean(), (coupon >= 5).mean()]
        found.append(total / DAYS)
    mean: NDArray[np.float64] = bundle.weights @ np.array(found)
    return mean


def served(data: Transitions, folder: Path, city: City, folds: int, seed: int, rounds: int) -> dict[str, Any]:
    """What one training serves with so many rounds of column generation; a finished training is not made again."""
    column_generation.ROUNDS = rounds
    asked = data.campaign.with_train(folds=folds)
    learned = every_budget.learn(data, asked, "orthogonal", seed, folder, True, silent)
    chosen, gap = learned.chosen, learned.figures.to_dict()["gap"]
    write_bundle(folder / "served", bundle_spec(learned.context, chosen.members, chosen.weights))
    limit = np.array([budget.limit for budget in asked.budgets])
    spent = chosen.weights @ np.array([kept.coordinates[1:] for kept in chosen.members]) / limit
    margin = chosen.margin / limit
    real = truth(load_bundle(folder / "served"), city)
    return {
        "rounds": rounds,
        "reward": float(real[0]),
        "true": (real[1 : 1 + len(limit)] / list(LIMITS.values())[: len(limit)]).tolist(),
        "spent": spent.tolist(),
        "margin": margin.tolist(),
        "idle": (1 - spent - margin).tolist(),
        "added": gap["added"],
        "gap": gap["value"] / gap["objective"],
        "gap_error": gap["std_error"] / gap["objective"],
    }


def main() -> None:
    """Run the logs, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=int, nargs="+", default=[1, 2, 3], choices=[1, 2, 3])
    parser.add_argument("--per", default="decision", choices=["decision", "user"])
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    most, rows = column_generation.ROUNDS, []
    print("| limits | log | policies added | true reward | spent, true | margin | idle | gap, % |\n" + "|---" * 8 + "|")
    for budgets in asked.budgets:
        for seed in range(1, asked.seeds + 1):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                count_looks_in(folder)
                data = outlay.prepare(campaign(folder / "log", budgets, asked.per, seed), folder / "data")
                city = City.read(folder / "log")
                for rounds in (0, most):
                    row = served(data, folder, city, asked.folds, seed, rounds)
                    rows.append({"budgets": budgets, "seed": seed, "per": asked.per, "folds": asked.folds, **row})
                    true, margin, idle = (
                        ", ".join(f"{x:.1%}" for x in row[name]) for name in ("true", "margin", "idle")
                    )
                    print(
                        f"| {budgets} | {seed} | {row['added']} | {row['reward']:.4f} | {true} | {margin} | {idle} "
                        f"| {100 * row['gap']:.1f} ± {100 * row['gap_error']:.1f} |",
                        flush=True,
                    )
                    OUT.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
