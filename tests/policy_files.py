"""Policies from outside, as the Parquet tables that `outlay evaluate --policy` reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from conftest import Habit

Array = NDArray[np.float64]
Rule = Callable[[Array, Array], Array]  # yesterday and level `[n]` to the coupon `[n]`


def policy_file(path: Path, log: pa.Table, actions: Array, probability: Array) -> Path:
    """A row for each row of a log, users and times in its first two columns."""
    columns = {f"{value:g}": probability[:, a] for a, value in enumerate(actions)}
    pq.write_table(pa.table({name: log[name] for name in log.column_names[:2]} | columns), path)
    return path


def share(table: pa.Table, rule: Rule, sure: float) -> Array:
    """`[n, 11]`: what the rule says with probability `sure`, else any coupon."""
    coupons = np.arange(2, 13) / 2
    given = rule(table["yesterday"].to_numpy(), table["level"].to_numpy())
    found: Array = sure * (given[:, None] == coupons) + (1 - sure) / len(coupons)
    return found


def habit_policy(habit: Habit, path: Path, rule: Rule, sure: float = 1.0) -> Path:
    """A rule on the habit campaign."""
    log = pq.read_table(habit.folder / "log.parquet")
    return policy_file(path, log, np.arange(2, 13) / 2, share(log, rule, sure))


def habit_states(habit: Habit, rule: Rule, sure: float = 1.0) -> Array:
    """The same rule in every state of the truth, `[S, 11]`."""
    return share(pq.read_table(habit.folder / "states.parquet"), rule, sure)


def generous(_: Array, level: Array) -> Array:
    """4 to the inactive, 2 to the active."""
    return np.where(level <= 1, 4.0, 2.0)


def thrifty(yesterday: Array, _: Array) -> Array:
    """1 to whoever was active yesterday, else 3."""
    return np.where(yesterday == 1, 1.0, 3.0)
