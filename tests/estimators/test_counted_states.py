"""Whether states are counted: few, and each met often enough, with every action that the log gives there."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.windowed import LEAST_ROWS, counted
from small_logs import transitions

USERS, DAYS, ACTIONS = 2000, 5, 4


def log(states: int, *, avoided: bool = False, users: int = USERS) -> Transitions:
    """Users who stay in one of so many states; actions are drawn evenly, the last one, if `avoided`, in even states."""
    rng = np.random.default_rng(0)
    user, day = np.repeat(np.arange(users), DAYS), np.tile(np.arange(DAYS), users)
    state = rng.integers(states, size=users)[user]
    action = rng.integers(ACTIONS - (state % 2) * avoided)
    return transitions(
        user=user,
        day=day,
        state=state,
        action=action,
        outcome=rng.random((len(user), 2)),
        num_states=states,
        num_actions=ACTIONS,
        split=CERTIFY,
    )


@pytest.mark.parametrize(("states", "expected"), [(20, True), (100, True), (400, False)])
def test_states_with_few_rows_of_each_action_are_not_counted(states: int, expected: bool) -> None:
    data = log(states)
    state, action = np.asarray(data.state), np.asarray(data.action)
    assert counted(data, CERTIFY) == expected
    pairs = np.bincount(state * ACTIONS + action, minlength=states * ACTIONS)
    assert expected == ((pairs < LEAST_ROWS).mean() < 0.01), "as often a policy gives what was hardly ever given there"
    enough = np.bincount(state)[state] >= LEAST_ROWS * ACTIONS
    assert enough.mean() > 0.99, "though there are rows enough for all actions"


def test_few_users_leave_thin_states_counted_as_features_could_say_no_more() -> None:
    data = log(60, users=300)
    pairs = np.bincount(np.asarray(data.state) * ACTIONS + np.asarray(data.action), minlength=60 * ACTIONS)
    assert (pairs < LEAST_ROWS).mean() > 0.01
    assert counted(data, CERTIFY)


def test_an_action_that_the_log_avoids_in_some_states_leaves_them_counted() -> None:
    assert counted(log(20, avoided=True), CERTIFY)
