"""Each user's past days: the features that summarise them in the log, and the same for users whose decisions are due.

    write_history(log, …)                                          # beside the log's own features (`core/history.py`)
    past = UserPast.read(campaign, "log.parquet", actions)
    table = past.with_features(batch, user=users, time=None)       # the batch and the summaries of each user's past

`UserPast` reads a log by the roles of the campaign file (user, time, action, reward, costs, `where`; it needs no
features), or a DATA folder. A DATA folder has no rows whose outcomes can still come; `prepare` writes what is known of
them to a file of its own.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError
from outlay.core.files import MANIFEST
from outlay.core.history import History, PastRows
from outlay.core.looking_back import logged_values
from outlay.core.progress import Counter
from outlay.core.schema import Numeric, Schema, scale_of, user_text
from outlay.core.transitions import Transitions
from outlay.core.wording import counted
from outlay.logs.encode import BATCH_ROWS, Columns
from outlay.logs.events import COLLECTED, CREDITS
from outlay.logs.naming import action_sql, cost_sql
from outlay.logs.reading import quoted
from outlay.logs.roles import Log
from outlay.logs.source import ROW, Copying, Source, open_source
from outlay.logs.values import time_sql, time_term, user_sql, user_term

RECENT = "recent.parquet"  # in DATA: the past of users in the rows that are not ripe


def feature_terms(source: Source, campaign: Campaign, history: History) -> list[str]:
    """SQL of the summarised columns that are neither the action nor an outcome.

    Raises:
        CampaignError: if one does not resolve, or a summary has the name of a feature.
    """
    twice = set(history.names) & set(campaign.log.features.names)
    if twice:
        raise CampaignError(
            f"makes a feature {min(twice)!r}, which log.features lists too.",
            file=campaign.path,
            where="log.history",
            way_out="Rename that feature, or leave it out.",
        )
    if campaign.log.history is not None and campaign.log.history.recorded:
        recorded_terms(source, history)
    key = "log.history.columns"
    return [source.number(source.term(key, text)) for text in history.features]


def recorded_terms(source: Source, history: History) -> list[str]:
    """SQL of the summaries that the log itself holds. Raises CampaignError if one is missing."""
    return [source.number(source.term("log.history.recorded", quoted(name))) for name in history.names]


def write_history(
    log: Log,
    history: History,
    schema: Schema,
    columns: Columns,
    places: NDArray[np.int64] | None,
    actions: NDArray[np.float64],
    tell: Counter,
) -> Schema:
    """Fill the last columns of `numbers` with the summaries of each row's past.

    Args:
        log: the log; its roles, links and features are written.
        history: what is summarised.
        schema: the fields of the log.
        columns: where to write.
        places: row of the log → row of the columns, where days were filled in; None: the same.
        actions: `[K]` the values given.
        tell: takes the number of rows of each batch, when it is done.

    Returns:
        The schema with the summaries as further numeric fields.
    """
    user, day = columns.arrays["user"], columns.arrays["day"]
    values = _values(log, history, columns, places, actions)
    past = PastRows.sorted(user, day, values)
    numbers, width = columns.arrays["numbers"], len(history.names)
    mine = numbers[:, -2 * width :]
    sums = np.zeros((3, width))
    recorded = _write_recorded(log, history, mine, places)
    for rows in _chunks(columns.rows):
        found = history.summarise(past, user[rows], day[rows])
        found = np.where(recorded[rows, None], mine[rows, ::2], found)
        mine[rows, ::2] = found  # as they are; their scale is known after the last
        known = np.where(np.isfinite(found), found, 0.0).astype(np.float64)
        sums += np.isfinite(found).sum(0), known.sum(0), (known * known).sum(0)
        tell((rows.stop - rows.start) // 2)
    fields = [Numeric(name, *scale_of(*moments)) for name, moments in zip(history.names, sums.T, strict=True)]
    summaries = Schema((), tuple(fields))
    for rows in _chunks(columns.rows):
        table = pa.table(dict(zip(history.names, np.ascontiguousarray(mine[rows, ::2].T), strict=True)))
        mine[rows] = summaries.encode(table).numbers
        tell((rows.stop - rows.start + 1) // 2)
    return replace(schema, numeric=(*schema.numeric, *fields))


def _write_recorded(
    log: Log, history: History, mine: NDArray[np.float32], places: NDArray[np.int64] | None
) -> NDArray[np.bool_]:
    """Write the summaries that the log holds, `[N, 2·F]` as in `numbers`; `[N]` the rows that have them."""
    recorded = np.zeros(len(mine), np.bool_)
    section = log.campaign.log.history
    if section is None or not section.recorded:
        return recorded
    listed = ", ".join(f"{sql} AS v{i}" for i, sql in enumerate(recorded_terms(log.source, history)))
    for batch in log.source.batches(f"SELECT {ROW}, {listed} FROM log_numbered", BATCH_ROWS):
        rows = np.asarray(batch.column(0))
        rows = rows if places is None else places[rows]
        values = [column.to_numpy(zero_copy_only=False).astype(np.float32) for column in batch.columns[1:]]
        mine[rows, ::2] = np.stack(values, axis=1)
        recorded[rows] = ~np.isnan(values[0])  # how many rows the past has is known wherever anything is recorded
    return recorded


def _values(
    log: Log, history: History, columns: Columns, places: NDArray[np.int64] | None, actions: NDArray[np.float64]
) -> NDArray[np.float32]:
    """`[N, C]` the summarised columns of every row."""
    outcome = columns.arrays["outcome"]
    names = ["reward", *(budget.name for budget in log.campaign.budgets)]
    values = np.full((columns.rows, len(history.columns)), np.nan, np.float32)
    for c, column in enumerate(history.columns):
        if column == "action":
            values[:, c] = actions[columns.arrays["action"]]
        elif column in names:
            values[:, c] = outcome[:, names.index(column)]
    if history.features:
        terms = feature_terms(log.source, log.campaign, history)
        at = [history.columns.index(column) for column in history.features]
        listed = ", ".join(f"{sql} AS v{i}" for i, sql in enumerate(terms))
        for batch in log.source.batches(f"SELECT {ROW}, {listed} FROM log_numbered", BATCH_ROWS):
            rows = np.asarray(batch.column(0))
            rows = rows if places is None else places[rows]
            for i, c in enumerate(at):
                values[rows, c] = batch.column(i + 1).to_numpy(zero_copy_only=False)
    return values


def _chunks(rows: int) -> list[slice]:
    return [slice(start, min(start + BATCH_ROWS, rows)) for start in range(0, rows, BATCH_ROWS)]


@dataclass(frozen=True)
class UserPast:
    """Rows of the past, and whose they are. It takes 16 bytes a row, and 4 for each summarised column.

    Attributes:
        history: what is summarised.
        names: `[U]` Arrow strings: users in canonical text, each once.
        rows: by index into `names`; days without a row are filled in where the campaign says so.
        file: where they come from, for errors.
    """

    history: History
    names: Any
    rows: PastRows
    file: Path

    @classmethod
    def read(cls, campaign: Campaign, path: str | Path, actions: NDArray[np.float64]) -> UserPast:
        """Read a log (Parquet or CSV) or a DATA folder.

        Args:
            campaign: with `[log.history]`, and the roles of a log.
            path: of the log or the folder.
            actions: `[K]` the values that may be given.

        Raises:
            LogError: if the log cannot be read, lacks a column, repeats a user and time, or has a row without them.
            FolderError: if the DATA folder is damaged.
        """
        history, path = History.of(campaign), Path(path)
        if history is None:
            raise LogError(
                "is not needed: the policy looks at no past days.",
                file=path,
                where="history",
                way_out="Leave --history out.",
            )
        if (path / MANIFEST).exists():
            return cls._of_data(history, path)
        log = campaign.log
        if log.events is not None:
            raise LogError(
                "is a log, and later outcomes are in a table of their own (log.events).",
                file=path,
                where="history",
                way_out="Give a DATA folder: outlay prepare credits them.",
            )
        with (
            tempfile.TemporaryDirectory(prefix="outlay-") as folder,
            open_source(
                path,
                Path(folder),
                where=log.where,
                users=() if log.user is None else (log.user,),
                copying=Copying(reading=log.reading),
            ) as source,
        ):
            parts = [
                (user_text(batch.column(0)), *(np.asarray(column) for column in batch.columns[1:]))
                for batch in source.batches(_query(source, campaign, history, actions), BATCH_ROWS)
            ]
        if not parts:
            raise LogError("has no rows.", file=path, where="history", way_out="Give the users' past days.")
        users = pa.chunked_array([part[0] for part in parts])
        time, *values = (np.concatenate(column) for column in list(zip(*parts, strict=True))[1:])
        if users.null_count or np.isnan(time).any():
            raise LogError("has rows without a user or a time.", file=path, where="history", way_out="Leave them out.")
        return cls._of_rows(history, users, time, np.stack(values, axis=1).astype(np.float32), path)

    @classmethod
    def _of_rows(
        cls, history: History, users: Any, time: NDArray[Any], values: NDArray[np.float32], path: Path
    ) -> UserPast:
        """Rows of users by their names. Raises LogError if they repeat a user and time."""
        coded = users.combine_chunks().dictionary_encode()
        rows = PastRows.sorted(np.asarray(coded.indices), time, values)
        again = (np.diff(rows.user) == 0) & (np.diff(rows.time) == 0)
        if again.any():
            name = coded.dictionary[int(rows.user[int(again.argmax())])].as_py()
            raise LogError(
                f"{counted(int(again.sum()), 'row', 'repeat')} a user and time, first of user {name!r}.",
                file=path,
                where="history",
                way_out="Keep one row per user and time.",
            )
        return cls(history, coded.dictionary, history.completed(rows, int(rows.time.max()) + 1), path)

    @classmethod
    def _of_data(cls, history: History, path: Path) -> UserPast:
        data = Transitions.open(path)
        if history.features:
            raise LogError(
                f"is a DATA folder, which keeps no {history.features[0]!r} as it was logged.",
                file=path,
                where="history",
                way_out="Give the log itself.",
            )
        if not (path / RECENT).exists() and data.manifest.ripeness.get("left_out"):
            raise LogError(
                "is a DATA folder, which lacks the days that were not ripe (log.delays).",
                file=path,
                where="history",
                way_out="Give the log itself.",
            )
        values = logged_values(data, history.columns, slice(None))
        user = np.asarray(data.user, np.int64)
        time = data.first_times()[user] + data.day
        if not (path / RECENT).exists():
            return cls(history, data.user_ids(), PastRows.sorted(user, time, values), path)
        recent = pq.read_table(path / RECENT)
        late = np.stack([recent.column(f"v{c}").to_numpy() for c in range(len(history.columns))], axis=1)
        names = pa.chunked_array([data.user_ids().take(pa.array(user)), *recent.column("u").chunks])
        return cls._of_rows(
            history,
            names,
            np.concatenate([time, recent.column("t").to_numpy()]),
            np.concatenate([values, late.astype(np.float32)]),
            path,
        )

    @cached_property
    def next_time(self) -> int:
        """The time unit after the last row."""
        return int(self.rows.time.max()) + 1

    def with_features(self, batch: Any, *, user: Any, time: Any = None) -> Any:
        """A table with the columns of `batch` and the summaries of each user's past.

        Args:
            batch: a pyarrow RecordBatch or Table.
            user: `[N]` Arrow array of users.
            time: `[N]` Arrow array of the days to decide for: whole numbers or dates; None: `next_time`.
        """
        place = pc.fill_null(pc.index_in(user_text(user), self.names), -1)
        days = np.full(len(user), self.next_time) if time is None else _days(time, self.file)
        last = int(days.max(initial=self.next_time))
        found = self.history.summarise(self._until(last), np.asarray(place), days)
        table = pa.table(batch) if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        for name, column in zip(self.history.names, found.T, strict=True):
            table = table.append_column(name, pa.array(np.ascontiguousarray(column)))
        return table

    def _until(self, last: int) -> PastRows:
        """The rows, with those that are to be filled in up to the day before `last`."""
        return self.rows if last <= self.next_time else self.history.completed(self.rows, last)


def write_recent(log: Log, history: History, actions: NDArray[np.float64], folder: Path) -> None:
    """Write what is known of the rows that are not ripe to `folder`, so that DATA holds all of the users' past."""
    ripeness, source = log.ripeness, log.source
    if ripeness is None or not ripeness.left_out or history.features:
        return
    query = _query(source, log.campaign, history, actions, COLLECTED)
    outcomes = {"reward": "reward"} | {budget.name: f"cost{j}" for j, budget in enumerate(log.campaign.budgets)}
    if log.credited is not None:
        added = ", ".join(
            f"r.v{i} + coalesce(c.{outcomes[name]}, 0) AS v{i}"
            for i, name in enumerate(history.columns)
            if name in outcomes
        )
        query = f"""SELECT r.* {f"REPLACE ({added})" if added else ""} FROM ({query}) r
            LEFT JOIN {CREDITS} c ON r.u = c."user" AND r.t = c."time" """
    known = f"SELECT * FROM ({query}) WHERE u IS NOT NULL AND t > {ripeness.last}"
    fields = [("u", pa.string()), ("t", pa.int64()), *((f"v{c}", pa.float64()) for c in range(len(history.columns)))]
    with pq.ParquetWriter(folder / RECENT, pa.schema(fields)) as file:
        for batch in source.batches(known, BATCH_ROWS):
            columns = [user_text(batch.column(0)), batch.column(1).cast(pa.int64()), *batch.columns[2:]]
            file.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)))


