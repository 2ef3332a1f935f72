"""Cells: alike rows together, no two that differ; and a panel told by its cells alone."""

from __future__ import annotations

import numpy as np
import pytest
from logs_in_memory import ragged

from outlay.core.transitions import CERTIFY
from outlay.estimators.linear.cells import Cells, LogCells, PolicyMoves
from outlay.estimators.panel import Panel, TargetPolicy

RNG = np.random.default_rng(0)


def check(cells: Cells, *keys: np.typing.NDArray[np.int64]) -> None:
    """Each cell holds all rows with one combination of the keys."""
    combined = np.column_stack(keys)
    assert len(cells.rows) == len(np.unique(combined, axis=0))
    assert np.array_equal(combined[cells.rows[cells.of]], combined)
    assert np.array_equal(np.bincount(cells.of), cells.count)
    assert np.array_equal(cells.of[cells.rows], np.arange(len(cells.rows)))


def test_cells_hold_the_rows_with_one_key_and_are_split_by_another() -> None:
    key, by = RNG.integers(5, size=200), RNG.integers(3, size=200)
    check(Cells.alike(key), key)
    check(Cells.alike(key).split(by, 7), key, by)


def test_single_rows_stay_single() -> None:
    cells = Cells.single(50).split(RNG.integers(3, size=50), 3)
    assert np.array_equal(cells.of, np.arange(50))
    assert cells.count.tolist() == [1.0] * 50


@pytest.mark.parametrize("counted", [True, False])
def test_every_row_is_as_its_cell_says(counted: bool) -> None:
    """Pair, next point, gap and, where the log was cut off, the days left; for a policy that looks at the row."""
    panel = Panel.of(ragged(1), CERTIFY)
    state = np.asarray(panel.state)
    policy = RNG.integers(2, size=len(panel))
    log = LogCells.of(panel, panel.state if counted else None)
    moves = PolicyMoves.of(panel, log, TargetPolicy.fixed(policy, 2))
    of, on = moves.cells.of, panel.following >= 0
    assert (len(moves.logged) < len(panel)) == counted
    assert np.array_equal(moves.origin[of], log.cells.of)
    assert np.array_equal(state[moves.logged.rows[of]], state)
    assert np.array_equal(moves.logged.actions[of], panel.action)
    assert np.array_equal(moves.gap[of][on], panel.gap[on])
    assert np.array_equal(moves.following[of] >= 0, on)
    assert moves.pure
    point = moves.taken[moves.following[of[on]]]
    assert np.array_equal(state[point.rows], state[panel.following[on]])
    assert np.array_equal(point.actions, policy[panel.following[on]])
    cut = ~on & ~panel.terminal
    assert cut.any()
    assert (panel.terminal & ~on).any()
    assert np.array_equal(log.open[log.cells.of], cut)
    assert np.array_equal(log.left[log.cells.of][cut], (panel.window[panel.user] - panel.day)[cut])
    for users, rows in ((moves.start, panel.start), (moves.first, panel.first)):
        assert np.array_equal(state[moves.taken.rows[users]], state[rows])
        assert np.array_equal(moves.taken.actions[users], policy[rows])
