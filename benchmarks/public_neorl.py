"""NeoRL's sales promotion: a policy learned from a random log of it, beside constants of equal cost and its figures.

    git clone https://github.com/polixir/NeoRL /tmp/neorl
    python benchmarks/public_neorl.py /tmp/neorl --seeds 1 2 3 --cost 291 133 52 23

The ground: a user model that its authors learned from a real coupon log, and 10,000 users for 30 days; each morning a
user is given 0 to 5 coupons with a price factor. Its score is the mean over users of the sum over 30 days of value −
cost, where value is net of coupons already. The log of its authors cannot be had, so ours is another: the same users,
with one of eight offers drawn evenly each day (`OFFERS`). Of the 18 numbers that drive a user, four are seen.

`--cost` are costs of 30 days per user, each a limit of its own. What is served is played twice: the mixture that is
certified, and the one behind a cap, which keeps no margin. Constants of equal cost are the best mixture of two
offers, by games of every offer alone with the first seed (an offer's scores have a standard deviation of 1 to 2 over 15
seeds). Published (`raw_results.json`, key `sp-human-10000`, three seeds, from the authors' log, costs not reported): BC
466, BREMEN 477, CRR 636, MOPO 728, CQL 741, BCQ 836, PLAS 893.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import outlay
from hidden_worlds import behind_cap, drawn_members, past_features
from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.ops.mixture_lp import value_at
from own_looks import count_looks_in
from peers_environment import NEORL, PEERS, peer_python
from results import head, keep

Floats = NDArray[np.float64]
OFFERS = np.array([[0, 0.95], [1, 0.95], [1, 0.9], [1, 0.8], [1, 0.7], [1, 0.6], [5, 0.95], [5, 0.8]])
DAYS, USERS = 30, 10_000
SEEN = ("orders_so_far", "orders_a_day", "fee_a_day", "weekday")

CAMPAIGN = """[campaign]
name = "sales promotion"
unit = "yuan"
discount = {discount}
horizon_days = {days}
report_days = [1, 7, {days}]
none = 0.0

[log]
source = "log.parquet"
user = "user"
time = "day"
action = "offer"
actions = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
reward = "score"
propensity = "p"
{history}
[log.features]
categorical = ["weekday"]
numeric = ["orders_so_far", "orders_a_day", "fee_a_day"]

