"""The largest cost of an action: what the log and the campaign file say of it, and when nothing does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.estimators.reach import Reach, above_stated, known_costs, largest_mean, towards

INF, NONE = np.inf, np.full((3, 1), np.nan)
ACTION = np.repeat([0, 1, 2], 10)


def log(cost: list[float] | np.ndarray[Any, Any]) -> Transitions:
    outcome = np.column_stack([np.zeros(30), cost]).astype(np.float32)
    return cast(
        Transitions,
        SimpleNamespace(
            num_actions=3,
            actions=np.array([0.0, 1.5, 3.0]),
            action=ACTION,
            outcome=outcome,
        ),
    )


def under(sign: int) -> Campaign:
    return cast(Campaign, SimpleNamespace(budgets=[SimpleNamespace(sign=sign, limit=1.0, per="decision")]))


AMOUNTS = np.array([0.0, 1.5, 3.0])[ACTION] * (np.arange(30) % 3 == 0)


@pytest.mark.parametrize(
    ("cost", "stated", "known"),
    [
        (AMOUNTS, NONE, [0, 1.5, 3]),  # nothing, or the amount
        (AMOUNTS * (np.arange(30) < 14), NONE, [0, INF, INF]),  # too few of them to tell
        (AMOUNTS * np.arange(30) / 20, NONE, [0, INF, INF]),  # any size
        (AMOUNTS * np.arange(30) / 20, [[9], [9], [9]], [0, 9, 9]),  # the campaign file says it
        (AMOUNTS, [[0], [1], [2]], [0, 1.5, 3]),  # what it says is contradicted by the log
        (np.full(30, 2.0), NONE, [0, 0, 0]),  # the action's own
    ],
)
def test_the_largest_cost_by_the_log_and_by_what_is_stated(cost: Any, stated: Any, known: list[float]) -> None:
    assert known_costs(log(cost), under(1), stated)[:, 0] == pytest.approx(known)


def test_of_a_floor_a_cost_of_0_takes_away_most() -> None:
    found = known_costs(log(AMOUNTS), under(-1), NONE)[:, 0]
    assert found == pytest.approx([0, 1.5 * 0.3, 3 * 0.3])
    assert np.isinf(known_costs(log(AMOUNTS - 1), under(-1), NONE)[1:]).all()  # some are negative


@pytest.mark.parametrize(
    ("stated", "rows"), [(NONE, 0), ([[0], [1.5], [3]], 0), ([[0], [1], [3]], 3), ([[np.nan], [np.nan], [2]], 3)]
)
def test_rows_above_what_is_stated_are_counted(stated: Any, rows: int) -> None:
    assert above_stated(log(AMOUNTS), under(1), stated) == [rows]
    assert above_stated(log(AMOUNTS), under(-1), stated) == [0], "a largest cost says nothing of a floor"


def test_the_largest_is_of_users_who_are_so_on_all_their_days() -> None:
    """A user who paid 9, 11 and nothing is a larger one than another who paid 12, 1 and 2."""
    user, cost = np.array([0, 0, 0, 1, 1, 1, 2]), np.array([9.0, 11, 0, 12, 1, 2, -4])
    assert largest_mean(user, cost[:, None]) == pytest.approx([10])
    assert largest_mean(user, -cost[:, None]) == pytest.approx([4])
    assert largest_mean(user[:0], cost[:0, None]) == [0]


def test_a_reward_counts_by_its_size_and_a_cost_towards_its_limit() -> None:
    assert towards(np.array([[-3.0, 2.0]]), under(1)).tolist() == [[3, 2]]
    assert towards(np.array([[-3.0, 2.0]]), under(-1)).tolist() == [[3, -2]]


def reach(known: float, record: float, shown: float) -> Reach:
    return Reach(np.array([known]), np.full(2, record), np.full(2, shown), np.array([7]))


def test_of_a_mixture_a_user_may_lack_what_each_part_lacks() -> None:
    found = Reach.mixed([reach(2, 12, 2), reach(5, 12, 14)], [0.75, 0.25])
    assert found.known[0] == 5
    assert found.beyond == pytest.approx([7.5, 7.5])
    assert Reach.mixed([reach(2, 12, 2)], [1.0]).beyond == pytest.approx([10, 10])
    assert found.unbelieved[0] == 7


def test_of_policies_on_users_of_their_own_one_showing_is_enough() -> None:
    assert Reach.pooled([reach(2, 12, 2), reach(5, 12, 11)]).beyond == pytest.approx([1, 1])
