"""DIN: how a user responds to each incentive, given what happened on the days before.

    z, q    = fields of the current state; q = [z, v_a] W_q          the query: today with a candidate incentive
    e_l     = past_l W_day + age_l                                   a past day: what was given, what came, how long ago
    u_l     = unit(q, e_l) = w · relu(W [q, e_l, q·e_l] + b)         how much that day matters, 0 where absent
    y       = net(z, v_a, Σ_l u_l e_l)

past_l are the numbers that tell the values of l days ago (`lags` in `core/history.py`); they are the last of a row's
numbers. The state's own fields are all others. A day is absent where none of its values is known.

The weights u are not normalised by a softmax. The paper leaves it out too (section 4.3): a softmax makes the weights of
every user sum to 1, so that one past day that resembles today counts as much as seven.

Source: Zhou et al. (KDD 2018), sections 4.2 and 4.3. We differ in what an item is (a day, not a good), in the product
q·e taken element by element, and in ReLU for PReLU and Dice.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from outlay.nets.deepfm import Draw, Fields, ResponseShape, flatten, tower
from outlay.nets.network import Linear

UNIT_WIDTH = 36  # of the attention unit, as in the paper


class DIN(eqx.Module):
    """The model; heads in units of their spread around their mean, or log odds."""

    fields: Fields
    query: Linear  # [(n·k), D]
    day: Array  # [2·C, D]
    age: Array  # [L, D]
    unit: Linear  # [3·D, UNIT_WIDTH]
    relevance: Linear  # [UNIT_WIDTH, 1]
    dense: tuple[Linear, ...]  # the last one gives the heads
    shape: ResponseShape = eqx.field(static=True)  # without the numbers of past days

    def logged(self, codes: Array, numbers: Array, action: Array) -> Array:
        """`[B, H]` the answer to one incentive each: `codes [B, F]`, `numbers [B, n + L·2C]`, `action [B]`."""
        flat = self._flat(codes, numbers)
        pooled = self._pool((self._query(flat) + self._action_query[action])[:, None], numbers)[:, 0]
        return tower(self.dense, self._deep(flat) + self._action_deep[action] + pooled @ self._pooled_weight)

    def every(self, codes: Array, numbers: Array) -> Array:
        """`[B, K, H]` the answer to every incentive."""
        flat = self._flat(codes, numbers)
        pooled = self._pool(self._query(flat)[:, None] + self._action_query, numbers)
        return tower(self.dense, self._deep(flat)[:, None] + self._action_deep + pooled @ self._pooled_weight)

    def _flat(self, codes: Array, numbers: Array) -> Array:
        return flatten(self.fields(codes, numbers[:, : self.shape.num_numbers]))

    def _pool(self, query: Array, numbers: Array) -> Array:
        """Σ_l u_l e_l for queries `[B, Q, D]` → `[B, Q, D]`."""
        past = numbers[:, self.shape.num_numbers :].reshape(len(numbers), len(self.age), -1)
        days = past @ self.day + self.age
        of_query, of_day, of_product = jnp.split(self.unit.weight, 3)
        # [q, e, q·e] W in three parts: the first two need not be made for every pair of query and day.
        product = (query[:, :, None] * days[:, None]) @ of_product
        hidden = jax.nn.relu(product + (query @ of_query)[:, :, None] + (days @ of_day)[:, None] + self.unit.bias)
        present = past[..., 1::2].min(axis=-1) < 0.5  # every second number says that a value is missing
        relevance = jnp.where(present[:, None], self.relevance(hidden)[..., 0], 0.0)
        return jnp.einsum("bql,bld->bqd", relevance, days)

    def _query(self, flat: Array) -> Array:
        """`[B, D]` the state's part of q."""
        return flat @ self.query.weight[: flat.shape[-1]] + self.query.bias

    def _deep(self, flat: Array) -> Array:
        """`[B, width]` the state's part of the first layer."""
        return flat @ self.dense[0].weight[: flat.shape[-1]] + self.dense[0].bias

    @property
    def _action_query(self) -> Array:
        """`[K, D]`."""
        return self.fields.action @ self.query.weight[-self.shape.embedding :]

    @property
    def _action_deep(self) -> Array:
        """`[K, width]`."""
        place = (self.shape.num_fields - 1) * self.shape.embedding
        return self.fields.action @ self.dense[0].weight[place : place + self.shape.embedding]

    @property
    def _pooled_weight(self) -> Array:
        """`[D, width]`."""
        return self.dense[0].weight[self.shape.num_fields * self.shape.embedding :]


def init(shape: ResponseShape, days: int, columns: int, seed: int) -> DIN:
    """A fresh model, a function of the seed.

    Args:
        shape: of the model; its numbers are those of the state alone.
        days: L.
        columns: C, the values that are told of a day.
        seed: of the parameters.
    """
    draw = Draw(seed)
    flat, width = shape.num_fields * shape.embedding, 2 * shape.embedding
    return DIN(
        fields=draw.fields(shape, shape.embedding, 0.5),
        query=draw.linear(flat, width),
        day=draw.linear(2 * columns, width).weight,
        age=draw.normal(0.5, days, width),
        unit=draw.linear(3 * width, UNIT_WIDTH),
        relevance=draw.linear(UNIT_WIDTH, 1, 0.1),
        dense=draw.layers(flat + width, shape.layers, shape.num_heads),
        shape=shape,
    )
