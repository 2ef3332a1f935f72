"""A policy decides what the stored arrays of its network decide."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.bundles.reference import forward
from outlay.core.transitions import States
from outlay.learning.policy import Policy
from outlay.nets.network import Shape, arrays, init_pair

SIZES = (6, 7)
SPREAD = np.array([0.4, 3.0, 1.0])


def states(count: int = 400) -> States:
    rng = np.random.default_rng(0)
    allowed = rng.random((count, 5)) < 0.5
    allowed[np.arange(count), rng.integers(5, size=count)] = True
    codes = rng.integers(0, SIZES, (count, 2)).astype(np.int32)
    return States(codes, rng.normal(0, 2, (count, 2)).astype(np.float32), allowed)


@pytest.mark.parametrize("threshold", [0.0, 0.9])
def test_the_choice_is_that_of_the_arrays_in_raw_units(threshold: float) -> None:
    """Argmax over allowed actions of w·Q; of those with π_B at least 0.9 of the largest, where there is a threshold."""
    pair = init_pair(Shape(SIZES, 2, 5, 3, 0, True, (16, 8), 4), 5)
    weights, given = np.array([1.0, -0.3, 0.2]), states()
    found = Policy(pair, weights, SPREAD, threshold).choose(given)
    reference = forward(arrays(pair, SPREAD), given.codes, given.numbers)
    allowed = given.allowed
    if threshold:
        assert reference.imitation is not None
        prob = np.where(allowed, np.exp(reference.imitation), 0)
        allowed = prob >= threshold * prob.max(1, keepdims=True)
        assert (allowed != given.allowed).any()
    score = np.where(allowed, reference.q @ weights, -np.inf)
    near = np.sort(score, axis=1)
    clear = near[:, -1] - near[:, -2] > 1e-5  # rounding may turn a tie
    assert clear.mean() > 0.9
    assert np.array_equal(found[clear], score.argmax(1)[clear])
    assert len(set(found.tolist())) > 2
    assert not np.array_equal(found, Policy(pair, -weights, SPREAD, threshold).choose(given))
