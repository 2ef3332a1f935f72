"""SQL of the user, the time and the action of a row, of a log as of a table of later events."""

from __future__ import annotations

from collections.abc import Sequence

from outlay.logs.amounts import nearest_amounts
from outlay.logs.reading import setting
from outlay.logs.source import WHOLE, Source, Term
from outlay.logs.texts import MOST, amounts, case_sql, means_nothing

GERMAN = "'%d.%m.%Y'"
MOST_AMOUNTS = 4096  # distinct ones that are looked at for rounding
KEPT_USER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN")


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
            f"Write {setting('time', f'cast({term.written} as date)')}.",
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


def action_sql(source: Source, term: Term, none: float | None) -> str:
    """SQL of an action as a number.

    Args:
        source: the log.
        term: of the action.
        none: the value that means no incentive, if the campaign file says it.

    Raises:
        OutlayError: if it is not a number; it says how to write it as one.
    """
    way_out = "Actions are numbers (the value given). "
    if term.type != "VARCHAR":
        return source.number(term, f"{way_out}Give an expression that makes one.")
    rows = source.run(f"SELECT DISTINCT {term.sql} AS v FROM log_kept WHERE v IS NOT NULL ORDER BY v LIMIT {MOST + 1}")
    texts = [str(text) for (text,) in rows]
    if len(texts) > MOST:
        return source.number(
            term, f"{way_out}There are more than {MOST} different texts: group them by a CASE expression."
        )
    line = setting("action", case_sql(term.written, amounts(texts, none)))
    nothing = next((text for text in texts if means_nothing(text)), None)
    also = ""
    if none is None and nothing is not None:
        also = f" Write none = 0.0 under [campaign]: by its name, {nothing!r} gives nothing."
    elif none is not None and nothing is None:
        also = f" If one of them gives nothing, its number is {none:g}, as none under [campaign] says."
    return source.number(term, f"{way_out}Write {line}, with a number for every text.{also}")


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
