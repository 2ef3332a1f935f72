"""Starbucks' promotion: whom to mail, judged on users whom nobody learned from, beside its published figures.

    git clone https://github.com/01KAT1/Marketing-Promotion-Campaign-Uplift-Modelling-Starbucks-Dataset /tmp/starbucks
    python benchmarks/public_starbucks.py /tmp/starbucks --seeds 1 2 3 --budget 0.03 0.05 0.09

The ground: a promotion was mailed to one user in two, drawn at random, for 0.15 dollars; a purchase brings 10. 84,534
users teach (`training.csv`) and 41,650 judge (`Test.csv`), by its own two scores over the users that a policy mails,
of whom n₁ were mailed and n₀ were not:

    IRR = purchases₁ / n₁ − purchases₀ / n₀                      incremental response rate
    NIR = 10·purchases₁ − 0.15·n₁ − 10·purchases₀                net incremental revenue, dollars

Standard errors: of two binomial shares; and of a sum over all users who judge, each of whom might have been drawn the
other way. Outlay learns the net revenue under a budget of dollars for mails per user (0.15 mails all), with all
defaults. The S- and T-learners of LightGBM (100 trees of at least 200 rows a leaf) rank users by what a mail adds, and
mail as many as outlay did, or the whole budget. *Behind a cap*: the mixture that keeps no margin below the budget.

Published: the company's own best model IRR 0.0188, NIR 189.45; what readers of the data reported on Test.csv without
errors: 0.0179 and 282.60, 0.0203 and 475.60. Mails per user were not told; where half of the mailed were drawn they are
2 NIR / (10 IRR − 0.15) of 41,650.
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from city_peers import Learners
from hidden_worlds import behind_cap, drawn_members
from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from peers_environment import peer_python
from public_jobs import job
from results import head, keep

Mailed = NDArray[np.bool_]
CATEGORICAL, NUMERIC = ["V1", "V4", "V5", "V6", "V7"], ["V2", "V3"]
PRICE, MAIL = 10.0, 0.15
PACKAGES = ("scikit-learn==1.7.2", "lightgbm==4.6.0")
PUBLISHED = {"the company's best": (0.0188, 189.45), "a reader": (0.0179, 282.60), "another reader": (0.0203, 475.60)}

CAMPAIGN = """[campaign]
name = "promotion"
unit = "dollars"
discount = 0.0
horizon_days = 1
report_days = [1]
none = 0.0

[log]
source = "log.parquet"
user = "ID"
time = "day"
action = "mail"
actions = [0.0, 1.0]
reward = "net"
propensity = "0.5"
outcomes = ["purchase"]

[log.features]
categorical = ["V1", "V4", "V5", "V6", "V7"]
numeric = ["V2", "V3"]

[[budget]]
name = "postage"
cost = "0.15 * mail"
at_most = {at_most}
per = "decision"
money = true
"""


def read(path: Path) -> Any:
    """A file of the promotion, with the mail, the net revenue and a day."""
    columns = ["ID", "Promotion", "purchase", *CATEGORICAL, *NUMERIC]
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=columns))
    mail = np.asarray(table["Promotion"]).astype(str) == "Yes"
    net = PRICE * table["purchase"].to_numpy() - MAIL * mail
    kept = table.select(["ID", "purchase", *CATEGORICAL, *NUMERIC])
    for name, values in {"mail": mail.astype(float), "net": net, "day": np.zeros(len(mail), int)}.items():
        kept = kept.append_column(name, pa.array(values))
    return kept


def scores(test: Any, mailed: Mailed) -> dict[str, float]:
    """IRR and NIR of the users `[n]` that a policy mails, with standard errors."""
    was, bought = test["mail"].to_numpy() == 1, test["purchase"].to_numpy()
    with_, without = bought[mailed & was], bought[mailed & ~was]
    worth = mailed * np.where(was, PRICE * bought - MAIL, -PRICE * bought)
    return {
        "mails": float(mailed.mean()),
        "spend": MAIL * float(mailed.mean()),
        "irr": float(with_.mean() - without.mean()),
        "irr_se": float(np.sqrt(with_.var() / len(with_) + without.var() / len(without))),
        "nir": float(worth.sum()),
        "nir_se": float(worth.std() * np.sqrt(len(worth))),
    }


def served(bundle: Bundle, test: Any) -> Mailed:
    """Whom a mixture mails, every user keeping one member."""
    seen = bundle.schema.encode(test)
    actions = np.stack([action for action, _ in bundle.choices(seen.codes, seen.numbers)])
    drawn = drawn_members(bundle, len(test))
    return np.asarray(actions[drawn, np.arange(len(test))] == 1)


def encoded(table: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The features as the peers take them: codes from 0, and numbers."""
    codes = np.column_stack([table[name].to_numpy() for name in CATEGORICAL])
    return codes - 1, np.column_stack([table[name].to_numpy() for name in NUMERIC])


