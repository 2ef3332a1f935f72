"""The sums that an analysis needs from a log, by arm, segment and day, made by DuckDB in one pass.

A user counts from the first row in an arm and stays: T_d, the total of a column up to day d, is carried over days
without rows. Users who came on different days have been in the test for different times, in the same mixture in every
arm; the days before the start are the same for all. The sums of totals and of their products are kept as the increments
of each day,

    Δ Σ_u A_d B_d = Σ_{rows of day d} (a·B_d + b·A_d − a·b)          a, b: the row's own; A_d, B_d: the totals with it
    Δ Σ_u A_d³    = Σ_{rows of day d} (A_d³ − (A_d − a)³)

so the state of the test on every past day comes from one sort of the log by user and a few hundred sums.
Columns named `…_before` are the same totals over the rows before the start (CUPED's covariates); they do not grow.
The verdict's metric has two more columns, for the users who came in the first week: `…_first_week`, the mean per day
in the test in that week, and `…_since`, the total of the days after it.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.experiments.columns import ExperimentColumns
from outlay.experiments.design import WEEK, Experiment
from outlay.experiments.moments import BEFORE, FIRST_WEEK, SINCE, UserMoments
from outlay.experiments.rows import Run, make_before, make_rows, refuse_wrong_rows

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

MOST_SEGMENTS = 100
FAULTS = "moved", "other", "early", "twice", "doubled"  # of rows
ROUNDING = 1e-12  # of a mean of squares: a variance below it is that of a constant
ALL = "all"  # the segment if the log has no column of segments
UNSEEN = "not in the log"  # the segment of assigned users without a row

NOBODY = (
    "The log must say which user was in which arm, or give a list with --assigned; days are dates, or whole numbers "
    "with 0 on the first day of the test."
)


@dataclass(frozen=True)
class DailySums:
    """The increments of each day, by arm and segment.

    Attributes:
        names: of the M columns.
        arms: in the order of the experiment.
        segments: sorted.
        daily: whether days are told apart; if not, everything is in day 0.
        listed: whether a list says who was assigned, so that users and days without rows are known to be 0.
        users: `[D, A, G]` users who entered on that day.
        seen: `[D, A, G]` users whose first row is on that day; differs from `users` if there is a list.
        shown: `[D, A, G]` rows of that day.
        first: `[D, A, G, M]` added to sums of totals.
        second: `[D, A, G, M, M]` added to sums of products of totals; NaN for pairs that were not requested.
        third: `[D, A, G, M]` added to sums of cubes of totals.
        alike: `[D, A, M]` whether all users of an arm who were in the test on a day had the same value on that day.
        least: metric → the smallest outcome of a row.
        rows: `[D]` of any user, in an arm or not, on each day.
        observed: days of the test, from the first to the last with a row in the log.
        beyond: rows of arms after the planned end, left out.
        people: the sums of users, if the units here are clusters of them (`by_cluster.py`).
    """

    names: tuple[str, ...]
    arms: tuple[str, ...]
    segments: tuple[str, ...]
    daily: bool
    listed: bool
    users: Counts
    seen: Counts
    shown: Counts
    first: Array
    second: Array
    third: Array
    alike: NDArray[np.bool_]
    least: Mapping[str, float]
    rows: tuple[int, ...]
    observed: int
    beyond: int
    people: DailySums | None = None

    def until(self, day: int, segment: str | None = None) -> list[UserMoments]:
        """The moments of each arm after `day` days, for all users or for one segment."""
        groups = slice(None) if segment is None else [self.segments.index(segment)]
        days = slice(0, day if self.daily else 1)
        counts, *totals = (
            each[days][:, :, groups].sum(axis=(0, 2)) for each in (self.users, self.first, self.second, self.third)
        )
        alike = np.all(self.alike[days], axis=0)
        clustered = self.people is not None
        return [
            replace(
                _moments(int(n), self.names, tuple(np.array(self.names)[same].tolist()), *sums), clustered=clustered
            )
            for n, same, *sums in zip(counts, alike, *totals, strict=True)
        ]

    def first_week_and_since(self, metric: str, day: int) -> list[UserMoments]:
        """The metric per day in the first week, and per day after it up to `day`, of users who came in that week.

        The two columns are `metric` with `_first_week` and with `_since`.
        """
        columns = (metric + FIRST_WEEK, metric + SINCE)
        places = [self.names.index(name) for name in columns]
        per = np.array([1.0, day - WEEK])
        users = self.users[:WEEK].sum(axis=(0, 2))
        first, third = (each[:day, ..., places].sum(axis=(0, 2)) for each in (self.first, self.third))
        second = self.second[:day][..., places, :][..., places].sum(axis=(0, 2))
        return [
            _moments(int(n), columns, (), total / per, product / np.outer(per, per), cube / per**3)
            for n, total, product, cube in zip(users, first, second, third, strict=True)
        ]

    def days_per_user(self, day: int) -> float:
        """The mean number of days that a user has been in the test after `day` days; fewer than `day` with a ramp."""
        came = self.users[:day].sum(axis=(1, 2))
        return float(came @ np.arange(day, 0, -1) / came.sum())


def read_sums(
    run: Run,
    relation: str,
    columns: ExperimentColumns,
    experiment: Experiment,
    pairs: Sequence[tuple[str, str]],
    *,
    assigned: str | None = None,
    ripe: int | None = None,
) -> DailySums:
    """Read the log once, into sums.

    Args:
        run: of a DuckDB connection.
        relation: the log, for FROM.
        columns: SQL over it.
        experiment: start, days and arms.
        pairs: columns whose products are needed, including `…_before` if the log has such days.
        assigned: a relation with `user`, `arm` and `day`: who was assigned to which arm on which day. Then all of them
            count, with or without rows, and other users do not.
        ripe: days of the test whose outcomes are all known; only these are read. None: all that were planned.

    Raises:
        LogError: if a user is in two arms, has two rows for a day, has outcomes in an arm before being assigned to it,
            lacks an outcome, or is in an arm that the experiment does not have.
    """
    days = experiment.meta.days if ripe is None else min(ripe, experiment.meta.days)
    extent = make_rows(run, relation, columns, experiment, assigned, days)
    covariates = make_before(run, relation, columns)
    metric, by_week = experiment.meta.metric, columns.day is not None and experiment.meta.days > WEEK
    weeks = (metric + FIRST_WEEK, metric + SINCE) if by_week and metric in columns.values else ()
    names = (*columns.values, *(name + BEFORE for name in covariates), *weeks)
    known = [
        (names.index(a), names.index(b))
        for a, b in (*pairs, *combinations_with_replacement(weeks, 2))
        if a in names and b in names
    ]
    wanted = sorted({(min(i, j), max(i, j)) for i, j in known})
    parts = _parts(len(columns.values), len(names), wanted)
    found = [
        (str(arm), str(segment), int(day), dict(zip(parts, numbers, strict=True)))
        for arm, segment, day, *numbers in run(
            _statement(columns, covariates, metric if weeks else None, parts, assigned is not None)
        )
    ]
    if not found:
        raise LogError("no row on the test's days has an arm.", where="arm", way_out=NOBODY)
    arms = tuple(arm.name for arm in experiment.arms)
    _refuse_other_arms({arm for arm, _, _, _ in found}, arms)
    faults = {name: any(numbers[name] for _, _, _, numbers in found) for name in FAULTS}
    refuse_wrong_rows(run, faults, assigned is not None)
    for i, name in enumerate(columns.values):
        if lost := sum(numbers[f"lost{i}"] for _, _, _, numbers in found):
            raise LogError(f"is missing in {lost:,} rows of users in the test.", where=f"column {name!r}",
                           way_out="A lost number is not 0. If nothing happened in these rows, say so, with "
                           f"the column's own name: --column \"{name}=coalesce({name}, 0)\".")  # fmt: skip
    segments = tuple(sorted({segment for _, segment, _, _ in found}))
    if len(segments) > MOST_SEGMENTS:
        raise LogError(f"has {len(segments)} values; must have at most {MOST_SEGMENTS}.", where="segment",
                       way_out="Give a column or expression with fewer values.")  # fmt: skip
    num_names, num_values = len(names), len(columns.values)
    shape = (experiment.meta.days, len(arms), len(segments))
    users, seen, shown = np.zeros((3, *shape), np.int64)
    first, third = np.zeros((2, *shape, num_names))
    low, high = np.full((*shape, num_values), np.inf), np.full((*shape, num_values), -np.inf)
    second = np.full((*shape, num_names, num_names), np.nan)
    for i, j in wanted:
        second[..., i, j] = second[..., j, i] = 0.0
    for arm, segment, day, numbers in found:
        at = (day, arms.index(arm), segments.index(segment))
        users[at], seen[at], shown[at] = numbers["came"], numbers["seen"], numbers["rows"]
        first[at] = [numbers[f"sum{i}"] for i in range(num_names)]
        third[at] = [numbers[f"cube{i}"] for i in range(num_names)]
        if numbers["rows"]:
            low[at] = [numbers[f"low{i}"] for i in range(num_values)]
            high[at] = [numbers[f"high{i}"] for i in range(num_values)]
        for i, j in wanted:
            second[(*at, i, j)] = second[(*at, j, i)] = numbers[f"product{i}_{j}"]
    return DailySums(
        names=names,
        arms=arms,
        segments=segments,
        daily=columns.day is not None,
        listed=assigned is not None,
        users=users,
        seen=seen,
        shown=shown,
        first=first,
        second=second,
        third=third,
        alike=_alike(users, shown, low, high, num_names),
        least=dict(zip(columns.values, low.min(axis=(0, 1, 2)).tolist(), strict=True)),
        rows=extent.rows,
        observed=extent.observed,
        beyond=extent.beyond,
    )


def _refuse_other_arms(found: Collection[str], arms: Sequence[str]) -> None:
    unknown = sorted(set(found) - set(arms))
    if not unknown:
        return
    other = unknown[0]
    alike = next((name for name in arms if name.strip().lower() == other.strip().lower()), None)
    advice = f"Leave the arm empty outside the test: --column \"arm=nullif(arm, '{other}')\""
    if alike is not None:
        advice = f"Did you mean {alike!r}? --column \"arm=replace(arm, '{other}', '{alike}')\""
    raise LogError(f"holds {other!r}, which is not an arm of the experiment.", where="arm",
                   way_out=f"Its arms: {', '.join(arms)}. {advice}.")  # fmt: skip


def _alike(users: Counts, shown: Counts, low: Array, high: Array, num_names: int) -> NDArray[np.bool_]:
    """`[D, A, M]` whether an arm's users had the same value; users without a row had 0. False for covariates."""
    absent = (shown.sum(axis=2) < users.sum(axis=2).cumsum(axis=0))[..., None]
    lows, highs = low.min(axis=2), high.max(axis=2)
    lows, highs = np.where(absent, np.minimum(lows, 0), lows), np.where(absent, np.maximum(highs, 0), highs)
    same = np.zeros((*lows.shape[:2], num_names), np.bool_)
    same[..., : lows.shape[2]] = lows >= highs
    return same


