"""How much two large sets share, from a few numbers of each: the smallest hashes of their elements.

In both sets the elements below a common threshold are compared, which are the same elements in both. So a part of a set
can be distinguished from the whole, and an estimate of 1 for it is exact.

Source: bottom-k sketches (Broder 1997; Cohen and Kaplan 2007).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

SIZE = 4_096  # hashes kept of a set: a share of one half to ±0.01
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

Hashes = NDArray[np.uint64]


def mixed(*columns: ArrayLike) -> Hashes:
    """`[n]` one hash per row of columns `[n]` of 64 bits each. Source: SplitMix64 (Steele, Lea and Flood 2014)."""
    hashes = np.zeros(len(np.asarray(columns[0])), np.uint64)
    for column in columns:
        z = (hashes ^ np.asarray(column).view(np.uint64)) + np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(FIRST)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(SECOND)
        hashes = z ^ (z >> np.uint64(31))
    return hashes


def smallest(hashes: Hashes, size: int = SIZE) -> Hashes:
    """The sample of a set that `shared` compares: its `size` smallest hashes, ascending, each once."""
    ordered = np.sort(hashes)
    return ordered[np.diff(ordered, prepend=ordered[:1] + np.uint64(1)) > 0][:size]


def shared(one: Hashes, other: Hashes, size: int = SIZE) -> float:
    """The share of the smaller set that the larger one has, from the sample of each; 0 where one is empty."""
    ends = [sample[-1] for sample in (one, other) if len(sample) == size]
    if ends:  # a full sample ends somewhere, and says nothing of what lies above
        one, other = one[one <= min(ends)], other[other <= min(ends)]
    least = min(len(one), len(other))
    return len(np.intersect1d(one, other, assume_unique=True)) / least if least else 0.0
