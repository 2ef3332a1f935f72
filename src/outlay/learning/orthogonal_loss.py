"""The targets and the loss of the orthogonal critic.

The equations are those of `learning/orthogonal.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from outlay.nets.batches import Batch
from outlay.nets.network import PAIR
from outlay.nets.orthogonal import EffectOutputs, OrthogonalNetwork, tell

KEPT = 0.5  # share of the residual of the model g that effects still learn from
MODEL_WEIGHT, AFTER_WEIGHT = 0.04, 0.2  # weights in the loss: of g, and of effects on later days
NEVER = -1e9  # log probability of disallowed actions: finite, since rows without a choice multiply it by 0


class Learner(NamedTuple):
    """State carried from block to block; all arrays. V is in units of each head's spread."""

    online: OrthogonalNetwork
    averaged: OrthogonalNetwork  # exponential averages of `online`
    value: Array  # [2, N, H] V of the log's policy in the state of each row, by the network of each half of the users
    optimiser: optax.OptState


class Targets(NamedTuple):
    """The targets of a step; no gradient flows through them."""

    day: Array  # [B, H] y₀
    own: Array  # [B, H] y₁ by the value of the row's own half
    other: Array  # [B, H] y₁ by that of the other half
    usual: Array  # [B, TARGETS, H] m of the other half's network
    moved: Array  # [B, d] ẽ of the logged action
    functions: Array  # [B, d] e of the logged action
    outcome: Array  # [B, H] the day's outcomes that are not derived from others
    without_luck: Array  # [B, H] y₁ − m₁ − κ (x − E[x | s, a])
    modelled: Array  # [B, H] effect on y₁ by the model g, plus a share of its residual


@dataclass(frozen=True)
class Loss:
    """The loss of a step.

    Attributes:
        discount: γ.
        spread: `[H]` units of the heads.
        functions: `[d, K]` e.
        units: `[TARGETS]` units of the effects, relative to those of the levels.
        learned: `[TARGETS, H]` 0 where the effect is derived from another.
    """

    discount: float
    spread: Array
    functions: Array
    units: Array
    learned: Array

    def targets(self, learner: Learner, batch: Batch, fold: Array) -> Targets:
        """Compute the targets of a step from the averaged networks; `fold [B]` is the users' half of each row."""
        outputs = tell(learner.averaged, batch.state.codes, batch.state.numbers)
        after = learner.value[:, batch.next_row] * batch.discount[:, None]  # [2, B, H]
        row, other = jnp.arange(len(fold)), 1 - fold
        day, usual = batch.outcome / self.spread, outputs.mean[other, row]
        outcome = day * self.learned[0]
        prob = jax.nn.softmax(jnp.where(batch.allowed, outputs.logits[other, row], NEVER))
        every = self.functions.T - (prob @ self.functions.T)[:, None]  # [B, K, d] ẽ
        moved = every[row, batch.action]
        # The effects of both networks are learned from all users, so their mean can be used.
        expected = usual[:, None, 0] + jnp.einsum("bhd,bkd->bkh", outputs.slope[:, :, 0].mean(0), every)
        direct, carried = outputs.direct.mean(0), outputs.carried.mean(0)
        effect = jnp.einsum("bhd,bkd->bkh", direct, every)
        effect += jnp.einsum("bkhx,bkx->bkh", carried, expected * self.learned[0])
        effect -= (prob[:, :, None] * effect).sum(1, keepdims=True)
        luck = (day - expected[row, batch.action]) * self.learned[0]
        left = after[other, row] - self.after(outputs, other, batch.action, moved, outcome)
        return jax.lax.stop_gradient(
            Targets(
                day=day,
                own=after[fold, row],
                other=after[other, row],
                usual=usual,
                moved=moved,
                functions=self.functions.T[batch.action],
                outcome=outcome,
                without_luck=after[other, row] - usual[:, 1] - _product(carried[row, batch.action], luck),
                modelled=effect[row, batch.action] + KEPT * left,
            )
        )

    @staticmethod
    def after(outputs: EffectOutputs, fold: Array, action: Array, moved: Array, outcome: Array) -> Array:
        """Return `[B, H]` g(s, a, x) by the network of each row's half of the users."""
        row = jnp.arange(len(fold))
        changed = _product(outputs.direct[fold, row], moved) + _product(outputs.carried[fold, row, action], outcome)
        return outputs.idle[fold, row] + changed

    def __call__(self, online: OrthogonalNetwork, batch: Batch, targets: Targets, fold: Array) -> Array:
        """Compute the loss, in squared units of each head's spread; as many rows of each half of the users."""
        # What is learned from a half of the users needs no gradient from the rows of the other.
        order = jnp.argsort(fold != jnp.arange(PAIR)[:, None], axis=1)
        outputs: EffectOutputs = tell(online, batch.state.codes, batch.state.numbers, order)
        row, known, chosen = jnp.arange(len(fold)), known_targets(batch), batch.chosen[:, None, None]
        usual = known * jnp.square(outputs.mean[fold, row] - jnp.stack([targets.day, targets.own], axis=1))
        log_prob = jax.nn.log_softmax(jnp.where(batch.allowed, outputs.logits[fold, row], NEVER))
        imitation = -batch.chosen * log_prob[row, batch.action]
        after = self.after(outputs, fold, batch.action, targets.moved, targets.outcome)
        model = known[:, 1] * jnp.square((after - targets.own) / self.units[1])
        wanted = jnp.stack([targets.day - targets.usual[:, 0], targets.modelled], axis=1) / self.units[:, None]
        effect = jnp.square(wanted - jnp.einsum("ebphd,bd->ebph", outputs.slope, targets.moved)) * known * chosen
        effect *= self.learned * jnp.array([1.0, AFTER_WEIGHT])[:, None]
        slope = jax.lax.stop_gradient(jnp.einsum("ebphd,bd->ebph", outputs.slope, targets.functions))
        value = jnp.stack([targets.day, targets.other], axis=1)
        level = known * jnp.square(outputs.level + self.units[:, None] * slope - value)
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
    """Return `[B, TARGETS, 1]` 1 where a target is known: always for the day, else if the row has a next or ends."""
    return jnp.stack([jnp.ones_like(batch.has_target), batch.has_target], axis=1)[..., None]