def _query(
    source: Source, campaign: Campaign, history: History, actions: NDArray[np.float64], relation: str = "log_numbered"
) -> str:
    """SQL of the user, the time and the summarised columns."""
    log = campaign.log
    places = {budget.name: place for place, budget in enumerate(campaign.budgets)}
    features = dict(zip(history.features, feature_terms(source, campaign, history), strict=True))

    def column(name: str) -> str:
        if name in features:
            return features[name]
        if name == "action":
            return action_sql(source, campaign, actions.tolist())
        if name == "reward":
            return source.number(source.term("log.reward", log.reward))
        return cost_sql(source, campaign, places[name])[0]

    user, time = user_term(source, log), time_term(source, campaign)
    columns = ", ".join(f"CAST({column(name)} AS DOUBLE) AS v{i}" for i, name in enumerate(history.columns))
    return f"SELECT {user_sql(user)} AS u, CAST({time_sql(source, time)} AS DOUBLE) AS t, {columns} FROM {relation}"


def _days(time: Any, file: Path) -> NDArray[np.int64]:
    """Times as whole numbers; dates as days since 1970-01-01."""
    if pa.types.is_date(time.type):
        time = time.cast(pa.date32()).cast(pa.int32())
    if not pa.types.is_integer(time.type) or time.null_count:
        raise LogError(
            f"the time to decide for is of type {time.type}{', and missing in some rows' * bool(time.null_count)}; a "
            "whole number or a date is expected in every row.",
            file=file,
            where="log.time",
            way_out="Fix it, or leave the column out: decisions are then for the day after the last of --history.",
        )
    return np.asarray(time.cast(pa.int64()))
