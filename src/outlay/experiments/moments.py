"""Users' totals as sufficient statistics, and how tea-tasting gets them.

Planning and analysis need of a log only the number of users, the means of their totals and the covariances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.machine import optional

BEFORE = "_before"  # ends the name of a column's covariate: the same total in the days before
FIRST_WEEK, SINCE = "_first_week", "_since"  # end the names of its mean per day in the first week, its total since
ROUNDING = 1e-9  # of a mean of squares: a variance below it has no skewness that rounding leaves


@dataclass(frozen=True)
class Metric:
    """A mean per user, or a ratio of two such means.

    Attributes:
        name: as in experiment.toml.
        numerator: column of the users' totals.
        denominator: column of the users' totals; None for a plain mean.
    """

    name: str
    numerator: str
    denominator: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is made of."""
        return (self.numerator,) if self.denominator is None else (self.numerator, self.denominator)


@dataclass(frozen=True)
class UserMoments:
    """Sufficient statistics of users' totals.

    Attributes:
        users: number of users.
        columns: d names of totals; a covariate is named like its column, with `_before`.
        mean: `[d]` per user.
        covariance: `[d, d]` sample covariance.
        cubes: `[d]` means of cubes, which tell how skewed the totals are.
        alike: columns of which all users who are in the test on a day have the same that day.
    """

    users: int
    columns: tuple[str, ...]
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    cubes: NDArray[np.float64]
    alike: tuple[str, ...] = ()

    def place(self, name: str) -> int:
        """Position of a column."""
        return self.columns.index(name)


def aggregates(moments: UserMoments, names: Sequence[str]) -> Any:
    """tea-tasting's record of the same numbers, of the columns named."""
    place = {name: moments.place(name) for name in names}
    return tea_tasting().aggr.Aggregates(
        count_=moments.users,
        mean_={name: float(moments.mean[i]) for name, i in place.items()},
        var_={name: float(moments.covariance[i, i]) for name, i in place.items()},
        cov_={(a, b): float(moments.covariance[place[a], place[b]]) for a, b in combinations(names, 2)},
    )


def pooled_skewness(parts: Sequence[UserMoments], name: str) -> float:
    """Of a column over the users of all parts; 0 of a constant."""
    powers = np.array([_powers(part, part.place(name)) for part in parts])
    mean, square, cube = np.average(powers, axis=0, weights=[part.users for part in parts])
    spread = square - mean**2
    return float((cube - 3 * mean * square + 2 * mean**3) / spread**1.5) if spread > ROUNDING * square else 0.0


def _powers(part: UserMoments, i: int) -> tuple[float, float, float]:
    """Means of a column, of its squares and of its cubes."""
    mean = part.mean[i]
    return mean, part.covariance[i, i] * (1 - 1 / part.users) + mean**2, part.cubes[i]


def tea_tasting() -> Any:
    """tea-tasting, loaded when the first number is asked for: it takes over a second.

    Raises:
        OutlayError: if it is not installed.
    """
    with optional():
        import tea_tasting
    return tea_tasting
