"""The policies of a trained orthogonal critic: effects of the right size, λ laid where costs fall, and one network."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.network import NetworkArrays
from outlay.core.transitions import SELECT, Transitions
from outlay.learning.multiplier_grid import laid_again, pilot_grid
from outlay.learning.orthogonal import Orthogonal, Progress
from outlay.learning.orthogonal_loss import Learner, known_targets
from outlay.nets.batches import Batch, gather
from outlay.nets.network import PAIR, Linear
from outlay.nets.orthogonal import TARGETS, OrthogonalNetwork, arrays_of, tell, value_heads
from outlay.ops.mixture_lp import solve_mixture

FAMILIES = ("ahead", "day")  # policies that look ahead, and those that look at the day alone
RESIZE_ROWS = 100_000  # of select users, on which the size of effects is told
RESIZE = (0.0, 4.0)  # the least and the most that effects are multiplied by
LOOK_ROWS = 4096  # of select users, on which the grid of λ is laid

Vector = NDArray[np.float64]


class Answers(NamedTuple):
    """The policies of a finished training.

    Attributes:
        network: a policy for each family of Q.
        policy: `[L]` the family by whose Q each λ is answered: first those that look ahead, then the day alone.
        multiplier: `[L, m]` λ, in reward units per unit of coordinate.
        said: `[G, 1+m]` what the critic says of the G that look ahead: reward and coordinates, the log's policy going
            on after the first day.
    """

    network: NetworkArrays
    policy: NDArray[np.int64]
    multiplier: Vector
    said: Vector


def answers(training: Orthogonal, progress: Progress) -> Answers:
    """The policies of a finished training, at λ laid where costs fall, with effects of the size that users show who
    taught none.
    """  # fmt: skip
    pair = _resized(training, progress.learner)
    heads, outcome = _raw_heads(training, pair)
    values = _values(training, pair, heads)
    grids, said = [], []
    for family in range(len(FAMILIES)):
        grid, told = _grid(training, *values, family)
        grids.append(grid)
        said.append(told)
    if training.discount == 0:
        grids, said = grids[1:], said[1:]
        heads = tuple(part[..., 1:, :] for part in heads)  # type: ignore[assignment]  # a pair
    network = arrays_of(pair, heads, outcome)
    families = np.repeat(np.arange(len(grids)), [len(grid) for grid in grids])
    return Answers(network, families, np.concatenate(grids), said[0])


def _resized(training: Orthogonal, learner: Learner) -> OrthogonalNetwork:
    """Effects times what a regression on them gives, by target and head, in rows of select users.

    Decay that is strong enough to tell well who responds more shrinks all effects, and those of what comes after the
    day more than those of the day.
    """
    data, loss, pair = training.data, training.loss, learner.averaged
    shape = pair.shape

    @eqx.filter_jit
    def sums(learner: Learner, batch: Batch) -> tuple[Array, Array]:
        # Neither half was taught by these users, so the means of one are as good as those of the other.
        aims = loss.aims(learner, batch, jnp.zeros(len(batch.action), jnp.int32))
        slope = tell(learner.averaged, batch.state.codes, batch.state.numbers).slope.mean(0)
        effect = jnp.einsum("bphd,bd->bph", slope, aims.moved)
        weight = batch.chosen[:, None, None] * known_targets(batch)
        left = jnp.stack([aims.day - aims.usual[:, 0], aims.without_luck], axis=1) / loss.units[:, None]
        return (weight * left * effect).sum(0), (weight * effect**2).sum(0)

    rows = _sampled(data, RESIZE_ROWS, training.seed)
    cross, square = np.zeros((2, TARGETS, shape.num_heads))
    for part in np.array_split(rows, max(1, len(rows) // LOOK_ROWS)):
        batch = jax.tree.map(jnp.asarray, gather(data, part, table=False))
        found = sums(learner, batch)
        cross += np.asarray(found[0], np.float64)
        square += np.asarray(found[1], np.float64)
    factor = np.clip(cross / np.maximum(square, 1e-12), *RESIZE)
    by_output = jnp.asarray(np.repeat(factor.ravel(), len(shape.functions)), jnp.float32)
    slope = Linear(pair.slope.weight * by_output, pair.slope.bias * by_output)
    resized: OrthogonalNetwork = eqx.tree_at(lambda net: net.slope, pair, slope)
    return resized


def _sampled(data: Transitions, most: int, seed: int) -> NDArray[np.int64]:
    """Rows of select users in which there was a choice, at most so many of them."""
    rows = data.rows_of(SELECT)
    rows = rows[~data.forced[rows]]
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
    return rows


def _raw_heads(training: Orthogonal, pair: OrthogonalNetwork) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector]]:
    """Q of the families `[..., K, FAMILIES, H]` and of the day's outcomes `[..., K, 1+m]`, raw: weights and biases."""
    weight, bias = value_heads(pair, training.units)
    derived, spread = training.derived, training.coords.spread
    count = len(derived.known)

    def raw(part: Vector, constant: float) -> tuple[Vector, Vector]:
        day, after = part[..., 0, :] * spread, part[..., 1, :] * spread  # [..., K, H]
        for j in np.flatnonzero(derived.known):
            day[..., 1 + j] = derived.per_reward[j] * day[..., 0] + constant * derived.base[j]
        return np.stack([(1 - training.discount) * day + after, day], axis=-2), day[..., : 1 + count]

    (head_weight, day_weight), (head_bias, day_bias) = raw(weight, 0.0), raw(bias, 1.0)
    return (head_weight, head_bias), (day_weight, day_bias)


def _values(
    training: Orthogonal, pair: OrthogonalNetwork, heads: tuple[Vector, Vector]
) -> tuple[Vector, NDArray[np.bool_]]:
    """`[N, K, FAMILIES, H]` Q of rows of select users that had a choice, raw, and `[N, K]` what was allowed there."""
    data = training.data
    rows = _sampled(data, LOOK_ROWS, training.seed)
    batch = gather(data, rows, table=False)

    @eqx.filter_jit
    def hidden(pair: OrthogonalNetwork) -> Array:
        def of(net: OrthogonalNetwork) -> Array:
            parts = [trunk(batch.state.codes, batch.state.numbers) for trunk in (net.usual, net.effect)]
            return jnp.concatenate(parts, axis=1)

        both: Array = eqx.filter_vmap(of)(pair)
        return both

    weight, bias = heads
    features = np.asarray(hidden(pair), np.float64)
    q = np.einsum("enw,ewkfh->nkfh", features, weight) / PAIR + bias.mean(axis=0)
    return q, data.allowed(rows)


def _grid(training: Orthogonal, q: Vector, allowed: NDArray[np.bool_], family: int) -> tuple[Vector, Vector]:
    """λ of a family `[G, m]`, and what the critic says of its policies `[G, 1+m]`."""
    coords, count = training.coords, len(training.bound)

    def said(multipliers: Vector) -> Vector:
        out = []
        for multiplier in multipliers:
            score = np.where(allowed, q[:, :, family] @ coords.weights(multiplier), -np.inf)
            best = score.argmax(axis=1)
            out.append(coords.of(q[np.arange(len(q)), best, family].mean(axis=0)))
        return np.array(out)

    grid = pilot_grid(training.bound)
    grid = laid_again(grid, said(grid)[:, 1:])
    if count > 1:
        asked_for = solve_mixture(said(grid), coords.limits, coords.scale).duals
        grid = laid_again(grid, said(grid)[:, 1:], np.where(np.arange(count) == training.money, 0, asked_for))
    return grid, said(grid)
