"""The forward pass in NumPy, written longhand: what every graph of a bundle is checked against.

Rounding errors of a sum are relative to its terms, not to the sum (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 3.1). So each head's values come with the size of their terms: a graph in single precision is
held against that, whatever the head's unit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.network import Dense, NetworkArrays


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
    """Evaluate the equations of `core/network.py` in double precision.

    Args:
        network: E networks of one shape.
        codes: `[N, F]`, F may be 0.
        numbers: `[N, n]`, n may be 0.
    """
    if network.body is not None:
        sums = network.body.sums(codes, numbers)
        return _heads(network, [sums.value], [sums.size])
    hidden = hidden_layers(network, codes, numbers)
    return _heads(network, hidden, [np.abs(h) for h in hidden])


def hidden_layers(
    network: NetworkArrays, codes: NDArray[np.int32], numbers: NDArray[np.float32]
) -> list[NDArray[np.float64]]:
    """Return the last hidden layer `[N, width]` of each of the E networks; arguments as of `forward`."""
    if network.body is not None:
        return [network.body.sums(codes, numbers).value]
    rows, hidden = len(codes), []
    for e in range(network.head[0].shape[0]):
        embedded = network.embedding[e][codes + network.offsets] if codes.shape[1] else np.empty((rows, 0, 0))
        x = np.concatenate([embedded.reshape(rows, -1), numbers], axis=1).astype(np.float64)
        for weight, bias in network.layers:
            x = np.maximum(x @ weight[e] + bias[e], 0)
        hidden.append(x)
    return hidden


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


def head_values(hidden: list[NDArray[np.float64]], head: Dense) -> NDArray[np.float64]:
    """Return `[N, out]`, the mean over the networks of what a head makes of their last hidden layers `[N, width]`."""
    weight, bias = head
    mean: NDArray[np.float64] = np.mean([h @ weight[e] + bias[e] for e, h in enumerate(hidden)], axis=0)
    return mean
