"""The forward passes in NumPy, written longhand: what every graph of a bundle is checked against.

Rounding errors of a sum are relative to its terms, not to the sum (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 3.1). So each head's values come with the size of their terms: a graph in single precision is
held against that, whatever the head's unit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import (
    Attention,
    Layer,
    NetworkArrays,
    Pairs,
    ResponseArrays,
    head_values,
    layered_hidden,
)


class Outputs(NamedTuple):
    """What a network says about N rows.

    Attributes:
        q: `[N, K, L·H]`, in raw units of (1−γ)·J.
        features: `[N, E·width]` last hidden layer of all E networks.
        imitation: `[N, K]` log π_B, or None where the network has no such head.
        outcome: `[N, K, 1+m]` immediate outcomes, or None where the network has no such head.
        size: `[L·H]` of each value's terms in the last layer, Σ |h·W| + |b|: the largest over rows and actions.
    """

    q: NDArray[np.float64]
    features: NDArray[np.float64]
    imitation: NDArray[np.float64] | None
    outcome: NDArray[np.float64] | None
    size: NDArray[np.float64]


def forward(network: NetworkArrays, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> Outputs:
    """Evaluate the equations of `core/arrays.py` in double precision.

    Args:
        network: E networks of one shape.
        codes: `[N, F]`, F may be 0.
        numbers: `[N, n]`, n may be 0.
    """
    hidden = layered_hidden(network, codes, numbers)
    sizes = [np.abs(h) for h in hidden]
    if network.body is not None:
        hidden = [*hidden, network.body.sums(codes, numbers)]
        sizes = [*sizes, network.body.sums(codes, numbers, absolute=True)]
    return _heads(network, hidden, sizes)


def _heads(network: NetworkArrays, hidden: list[NDArray[np.float64]], sizes: list[NDArray[np.float64]]) -> Outputs:
    """What is linear in the last layers `[N, width]`; `sizes` are those of their own terms."""
    rows = len(hidden[0])
    q = head_values(hidden, network.head).reshape(rows, network.num_actions, -1)
    imitation = None
    if network.imitation is not None:
        imitation = log_probabilities(head_values(hidden, network.imitation))
    outcome = None
    if network.outcome is not None:
        outcome = head_values(hidden, network.outcome).reshape(rows, network.num_actions, -1)
    weight, bias = network.head
    terms = head_values(sizes, (np.abs(weight), np.abs(bias)))
    size = terms.reshape(rows * network.num_actions, -1).max(axis=0)
    return Outputs(q, np.concatenate(hidden, axis=1), imitation, outcome, size)


def log_probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the softmax of `[N, K]`."""
    shifted = logits - logits.max(1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return result


Doubles = NDArray[np.float64]


def respond(network: ResponseArrays, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> Outputs:
    """Evaluate the equations of `core/arrays.py` in double precision, one incentive after another.

    Args:
        network: DeepFM or DIN.
        codes: `[N, F]`, F may be 0.
        numbers: `[N, n]`, n may be 0; for DIN `[N, n + L·2C]`.
    """
    rows = len(codes)
    fields = _embedded(network, codes, numbers[:, : len(network.number)])
    past = numbers[:, len(network.number) :].astype(np.float64)
    answers, sizes = [], []
    for a in range(network.num_actions):
        action = np.broadcast_to(network.action[a].astype(np.float64), (rows, 1, network.action.shape[1]))
        v = np.concatenate([fields, action], axis=1)
        z = v.reshape(rows, -1)
        if isinstance(network.own, Attention):
            z = np.concatenate([z, _pooled(network.own, z, past)], axis=1)
        for layer in network.layers[:-1]:
            z = np.maximum(_dense(z, layer), 0)
        weight, bias = network.layers[-1]
        answer, size = _dense(z, network.layers[-1]), _dense(np.abs(z), (np.abs(weight), np.abs(bias)))
        if isinstance(network.own, Pairs):
            beside = _beside(network, network.own, v, codes, numbers, a)
            answer, size = answer + beside, size + np.abs(beside)
        answers.append(answer)
        sizes.append(size.max(axis=0))
    every = np.stack(answers, axis=1)
    every = np.where(network.binary, (1 + np.tanh(every / 2)) / 2, every)
    weight, bias = network.layers[0]
    flat = fields.reshape(rows, -1)
    first = np.maximum(flat @ weight[: flat.shape[1]].astype(np.float64) + bias, 0)
    features = np.concatenate([first, fields.sum(1)], axis=1)
    largest: Doubles = np.max(sizes, axis=0)[: network.num_heads]
    return Outputs(every[:, :, : network.num_heads], features, None, every[:, :, network.day_heads], largest)


def _embedded(network: ResponseArrays, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> Doubles:
    """`[…, F]`, `[…, n]` → `[…, F + n, k]`."""
    of_codes = network.code[codes + network.offsets].astype(np.float64)
    return np.concatenate([of_codes, numbers[..., None].astype(np.float64) * network.number], axis=-2)


def _beside(
    network: ResponseArrays, own: Pairs, v: Doubles, codes: NDArray[np.int32], numbers: NDArray[np.float32], a: int
) -> Doubles:
    """`[N, H]` the first order and the products of all pairs of fields, the incentive's `a` among them."""
    pairs = (np.square(v.sum(1)) - np.square(v).sum(1)) / 2
    first = own.action[a] + numbers.astype(np.float64) @ own.number
    for field, offset in enumerate(network.offsets):
        first = first + own.code[offset + codes[:, field]]
    beside: Doubles = first + pairs @ own.product
    return beside


def _pooled(own: Attention, z: Doubles, past: Doubles) -> Doubles:
    """`[N, D]` Σ_l u_l e_l for one incentive."""
    query = _dense(z, own.query)
    pooled = np.zeros_like(query)
    for numbers, age in zip(np.split(past, len(own.age), axis=1), own.age, strict=True):
        present = (numbers[:, 1::2] == 0).any(axis=1)
        day = numbers @ own.day + age
        hidden = np.maximum(_dense(np.concatenate([query, day, query * day], axis=1), own.unit), 0)
        pooled += np.where(present[:, None], _dense(hidden, own.relevance) * day, 0)
    return pooled


def _dense(x: Doubles, layer: Layer) -> Doubles:
    product: Doubles = x @ layer[0].astype(np.float64) + layer[1]
    return product
