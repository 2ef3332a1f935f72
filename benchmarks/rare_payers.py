"""A world of one day in which one user in 10,000 is a firm: what a discount costs, and a policy that is over its limit.

    python benchmarks/trust.py --worlds "rare payers" "rare payers, stated" --seeds 40 --users 40000

A discount of 0 or 10% of the basket, drawn evenly. 30% of users buy for 10, log-normal with σ = 0.5; a firm buys
always, for 12,000. The policy gives everybody 10%, and the limit is 90% of what that truly costs, so that every
certificate is false. The largest cost is stated, or else the log has at least one firm that was given the discount:
what nobody in the log ever cost, no log reveals. 15% of users certify.

Source: ours; outside reviewers found that most of such logs were certified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FIRMS, BASKET, SIGMA, FIRM, BUYS, DISCOUNT = 1e-4, 10.0, 0.5, 12_000.0, 0.3, 0.1
MEAN = (1 - FIRMS) * BUYS * BASKET * float(np.exp(SIGMA**2 / 2)) + FIRMS * FIRM  # of a basket
CAMPAIGN = """[campaign]
name = "rare payers"
discount = 0.0
horizon_days = 1
report_days = [1]
none = 0.0
[log]
source = "log.parquet"
user = "user"
time = "day"
action = "a"
reward = "revenue"
propensity = "p"
terminal = "last"
[log.features]
categorical = []
numeric = ["x0", "x1"]
[[budget]]
name = "coupon_cost"
cost = "cost"
at_most = {limit}
per = "decision"
money = true
{reserve}
"""


@dataclass(frozen=True)
class RarePayers:
    """The world; `stated`: whether the campaign file has the largest cost."""

    name: str
    stated: bool

    at_most = 0.9 * DISCOUNT * MEAN
    horizon = 1

    def write(self, folder: Path, users: int, seed: int) -> tuple[Path, Path]:
        """Write a log, its campaign file, and "10% for everybody" as a policy; the paths of the latter two."""
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        while True:
            a, firm = DISCOUNT * (rng.random(users) < 0.5), rng.random(users) < FIRMS
            if self.stated or (firm & (a > 0)).any():
                break
        basket = (rng.random(users) < BUYS) * BASKET * np.exp(SIGMA * rng.standard_normal(users))
        basket = np.where(firm, FIRM, basket)
        x, names = rng.standard_normal((2, users)), [f"{seed}_{i}" for i in range(users)]
        keys = {"user": names, "day": np.zeros(users, np.int64)}
        log = {
            **keys,
            "a": a,
            "revenue": basket,
            "cost": a * basket,
            "p": np.full(users, 0.5),
            "last": np.ones(users, np.bool_),
            "x0": x[0],
            "x1": x[1],
        }
        pq.write_table(pa.table(log), folder / "log.parquet")
        pq.write_table(pa.table({**keys, "0": np.zeros(users), "0.1": np.ones(users)}), folder / "policy.parquet")
        reserve = f'reserve = "a * {FIRM:g}"' if self.stated else ""
        path = folder / "campaign.toml"
        path.write_text(CAMPAIGN.format(limit=self.at_most, reserve=reserve))
        return path, folder / "policy.parquet"

    def truth(self) -> dict[str, dict[str, float]]:
        """What that policy and the log's bring and cost."""
        spent = {"mixture": DISCOUNT * MEAN, "old": DISCOUNT * MEAN / 2}
        revenue = {"reward": MEAN, "reward@1": MEAN, "reward/later": MEAN}
        return {name: {**revenue, "coupon_cost": cost, "coupon_cost@1": cost} for name, cost in spent.items()}


RARE: Mapping[str, RarePayers] = {
    world.name: world for world in (RarePayers("rare payers", False), RarePayers("rare payers, stated", True))
}
