"""Response models: what every incentive would bring a user within k days, learned from the log.

    rows, label = k_day_labels(data, 7, data.rows_of(LEARN))
    response = fit(data, rows, label, response="din")
    response.predict(data, rows)                       # [n, K, H], columns as in labels.py

    loss = mean over rows of Σ_h (ŷ_h(s, a) − (label_h − mean_h) / spread_h)²,         only the logged a has a label
           of a binary label instead 2 [log(1 + exp ŷ_h) − label_h ŷ_h]: as steep as the square of such a label is near
           its mean, so that heads weigh alike

The step size of Adam falls to 0 along a half cosine, so that the last rows seen do not colour the predictions.

Source: Guo et al. (2017) and Zhou et al. (2018) for the models; training is ours, on the `[train]` settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from outlay.core.campaign import Train
from outlay.core.errors import LogError, OutlayError
from outlay.core.history import History
from outlay.core.progress import Progress
from outlay.core.transitions import Transitions
from outlay.nets import deepfm, din
from outlay.nets.batches import Column
from outlay.nets.deepfm import DeepFM, ResponseShape
from outlay.nets.din import DIN
from outlay.nets.loop import compiled_block
from outlay.ops.spread import spreads
from outlay.response.answers import AnsweredRows, Response, answer, gather_rows

Kind = Literal["deepfm", "din"]

BLOCK_STEPS = 100  # gradient steps a compiled block, fewer where rows are wide
BLOCK_BYTES = 1 << 26  # of such a block on the host
ADAM = optax.scale_by_adam()  # the step size is part of a batch, so that one program serves logs of any length


class ResponseLearner(NamedTuple):
    """What the next gradient step needs."""

    network: DeepFM | DIN
    optimiser: optax.OptState


class ResponseBatch(NamedTuple):
    """A gradient step's rows; with a leading axis of steps in a block."""

    rows: AnsweredRows
    label: Column  # [..., batch, H] in units of the network; 0 or 1 where it is binary
    rate: Column  # [...] step size


