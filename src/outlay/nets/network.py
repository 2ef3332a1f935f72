"""The Q-network: embeddings, a trunk, and heads; always a pair of them, stacked (the double critic).

    z = concat(embedding[codes + offsets], numbers);  h = trunk(z);  Q̃_l(s, a) = Σ_r B[r, a] (h W_r,l + b_r,l)  as [H]

for each of L policies (1 for a game's critic, one a λ for a frontier). B is the action basis of `ops/action_basis.py`.

Inside, every head is in units of its spread (so that one learning rate serves all); `arrays` turns a trained pair into
plain arrays in raw units, a column for each action. The equations are those of `core/arrays.py`.
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

from outlay.core.arrays import Dense, NetworkArrays
from outlay.ops.action_basis import ActionBasis

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
    num_policies: int = 1  # L
    action_basis: ActionBasis | None = None  # B, R rows of K; None: the identity

    @property
    def rank(self) -> int:
        """R, coefficients of a head in the action basis."""
        return self.num_actions if self.action_basis is None else len(self.action_basis)


class Linear(eqx.Module):
    """h W + b."""

    weight: Array
    bias: Array

    def __call__(self, h: Array) -> Array:
        """`[B, in]` → `[B, out]`."""
        return h @ self.weight + self.bias


class NetworkOutputs(NamedTuple):
    """What one network says about B states."""

    q: Array  # [B, K, L, H], in units of each head's spread
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

    def __call__(self, codes: Array, numbers: Array) -> NetworkOutputs:
        """States `codes [B, F]`, `numbers [B, n]` → outputs."""
        embedded = self.embedding[codes + jnp.asarray(offsets(self.shape.sizes))]
        h = jnp.concatenate([embedded.reshape(len(codes), -1), numbers], axis=1)
        for layer in self.trunk:
            h = jax.nn.relu(layer(h))
        q = self._by_action(self.head(h))
        return NetworkOutputs(
            q=q.reshape(len(h), self.shape.num_actions, self.shape.num_policies, self.shape.num_heads),
            outcome=None if self.supervised is None else self._by_action(self.supervised(h)),
            logits=None if self.imitation is None else self.imitation(h),
            hidden=h,
        )

    def _by_action(self, coefficients: Array) -> Array:
        """`[B, R·n]` → `[B, K, n]`."""
        split = coefficients.reshape(len(coefficients), self.shape.rank, -1)
        if self.shape.action_basis is None:
            return split
        return jnp.einsum("brn,rk->bkn", split, jnp.asarray(self.shape.action_basis, jnp.float32))


def offsets(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """`[F]` first row of each field in the joint embedding table."""
    return np.cumsum((0, *sizes), dtype=np.int64)[:-1]


def init_pair(shape: Shape, seed: int, level: NDArray[np.float64] | None = None) -> QNetwork:
    """Two independent networks, stacked on the first axis of every array.

    Args:
        shape: of both.
        seed: of the weights.
        level: `[H]` what every Q and every immediate outcome start from, in units of the heads; default 0. A long
            horizon makes values climb from a wrong level for many steps.
    """
    # Drawn with NumPy: JAX would compile a program for every array's shape, which takes longer than a small training.
    rng = np.random.default_rng(seed)

    def normal(scale: float, *size: int) -> Array:
        return jnp.asarray(rng.normal(0, scale, (PAIR, *size)), jnp.float32)

    def linear(num_in: int, num_out: int, gain: float) -> Linear:
        scale = (gain / max(num_in, 1)) ** 0.5
        return Linear(normal(scale, num_in, num_out), jnp.asarray(np.zeros((PAIR, num_out), np.float32)))

    widths = (len(shape.sizes) * shape.embedding + shape.num_numbers, *shape.layers)

    def starting(head: Linear, policies: int) -> Linear:
        """The head, its values beginning at the level of the outcomes that it tells."""
        if level is None:
            return head
        # The constant is the first row of a smooth basis; of the identity it is the sum of all.
        constant = np.arange(shape.rank) == 0 if shape.action_basis is not None else np.ones(shape.rank)
        told = head.bias.shape[1] // (shape.rank * policies)
        bias = constant[:, None, None] * np.tile(level[:told], (policies, 1))
        return Linear(head.weight, jnp.asarray(np.tile(bias.ravel(), (PAIR, 1)), jnp.float32))

    head = linear(widths[-1], shape.rank * shape.num_policies * shape.num_heads, 0.1)
    return QNetwork(
        embedding=normal(0.5, sum(shape.sizes), shape.embedding),
        trunk=tuple(linear(a, b, 2.0) for a, b in pairwise(widths)),
        head=starting(head, shape.num_policies),
        supervised=starting(linear(widths[-1], shape.rank * shape.num_outcomes, 0.1), 1)
        if shape.num_outcomes
        else None,
        imitation=linear(widths[-1], shape.num_actions, 0.1) if shape.imitation else None,
        shape=shape,
    )


def apply_pair(pair: QNetwork, codes: Array, numbers: Array) -> NetworkOutputs:
    """Both networks on the same states: every output gets a leading axis of 2."""
    return eqx.filter_vmap(lambda net, codes: net(codes, numbers))(pair, twice(codes))  # type: ignore[no-any-return]


def twice(codes: Array) -> Array:
    """The same codes for each network of a pair, `[B, F]` → `[2, B, F]`.

    The gradient of an embedding is then a sum over the rows of one table. If `vmap` shares the codes, it is a sum over
    pairs of rows, which XLA computes several times as slowly on a processor.
    """
    return jnp.broadcast_to(codes, (PAIR, *codes.shape))


def arrays(pair: QNetwork, spread: NDArray[np.float64]) -> NetworkArrays:
    """A trained pair as plain arrays, heads in raw units.

    Args:
        pair: from `init_pair`.
        spread: `[H]` the unit of each head inside the network.
    """
    shape = pair.shape
    basis = np.eye(shape.num_actions) if shape.action_basis is None else np.asarray(shape.action_basis)

    def dense(layer: Linear) -> Dense:
        return np.asarray(layer.weight, np.float32), np.asarray(layer.bias, np.float32)

    def raw(part: NDArray[np.float32], unit: NDArray[np.float64]) -> NDArray[np.float32]:
        units = np.tile(unit, part.shape[-1] // (shape.rank * len(unit)))
        split = part.reshape(*part.shape[:-1], shape.rank, len(units)) * units
        by_action = np.einsum("...rn,rk->...kn", split, basis)
        whole: NDArray[np.float32] = by_action.reshape(*part.shape[:-1], -1).astype(np.float32)
        return whole

    def raws(layer: Linear, unit: NDArray[np.float64]) -> Dense:
        weight, bias = dense(layer)
        return raw(weight, unit), raw(bias, unit)

    return NetworkArrays(
        embedding=np.asarray(pair.embedding, np.float32),
        offsets=offsets(pair.shape.sizes),
        layers=tuple(dense(layer) for layer in pair.trunk),
        head=raws(pair.head, spread),
        imitation=None if pair.imitation is None else dense(pair.imitation),
        outcome=None if pair.supervised is None else raws(pair.supervised, spread[: shape.num_outcomes]),
        num_actions=shape.num_actions,
        num_policies=shape.num_policies,
    )
