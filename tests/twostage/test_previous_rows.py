"""Who came before whom, and what is told of it."""

from __future__ import annotations

import numpy as np

from outlay.core.transitions import Transitions
from outlay.twostage.previous_rows import PreviousRows
from small_logs import transitions


def log() -> Transitions:
    """User 0: days 0, 1, 4; user 1: one day; user 2: days 0 and 2."""
    number = np.arange(6)
    return transitions(
        user=[0, 0, 0, 1, 2, 2], day=[0, 1, 4, 0, 0, 2], state=number % 3, action=number % 2,
        outcome=np.column_stack([number, 10 * number]), num_states=3, num_actions=2,
    )  # fmt: skip


def test_rows_before_are_of_the_same_user_latest_first() -> None:
    history = PreviousRows.of(log(), 3, np.ones(2))
    assert history.rows(np.arange(6)).tolist() == [
        [-1, -1, -1], [0, -1, -1], [1, 0, -1], [-1, -1, -1], [-1, -1, -1], [4, -1, -1]
    ]  # fmt: skip
    short = PreviousRows.of(log(), 1, np.ones(2))
    assert short.rows(np.array([2, 5, 0])).tolist() == [[1], [4], [-1]]


def test_past_days_tell_their_state_incentive_outcome_and_age() -> None:
    data = log()
    past = PreviousRows.of(data, 2, np.array([1.0, 5.0])).gather(data, np.array([[2, 5], [0, 3]]))
    assert (past.age >= 0).tolist() == [[[True, True], [True, False]], [[False, False]] * 2]
    assert past.age.tolist() == [[[3, 4], [2, -1]], [[-1, -1], [-1, -1]]]
    assert past.action.tolist() == [[[1, 0], [0, 0]], [[0, 0], [0, 0]]]
    assert past.outcome[0].tolist() == [[[1, 2], [0, 0]], [[4, 8], [0, 0]]]  # costs in units of 5
    assert past.codes[..., 0].tolist() == [[[4, 3], [4, 0]], [[0, 0], [0, 0]]]
    assert past.numbers.shape == (2, 2, 2, 2)
    assert past.numbers[0, 0, :, 0].tolist() == [1, 0]
    assert not past.outcome[1].any()
