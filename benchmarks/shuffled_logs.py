"""How often a gain is claimed on real logs in which there is none: copies whose actions were dealt out anew.

    python benchmarks/shuffled_logs.py --copies 10 --starbucks /tmp/starbucks

The ground: real logs whose columns of the action are permuted over the rows (of one period, where they have periods),
so that no action does anything to the reward. Costs follow the action as the campaign file says. Each copy is learned
from and evaluated with all defaults. A gain that is claimed ("serve") is false; "promising" asks for a test that would
find nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

import outlay
from outlay.core.campaign import Campaign
from own_looks import count_looks_in
from results import head, keep

ROOT = Path(__file__).parents[1]
STARBUCKS = """[campaign]
name = "promotion"
none = "No"
[log]
source = "log.parquet"
action = "Promotion"
reward = "purchase"
randomised = true
[log.features]
categorical = ["V1", "V4", "V5", "V6", "V7"]
numeric = ["V2", "V3"]
[[budget]]
name = "postage"
cost = { Yes = 0.15 }
at_most = 0.05
"""


@dataclass(frozen=True)
class Ground:
    """A real log: its campaign file, and the columns that are dealt out anew within groups of rows."""

    campaign: Path
    columns: tuple[str, ...]
    within: tuple[str, ...] = ()


def grounds(starbucks: Path | None, folder: Path) -> dict[str, Ground]:
    """Those that are on this machine."""
    found = {
        "charitable_match": Ground(
            ROOT / "examples" / "charitable_match" / "campaign.toml", ("treatment", "treat_ratio2", "treat_ratio3")
        ),
        "couponsretailer": Ground(
            ROOT / "examples" / "couponsretailer" / "campaign.toml",
            ("coupons_Any",),
            ("period", "coupons_Any_preperiod"),
        ),
    }
    if starbucks is not None:
        path = folder / "starbucks.toml"
        path.write_text(STARBUCKS.replace("log.parquet", str(starbucks / "training.csv")))
        found["starbucks"] = Ground(path, ("Promotion",))
    return {name: ground for name, ground in found.items() if _is_there(ground)}


def _is_there(ground: Ground) -> bool:
    source = Campaign.load(ground.campaign).source
    return isinstance(source, Path) and source.exists()


def shuffled(ground: Ground, folder: Path, seed: int) -> Path:
    """A copy of the log, with the ground's columns permuted; its campaign file."""
    folder.mkdir(parents=True)
    campaign = Campaign.load(ground.campaign)
    db = duckdb.connect()
    db.execute(f"CREATE TABLE log AS SELECT row_number() OVER () AS __row, * FROM '{campaign.source}'")
    groups = ", ".join(f'"{name}"' for name in ground.within) or "1"
    ranked = f"SELECT dense_rank() OVER (ORDER BY {groups}) AS g FROM log ORDER BY __row"
    order = db.execute(ranked).fetchnumpy()
    place, rng = np.arange(len(order["g"])), np.random.default_rng(seed)
    for group in np.unique(order["g"]):
        rows = np.flatnonzero(order["g"] == group)
        place[rows] = rng.permutation(rows)
    db.execute("CREATE TABLE dealt (__row BIGINT, __from BIGINT)")
    db.register("given", {"a": place + 1, "b": np.arange(1, len(place) + 1)})
    db.execute("INSERT INTO dealt SELECT b, a FROM given")
    replaced = ", ".join(f'o."{name}" AS "{name}"' for name in ground.columns)
    db.execute(
        f"COPY (SELECT l.* EXCLUDE (__row) REPLACE ({replaced}) FROM log l JOIN dealt USING (__row) "
        f"JOIN log o ON o.__row = __from ORDER BY l.__row) TO '{folder / 'log.parquet'}' (FORMAT parquet)"
    )
    text = ground.campaign.read_text().splitlines()
    lines = ['source = "log.parquet"' if line.startswith("source = ") else line for line in text]
    path = folder / "campaign.toml"
    path.write_text("\n".join(lines))
    return path


def main() -> None:
    """Print a line per copy and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--starbucks", type=Path, help="a copy of the repository that public_starbucks.py names")
    parser.add_argument("--only", nargs="+", help="names of logs")
    options = parser.parse_args()
    found: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count_looks_in(folder)
        for ground_name, ground in grounds(options.starbucks, folder).items():
            if options.only and ground_name not in options.only:
                continue
            found[ground_name] = Counter()
            for copy in range(options.copies):
                path = shuffled(ground, folder / f"{ground_name}-{copy}", copy)
                result = outlay.evaluate(outlay.train(path, path.parent / "run", seed=copy))
                found[ground_name][str(result.verdict.kind)] += 1
                print(ground_name, copy, result.verdict.kind, result.verdict.words[:100], flush=True)
    keep("shuffled_logs", verdicts={name: dict(kinds) for name, kinds in found.items()})
    print(head("log", "copies", "a gain claimed", "promising", "verdicts"))
    for name, kinds in found.items():
        listed = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        claimed = kinds["serve"] + kinds["behind the cap"]
        print(f"| {name} | {kinds.total()} | {claimed} | {kinds['promising']} | {listed} |")


if __name__ == "__main__":
    main()
