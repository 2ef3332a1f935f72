"""Tests whose arms are drawn by cluster: the log's users are added up, and clusters take their place.

    effect = Σ_g Y_g / Σ_g N_g in the arm  −  the same in the control        Y_g: total of a cluster, N_g: its users

A mean per user is a ratio of two means per cluster, so everything that an analysis or a plan does with users is done
with clusters instead (delta method), and users of a cluster may depend on one another in any way. Uneven clusters, a
ramp and the days before the start need nothing more. Quantiles are those of Student's t (`lift.py`).

    design effect  D = variance with clusters drawn / variance with users drawn = 1 + (m − 1)·ρ
    m = Σ N_g² / Σ N_g, the size of the cluster that a user is in on average;  ρ: the intra-cluster correlation

Source: Deng, Knoblich and Lu 2018 for the delta method with clusters drawn; Kish 1965 for the design effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outlay.core.errors import LogError
from outlay.experiments.columns import ExperimentColumns
from outlay.experiments.design import Experiment
from outlay.experiments.moments import Metric, UserMoments, linearised_variance
from outlay.experiments.rows import Run
from outlay.experiments.sums import DailySums, read_sums

USERS = "users_of_cluster"  # the column that counts the users of a cluster
ROWS, MEMBERS = "cluster_rows", "cluster_members"


@dataclass(frozen=True)
class DesignEffect:
    """What drawing clusters instead of users costs.

    Attributes:
        clusters: G of the past log.
        size: m, of the cluster that a user is in on average.
        effect: D, by which the variance of an arm's mean grows.
        correlation: ρ of two users of one cluster.
    """

    clusters: int
    size: float
    effect: float
    correlation: float


def per_user(metric: Metric) -> Metric:
    """The metric of users as one of clusters: a mean per user is a ratio."""
    return metric if metric.denominator is not None else Metric(metric.name, metric.numerator, USERS)


def design_effect(metric: Metric, users: UserMoments, clusters: UserMoments) -> DesignEffect:
    """What drawing clusters costs in the variance of an arm's mean.

    Args:
        metric: a mean per user, or a ratio.
        users: of the past log, by user.
        clusters: the same by cluster, with the column `USERS`.
    """
    by_user = linearised_variance(users, metric) / users.users
    by_cluster = linearised_variance(clusters, per_user(metric)) / clusters.users
    place = clusters.place(USERS)
    mean = float(clusters.mean[place])
    size = mean + float(clusters.covariance[place, place]) * (1 - 1 / clusters.users) / mean
    effect = by_cluster / by_user
    return DesignEffect(clusters.users, size, effect, (effect - 1) / (size - 1) if size > 1 else 0.0)


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
    values = range(len(columns.values))
    sums = ", ".join(f"sum(x{i}) AS x{i}" for i in values)
    own = ", ".join(f"r.x{i}" for i in values)
    first = 'CAST(row_number() OVER (PARTITION BY r."user" ORDER BY r.day, {0}) = 1 AS DOUBLE) AS came'
    before = "" if columns.day is None else (
        f"UNION ALL SELECT cluster, day, NULL AS arm, {sums}, sum(came) AS came FROM ("
        f"SELECT c.cluster, r.day, {own}, {first.format('r.day')} FROM all_rows r JOIN {MEMBERS} c USING (\"user\") "
        "WHERE r.day < 0) GROUP BY cluster, day"
    )  # fmt: skip
    run(
        f"CREATE OR REPLACE TEMP TABLE {ROWS} AS SELECT cluster, day, arm, {sums}, sum(came) AS came FROM ("
        f"SELECT c.cluster, r.day, r.arm, {own}, {first.format('r.marker DESC')} "
        f'FROM test_rows r JOIN {MEMBERS} c USING ("user")) GROUP BY cluster, day, arm {before}'
    )
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
        raise LogError(f"puts {count:,} users in more than one cluster, for example user {user!r}: {one} and {other}.",
                       where="column 'cluster'", way_out="Give the cluster by which the arms were drawn: "
                       "--column cluster=SQL.")  # fmt: skip
    lost = run(
        f'SELECT "user", count(DISTINCT "user") OVER () FROM test_rows ANTI JOIN {MEMBERS} USING ("user") LIMIT 1'
    )
    if lost:
        raise LogError(f"is missing for users in the test, for example user {lost[0][0]!r}.",
                       where="column 'cluster'", way_out="Give every user a cluster; a list of assigned users has the "
                       "column if outlay experiment assign wrote it.")  # fmt: skip


def _refuse_divided(run: Run) -> None:
    found = run(
        f"SELECT cluster, min(arm), max(arm), count(*) OVER () FROM {ROWS} WHERE arm IS NOT NULL GROUP BY cluster "
        "HAVING min(arm) <> max(arm) LIMIT 1"
    )
    if found:
        cluster, one, other, count = found[0]
        raise LogError(
            f"{count:,} clusters are in two arms, for example {cluster!r} in {one!r} and {other!r}.", where="arm",
            way_out="The experiment file draws arms by cluster: find what assigned single users.",
        )  # fmt: skip
