"""The R-loss that learners are judged by, against a world whose effects are known."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.learning.held_out import EffectScore


def test_effects_explain_what_they_should_and_level_and_size_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    rows, policy = 20_000, np.array([0.7, 0.3])
    gain, action = rng.normal(size=rows), rng.choice(2, rows, p=policy)
    left = gain * (action - 0.3) + rng.normal(size=rows)
    judge = EffectScore(np.arange(rows), action, left, np.tile(policy, (rows, 1)))
    q = np.stack([np.zeros(rows), gain], axis=1)
    true = 0.21 / 1.21  # the variance of gain · (a − b), beside noise of 1
    assert judge.explained(q) == pytest.approx(true, abs=0.01)
    assert judge.explained(5 * q + rng.normal(size=(rows, 1))) == pytest.approx(judge.explained(q))
    assert judge.explained(q + rng.normal(size=q.shape)) < 0.6 * true  # a worse learner
    assert judge.explained(-q) == 0  # the wrong way round
    assert judge.explained(0 * q) == 0


def test_the_error_of_a_difference_is_what_logs_differ_by() -> None:
    """Over 200 logs of users with four days each, whose noise is their own: two learners, one of them better."""
    policy, differences, errors = np.array([0.7, 0.3]), [], []
    for seed in range(200):
        rng = np.random.default_rng([seed, 1])
        user = np.repeat(np.arange(400), 4)
        gain, action = rng.normal(size=1600), rng.choice(2, 1600, p=policy)
        left = gain * (action - 0.3) + rng.normal(size=400)[user] + rng.normal(size=1600)
        judge = EffectScore(np.arange(1600), action, left, np.tile(policy, (1600, 1)))
        q = [np.stack([np.zeros(1600), gain + error * rng.normal(size=1600)], axis=1) for error in (0.3, 0.6)]
        one, other = (judge.influence(each, user) for each in q)
        differences.append(judge.explained(q[0]) - judge.explained(q[1]))
        errors.append(np.sqrt(((one - other) ** 2).sum()))
    assert np.mean(errors) == pytest.approx(np.std(differences), rel=0.15)
    assert (judge.influence(0 * q[0], user) == 0).all()
