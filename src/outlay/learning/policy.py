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
        weights = jnp.asarray(self.weights * self.spread, jnp.float32)
        codes, numbers, allowed = (jnp.asarray(part) for part in (states.codes, states.numbers, states.allowed))
        return np.asarray(_choose(self.pair, codes, numbers, allowed, weights, self.threshold)).astype(np.int64)


@eqx.filter_jit
def _choose(pair: QNetwork, codes: Array, numbers: Array, allowed: Array, weights: Array, threshold: float) -> Array:
    return act(apply_pair(pair, codes, numbers), weights[None], allowed, threshold)[:, 0]
