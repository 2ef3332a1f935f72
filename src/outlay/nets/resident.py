"""The states of a log in the memory of an accelerator, where they fit.

Most of a block of a wide log is codes: 100 steps of 512 rows and 1,000 fields are 51 MB or more. Where the encoded log
lies on the card, the host sends the numbers of the rows, and the card gathers their states from its own memory. Batches
are the same, to the bit. On a processor there is nothing to gain: the memory map is as near as a copy of it would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.transitions import Transitions

SHARE = 0.6  # of the free memory that the states may take; networks, batches and activations need the rest


@dataclass(frozen=True)
class ResidentStates:
    """Encoded states on a device.

    Attributes:
        columns: `[N, f]` codes, as `Transitions.code_columns`.
        order: `[F]` the place of each field among these columns side by side.
        kind: type of the codes in a batch.
        numbers: `[N, n]`, or None where some of them are computed on the host.
    """

    columns: tuple[Array, ...]
    order: NDArray[np.int32]
    kind: Any
    numbers: Array | None

    @classmethod
    def of(cls, data: Transitions) -> ResidentStates:
        """Copy the states of a log to the device that trains."""
        places = [place for positions, _ in data.code_columns for place in positions]
        numbers = None if data.further is not None else jnp.asarray(data.number_columns)
        columns = tuple(jnp.asarray(columns) for _, columns in data.code_columns)
        return cls(columns, np.argsort(places).astype(np.int32), data.code_type, numbers)

    def codes(self, rows: NDArray[np.int64]) -> Array:
        """`[B, F]` as `Transitions.codes`."""
        codes: Array = _taken(self.columns, rows, self.order, self.kind)
        return codes

    def numbers_of(self, rows: NDArray[np.int64]) -> Array | None:
        """`[B, n]` as `Transitions.numbers`, or None where the host computes them."""
        return None if self.numbers is None else _taken((self.numbers,), rows, None, np.float32)


def resident_states(data: Transitions) -> ResidentStates | None:
    """The states of a log on the accelerator; None where there is none, or they do not fit."""
    free = _free_memory()
    size = data.number_columns.nbytes + sum(columns.nbytes for _, columns in data.code_columns)
    return None if free is None or size > SHARE * free else ResidentStates.of(data)


def _free_memory() -> int | None:
    """Bytes that are free on the device that trains; None where it is a processor."""
    device = jax.local_devices()[0]
    stats = None if device.platform == "cpu" else device.memory_stats()
    return None if stats is None else stats["bytes_limit"] - stats["bytes_in_use"]


@partial(jax.jit, static_argnames="kind")
def _taken(columns: tuple[Array, ...], rows: Array, order: Array | None, kind: Any) -> Array:
    found = [column[rows].astype(kind) for column in columns]
    beside = jnp.concatenate(found, axis=1) if found else jnp.zeros((len(rows), 0), kind)
    return beside if order is None else beside[:, order]
