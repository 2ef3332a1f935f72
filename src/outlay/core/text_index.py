"""Finding one text among very many that lie in Arrow arrays, which processes may share by mapping one file.

A Python dictionary takes some 200 bytes for each text, in every process. Here the texts stay in one array, beside their
CRC-32 in ascending order, each with the place of its text: a look-up bisects the hashes and compares texts only where
these are equal.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TextIndex:
    """V different texts and the order of their hashes.

    Attributes:
        texts: `[V]` Arrow string array without nulls.
        hashes: `[V]` uint32, CRC-32 of the texts in UTF-8, ascending.
        places: `[V]` int32, the place in `texts` of the text with each hash.
    """

    texts: Any
    hashes: NDArray[np.uint32]
    places: NDArray[np.int32]

    @classmethod
    def of(cls, texts: Any) -> TextIndex:
        """Index an Arrow string array without nulls."""
        hashes = np.fromiter((zlib.crc32(text.encode()) for text in texts.to_pylist()), np.uint32, len(texts))
        places = np.argsort(hashes, kind="stable").astype(np.int32)
        return cls(texts, hashes[places], places)

    def find(self, text: str) -> int:
        """Return the place of a text, or −1 if it is not among them."""
        offsets, content, hashes = self._views
        encoded = text.encode()
        wanted = zlib.crc32(encoded)
        i = bisect_left(hashes, wanted)
        while i < len(hashes) and hashes[i] == wanted:
            place = int(self.places[i])
            if content[offsets[place] : offsets[place + 1]] == encoded:
                return place
            i += 1
        return -1

    @cached_property
    def _views(self) -> tuple[memoryview, memoryview, memoryview]:
        """Offsets and bytes of the texts, and the hashes: reading single elements of these is fast."""
        _, offsets, content = self.texts.buffers()
        start, count = self.texts.offset, len(self.texts)
        places = np.frombuffer(offsets, np.int32)[start : start + count + 1] if count else np.zeros(1, np.int32)
        # Arrow gives signed bytes, which equal those of a text below 128 alone.
        return places.data, memoryview(content or b"").cast("B"), self.hashes.data
