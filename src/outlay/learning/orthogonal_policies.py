"""The policies of a trained orthogonal critic: rescaled effects, a grid of λ where costs change, and one network."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.arrays import NetworkArrays
from outlay.learning.held_out import choice_rows
from outlay.learning.multiplier_grid import answered
from outlay.learning.orthogonal import Orthogonal, OrthogonalProgress
from outlay.learning.orthogonal_loss import Learner
from outlay.nets.batches import gather
from outlay.nets.network import PAIR, Linear
from outlay.nets.orthogonal import OrthogonalNetwork, arrays_of, value_heads

RESIZE = (0.0, 4.0)  # range of the factor by which effects are rescaled
LOOK_ROWS = 4096  # rows of select users from which the grid of λ is chosen

Vector = NDArray[np.float64]


class Answers(NamedTuple):
    """The policies of a finished training.

    Attributes:
        network: one Q, which answers every λ.
        multiplier: `[L, m]` λ, in reward units per unit of coordinate.
        estimate: `[L, 1+m]` the critic's reward and coordinates for them, with the log's policy after the first day.
        estimate_at: returns the same `[n, 1+m]` for the policies of any λ `[n, m]`.
    """

    network: NetworkArrays
    multiplier: Vector
    estimate: Vector
    estimate_at: Callable[[Vector], Vector]


def answers(training: Orthogonal, progress: OrthogonalProgress) -> Answers:
    """Return the policies of a finished training, at the λ where costs change, with rescaled effects."""
    pair = _resized(training, progress.best.learner)
    heads, outcome = _raw_heads(training, pair)
    grid = answered(training.coords, training.bound, training.money, *_values(training, pair, heads))
    return Answers(arrays_of(pair, heads, outcome), *grid)


def _resized(training: Orthogonal, learner: Learner) -> OrthogonalNetwork:
    """Rescale the effects of each target and head by a regression on rows of select users.

    Weight decay strong enough to rank users by response shrinks all effects, most of all those on later days.
    """
    pair = learner.averaged
    factor = np.clip(training.held_out.moments(learner).size, *RESIZE)
    by_output = jnp.asarray(np.repeat(factor.ravel(), len(pair.shape.functions)), jnp.float32)
    slope = Linear(pair.slope.weight * by_output, pair.slope.bias * by_output)
    resized: OrthogonalNetwork = eqx.tree_at(lambda net: net.slope, pair, slope)
    return resized


def _raw_heads(training: Orthogonal, pair: OrthogonalNetwork) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector]]:
    """Return weights and biases, in raw units, of Q `[..., K, 1, H]` and of the day's outcomes `[..., K, 1+m]`."""
    weight, bias = value_heads(pair, training.units)
    derived, spread = training.derived, training.coords.spread
    count = len(derived.known)

    def raw(part: Vector, constant: float) -> tuple[Vector, Vector]:
        day, after = part[..., 0, :] * spread, part[..., 1, :] * spread  # [..., K, H]
        for j in np.flatnonzero(derived.known):
            day[..., 1 + j] = derived.per_reward[j] * day[..., 0] + constant * derived.base[j]
        # With γ = 0, later days do not count, and what was learned about them is noise.
        q = day if training.discount == 0 else (1 - training.discount) * day + after
        return q[..., None, :], day[..., : 1 + count]

    (head_weight, day_weight), (head_bias, day_bias) = raw(weight, 0.0), raw(bias, 1.0)
    return (head_weight, head_bias), (day_weight, day_bias)


def _values(
    training: Orthogonal, pair: OrthogonalNetwork, heads: tuple[Vector, Vector]
) -> tuple[Vector, NDArray[np.bool_]]:
    """Return Q `[N, K, H]`, in raw units, of select users' rows with a choice, and the allowed actions `[N, K]`."""
    data = training.data
    rows = choice_rows(data, LOOK_ROWS, training.seed)
    batch = gather(data, rows, table=False)

    @eqx.filter_jit
    def hidden(pair: OrthogonalNetwork) -> Array:
        def of(net: OrthogonalNetwork) -> Array:
            return jnp.concatenate(net.hidden(batch.state.codes, batch.state.numbers), axis=1)

        both: Array = eqx.filter_vmap(of)(pair)
        return both

    weight, bias = heads
    features = np.asarray(hidden(pair), np.float64)
    q = np.einsum("enw,ewkh->nkh", features, weight[..., 0, :]) / PAIR + bias[..., 0, :].mean(axis=0)
    return q, data.allowed(rows)
