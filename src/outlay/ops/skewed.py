"""Upper bounds of means whose errors are skewed: few events make them, or few users who spend far more than others.

With influence ψ of n users, one more user is added, with the largest possible influence M:

    bound = value + M/n + √S₂/n · t        S₂ = Σψ² + M²,  S₃ = Σψ³ + M³,  g = S₃ / S₂^1.5
    t     = (Γ⁻¹(p; 1/g²) − 1/g²)·g        the quantile of a gamma with this skewness, never below the normal z

For k events of one size that is the exact upper bound of a Poisson mean (k = 0 gives the rule of three), for many users
alike the normal bound, and in between the skewness of the error is right to second order, on the safe side.

M is read off the sample where that says enough: the largest ψ seen, over 1 − ξ, which is the mean of what lies beyond
it where the tail is a power. ξ is Hill's index of the √p largest of the p positive ψ: 0 for equal events; 1 and more
where the mean itself is lost, and taken as 0.9 there. The sample says enough where, this user included, the error is no
more skewed than that of FEWEST events and the one more: g ≤ 1/√(FEWEST + 1). Otherwise M has to be known: the influence
of the largest cost there can be. If it is not known there is no bound, and +∞ is returned.

A smooth sample may have missed the few who matter. Where larger costs than its own are on record or possible, M is the
largest ψ seen and what they would add to it, if that is more than the sample suggests.

Source: Garwood (1936) for Poisson; Fay and Feuer (1997) for the one more; Pearson type III; Hill (1975). M, and when to
believe it, are ours; how often the bound fails is measured by `benchmarks/evaluation_rare.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv, ndtr

from outlay.ops.intervals import degrees, student

Array = NDArray[np.float64]

FEWEST = 6  # events of one size, or as many as are as skewed as those, from which M is read off the sample
MOST_SKEW = 0.3  # of the error of a mean: as of 11 events; with fewer a 95% interval holds the truth in less than 92%
HEAVIEST = 0.9  # of ξ
MANY = 1e4  # events, from which on a gamma's quantile is its expansion


@dataclass(frozen=True)
class Spread:
    """How estimates from n users may err.

    Attributes:
        users: n.
        error: `[…]` standard error.
        third: `[…]` Σψ³.
        largest: `[…]` M; +∞ where the sample does not say it, and it is not known.
        clustered: whether the n are clusters of users: then few of them take Student's t.
    """

    users: int
    error: Array
    third: Array
    largest: Array
    clustered: bool = False

    @classmethod
    def of(
        cls,
        influence: ArrayLike,
        known: ArrayLike = np.inf,
        beyond: ArrayLike | None = None,
        *,
        clustered: bool = False,
    ) -> Spread:
        """Return the spread of means with this influence.

        Args:
            influence: `[n, …]` ψ of each user.
            known: `[…]` the largest influence that a user can have, 0 where nobody can differ; +∞: not known. What was
                seen counts where it is larger.
            beyond: `[…]` by how much a user may exceed what was seen; default: as far as `known` does, where it is
                known.
            clustered: whether the n are clusters of users.
        """
        psi = np.asarray(influence, np.float64)
        users = len(psi)
        psi = psi - psi.mean(axis=0)
        second, third = (psi**2).sum(axis=0), (psi**3).sum(axis=0)
        error = np.sqrt(second / (users * (users - 1))) if users > 1 else np.full(psi.shape[1:], np.nan)
        likely = np.apply_along_axis(_largest, 0, psi)
        skewed = skewness(second + likely**2, third + likely**3)
        few = (skewed > 1 / np.sqrt(FEWEST + 1)) | (second == 0)
        seen = psi.max(axis=0)
        most = np.maximum(known, seen)
        further = np.where(np.isposinf(most), 0.0, most - seen) if beyond is None else beyond
        return cls(users, error, third, np.where(few, most, np.maximum(likely, seen + further)), clustered)

    @classmethod
    def of_gain(cls, influence: ArrayLike, beyond: ArrayLike = 0.0, *, clustered: bool = False) -> Spread:
        """Return the spread of a difference; if it is 0 for everybody, policies are alike and nothing is unknown.

        `beyond` is as in `of`.
        """
        psi = np.asarray(influence, np.float64)
        differs = psi.any(axis=0)
        return cls.of(psi, np.where(differs, np.inf, 0.0), np.where(differs, beyond, 0.0), clustered=clustered)

    @property
    def events(self) -> Array:
        """`[…]` where there is no bound: events of one size that would say as much, below FEWEST; else NaN."""
        n = self.users
        skewed = skewness(self.error**2 * n * (n - 1), self.third)
        alike = np.divide(1, skewed**2, out=np.zeros_like(skewed), where=skewed > 0)
        equivalent: Array = np.where(np.isposinf(self.largest), np.minimum(np.floor(alike + 0.5), FEWEST - 1), np.nan)
        return equivalent

    def above(self, factor: float) -> Array:
        """`[…]` by how much the bound lies above the value, at the probability at which a normal's is `factor` = z.

        +∞ where there is no bound.
        """
        if self.clustered:
            factor = student(factor, degrees(self.users))
        n, most = self.users, np.where(np.isposinf(self.largest), 0.0, self.largest)
        second = self.error**2 * n * (n - 1) + most**2
        skewed = skewness(second, self.third + most**3)
        t = np.maximum(factor, _gamma(factor, np.maximum(skewed, 1e-12)))
        margin: Array = most / n + np.sqrt(second / (n * max(n - 1, 1))) * t
        return np.where(np.isposinf(self.largest) & ~np.isnan(self.error), np.inf, margin)

    def scaled(self, users: int) -> Spread:
        """Return the spread to expect from another number of users."""
        ratio = users / self.users
        return replace(self, users=users, error=self.error / np.sqrt(ratio), third=self.third * ratio)


def skewness(second: ArrayLike, third: ArrayLike) -> Array:
    """Skewness of the error of a mean, from Σψ² and Σψ³: 1/√k where k events of one size make it; 0 without spread."""
    two, three = np.asarray(second, np.float64), np.asarray(third, np.float64)
    skewed: Array = np.divide(three, two**1.5, out=np.zeros_like(three), where=two > 0)
    return skewed


def _largest(psi: Array) -> float:
    """M of one column."""
    top = psi[psi > 0]
    if not len(top):
        return 0.0
    count = min(int(np.ceil(np.sqrt(len(top)))), len(top) - 1)
    top = np.sort(np.partition(top, -1 - count)[-1 - count :])[::-1]
    index = float(np.log(top[:count] / top[count]).mean()) if count else 0.0
    return float(top[0] / (1 - min(index, HEAVIEST)))


def _gamma(factor: float, skewed: Array) -> Array:
    """`[…]` quantile of a gamma with shape 1 / skewed², less its mean, over its standard deviation."""
    shape = 1 / skewed**2
    few = np.minimum(shape, MANY)
    exact = (gammainccinv(few, ndtr(-factor)) - few) / np.sqrt(few)
    expanded = factor + (factor**2 - 1) * skewed / 3 + (factor**3 - 7 * factor) * skewed**2 / 36
    return np.where(shape > MANY, expanded, exact)
