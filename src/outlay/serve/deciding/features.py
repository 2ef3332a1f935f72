"""Features of single requests as numbers, the user's past among them.

    row = RowEncoder(schema).encode(features)              what `core/schema.py` does for columns, without Arrow
    summaries = Summaries.of(bundle)                       None where the policy looks at no past days
    values = summaries.values([past of each user], day)    [B, F] float32, as in training, to the bit
    row = summaries.extended(row, values[i])               the features of a request, and then the summaries

A test compares rows and columns on many values. Looking up a value in a dictionary takes well under a microsecond; a
table of one row would take a hundred. Dictionaries hold the most frequent values of each field, so that their memory is
bounded; the others are found in the vocabulary itself, which workers share, in one or two microseconds
(`core/text_index.py`).

A past is a list of days, each with its number and the values of `History.columns`; it comes from the request, or else
from the ledger, and before that from a log or a DATA folder (`outlay serve --history`, `FirstPast`).
"""

from __future__ import annotations

import datetime
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.core.actions import ActionNames, all_named, named
from outlay.core.errors import LogError, listed
from outlay.core.history import History, PastRows
from outlay.core.schema import CLIP, FIRST, MISSING, MISSING_TEXTS, UNKNOWN, Categorical, Schema
from outlay.logs.past_days import UserPast
from outlay.serve.clock import day_of

log = logging.getLogger("outlay.serve")

IN_DICTIONARIES = 1 << 17  # values of all fields together, at most: about 30 MB
DAYS_AGO = "days_ago"
OLDEST = day_of(datetime.date(2000, 1, 1))  # times before are numbers of days since some other day
Value = str | int | float | bool | None
Features = Mapping[str, Value]
PastDayRow = Mapping[str, int | float | str | None]  # as a request gives it


class FeatureValueError(Exception):
    """A feature has a value of the wrong type.

    Attributes:
        name: the feature.
        problem: what is wrong, in words.
    """

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"the feature {name!r} {problem}")


class EncodedRow(NamedTuple):
    """The features of one request as numbers.

    Attributes:
        codes: one for each of the F categorical fields.
        numbers: two for each of the F' numeric fields: the scaled value, and 1 if it is missing.
    """

    codes: list[int]
    numbers: list[float]


class RowEncoder:
    """Encodes rows by one schema.

    Attributes:
        unknown: categorical field → how many values so far were not in its vocabulary.
        absent: field → how many rows so far lacked it.
    """

    def __init__(self, schema: Schema) -> None:
        most = IN_DICTIONARIES // max(1, len(schema.categorical))
        self._categorical = [(field.name, _codes(field, most)) for field in schema.categorical]
        self._further = [
            (i, field.name, field.code_of)
            for i, field in enumerate(schema.categorical)
            if field.buckets or len(field.values) > most
        ]
        self.unknown = {field.name: 0 for field in schema.categorical}
        self.absent = dict.fromkeys(schema.names, 0)
        self._numeric = [(field.name, field.mean, field.scale) for field in schema.numeric]

    def encode(self, features: Features) -> EncodedRow | None:
        """Return one row, or None if a feature is absent, which is not the same as a missing value (null).

        Features that the schema does not name are ignored.

        Raises:
            FeatureValueError: if a numeric feature is text.
        """
        numbers: list[float] = []
        try:
            codes = [known[type(value := features[name])].get(value, UNKNOWN) for name, known in self._categorical]
            for name, mean, scale in self._numeric:
                value = _number(name, features[name])
                if value is None:
                    numbers += (0.0, 1.0)
                else:
                    z = (value - mean) / scale
                    numbers += (CLIP if z > CLIP else -CLIP if z < -CLIP else z, 0.0)
        except KeyError as absent:
            if not self.absent[absent.args[0]]:
                log.warning("requests lack the feature %r: they get the fallback action", absent.args[0])
            self.absent[absent.args[0]] += 1
            return None
        for i, name, code_of in self._further:
            if codes[i] == UNKNOWN and (text := value_text(features[name])) is not None:
                codes[i] = code_of(text)
        if UNKNOWN in codes:
            for (name, _), code in zip(self._categorical, codes, strict=True):
                self.unknown[name] += code == UNKNOWN
        return EncodedRow(codes, numbers)


def _codes(field: Categorical, most: int) -> dict[type, dict[Any, int]]:
    """Return the codes of the first `most` values by JSON type: 3, 3.0 and "3" are one value, 1 and true are two."""
    texts = {value: FIRST + i for i, value in enumerate(field.values[:most].to_pylist())}
    numbers: dict[float, int] = {}
    for text, code in texts.items():
        for kind in (int, float):
            with suppress(ValueError):
                number = kind(text)
                if math.isfinite(number) and value_text(number) == text:
                    numbers[number] = code
    return {
        str: texts | dict.fromkeys(MISSING_TEXTS, MISSING),
        int: numbers,
        float: numbers,
        bool: {truth: texts[text] for text, truth in (("true", True), ("false", False)) if text in texts},
        type(None): {None: MISSING},
    }


