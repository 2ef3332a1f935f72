"""Are the estimates of one run on a wide log right? Beside each stands what the policy brings, by simulation.

    outlay simulate wide --out log --users 600000 --fields 1000 --values 100000
    outlay train log/campaign.toml --out run
    outlay evaluate run
    python benchmarks/wide_truth.py log run                       # a minute

Ground: the log and the run that are given. The truth is known to about 0.2%, from 50,000 users with the same random
numbers for both policies.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from city_coverage import DAYS
from outlay.bundles.read import load_bundle
from outlay.simulators.wide import WideWorld
from results import head
from wide_coverage import parts_of, true_values


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="folder that outlay simulate wide wrote")
    parser.add_argument("run", type=Path, help="folder that outlay train wrote and outlay evaluate has evaluated")
    asked = parser.parse_args()
    bundle = load_bundle(asked.run / "bundle")
    parts, weights = parts_of(bundle)
    true = true_values(WideWorld.read(asked.log), [field.name for field in bundle.schema.categorical])
    truth = {"mixture": true(*parts, weights=weights, days=DAYS).value, "old": true(None, days=DAYS).value}
    print(head("policy", "per user", "estimate, 95%", "truth"))
    told = json.loads((asked.run / "estimates.json").read_text(encoding="utf-8"))
    for row in told["estimates"] + told["beside"]:
        known = truth.get(row["policy"], {}).get(row["target"])
        by = "observed" if row["policy"] == "old" else "fqe"
        if row["estimator"] == by and "@" in row["target"] and known is not None and row["low"] is not None:
            half = (row["high"] - row["low"]) / 2
            print(f"| {row['policy']} | {row['target']} | {row['value']:.3f} ±{half:.3f} | {known:.3f} |")


if __name__ == "__main__":
    main()
