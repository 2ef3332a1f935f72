"""`outlay score`: decisions for many rows, from a bundle.

    result = score("bundle/", "users.parquet", "decisions.parquet")

Rows are read, decided and written a batch at a time, so a file may be larger than the memory. No training framework is
needed.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from outlay.bundles.decide import Bundle, unknown_values, unseen_rows
from outlay.bundles.read import load_bundle
from outlay.bundles.rows import users_of
from outlay.core.errors import LogError, OutlayError
from outlay.core.files import new_file
from outlay.core.progress import Progress
from outlay.logs.past import UserPast
from outlay.logs.source import read_rows

SUFFIXES = (".parquet", ".csv")
TIME = "outlay time"  # name of the days to decide for, which no feature has
USER_COLUMN = "COLUMNS('^user$')"  # a column or an error, never a function


@dataclass(frozen=True)
class ScoreResult:
    """What was decided.

    Attributes:
        path: the file of decisions.
        rows: rows decided.
        unknown: values that the vocabulary does not know; they were served as unknown.
        unseen: rows in a state that the log never showed, where policies are tables of states; they were given the
            action that is best on average over the log's states.
        shares: action → share of rows that get it; with `members`, the share expected of the draw.
    """

    path: Path
    rows: int
    unknown: int
    unseen: int
    shares: dict[float, float]


def score(
    bundle: str | Path | Bundle,
    rows: str | Path,
    out: str | Path,
    *,
    history: str | Path | None = None,
    episode: str | None = None,
    members: bool = False,
    progress: Progress | None = None,
) -> ScoreResult:
    """Decide for every row of a file.

    Args:
        bundle: the bundle's folder, or the bundle.
        rows: Parquet or CSV (.gz), globs allowed, with the feature columns (or what their expressions need). A user
            keeps one member where the user column is there; without it every row is drawn by its position.
        out: .parquet or .csv; replaced when all rows are done. The columns are those of `Bundle.decide`; a CSV holds
            `q` as JSON text.
        history: a log or a DATA folder with the users' past days, for a policy that looks at them (`[log.history]`).
            Rows are decided for the day that their time column says; without one, for the day after the last of it.
        episode: a new one draws the members anew; default: the campaign's name.
        members: a line per row and member instead of the draw.
        progress: called with the share done (0 where the number of rows is unknown, as in a CSV) and what is done.

    Raises:
        BundleError: if the bundle is damaged.
        LogError: if there are no rows, a column is missing, a user is missing, or no action is allowed in a row.
        OutlayError: if `out` ends in neither .parquet nor .csv.
    """
    out = checked_out(out, rows)
    bundle = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    total = _count(rows)
    done = unknown = unseen = 0
    given = np.zeros(len(bundle.actions))
    with new_file(out) as temporary, table_writer(temporary, out.suffix) as write:
        for batch in needed_batches(bundle, rows, history):
            decisions = bundle.decide_batch(batch, first_row=done, episode=episode, members=members, file=rows)
            write(decisions)
            weight = decisions["weight"].to_numpy() if members else None
            given += np.bincount(decisions["action_index"].to_numpy(), weight, len(given))
            unknown += unknown_values(decisions)
            unseen += unseen_rows(decisions)
            done += batch.num_rows
            if progress:
                progress(done / total if total else 0.0, f"{done:,} rows")
        if not done:
            raise LogError("has no rows.", file=rows, way_out="Give a file with at least one row to decide.")
    shares = dict(zip(bundle.actions.tolist(), (given / done).tolist(), strict=True))
    return ScoreResult(out, done, unknown, unseen, shares)


def checked_out(out: str | Path, rows: str | Path) -> Path:
    """Where decisions may be written.

    Raises:
        OutlayError: if it ends in neither .parquet nor .csv, or is the file of rows.
    """
    out = Path(out)
    if out.suffix not in SUFFIXES or out.is_dir():
        raise OutlayError("is not a .parquet or .csv file.", file=out, where="out", way_out="Change its ending.")
    if out.resolve() == Path(rows).resolve():
        raise OutlayError("is the file of rows itself.", file=out, where="out", way_out="Give another --out.")
    return out


def needed_batches(bundle: Bundle, rows: str | Path, history: str | Path | None = None) -> Iterator[Any]:
    """Batches of the columns that a decision needs, named as the bundle names them.

    Args:
        bundle: what decides.
        rows: the file.
        history: a log or a DATA folder with the users' past days, where the bundle looks at them.

    Raises:
        LogError: if the past is needed and not given, or given and not needed, or a column or a user is missing.
    """
    user, eligible = bundle.manifest["user"], bundle.manifest["eligible"]
    summaries = bundle.history.names if bundle.history else ()
    needed = {
        name: name for name in (*bundle.schema.names, *((eligible,) if eligible else ())) if name not in summaries
    }
    # In SQL `user`, even in quotes, is the user who is logged in if there is no such column.
    optional = {name: USER_COLUMN if name == "user" else name for name in (user, "user") if name not in needed}
    if history is None and bundle.history is None:
        yield from read_rows(rows, needed, optional=optional, users=(user, "user"), batch_rows=65_536)
        return
    if history is None:
        raise LogError("the policy looks at each user's past days, which a table of rows does not have.", file=rows,
                       where="history", way_out="Give the log or a DATA folder with them: --history LOG.")  # fmt: skip
    past, done = UserPast.read(bundle.campaign, history, bundle.actions), 0
    for batch in read_rows(
        rows, needed, optional={**optional, TIME: bundle.campaign.log.time}, users=(user, "user"), batch_rows=65_536
    ):
        users = users_of(batch, user, first_row=done, file=rows)
        if users is None:
            raise LogError("has no column of users, so their past days are unknown.", file=rows,
                           where=f"column {user!r}", way_out="Add it.")  # fmt: skip
        yield past.with_features(batch, user=users, time=batch.column(TIME) if TIME in batch.schema.names else None)
        done += batch.num_rows


@contextmanager
def table_writer(path: Path, suffix: str) -> Iterator[Callable[[Any], None]]:
    """A function that appends a table to the file, written as `suffix` says; the first one sets the columns."""
    opened: list[Any] = []

    def write(table: Any) -> None:
        table = table.replace_schema_metadata()
        if suffix == ".csv" and "q" in table.column_names:
            inner = pc.binary_join(table["q"].cast(pa.list_(pa.string())), ", ")
            texts = pc.binary_join_element_wise("[", inner, "]", "")
            table = table.set_column(table.column_names.index("q"), "q", texts)
        if not opened:
            make = pacsv.CSVWriter if suffix == ".csv" else pq.ParquetWriter
            opened.append(make(path, table.schema))
        opened[0].write_table(table)

    try:
        yield write
    finally:
        if opened:
            opened[0].close()


def _count(rows: str | Path) -> int | None:
    """Rows of Parquet files, from their footers; None where that is not so cheap, or where reading will complain."""
    try:
        return sum(int(pq.read_metadata(name).num_rows) for name in glob.glob(str(rows), recursive=True))  # noqa: PTH207
    except (OSError, pa.ArrowException):
        return None
