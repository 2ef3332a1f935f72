"""What a trained response model answers: for rows of a log, or for states; and the model as plain arrays, for a bundle.

    response.predict(data, rows)                    # [n, K, H]: every incentive in every row
    response.predict(data, rows, logged=True)       # [n, H]: the incentive in the log
    response.predict_states(codes, numbers)         # [n, K, H]
    arrays(response)                                # in raw units; the equations are in `core/arrays.py`

Where the log has few distinct states each is evaluated once.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import expit

from outlay.core.arrays import Attention, Layer, Pairs, ResponseArrays
from outlay.core.transitions import Transitions
from outlay.nets import din
from outlay.nets.batches import Column
from outlay.nets.deepfm import PAIRS_START, DeepFM, ResponseShape
from outlay.nets.din import DIN
from outlay.nets.network import Linear, offsets

BLOCK_BYTES = 1 << 24  # of what a prediction holds beside its answers; larger ones fall out of the caches


class AnsweredRows(NamedTuple):
    """What a network is asked about. Arrays have the leading shape `[B]`, or `[steps, batch]` in a block."""

    codes: Column  # [..., F]
    numbers: Column  # [..., n]
    action: Column  # [...] in the log


@dataclass(frozen=True)
class Response:
    """A trained response model.

    Attributes:
        network: heads in units of `spread` around `mean`, or log odds.
        mean: `[H]` of the labels; 0 where they are binary.
        spread: `[H]` of the labels; 1 where they are binary.
        binary: `[H]` heads whose labels are 0 or 1: what is predicted is the chance of 1.
        num_outcomes: 1+m, the heads that decide.
    """

    network: DeepFM | DIN
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    binary: tuple[bool, ...]
    num_outcomes: int

    @property
    def num_parameters(self) -> int:
        """Stored parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.network))

    def predict(self, data: Transitions, rows: NDArray[np.int64], *, logged: bool = False) -> NDArray[np.float32]:
        """What each incentive would bring in each row, masks aside.

        Args:
            data: the log, or another one encoded with the same vocabulary.
            rows: `[n]`.
            logged: only for the incentive in the log.

        Returns:
            `[n, K, H]`, or `[n, H]` of the logged incentives, in the unit of the labels. Some 16 MB are held beside
            it; for long logs ask for some rows at a time.
        """
        if data.states is not None and data.state is not None:
            answers = self.predict_states(data.states.codes, data.states.numbers)
            at = (data.state[rows], data.action[rows]) if logged else (data.state[rows],)
            found: NDArray[np.float32] = answers[at]
            return found
        return self._blocks(len(rows), lambda at: gather_rows(data, rows[at]), logged=logged)

    def predict_states(self, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        """`[n, K, H]` for encoded states `codes [n, F]`, `numbers [n, 2·F']`."""

        def gather(at: NDArray[np.int64]) -> AnsweredRows:
            return AnsweredRows(codes[at], numbers[at], np.zeros(len(at), np.int32))

        return self._blocks(len(codes), gather, logged=False)

    def _blocks(
        self, count: int, gather: Callable[[NDArray[np.int64]], AnsweredRows], *, logged: bool
    ) -> NDArray[np.float32]:
        """Evaluate block by block; the last block is filled up, so that one program serves all."""
        shape = self.network.shape
        answers = np.empty((count, *(() if logged else (shape.num_actions,)), shape.num_heads), np.float32)
        size = max(1, min(count, BLOCK_BYTES // (4 * _numbers_held(self.network))))
        for begin in range(0, count, size):
            part = np.arange(begin, min(begin + size, count))
            found = np.asarray(_evaluate(self.network, gather(np.resize(part, size)), logged))[: len(part)]
            found = found * self.spread + self.mean
            answers[part] = np.where(self.binary, expit(found), found)
        return answers


def gather_rows(data: Transitions, rows: NDArray[np.int64]) -> AnsweredRows:
    """What a network is asked about rows of any shape."""
    codes, numbers = data.features(rows.ravel())
    return AnsweredRows(
        codes=codes.reshape(*rows.shape, codes.shape[1]),
        numbers=numbers.reshape(*rows.shape, numbers.shape[1]),
        action=data.action[rows.ravel()].astype(np.int32).reshape(rows.shape),
    )


def answer(network: DeepFM | DIN, rows: AnsweredRows, *, logged: bool) -> Array:
    """`[B, K, H]`, or `[B, H]` for the logged incentives, in units of the network."""
    states = rows.codes, rows.numbers
    return network.logged(*states, rows.action) if logged else network.every(*states)


@eqx.filter_jit
def _evaluate(network: DeepFM | DIN, rows: AnsweredRows, logged: bool) -> Array:
    return answer(network, rows, logged=logged)


def _numbers_held(network: DeepFM | DIN) -> int:
    """Numbers that a prediction holds for each row: embeddings, hidden units, what the attention unit computes."""
    shape, days = network.shape, len(network.age) if isinstance(network, DIN) else 0
    embedded = shape.num_fields * shape.embedding * (1 if days else shape.num_heads)
    attention = days * (2 * shape.embedding + 2 * din.UNIT_WIDTH)
    return embedded + shape.num_actions * (sum(shape.layers) + attention + shape.num_heads)


def arrays(response: Response) -> ResponseArrays:
    """A response model in raw units: what multiplies a head takes its spread, the last bias its mean."""
    network = response.network
    spread, mean = response.spread, response.mean
    layers = [_layer(layer) for layer in network.dense]
    weight, bias = layers[-1]
    layers[-1] = _plain(weight * spread), _plain(bias * spread + mean)
    own: Pairs | Attention
    if isinstance(network, DeepFM):
        first = network.weight
        own = Pairs(
            code=_plain(np.asarray(first.code) * spread),
            number=_plain(np.asarray(first.number) * spread),
            action=_plain(np.asarray(first.action) * spread),
            product=_plain(_inner(network.shape) * spread),
        )
    else:
        own = Attention(
            query=_layer(network.query),
            day=_plain(network.day),
            age=_plain(network.age),
            unit=_layer(network.unit),
            relevance=_layer(network.relevance),
        )
    return ResponseArrays(
        code=_plain(network.fields.code),
        offsets=offsets(network.shape.sizes).astype(np.int64),
        number=_plain(network.fields.number),
        action=_plain(network.fields.action),
        layers=tuple(layers),
        own=own,
        num_heads=response.num_outcomes,
        binary=np.array(response.binary),
    )


def _inner(shape: ResponseShape) -> NDArray[np.float64]:
    """`[H·k, H]` what makes inner products of each head's own embeddings, over N, of products of elements."""
    return np.repeat(np.eye(shape.num_heads), shape.embedding, axis=0) / (PAIRS_START * shape.num_fields)


def _layer(layer: Linear) -> Layer:
    return _plain(layer.weight), _plain(layer.bias)


def _plain(value: Any) -> NDArray[np.float32]:
    return np.asarray(value, np.float32)
