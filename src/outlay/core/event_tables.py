"""`[[events]]`: tables of what happened, of which rows of users and times are made (`logs/event_rows.py`); `[rows]`."""

from __future__ import annotations

import re
from typing import Literal, Self, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from outlay.core.addresses import mistake, scheme_of
from outlay.core.settings import Section, impossible

Unit = Literal["hour", "day", "week", "month", "decision", "step"]
OF_EVENTS = ("hour", "day", "week", "decision")  # what rows of [[events]] can be made by
SPAN = re.compile(r"(\d+) (hour|day|week)s?")


class JoinSection(Section):
    """A second table with more columns of the same events, e.g. of the campaigns that are sent."""

    source: str = Field(min_length=1)
    on: str = Field(min_length=1)  # the column that both have


class EventTable(Section):
    """A table of events, or, without `time`, of what is known of each user."""

    source: str = Field(min_length=1)  # as that of a log; of this machine
    query: str | None = None  # of an SQLite file: the rows
    join: JoinSection | None = None
    where: str | None = None  # SQL: the events that count
    user: str | None = None  # column or SQL; absent: as log.user
    time: str | None = None  # column or SQL: when; a date, or a time of day too
    columns: dict[str, str] = Field(min_length=1)  # column of the rows → column or SQL of this table
    # "when": the sum in the row of their time; "decision": in that of the user's latest decision before them;
    # "before": the latest value before the row begins.
    credited: Literal["when", "decision", "before"] = "when"
    within: str | None = None  # with "decision": how long after it, as "28 days"; absent: however long

    @field_validator("within")
    @classmethod
    def _span(cls, value: str | None) -> str | None:
        if value is not None and (SPAN.fullmatch(value) is None or not int(value.split()[0])):
            raise impossible(f"is {value!r}; expected: a time in words, as '36 hours', '28 days' or '4 weeks'")
        return value

    @model_validator(mode="after")
    def _timed(self) -> Self:
        if scheme_of(self.source) is not None:
            raise impossible(f"source begins with {scheme_of(self.source)}://; events are read from files")
        if found := mistake(self.source, self.query):
            raise impossible(found)
        if self.time is None and self.credited != "when":
            raise impossible(f"credited is {self.credited!r}, and time is not given: what came when")
        if self.within is not None and self.credited != "decision":
            raise impossible("within is given, and credited is not 'decision': how long after it an event still counts")
        return self


class RowsSection(Section):
    """`[rows]`: what a unit of time is, and with `[[events]]` what a row is."""

    # Each user has a row per unit; "decision": a row per event of the table with the action. Absent: by the day; where
    # times are whole numbers of a log that has its rows, as their column is called.
    unit: Unit | None = None
    zone: str = "UTC"  # of days and weeks; times without a zone are taken as they stand
    until: Literal["all", "user"] = "all"  # rows go on to the last event of all; or to the user's own last one

    @field_validator("zone")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ValueError, OSError, ZoneInfoNotFoundError):
            raise impossible(f"is {value!r}; expected: a time zone, as Europe/Berlin or UTC") from None
        return value


def unit_called(time: str) -> Unit:
    """The unit of whole numbers, by the name of their column: `week_no` → week; of other names the day."""
    words = re.split(r"[\W_\d]+", time.lower())
    return next((unit for unit in get_args(Unit) if unit in words or f"{unit}s" in words), "day")
