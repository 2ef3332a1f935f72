"""The largest cost of an action: what the log and the campaign file say of it, and when nothing does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.estimators.reach import known_costs

INF, NONE = np.inf, np.full((3, 1), np.nan)
ACTION = np.repeat([0, 1, 2], 10)


def log(cost: list[float] | np.ndarray[Any, Any]) -> Transitions:
    outcome = np.column_stack([np.zeros(30), cost]).astype(np.float32)
    return cast(Transitions, SimpleNamespace(
        num_actions=3, actions=np.array([0.0, 1.5, 3.0]), action=ACTION, outcome=outcome,
    ))  # fmt: skip


def under(sign: int) -> Campaign:
    return cast(Campaign, SimpleNamespace(budgets=[SimpleNamespace(sign=sign)]))


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
