"""A trained response model as plain arrays: what two-stage training hands to a bundle.

    v_i     = code[codes_i + offset_i], or number_i · its row of `number`; N = F + n + 1 fields with the incentive's v_a
    z       = concat(v_1 … v_{N−1}, v_a)
    ŷ(s, a) = net(z) + Σ_i w_i + w_a + (Σ_{i<j} v_i v_j) P           DeepFM; w: a table like those of v, of width H;
                                                                     P: which products belong to which head
    ŷ(s, a) = net(concat(z, Σ_l u_l e_l))                            DIN, over the L days before:
    q       = z W_day;   e_l = z_l W_day + outcome_l W_o + age_l     with biases; ages above the last count as the last
    u_l     = w · relu([q, e_l, q·e_l] W_u)                          with biases; 0 where the day is absent

ŷ has H heads in raw units: the reward, the m costs, then the costs of the first day where the label has more days.
Heads of binary labels are log odds, and what is told of them is the chance 1 / (1 + exp(−ŷ)). The spread and mean of
the labels, the spread of past outcomes and DeepFM's division by N are in the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Layer = tuple[Floats, Floats]  # W [in, out], b [out]


class Past(NamedTuple):
    """The L days before each of N rows, latest first. Where a day is absent its age is −1, the rest is any valid value.

    Attributes:
        codes: `[N, L, F]`.
        numbers: `[N, L, n]`.
        action: `[N, L]` index of the incentive that was given.
        outcome: `[N, L, 1+m]` reward and costs of that day, raw.
        age: `[N, L]` days ago.
    """

    codes: Any  # NumPy's int32 and float32, or JAX's while a network is trained
    numbers: Any
    action: Any
    outcome: Any
    age: Any


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
        past_days: L.
        day: `[N·k, D]`.
        outcome: `[1+m, D]`.
        age: `[A, D]`, for 0 … A−1 days ago.
        unit: `[3·D, U]`.
        relevance: `[U, 1]`.
    """

    past_days: int
    day: Layer
    outcome: Floats
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
    def past_days(self) -> int:
        """L; 0 for DeepFM."""
        return self.own.past_days if isinstance(self.own, Attention) else 0

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
            beside = [*own.day, own.outcome, own.age, *own.unit, *own.relevance]
        layers = [part for layer in self.layers for part in layer]
        return int(sum(part.size for part in (self.code, self.number, self.action, *layers, *beside)))
