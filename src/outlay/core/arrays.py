"""Trained models as plain arrays: what training hands to a bundle.

A Q-network:

    z = concat(embedding[codes + offsets], numbers)          per network of the pair
    h = relu(… relu(z W₁ + b₁) …)
    Q(s, a) = mean over the pair of (h W_q + b_q), as [K, L, H];  log π_B(a|s) = log softmax(mean of (h W_i + b_i))
    x(s, a) = mean of (h W_x + b_x), as [K, 1+m]: what the day itself brings and costs

In the place of embeddings and layers h may be what `core/bodies.py` has: boosted trees or a table of states. L policies
(one for most networks; a frontier's network answers one λ with each) and H heads: reward, the m costs, and decisions
(J_1) where it is measured. All in raw units of (1−γ)·J.

A response model of two-stage training:

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.bodies import StateTable, Trees

Dense = tuple[NDArray[np.float32], NDArray[np.float32]]  # W [E, in, out], b [E, out]
BODIES: dict[str, type[Trees] | type[StateTable]] = {"trees_": Trees, "table_": StateTable}  # before names in a file


@dataclass(frozen=True, eq=False)
class NetworkArrays:
    """E networks of one shape (E = 2 for the double critic), stacked on the first axis.

    Attributes:
        embedding: `[E, V, k]`, all fields' codes one after another; V = 0 where there is no categorical field.
        offsets: `[F]` first row of each field in `embedding`.
        layers: hidden layers.
        head: Q-values, out = K·L·H, action-major, then policies.
        imitation: logits of π_B, out = K; None where the oracle has no such head.
        num_actions: K.
        outcome: immediate outcomes, out = K·(1+m), action-major, raw units; None where the oracle has no such head.
        num_policies: L.
        body: what computes h of the last of the E networks, which has no layers and no embedding; None elsewhere.
    """

    embedding: NDArray[np.float32]
    offsets: NDArray[np.int64]
    layers: tuple[Dense, ...]
    head: Dense
    imitation: Dense | None
    num_actions: int
    outcome: Dense | None = None
    num_policies: int = 1
    body: Trees | StateTable | None = None

    @property
    def num_heads(self) -> int:
        """H."""
        return int(self.head[1].shape[1]) // (self.num_actions * self.num_policies)

    def only(self, policies: Sequence[int]) -> NetworkArrays:
        """The same network with some of its policies, in this order."""
        chosen = list(policies)
        shape = (self.num_actions, self.num_policies, self.num_heads)
        weight, bias = (
            part.reshape(*part.shape[:-1], *shape)[..., chosen, :].reshape(*part.shape[:-1], -1) for part in self.head
        )
        return replace(self, head=(weight, bias), num_policies=len(chosen))

    def beside(self, others: Sequence[NetworkArrays]) -> NetworkArrays:
        """The same network with the policies of others, which have its hidden layers, after its own."""
        parts = [self, *others]

        def joined(place: int) -> NDArray[np.float32]:
            split = [
                each.head[place].reshape(*each.head[place].shape[:-1], each.num_actions, each.num_policies, -1)
                for each in parts
            ]
            whole = np.concatenate(split, axis=-2)
            return whole.reshape(*whole.shape[:-3], -1)

        return replace(self, head=(joined(0), joined(1)), num_policies=sum(each.num_policies for each in parts))

    @property
    def num_layered(self) -> int:
        """How many of the E networks have layers."""
        return int(self.head[0].shape[0]) - (self.body is not None)

    @property
    def num_features(self) -> int:
        """Width of the last hidden layer, over the pair: E · width."""
        return int(self.head[0].shape[0] * self.head[0].shape[1])

    @property
    def num_parameters(self) -> int:
        """Stored parameters."""
        dense = (*self.layers, self.head, *(part for part in (self.imitation, self.outcome) if part is not None))
        first = 0 if self.body is None else self.body.num_parameters
        return int(first + self.embedding.size + sum(w.size + b.size for w, b in dense))


def preferring_network(
    preference: NDArray[Any], sizes: tuple[int, ...], num_numbers: int, num_heads: int
) -> NetworkArrays:
    """A network whose reward head is the same in every state, so that it gives the first of what is allowed there.

    Args:
        preference: `[K]` larger is better.
        sizes: codes per categorical field.
        num_numbers: width of the numeric part.
        num_heads: H.
    """
    num_actions = len(preference)
    head = np.zeros((1, num_actions, num_heads), np.float32)
    head[0, :, 0] = preference
    return NetworkArrays(
        embedding=np.zeros((1, sum(sizes), 1), np.float32),
        offsets=np.cumsum((0, *sizes), dtype=np.int64)[:-1],
        layers=(),
        head=(np.zeros((1, len(sizes) + num_numbers, head[0].size), np.float32), head.reshape(1, -1)),
        imitation=None,
        num_actions=num_actions,
    )


def body_network(
    body: Trees | StateTable,
    head: Dense,
    outcome: Dense,
    sizes: tuple[int, ...],
    num_actions: int,
    num_policies: int = 1,
) -> NetworkArrays:
    """Return trees or a table, and what is linear in their T outputs.

    Args:
        body: gives T outputs.
        head: Q-values, `[1, T, K·L·H]` with biases.
        outcome: what the day itself brings and costs, `[1, T, K·(1+m)]` with biases.
        sizes: codes per categorical field.
        num_actions: K.
        num_policies: L.
    """
    return NetworkArrays(
        embedding=np.zeros((1, sum(sizes), 0), np.float32),
        offsets=np.cumsum((0, *sizes), dtype=np.int64)[:-1],
        layers=(),
        head=head,
        imitation=None,
        num_actions=num_actions,
        outcome=outcome,
        num_policies=num_policies,
        body=body,
    )


def lookup_network(
    table: StateTable,
    sizes: tuple[int, ...],
    q: NDArray[np.floating],
    outcome: NDArray[np.floating],
    share: NDArray[np.floating],
) -> NetworkArrays:
    """Return the values of a table of states. A state that it does not have gets their mean, weighted by `share`.

    So there the best action that looks at no state is given.

    Args:
        table: S states.
        sizes: codes per categorical field.
        q: `[S, K, L, H]`.
        outcome: `[S, K, 1+m]` what the day itself brings and costs.
        share: `[S]` how often each state is met; sums to 1.
    """
    states, actions, policies = q.shape[:3]

    def head(values: NDArray[np.floating]) -> Dense:
        flat = values.reshape(states, -1).astype(np.float64)
        mean = share @ flat
        return (flat - mean).astype(np.float32)[None], mean.astype(np.float32)[None]

    return body_network(table, head(q), head(outcome), sizes, actions, policies)


def hidden_layers(
    network: NetworkArrays, codes: NDArray[np.int32], numbers: NDArray[np.float32]
) -> list[NDArray[np.float64]]:
    """Return the last hidden layer `[N, width]` of each of the E networks, in double precision.

    Args:
        network: E networks.
        codes: `[N, F]`, F may be 0.
        numbers: `[N, n]`, n may be 0.
    """
    hidden = layered_hidden(network, codes, numbers)
    return hidden if network.body is None else [*hidden, network.body.sums(codes, numbers)]


def layered_hidden(
    network: NetworkArrays, codes: NDArray[np.int32], numbers: NDArray[np.float32]
) -> list[NDArray[np.float64]]:
    """The same of those that have layers."""
    rows, hidden = len(codes), []
    for e in range(network.num_layered):
        embedded = network.embedding[e][codes + network.offsets] if codes.shape[1] else np.empty((rows, 0, 0))
        x = np.concatenate([embedded.reshape(rows, -1), numbers], axis=1).astype(np.float64)
        for weight, bias in network.layers:
            x = np.maximum(x @ weight[e] + bias[e], 0)
        hidden.append(x)
    return hidden


def head_values(hidden: list[NDArray[np.float64]], head: Dense) -> NDArray[np.float64]:
    """Return `[N, out]`, the mean over the networks of what a head makes of their last hidden layers `[N, width]`."""
    weight, bias = head
    mean: NDArray[np.float64] = np.mean([h @ weight[e] + bias[e] for e, h in enumerate(hidden)], axis=0)
    return mean


def averaged(layered: NetworkArrays, bodied: NetworkArrays) -> NetworkArrays:
    """The mean of networks with layers and of one with a body, as one: each of the two has half of the weight.

    The last hidden layers are made equally wide by outputs of 0.
    """
    assert bodied.body is not None
    count, width = layered.num_layered, max(layered.head[0].shape[1], bodied.head[0].shape[1])

    def wide(part: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
        missing = [(0, width - part.shape[axis] if i == axis else 0) for i in range(part.ndim)]
        return np.pad(part, missing)

    def head(one: Dense, other: Dense) -> Dense:
        shares = (count + 1) / (2 * count), (count + 1) / 2  # of E = count + 1 that are averaged
        weights = [np.float32(share) * wide(part[0], 1) for share, part in zip(shares, (one, other), strict=True)]
        biases = [np.float32(share) * part[1] for share, part in zip(shares, (one, other), strict=True)]
        return np.concatenate(weights), np.concatenate(biases)

    *first, (weight, bias) = layered.layers
    both = layered.outcome, bodied.outcome
    return replace(
        layered,
        layers=(*first, (wide(weight, 2), wide(bias, 1))),
        head=head(layered.head, bodied.head),
        imitation=None,
        outcome=None if both[0] is None or both[1] is None else head(both[0], both[1]),
        body=replace(bodied.body, num_outputs=width),
    )


def write_network(path: Path, network: NetworkArrays) -> None:
    """As a `.npz` file."""
    parts: dict[str, NDArray[Any]] = {
        "embedding": network.embedding,
        "offsets": network.offsets,
        "shape": np.array([network.num_actions, network.num_policies, len(network.layers)]),
    }
    dense = {f"layer_{i}": layer for i, layer in enumerate(network.layers)} | {"head": network.head}
    dense |= {name: part for name in ("imitation", "outcome") if (part := getattr(network, name)) is not None}
    for name, (weight, bias) in dense.items():
        parts |= {f"{name}_weight": weight, f"{name}_bias": bias}
    for prefix, kind in BODIES.items():
        if isinstance(network.body, kind):
            parts |= {f"{prefix}{name}": part for name, part in network.body.parts().items()}
    np.savez(path, **parts)  # type: ignore[arg-type]  # NumPy types the names as flags


def read_network(path: Path) -> NetworkArrays:
    """What `write_network` wrote.

    Raises:
        OSError, ValueError, KeyError, zipfile.BadZipFile: if the file is missing or damaged.
    """
    with path.open("rb") as handle, np.load(handle) as file:  # NumPy leaves a damaged file open
        parts = {name: file[name] for name in file.files}
    actions, policies, depth = (int(number) for number in parts["shape"])

    def dense(name: str) -> Dense:
        return parts[f"{name}_weight"], parts[f"{name}_bias"]

    def named(prefix: str) -> dict[str, NDArray[Any]]:
        return {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}

    body = next((kind.of_parts(own) for prefix, kind in BODIES.items() if (own := named(prefix))), None)
    return NetworkArrays(
        embedding=parts["embedding"],
        offsets=parts["offsets"],
        layers=tuple(dense(f"layer_{i}") for i in range(depth)),
        head=dense("head"),
        imitation=dense("imitation") if "imitation_weight" in parts else None,
        num_actions=actions,
        outcome=dense("outcome") if "outcome_weight" in parts else None,
        num_policies=policies,
        body=body,
    )


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


@dataclass(frozen=True, eq=False)
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
