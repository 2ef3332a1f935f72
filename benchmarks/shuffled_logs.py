"""How often a gain is claimed on real logs in which there is none: copies whose actions were dealt out anew.

    OUTLAY_DATA=FOLDER python benchmarks/shuffled_logs.py --copies 10     # those of examples/public_logs.py in FOLDER

The ground: real logs whose columns of the action are permuted over the rows (of one period, where they have periods),
so that no action does anything to the reward. Costs follow the action as the campaign file says. Each copy is learned
from and evaluated with all defaults. A gain that is claimed (serve, serve a constant) is false; "promising" asks for a
test that would find nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

import outlay
from outlay.core.campaign import Campaign

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from public_logs import campaign_in, path_of

from own_looks import count_looks_in
from results import head, keep


@dataclass(frozen=True)
class Ground:
    """Columns of a real log that are dealt out anew within groups of rows."""

    columns: tuple[str, ...]
    within: tuple[str, ...] = ()


GROUNDS = {
    "charitable_match": Ground(("treatment", "treat_ratio2", "treat_ratio3")),
    "couponsretailer": Ground(("coupons_Any",), ("period", "coupons_Any_preperiod")),
    "starbucks": Ground(("Promotion",)),
    "hillstrom": Ground(("segment",)),
    "thornton": Ground(("any",)),
    "star": Ground(("classk",)),
    "artea": Ground(("test_coupon",)),
}


def shuffled(name: str, folder: Path, seed: int) -> Path:
    """A copy of the log, with its ground's columns permuted; its campaign file."""
    folder.mkdir(parents=True)
    ground, path = GROUNDS[name], campaign_in(name, folder)
    campaign = Campaign.load(path)
    db = duckdb.connect()
    db.execute(f"CREATE TABLE log AS SELECT row_number() OVER () AS __row, * FROM '{campaign.source}'")
    groups = ", ".join(f'"{column}"' for column in ground.within) or "1"
    ranked = f"SELECT dense_rank() OVER (ORDER BY {groups}) AS g FROM log ORDER BY __row"
    order = db.execute(ranked).fetchnumpy()
    place, rng = np.arange(len(order["g"])), np.random.default_rng(seed)
    for group in np.unique(order["g"]):
        rows = np.flatnonzero(order["g"] == group)
        place[rows] = rng.permutation(rows)
    db.execute("CREATE TABLE dealt (__row BIGINT, __from BIGINT)")
    db.register("given", {"a": place + 1, "b": np.arange(1, len(place) + 1)})
    db.execute("INSERT INTO dealt SELECT b, a FROM given")
    replaced = ", ".join(f'o."{column}" AS "{column}"' for column in ground.columns)
    db.execute(
        f"COPY (SELECT l.* EXCLUDE (__row) REPLACE ({replaced}) FROM log l JOIN dealt USING (__row) "
        f"JOIN log o ON o.__row = __from ORDER BY l.__row) TO '{folder / 'log.parquet'}' (FORMAT parquet)"
    )
    lines = path.read_text(encoding="utf-8").splitlines()
    source = 'source = "log.parquet"'
    if not ground.within and campaign.log.propensity is None and not campaign.log.randomised:
        source += "\nrandomised = true"  # now it is
    path.write_text("\n".join(source if line.startswith("source = ") else line for line in lines), encoding="utf-8")
    return path


def main() -> None:
    """Print a line per copy and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=GROUNDS, default=GROUNDS, help="names of logs")
    options = parser.parse_args()
    found: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count_looks_in(folder)
        for log in filter(path_of, options.only):
            found[log] = Counter()
            for copy in range(options.copies):
                path = shuffled(log, folder / f"{log}-{copy}", copy)
                result = outlay.evaluate(outlay.train(path, path.parent / "run", seed=copy))
                found[log][str(result.verdict.kind)] += 1
                print(log, copy, result.verdict.kind, result.verdict.words[:100], flush=True)
    keep("shuffled_logs", verdicts={name: dict(kinds) for name, kinds in found.items()})
    print(head("log", "copies", "a gain claimed", "promising", "verdicts"))
    for name, kinds in found.items():
        listed = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        claimed = kinds["serve"] + kinds["behind the cap"] + kinds["constant"]
        print(f"| {name} | {kinds.total()} | {claimed} | {kinds['promising'] + kinds['test']} | {listed} |")


if __name__ == "__main__":
    main()