[[budget]]
name = "coupons"
cost = "cost"
at_most = {at_most}
per = "decision"
money = true
"""


class Game:
    """The peers' environment in a process of its own."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        python = peer_python(NEORL)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [str(python), str(PEERS.parent / "peers" / "neorl_sales.py"), str(checkout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start(self, seed: int) -> Floats:
        """`[users, 4]` what is seen of each user on the first morning."""
        return self._ask(seed=seed)

    def play(self, action: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Give every user an offer: what is seen tomorrow, the day's score (value − cost), and its cost."""
        np.save(self._folder / "actions.npy", OFFERS[action])
        answer = self._ask(actions=str(self._folder / "actions.npy"))
        return answer[:, :4], answer[:, 4] - answer[:, 5], answer[:, 5]

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()

    def _ask(self, **question: Any) -> Floats:
        path = self._folder / "outcomes.npy"
        self._process.stdin.write(json.dumps({**question, "outcomes": str(path)}) + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        if not self._process.stdout.readline():  # type: ignore[union-attr]
            raise SystemExit(f"the game of NeoRL stopped: run {' '.join(map(str, self._process.args))} by hand")  # type: ignore[arg-type]
        return np.load(path)  # type: ignore[no-any-return]


# From what is seen today, and `[users, 3]` action, score and cost of each day before.
Policy = Callable[[Floats, list[Floats]], NDArray[np.int64]]


def played(game: Game, policy: Policy, seed: int, record: list[pa.Table] | None = None) -> tuple[float, float]:
    """Score and cost of 30 days per user; with `record`, its rows."""
    past: list[Floats] = []
    seen, sums = game.start(seed), np.zeros(2)
    for day in range(DAYS):
        action = policy(seen, past)
        after, score, cost = game.play(action)
        if record is not None:
            columns = dict(zip(SEEN, seen.T, strict=True))
            record.append(
                pa.table(
                    {
                        "user": np.arange(USERS),
                        "day": np.full(USERS, day),
                        **columns,
                        "weekday": seen[:, 3].astype(int),
                        "offer": action.astype(float),
                        "score": score,
                        "cost": cost,
                        "p": np.full(USERS, 1 / len(OFFERS)),
                    }
                )
            )
        past.append(np.column_stack([action, score, cost]))
        sums += [score.mean(), cost.mean()]
        seen = after
    return float(sums[0]), float(sums[1])


def served(bundle: Bundle) -> Policy:
    """What a bundle does, every user keeping one member."""
    drawn = drawn_members(bundle, USERS)

    def act(seen: Floats, past: list[Floats]) -> NDArray[np.int64]:
        columns: dict[str, Any] = {**dict(zip(SEEN, seen.T, strict=True)), "weekday": seen[:, 3].astype(int)}
        if bundle.history is not None:
            names = ["action", "reward", "coupons"]
            columns |= dict(zip(bundle.history.names, past_features(bundle.history, past, names, USERS).T, strict=True))
        encoded = bundle.schema.encode(pa.table({n: np.ascontiguousarray(c) for n, c in columns.items()}))
        chosen = np.stack([action for action, _ in bundle.choices(encoded.codes, encoded.numbers)])
        return np.asarray(chosen[drawn, np.arange(USERS)])

    return act


def write(folder: Path, rows: list[pa.Table], at_most: float, discount: float, history: str) -> Path:
    """The log and its campaign file; the latter's path."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.concat_tables(rows), folder / "log.parquet")
    path = folder / "campaign.toml"
    path.write_text(CAMPAIGN.format(discount=discount, days=DAYS, at_most=at_most, history=history))
    return path


def main() -> None:
    """Print a line per run and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a copy of github.com/polixir/NeoRL")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--cost", nargs="+", type=float, default=[291.0, 133.0, 52.0, 23.0], metavar="30-DAY-COST")
    parser.add_argument("--discount", type=float, default=0.9)
    parser.add_argument("--past", type=int, default=28, help="days of [log.history]; 0: none")
    parser.add_argument("--hold", choices=("certified", "serving"), help="what keeps the limit; default: a certificate")
    parser.add_argument("--oracle", help="a learner instead of the default")
    options = parser.parse_args()
    history = (
        f'[log.history]\ndays = {options.past}\ncolumns = ["reward", "coupons"]\nsummaries = ["mean"]\n'
        if options.past
        else ""
    )
    runs, constants = [], np.empty((0, 2))
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            count_looks_in(folder)
            game, rng = Game(options.checkout, folder / "game"), np.random.default_rng(seed)
            rows: list[pa.Table] = []
            old = played(game, lambda *_: rng.integers(len(OFFERS), size=USERS), seed, rows)  # noqa: B023
            if not len(constants):
                constants = np.array(
                    [played(game, lambda *_, a=a: np.full(USERS, a), 1000 + seed) for a in range(len(OFFERS))]
                )
            print(
                f"seed {seed}: drawn {old[0]:.0f} at {old[1]:.0f}; constants", constants.round(0).tolist(), flush=True
            )
            for cost in options.cost:
                path = write(folder / f"log-{cost:g}", rows, cost / DAYS, options.discount, history)
                begin = time.time()
                asked = {"oracle": options.oracle, "hold": options.hold}
                settings = {key: value for key, value in asked.items() if value}
                trained = outlay.train(path, folder / f"run-{cost:g}", seed=seed, **settings)
                middle = time.time()
                result = outlay.evaluate(trained)
                end = time.time()
                bundle = load_bundle(trained.bundle)
                score, spent = played(game, served(bundle), 1000 + seed)
                capped = played(game, served(behind_cap(bundle)), 1000 + seed)
                told = next(
                    (
                        e
                        for e in result.estimates
                        if (e.policy, e.estimator, e.target) == (result.subject, "fqe", f"reward@{DAYS}")
                        and e.recommended
                    ),
                    None,
                )
                runs.append(
                    {
                        "seed": seed,
                        "limit": cost,
                        "score": score,
                        "cost": spent,
                        "constants at its cost": value_at(constants, spent),
                        "constants at the limit": value_at(constants, cost),
                        "behind a cap": capped[0],
                        "its cost": capped[1],
                        "constants at that cost": value_at(constants, capped[1]),
                        "told": None if told is None else [told.value, told.low, told.high],
                        "certified": result.certificate.certified,
                        "verdict": str(result.verdict.kind),
                        "train_s": middle - begin,
                        "evaluate_s": end - middle,
                    }
                )
                print(json.dumps(runs[-1]), flush=True)
            game.close()
    keep("public_neorl", runs=runs)
    columns = (
        *("score", "cost", "constants at its cost"),
        *("behind a cap", "its cost", "constants at that cost", "constants at the limit"),
    )
    print(head("limit", *columns, "intervals that hold"))
    for cost in options.cost:
        these = [r for r in runs if r["limit"] == cost]
        known = [r for r in these if r["told"] is not None and r["told"][1] is not None]
        held = sum(r["told"][1] <= r["score"] <= r["told"][2] for r in known)
        line = " | ".join(f"{np.median([r[column] for r in these]):.0f}" for column in columns)
        print(f"| {cost:g} | {line} | {held} of {len(known)} |")


if __name__ == "__main__":
    main()
