"""How well networks predict users that trained none of them: which are taken, and how large effects are.

    explained_h = 1 − Σ (y − m(s) − f · effect)² / Σ (y − ȳ)²       of the day's outcome h, over rows of *select* users

f is the size that suits effects best, so shrinking them all alike changes nothing. What comes after the day is left
out: its target is a value that training itself learns, and a value that overfits is easier to explain.

Source: Nie and Wager (2021); Schuler et al. (2018), "A comparison of methods for model selection when estimating
individual treatment effects", where the R-loss does best.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.transitions import SELECT, Transitions
from outlay.learning.orthogonal_loss import Loss, OrthogonalState, known_targets
from outlay.nets.batches import Batch, chunks, gather, padded
from outlay.nets.orthogonal import TARGETS, tell

TINY = 1e-12
Vector = NDArray[np.float64]
ROWS = 50_000  # of select users, at most


class EffectMoments(NamedTuple):
    """Sums over rows, `[TARGETS, H]` each."""

    cross: Vector  # left · effect
    effect: Vector  # effect²
    left: Vector  # left²: what the means leave
    spread: Vector  # (target − its mean)²

    @property
    def explained(self) -> Vector:
        """`[H]` share of the day that means and effects explain."""
        gained = np.maximum(self.cross, 0) ** 2 / np.maximum(self.effect, TINY)
        share: Vector = 1 - (self.left - gained)[0] / np.maximum(self.spread[0], TINY)
        return share

    @property
    def size(self) -> Vector:
        """The factor by which effects have to be multiplied."""
        return self.cross / np.maximum(self.effect, TINY)


class HeldOut:
    """Rows of select users in which there was a choice, `rows [n]`."""

    def __init__(self, data: Transitions, loss: Loss, width: int, seed: int) -> None:
        """Draw them.

        Args:
            data: the log.
            loss: of the training.
            width: of an embedding.
            seed: of the draw, where there are more than are needed.
        """
        rows = choice_rows(data, ROWS, seed)
        self.rows, self._data, self._parts = rows, data, chunks(data, rows, width)
        self._loss = loss

    def moments(self, learner: OrthogonalState) -> EffectMoments:
        """Sums for the averaged networks of a learner."""
        sums = np.zeros((6, TARGETS, len(self._loss.spread)))
        for part, rows in padded(self._parts):
            batch = jax.tree.map(jnp.asarray, gather(self._data, rows, table=False, next_states=False))
            counts = jnp.asarray(np.arange(len(rows)) < len(part))
            sums += np.asarray(_sums(self._loss, learner, batch, counts), np.float64)
        cross, effect, left, total, square, count = sums
        return EffectMoments(cross, effect, left, square - total**2 / np.maximum(count, 1))


@eqx.filter_jit
def _sums(loss: Loss, learner: OrthogonalState, batch: Batch, counts: Array) -> Array:
    """`[6, TARGETS, H]` of the rows that count `[B]`; compiled once for all folds."""
    # Neither half was taught by these users, so the means of one are as good as those of the other.
    targets = loss.targets(learner, batch, jnp.zeros(len(batch.action), jnp.int32))
    slope = tell(learner.averaged, batch.state.codes, batch.state.numbers).slope.mean(0)
    effect = jnp.einsum("bphd,bd->bph", slope, targets.moved)
    weight = (counts * batch.chosen)[:, None, None] * known_targets(batch)
    left = jnp.stack([targets.day - targets.usual[:, 0], targets.without_luck], axis=1) / loss.units[:, None]
    target = jnp.stack([targets.day, targets.other], axis=1) / loss.units[:, None]
    parts = (left * effect, effect**2, left**2, target, target**2, jnp.ones_like(target))
    return jnp.stack([(weight * part).sum(0) for part in parts])


def choice_rows(data: Transitions, most: int, seed: int) -> NDArray[np.int64]:
    """Rows of select users in which there was a choice, at most so many of them, ascending."""
    rows = data.rows_of(SELECT)
    rows = rows[~data.forced[rows]]
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
    return rows
