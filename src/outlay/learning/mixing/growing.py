"""Append-only sequences that are values: going on from a state leaves the state as it was, and copies nothing.

States that follow one another share one store; each sees only its own first items. Who goes on from a state that
somebody else has gone on from already gets a copy of its own. So a step costs O(1), however many came before.

Source: ours; the slices of some languages do the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Growing:
    """Any items, oldest first."""

    __slots__ = ("_count", "_store")

    def __init__(self, store: list[Any] | None = None) -> None:
        self._store = [] if store is None else store
        self._count = len(self._store)

    def appended(self, item: Any) -> Growing:
        """These items and one more."""
        store = self._store if len(self._store) == self._count else self._store[: self._count]
        store.append(item)
        return Growing(store)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Any:
        if not 0 <= place < self._count:
            raise IndexError(place)
        return self._store[place]

    def __iter__(self) -> Iterator[Any]:
        return (self._store[place] for place in range(self._count))


class GrowingRows:
    """Rows of floats, oldest first."""

    __slots__ = ("_count", "_store", "_used")

    def __init__(self, store: Floats, used: list[int] | None = None) -> None:
        self._store = store
        self._used = [len(store)] if used is None else used  # of the store, by whoever went furthest
        self._count = self._used[0]

    @property
    def array(self) -> Floats:
        """`[count, d]`, not to be written to."""
        view = self._store[: self._count]
        view.flags.writeable = False
        return view

    def appended(self, row: Floats) -> GrowingRows:
        """These rows and one more."""
        store, used = self._store, self._used
        if used[0] != self._count or self._count == len(store):
            store = np.empty((2 * self._count + 8, store.shape[1]))
            store[: self._count] = self._store[: self._count]
            used = [self._count]
        store[self._count] = row
        used[0] += 1
        return GrowingRows(store, used)

    def __len__(self) -> int:
        return self._count
