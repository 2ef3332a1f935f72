"""The encoder of past days: a causal convolution and a weighted sum, which takes the place of the lags.

The equations are those of `core/past_encoder.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from outlay.core.past_encoder import WINDOW, PastEncoderArrays


class PastShape(NamedTuple):
    """What an encoder reads and makes: the last `days · day_numbers` numbers of a state become `width`."""

    days: int  # L
    day_numbers: int  # D
    width: int  # H


class PastEncoder(eqx.Module):
    """One encoder."""

    weight: Array  # W₁ above W₂ [2·D, H]
    bias: Array  # b [H]
    day_weight: Array  # v [L, H]
    shape: PastShape = eqx.field(static=True)

    def __call__(self, numbers: Array) -> Array:
        """Numbers of states `[B, n]` → `[B, n − L·D + H]`."""
        rest = numbers.shape[1] - self.shape.days * self.shape.day_numbers
        day = numbers[:, rest:].reshape(len(numbers), self.shape.days, self.shape.day_numbers)
        before = jnp.concatenate([day[:, 1:], jnp.zeros_like(day[:, :1])], axis=1)
        terms = jax.nn.relu(jnp.concatenate([day, before], axis=2) @ self.weight + self.bias)
        return jnp.concatenate([numbers[:, :rest], (terms * self.day_weight).sum(1)], axis=1)


def init_past_encoder(shape: PastShape, pair: int, rng: np.random.Generator) -> PastEncoder:
    """Encoders stacked on the first axis of every array. At the start all days weigh alike."""
    num_in = WINDOW * shape.day_numbers
    return PastEncoder(
        weight=jnp.asarray(rng.normal(0, (2 / num_in) ** 0.5, (pair, num_in, shape.width)), jnp.float32),
        bias=jnp.asarray(np.zeros((pair, shape.width), np.float32)),
        day_weight=jnp.asarray(np.full((pair, shape.days, shape.width), shape.days**-0.5, np.float32)),
        shape=shape,
    )


def past_encoder_arrays(encoder: PastEncoder) -> PastEncoderArrays:
    """Encoders, stacked on the first axis of every array, as plain arrays."""
    parts = (encoder.weight, encoder.bias, encoder.day_weight)
    return PastEncoderArrays(*(np.asarray(part, np.float32) for part in parts))
