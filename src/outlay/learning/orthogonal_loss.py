"""The targets and the loss of the orthogonal critic. The equations are those of `learning/orthogonal.py`.

V of the log's policy, for each half of the users, is linear in the features of that half's `usual` trunk:

    Σ φ (φ − γ^Δ φ')ᵀ w = (1−γ) Σ φ x        over the rows of the half that are terminal or have a next row

A network trained towards its own moving average would need many times 1/(1−γ) steps to reach this fixed point of least
squares. V stays as it is until it is fitted again, so it is kept for each row: a step of the training looks up the
value of the next row and evaluates no network there.

Source: Bradtke and Barto (1996) for V.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from outlay.core.transitions import Transitions
from outlay.learning.outcomes import outcomes
from outlay.nets.batches import Batch, chunks, padded
from outlay.nets.network import PAIR
from outlay.nets.orthogonal import EffectOutputs, OrthogonalNetwork, tell

MOST_ROWS = 500_000  # from which V is fitted
SUM_ROWS = 4096  # whose products are added up at a time
RIDGE_ROWS = 6000.0  # number of rows at which the penalty on V equals the mean square of a feature; less in larger logs
Rows = NDArray[np.int64]
Vector = NDArray[np.float64]
KEPT = 0.5  # share of the residual of the model g that effects still learn from
MODEL_WEIGHT, AFTER_WEIGHT = 0.04, 0.2  # weights in the loss: of g, and of effects on later days
NEVER = -1e9  # log probability of disallowed actions: finite, since rows without a choice multiply it by 0


def fitted_values(
    data: Transitions, pair: OrthogonalNetwork, spread: Vector, learn_rows: Rows, further: Rows, seed: int
) -> Array:
    """Fit V; `[2, N, H]` its value in the state of each row that follows, in units of the spread; 0 elsewhere.

    Args:
        data: the transitions, N rows.
        pair: whose `usual` trunks make the features.
        spread: `[H]` the units.
        learn_rows: `[n]` rows from which V is fitted, each half of the users for itself.
        further: `[k]` other rows whose next rows are valued.
        seed: of the draw, where there are more rows than are needed.
    """
    needed = _marked(data, following(data, learn_rows), following(data, further))
    values = np.zeros((PAIR, len(data), len(spread)), np.float32)
    for half, rows in enumerate(halves_of(data, learn_rows)):
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False))
        network: OrthogonalNetwork = jax.tree.map(lambda part, half=half: jnp.asarray(np.asarray(part)[half]), pair)
        told = _marked(data, rows, following(data, rows))
        states, place = np.flatnonzero(told), np.cumsum(told, dtype=np.int32) - 1
        features = np.empty((len(states), pair.shape.layers[-1]), np.float32)
        for part, of in _features(data, network, states):
            features[place[part]] = of
        weight, bias = _solution(data, rows, place, features, spread)
        values[half, states] = features @ weight + bias
        for part, of in _features(data, network, np.flatnonzero(needed & ~told)):
            values[half, part] = of @ weight + bias
    return jnp.asarray(values)


def _marked(data: Transitions, *rows: Rows) -> NDArray[np.bool_]:
    """`[N]` whether a row is among some."""
    found = np.zeros(len(data), np.bool_)
    for part in rows:
        found[part] = True
    return found


def following(data: Transitions, rows: Rows) -> Rows:
    """The next row of each, or the row itself where there is none."""
    found = np.asarray(data.next_row[rows]).astype(np.int64)
    return np.where(found >= 0, found, rows)


def halves_of(data: Transitions, rows: Rows) -> tuple[Rows, Rows]:
    """Split rows by user, alternately in the order of their ids; a single user is in both halves."""
    _, place = np.unique(data.user[rows], return_inverse=True)
    even = place % PAIR == 0
    return rows[even], rows if even.all() else rows[~even]


@eqx.filter_jit
def _told(network: OrthogonalNetwork, codes: Array, numbers: Array) -> Array:
    """The features `[B, width]` of the `usual` trunk; compiled once for all fits of V."""
    return network.hidden(codes, numbers)[0]


def _features(data: Transitions, network: OrthogonalNetwork, rows: Rows) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """Parts of the rows, and the features `[B, width]` of each."""
    for part, whole in padded(chunks(data, rows, network.shape.embedding)):
        codes, numbers = data.codes(whole, data.code_type), data.numbers(whole)
        yield part, np.asarray(_told(network, jnp.asarray(codes), jnp.asarray(numbers)))[: len(part)]


def _solution(
    data: Transitions, rows: Rows, place: NDArray[np.int32], features: NDArray[np.float32], spread: Vector
) -> tuple[Vector, Vector]:
    """Weights `[width, H]` and constants `[H]` of V, from the features of the states of all rows and of what follows.

    Args:
        data: the transitions.
        rows: `[n]` rows of one half.
        place: `[N]` where the features of a row are.
        features: `[S, width]`.
        spread: `[H]` units of V.
    """
    gamma, width = data.campaign.meta.discount, features.shape[1] + 1
    matrix, right, square = np.zeros((width, width)), np.zeros((width, len(spread))), np.zeros(width)
    for part in np.array_split(rows, max(1, len(rows) // SUM_ROWS)):
        after = following(data, part)
        last, linked = np.asarray(data.terminal[part]), np.asarray(data.next_row[part]) >= 0
        discount = np.where(linked & ~last, gamma ** data.gap[part].astype(np.float64), 0.0)
        here, ahead = (_with_constant(features[place[at]]) for at in (part, after))
        here *= (linked | last)[:, None]
        matrix += here.T @ (here - discount[:, None] * ahead)
        right += (1 - gamma) * here.T @ (outcomes(data, part) / spread)
        square += (here**2).sum(axis=0)
    penalty = (RIDGE_ROWS / len(rows)) ** 2 * square.mean() * np.append(np.ones(width - 1), 0)
    solution = np.linalg.solve(matrix + np.diag(penalty), right)
    return solution[:-1], solution[-1]


def _with_constant(features: NDArray[np.float32]) -> Vector:
    return np.column_stack([features.astype(np.float64), np.ones(len(features))])


class OrthogonalState(NamedTuple):
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


class Loss(eqx.Module):
    """The loss of a step; its arrays are arguments of what is compiled.

    Attributes:
        spread: `[H]` units of the heads.
        functions: `[d, K]` e.
        units: `[TARGETS]` units of the effects, relative to those of the levels.
        learned: `[TARGETS, H]` 0 where the effect is derived from another.
    """

    spread: Array
    functions: Array
    units: Array
    learned: Array

    def targets(self, learner: OrthogonalState, batch: Batch, fold: Array) -> Targets:
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
