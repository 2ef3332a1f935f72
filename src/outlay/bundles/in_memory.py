"""A bundle that is not written: policies are computed in NumPy, by the equations that written ones are held against.

Candidates are measured this way, hundreds of them in a training; only what is served is exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle, Member
from outlay.bundles.reference import log_probabilities, respond
from outlay.bundles.write import BundleSpec, described
from outlay.core.arrays import NetworkArrays, ResponseArrays, head_values, hidden_layers


def in_memory(spec: BundleSpec) -> Bundle:
    """Return a bundle of these members that no folder holds; it decides as the written one does, but for rounding."""
    sizes = len(spec.schema.categorical), 2 * len(spec.schema.numeric)
    sessions = {network: _Session(network, *sizes) for network in spec.networks}
    members = tuple(
        Member(sessions[m.network], m.weight, str(i), np.asarray(m.head_weights, np.float64), m.policy, held=m.held)
        for i, m in enumerate(spec.members)
    )
    return Bundle(Path("unwritten"), described(spec), spec.schema, members)


class _Argument(NamedTuple):
    name: str
    shape: tuple[Any, ...]


@dataclass(frozen=True, eq=False)  # sessions are told apart by identity
class _Session:
    """A network, called as `Member` calls a session of onnxruntime."""

    network: NetworkArrays | ResponseArrays
    num_fields: int
    num_numbers: int

    def get_inputs(self) -> list[_Argument]:
        return [_Argument("codes", (None, self.num_fields)), _Argument("numbers", (None, self.num_numbers))]

    def get_outputs(self) -> list[_Argument]:
        network = self.network
        if isinstance(network, ResponseArrays):
            row = np.zeros((1, self.num_fields), np.int32), np.zeros((1, self.num_numbers), np.float32)
            found = self._respond(*row)
            return [_Argument(name, (None, *values.shape[1:])) for name, values in found.items()]
        values = network.num_policies * network.num_heads
        shapes: dict[str, tuple[int, ...]] = {"q": (network.num_actions, values), "features": (network.num_features,)}
        if network.imitation is not None:
            shapes["imitation"] = (network.num_actions,)
        if network.outcome is not None:
            shapes["outcome"] = (network.num_actions, network.outcome[1].shape[1] // network.num_actions)
        return [_Argument(name, (None, *shape)) for name, shape in shapes.items()]

    def run(self, outputs: Sequence[str], feed: dict[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        codes, numbers, network = feed["codes"], feed["numbers"], self.network
        if isinstance(network, ResponseArrays):
            found = self._respond(codes, numbers)
            return [found[name].astype(np.float32) for name in outputs]
        hidden = hidden_layers(network, codes, numbers)
        results = []
        for name in outputs:
            if name == "features":
                value = np.concatenate(hidden, axis=1)
            elif name == "imitation":
                assert network.imitation is not None
                value = log_probabilities(head_values(hidden, network.imitation))
            else:
                head = network.head if name == "q" else network.outcome
                assert head is not None
                value = head_values(hidden, head).reshape(len(codes), network.num_actions, -1)
            results.append(value.astype(np.float32))
        return results

    def _respond(self, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
        assert isinstance(self.network, ResponseArrays)
        values = respond(self.network, codes, numbers)
        found = {"q": values.q, "features": values.features}
        return found if values.outcome is None else found | {"outcome": values.outcome}