def fit(
    data: Transitions,
    rows: NDArray[np.int64],
    label: NDArray[np.float32],
    *,
    response: Kind = "deepfm",
    train: Train | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Response:
    """Learn a response model.

    Args:
        data: the transitions; for DIN with lags among the features (`core/looking_back.py`).
        rows: `[n]` rows to learn from.
        label: `[n, H]` what followed.
        response: `deepfm` or `din`.
        train: batch, layers, embedding, learning_rate, epochs and min_steps are used; default those of the data.
        seed: of everything random.
        progress: called with the share done and what is being done, after every block of gradient steps.

    Raises:
        OutlayError: if there is no such model, or no lags for DIN to read.
        LogError: if there are no rows.
    """
    if response not in ("deepfm", "din"):
        raise OutlayError(f"is {response!r}.", where="response", way_out="Known response models: deepfm, din.")
    if len(rows) == 0:
        raise LogError(
            "no row has a label: there is nothing to learn a response from.",
            where="label days",
            way_out="Take a longer log, or labels of fewer days.",
        )
    train = data.campaign.train if train is None else train
    binary = ((label == 0) | (label == 1)).all(axis=0) & (np.ptp(label, axis=0) > 0)
    share = label.mean(0, dtype=np.float64)
    spread, mean = np.where(binary, 1.0, spreads(label)), np.where(binary, 0.0, share)

    odds = np.where(binary, share, 0.5) / np.where(binary, 1 - share, 0.5)
    network, fields = _begun(data, response, train, np.log(odds), seed)
    row_bytes = 4 * (fields + data.outcome.shape[1] + label.shape[1])
    every = int(np.clip(BLOCK_BYTES // (train.batch * row_bytes), 1, BLOCK_STEPS))
    blocks = max(1, round(max(train.epochs * len(rows) / train.batch, train.min_steps) / every))

    total = blocks * every
    rate = train.learning_rate * (1 + np.cos(np.pi * np.arange(total, dtype=np.float32) / total)) / 2
    learner = ResponseLearner(network, ADAM.init(network))
    block = _compiled(every, tuple(binary.tolist()))
    running: Array | None = None
    for number, places in enumerate(_batches(len(rows), every, train.batch, blocks, seed)):
        done = number * every
        # This block is gathered while the last one trains; one ahead and no more, so that memory is bounded.
        scaled = ((label[places] - mean) / spread).astype(np.float32)
        batch = ResponseBatch(gather_rows(data, rows[places]), scaled, rate[done : done + every])
        if running is not None:
            running.block_until_ready()
        learner, (running, _) = block(learner, batch)
        if progress is not None:
            progress((done + every) / total, f"{done + every} of {total} steps")
    return Response(learner.network, mean, spread, tuple(binary.tolist()), data.outcome.shape[1])


def _begun(
    data: Transitions, response: Kind, train: Train, odds: NDArray[np.float64], seed: int
) -> tuple[DeepFM | DIN, int]:
    """A network before its first step, and how many fields it reads; `odds` `[H]`: where each head begins."""
    width = 2 * len(data.schema.numeric)
    shape = ResponseShape(data.schema.sizes, width, data.num_actions, len(odds), train.layers, train.embedding)
    network: DeepFM | DIN
    if response == "din":
        days, columns = _lags(data)
        network = din.init(shape._replace(num_numbers=width - 2 * days * columns), days, columns, seed)
    else:
        network = deepfm.init(shape, seed)
    bias = network.dense[-1].bias + jnp.asarray(odds, jnp.float32)
    return eqx.tree_at(lambda net: net.dense[-1].bias, network, bias), shape.num_fields


def _lags(data: Transitions) -> tuple[int, int]:
    """L and C: of how many past days, and how many values of each, the last numbers of a row tell."""
    history = History.of(data.campaign)
    lags = () if history is None else history.lags
    if not lags:
        raise OutlayError(
            "has no features of single past days, which DIN reads.",
            where="log.history.summaries",
            way_out='Add "lags" there, or learn from with_lags(data, days).',
        )
    assert data.schema.names[-len(lags) * len(lags[0]) :] == sum(lags, ())
    return len(lags), len(lags[0])


def _batches(count: int, steps: int, batch: int, blocks: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Blocks `[steps, batch]` of places in 0 … count−1, each epoch a new permutation."""
    rng = np.random.default_rng(seed)
    left = np.empty(0, np.int64)
    need = steps * batch
    for _ in range(blocks):
        while len(left) < need:
            left = np.concatenate([left, rng.permutation(count)])
        yield left[:need].reshape(steps, batch)
        left = left[need:]


@lru_cache(maxsize=8)
def _compiled(
    every: int, binary: tuple[bool, ...]
) -> Callable[[ResponseLearner, ResponseBatch], tuple[ResponseLearner, tuple[Array, None]]]:
    """The compiled block of so many steps; kept, so that folds, seeds and label days share a program."""

    def loss(network: DeepFM | DIN, batch: ResponseBatch) -> Array:
        found = answer(network, batch.rows, logged=True)
        logistic = 2 * (jax.nn.softplus(found) - batch.label * found)
        return jnp.where(jnp.asarray(binary), logistic, jnp.square(found - batch.label)).sum(1).mean()

    def step(learner: ResponseLearner, batch: ResponseBatch) -> tuple[ResponseLearner, Array]:
        value, gradient = eqx.filter_value_and_grad(loss)(learner.network, batch)
        updates, optimiser = ADAM.update(gradient, learner.optimiser)
        updates = jax.tree.map(lambda update: -batch.rate * update, updates)
        return ResponseLearner(eqx.apply_updates(learner.network, updates), optimiser), value

    return compiled_block(step, lambda learner: (learner, None), every)
