"""SQL of the user, the time and the action of a row, of a log as of a table of later events; and what amounts are.

A named action gets the number in its name where that tells the actions apart ("10% off", "20% off"), else its place in
the order of those numbers. A text that means nothing ("none", "No E-Mail", "0 EUR") gets the value that means no
incentive, and no other text does.

Amounts that differ only by rounding are one action: a log may hold 0.30000000000000004 where 0.3 is meant, and people
list an action as it is printed, with six digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from outlay.logs.reading import literal, setting
from outlay.logs.source import WHOLE, Source, Term

AS_PRINTED = 5e-6  # relative: numbers that print alike with six digits differ by no more
NOISE = 1e-9  # relative: what sums and products of floats leave
MOST = 255  # named actions: more cannot be chosen from
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


def amounts(texts: Sequence[str], none: float | None) -> dict[str, float]:
    """Text → number, in the order of the numbers.

    Args:
        texts: all names of actions, each once.
        none: the number that means no incentive; None: not said, and 0 if a text means it.
    """
    nothing = [text for text in texts if means_nothing(text)]
    named = sorted((text for text in texts if text not in nothing), key=lambda text: (_numbers(text), text))
    empty = 0.0 if none is None else none
    kept = dict.fromkeys(nothing, empty)
    alone = [_numbers(text)[0] for text in named if len(_numbers(text)) == 1]
    frames = {NUMBER.sub("#", text) for text in named}
    if len(alone) == len(named) == len(set(alone)) and len(frames) <= 1 and not (nothing and empty in alone):
        return kept | dict(zip(named, alone, strict=True))
    places = (float(number) for number in range(1, len(texts) + 2) if number != empty)
    return kept | dict(zip(named, places, strict=False))


def case_sql(written: str, values: dict[str, float]) -> str:
    """SQL that gives every text its number."""
    cases = " ".join(f"when {literal(text)} then {value:.12g}" for text, value in values.items())
    return f"case {written} {cases} end"


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
