"""`outlay experiment assign`: the arm of every user of a table or a log.

    result = assign_users("experiment.toml", "users.parquet", "arms.parquet", day=0)

Only the users' names, whether they are eligible and, if arms are drawn by it, their cluster are read; the draw is that
of `experiments/split.py`, which a server uses too. A user counts once, by the first row.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from outlay.core.errors import LogError, OutlayError
from outlay.core.files import new_file
from outlay.core.schema import user_text
from outlay.experiments.design import Experiment
from outlay.experiments.log import canonical_sql
from outlay.experiments.split import OUTSIDE, entries
from outlay.jobs.tables import checked_out, table_writer
from outlay.logs.source import ROW, Resources, Source, open_source

BATCH = 100_000  # users hashed and written at once
USER_COLUMN = "COLUMNS('^user$')"  # a column, or an error: plain `user` is the database user in SQL


@dataclass(frozen=True)
class AssignResult:
    """The users' arms.

    Attributes:
        path: the file of arms: `user`, `arm`, and `day`, on which the ramp let the user in; arm and day are missing
            if the user is not in the test. `cluster` as well, if arms are drawn by it.
        day: of the test.
        coverage: on that day.
        users: distinct users of the table.
        eligible: how many of them may be in the test.
        counts: arm → users, in the order of the arms.
    """

    path: Path
    day: int
    coverage: float
    users: int
    eligible: int
    counts: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        arms = [{"arm": name, "users": count} for name, count in self.counts.items()]
        found = {name: value for name, value in asdict(self).items() if name != "counts"}
        return found | {"path": str(self.path), "arms": arms}


def assign_users(
    experiment: Experiment | str | Path,
    users: str | Path,
    out: str | Path,
    *,
    day: int,
    user: str = "user",
    threads: int | None = None,
) -> AssignResult:
    """Write the arm of every user on a day of the test.

    Args:
        experiment: the test, or its file.
        users: Parquet or CSV (.gz), globs allowed: a table of users, or a log with many rows for each.
        out: .parquet or .csv.
        day: of the test; 0 is the start.
        user: column of `users`.
        threads: for DuckDB.

    Raises:
        OutlayError: if the test's file is wrong, `day` is not a day of the test, or `out` ends in neither .parquet nor
            .csv.
        LogError: if a column is missing, a user is missing, or there are no users.
    """
    out = checked_out(out, users)
    experiment = experiment if isinstance(experiment, Experiment) else Experiment.load(experiment)
    if not 0 <= day < experiment.meta.days:
        raise OutlayError(
            f"is {day}; must be 0 to {experiment.meta.days - 1}.", where="day", way_out="Give a day of the test."
        )
    names = np.array([arm.name for arm in experiment.arms], object)
    counts = np.zeros(len(names), np.int64)
    seen = eligible = 0
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_source(users, Path(folder), users=(user,), resources=Resources(threads)) as source,
        new_file(out) as temporary,
        table_writer(temporary, out.suffix) as write,
    ):
        for batch in source.batches(_first_rows(source, experiment, user), BATCH):
            texts = user_text(batch.column(0))
            if texts.null_count:
                raise LogError(
                    "a user is missing.", file=users, where=f"column {user!r}", way_out="Drop rows without a user."
                )
            may = np.asarray(batch.column(1).to_numpy(zero_copy_only=False), bool)
            arm, since = np.full((2, len(may)), OUTSIDE)
            units = texts if experiment.meta.cluster is None else _clusters(batch, users)
            arm[may], since[may] = entries(experiment, units.filter(pa.array(may)).to_pylist())
            inside = (since != OUTSIDE) & (since <= day)
            found = pa.array(np.where(inside, names[arm], None), pa.string())
            told = {"user": texts, "arm": found, "day": pa.array(since, mask=~inside)}
            write(pa.table(told if experiment.meta.cluster is None else told | {"cluster": units}))
            counts += np.bincount(arm[inside], minlength=len(counts))
            seen, eligible = seen + len(may), eligible + int(may.sum())
        if not seen:
            raise LogError("has no rows.", file=users, way_out="Give a file with at least one user.")
    return AssignResult(
        out, day, experiment.coverage(day), seen, eligible, dict(zip(names.tolist(), counts.tolist(), strict=True))
    )


def _first_rows(source: Source, experiment: Experiment, user: str) -> str:
    """A query of distinct users, and whether they may be in the test, in the order of their first rows."""
    try:
        name = source.term(f"column {user!r}", USER_COLUMN if user == "user" else user)
    except LogError as error:
        listed = ", ".join(source.columns)
        raise LogError(
            "the table has no such column.",
            file=error.file,
            where=f"column {user!r}",
            way_out=f"Name the column of users with --user. Columns: {listed}.",
        ) from None
    may = "TRUE"
    if experiment.meta.eligible is not None:
        term = source.term("experiment.eligible", experiment.meta.eligible)
        may = f"coalesce(CAST({term.sql} AS BOOLEAN), FALSE)"
    rows = f"SELECT {ROW} AS place, {name.sql} AS name, {may} AS may FROM log_numbered"
    if experiment.meta.cluster is None:
        return f"SELECT name, arg_min(may, place) FROM ({rows}) GROUP BY name ORDER BY min(place)"
    cluster = canonical_sql(source.term("experiment.cluster", experiment.meta.cluster))
    rows = f"SELECT {ROW} AS place, {name.sql} AS name, {may} AS may, {cluster} AS cluster FROM log_numbered"
    ends = "min(cluster), CASE WHEN count(cluster) < count(*) THEN NULL ELSE max(cluster) END"
    return f"SELECT name, arg_min(may, place), {ends} FROM ({rows}) GROUP BY name ORDER BY min(place)"


def _clusters(batch: pa.RecordBatch, users: str | Path) -> pa.Array:
    """The cluster of each user of a batch.

    Raises:
        LogError: if a user has none, or two.
    """
    names, one, other = (batch.column(place).to_pylist() for place in (0, 2, 3))
    for name, low, high in zip(names, one, other, strict=True):
        if low is None or low != high:
            found = "lacks a cluster in some row" if high is None else f"is in the clusters {low} and {high}"
            way_out = "Every user must be in one cluster, in every row."
            raise LogError(f"user {name!r} {found}.", file=users, where="experiment.cluster", way_out=way_out)
    return pa.array(one, pa.string())
