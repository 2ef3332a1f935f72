"""Networks that tell what an action changes apart from what happens anyway; always a pair of them, stacked.

    h = usual(s):   m_p(s)                     mean of the target p under the log's policy, a vector of H
                    b(a|s)                     the log's policy
                    u(s), κ(s, a)              what comes after a day without outcomes; and for each unit of them
    g = effect(s):  τ_p,j(s)                   coefficients of the effects, [H] for each of d functions e_j of a
                    δ_j(s)                     those on what comes after the day, its outcomes held fixed
    h and g:        β_p(s)                     level, so that  Q_p(s, a) = β_p(s) + Σ_j τ_p,j(s) e_j(a)

There are two targets p: what the day itself brings, and what comes after it. Two trunks, so that what is needed to tell
who is active anyway does not use up the capacity for what an action changes. They share the embeddings of codes: what
kind of user this is matters to both, and outcomes teach it much faster than effects do. An effect trunk with embeddings
of its own would fit the noise of every value. Effects teach the embeddings too, if with less weight, since a field may
change what an action does and nothing else.
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
from outlay.nets.network import PAIR, Linear, offsets, twice

TARGETS = 2  # the day itself; what comes after it
TAUGHT = 0.3  # weight of the gradients by which effects teach the embeddings


class EffectShape(NamedTuple):
    """What the networks must be able to hold."""

    sizes: tuple[int, ...]  # codes per categorical field
    num_numbers: int  # width of the numeric part
    num_actions: int  # K
    num_heads: int  # H: reward, costs, decisions where measured
    layers: tuple[int, ...]
    embedding: int
    num_functions: int  # d


class Trunk(eqx.Module):
    """Embedded codes and numbers `[B, in]` → the last hidden layer `[B, width]`."""

    layers: tuple[Linear, ...]

    def __call__(self, inputs: Array) -> Array:
        """Return the last hidden layer."""
        h = inputs
        for layer in self.layers:
            h = jax.nn.relu(layer(h))
        return h


class EffectOutputs(NamedTuple):
    """What one network says about B states; values in units of each head's spread."""

    mean: Array  # [B, TARGETS, H]
    logits: Array  # [B, K] of the log's policy
    idle: Array  # [B, H] what comes after a day without outcomes, on average over actions
    direct: Array  # [B, H, d] effects on it
    carried: Array  # [B, K, H, H] what comes after the day for each unit of the day's outcomes, which stand last
    slope: Array  # [B, TARGETS, H, d]
    level: Array  # [B, TARGETS, H]


