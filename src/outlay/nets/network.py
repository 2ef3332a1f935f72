"""The Q-network: embeddings, a trunk, and heads; always a pair of them, stacked (the double critic).

    z = concat(embedding[codes + offsets], numbers);  h = trunk(z);  Q̃(s, a) = h W_q + b_q  as [K, H]

Inside, every head is in units of its spread (so that one learning rate serves all); `arrays` turns a trained pair into
plain arrays in raw units. The equations are those of `core/network.py`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.network import Dense, NetworkArrays

PAIR = 2


class Shape(NamedTuple):
    """What a network must be able to hold."""

    sizes: tuple[int, ...]  # codes per categorical field
    num_numbers: int  # width of the numeric part
    num_actions: int  # K
    num_heads: int  # H: reward, costs, decisions where measured
    num_outcomes: int  # 1+m, for the supervised head; 0: no such head
    imitation: bool  # whether there is a π_B head
    layers: tuple[int, ...]
    embedding: int


class Linear(eqx.Module):
    """h W + b."""

    weight: Array
    bias: Array

    def __call__(self, h: Array) -> Array:
        """`[B, in]` → `[B, out]`."""
        return h @ self.weight + self.bias


class Outputs(NamedTuple):
    """What one network says about B states."""

    q: Array  # [B, K, H], in units of each head's spread
    outcome: Array | None  # [B, K, 1+m] immediate outcome, in the same units
    logits: Array | None  # [B, K] of π_B
    hidden: Array  # [B, width]


class QNetwork(eqx.Module):
    """A network; `init_pair` stacks two of them on the first axis of every array."""

    embedding: Array  # [V, k]
    trunk: tuple[Linear, ...]
    head: Linear
    supervised: Linear | None
    imitation: Linear | None
    shape: Shape = eqx.field(static=True)

    def __call__(self, codes: Array, numbers: Array) -> Outputs:
        """States `codes [B, F]`, `numbers [B, n]` → outputs."""
        embedded = self.embedding[codes + jnp.asarray(offsets(self.shape.sizes))]
        h = jnp.concatenate([embedded.reshape(len(codes), -1), numbers], axis=1)
        for layer in self.trunk:
            h = jax.nn.relu(layer(h))
        actions = self.shape.num_actions
        return Outputs(
            q=self.head(h).reshape(-1, actions, self.shape.num_heads),
            outcome=None if self.supervised is None else self.supervised(h).reshape(len(h), actions, -1),
            logits=None if self.imitation is None else self.imitation(h),
            hidden=h,
        )


def offsets(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """`[F]` first row of each field in the joint embedding table."""
    return np.cumsum((0, *sizes), dtype=np.int64)[:-1]


def init_pair(shape: Shape, seed: int) -> QNetwork:
    """Two independent networks, stacked on the first axis of every array."""
    # Drawn with NumPy: JAX would compile a program for every array's shape, which takes longer than a small training.
    rng = np.random.default_rng(seed)

    def normal(scale: float, *size: int) -> Array:
        return jnp.asarray(rng.normal(0, scale, (PAIR, *size)), jnp.float32)

    def linear(num_in: int, num_out: int, gain: float) -> Linear:
        scale = (gain / max(num_in, 1)) ** 0.5
        return Linear(normal(scale, num_in, num_out), jnp.asarray(np.zeros((PAIR, num_out), np.float32)))

    widths = (len(shape.sizes) * shape.embedding + shape.num_numbers, *shape.layers)
    return QNetwork(
        embedding=normal(0.5, sum(shape.sizes), shape.embedding),
        trunk=tuple(linear(a, b, 2.0) for a, b in pairwise(widths)),
        head=linear(widths[-1], shape.num_actions * shape.num_heads, 0.1),
        supervised=linear(widths[-1], shape.num_actions * shape.num_outcomes, 0.1) if shape.num_outcomes else None,
        imitation=linear(widths[-1], shape.num_actions, 0.1) if shape.imitation else None,
        shape=shape,
    )


def apply_pair(pair: QNetwork, codes: Array, numbers: Array) -> Outputs:
    """Both networks on the same states: every output gets a leading axis of 2."""
    return eqx.filter_vmap(lambda net: net(codes, numbers))(pair)  # type: ignore[no-any-return]


def arrays(pair: QNetwork, spread: NDArray[np.float64]) -> NetworkArrays:
    """A trained pair as plain arrays, heads in raw units.

    Args:
        pair: from `init_pair`.
        spread: `[H]` the unit of each head inside the network.
    """

    def dense(layer: Linear) -> Dense:
        return np.asarray(layer.weight, np.float32), np.asarray(layer.bias, np.float32)

    def raw(layer: Linear, unit: NDArray[np.float64]) -> Dense:
        weight, bias = dense(layer)
        units = np.tile(np.asarray(unit, np.float32), pair.shape.num_actions)
        return weight * units, bias * units

    return NetworkArrays(
        embedding=np.asarray(pair.embedding, np.float32),
        offsets=offsets(pair.shape.sizes),
        layers=tuple(dense(layer) for layer in pair.trunk),
        head=raw(pair.head, spread),
        imitation=None if pair.imitation is None else dense(pair.imitation),
        outcome=None if pair.supervised is None else raw(pair.supervised, spread[: pair.shape.num_outcomes]),
        num_actions=pair.shape.num_actions,
    )
