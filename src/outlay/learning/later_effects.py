"""Effects on later days, corrected by what followed: V is a regression, and takes what goes with a habit for its cause.

    δ_t = (1−γ) x_t + γ^Δ V(s_{t+1}) − V(s_t)        what a day brought beyond what V had expected
    D_t = γ^Δ (δ_{t+1} + D_{t+1})                    the same of all later days that the log shows
    D_t ≈ c(s) + Σ_kj ω_kj z_k(s) ẽ_j                z: 1 and what the effect networks see in a state

If V were right, actions would say nothing of D. But two users whose features look alike may differ, and what one of
them did lately tells them apart: so V credits coupons used lately with the visits of those who use coupons, and every
coupon with a share of that. The more so in a small log, whose networks tell users apart less well. Actions were drawn
at random given the state, so their effect on D is what V missed of their effect, and is added to it.

D carries the luck of all later days, so what tells users apart is shrunk: its prior variance is a small share of that
of the effects on the day itself. The effect on the average user is not.

Source: Sutton and Barto (2018), chapter 12, for returns as sums of temporal differences; the bias of V as an index of
what comes later, Athey et al. (2019), "The surrogate index"; its correction: ours.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.transitions import Transitions
from outlay.learning.orthogonal import CHUNK_ROWS, Orthogonal, half_of
from outlay.learning.orthogonal_loss import NEVER, Learner
from outlay.nets.batches import Batch, gather
from outlay.nets.orthogonal import tell

PRIOR_SHARE = 0.1  # variance of the correction between users, in that of the effects on the day
TINY = 1e-9  # of the mean square of a column: columns that say the same can be solved for

Vector = NDArray[np.float64]


def missed_effects(training: Orthogonal, learner: Learner) -> Vector:
    """What the learned effects on later days are short of, by ridge regression on the rows to learn from.

    Args:
        training: that ended.
        learner: its networks.

    Returns:
        `[1 + width, H, d]` coefficients of 1 and of the last hidden layers of the effect networks, in units of each
        head's spread; zeros where the log does not tell.
    """
    data, rows, loss = training.data, training.learn_rows, training.loss
    count, width, heads = len(training.shape.functions), training.train.layers[-1], len(training.coords.spread)
    half = jnp.asarray(half_of(data, rows))
    parts = np.array_split(np.arange(len(rows)), max(1, len(rows) // CHUNK_ROWS))
    surprise, hidden_sums, day = np.empty((len(rows), heads)), np.zeros((2, width)), 0.0
    for part in parts:
        batch = gather(data, rows[part], table=False)
        surprise[part], sums, effects = _surprise(learner, _arrays(batch), half[part], loss.spread, loss.discount)
        hidden_sums, day = hidden_sums + np.asarray(sums, np.float64), day + float(effects)
    mean, square = hidden_sums / len(rows)
    scale = np.sqrt(np.maximum(square - mean**2, TINY))

    later, known = _later(data, rows, surprise)
    usable = known & ~np.asarray(data.forced[rows])
    variance = float(later[usable, 0].var()) if usable.any() else 0.0
    if not variance * day > 0:
        return np.zeros((1 + width, heads, count))
    effect_columns = count * (1 + width)
    total = effect_columns + 1 + width + training.shape.num_numbers
    matrix, right = np.zeros((total, total)), np.zeros((total, heads))
    for part in parts:
        batch = gather(data, rows[part], table=False)
        told = _moved(learner, _arrays(batch), half[part], loss.functions)
        hidden, moved = (np.asarray(each, np.float64) for each in told)
        z = np.column_stack([np.ones(len(part)), (hidden - mean) / scale])
        every = (z[:, :, None] * moved[:, None]).reshape(len(part), effect_columns)
        x = np.column_stack([every, z, batch.state.numbers])[usable[part]]
        matrix += x.T @ x
        right += x.T @ later[part][usable[part]]
    penalty = np.full(total, TINY * np.trace(matrix) / total)
    prior = PRIOR_SHARE * (1 - training.discount) ** 2 * day / len(rows)
    penalty[count:effect_columns] += variance * count * width / prior
    found = np.linalg.solve(matrix + np.diag(penalty), right)[:effect_columns].reshape(1 + width, count, heads)
    found[1:] /= scale[:, None, None]
    found[0] -= np.tensordot(mean, found[1:], axes=1)
    return np.asarray(found.transpose(0, 2, 1), np.float64)


def _later(data: Transitions, rows: NDArray[np.int64], surprise: Vector) -> tuple[Vector, NDArray[np.bool_]]:
    """D `[n, H]` of rows, ascending, of whole users, and `[n]` whether the log tells any of it."""
    following = np.asarray(data.next_row[rows]).astype(np.int64)
    linked = (following >= 0) & ~np.asarray(data.terminal[rows])
    place = np.searchsorted(rows, following[linked])
    # The last row of a user in the log has no surprise of its own, unless their story ends there.
    told = (following >= 0) | np.asarray(data.terminal[rows])
    surprise = np.where(told[:, None], surprise, 0.0)
    discount = data.campaign.meta.discount ** np.asarray(data.gap[rows], np.float64)
    later, known = np.zeros_like(surprise), np.zeros(len(rows), np.bool_)
    known[linked] = told[place]
    # A row's next one stands later in the log, so backwards by how many rows of the user are left.
    at = np.full(len(rows), -1)
    at[linked] = place
    left = _rows_left(at)
    for step in range(1, int(left.max(initial=0)) + 1):
        now = np.flatnonzero(left == step)
        later[now] = discount[now, None] * (surprise[at[now]] + later[at[now]])
    return later, known


def _rows_left(following: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[n]` how many rows follow each, given the place of the next one, −1 where there is none."""
    left = np.zeros(len(following), np.int64)
    now = np.flatnonzero(following < 0)
    before = np.full(len(following), -1)
    has = np.flatnonzero(following >= 0)
    before[following[has]] = has
    step = 0
    while len(now := before[now][before[now] >= 0]):
        step += 1
        left[now] = step
    return left


