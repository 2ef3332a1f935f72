"""What a user's days before a row brought: means over them, and the last of them.

Source: ours; `sequential.py` says what it is for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.panel import Panel


def days_before(panel: Panel) -> NDArray[np.float32]:
    """Columns `[n, ≤ 2·(3+m) + 1]` of spread 1: reward, costs, the amount and whether one was given; rows before."""
    amount = panel.data.actions[panel.action]
    was = np.column_stack([panel.outcome, amount, amount > panel.data.actions.min()])
    count = before(panel, np.ones((len(panel), 1)), total=True)[:, :1]
    return standardised(np.hstack([before(panel, was), count]))


def before(panel: Panel, was: NDArray[np.floating], *, total: bool = False) -> NDArray[np.float64]:
    """`[n, 2·q]` from `[n, q]`: means over the user's rows before each, or sums, and the last of them; 0 if none."""
    order = np.lexsort((panel.day, panel.user))
    user, ordered = panel.user[order], np.asarray(was[order], np.float64)
    begin = np.searchsorted(user, user)
    count = (np.arange(len(panel)) - begin)[:, None]
    running = np.vstack([np.zeros((1, was.shape[1])), ordered.cumsum(axis=0)])
    sums = running[:-1] - running[begin]
    found = np.empty((len(panel), 2 * was.shape[1]))
    found[order] = np.hstack([
        sums if total else sums / np.maximum(count, 1), np.where(count > 0, np.roll(ordered, 1, axis=0), 0.0)
    ])  # fmt: skip
    return found


def standardised(columns: NDArray[np.floating]) -> NDArray[np.float32]:
    """Columns `[n, d]` of mean 0 and spread 1, without those that hardly vary."""
    centred = columns - columns.mean(axis=0)
    spread = centred.std(axis=0)
    kept = spread > 1e-6 * np.maximum(np.abs(columns).max(axis=0, initial=0), 1e-12)
    return np.asarray(centred[:, kept] / spread[kept], np.float32)
