"""Small logs and campaign files for the tests of check, prepare and init."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

CAMPAIGN = """
[campaign]
name = "test"
discount = {discount}
{campaign}
[log]
source = "{source}"
user = "user_id"
time = "day"
action = "coupon"
reward = "active"
{log}
[log.features]
categorical = {categorical}
numeric = {numeric}
[[budget]]
name = "coupon_cost"
cost = "coupon * active"
at_most = 1.2
{tail}
"""


def panel(users: int = 30, days: int = 4, seed: int = 0) -> dict[str, list[Any]]:
    """A row per user and day, in the order of users and days; actions 1, 2, 3 at random."""
    rng = np.random.default_rng(seed)
    rows = users * days
    return {
        "user_id": [f"u{i // days}" for i in range(rows)],
        "day": [i % days for i in range(rows)],
        "level": rng.integers(0, 3, rows).tolist(),
        "spend": rng.normal(10, 4, rows).round(2).tolist(),
        "coupon": rng.integers(1, 4, rows).astype(float).tolist(),
        "active": rng.integers(0, 2, rows).tolist(),
        "p": [1 / 3] * rows,
    }


def campaign_file(
    folder: Path,
    columns: dict[str, Any],
    *,
    name: str = "log.parquet",
    log: str = "",
    campaign: str = "",
    discount: float = 0.8,
    categorical: str = '["level"]',
    numeric: str = "[]",
    tail: str = "",
) -> Path:
    """Write a log and its campaign file; the path of the latter."""
    table = pa.table(columns)
    if name.endswith(".parquet"):
        pq.write_table(table, folder / name)
    else:
        with (
            pa.CompressedOutputStream(folder / name, "gzip")
            if name.endswith(".gz")
            else (folder / name).open("wb") as f
        ):
            pacsv.write_csv(table, f)
    path = folder / "campaign.toml"
    path.write_text(
        CAMPAIGN.format(
            source=name,
            log=log,
            campaign=campaign,
            discount=discount,
            categorical=categorical,
            numeric=numeric,
            tail=tail,
        )
    )
    return path
