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

If arms are drawn by cluster, the users' rows are added up by cluster and day, and read in the same way, with one more
column: the number of users who came on the day (`moments.py`).

Source: ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.core.wording import counted
from outlay.experiments.design import WEEK, Experiment
from outlay.experiments.log import ExperimentColumns, Run, make_before, make_rows, refuse_wrong_rows
from outlay.experiments.moments import BEFORE, CONSTANT, FIRST_WEEK, SINCE, USERS, Array, UserMoments

Counts = NDArray[np.int64]

MOST_SEGMENTS = 100
FAULTS = "moved", "other", "early", "twice", "doubled"  # of rows
ALL = "all"  # the segment if the log has no column of segments
UNSEEN = "not in the log"  # the segment of assigned users without a row
ROWS, MEMBERS = "cluster_rows", "cluster_members"  # tables: of clusters and days, of users and their clusters

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
        people: the sums of users, if the units here are clusters of them.
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
    layout = _layout(columns, make_before(run, relation, columns), experiment, pairs)
    parts = _parts(layout)
    found = [
        _Group(str(arm), str(segment), int(day), dict(zip(parts, numbers, strict=True)))
        for arm, segment, day, *numbers in run(_statement(columns, layout, parts, assigned is not None))
    ]
    arms = tuple(arm.name for arm in experiment.arms)
    segments = tuple(sorted({group.segment for group in found}))
    _check(run, relation, found, arms, columns, assigned is not None)
    counts, first, second, third, ends = _arrays(found, (experiment.meta.days, arms, segments), layout)
    users, seen, shown = counts
    return DailySums(
        names=layout.names,
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
        alike=_alike(users, shown, ends[0], ends[1], len(layout.names)),
        least=dict(zip(columns.values, ends[0].min(axis=(0, 1, 2)).tolist(), strict=True)),
        rows=extent.rows,
        observed=extent.observed,
        beyond=extent.beyond,
    )


@dataclass(frozen=True)
class _Layout:
    """The M columns whose totals are added up.

    Attributes:
        names: of all; first those of the log.
        values: number of the log's own columns.
        covariates: number of columns of the days before the start.
        by_week: position of the column that is split by week, or None.
        pairs: positions of columns whose products are needed.
    """

    names: tuple[str, ...]
    values: int
    covariates: int
    by_week: int | None
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Group:
    """The counts and sums of an arm, a segment and a day."""

    arm: str
    segment: str
    day: int
    numbers: dict[str, Any]


def _layout(
    columns: ExperimentColumns, covariates: Sequence[str], experiment: Experiment, pairs: Sequence[tuple[str, str]]
) -> _Layout:
    metric = experiment.meta.metric
    by_week = columns.day is not None and experiment.meta.days > WEEK and metric in columns.values
    weeks = (metric + FIRST_WEEK, metric + SINCE) if by_week else ()
    names = (*columns.values, *(name + BEFORE for name in covariates), *weeks)
    wanted = (*pairs, *combinations_with_replacement(weeks, 2))
    places = [(names.index(a), names.index(b)) for a, b in wanted if a in names and b in names]
    ordered = sorted({(min(i, j), max(i, j)) for i, j in places})
    split = list(columns.values).index(metric) if by_week else None
    return _Layout(names, len(columns.values), len(covariates), split, tuple(ordered))


def _check(
    run: Run, relation: str, found: Sequence[_Group], arms: Sequence[str], columns: ExperimentColumns, assigned: bool
) -> None:
    """Check that there are rows, in the test's arms, without faults, none without a number, and few segments."""
    if not found:
        raise LogError("no row on the test's days has an arm.", where="arm", way_out=NOBODY)
    _refuse_other_arms({group.arm for group in found}, arms)
    refuse_wrong_rows(run, relation, {name: any(group.numbers[name] for group in found) for name in FAULTS}, assigned)
    for i, name in enumerate(columns.values):
        if lost := sum(group.numbers[f"lost{i}"] for group in found):
            raise LogError(
                f"is missing in {counted(lost, 'row')} of users in the test.",
                where=f"column {name!r}",
                way_out="A lost number is not 0. If nothing happened in these rows, say so, with the column's own "
                f'name: --column "{name}=coalesce({name}, 0)".',
            )
    if (number := len({group.segment for group in found})) > MOST_SEGMENTS:
        way_out = "Give a column or expression with fewer values."
        raise LogError(f"has {number} values; must have at most {MOST_SEGMENTS}.", where="segment", way_out=way_out)


