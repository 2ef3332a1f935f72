"""Distributions joined into one over tuples: each keeps its weights, and there are few tuples."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outlay.ops.coupling import coupled

SHARES = st.lists(st.floats(0.01, 1), min_size=1, max_size=4).map(lambda w: np.array(w) / np.sum(w))


@given(st.lists(SHARES, min_size=1, max_size=5))
def test_every_distribution_keeps_its_weights(distributions: list[np.ndarray]) -> None:
    places, weights = coupled(distributions)
    assert (weights > 0).all()
    assert len(weights) <= 1 + sum(len(alpha) - 1 for alpha in distributions)
    for k, alpha in enumerate(distributions):
        own = np.bincount([place[k] for place in places], weights, len(alpha))
        np.testing.assert_allclose(own, alpha, atol=1e-9)


def test_alike_distributions_are_joined_option_by_option() -> None:
    places, weights = coupled([np.array([0.3, 0.7])] * 3)
    assert places == [[0, 0, 0], [1, 1, 1]]
    np.testing.assert_allclose(weights, [0.3, 0.7])
