"""A deterministic policy: a pair of networks and the weights w of its scalarised value."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.transitions import States
from outlay.learning.critic import act
from outlay.nets.network import QNetwork, apply_pair


class Policy(NamedTuple):
    """The action is the argmax over allowed actions of w·Q, Q the mean of the pair.

    Attributes:
        pair: the networks, heads in units of `spread`.
        weights: `[H]` w in raw units.
        spread: `[H]` units of the heads.
        threshold: BCQ's, 0 for none.
    """

    pair: QNetwork
    weights: NDArray[np.float64]
    spread: NDArray[np.float64]
    threshold: float

    def choose(self, states: States) -> NDArray[np.int64]:
        """`[S]` index of the action in every distinct state of a log."""
        return self.actions(states.codes, states.numbers, states.allowed)

    def actions(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float32], allowed: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """`[n]` index of the action in states `codes [n, F]`, `numbers [n, 2·F']` that allow `allowed [n, K]`."""
        weights = jnp.asarray(self.weights * self.spread, jnp.float32)
        chosen = _choose(
            self.pair, jnp.asarray(codes), jnp.asarray(numbers), jnp.asarray(allowed), weights, self.threshold
        )
        return np.asarray(chosen).astype(np.int64)


@eqx.filter_jit
def _choose(pair: QNetwork, codes: Array, numbers: Array, allowed: Array, weights: Array, threshold: float) -> Array:
    return act(apply_pair(pair, codes, numbers), weights[None], allowed, threshold)[:, 0]