def _arrays(
    found: Sequence[_Group], axes: tuple[int, Sequence[str], Sequence[str]], layout: _Layout
) -> tuple[Counts, Array, Array, Array, Array]:
    """Counts `[3, D, A, G]`, sums, products and cubes by day, arm and segment, and `[2, …, V]` the ends of values."""
    days, arms, segments = axes
    shape, num_names = (days, len(arms), len(segments)), len(layout.names)
    counts = np.zeros((3, *shape), np.int64)
    first, third = np.zeros((2, *shape, num_names))
    ends = np.stack([np.full((*shape, layout.values), end) for end in (np.inf, -np.inf)])
    second = np.full((*shape, num_names, num_names), np.nan)
    for i, j in layout.pairs:
        second[..., i, j] = second[..., j, i] = 0.0
    for group in found:
        at, numbers = (group.day, arms.index(group.arm), segments.index(group.segment)), group.numbers
        counts[:, *at] = [numbers[name] for name in ("came", "seen", "rows")]
        first[at], third[at] = ([numbers[f"{kind}{i}"] for i in range(num_names)] for kind in ("sum", "cube"))
        if numbers["rows"]:
            ends[:, *at] = [[numbers[f"{end}{i}"] for i in range(layout.values)] for end in ("low", "high")]
        for i, j in layout.pairs:
            second[(*at, i, j)] = second[(*at, j, i)] = numbers[f"product{i}_{j}"]
    return counts, first, second, third, ends


def _refuse_other_arms(found: Collection[str], arms: Sequence[str]) -> None:
    unknown = sorted(set(found) - set(arms))
    if not unknown:
        return
    other = unknown[0]
    alike = next((name for name in arms if name.strip().lower() == other.strip().lower()), None)
    advice = f"Leave the arm empty outside the test: --column \"arm=nullif(arm, '{other}')\""
    if alike is not None:
        advice = f"Did you mean {alike!r}? --column \"arm=replace(arm, '{other}', '{alike}')\""
    way_out = f"Its arms: {', '.join(arms)}. {advice}."
    raise LogError(f"holds {other!r}, which is not an arm of the experiment.", where="arm", way_out=way_out)


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
    constant = np.diag(covariance) <= CONSTANT * np.diag(products) / users  # what is left is rounding
    covariance[constant, :] = covariance[:, constant] = 0.0
    return UserMoments(users, names, mean, covariance, cubes / users, alike)


def _parts(layout: _Layout) -> dict[str, str]:
    """Name → SQL of each count and sum in an arm, a segment and a day."""
    num_values, num_names = layout.values, len(layout.names)
    parts = {name: f"count(*) FILTER ({name})" for name in FAULTS}
    parts |= {f"lost{i}": f"count(*) FILTER (a{i} IS NULL)" for i in range(num_values)}
    parts |= {"came": "count(*) FILTER (came)", "seen": "count(*) FILTER (shown)"}
    parts |= {"rows": "count(*) FILTER (NOT marker)"}
    for i in range(num_values):
        parts |= {f"low{i}": f"min(a{i}) FILTER (NOT marker)", f"high{i}": f"max(a{i}) FILTER (NOT marker)"}
    for i in range(num_names):
        cube = f"t{i} * t{i} * t{i} - (t{i} - a{i}) * (t{i} - a{i}) * (t{i} - a{i})"
        parts |= {f"sum{i}": f"sum(a{i})", f"cube{i}": f"sum({cube})"}
    return parts | {f"product{i}_{j}": f"sum(a{i} * t{j} + a{j} * t{i} - a{i} * a{j})" for i, j in layout.pairs}


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


def _totals(layout: _Layout) -> str:
    """SQL of every column: what a row adds, and the total including it."""
    covariates = range(layout.values, layout.values + layout.covariates)
    columns = [f"x{i} AS a{i}, sum(x{i}) OVER w AS t{i}" for i in range(layout.values)]
    columns += [
        f"CASE WHEN row_number() OVER w = 1 THEN c{i} ELSE 0 END AS a{k}, c{i} AS t{k}"
        for i, k in enumerate(covariates)
    ]
    if layout.by_week is not None:
        columns += _by_week(layout.by_week, layout.values + layout.covariates)
    return ", ".join(columns)


def _statement(columns: ExperimentColumns, layout: _Layout, parts: Mapping[str, str], assigned: bool) -> str:
    """The query of a row per arm, segment and day with its `parts`."""
    joined = "(SELECT *, false AS doubled FROM test_rows)"
    if layout.covariates:
        kept = ", ".join(f"coalesce(c{i}, 0) AS c{i}" for i in range(layout.covariates))
        kept += ", coalesce(doubled, false) AS doubled"
        joined = f'(SELECT r.*, {kept} FROM test_rows r LEFT JOIN before USING ("user"))'
    segment = (
        f"'{ALL}'" if columns.segment is None else f"coalesce(first_value(segment IGNORE NULLS) OVER u, '{UNSEEN}')"
    )
    inner = (
        f"SELECT arm, day, marker, {segment} AS segment, row_number() OVER w = 1 AS came, "
        "NOT marker AND coalesce(lag(marker) OVER w, true) AS shown, "
        "coalesce(lag(arm) OVER w <> arm, false) AS moved, coalesce(logged_arm <> arm, false) AS other, "
        "coalesce(lag(day) OVER w = day AND NOT lag(marker) OVER w, false) AS twice, doubled, "
        f"{'row_number() OVER w = 1 AND NOT marker' if assigned else 'false'} AS early, "
        f"{_totals(layout)} FROM {joined} "
        'WINDOW w AS (PARTITION BY "user" ORDER BY day, marker DESC ROWS UNBOUNDED PRECEDING), '
        'u AS (PARTITION BY "user" ORDER BY day, marker DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)'
    )
    return f"SELECT arm, segment, day, {', '.join(parts.values())} FROM ({inner}) GROUP BY arm, segment, day"


