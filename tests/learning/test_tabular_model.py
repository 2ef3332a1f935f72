"""The counted model: shares and means by hand, what stands for pairs never seen, and where it does not apply."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from outlay.core.transitions import LEARN, SELECT
from outlay.learning import tabular
from outlay.learning.tabular import counted_model
from small_logs import campaign, draw, random_cmdp, transitions


def test_a_small_log_is_counted_as_written_by_hand() -> None:
    """Two states, two actions. Users 0 and 1 select; user 2 learns, and is not counted.

    (0, a0): moves to 1, 0, 1 → P = (1/3, 2/3); rewards 1, 2, 3, and 6 in a last row, which moves nowhere: mean 3.
    (1, a1): moves to 0 once; rewards 4 and 8: mean 6.   (0, a1) and (1, a0) never happen:
    they take the mean of their action, 3 and 6, and the moves of their state: (1/3, 2/3) and (1, 0).
    """
    data = transitions(
        user=[0, 0, 0, 0, 1, 1, 2, 2],
        day=[0, 1, 2, 3, 0, 1, 0, 1],
        state=[0, 1, 0, 0, 0, 1, 1, 1],
        action=[0, 1, 0, 0, 0, 1, 0, 1],
        outcome=[[1, 0], [4, 1], [2, 0], [6, 0], [3, 0], [8, 3], [99, 9], [99, 9]],
        num_states=2,
        num_actions=2,
        about=campaign(0.9),
        split=[SELECT, SELECT, LEARN],
    )
    found = counted_model(data, SELECT)
    assert found is not None
    np.testing.assert_allclose(found.transition[0], [[1 / 3, 2 / 3], [1 / 3, 2 / 3]])
    np.testing.assert_allclose(found.transition[1], [[1, 0], [1, 0]], atol=1e-11)
    np.testing.assert_allclose(found.reward, [[3, 6], [3, 6]])
    np.testing.assert_allclose(found.cost[:, :, 0], [[0, 2], [0, 2]])
    assert found.start.tolist() == [1, 0]
    assert found.discount == 0.9


def test_a_state_that_is_never_left_stays() -> None:
    data = transitions(
        user=[0, 0],
        day=[0, 1],
        state=[0, 1],
        action=[0, 1],
        outcome=np.ones((2, 2)),
        num_states=2,
        num_actions=2,
        split=SELECT,
    )
    found = counted_model(data, SELECT)
    assert found is not None
    np.testing.assert_allclose(found.transition[1], [[0, 1], [0, 1]])


def test_many_rows_give_the_model_back() -> None:
    model = random_cmdp(1, states=4)
    found = counted_model(draw(model, 20_000, 6, seed=0, split=SELECT), SELECT)
    assert found is not None
    np.testing.assert_allclose(found.transition, model.transition, atol=0.02)
    np.testing.assert_allclose(found.outcome, model.outcome, atol=1e-6)  # outcomes are their expectations here
    np.testing.assert_allclose(found.start, model.start, atol=0.02)


def test_the_start_population_is_that_of_the_start_rows() -> None:
    """With `start = latest` those are the last rows."""
    data = draw(random_cmdp(1), 500, 6, seed=0, split=SELECT)
    assert data.state is not None
    users = data.users.copy()
    users["start_row"] += 5
    found = counted_model(replace(data, users=users), SELECT)
    assert found is not None
    np.testing.assert_allclose(found.start, np.bincount(data.state[5::6], minlength=3) / 500)


def test_it_does_not_apply_without_a_table_of_states_nor_where_decisions_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_cmdp(1)
    assert counted_model(draw(model, 50, 4, seed=0, split=SELECT, counted=False), SELECT) is None
    assert counted_model(draw(model, 50, 4, seed=0, split=SELECT, steady=False), SELECT) is None
    data = draw(model, 50, 4, seed=0, split=SELECT)
    assert counted_model(data, SELECT) is not None
    monkeypatch.setattr(tabular, "MOST_STATES", 2)
    assert counted_model(data, SELECT) is None
