"""The features that summarise each user's past days, written beside those of the log (`core/history.py`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError
from outlay.core.history import History, PastRows
from outlay.core.progress import Counter
from outlay.core.schema import Numeric, Schema, scale_of
from outlay.logs.encode import BATCH_ROWS, Columns
from outlay.logs.reading import quoted
from outlay.logs.roles import Log
from outlay.logs.source import ROW, Source


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
