"""A trained response model as plain arrays: what two-stage training hands to a bundle.

    v_i     = code[codes_i + offset_i], or number_i · its row of `number`; N = F + n + 1 fields with the incentive's v_a
    z       = concat(v_1 … v_{N−1}, v_a)
    ŷ(s, a) = net(z) + Σ_i w_i + w_a + (Σ_{i<j} v_i v_j) P           DeepFM; w: a table like those of v, of width H;
                                                                     P: which products belong to which head
    ŷ(s, a) = net(concat(z, Σ_l u_l e_l))                            DIN, over the L days before:
    q       = z W_q;   e_l = past_l W_day + age_l                    with a bias in q
    u_l     = w · relu([q, e_l, q·e_l] W_u)                          with biases; 0 where nothing is known of the day

DIN's fields are the first n numbers of a row. The L·2C numbers after them are past_1 … past_L, yesterday first: of each
day the scaled values of C columns, each followed by 1 where it is missing (`lags` in `core/history.py`).

ŷ has H heads in raw units: the reward, the m costs, then the costs of the first day where the label has more days.
Heads of binary labels are log odds, and what is told of them is the chance 1 / (1 + exp(−ŷ)). The spread and mean of
the labels and DeepFM's division by N are in the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Layer = tuple[Floats, Floats]  # W [in, out], b [out]
DAY_CELLS = 64  # about what is held of a past day for each action


@dataclass(frozen=True)
class Pairs:
    """What DeepFM has beside the network: `code [V, H]`, `number [n, H]`, `action [K, H]` (w), `product [k, H]` (P)."""

    code: Floats
    number: Floats
    action: Floats
    product: Floats


@dataclass(frozen=True)
class Attention:
    """What DIN has beside the network; D is the width of a day.

    Attributes:
        query: `[N·k, D]`.
        day: `[2·C, D]`.
        age: `[L, D]`, for 1 … L days ago.
        unit: `[3·D, U]`.
        relevance: `[U, 1]`.
    """

    query: Layer
    day: Floats
    age: Floats
    unit: Layer
    relevance: Layer


@dataclass(frozen=True)
class ResponseArrays:
    """A DeepFM or a DIN.

    Attributes:
        code: `[V, k]`, all fields' codes one after another; V = 0 where there is no categorical field.
        offsets: `[F]` first row of each field in `code`.
        number: `[n, k]`.
        action: `[K, k]`.
        layers: of the network, the last one gives the heads; ReLU between.
        own: what one of the two models has and the other has not.
        num_heads: 1+m: the heads that decide. The costs of the first day are the last m of all H.
        binary: `[H]` heads that are log odds before the last step.
    """

    code: Floats
    offsets: NDArray[np.int64]
    number: Floats
    action: Floats
    layers: tuple[Layer, ...]
    own: Pairs | Attention
    num_heads: int
    binary: NDArray[np.bool_]

    @property
    def num_actions(self) -> int:
        """K."""
        return len(self.action)

    @property
    def held(self) -> int:
        """Numbers that attention holds for a row, about; 0 for DeepFM."""
        return self.num_actions * len(self.own.age) * DAY_CELLS if isinstance(self.own, Attention) else 0

    @property
    def day_heads(self) -> NDArray[np.int64]:
        """`[1+m]` the heads that say what the day itself costs, behind the reward's."""
        every = len(self.layers[-1][1])
        return np.append(0, np.arange(every - self.num_heads + 1, every))

    @property
    def num_features(self) -> int:
        """Width of the features: the first layer and the sum of the embeddings."""
        return int(self.layers[0][0].shape[1] + self.action.shape[1])

    @property
    def num_parameters(self) -> int:
        """Stored parameters."""
        own = self.own
        if isinstance(own, Pairs):
            beside = [own.code, own.number, own.action, own.product]
        else:
            beside = [*own.query, own.day, own.age, *own.unit, *own.relevance]
        layers = [part for layer in self.layers for part in layer]
        return int(sum(part.size for part in (self.code, self.number, self.action, *layers, *beside)))