def ranked(train: Any, test: Any, folder: Path) -> dict[str, tuple[NDArray[np.float64], float]]:
    """`[n]` what a mail adds for each user who judges, by the S- and the T-learner, and their seconds."""
    codes, numbers = encoded(train)
    action = train["mail"].to_numpy().astype(int)
    np.savez(
        folder / "log.npz",
        codes=codes,
        numbers=numbers,
        sizes=codes.max(axis=0) + 1,
        action=action,
        rows_1=np.arange(len(train)),
        label_1=np.column_stack([train["net"].to_numpy(), MAIL * action]),
    )
    asked, found = Learners(peer_python(PACKAGES), folder / "log.npz", folder), {}
    for kind in ("S", "T"):
        began = time.perf_counter()
        told = asked.tell(asked.fit(fit=kind, days=1), *encoded(test))[0]
        found[kind] = told[:, 1] - told[:, 0], time.perf_counter() - began
    asked.close()
    return found


def best(added: NDArray[np.float64], users: int) -> Mailed:
    """The users for whom a mail adds most, so many."""
    mailed = np.zeros(len(added), bool)
    mailed[np.argsort(-added, kind="stable")[:users]] = True
    return mailed


def row(title: str, these: list[dict[str, Any]], budget: str, cost: str) -> str:
    """A line of the table: the median over seeds, and the worst NIR."""
    middle = {k: float(np.median([r[k] for r in these])) for k in ("mails", "irr", "irr_se", "nir", "nir_se")}
    worst = f"{min(r['nir'] for r in these):,.0f}" if len(these) > 1 else "–"
    return (
        f"| {title} | {budget} | {middle['mails']:.4f} | {middle['irr']:.4f} ± {middle['irr_se']:.4f} | "
        f"{middle['nir']:,.0f} ± {middle['nir_se']:,.0f} | {worst} | {cost} |"
    )


def main() -> None:
    """Print a line per run and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a copy of the repository with training.csv and Test.csv")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--budget", nargs="+", type=float, default=[0.03, 0.05, 0.09], metavar="DOLLARS-PER-USER")
    parser.add_argument("--train", default="", help="further options of outlay train, in one string")
    asked = parser.parse_args()
    train, test = read(asked.checkout / "training.csv"), read(asked.checkout / "Test.csv")
    everyone, runs = scores(test, np.ones(len(test), bool)), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(train, folder / "log.parquet")
        peers = ranked(train, test, folder)
        for budget in asked.budget:
            (folder / "campaign.toml").write_text(CAMPAIGN.format(at_most=budget))
            for seed in asked.seeds:
                run = folder / f"run-{budget:g}-{seed}"
                found = job(folder / "campaign.toml", run, seed=seed, options=shlex.split(asked.train))
                bundle = load_bundle(run / "bundle")
                mailed, capped = served(bundle, test), scores(test, served(behind_cap(bundle), test))
                beside = {kind: scores(test, best(added, int(mailed.sum()))) for kind, (added, _) in peers.items()}
                full = {
                    kind: scores(test, best(added, round(budget / MAIL * len(test))))
                    for kind, (added, _) in peers.items()
                }
                runs.append({**found, **scores(test, mailed), "budget": budget, "equal": beside, "at_budget": full})
                runs[-1]["behind_cap"] = capped
                print(json.dumps(runs[-1]), flush=True)
    keep("public_starbucks", everyone=everyone, runs=runs, peers_s={k: s for k, (_, s) in peers.items()})
    print(head("method", "budget", "mails per user", "IRR ± se", "NIR ± se", "worst seed", "seconds, GB"))
    for title, (irr, nir) in PUBLISHED.items():
        mails = 2 * nir / (PRICE * irr - MAIL) / len(test)
        print(f"| {title}, published | – | ≈ {mails:.2f} | {irr:.4f} | {nir:,.0f} | – | – |")
    print(row("mail all", [everyone], "–", "–"))
    for budget in asked.budget:
        these = [r for r in runs if r["budget"] == budget]
        seconds = np.median([r["train_s"] + r["evaluate_s"] for r in these])
        print(row("outlay", these, f"{budget:g}", f"{seconds:.0f}, {max(r['peak_gb'] for r in these):.2f}"))
        print(row("outlay, behind a cap", [r["behind_cap"] for r in these], f"{budget:g}", "–"))
        for kind, (_, took) in peers.items():
            print(row(f"LightGBM {kind}-learner, as many mails", [r["equal"][kind] for r in these], "–", f"{took:.0f}"))
            print(row(f"LightGBM {kind}-learner", [these[0]["at_budget"][kind]], f"{budget:g}", f"{took:.0f}"))
    print()
    print(head("budget", "seed", "unspent", "told, $ per user", "certified", "verdict", "constants"))
    for r in runs:
        value, low, high = r["told"]["reward"]
        told = f"{value:.3f} ({low:.3f} to {high:.3f})"
        print(
            f"| {r['budget']:g} | {r['seed']} | {1 - r['spend'] / r['budget']:.1%} | {told} | "
            f"{'yes' if r['certified'] else 'no'} | {r['verdict']} | {r['to_constants']:.0%} |"
        )


if __name__ == "__main__":
    main()
