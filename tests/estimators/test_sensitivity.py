"""What an unlogged cause would have to weigh: by hand, and against a world in which it is known."""

from __future__ import annotations

import re

import numpy as np
import pytest

from outlay.estimators.sensitivity import MOST, Sensitivity, WorstCase


def coin(n: int = 2000) -> WorstCase:
    """One action given to half of the rows, always by the policy; residuals of −1 and 1, half each."""
    given, propensity = np.tile([0.0, 1.0], (n, 1)), np.full((n, 2), 0.5)
    residual = np.where(np.arange(n) % 4 < 2, -1.0, 1.0)[:, None]
    return WorstCase.of(given, propensity, np.arange(n) % 2, residual)


def test_the_shift_by_hand() -> None:
    """Half of the mass is not given the action; of residuals ±1 the worst 1/(1 + Γ) are all −1 from Γ = 1 on."""
    worst = coin()
    assert worst.shift(0, 1.0, -1) == 0
    assert worst.shift(0, 2.0, -1) == pytest.approx(0.5 * 0.5 * 1.0)
    assert worst.shift(0, 2.0, +1) == pytest.approx(worst.shift(0, 2.0, -1))


def test_a_claim_stands_up_to_the_gamma_that_uses_up_its_margin() -> None:
    worst = coin()
    assert worst.stands(0, 0.25, -1) == pytest.approx(2.0, abs=0.01)
    assert worst.stands(0, 0.0, -1) == 1.0
    assert worst.stands(0, 5.0, -1) == MOST


def test_what_the_policy_gives_as_the_log_did_cannot_be_confounded() -> None:
    given = np.tile([0.0, 1.0], (100, 1))
    certain = WorstCase.of(given, given, np.ones(100, np.int64), np.linspace(-1, 1, 100)[:, None])
    assert certain.stands(0, 0.001, -1) == MOST


@pytest.mark.parametrize("gamma", [1.5, 3.0])
def test_the_shift_covers_the_bias_of_a_hidden_cause_of_that_size(gamma: float) -> None:
    """A hidden u doubles as cause of action and outcome; the odds of the action differ by Γ either way."""
    rng = np.random.default_rng(1)
    n, root = 200_000, gamma
    u = rng.random(n) < 0.5
    odds = np.where(u, root, 1 / root)
    action = (rng.random(n) < odds / (1 + odds)).astype(int)
    outcome = 0.3 * u + rng.normal(0, 0.1, n)
    estimated = outcome[action == 1].mean()
    residual = outcome - np.where(action == 1, estimated, outcome[action == 0].mean())
    share = action.mean()
    worst = WorstCase.of(np.tile([0.0, 1.0], (n, 1)), np.tile([1 - share, share], (n, 1)), action, residual[:, None])
    bias = estimated - outcome.mean()
    assert 0.02 < bias < worst.shift(0, gamma**2, -1)
    assert worst.shift(0, 1.02, -1) < bias


def test_words() -> None:
    assert MOST == 10
    told = Sensitivity(1.31, {"coupon_cost": MOST}).words
    assert re.search(r"\bunlogged\b.*\bgain\b.*Γ = 1\.31\b.*\bcoupon_cost\b.*Γ = 10 and more", told)
    assert "nothing is claimed" in Sensitivity(None, {}).words
