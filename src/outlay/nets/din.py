"""DIN: how a user responds to each incentive, given what happened on the days before.

    z, q    = fields of the current state; q = [z, v_a] W_day        the query: today with a candidate incentive
    e_l     = [z_l, v_al] W_day + outcome_l W_o + age_l              a past day: what was, what came, how long ago
    u_l     = unit(q, e_l) = w · relu(W [q, e_l, q·e_l] + b)         how much that day matters, 0 where absent
    y       = net(z, v_a, Σ_l u_l e_l)

The weights u are not normalised by a softmax. The paper leaves it out too (section 4.3): a softmax makes the weights of
every user sum to 1, so that one past day that resembles today counts as much as seven.

Source: Zhou et al. (KDD 2018), sections 4.2 and 4.3. We differ in what an item is (a day, not a good), in the product
q·e taken element by element, and in ReLU for PReLU and Dice.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from outlay.core.response import Past
from outlay.nets.deepfm import Draw, Fields, ResponseShape, flatten, tower
from outlay.nets.network import Linear

UNIT_WIDTH = 36  # of the attention unit, as in the paper
MOST_AGE = 31  # days ago; older days share a vector


class DIN(eqx.Module):
    """The model; heads in units of their spread around their mean, or log odds."""

    fields: Fields
    day: Linear  # [(n·k), D] of q and e
    outcome: Array  # [1+m, D]
    age: Array  # [MOST_AGE + 1, D]
    unit: Linear  # [3·D, UNIT_WIDTH]
    relevance: Linear  # [UNIT_WIDTH, 1]
    dense: tuple[Linear, ...]  # the last one gives the heads
    shape: ResponseShape = eqx.field(static=True)

    def logged(self, codes: Array, numbers: Array, action: Array, past: Past) -> Array:
        """`[B, H]` the answer to one incentive each: `codes [B, F]`, `numbers [B, n]`, `action [B]`."""
        flat = flatten(self.fields(codes, numbers))
        pooled = self._pool((self._day(flat) + self._action_day[action])[:, None], past)[:, 0]
        return tower(self.dense, self._deep(flat) + self._action_deep[action] + pooled @ self._pooled_weight)

    def every(self, codes: Array, numbers: Array, past: Past) -> Array:
        """`[B, K, H]` the answer to every incentive."""
        flat = flatten(self.fields(codes, numbers))
        pooled = self._pool(self._day(flat)[:, None] + self._action_day, past)
        return tower(self.dense, self._deep(flat)[:, None] + self._action_deep + pooled @ self._pooled_weight)

    def _pool(self, query: Array, past: Past) -> Array:
        """Σ_l u_l e_l for queries `[B, Q, D]` → `[B, Q, D]`."""
        days = self._day(flatten(self.fields(past.codes, past.numbers))) + self._action_day[past.action]
        days += past.outcome @ self.outcome + self.age[jnp.clip(past.age, 0, MOST_AGE)]
        of_query, of_day, of_product = jnp.split(self.unit.weight, 3)
        # [q, e, q·e] W in three parts: the first two need not be made for every pair of query and day.
        product = (query[:, :, None] * days[:, None]) @ of_product
        hidden = jax.nn.relu(product + (query @ of_query)[:, :, None] + (days @ of_day)[:, None] + self.unit.bias)
        relevance = jnp.where((past.age >= 0)[:, None], self.relevance(hidden)[..., 0], 0.0)
        return jnp.einsum("bql,bld->bqd", relevance, days)

    def _day(self, flat: Array) -> Array:
        """`[…, D]` the state's part of q and e."""
        return flat @ self.day.weight[: flat.shape[-1]] + self.day.bias

    def _deep(self, flat: Array) -> Array:
        """`[B, width]` the state's part of the first layer."""
        return flat @ self.dense[0].weight[: flat.shape[-1]] + self.dense[0].bias

    @property
    def _action_day(self) -> Array:
        """`[K, D]`."""
        return self.fields.action @ self.day.weight[-self.shape.embedding :]

    @property
    def _action_deep(self) -> Array:
        """`[K, width]`."""
        place = (self.shape.num_fields - 1) * self.shape.embedding
        return self.fields.action @ self.dense[0].weight[place : place + self.shape.embedding]

    @property
    def _pooled_weight(self) -> Array:
        """`[D, width]`."""
        return self.dense[0].weight[self.shape.num_fields * self.shape.embedding :]


def init(shape: ResponseShape, num_outcomes: int, seed: int) -> DIN:
    """A fresh model, a function of the seed.

    Args:
        shape: of the model.
        num_outcomes: 1+m, the outcomes known of a past day.
        seed: of the parameters.
    """
    draw = Draw(seed)
    flat, width = shape.num_fields * shape.embedding, 2 * shape.embedding
    return DIN(
        fields=draw.fields(shape, shape.embedding, 0.5),
        day=draw.linear(flat, width),
        outcome=draw.normal(0.5, num_outcomes, width),
        age=draw.normal(0.5, MOST_AGE + 1, width),
        unit=draw.linear(3 * width, UNIT_WIDTH),
        relevance=draw.linear(UNIT_WIDTH, 1, 0.1),
        dense=draw.layers(flat + width, shape.layers, shape.num_heads),
        shape=shape,
    )


def no_past(model: DIN, rows: int, length: int) -> Past:
    """The past of rows of which no day before is known."""
    at, zero = (rows, length), np.zeros((rows, length), np.int32)
    return Past(
        codes=np.zeros((*at, len(model.shape.sizes)), np.int32),
        numbers=np.zeros((*at, model.shape.num_numbers), np.float32),
        action=zero,
        outcome=np.zeros((*at, len(model.outcome)), np.float32),
        age=zero - 1,
    )
