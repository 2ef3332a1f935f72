"""What an analysis needs of a log: sums by arm, segment and day, made by DuckDB in one pass.

A user counts from the first row in an arm on, and stays: T_d, the total of a column up to day d, is carried over days
without rows. The sums of totals and of their products are kept as what each day adds,

    Δ Σ_u A_d B_d = Σ_{rows of day d} (a·B_d + b·A_d − a·b)          a, b: the row's own; A_d, B_d: the totals with it

so that the state of the test on every past day comes from one sort of the log by user and a few hundred sums.
Columns named `…_before` are the same totals over the rows before the start (CUPED's covariates); they do not grow.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.experiments.design import Experiment
from outlay.experiments.moments import BEFORE, Moments
from outlay.experiments.rows import Columns, Run, make_before, make_rows, refuse_wrong_rows

Array = NDArray[np.float64]

MOST_SEGMENTS = 100
ROUNDING = 1e-12  # of a mean of squares: a variance below it is that of a constant
ALL = "all"  # the segment where none are asked for
UNSEEN = "not in the log"  # the segment of users who were assigned and left no row


@dataclass(frozen=True)
class Sums:
    """What each day adds, by arm and segment.

    Attributes:
        names: of the M columns.
        arms: in the order of the experiment.
        segments: sorted.
        daily: whether days are told apart; else everything is in day 0.
        users: `[D, A, G]` who came in on that day.
        seen: `[D, A, G]` of whom the log has the first row on that day; others than `users` where assignment is known.
        first: `[D, A, G, M]` added to sums of totals.
        second: `[D, A, G, M, M]` added to sums of products of totals; NaN for pairs that were not asked for.
        observed: days of the test that the log has rows of.
        beyond: rows of arms after the planned end, left out.
    """

    names: tuple[str, ...]
    arms: tuple[str, ...]
    segments: tuple[str, ...]
    daily: bool
    users: NDArray[np.int64]
    seen: NDArray[np.int64]
    first: Array
    second: Array
    observed: int
    beyond: int

    def until(self, day: int, segment: str | None = None) -> list[Moments]:
        """The arms after `day` days, of all users or of one segment."""
        groups = slice(None) if segment is None else [self.segments.index(segment)]
        days = slice(0, day if self.daily else 1)
        counts = self.users[days][:, :, groups].sum(axis=(0, 2))
        totals = self.first[days][:, :, groups].sum(axis=(0, 2))
        products = self.second[days][:, :, groups].sum(axis=(0, 2))
        return [_moments(int(n), self.names, s, ss) for n, s, ss in zip(counts, totals, products, strict=True)]

    def days_per_user(self, day: int) -> float:
        """Days that a user has been in the test after `day` days, on average; fewer than `day` after a ramp."""
        came = self.users[:day].sum(axis=(1, 2))
        return float(came @ np.arange(day, 0, -1) / came.sum())


def read_sums(
    run: Run,
    relation: str,
    columns: Columns,
    experiment: Experiment,
    pairs: Sequence[tuple[str, str]],
    *,
    assigned: str | None = None,
) -> Sums:
    """Read the log once.

    Args:
        run: of a DuckDB connection.
        relation: the log, for FROM.
        columns: SQL over it.
        experiment: start, days and arms.
        pairs: columns whose products are needed, `…_before` among them where the log has the time before.
        assigned: a relation with `user`, `arm` and `day`: who was put into which arm on which day. Then they all count,
            rows or none, and other users do not.

    Raises:
        LogError: if a user is in two arms, has two rows of a day, has outcomes in an arm before being assigned to it,
            or is in an arm that the experiment does not have.
    """
    counts = make_rows(run, relation, columns, experiment, assigned)
    covariates = make_before(run, relation, columns)
    names = (*columns.values, *(name + BEFORE for name in covariates))
    known = [(names.index(a), names.index(b)) for a, b in pairs if a in names and b in names]
    wanted = sorted({(min(i, j), max(i, j)) for i, j in known})
    found = run(_statement(columns, covariates, wanted, len(names), assigned is not None))
    refuse_wrong_rows(run, found, assigned is not None)
    arms = tuple(arm.name for arm in experiment.arms)
    segments = tuple(sorted({str(row[1]) for row in found}))
    if len(segments) > MOST_SEGMENTS:
        raise LogError(f"has {len(segments)} values.", where="segment",
                       way_out=f"Give a column or expression with {MOST_SEGMENTS} at most.")  # fmt: skip
    unknown = sorted({str(row[0]) for row in found} - set(arms))
    if unknown:
        raise LogError(f"holds {unknown[0]!r}, which is no arm of the experiment.", where="arm",
                       way_out=f"Its arms: {', '.join(arms)}. Leave the arm empty outside the test: --column "
                       f"\"arm=nullif(arm, '{unknown[0]}')\".")  # fmt: skip
    shape = (experiment.meta.days, len(arms), len(segments))
    users, seen = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    first = np.zeros((*shape, len(names)))
    second = np.full((*shape, len(names), len(names)), np.nan)
    for i, j in wanted:
        second[..., i, j] = second[..., j, i] = 0.0
    for arm, segment, day, _, _, _, _, came, shown, *sums in found:
        at = (day, arms.index(arm), segments.index(segment))
        users[at], seen[at] = came, shown
        first[at] = sums[: len(names)]
        for (i, j), product in zip(wanted, sums[len(names) :], strict=True):
            second[(*at, i, j)] = second[(*at, j, i)] = product
    observed, beyond = counts
    return Sums(names, arms, segments, columns.day is not None, users, seen, first, second, observed, beyond)


def _moments(users: int, names: tuple[str, ...], totals: Array, products: Array) -> Moments:
    if users < 2:
        return Moments(users, names, totals / max(users, 1), np.full_like(products, np.nan))
    mean = totals / users
    covariance = (products - users * np.outer(mean, mean)) / (users - 1)
    constant = np.diag(covariance) <= ROUNDING * np.diag(products) / users  # what rounding leaves is no spread
    covariance[constant, :] = covariance[:, constant] = 0.0
    return Moments(users, names, mean, covariance)


def _statement(
    columns: Columns, covariates: Sequence[str], pairs: Sequence[tuple[int, int]], num_names: int, assigned: bool
) -> str:
    """A row per arm, segment and day: what is wrong, who came, sums, sums of products."""
    num_values = num_names - len(covariates)
    joined = "test_rows"
    if covariates:
        kept = ", ".join(f"coalesce(c{i}, 0) AS c{i}" for i in range(len(covariates)))
        joined = f'(SELECT r.*, {kept} FROM test_rows r LEFT JOIN before USING ("user"))'
    totals = ", ".join(
        [f"x{i} AS a{i}, sum(x{i}) OVER w AS t{i}" for i in range(num_values)]
        + [f"CASE WHEN row_number() OVER w = 1 THEN c{i} ELSE 0 END AS a{num_values + i}, c{i} AS t{num_values + i}"
           for i in range(len(covariates))]
    )  # fmt: skip
    segment = (
        f"'{ALL}'" if columns.segment is None else f"coalesce(first_value(segment IGNORE NULLS) OVER u, '{UNSEEN}')"
    )
    inner = (
        f"SELECT arm, day, {segment} AS segment, row_number() OVER w = 1 AS came, "
        "NOT marker AND coalesce(lag(marker) OVER w, true) AS shown, "
        "coalesce(lag(arm) OVER w <> arm, false) AS moved, coalesce(said <> arm, false) AS other, "
        "coalesce(lag(day) OVER w = day AND NOT lag(marker) OVER w, false) AS twice, "
        f"{'row_number() OVER w = 1 AND NOT marker' if assigned else 'false'} AS early, {totals} FROM {joined} "
        'WINDOW w AS (PARTITION BY "user" ORDER BY day, marker DESC ROWS UNBOUNDED PRECEDING), '
        'u AS (PARTITION BY "user" ORDER BY day, marker DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)'
    )
    sums = [f"sum(a{i})" for i in range(num_names)]
    sums += [f"sum(a{i} * t{j} + a{j} * t{i} - a{i} * a{j})" for i, j in pairs]
    return (
        "SELECT arm, segment, day, count(*) FILTER (moved), count(*) FILTER (other), count(*) FILTER (twice), "
        f"count(*) FILTER (early), count(*) FILTER (came), count(*) FILTER (shown), "
        f"{', '.join(sums)} FROM ({inner}) GROUP BY arm, segment, day"
    )