class OrthogonalNetwork(eqx.Module):
    """A network; `init_orthogonal` stacks two of them on the first axis of every array."""

    embedding: Array  # [V, k]
    usual: Trunk
    effect: Trunk
    mean: Linear
    logits: Linear
    idle: Linear
    direct: Linear
    carried: Linear
    slope: Linear
    level: Linear
    shape: EffectShape = eqx.field(static=True)

    def __call__(self, codes: Array, numbers: Array, order: Array | None = None) -> EffectOutputs:
        """States `codes [B, F]`, `numbers [B, n]` → what it says; `order` as in `hidden`.

        The level's gradient ends at the hidden layers.
        """
        h, g = self.hidden(codes, numbers, order)
        count = len(h)
        heads = (TARGETS, self.shape.num_heads)
        both = jax.lax.stop_gradient(jnp.concatenate([h, g], axis=1))
        return EffectOutputs(
            mean=self.mean(h).reshape(count, *heads),
            logits=self.logits(h),
            idle=self.idle(h),
            direct=self.direct(g).reshape(count, heads[1], self.shape.num_functions),
            carried=self.carried(h).reshape(count, self.shape.num_actions, heads[1], heads[1]),
            slope=self.slope(g).reshape(count, *heads, self.shape.num_functions),
            level=self.level(both).reshape(count, *heads),
        )

    def hidden(self, codes: Array, numbers: Array, order: Array | None = None) -> tuple[Array, Array]:
        """The last hidden layers `[B, width]` of both trunks.

        Args:
            codes: `[B, F]`.
            numbers: `[B, n]`.
            order: `[B]` all rows, the half of them first that teach `usual`: the others have no gradient there, and
                none is computed. None: all teach.
        """
        embedded = self.embedding[codes + jnp.asarray(offsets(self.shape.sizes))].reshape(len(codes), -1)
        inputs = jnp.concatenate([embedded, numbers], axis=1)
        softly = TAUGHT * embedded + (1 - TAUGHT) * jax.lax.stop_gradient(embedded)
        g = self.effect(jnp.concatenate([softly, numbers], axis=1))
        if order is None:
            return self.usual(inputs), g
        own, others = jnp.split(order, [len(order) // PAIR])
        told = jax.lax.stop_gradient(self.usual(inputs[others]))
        return jnp.concatenate([self.usual(inputs[own]), told])[jnp.argsort(order)], g


def init_orthogonal(shape: EffectShape, seed: int, level: NDArray[np.float64]) -> OrthogonalNetwork:
    """Two independent networks, stacked on the first axis of every array.

    Args:
        shape: of both.
        seed: of the weights.
        level: `[TARGETS, H]` what the means and levels start from, in units of the heads. Effects start near 0.
    """
    # Drawn with NumPy: JAX would compile a program for every array's shape.
    rng = np.random.default_rng(seed)

    def normal(scale: float, *size: int) -> Array:
        return jnp.asarray(rng.normal(0, scale, (PAIR, *size)), jnp.float32)

    def linear(num_in: int, num_out: int, gain: float, bias: NDArray[np.float64] | None = None) -> Linear:
        start = np.zeros(num_out) if bias is None else bias.ravel()
        scale = (gain / max(num_in, 1)) ** 0.5
        return Linear(normal(scale, num_in, num_out), jnp.asarray(np.tile(start, (PAIR, 1)), jnp.float32))

    widths = (len(shape.sizes) * shape.embedding + shape.num_numbers, *shape.layers)

    def trunk() -> Trunk:
        return Trunk(tuple(linear(a, b, 2.0) for a, b in pairwise(widths)))

    values = TARGETS * shape.num_heads
    return OrthogonalNetwork(
        embedding=normal(0.5, sum(shape.sizes), shape.embedding),
        usual=trunk(),
        effect=trunk(),
        mean=linear(widths[-1], values, 0.1, level),
        logits=linear(widths[-1], shape.num_actions, 0.1),
        idle=linear(widths[-1], shape.num_heads, 0.1, level[1]),
        direct=linear(widths[-1], shape.num_heads * shape.num_functions, 0.01),
        carried=linear(widths[-1], shape.num_actions * shape.num_heads**2, 0.01),
        slope=linear(widths[-1], values * shape.num_functions, 0.01),
        level=linear(2 * widths[-1], values, 0.01, level),
        shape=shape,
    )


def tell(pair: OrthogonalNetwork, codes: Array, numbers: Array, order: Array | None = None) -> EffectOutputs:
    """Both networks on the same states: every output gets a leading axis of 2.

    Args:
        pair: from `init_orthogonal`.
        codes: `[B, F]`.
        numbers: `[B, n]`.
        order: `[2, B]` for each network, as in `OrthogonalNetwork.hidden`; None: all rows teach all of it.
    """
    if order is None:
        return eqx.filter_vmap(lambda net, codes: net(codes, numbers))(pair, twice(codes))  # type: ignore[no-any-return]
    return eqx.filter_vmap(lambda net, codes, order: net(codes, numbers, order))(pair, twice(codes), order)  # type: ignore[no-any-return]


def value_heads(
    pair: OrthogonalNetwork, functions: NDArray[np.float64], units: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Q of both targets as one linear layer on both trunks.

    Args:
        pair: from `init_orthogonal`.
        functions: `[d, K]` e.
        units: `[TARGETS]` what the effects of a target are multiplied by to be in the unit of its level.

    Returns:
        weights `[2, 2·width, K, TARGETS, H]` and biases `[2, K, TARGETS, H]`, in units of each head's spread.
    """
    shape = pair.shape

    def split(part: Array, *inner: int) -> NDArray[np.float64]:
        return np.asarray(part, np.float64).reshape(*part.shape[:-1], TARGETS, shape.num_heads, *inner)

    slope_weight, slope_bias = (
        np.einsum("...phd,dk,p->...kph", split(part, len(functions)), functions, units)
        for part in (pair.slope.weight, pair.slope.bias)
    )
    level_weight, level_bias = split(pair.level.weight), split(pair.level.bias)
    weight = np.repeat(level_weight[:, :, None], shape.num_actions, axis=2)
    weight[:, -slope_weight.shape[1] :] += slope_weight
    return weight, level_bias[:, None] + slope_bias


def arrays_of(
    pair: OrthogonalNetwork,
    head: tuple[NDArray[np.float64], NDArray[np.float64]],
    outcome: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NetworkArrays:
    """A trained pair as plain arrays: the two trunks of a network side by side, as one of twice the width.

    Args:
        pair: from `init_orthogonal`.
        head: weights `[2, 2·width, K, L, H]` and biases `[2, K, L, H]` of L policies, raw units.
        outcome: the same of the day's own outcomes, `[2, 2·width, K, 1+m]` and `[2, K, 1+m]`.
    """
    shape = pair.shape
    layers: list[Dense] = []
    for depth, both in enumerate(zip(pair.usual.layers, pair.effect.layers, strict=True)):
        parts = [np.asarray(layer.weight, np.float32) for layer in both]
        bias = np.concatenate([np.asarray(layer.bias, np.float32) for layer in both], axis=-1)
        layers.append((np.concatenate(parts, axis=-1) if depth == 0 else _beside(parts), bias))

    def flat(part: tuple[NDArray[np.float64], NDArray[np.float64]]) -> Dense:
        weight, bias = part
        return (
            weight.reshape(*weight.shape[:2], -1).astype(np.float32),
            bias.reshape(len(bias), -1).astype(np.float32),
        )

    return NetworkArrays(
        embedding=np.asarray(pair.embedding, np.float32),
        offsets=offsets(shape.sizes),
        layers=tuple(layers),
        head=flat(head),
        imitation=None,
        num_actions=shape.num_actions,
        outcome=flat(outcome),
        num_policies=head[0].shape[3],
    )


def _beside(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Two layers that do not see each other: `[2, in, out]` twice → `[2, 2·in, 2·out]`."""
    rows, columns = parts[0].shape[1:]
    whole = np.zeros((PAIR, 2 * rows, 2 * columns), np.float32)
    whole[:, :rows, :columns], whole[:, rows:, columns:] = parts
    return whole
