"""The distinct states of a log, where they are few: what a counted model and a lookup policy are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.schema import MISSING, Encoded, Schema

MAX_STATES = 4096  # beyond, a log has no state index


class StateCollector:
    """The distinct states met so far. A state is codes, numbers and the set of allowed actions.

    Rows are told apart by a random 64-bit sum of their parts, and compared in full with the state they hash to.
    """

    def __init__(self, num_actions: int, column: NDArray[Any]) -> None:
        self.num_actions, self.column = num_actions, column
        self.keys = np.empty(0, np.uint64)  # ascending
        self.index = np.empty(0, np.int64)  # of the state with that key
        self.parts: NDArray[np.uint32] | None = None  # `[S, P]` codes, numbers (as bits) and mask bytes
        self.fields = 0
        self.factors = np.empty(0, np.uint64)

    def put(self, at: Any, encoded: Encoded, mask: NDArray[np.uint8] | None) -> bool:
        """Give each row its state; False if there are more than MAX_STATES."""
        if mask is None:
            mask = np.packbits(np.ones((len(encoded.codes), self.num_actions), np.bool_), axis=1)
        bits = np.ascontiguousarray(encoded.numbers + np.float32(0)).view(np.uint32)  # + 0: −0 is 0
        parts = np.concatenate([encoded.codes.astype(np.uint32), bits.reshape(len(mask), -1), mask], axis=1)
        if self.parts is None:
            self.parts, self.fields = parts[:0], encoded.codes.shape[1]
            self.factors = np.random.default_rng(0).integers(1, 2**64, parts.shape[1], np.uint64, endpoint=False)
        keys = np.zeros(len(parts), np.uint64)
        for j, factor in enumerate(self.factors):
            word = (parts[:, j].astype(np.uint64) + np.uint64(1)) * factor
            keys += word ^ (word >> np.uint64(29))
        if not self._learn(keys, parts):
            return False
        state = self.index[np.searchsorted(self.keys, keys)]
        if not np.array_equal(self.parts[state], parts):  # two states, one key: give up rather than be wrong
            return False
        self.column[at] = state
        return True

    def _learn(self, keys: NDArray[np.uint64], parts: NDArray[np.uint32]) -> bool:
        place = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        new = np.flatnonzero(self.keys[place] != keys) if len(self.keys) else np.arange(len(keys))
        found, first = np.unique(keys[new], return_index=True)
        if len(self.keys) + len(found) > MAX_STATES:
            return False
        rows = np.sort(new[first])  # in order of first appearance
        assert self.parts is not None
        index = np.concatenate([self.index, len(self.parts) + np.arange(len(rows))])
        every = np.concatenate([self.keys, keys[rows]])
        order = np.argsort(every)
        self.keys, self.index = every[order], index[order]
        self.parts = np.concatenate([self.parts, parts[rows]])
        return True

    def put_missing(self, schema: Schema, places: NDArray[np.int64], eligible: NDArray[np.uint8] | None) -> bool:
        """Give the days that were filled in their state: every feature missing."""
        filled = np.ones(len(self.column), np.bool_)
        filled[places] = False
        rows = np.flatnonzero(filled)
        if not len(rows):
            return True
        codes = np.full((len(rows), len(schema.categorical)), MISSING, np.int32)
        numbers = np.zeros((len(rows), 2 * len(schema.numeric)), np.float32)
        numbers[:, 1::2] = 1
        return self.put(rows, Encoded(codes, numbers, 0), None if eligible is None else eligible[rows])

    def write(self, folder: Path) -> int:
        """Write state_codes.npy, state_numbers.npy and state_allowed.npy; how many states there are."""
        assert self.parts is not None
        width = (self.num_actions + 7) // 8
        codes, mask = self.parts[:, : self.fields], self.parts[:, self.parts.shape[1] - width :]
        numbers = np.ascontiguousarray(self.parts[:, self.fields : self.parts.shape[1] - width]).view(np.float32)
        np.save(folder / "state_codes.npy", codes.astype(np.int32))
        np.save(folder / "state_numbers.npy", numbers)
        allowed = np.unpackbits(mask.astype(np.uint8), axis=1, count=self.num_actions).astype(np.bool_)
        np.save(folder / "state_allowed.npy", allowed)
        return len(codes)