def _moments(
    users: int,
    names: tuple[str, ...],
    alike: tuple[str, ...],
    totals: Array,
    products: Array,
    cubes: Array,
) -> UserMoments:
    if users < 2:
        unknown = np.full_like(products, np.nan)
        return UserMoments(users, names, totals / max(users, 1), unknown, cubes / max(users, 1), alike)
    mean = totals / users
    covariance = (products - users * np.outer(mean, mean)) / (users - 1)
    constant = np.diag(covariance) <= ROUNDING * np.diag(products) / users  # what is left is rounding
    covariance[constant, :] = covariance[:, constant] = 0.0
    return UserMoments(users, names, mean, covariance, cubes / users, alike)


def _parts(num_values: int, num_names: int, pairs: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Name → SQL of each count and sum in an arm, a segment and a day."""
    parts = {name: f"count(*) FILTER ({name})" for name in FAULTS}
    parts |= {f"lost{i}": f"count(*) FILTER (a{i} IS NULL)" for i in range(num_values)}
    parts |= {"came": "count(*) FILTER (came)", "seen": "count(*) FILTER (shown)"}
    parts |= {"rows": "count(*) FILTER (NOT marker)"}
    for i in range(num_values):
        parts |= {f"low{i}": f"min(a{i}) FILTER (NOT marker)", f"high{i}": f"max(a{i}) FILTER (NOT marker)"}
    for i in range(num_names):
        cube = f"t{i} * t{i} * t{i} - (t{i} - a{i}) * (t{i} - a{i}) * (t{i} - a{i})"
        parts |= {f"sum{i}": f"sum(a{i})", f"cube{i}": f"sum({cube})"}
    return parts | {f"product{i}_{j}": f"sum(a{i} * t{j} + a{j} * t{i} - a{i} * a{j})" for i, j in pairs}


def _by_week(value: int, place: int) -> list[str]:
    """SQL of the column `value` per day in the first week, and since: what a row adds, and the totals including it.

    Both are 0 for users who came after the first week.
    """
    came = "first_value(day) OVER w"
    early, later = (f"CASE WHEN day {sign} {WEEK} THEN x{value} ELSE 0.0 END" for sign in ("<", ">="))
    days, inside = f"greatest({WEEK} - {came}, 1)", f"CAST({came} < {WEEK} AS DOUBLE)"
    return [
        f"{early} / {days} AS a{place}, sum({early}) OVER w / {days} AS t{place}",
        f"{later} * {inside} AS a{place + 1}, sum({later}) OVER w * {inside} AS t{place + 1}",
    ]


def _statement(
    columns: ExperimentColumns, covariates: Sequence[str], by_week: str | None, parts: Mapping[str, str], assigned: bool
) -> str:
    """The query of a row per arm, segment and day with its `parts`; `by_week` is the column that is split by week."""
    num_values = len(columns.values)
    joined = "(SELECT *, false AS doubled FROM test_rows)"
    if covariates:
        kept = ", ".join(f"coalesce(c{i}, 0) AS c{i}" for i in range(len(covariates)))
        kept += ", coalesce(doubled, false) AS doubled"
        joined = f'(SELECT r.*, {kept} FROM test_rows r LEFT JOIN before USING ("user"))'
    totals = ", ".join(
        [f"x{i} AS a{i}, sum(x{i}) OVER w AS t{i}" for i in range(num_values)]
        + [f"CASE WHEN row_number() OVER w = 1 THEN c{i} ELSE 0 END AS a{num_values + i}, c{i} AS t{num_values + i}"
           for i in range(len(covariates))]
        + ([] if by_week is None else _by_week(list(columns.values).index(by_week), num_values + len(covariates)))
    )  # fmt: skip
    segment = (
        f"'{ALL}'" if columns.segment is None else f"coalesce(first_value(segment IGNORE NULLS) OVER u, '{UNSEEN}')"
    )
    inner = (
        f"SELECT arm, day, marker, {segment} AS segment, row_number() OVER w = 1 AS came, "
        "NOT marker AND coalesce(lag(marker) OVER w, true) AS shown, "
        "coalesce(lag(arm) OVER w <> arm, false) AS moved, coalesce(logged_arm <> arm, false) AS other, "
        "coalesce(lag(day) OVER w = day AND NOT lag(marker) OVER w, false) AS twice, doubled, "
        f"{'row_number() OVER w = 1 AND NOT marker' if assigned else 'false'} AS early, {totals} FROM {joined} "
        'WINDOW w AS (PARTITION BY "user" ORDER BY day, marker DESC ROWS UNBOUNDED PRECEDING), '
        'u AS (PARTITION BY "user" ORDER BY day, marker DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)'
    )
    return f"SELECT arm, segment, day, {', '.join(parts.values())} FROM ({inner}) GROUP BY arm, segment, day"
