"""SQL of the user, the time and the action of a row, of a log as of a table of later events; and what amounts are.

A text may mean that nothing is given: "none", "No E-Mail", "0 EUR".

Amounts that differ only by rounding are one action: a log may hold 0.30000000000000004 where 0.3 is meant, and people
list an action as it is printed, with six digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

from outlay.core.campaign import Campaign, LogSection
from outlay.core.event_tables import RowsSection
from outlay.logs.reading import literal, setting
from outlay.logs.source import ROW, WHOLE, Source, Term

AS_PRINTED = 5e-6  # relative: numbers that print alike with six digits differ by no more
NOISE = 1e-9  # relative: what sums and products of floats leave
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
WORDS = (
    "none|no|nothing|nil|off|false|control|holdout|baseline|placebo|untreated|without|-+|kein|keine|keiner|keins|nein|"
    "ohne|nichts|kontrolle|kontrollgruppe|aucun|aucune|rien|sans|non|ninguno|ninguna|nada|sin|nessuno|niente|无|没有"
)
NOTHING = re.compile(
    rf"({WORDS})|(no|not|non|without|kein|keine|ohne|sans|sin)[ _-].*|"
    r"(.*[ _-])?(control|holdout|hold-out|kontroll)[ _-]?(group|arm|gruppe)?",
    re.IGNORECASE,
)
GERMAN = "'%d.%m.%Y'"
COUNTED = {
    "hour": "date_diff('hour', TIMESTAMP '1970-01-01', {moment})",
    "day": "CAST({moment} AS DATE)",
    "week": "CAST(floor(date_diff('day', TIMESTAMP '1970-01-05', {moment}) / 7) AS BIGINT)",
    "month": "date_diff('month', TIMESTAMP '1970-01-01', {moment})",
}  # units of dates and times
MOST_AMOUNTS = 4096  # distinct ones that are looked at for rounding
KEPT_USER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN")


def nearest_amounts(values: Iterable[float], known: Iterable[float] | None) -> dict[float, float]:
    """Which values stand for another one.

    Args:
        values: distinct amounts of the log.
        known: the amounts there are. A value that is not among them stands for the nearest one if both print alike.
            None: values that differ by the noise of floats are one amount, and the one that is written shortest
            stands for all.

    Returns:
        value → the amount it stands for, for those that are not themselves that amount.
    """
    values = sorted(set(values))
    if known is None:
        groups: list[list[float]] = []
        for value in values:
            if groups and _close(value, groups[-1][-1], NOISE):
                groups[-1].append(value)
            else:
                groups.append([value])
        shortest = [min(group, key=lambda v: (len(repr(v)), v)) for group in groups]
        return {v: s for group, s in zip(groups, shortest, strict=True) for v in group if v != s}
    listed = sorted(set(known))
    found: dict[float, float] = {}
    for value in values:
        near = min(listed, key=lambda amount: abs(amount - value), default=value)
        if value != near and _close(value, near, AS_PRINTED):
            found[value] = near
    return found


def exactly(value: float) -> str:
    """A number with as many digits as it takes to write it again: 2, 0.3333333333333333."""
    return short if float(short := f"{value:g}") == value else repr(value)


def _close(a: float, b: float, tolerance: float) -> bool:
    return math.isfinite(a - b) and abs(a - b) <= tolerance * max(abs(a), abs(b))


def means_nothing(text: str) -> bool:
    """Whether an action of this name gives nothing: by a word that says so, or since its only number is 0."""
    words = text.strip()
    if NOTHING.fullmatch(words):
        return True
    numbers = _numbers(words)
    return len(numbers) == 1 and numbers[0] == 0


def _numbers(text: str) -> list[float]:
    """The numbers in a text, in their order."""
    return [_number(found) for found in NUMBER.findall(text)]


def _number(text: str) -> float:
    if "," in text and "." in text:  # whichever comes last sets decimals off
        thousands = "," if text.rindex(".") > text.rindex(",") else "."
        text = text.replace(thousands, "")
    elif re.fullmatch(r"[1-9]\d{0,2}([.,]\d{3})+", text):
        text = text.replace(",", "").replace(".", "")
    text = text.replace(",", ".")
    return float(text) if text.count(".") <= 1 else float(text.replace(".", ""))


def user_sql(term: Term) -> str:
    """SQL of a user id, of a type that has one canonical text."""
    return term.sql if term.type in KEPT_USER_TYPES else f"CAST({term.sql} AS VARCHAR)"


def time_sql(source: Source, term: Term) -> str:
    """SQL of a time as a whole number; dates as days since 1970-01-01.

    Raises:
        OutlayError: if it is neither a whole number nor a date.
    """
    if term.type == "DATE":
        return f"date_diff('day', DATE '1970-01-01', {term.sql})"
    if term.type.startswith("TIMESTAMP"):
        raise source.wrong_type(
            term,
            "is a timestamp; time is a whole number or a date.",
            f"Write {setting('time', f'cast({term.written} as date)')}; or, for rows by the hour, week or month, "
            'unit = "hour" under [rows].',
        )
    if term.type in WHOLE:
        return f"CAST({term.sql} AS BIGINT)"
    if term.type == "VARCHAR":
        raise source.wrong_type(
            term,
            "is text (VARCHAR); time is a whole number or a date.",
            f"Write {setting('time', f'cast({term.written} as date)')} for 2027-03-31, "
            f"{setting('time', f'cast(strptime({term.written}, {GERMAN}) as date)')} for 31.03.2027.",
        )
    if term.type not in ("FLOAT", "DOUBLE", "DECIMAL"):
        raise source.wrong_type(
            term,
            f"is of type {term.type}; time is a whole number or a date.",
            f"Write {setting('time', f'cast({term.written} as date)')}, or "
            f"{setting('time', f'cast({term.written} as integer)')}.",
        )
    wrong = source.run(f"SELECT {term.sql} FROM log_kept WHERE {term.sql} != trunc({term.sql}) LIMIT 1")
    if wrong:
        raise source.wrong_type(
            term,
            f"is not whole everywhere: {wrong[0][0]}.",
            f"Write {setting('time', f'cast(floor({term.written}) as integer)')}.",
        )
    return f"CAST({term.sql} AS BIGINT)"


def user_term(source: Source, log: LogSection) -> Term:
    """The user of a row; of a log without one its number, from 1."""
    if log.user is None:
        return Term("log.user", "the number of the row", f"({ROW} + 1)", "BIGINT")
    return source.term("log.user", log.user)


def time_term(source: Source, campaign: Campaign) -> Term:
    """The time of a row; 0 in a log without one."""
    time = campaign.log.time
    if time is None:
        return Term("log.time", "0", "0", "INTEGER")
    return counted(source.term("log.time", time), campaign.rows)


def is_counted(term: Term, rows: RowsSection) -> bool:
    """Whether `[rows]` counts it: a date or a time of day, where the file gives a unit of these."""
    return rows.unit in COUNTED and (term.type == "DATE" or term.type.startswith("TIMESTAMP"))


def counted(term: Term, rows: RowsSection) -> Term:
    """A date or a time of day as `[rows]` counts it: weeks from the first Monday of 1970; days as dates."""
    if rows.unit is None or not is_counted(term, rows):
        return term
    zoned = term.type == "TIMESTAMP WITH TIME ZONE"
    moment = f"({term.sql}) AT TIME ZONE {literal(rows.zone)}" if zoned else term.sql
    sql = COUNTED[rows.unit].format(moment=f"CAST({moment} AS TIMESTAMP)")
    return Term(term.key, term.text, sql, "DATE" if rows.unit == "day" else "BIGINT")


def start_of(time: int, unit: str) -> str:
    """When a unit of time began that dates were counted in: the inverse of `COUNTED`."""
    if unit == "hour":
        return str(np.datetime64(60 * time, "m")).replace("T", " ")
    if unit == "week":
        return str(np.datetime64(4 + 7 * time, "D"))  # of any year: logs have dates such as 99999-01-01
    return f"{np.datetime64(time, 'M')}-01"


def without_rounding(source: Source, amount: str, distinct: str, known: Sequence[float] | None) -> str:
    """SQL of an amount, in which values that differ from another only by rounding are that other.

    Args:
        source: the log.
        amount: SQL of the amount, or the name of a value in a list.
        distinct: SQL that gives every value of the log that the amount can have.
        known: the amounts there are, if they are listed.
    """
    rows = source.run(f"SELECT DISTINCT {distinct} AS amount FROM log_numbered LIMIT {MOST_AMOUNTS + 1}")
    if len(rows) > MOST_AMOUNTS:  # amounts that are no actions yet; `check` says so
        return amount
    standing = nearest_amounts((float(value) for (value,) in rows if value is not None), known)
    cases = " ".join(
        f"WHEN CAST({value!r} AS DOUBLE) THEN CAST({near!r} AS DOUBLE)" for value, near in standing.items()
    )
    return f"CASE {amount} {cases} ELSE {amount} END" if cases else amount


def text_sql(term: Term) -> str:
    """SQL of a value as text, as `core.schema.canonical_text` writes it."""
    text = f"CAST({term.sql} AS VARCHAR)"
    if term.type not in ("FLOAT", "DOUBLE", "DECIMAL"):
        return text
    return f"CASE WHEN {term.sql} = trunc({term.sql}) THEN CAST(CAST({term.sql} AS BIGINT) AS VARCHAR) ELSE {text} END"
