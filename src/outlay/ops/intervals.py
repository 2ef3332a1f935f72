"""Intervals and bounds from per-user influence values: what each user adds to the error of an estimate.

    se = std(ψ) / √U        interval = value ± z·se        ψ_(X/Y) = (ψ_X − (X/Y)·ψ_Y) / Y

The influence of a linear combination is the combination of the influences, so mixtures, differences and ratios of
estimates made from the same users have exact joint covariance without a covariance matrix. Where users come in few
clusters (`estimators/clusters.py`), every multiple of a standard error is that of Student's t. Claims rest on one-sided
bounds, which regard two things more.

Skewed errors (`Spread`): few events make them, or few users who spend far more than others. With influence ψ of n
users, one more user is added, with the largest possible influence M:

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

Bounds that hold together (`critical_value`): truth ≤ estimate + k·se for a whole family, with probability 1 − α.

    P(maxᵢ tᵢ > k) = α        tᵢ = (truthᵢ − estimateᵢ) / seᵢ,  t ~ N(0, R)        (one-sided sup-t)

A normal vector is a direction and an independent length, and the maximum grows in proportion to the length. So only
directions u are drawn, and the length is integrated exactly, which makes tails far smaller than 1 / draws accurate:

    t = ρ·A u,  A Aᵀ = R of rank r,  ρ² ~ χ²_r        P(max t > k) = E_u[ P(χ²_r > (k / max(A u))²) ]

A family may be a cone: all of xᵢ + b·xⱼ, b ≥ 0, each with its own standard error. In the plane of its two errors the
largest of those t is the length of the point where it lies between the ends of the cone (Scheffé), else the larger of
the two ends. Quantities without an error are their own bounds and are left out.

Source: textbook (delta method); Hampel (1974) for the influence function. Skewed: Garwood (1936) for Poisson; Fay and
Feuer (1997) for the one more; Pearson type III; Hill (1975); M, and when to believe it, are ours; how often the bound
fails is measured by `benchmarks/evaluation_rare.py`. Together: Scheffé (1953) for all directions at once; Naiman &
Priebe (2001) use such conditioning for tails of maxima; sup-t bands are textbook (Montiel Olea & Plagborg-Møller 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import chdtrc, chdtri, gammainccinv, ndtr, ndtri, stdtrit

Array = NDArray[np.float64]
BY_CHANCE = 4.0  # standard errors: of what is alike, chance takes one difference in 16,000 so far
LEAST_USERS = 30  # or clusters of them: with fewer, a normal approximation is not believed
MANY_CLUSTERS = 100  # from which on the normal quantile is used: that of Student's t is at most 1.3% larger
FEWEST = 6  # events of one size, or as many as are as skewed as those, from which M is read off the sample
MOST_SKEW = 0.3  # of the error of a mean: as of 11 events; a 95% interval of 5 to 11 holds the truth in 87 to 94%
HEAVIEST = 0.9  # of ξ
MANY = 1e4  # events, from which on a gamma's quantile is its expansion
DRAWS = 65_536  # directions, each taken with its opposite: k to ±0.004, α to about 1% of itself
CHUNK = 1_024  # of them at a time: 1,024 × n numbers, which a cache holds
BINS = 4_096  # of the largest t per unit of length, each with its own mean: k to 1e-6
NONE = 1e-12  # an error smaller than this share of the largest is none but rounding
FARTHEST = 37.0  # standard errors: beyond, the tail of a normal is 0 in double precision
FLAT = 1e-10  # less of a variance of 1, or of a cone's plane, is rounding


def quantile(probability: float) -> float:
    """The point z below which a standard normal falls with this probability, in (0, 1)."""
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}; it must lie strictly between 0 and 1.")
    return float(ndtri(probability))


def degrees(clusters: float) -> float:
    """Return the degrees of freedom of a standard error from this many clusters; +∞ from MANY_CLUSTERS on."""
    return float("inf") if clusters >= MANY_CLUSTERS else float(max(clusters - 1, 1))


def student(factor: float, freedom: float) -> float:
    """The point that Student's t exceeds as often as a standard normal exceeds `factor`; the same for +∞ degrees."""
    return factor if np.isinf(freedom) else -float(stdtrit(freedom, ndtr(-factor)))


def std_error(influence: ArrayLike) -> Array:
    """Standard errors `[…]` of estimates with influence `[U, …]` per user; NaN for fewer than two users."""
    psi = np.asarray(influence, np.float64)
    if len(psi) < 2:
        return np.full(psi.shape[1:], np.nan)
    spread: Array = np.asarray(psi.std(axis=0, ddof=1) / np.sqrt(len(psi)))
    return spread


def interval(
    value: ArrayLike, error: ArrayLike, confidence: float, freedom: float = float("inf")
) -> tuple[Array, Array]:
    """Two-sided interval: lower and upper ends, of the shape of `value`; normal, or Student's t with few `freedom`."""
    factor = student(quantile(0.5 + confidence / 2), freedom)
    centre, half = np.asarray(value, np.float64), factor * np.asarray(error, np.float64)
    return centre - half, centre + half


