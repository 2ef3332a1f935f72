"""Upper bounds of means whose errors are skewed: few events make them, or few users who spend far more than others.

With influence ψ of n users, one user more is thought to come with the largest influence M that there may be:

    bound = value + M/n + √S₂/n · t        S₂ = Σψ² + M²,  S₃ = Σψ³ + M³,  g = S₃ / S₂^1.5
    t     = (Γ⁻¹(p; 1/g²) − 1/g²)·g        the quantile of a gamma with this skewness, never below the normal z

For k events of one size that is the exact upper bound of a Poisson mean (k = 0 gives the rule of three), for many users
alike the normal bound, and in between the skewness of the error is right to second order, on the safe side.

M is the largest ψ seen, over 1 − ξ: what a ψ beyond it is expected to be where the tail is a power. ξ is Hill's index
of the √p largest of the p positive ψ: 0 for equal events; 1 and more where the mean itself is lost, and taken as 0.9
there. A sample with few events has not seen how large one may be; M is then at least what the rest of the log says.

Source: Garwood (1936) for Poisson; Fay and Feuer (1997) for the one more; Pearson type III; Hill (1975). M is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv, ndtr

from outlay.ops.intervals import quantile

Array = NDArray[np.float64]

MOST_SKEW = 0.3  # of the error of a mean: as of 11 events; with fewer a 95 % interval holds the truth in less than 92 %
HEAVIEST = 0.9  # of ξ
MANY = 1e4  # events, from which on a gamma's quantile is its expansion


@dataclass(frozen=True)
class Spread:
    """How estimates from n users may err.

    Attributes:
        users: n.
        error: `[…]` standard error.
        third: `[…]` Σψ³.
        largest: `[…]` M.
    """

    users: int
    error: Array
    third: Array
    largest: Array

    @classmethod
    def of(cls, influence: ArrayLike, reach: ArrayLike = 0.0) -> Spread:
        """From the influence.

        Args:
            influence: `[n, …]` ψ of each user.
            reach: `[…]` the largest influence that the rest of the log makes likely; it counts where events are few.
        """
        psi = np.asarray(influence, np.float64)
        users = len(psi)
        psi = psi - psi.mean(axis=0)
        second, third = (psi**2).sum(axis=0), (psi**3).sum(axis=0)
        error = np.sqrt(second / (users * (users - 1))) if users > 1 else np.full(psi.shape[1:], np.nan)
        largest = np.apply_along_axis(_largest, 0, psi)
        few = skewness(second, third) > MOST_SKEW
        few |= second == 0
        return cls(users, error, third, np.where(few, np.maximum(largest, reach), largest))

    def above(self, factor: float) -> Array:
        """`[…]` by how much the bound lies above the value, at the probability at which a normal's is `factor` = z."""
        n = self.users
        second = self.error**2 * n * (n - 1) + self.largest**2
        skewed = skewness(second, self.third + self.largest**3)
        t = np.maximum(factor, _gamma(factor, np.maximum(skewed, 1e-12)))
        found: Array = self.largest / n + np.sqrt(second / (n * max(n - 1, 1))) * t
        return found

    def scaled(self, users: int) -> Spread:
        """The same to expect from another number of users."""
        ratio = users / self.users
        return replace(self, users=users, error=self.error / np.sqrt(ratio), third=self.third * ratio)


def upper_bound(value: ArrayLike, influence: ArrayLike, confidence: float, reach: ArrayLike = 0.0) -> Array:
    """`[…]` the truth lies below it with probability `confidence`, for itself; arguments as of `Spread.of`."""
    return np.asarray(value, np.float64) + Spread.of(influence, reach).above(quantile(confidence))


def lower_bound(value: ArrayLike, influence: ArrayLike, confidence: float) -> Array:
    """`[…]` the truth lies above it with probability `confidence`, for itself."""
    return np.asarray(value, np.float64) - Spread.of(-np.asarray(influence)).above(quantile(confidence))


def skewness(second: ArrayLike, third: ArrayLike) -> Array:
    """Skewness of the error of a mean, from Σψ² and Σψ³: 1/√k where k events of one size make it; 0 without spread."""
    two, three = np.asarray(second, np.float64), np.asarray(third, np.float64)
    found: Array = np.divide(three, two**1.5, out=np.zeros_like(three), where=two > 0)
    return found


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
