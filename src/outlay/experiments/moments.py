"""Users' totals as sufficient statistics, and their conversion for tea-tasting.

From a log, planning and analysis need only the number of users, the means of their totals and the covariances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.machine import optional

BEFORE = "_before"  # suffix of a column's covariate: the same total over the days before
FIRST_WEEK, SINCE = "_first_week", "_since"  # suffixes of its mean per day in the first week, and of its total since
ROUNDING = 1e-9  # of a mean of squares: below it, a variance is too small for a skewness


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
        clustered: whether the units are clusters of users (`by_cluster.py`).
    """

    users: int
    columns: tuple[str, ...]
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    cubes: NDArray[np.float64]
    alike: tuple[str, ...] = ()
    clustered: bool = False

    def place(self, name: str) -> int:
        """Position of a column."""
        return self.columns.index(name)


def moments_of(columns: Mapping[str, NDArray[np.float64]], *, clustered: bool = False) -> UserMoments:
    """The statistics of totals.

    Args:
        columns: by name, `[n]` totals of users, or of clusters.
        clustered: whether they are of clusters.
    """
    totals = np.column_stack(list(columns.values()))
    covariance = np.atleast_2d(np.cov(totals, rowvar=False))
    cubes = (totals**3).mean(axis=0)
    return UserMoments(len(totals), tuple(columns), totals.mean(axis=0), covariance, cubes, clustered=clustered)


def linearised_variance(moments: UserMoments, metric: Metric) -> float:
    """Variance of a unit's part in the metric (delta method); divided by the units it is that of their mean."""
    place = [moments.place(name) for name in metric.columns]
    mean, covariance = moments.mean[place], moments.covariance[np.ix_(place, place)]
    slope = np.ones(1) if len(place) == 1 else np.array([1.0, -mean[0] / mean[1]]) / mean[1]
    return float(slope @ covariance @ slope)


def aggregates(moments: UserMoments, names: Sequence[str]) -> Any:
    """The same numbers of the named columns, as tea-tasting takes them."""
    place = {name: moments.place(name) for name in names}
    return tea_tasting().aggr.Aggregates(
        count_=moments.users,
        mean_={name: float(moments.mean[i]) for name, i in place.items()},
        var_={name: float(moments.covariance[i, i]) for name, i in place.items()},
        cov_={(a, b): float(moments.covariance[place[a], place[b]]) for a, b in combinations(names, 2)},
    )


def pooled_skewness(parts: Sequence[UserMoments], name: str) -> float:
    """Skewness of a column over the users of all parts; 0 for a constant."""
    powers = np.array([_powers(part, part.place(name)) for part in parts])
    mean, square, cube = np.average(powers, axis=0, weights=[part.users for part in parts])
    spread = square - mean**2
    return float((cube - 3 * mean * square + 2 * mean**3) / spread**1.5) if spread > ROUNDING * square else 0.0


def _powers(part: UserMoments, i: int) -> tuple[float, float, float]:
    """Means of a column, of its squares and of its cubes."""
    mean = part.mean[i]
    return mean, part.covariance[i, i] * (1 - 1 / part.users) + mean**2, part.cubes[i]


def tea_tasting() -> Any:
    """The package tea-tasting, imported on first use, since that takes over a second.

    Raises:
        OutlayError: if it is not installed.
    """
    with optional():
        import tea_tasting
    return tea_tasting
