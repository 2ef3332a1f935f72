"""A trained response model as plain arrays in raw units, for a bundle. The equations are in `core/arrays.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import Attention, Layer, Pairs, ResponseArrays
from outlay.nets.deepfm import PAIRS_START, DeepFM, ResponseShape
from outlay.nets.network import Linear, offsets
from outlay.twostage.answers import Response


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
