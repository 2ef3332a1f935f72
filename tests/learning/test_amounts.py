"""The log says whether its actions are amounts that inform each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.transitions import Transitions
from outlay.learning.amounts import action_basis
from outlay.ops.action_basis import smooth_basis
from small_logs import transitions

BUMP = np.array([12.0, 15.0, 17.0, 18.0, 21.0, 23.0, 15.0, 16.0])  # numbers of offers: the sixth is the best
CURVE = 10 / (1 + np.exp(-(np.arange(8.0) - 3)))  # amounts
DEGREE = 4


def log(
    mean: NDArray[np.float64], users: int, days: int, noise: float, *, seed: int = 1, kept: bool = False
) -> Transitions:
    """Actions drawn evenly each day, or `kept` by each user, who differ by a level of their own."""
    rng = np.random.default_rng(seed)
    user, day = np.repeat(np.arange(users), days), np.tile(np.arange(days), users)
    action = rng.integers(len(mean), size=users)[user] if kept else rng.integers(len(mean), size=len(user))
    level = noise * rng.standard_normal(users)
    reward = mean[action] + level[user] + noise * rng.standard_normal(len(user))
    return transitions(
        user=user,
        day=day,
        state=np.zeros(len(user), np.int64),
        action=action,
        outcome=np.column_stack([reward, action.astype(float)]),
        num_states=1,
        num_actions=len(mean),
    )


def found(data: Transitions) -> bool:
    """Whether amounts inform each other."""
    return action_basis(data, DEGREE, np.arange(len(data))) is not None


def test_numbers_of_offers_are_learned_on_their_own() -> None:
    assert not found(log(BUMP, 1_000, 10, noise=10.0))


def test_amounts_inform_each_other() -> None:
    data = log(CURVE, 1_000, 10, noise=10.0)
    basis = action_basis(data, DEGREE, np.arange(len(data)))
    assert basis == smooth_basis(data.actions, DEGREE, data.campaign.none)


def test_a_contradiction_that_does_not_matter_is_none() -> None:
    """No noise at all: any curve that is not a polynomial differs from one, if by 0.1%."""
    assert found(log(CURVE, 1_000, 10, noise=0.001))


def test_few_users_contradict_nothing() -> None:
    assert found(log(BUMP, 6, 10, noise=10.0))


def test_no_rows_contradict_nothing() -> None:
    data = log(BUMP, 1_000, 10, noise=1.0)
    assert action_basis(data, DEGREE, np.arange(0)) is not None


def test_each_action_on_its_own_where_the_campaign_says_so() -> None:
    data = log(CURVE, 100, 2, noise=1.0)
    assert action_basis(data, 0, np.arange(len(data))) is None


@pytest.mark.parametrize("kept", [False, True])
def test_luck_is_not_a_contradiction(kept: bool) -> None:
    """Also where each user kept one action, so that a user's days say hardly more than one of them."""
    assert all(found(log(np.zeros(8), 300, 10, noise=1.0, seed=seed, kept=kept)) for seed in range(40))


def test_actions_that_were_never_given_say_nothing() -> None:
    data = log(BUMP, 2_000, 10, noise=5.0)
    assert not found(replace(data, forced=data.action == 1))
    assert found(replace(data, forced=data.action >= DEGREE)), "five functions of four offers"
