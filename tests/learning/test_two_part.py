"""The luck of an amount is taken out of what learning sees; means by state and action stay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outlay.core.transitions import CERTIFY, LEARN, SELECT, Transitions
from outlay.learning.outcomes import determined_costs, without_amount_luck
from outlay.ops.spread import spreads
from small_logs import campaign, transitions

USERS, DAYS = 6000, 4
SPLIT = np.repeat([LEARN, SELECT, CERTIFY], [4500, 900, 600])


def shop(spread: float, by_action: float = 0.0, share: float = 0.1) -> tuple[Transitions, NDArray[np.float64]]:
    """Users of two kinds, who buy more often with a coupon; the log, and the mean reward of each (kind, action).

    Args:
        spread: of the logarithm of an amount.
        by_action: how much more, in shares, is spent on a purchase with each step of the action.
        share: of the reward that is the cost, times the action.
    """
    rng = np.random.default_rng(3)
    n = USERS * DAYS
    state, action = np.repeat(rng.integers(2, size=USERS), DAYS), rng.integers(3, size=n)
    often = np.array([[0.2, 0.25, 0.3], [0.4, 0.42, 0.44]])
    mean = np.array([[1.0], [2.0]]) * (1 + by_action * np.arange(3))
    amount = mean[state, action] * np.exp(spread * rng.normal(size=n) - spread**2 / 2)
    reward = np.where(rng.random(n) < often[state, action], amount, 0.0)
    outcome = np.stack([reward, share * action * reward], axis=1)
    data = transitions(
        user=np.repeat(np.arange(USERS), DAYS),
        day=np.tile(np.arange(DAYS), USERS),
        state=state,
        action=action,
        outcome=outcome,
        num_states=2,
        num_actions=3,
        about=campaign(),
        split=SPLIT,
        counted=False,
    )
    return data, often * mean


def rewards(data: Transitions, split: int) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    rows = data.rows_of(split)
    state = data.features(rows)[0][:, 0]
    return np.asarray(data.outcome[rows, 0], np.float64), state - state.min(), np.asarray(data.action[rows], np.int64)


def test_a_heavy_tailed_reward_varies_less_and_keeps_its_means() -> None:
    data, mean = shop(spread=1.2)
    found = without_amount_luck(data, seed=0)
    for split in (LEARN, SELECT):
        before, state, action = rewards(data, split)
        after, _, _ = rewards(found, split)
        assert after.var() < 0.4 * before.var()
        assert np.array_equal(after == 0, before == 0)
        for s, a in np.ndindex(2, 3):
            cell = (state == s) & (action == a)
            error = before[cell].std() / np.sqrt(cell.sum())
            assert abs(after[cell].mean() - mean[s, a]) < 3 * error
    assert np.array_equal(rewards(found, CERTIFY)[0], rewards(data, CERTIFY)[0]), "certify users are as logged"


def test_what_an_action_adds_to_the_amount_of_a_purchase_is_not_lost() -> None:
    data, mean = shop(spread=0.8, by_action=0.25)
    after, state, action = rewards(without_amount_luck(data, seed=0), LEARN)
    for s in range(2):
        effect = after[(state == s) & (action == 2)].mean() - after[(state == s) & (action == 0)].mean()
        assert abs(effect / (mean[s, 2] - mean[s, 0]) - 1) < 0.15


def test_a_cost_that_follows_from_the_reward_still_does() -> None:
    data, _ = shop(spread=1.2)
    found, rows = without_amount_luck(data, seed=0), data.rows_of(LEARN)
    derived = determined_costs(found, rows, spreads(np.asarray(found.outcome[rows])))
    assert derived.known.all()
    assert np.allclose(derived.per_reward[0], [0.0, 0.1, 0.2], atol=1e-5)


def test_a_reward_of_0_or_1_and_one_that_is_never_0_are_left_as_they_are() -> None:
    data, _ = shop(spread=0.0)
    assert without_amount_luck(data, seed=0) is not data, "two kinds of users spend different amounts"
    outcome = np.array(data.outcome)
    outcome[:, 0] = outcome[:, 0] > 0
    outcome[:, 1] = outcome[:, 0] * np.asarray(data.action)
    binary = transitions(
        user=np.asarray(data.user),
        day=np.asarray(data.day),
        state=rewards(data, 3)[1],
        action=np.asarray(data.action),
        outcome=outcome,
        num_states=2,
        num_actions=3,
        about=campaign(),
        split=SPLIT,
        counted=False,
    )
    assert without_amount_luck(binary, seed=0) is binary
    outcome[:, 0] = 1 + np.random.default_rng(0).exponential(size=len(outcome))
    outcome[:, 1] = 1
    dense = transitions(
        user=np.asarray(data.user),
        day=np.asarray(data.day),
        state=rewards(data, 3)[1],
        action=np.asarray(data.action),
        outcome=outcome,
        num_states=2,
        num_actions=3,
        about=campaign(),
        split=SPLIT,
        counted=False,
    )
    assert without_amount_luck(dense, seed=0) is dense
