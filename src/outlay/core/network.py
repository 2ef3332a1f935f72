"""A trained Q-network as plain arrays: what training hands to a bundle.

    z = concat(embedding[codes + offsets], numbers)          per network of the pair
    h = relu(… relu(z W₁ + b₁) …)
    Q(s, a) = mean over the pair of (h W_q + b_q), as [K, H];  log π_B(a|s) = log softmax(mean of (h W_i + b_i))
    x(s, a) = mean of (h W_x + b_x), as [K, 1+m]: what the day itself brings and costs

H heads: reward, the m costs, and decisions (J_1) where it is measured. All in raw units of (1−γ)·J.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Dense = tuple[NDArray[np.float32], NDArray[np.float32]]  # W [E, in, out], b [E, out]


@dataclass(frozen=True)
class NetworkArrays:
    """E networks of one shape (E = 2 for the double critic), stacked on the first axis.

    Attributes:
        embedding: `[E, V, k]`, all fields' codes one after another; V = 0 where there is no categorical field.
        offsets: `[F]` first row of each field in `embedding`.
        layers: hidden layers.
        head: Q-values, out = K·H, action-major.
        imitation: logits of π_B, out = K; None where the oracle has no such head.
        num_actions: K.
        outcome: immediate outcomes, out = K·(1+m), action-major, raw units; None where the oracle has no such head.
    """

    embedding: NDArray[np.float32]
    offsets: NDArray[np.int64]
    layers: tuple[Dense, ...]
    head: Dense
    imitation: Dense | None
    num_actions: int
    outcome: Dense | None = None

    @property
    def num_heads(self) -> int:
        """H."""
        return int(self.head[1].shape[1]) // self.num_actions

    @property
    def num_features(self) -> int:
        """Width of the last hidden layer, over the pair: E · width."""
        return int(self.head[0].shape[0] * self.head[0].shape[1])

    @property
    def num_parameters(self) -> int:
        """Stored parameters."""
        dense = (*self.layers, self.head, *(part for part in (self.imitation, self.outcome) if part is not None))
        return int(self.embedding.size + sum(w.size + b.size for w, b in dense))


def constant_network(
    action: int, sizes: tuple[int, ...], num_numbers: int, num_actions: int, num_heads: int
) -> NetworkArrays:
    """A network whose reward head is 1 for one action and 0 for the others, whatever the state.

    Args:
        action: index of the action.
        sizes: codes per categorical field.
        num_numbers: width of the numeric part.
        num_actions: K.
        num_heads: H.
    """
    head = np.zeros((1, num_actions, num_heads), np.float32)
    head[0, action, 0] = 1
    return NetworkArrays(
        embedding=np.zeros((1, sum(sizes), 1), np.float32),
        offsets=np.cumsum((0, *sizes), dtype=np.int64)[:-1],
        layers=(),
        head=(np.zeros((1, len(sizes) + num_numbers, head[0].size), np.float32), head.reshape(1, -1)),
        imitation=None,
        num_actions=num_actions,
    )
