"""A bundle of two random policies, and rows for it: for tests of what decides for whole files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.arrays import Dense, NetworkArrays
from outlay.core.campaign import Campaign
from outlay.core.schema import Categorical, Numeric, Schema


def network(seed: int) -> NetworkArrays:
    rng = np.random.default_rng(seed)

    def dense(width: int, out: int) -> Dense:
        return rng.normal(0, 0.5, (2, width, out)).astype(np.float32), rng.normal(0, 0.1, (2, out)).astype(np.float32)

    embedding = rng.normal(0, 1, (2, 5, 4)).astype(np.float32)
    return NetworkArrays(embedding, np.array([0]), (dense(6, 8),), dense(8, 6), None, 3)


def make_bundle(folder: Path, **log: Any) -> Bundle:
    features = {"categorical": ["city"], "numeric": ["spend / 2"]}
    roles = {"source": "x.parquet", "user": "user_id", "time": "day", "action": "coupon", "reward": "active"}
    content = {
        "campaign": {"name": "coupons"},
        "log": {**roles, "features": features, **log},
        "budget": [{"name": "coupon_cost", "cost": "coupon", "at_most": 1.2}],
    }
    schema = Schema((Categorical("city", ("Lyon", "Ulm")),), (Numeric("spend / 2", 5, 2),))
    members = tuple(MemberSpec(network(i), w, [1.0], [1.0, -i], [0.1, 1.0]) for i, w in enumerate((0.6, 0.4)))
    campaign = Campaign.parse(content, folder / "campaign.toml")
    write_bundle(folder, BundleSpec(campaign, schema, [0.0, 1.5, 3.0], ("reward", "coupon_cost"), members))
    return load_bundle(folder)


def make_rows(count: int) -> Any:
    rng = np.random.default_rng(0)
    cities = rng.choice(["Lyon", "Ulm", "Oslo"], count, p=[0.6, 0.39, 0.01]).tolist()
    columns = {"user_id": [f"u{i}" for i in range(count)], "city": cities, "spend": rng.integers(0, 20, count)}
    return pa.table(columns)
