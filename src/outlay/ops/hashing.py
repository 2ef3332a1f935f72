"""Which user gets which draw, by keyed hashing instead of stored random numbers; and how much two large sets share.

    u(salt, unit) = (BLAKE2b-64("salt:unit") as a big-endian integer >> 11) / 2⁵³     in [0, 1)
    member        = argmin_k  −ln u(salt_k, unit) / α_k                               weighted rendezvous

The draw depends on nothing but the two texts, so any machine and any language repeats it (`docs/sticky-assignment.md`
has test vectors). Every decision that is drawn needs its own salt: two draws with one salt are the same draw. Keep ":"
out of salts, so that no salt and unit run into another's text.

A large set is known by the smallest hashes of its elements. In both sets the elements below a common threshold are
compared, which are the same elements in both. So a part of a set can be distinguished from the whole, and an estimate
of 1 for it is exact.

Source of the samples: bottom-k sketches (Broder 1997; Cohen and Kaplan 2007).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

SIZE = 4_096  # hashes kept of a set: a share of one half to ±0.01
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
Hashes = NDArray[np.uint64]


def uniform(salt: str, units: Iterable[object]) -> NDArray[np.float64]:
    """One draw per unit, uniform on [0, 1), fixed by salt and unit.

    Args:
        salt: names the decision that is drawn.
        units: N units, users say; each counts by its text, in UTF-8.

    Returns:
        `[N]` multiples of 2⁻⁵³.
    """
    drawn: NDArray[np.float64] = _uniform([salt], [str(unit).encode() for unit in units])[0]
    return drawn


def rendezvous(salts: Sequence[str], weights: ArrayLike, units: Iterable[object]) -> NDArray[np.int64]:
    """Draw one of k for each unit, with probabilities `weights`, so that new weights move few units.

    −ln u_k / α_k is exponential with rate α_k, so the smallest is k with probability α_k. Raising α_k and lowering
    others only moves units towards k, whatever the order of the list.

    Args:
        salts: k different texts; an option that keeps its salt keeps its units.
        weights: `[k]` α, not negative, not all zero; they need not sum to 1. Weight 0 is never drawn.
        units: N units; each counts by its text, which may be given in UTF-8 as bytes.

    Returns:
        `[N]` positions in `salts`; a tie goes to the lower one.

    Raises:
        ValueError: if salts repeat, or weights do not fit the salts or are impossible.

    Source: Thaler and Ravishankar 1998 (rendezvous hashing); the weighted score is Schindelhauer and Schomaker 2005.
    """
    alpha = np.asarray(weights, np.float64)
    if alpha.shape != (len(salts),):
        raise ValueError(f"{len(salts)} salts and weights of shape {alpha.shape}; they must be as many")
    live, live_salts, rates = _checked(tuple(salts), tuple(alpha.tolist()))
    texts = [unit if isinstance(unit, bytes) else str(unit).encode() for unit in units]
    if len(live) == 1:
        return np.full(len(texts), live[0], np.int64)
    with np.errstate(divide="ignore"):  # u = 0 scores ∞: it loses to everything
        scores = -np.log(_uniform(live_salts, texts)) / rates
    drawn: NDArray[np.int64] = live[scores.argmin(0)]
    return drawn


@lru_cache(maxsize=256)  # servers draw for a user or two at a time, and the check takes longer than the draw
def _checked(
    salts: tuple[str, ...], weights: tuple[float, ...]
) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float64]]:
    """Positions, salts and weights `[k, 1]` of those that may be drawn."""
    alpha = np.array(weights)
    if len(set(salts)) < len(salts):
        raise ValueError(f"salts are {list(salts)}; each must be used once")
    if not np.all(np.isfinite(alpha)) or np.any(alpha < 0) or not np.any(alpha > 0):
        raise ValueError(f"weights are {alpha.tolist()}; they must be finite, not negative, and not all zero")
    live = np.flatnonzero(alpha)
    return live, tuple(salts[k] for k in live.tolist()), alpha[live][:, None]


def _uniform(salts: Sequence[str], texts: Sequence[bytes]) -> NDArray[np.float64]:
    """`[k, N]` draws."""
    digests = bytearray()
    for salt in salts:
        prefix = hashlib.blake2b(f"{salt}:".encode(), digest_size=8)
        for text in texts:
            hasher = prefix.copy()
            hasher.update(text)
            digests += hasher.digest()
    whole = (np.frombuffer(digests, ">u8") >> np.uint64(11)).astype(np.float64)
    return whole.reshape(len(salts), -1) * 2.0**-53


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
