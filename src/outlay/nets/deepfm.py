"""DeepFM: how a user responds to each incentive, from a factorisation machine and a network on the same embeddings.

    v_ih    = embedding of field i for head h: of its code, or a number times its own vector; the incentive a is a field
    y_h     = b_h + Σ_i w_ih  +  Σ_{i<j} ⟨v_ih, v_jh⟩ / 10 N  +  net_h(v_1 … v_N)
    Σ_{i<j} = ½ [(Σ_i v_i)² − Σ_i v_i²] over the state's fields, plus (Σ_i v_i) · v_a

so that all K incentives cost one sum over the state's fields and one product of them with the first layer; only what
comes after the first layer is done K times.

Source: Guo et al. (IJCAI 2017). With one head it is their model: the pairwise part reads v / √(10 N), a constant that
the first layer of the network makes up for. With it wide logs start at the same scale as narrow ones, and the pairwise
part grows where pairs matter: without the 10 it learned the noise of heavy-tailed rewards. With H heads each has
embeddings of its own in the pairwise part, and the network reads those of all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from outlay.nets.network import Linear, offsets

PAIRS_START = 10  # the 10 of the pairwise part


class ResponseShape(NamedTuple):
    """What a response model must be able to hold."""

    sizes: tuple[int, ...]  # codes per categorical field
    num_numbers: int  # width of the numeric part
    num_actions: int  # K
    num_heads: int  # H
    layers: tuple[int, ...]
    embedding: int  # k

    @property
    def num_fields(self) -> int:
        """N, the incentive included."""
        return len(self.sizes) + self.num_numbers + 1


class Fields(eqx.Module):
    """Embeddings of the fields of a state and of the incentive, all of width D."""

    code: Array  # [V, D]
    number: Array  # [n, D]
    action: Array  # [K, D]
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, codes: Array, numbers: Array) -> Array:
        """`[…, F]`, `[…, n]` → `[…, F + n, D]`; the incentive is not among them."""
        of_codes = self.code[codes + jnp.asarray(offsets(self.sizes))]
        return jnp.concatenate([of_codes, numbers[..., None] * self.number], axis=-2)


class StateTerms(NamedTuple):
    """What the answer for any incentive needs of B states."""

    first: Array  # [B, H] Σ w over the fields
    total: Array  # [B, H·k] Σ v
    pairs: Array  # [B, H·k] Σ_{i<j} v_i v_j, element by element
    deep: Array  # [B, width] of the first layer's product


class DeepFM(eqx.Module):
    """The model; heads in units of their spread around their mean, or log odds."""

    fields: Fields  # D = H·k, head after head
    weight: Fields  # first order: D = H
    dense: tuple[Linear, ...]  # the last one gives the heads
    shape: ResponseShape = eqx.field(static=True)

    def logged(self, codes: Array, numbers: Array, action: Array) -> Array:
        """`[B, H]` the answer to one incentive each: `codes [B, F]`, `numbers [B, n]`, `action [B]`."""
        states, v = self._terms(codes, numbers), self.fields.action[action]
        deep = tower(self.dense, states.deep + v @ self._action_weight)
        return states.first + self.weight.action[action] + self._inner(states.pairs + states.total * v) + deep

    def every(self, codes: Array, numbers: Array) -> Array:
        """`[B, K, H]` the answer to every incentive."""
        states, v = self._terms(codes, numbers), self.fields.action
        pairs = self._inner(states.pairs[:, None] + states.total[:, None] * v)
        deep = tower(self.dense, states.deep[:, None] + v @ self._action_weight)
        return states.first[:, None] + self.weight.action + pairs + deep

    def _inner(self, products: Array) -> Array:
        """`[…, H·k]` products of elements → `[…, H]` inner products over N."""
        shape = self.shape
        by_head = products.reshape(*products.shape[:-1], shape.num_heads, shape.embedding)
        return by_head.sum(-1) / (PAIRS_START * shape.num_fields)

    def _terms(self, codes: Array, numbers: Array) -> StateTerms:
        v = self.fields(codes, numbers)
        total = v.sum(1)
        first, flat = self.dense[0], flatten(v)
        return StateTerms(
            first=self.weight(codes, numbers).sum(1),
            total=total,
            pairs=(jnp.square(total) - jnp.square(v).sum(1)) / 2,
            deep=flat @ first.weight[: flat.shape[1]] + first.bias,
        )

    @property
    def _action_weight(self) -> Array:
        return self.dense[0].weight[-self.fields.action.shape[1] :]


def flatten(fields: Array) -> Array:
    """Embeddings `[…, F + n, D]` side by side: `[…, (F + n)·D]`."""
    return fields.reshape(*fields.shape[:-2], fields.shape[-2] * fields.shape[-1])


def tower(dense: tuple[Linear, ...], first: Array) -> Array:
    """The layers after the first product: `[…, width]` → `[…, H]`."""
    for layer in dense[1:]:
        first = layer(jax.nn.relu(first))
    return first


class Draw:
    """Fresh parameters from a seed, drawn with NumPy: JAX would compile a program for every array's shape."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(self, scale: float, *size: int) -> Array:
        """Normal with the given standard deviation."""
        return jnp.asarray(self._rng.normal(0, scale, size), jnp.float32)

    def linear(self, num_in: int, num_out: int, gain: float = 2.0) -> Linear:
        """A layer whose outputs have variance `gain` for inputs of variance 1."""
        return Linear(
            self.normal((gain / max(num_in, 1)) ** 0.5, num_in, num_out), jnp.asarray(np.zeros(num_out), "f4")
        )

    def layers(self, num_in: int, widths: tuple[int, ...], num_out: int) -> tuple[Linear, ...]:
        """Hidden layers and a last one that starts small."""
        sizes = (num_in, *widths)
        return (*(self.linear(a, b) for a, b in pairwise(sizes)), self.linear(sizes[-1], num_out, 0.1))

    def fields(self, shape: ResponseShape, width: int, scale: float) -> Fields:
        """Embeddings of every field."""
        code = self.normal(scale, sum(shape.sizes), width)
        number, action = self.normal(scale, shape.num_numbers, width), self.normal(scale, shape.num_actions, width)
        return Fields(code, number, action, shape.sizes)


def init(shape: ResponseShape, seed: int) -> DeepFM:
    """A fresh model, a function of the seed."""
    draw, width = Draw(seed), shape.num_heads * shape.embedding
    return DeepFM(
        fields=draw.fields(shape, width, 0.5),
        weight=draw.fields(shape, shape.num_heads, 0.0),
        dense=draw.layers(shape.num_fields * width, shape.layers, shape.num_heads),
        shape=shape,
    )
