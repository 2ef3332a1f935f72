"""The loss of the orthogonal critic: what its networks are trained towards, and how far they are from it.

The equations are those of `learning/orthogonal.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from outlay.nets.batches import Batch
from outlay.nets.network import Linear
from outlay.nets.orthogonal import EffectOutputs, OrthogonalNetwork, Trunk, tell

KEPT = 0.5  # share of what the model of the day after leaves that effects still learn from
MODEL_WEIGHT, AFTER_WEIGHT = 0.04, 0.2  # in the loss: that model; effects on what comes after the day
NEVER = -1e9  # log probability of what was not allowed: finite, for it is multiplied by 0 in rows without a choice


class Value(eqx.Module):
    """V of the log's policy by either half of the users: linear in what a trunk of theirs says."""

    trunk: Trunk  # a pair
    head: Linear  # a pair

    def __call__(self, codes: Array, numbers: Array) -> Array:
        """States → `[2, B, H]`, in units of each head's spread."""
        return eqx.filter_vmap(lambda trunk, head: head(trunk(codes, numbers)))(self.trunk, self.head)  # type: ignore[no-any-return]


class Learner(NamedTuple):
    """What the next block needs; all arrays."""

    online: OrthogonalNetwork
    averaged: OrthogonalNetwork  # exponential averages of `online`
    value: Value
    optimiser: optax.OptState


class Aims(NamedTuple):
    """What the networks of a step are trained towards; no gradient flows through it."""

    day: Array  # [B, H] y₀
    own: Array  # [B, H] y₁ by the value of the row's own half
    other: Array  # [B, H] y₁ by that of the other half
    usual: Array  # [B, TARGETS, H] m of the other half's network
    moved: Array  # [B, d] ẽ of the logged action
    functions: Array  # [B, d] e of the logged action
    outcome: Array  # [B, H] the day's outcomes that do not follow from others
    without_luck: Array  # [B, H] y₁ − m₁ − κ (x − E[x | s, a])
    modelled: Array  # [B, H] effect on y₁ as the model of the day after has it, with a share of what that leaves


@dataclass(frozen=True)
class Loss:
    """The loss of a step.

    Attributes:
        discount: γ.
        spread: `[H]` units of the heads.
        functions: `[d, K]` e.
        units: `[TARGETS]` of the effects, in units of the levels.
        learned: `[TARGETS, H]` 0 where the effect follows from another.
    """

    discount: float
    spread: Array
    functions: Array
    units: Array
    learned: Array

    def aims(self, learner: Learner, batch: Batch, fold: Array) -> Aims:
        """What a step trains towards, by the averages so far; `fold [B]` is the half of the users of each row."""
        said = tell(learner.averaged, batch.state.codes, batch.state.numbers)
        after = learner.value(batch.next_state.codes, batch.next_state.numbers) * batch.discount[:, None]  # [2, B, H]
        row, other = jnp.arange(len(fold)), 1 - fold
        day, usual = batch.outcome / self.spread, said.mean[other, row]
        outcome = day * self.learned[0]
        prob = jax.nn.softmax(jnp.where(batch.allowed, said.logits[other, row], NEVER))
        every = self.functions.T - (prob @ self.functions.T)[:, None]  # [B, K, d] ẽ
        moved = every[row, batch.action]
        # The effects of both networks are taught by all users, so their mean is as good as either.
        expected = usual[:, None, 0] + jnp.einsum("bhd,bkd->bkh", said.slope[:, :, 0].mean(0), every)
        direct, carried = said.direct.mean(0), said.carried.mean(0)
        effect = jnp.einsum("bhd,bkd->bkh", direct, every)
        effect += jnp.einsum("bkhx,bkx->bkh", carried, expected * self.learned[0])
        effect -= (prob[:, :, None] * effect).sum(1, keepdims=True)
        luck = (day - expected[row, batch.action]) * self.learned[0]
        left = after[other, row] - self.after(said, other, batch.action, moved, outcome)
        return jax.lax.stop_gradient(Aims(
            day=day,
            own=after[fold, row],
            other=after[other, row],
            usual=usual,
            moved=moved,
            functions=self.functions.T[batch.action],
            outcome=outcome,
            without_luck=after[other, row] - usual[:, 1] - _product(carried[row, batch.action], luck),
            modelled=effect[row, batch.action] + KEPT * left,
        ))  # fmt: skip

    @staticmethod
    def after(said: EffectOutputs, fold: Array, action: Array, moved: Array, outcome: Array) -> Array:
        """`[B, H]` what comes after the day, given state, action and outcomes, by the network of a half of users."""
        row = jnp.arange(len(fold))
        changed = _product(said.direct[fold, row], moved) + _product(said.carried[fold, row, action], outcome)
        return said.idle[fold, row] + changed

    def __call__(self, online: OrthogonalNetwork, batch: Batch, aims: Aims, fold: Array) -> Array:
        """How far the networks are from it, in squares of each head's spread."""
        said: EffectOutputs = tell(online, batch.state.codes, batch.state.numbers)
        row, known, chosen = jnp.arange(len(fold)), known_targets(batch), batch.chosen[:, None, None]
        usual = known * jnp.square(said.mean[fold, row] - jnp.stack([aims.day, aims.own], axis=1))
        log_prob = jax.nn.log_softmax(jnp.where(batch.allowed, said.logits[fold, row], NEVER))
        imitation = -batch.chosen * log_prob[row, batch.action]
        after = self.after(said, fold, batch.action, aims.moved, aims.outcome)
        model = known[:, 1] * jnp.square((after - aims.own) / self.units[1])
        wanted = jnp.stack([aims.day - aims.usual[:, 0], aims.modelled], axis=1) / self.units[:, None]
        effect = jnp.square(wanted - jnp.einsum("ebphd,bd->ebph", said.slope, aims.moved)) * known * chosen
        effect *= self.learned * jnp.array([1.0, AFTER_WEIGHT])[:, None]
        slope = jax.lax.stop_gradient(jnp.einsum("ebphd,bd->ebph", said.slope, aims.functions))
        value = jnp.stack([aims.day, aims.other], axis=1)
        level = known * jnp.square(said.level + self.units[:, None] * slope - value)
        total: Array = (
            usual.sum((1, 2)).mean()
            + imitation.mean()
            + MODEL_WEIGHT * model.sum(1).mean()
            + (effect + level).sum((0, 2, 3)).mean()
        )
        return total


def _product(matrix: Array, vector: Array) -> Array:
    """`[B, n]` of `[B, n, k]` and `[B, k]`."""
    return jnp.einsum("bnk,bk->bn", matrix, vector)


def known_targets(batch: Batch) -> Array:
    """`[B, TARGETS, 1]` 1 where a target is known: the day always, what comes after it where the log or story tells."""
    return jnp.stack([jnp.ones_like(batch.has_target), batch.has_target], axis=1)[..., None]
