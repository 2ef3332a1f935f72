"""What the state, with or without the action, leaves of a row's values: by least squares, on cells if it is counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq

from outlay.estimators.panel import Index, Panel

Array = NDArray[np.float64]
CHUNK_ROWS = 16_384  # made to double precision at a time


def off_state(
    panel: Panel,
    rows: Index,
    columns: Sequence[NDArray[np.floating]] | None,
    values: Array,
    time: NDArray[np.int64] | None = None,
    *,
    acted: bool = True,
) -> Array:
    """Residuals of values on state, action and, where it is given, the calendar day.

    Args:
        panel: of the rows.
        rows: `[r]` some of them.
        columns: `[n, d]` blocks of columns of the state; the first is also multiplied by the amount. None where
            states are counted: each state and action is then a cell.
        values: `[r, q]`.
        time: `[r]` calendar days to take out as well.
        acted: whether the action is taken out too.
    """
    days = np.empty((len(rows), 0))
    if time is not None:
        _, day = np.unique(time, return_inverse=True)
        days = np.eye(day.max() + 1)[:, 1:][day]
    action = panel.action[rows] if acted else np.zeros(len(rows), np.intp)
    if columns is None:
        assert panel.state is not None
        _, cell = np.unique(panel.state[rows] * panel.data.num_actions + action, return_inverse=True)
        both = np.hstack([values, days])
        count = np.bincount(cell)
        both -= np.stack([np.bincount(cell, column) / count for column in both.T], axis=1)[cell]
        return _off(both[:, values.shape[1] :], both[:, : values.shape[1]])
    amount = panel.data.actions[action]
    scaled = (amount - amount.mean()) / (amount.std() or 1.0)
    first, *others = (np.asarray(part[rows], np.float32) for part in columns)
    given = amount > panel.data.actions.min()
    actions = np.eye(panel.data.num_actions)[action]  # with an intercept in them
    by_amount = [first * scaled[:, None], first * given[:, None]] if acted else []
    X = [actions, first, *others, *by_amount, days]
    return _off(np.hstack([part.astype(np.float32) for part in X]), values)


def _off(X: NDArray[np.floating], values: Array) -> Array:
    """Residuals of values on X; directions in which X hardly varies are left out."""
    if X.shape[1] == 0:
        return values
    gram, moments = np.zeros((X.shape[1], X.shape[1])), np.zeros((X.shape[1], values.shape[1]))
    for i in range(0, len(X), CHUNK_ROWS):
        part = X[i : i + CHUNK_ROWS].astype(np.float64)
        gram += part.T @ part
        moments += part.T @ values[i : i + CHUNK_ROWS]
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    coefficients = lstsq(gram / np.outer(scale, scale), moments / scale[:, None], cond=1e-9)[0]
    left = np.array(values, np.float64)
    for i in range(0, len(X), CHUNK_ROWS):
        left[i : i + CHUNK_ROWS] -= X[i : i + CHUNK_ROWS].astype(np.float64) @ (coefficients / scale[:, None])
    return left
