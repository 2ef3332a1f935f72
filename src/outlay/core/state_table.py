"""A table of states, in the place of the hidden layers of a network: what a counted policy is stored and served as.

    h_i(s) = 1 where all codes and numbers of s are those of state i of the table, else 0

A state that the table does not have gives h = 0, so all that is linear in h is its bias there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.trees import Sums


@dataclass(frozen=True)
class StateTable:
    """S states, all different.

    Attributes:
        codes: `[S, F]`.
        numbers: `[S, n]`. Numbers are compared exactly: the schema encodes equal values alike.
    """

    codes: NDArray[np.int32]
    numbers: NDArray[np.float32]

    @property
    def num_parameters(self) -> int:
        """Stored numbers."""
        return int(self.codes.size + self.numbers.size)

    def sums(self, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> Sums:
        """Return h `[N, S]` of rows of `codes [N, F]` and `numbers [N, n]`, and its absolute values."""
        own, wanted = _keys(self.codes, self.numbers), _keys(codes, numbers)
        order = np.argsort(own)
        place = order[np.searchsorted(own, wanted, sorter=order).clip(max=len(own) - 1)]
        h = np.zeros((len(codes), len(own)))
        h[np.arange(len(codes)), place] = own[place] == wanted
        return Sums(h, h)

    def parts(self) -> dict[str, NDArray[Any]]:
        """Return all of it as named arrays, for a file."""
        return {"codes": self.codes, "numbers": self.numbers}

    @classmethod
    def of_parts(cls, parts: dict[str, NDArray[Any]]) -> StateTable:
        """Return what `parts` was made from.

        Raises:
            KeyError: if a part is absent.
        """
        return cls(parts["codes"], parts["numbers"])


def _keys(codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> NDArray[np.bytes_]:
    """`[N]` the bytes of each row, which can be sorted and compared."""
    positive_zero = np.asarray(numbers, np.float32) + np.float32(0)
    parts = [np.ascontiguousarray(codes, np.int32).view(np.uint8), np.ascontiguousarray(positive_zero).view(np.uint8)]
    whole = np.ascontiguousarray(np.concatenate([part.reshape(len(codes), -1) for part in parts], axis=1))
    return whole.view(f"V{whole.shape[1]}").ravel() if whole.shape[1] else np.zeros(len(codes), "V1")
