"""The past of users whose decisions are due, as numbers for the policy (`core/history.py`).

    summaries = Summaries.of(bundle)                       None where the policy looks at no past days
    values = summaries.values([past of each user], day)    [B, F] float32, as in training, to the bit
    row = summaries.extended(row, values[i])               the features of a request, and then the summaries

A past is a list of days, each with its number and the values of `History.columns`; it comes from the request, or else
from the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.core.errors import listed
from outlay.core.history import History, PastRows
from outlay.core.schema import Schema
from outlay.serve.deciding.features import EncodedRow, Features, RowEncoder

DAYS_AGO = "days_ago"
PastDayRow = Mapping[str, int | float | None]  # as a request gives it


class PastDay(NamedTuple):
    """What happened to a user on a day.

    Attributes:
        day: its number.
        values: one for each of the history's columns; NaN where unknown.
    """

    day: int
    values: list[float]


class PastError(Exception):
    """The past in a request is wrong.

    Attributes:
        where: the field, from the past on: "[3].cost".
        problem: what is wrong, in words.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(problem)


@dataclass(frozen=True)
class Summaries:
    """The summaries that one bundle makes of a user's past.

    Attributes:
        history: what is summarised.
        schema: how the summaries are encoded: the last numeric fields of the bundle's schema.
    """

    history: History
    schema: Schema

    @classmethod
    def of(cls, bundle: Bundle) -> Summaries | None:
        """The summaries that a bundle needs, or None."""
        if bundle.history is None:
            return None
        return cls(bundle.history, Schema((), bundle.schema.numeric[-len(bundle.history.names) :]))

    def values(self, pasts: Sequence[Sequence[PastDay]], day: int) -> NDArray[np.float32]:
        """Return `[B, F]` the summaries of B users' pasts on a day number."""
        user = np.repeat(np.arange(len(pasts)), [len(past) for past in pasts])
        days = np.array([each.day for past in pasts for each in past], np.int64)
        values = np.array([each.values for past in pasts for each in past], np.float32)
        rows = PastRows.sorted(user, days, values.reshape(len(days), len(self.history.columns)))
        return self.history.summarise(
            self.history.completed(rows, day), np.arange(len(pasts)), np.full(len(pasts), day, np.int64)
        )

    def recorded(self, values: NDArray[np.float32]) -> list[dict[str, float | None]]:
        """Return the summaries of each user by name, as the ledger records them; None where unknown."""
        return [
            {name: None if value != value else value for name, value in zip(self.history.names, row, strict=True)}
            for row in values.tolist()
        ]

    def extended(self, row: EncodedRow | None, recorded: Features) -> EncodedRow | None:
        """Return a request's features with its summaries after them; None if a feature of the request is absent."""
        summaries = self._encoder.encode(recorded)
        if row is None or summaries is None:
            return None
        return EncodedRow(row.codes, [*row.numbers, *summaries.numbers])

    @cached_property
    def _encoder(self) -> RowEncoder:
        return RowEncoder(self.schema)

    def check_features(self, features: Iterable[str]) -> str | None:
        """Return the first feature that a request may not give, since it is a summary; None if there is none."""
        return next((name for name in features if name in self._encoder.absent), None)

    def given(self, rows: Sequence[PastDayRow], day: int) -> list[PastDay]:
        """Return the days that a request gives, as seen from a day number; `check_past` has checked them."""
        return [
            PastDay(
                day - int(row[DAYS_AGO] or 0),
                [np.nan if (value := row[column]) is None else float(value) for column in self.history.columns],
            )
            for row in rows
            if (row[DAYS_AGO] or 0) <= self.history.days
        ]


def request_schema(bundle: Bundle) -> Schema:
    """Return the fields that a request gives: those of the bundle without the summaries of the past."""
    if bundle.history is None:
        return bundle.schema
    return replace(bundle.schema, numeric=bundle.schema.numeric[: -len(bundle.history.names)])


def check_past(rows: Sequence[PastDayRow], histories: Sequence[History]) -> None:
    """Check the past in a request, which one of several bundles may summarise.

    Args:
        rows: as given.
        histories: of the bundles that may decide; at least one.

    Raises:
        PastError: if a day is repeated or out of reach, or a column is unknown or absent.
    """
    columns = list(dict.fromkeys(column for history in histories for column in history.columns))
    longest = max(history.days for history in histories)
    seen: dict[int, int] = {}
    for i, row in enumerate(rows):
        ago = row.get(DAYS_AGO)
        if ago is None or ago != int(ago) or not 1 <= ago <= longest:
            found = "is absent" if DAYS_AGO not in row else "is null" if ago is None else f"is {ago:g}"
            words = f"{found}; expected: a whole number from 1 (yesterday) to {longest}, the days looked back."
            raise PastError(f"[{i}].{DAYS_AGO}", words)
        if int(ago) in seen:
            raise PastError(f"[{i}].{DAYS_AGO}", f"is {ago:g}, as in row {seen[int(ago)]}: give a day once.")
        seen[int(ago)] = i
        for name in row:
            if name != DAYS_AGO and name not in columns:
                raise PastError(f"[{i}].{name}", f"is not a column of the past. Columns: {listed(columns)}.")
        for name in columns:
            if name not in row:
                raise PastError(f"[{i}].{name}", "is absent; give null if it is unknown.")