def _arrays(batch: Batch) -> Batch:
    """On the device."""
    found: Batch = jax.tree.map(jnp.asarray, batch)
    return found


@eqx.filter_jit
def _surprise(
    learner: Learner, batch: Batch, half: Array, spread: Array, discount: float
) -> tuple[Array, Array, Array]:
    """δ `[B, H]` by the V of the other half; `[2, width]` sums of hidden layers and of their squares; and the sum of
    the squared coefficients of the effects on the day's reward.
    """  # fmt: skip
    row, state, following = jnp.arange(len(half)), batch.state, batch.next_state
    value = learner.value(state.codes, state.numbers)[1 - half, row]
    after = learner.value(following.codes, following.numbers)[1 - half, row] * batch.discount[:, None]
    slope = tell(learner.averaged, state.codes, state.numbers).slope[:, :, 0, 0].mean(0)
    hidden = _hidden(learner, batch)
    sums = jnp.stack([hidden.sum(0), jnp.square(hidden).sum(0)])
    return (1 - discount) * batch.outcome / spread + after - value, sums, jnp.square(slope).sum()


@eqx.filter_jit
def _moved(learner: Learner, batch: Batch, half: Array, functions: Array) -> tuple[Array, Array]:
    """Hidden layers `[B, width]`, and ẽ of the logged actions `[B, d]`."""
    row = jnp.arange(len(half))
    logits = tell(learner.averaged, batch.state.codes, batch.state.numbers).logits[1 - half, row]
    prob = jax.nn.softmax(jnp.where(batch.allowed, logits, NEVER))
    return _hidden(learner, batch), functions.T[batch.action] - prob @ functions.T


def _hidden(learner: Learner, batch: Batch) -> Array:
    """`[B, width]` the last hidden layer of the effect networks, the mean of both."""
    both: Array = eqx.filter_vmap(lambda net: net.effect(batch.state.codes, batch.state.numbers))(learner.averaged)
    return both.mean(0)
