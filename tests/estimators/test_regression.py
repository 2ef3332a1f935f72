"""Cells of alike rows, and samples of them: the same sums as row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import World, ragged

from outlay.core.transitions import CERTIFY, LEARN, SELECT
from outlay.estimators.basis import Basis, CountedBasis, FeatureBasis
from outlay.estimators.doubly_robust import FoldValues
from outlay.estimators.fitted import Sample
from outlay.estimators.panel import Panel, TargetPolicy
from outlay.estimators.regression import Cells, LogCells, PolicyMoves, supported

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


def bases(panel: Panel) -> list[Basis]:
    state = np.asarray(panel.state)
    return [CountedBasis(state, 3, 2), FeatureBasis(np.eye(3, dtype=np.float32)[state], 2)]


@pytest.mark.parametrize("drawn", [False, True])
def test_values_from_some_users_of_a_panel_are_those_of_a_panel_of_these_users(drawn: bool) -> None:
    for data in (World.drawn(4).log(150, 5, np.random.default_rng(1)), ragged(5, users=150)):
        rng = np.random.default_rng(0)
        by_state = rng.dirichlet(np.ones(2), size=3) if drawn else np.array([1, 0, 1])
        everybody, some = Panel.of(data, CERTIFY), np.arange(150) % 3 > 0
        users = data.users.copy()
        users["split"] = np.where(some, SELECT, LEARN)
        alone = Panel.of(replace(data, users=users), SELECT)
        for mine, its in zip(bases(everybody), bases(alone), strict=True):
            critics = []
            for sample in (Sample.of(everybody, mine).only(some), Sample.of(alone, its)):
                target = sample.panel.follow(by_state[np.asarray(sample.panel.state)])
                critics.append(FoldValues.of(sample, PolicyMoves.of(sample.panel, sample.log, target), 4, least_rows=2))
            for one, other in zip(critics[0].theta, critics[1].theta, strict=True):
                assert one == pytest.approx(other, abs=1e-6)
            for reg in ("inflation", "outcome"):
                one, other = (getattr(critic.stages[2].reg, reg) for critic in critics)
                assert one.max() == pytest.approx(other.max(), rel=1e-6)


@pytest.mark.parametrize("which", [0, 1])
def test_pairs_are_thin_by_the_rows_of_their_own_regression(which: int) -> None:
    """Whichever regressions are asked for beside it, and in whichever order."""
    panel = Panel.of(ragged(1), CERTIFY)
    basis = bases(panel)[which]
    sample = Sample.of(panel, basis).only(np.arange(panel.num_users) % 3 == 0)
    moves = PolicyMoves.of(panel, sample.log, TargetPolicy.fixed(RNG.integers(2, size=len(panel)), 2))
    lefts, counts = (2, None, 4, 1, 3), set()
    for least_rows in (5, 9, 14, 25, 60):
        for left, stage in zip(lefts, sample.stages(moves, lefts, least_rows), strict=True):
            alone = supported(moves.taken, sample.regression(left), basis, least_rows)
            assert np.array_equal(stage.taken.rows, alone.rows)
            counts.add(int(stage.thin.sum()))
    assert len(counts) > 2