def ratio(above: float, above_influence: Array, below: float, below_influence: Array) -> tuple[float, Array]:
    """Above / below and its influence `[U]` by the delta method; NaN where `below` is not positive."""
    if not below > 0:
        return float("nan"), np.full(len(above_influence), np.nan)
    value = above / below
    return value, (above_influence - value * below_influence) / below


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
        square = psi**2
        second, third = square.sum(axis=0), (square * psi).sum(axis=0)
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


def critical_value(covariance: Array, alpha: float, cones: NDArray[np.intp] | None = None) -> float:
    """The k of one-sided bounds that all hold with probability 1 − α.

    Args:
        covariance: `[n, n]` of the estimates; it may be singular, and variances may be 0.
        alpha: in (0, 0.5).
        cones: `[F, 2]` places (i, j): every xᵢ + b·xⱼ with b ≥ 0 is in the family; (i, i): xᵢ alone, which is what each
            of the n is by default.

    Returns:
        k, at least the normal quantile of 1 − α, which is what one quantity alone needs.
    """
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha is {alpha}; it must lie strictly between 0 and 0.5.")
    least = quantile(1 - alpha)
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    known = error > NONE * error.max(initial=0.0)
    one, other = (np.tile(np.arange(len(error)), (2, 1)) if cones is None else np.asarray(cones).T).astype(np.intp)
    # A side of a cone that has no error leaves the other side alone.
    one, other = np.where(known[one], one, other), np.where(known[other], other, one)
    pairs = np.unique(np.sort(np.column_stack([one, other])[known[one]], axis=1), axis=0)
    if not len(pairs):
        return least
    used = np.unique(pairs)
    axes = _axes(covariance[np.ix_(used, used)] / np.outer(error[used], error[used]))
    rank = axes.shape[1]
    reach, draws = _binned(_reach(axes, np.searchsorted(used, pairs)))

    def excess(k: float) -> float:
        # In the logarithm the tail is nearly a parabola, which takes half as many steps.
        broken = chdtrc(rank, (k / reach) ** 2) @ draws / (2 * DRAWS)
        return float(np.log(max(broken, 1e-300) / alpha))

    most = float(np.sqrt(chdtri(2.0, alpha / len(pairs))))  # Bonferroni, as if each were a whole plane
    return least if excess(least) <= 0 else float(brentq(excess, least, most, xtol=1e-6))


def _axes(correlation: Array) -> Array:
    """`[n, r]` A with A Aᵀ = R, rows of length 1.

    By Cholesky's method in the order given, not by eigenvectors: those turn at will where eigenvalues are close, and
    k must not move by its noise because of rounding in R.
    """
    left, columns = correlation.copy(), []
    for i in range(len(left)):
        if left[i, i] > FLAT:
            columns.append(left[:, i] / np.sqrt(left[i, i]))
            left -= np.outer(columns[-1], columns[-1])
    axes: Array = np.stack(columns, axis=1)
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    return axes


def _reach(axes: Array, pairs: NDArray[np.intp]) -> Array:
    """The largest t per unit of length, in the directions where it is positive."""
    one, other = pairs[pairs[:, 0] != pairs[:, 1]].T
    cosine = (axes[one] * axes[other]).sum(axis=1)[:, None]
    flat = 1 - cosine**2 < FLAT  # the two sides are one line, and the ends are all there is
    over_plane = np.where(flat, 0.0, 1 / np.where(flat, 1.0, 1 - cosine**2))
    rng, reaches = np.random.default_rng(0), []
    for _ in range(0, DRAWS, CHUNK):
        direction = rng.standard_normal((CHUNK, axes.shape[1]))
        t = axes @ direction.T
        # Between its ends a cone reaches farther than they do, so the ends of all and what lies between are apart.
        both = np.stack([t.max(axis=0), -t.min(axis=0)])
        if len(one):
            a, b = t[one], t[other]
            below, above = a - cosine * b, b - cosine * a  # both positive: between the ends; both negative: opposite
            square = (a * below + b * above) * over_plane
            between = (below > 0) == (above > 0)
            for side, inside in enumerate((between & (below > 0), between & (below < 0))):
                farthest = np.where(inside, square, 0.0).max(axis=0, initial=0.0)
                both[side] = np.maximum(both[side], np.sqrt(farthest))
        largest = (both / np.linalg.norm(direction, axis=1)).ravel()
        reaches.append(largest[largest > 0])
    return np.concatenate(reaches)


def _binned(reach: Array) -> tuple[Array, Array]:
    """The mean of each bin, and how many it has: a tail is smooth, and its mean over a bin that of its middle."""
    least = reach.min()
    place = (BINS * (reach - least) / (np.ptp(reach) * (1 + 1e-9) or 1.0)).astype(np.intp)
    draws = np.bincount(place).astype(np.float64)
    full = draws > 0
    return np.bincount(place, reach)[full] / draws[full], draws[full]
