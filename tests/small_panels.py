"""Tests whose truth is known: users who differ from one another and stay as they are."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.experiments.design import Experiment
from outlay.experiments.log import Run

START = datetime.date(2026, 3, 2)


def experiment(*, days: int = 14, decisions: tuple[int, ...] = (7, 14), **changes: Any) -> Experiment:
    """Two arms of a half each, with budgets of their own; unsealed."""
    arms = [{"name": name, "kind": "constant", "action": 1.0, "share": 0.5, "budget": 9e6} for name in ("old", "new")]
    content = {
        "experiment": {
            "name": "spring",
            "campaign": "habit",
            "start": START,
            "days": days,
            "metric": "active",
            "guardrails": ["cost"],
            "decisions": decisions,
        },
        "arm": arms,
    }
    return Experiment.parse(content | changes)


def panel(
    users: int = 4000, days: int = 14, *, before: int = 0, lift: float | NDArray[np.float64] = 0.0, seed: int = 0
) -> pa.Table:
    """A row per user and day: users act with a chance of their own, in arm `new` with `lift` more of it.

    An active day costs 2. In `before` days before the start nobody is in an arm. `lift` may be `[before + days]`.
    """
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, 2, users)
    chance = 0.9 * rng.beta(2, 2, users)
    day = np.arange(-before, days)
    live = (day >= 0)[None, :] & (arm == 1)[:, None]
    active = rng.random((users, len(day))) < np.clip(chance[:, None] * (1 + lift * live), 0, 1)
    return rows(active.astype(float), arm, day)


def rows(active: NDArray[np.float64], arm: NDArray[np.int64], day: NDArray[np.int64]) -> pa.Table:
    """`[users, days]` outcomes as a table; users are `u0` …, arms are missing before day 0."""
    users, days = active.shape
    days_of_rows = np.tile(day, users)
    return pa.table(
        {
            "user": np.char.add("u", np.repeat(np.arange(users), days).astype(str)),
            "day": days_of_rows,
            "arm": pa.array(np.array(["old", "new"])[np.repeat(arm, days)], mask=days_of_rows < 0),
            "active": active.ravel(),
            "cost": 2.0 * active.ravel(),
        }
    )


def opened(log: pa.Table) -> Run:
    """A DuckDB connection that knows the table as `log`."""
    connection = duckdb.connect()
    connection.register("log", log)
    return lambda sql: connection.execute(sql).fetchall()


def written(log: pa.Table, folder: Path) -> Path:
    """The table as a Parquet file."""
    pq.write_table(log, folder / "log.parquet")
    return folder / "log.parquet"
