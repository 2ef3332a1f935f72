"""Users' totals as sufficient statistics, and what a metric is made of them.

From a log, planning and analysis need only the number of users, the means of their totals and the covariances. A ratio
of means is linearised (delta method): its value moves with a user's totals x by w·x,

    R = Ȳ / D̄        w = (e_Y − R e_D) / D̄        variance of a user's part  wᵀ Σ w

and a plain mean is the ratio with D = 1. So everything that a test compares is a linear form in the totals, and its
variance a quadratic form in their covariance.

Arms may be drawn by cluster. Then the clusters' totals take the place of the users', and a mean per user is a ratio,

    effect = Σ_g Y_g / Σ_g N_g in the arm  −  the same in the control        Y_g: total of a cluster, N_g: its users

so that users of a cluster may depend on one another in any way, and uneven clusters, a ramp and the days before the
start need nothing more.

Source: Deng, Knoblich and Lu 2018 (delta method, clusters).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BEFORE = "_before"  # suffix of a column's covariate: the same total over the days before
FIRST_WEEK, SINCE = "_first_week", "_since"  # suffixes of its mean per day in the first week, and of its total since
USERS = "users_of_cluster"  # the column that counts the users of a cluster
ROUNDING = 1e-9  # of a mean of squares: below it, a variance is too small for a skewness
CONSTANT = 1e-12  # of a mean of squares: a variance below it is that of a constant


@dataclass(frozen=True)
class Metric:
    """A mean per user, or a ratio of two such means.

    Attributes:
        name: as in experiment.toml.
        numerator: column of the users' totals.
        denominator: the same; None for a plain mean.
    """

    name: str
    numerator: str
    denominator: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is computed from."""
        return (self.numerator,) if self.denominator is None else (self.numerator, self.denominator)

    @property
    def before(self) -> Metric:
        """The same over the days before the start."""
        return Metric(self.name, *(name + BEFORE for name in self.columns))

    @property
    def per_user(self) -> Metric:
        """The same where the units are clusters: a mean per user is a ratio."""
        return self if self.denominator is not None else Metric(self.name, self.numerator, USERS)


@dataclass(frozen=True)
class UserMoments:
    """Sufficient statistics of users' totals.

    Attributes:
        users: number of users.
        columns: d names of totals; the covariate of a column has its name with `_before`.
        mean: `[d]` per user.
        covariance: `[d, d]` sample covariance.
        cubes: `[d]` means of cubes, for the skewness of the totals.
        alike: columns in which all users who are in the test on a day have the same value on that day.
        clustered: whether the units are clusters of users.
    """

    users: int
    columns: tuple[str, ...]
    mean: Array
    covariance: Array
    cubes: Array
    alike: tuple[str, ...] = ()
    clustered: bool = False

    def place(self, name: str) -> int:
        """Position of a column."""
        return self.columns.index(name)

    def average(self, name: str) -> float:
        """Mean of a column."""
        return float(self.mean[self.place(name)])

    def value(self, metric: Metric) -> float:
        """The metric: a mean, or a ratio of two."""
        return self.average(metric.numerator) / self._below(metric)

    def weights(self, metric: Metric) -> Array:
        """`[d]` w: a unit's totals move the metric by w·totals, divided by the number of units."""
        w = np.zeros(len(self.columns))
        below = self._below(metric)
        w[self.place(metric.numerator)] = 1 / below
        if metric.denominator is not None:
            w[self.place(metric.denominator)] -= self.value(metric) / below
        return w

    def product(self, left: Array, right: Array) -> float:
        """Covariance of two linear forms `[d]` in a unit's totals; columns of weight 0 may have none."""
        i, j = np.flatnonzero(left), np.flatnonzero(right)
        return float(left[i] @ self.covariance[np.ix_(i, j)] @ right[j])

    def variance(self, metric: Metric) -> float:
        """Variance of a unit's part in the metric; divided by the units it is that of the metric."""
        w = self.weights(metric)
        return self.product(w, w)

    def is_constant(self, metric: Metric) -> bool:
        """Whether no unit differs from another in this metric, or its denominator is 0."""
        if metric.denominator is not None and self.average(metric.denominator) == 0:
            return True
        place = self.place(metric.numerator)
        squares = self.covariance[place, place] + self.mean[place] ** 2
        return bool(self.variance(metric) * self._below(metric) ** 2 <= CONSTANT * squares)

    def skewness(self, name: str) -> float:
        """Skewness of a column; 0 for a constant."""
        i = self.place(name)
        mean, cube = self.average(name), float(self.cubes[i])
        spread = float(self.covariance[i, i]) * (1 - 1 / self.users)
        square = spread + mean**2
        return (cube - 3 * mean * square + 2 * mean**3) / spread**1.5 if spread > ROUNDING * square else 0.0

    def _below(self, metric: Metric) -> float:
        return 1.0 if metric.denominator is None else self.average(metric.denominator)


def moments_of(columns: Mapping[str, Array], *, clustered: bool = False) -> UserMoments:
    """The statistics of totals.

    Args:
        columns: by name, `[n]` totals of users, or of clusters.
        clustered: whether they are of clusters.
    """
    totals = np.column_stack(list(columns.values()))
    covariance = np.atleast_2d(np.cov(totals, rowvar=False))
    cubes = (totals**3).mean(axis=0)
    return UserMoments(len(totals), tuple(columns), totals.mean(axis=0), covariance, cubes, clustered=clustered)


def pooled(a: UserMoments, b: UserMoments) -> UserMoments:
    """The statistics of two arms together."""
    n, m = a.users, b.users
    apart = a.mean - b.mean
    covariance = (a.covariance * (n - 1) + b.covariance * (m - 1) + np.outer(apart, apart) * n * m / (n + m)) / (
        n + m - 1
    )
    mean, cubes = ((n * x + m * y) / (n + m) for x, y in ((a.mean, b.mean), (a.cubes, b.cubes)))
    return UserMoments(n + m, a.columns, mean, covariance, cubes, clustered=a.clustered)