def cluster_sums(
    run: Run,
    columns: ExperimentColumns,
    experiment: Experiment,
    pairs: Sequence[tuple[str, str]],
    people: DailySums,
    assigned: str | None,
) -> DailySums:
    """The sums of clusters, from the rows of users that `read_sums` has just made and checked.

    Args:
        run: of the same DuckDB connection.
        columns: of the users' log, with the cluster.
        experiment: the test.
        pairs: columns whose products are needed, `USERS` among them.
        people: the sums of users.
        assigned: the list of assigned users, with their clusters, or None.

    Raises:
        LogError: if a user has no cluster or two, or a cluster is in two arms.
    """
    _make_members(run, assigned)
    _make_cluster_rows(run, columns)
    _refuse_divided(run)
    whole = ExperimentColumns(
        user="cluster",
        arm="arm",
        day=None if columns.day is None else "day",
        segment=None,
        values={name: f"x{i}" for i, name in enumerate(columns.values)} | {USERS: "came"},
        before={},
    )
    found = read_sums(run, ROWS, whole, experiment, pairs)
    return replace(found, people=people)


def _make_cluster_rows(run: Run, columns: ExperimentColumns) -> None:
    """Make the table of clusters and days: their rows added up, and the users who came."""
    values = range(len(columns.values))
    sums = ", ".join(f"sum(x{i}) AS x{i}" for i in values)
    own = ", ".join(f"r.x{i}" for i in values)
    first = 'CAST(row_number() OVER (PARTITION BY r."user" ORDER BY r.day, {0}) = 1 AS DOUBLE) AS came'
    before = (
        f"UNION ALL SELECT cluster, day, NULL AS arm, {sums}, sum(came) AS came FROM ("
        f'SELECT c.cluster, r.day, {own}, {first.format("r.day")} FROM all_rows r JOIN {MEMBERS} c USING ("user") '
        "WHERE r.day < 0) GROUP BY cluster, day"
    )
    run(
        f"CREATE OR REPLACE TEMP TABLE {ROWS} AS SELECT cluster, day, arm, {sums}, sum(came) AS came FROM ("
        f"SELECT c.cluster, r.day, r.arm, {own}, {first.format('r.marker DESC')} "
        f'FROM test_rows r JOIN {MEMBERS} c USING ("user")) GROUP BY cluster, day, arm '
        f"{'' if columns.day is None else before}"
    )


def _make_members(run: Run, assigned: str | None) -> None:
    """Make the table of users in the test and their clusters."""
    told = 'SELECT "user", cluster FROM all_rows WHERE cluster IS NOT NULL'
    if assigned is not None:
        told += f' UNION ALL SELECT "user", cluster FROM {assigned} WHERE cluster IS NOT NULL'
    run(
        f'CREATE OR REPLACE TEMP TABLE {MEMBERS} AS SELECT "user", min(cluster) AS cluster, max(cluster) AS other '
        f'FROM ({told}) SEMI JOIN test_rows USING ("user") GROUP BY "user"'
    )
    moved = run(f'SELECT "user", cluster, other, count(*) OVER () FROM {MEMBERS} WHERE cluster <> other LIMIT 1')
    if moved:
        user, one, other, count = moved[0]
        raise LogError(
            f"puts {counted(count, 'user')} in more than one cluster, for example user {user!r}: {one} and {other}.",
            where="column 'cluster'",
            way_out="Give the cluster by which the arms were drawn: --column cluster=SQL.",
        )
    lost = run(
        f'SELECT "user", count(DISTINCT "user") OVER () FROM test_rows ANTI JOIN {MEMBERS} USING ("user") LIMIT 1'
    )
    if lost:
        raise LogError(
            f"is missing for users in the test, for example user {lost[0][0]!r}.",
            where="column 'cluster'",
            way_out="Give every user a cluster; a list of assigned users has the "
            "column if outlay experiment assign wrote it.",
        )


def _refuse_divided(run: Run) -> None:
    found = run(
        f"SELECT cluster, min(arm), max(arm), count(*) OVER () FROM {ROWS} WHERE arm IS NOT NULL GROUP BY cluster "
        "HAVING min(arm) <> max(arm) LIMIT 1"
    )
    if found:
        cluster, one, other, count = found[0]
        raise LogError(
            f"{count:,} clusters are in two arms, for example {cluster!r} in {one!r} and {other!r}.",
            where="arm",
            way_out="The experiment file draws arms by cluster: find what assigned single users.",
        )