def arrays(rows: Sequence[EncodedRow]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return codes `[N, F]` and numbers `[N, 2·F']` of N rows."""
    codes = np.array([row.codes for row in rows], np.int32).reshape(len(rows), -1)
    numbers = np.array([row.numbers for row in rows], np.float64).reshape(len(rows), -1)
    return codes, numbers.astype(np.float32)


def value_text(value: Value) -> str | None:
    """Return a JSON value as the canonical text of `core/schema.py`; None if it is missing."""
    if isinstance(value, str):
        return None if value in MISSING_TEXTS else value
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if value == int(value) else repr(value)


def _number(name: str, value: Value) -> float | None:
    if isinstance(value, str):
        if value in MISSING_TEXTS:
            return None
        raise FeatureValueError(name, f"is the text {value[:40]!r}; a number or null is expected")
    return value


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

    def given(self, rows: Sequence[PastDayRow], day: int, names: ActionNames) -> list[PastDay]:
        """Return the days that a request gives, as seen from a day number; `check_past` has checked them."""
        return [
            PastDay(
                day - int(row[DAYS_AGO] or 0),
                [_past_number(row[column], names) for column in self.history.columns],
            )
            for row in rows
            if int(row[DAYS_AGO] or 0) <= self.history.days
        ]


def _past_number(value: float | str | None, names: ActionNames) -> float:
    """A value of the past as a number, an action's by its name; NaN if it is unknown."""
    found = names.value(value) if isinstance(value, str) else value
    return np.nan if found is None else float(found)


def request_schema(bundle: Bundle) -> Schema:
    """Return the fields that a request gives: those of the bundle without the summaries of the past."""
    if bundle.history is None:
        return bundle.schema
    return replace(bundle.schema, numeric=bundle.schema.numeric[: -len(bundle.history.names)])


def check_past(rows: Sequence[PastDayRow], histories: Sequence[History], names: ActionNames) -> None:
    """Check the past in a request, which one of several bundles may summarise.

    Args:
        rows: as given.
        histories: of the bundles that may decide; at least one.
        names: of their actions.

    Raises:
        PastError: if a day is repeated or out of reach, or a column is unknown or absent.
    """
    columns = list(dict.fromkeys(column for history in histories for column in history.columns))
    longest = max(history.days for history in histories)
    seen: dict[int, int] = {}
    for i, row in enumerate(rows):
        ago = row.get(DAYS_AGO)
        if ago is None or isinstance(ago, str) or ago != int(ago) or not 1 <= ago <= longest:
            found = "is absent" if DAYS_AGO not in row else "is null" if ago is None else f"is {named(ago)}"
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
            if isinstance(value := row[name], str) and (name != "action" or names.value(value) is None):
                expected = "a number" if name != "action" else all_named(names.labels) or "an amount"
                raise PastError(f"[{i}].{name}", f"is {value!r}; expected: {expected}, or null if it is unknown.")


class FirstPast:
    """The past of users in a log or a DATA folder."""

    def __init__(self, past: UserPast) -> None:
        self._rows = past.rows
        self._place = {name: place for place, name in enumerate(past.names.to_pylist())}
        self._starts = np.searchsorted(past.rows.user, np.arange(len(self._place) + 1)).tolist()

    @classmethod
    def read(cls, bundle: Bundle, path: str | Path) -> FirstPast:
        """Read what a bundle needs of a log (Parquet or CSV) or of a DATA folder.

        Raises:
            OutlayError: as `UserPast.read`; or if its times are not dates.
        """
        past = UserPast.read(bundle.campaign, path, bundle.actions)
        if (last := past.next_time - 1) < OLDEST:
            raise LogError(
                f"its times end with {last}, which is no date: a server's days are dates.",
                file=path,
                where="--history",
                way_out="Give a log with dates in the campaign's time column.",
            )
        return cls(past)

    def days(self, user: str, first: int, until: int) -> tuple[list[PastDay], bool]:
        """Return a user's days from `first` to before `until`, and whether there is an earlier one."""
        place = self._place.get(user)
        if place is None:
            return [], False
        start, end = self._starts[place], self._starts[place + 1]
        low, high = (start + np.searchsorted(self._rows.time[start:end], [first, until])).tolist()
        times, values = self._rows.time[low:high].tolist(), self._rows.values[low:high].tolist()
        return [PastDay(*each) for each in zip(times, values, strict=True)], low > start
