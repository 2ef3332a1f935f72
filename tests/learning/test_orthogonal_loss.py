"""V of the log's policy: the fixed point of least squares, known for every row that follows another."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from outlay.core.transitions import LEARN, SELECT
from outlay.learning import orthogonal_loss
from outlay.learning.orthogonal_loss import fitted_values, following, halves_of
from outlay.nets import batches
from outlay.nets.orthogonal import EffectShape, init_orthogonal
from small_logs import campaign, draw, random_cmdp

GAMMA = 0.8


def test_what_v_leaves_of_a_day_and_the_next_value_has_nothing_of_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that end a story, that the window cut off, and that are computed a few at a time."""
    rng = np.random.default_rng(0)
    split = np.repeat([LEARN, SELECT], [40, 20])
    data = draw(random_cmdp(3, states=5), 60, 5, seed=0, about=campaign(GAMMA), split=split)
    data = replace(data, terminal=rng.random(len(data)) < 0.1)
    learn, select = data.rows_of(LEARN), data.rows_of(SELECT)
    shape = EffectShape(data.schema.sizes, data.number_columns.shape[1], 3, 2, (3,), 2, 1)
    pair, spread = init_orthogonal(shape, 0, np.zeros((2, 2))), np.array([0.5, 2.0])
    monkeypatch.setattr(orthogonal_loss, "RIDGE_ROWS", 0.0)
    monkeypatch.setattr(batches, "CHUNK_VALUES", 7 * 2 * len(data.schema.sizes))
    values = np.asarray(fitted_values(data, pair, spread, learn, select, 0), np.float64)
    after = following(data, np.arange(len(data)))
    linked, terminal = np.asarray(data.next_row) >= 0, np.asarray(data.terminal)
    discount = np.where(linked & ~terminal, GAMMA ** data.gap.astype(np.float64), 0)
    for half, rows in enumerate(halves_of(data, learn)):
        network = jax.tree.map(lambda part, half=half: part[half], pair)
        hidden, _ = network.hidden(*data.features(np.arange(len(data))))
        features = np.column_stack([np.asarray(hidden), np.ones(len(data))])
        known = rows[(linked | terminal)[rows]]
        left = values[half, known] - (1 - GAMMA) * data.outcome[known] / spread
        left -= discount[known, None] * values[half, after[known]]
        np.testing.assert_allclose(features[known].T @ left, 0, atol=1e-3)
        assert np.abs(left).max() > 0.1
        # One V for all: also for the other half of the users, and for those who teach nothing.
        needed = np.unique(after[np.concatenate([learn, select])])
        weights, *_ = np.linalg.lstsq(features[known], values[half, known], rcond=None)
        np.testing.assert_allclose(values[half, needed], features[needed] @ weights, atol=1e-4)
