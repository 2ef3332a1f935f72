"""States that are not counted: a world of habits whose truth is known (`benchmarks/slow_habits.py`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from slow_habits import World, always


def test_the_truth_is_what_the_log_shows(tmp_path: Path) -> None:
    world = World(days=7, users=20_000)
    path = world.write(tmp_path, users=20_000, seed=3)
    log = pq.read_table(path.parent / "log.parquet")
    seen = np.bincount(log["day"].to_numpy(), log["active"].to_numpy()) / 20_000
    daily = world.daily(None)
    assert seen == pytest.approx(daily[:7, 0], abs=4 * 0.5 / np.sqrt(20_000))
    assert len(log) == 7 * 20_000
    found = world.value(daily, (3,))
    assert found["reward@3"] == pytest.approx(daily[:3, 0].sum())
    assert daily[:, 0].min() < found["reward"] < daily[:, 0].max()
    dear, free = (world.value(world.daily(always(action))) for action in (4, 0))
    assert free["coupon_cost@7"] == 0 < dear["coupon_cost@7"]
    assert free["reward@7"] < found["reward@7"] < dear["reward@7"]
