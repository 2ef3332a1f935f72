"""Numbers that stand in texts: amounts of named actions, and numbers with decimal commas.

A named action gets the number in its name where that tells the actions apart ("10% off", "20% off"), else its place in
the order of those numbers. A text that means nothing ("none", "No E-Mail", "0 EUR") gets the value that means no
incentive, and no other text does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from outlay.logs.reading import literal

Run = Callable[[str], list[tuple[Any, ...]]]

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
GERMAN = r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?"  # 1.234,56
DECIMALS = r",(\d{1,2}|\d{4,})$"  # three digits after a comma may be thousands


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


def without_commas(run: Run, relation: str, sql: str, written: str) -> str | None:
    """SQL for a campaign file that makes numbers of texts with decimal commas; None where they are not all such.

    Args:
        run: runs a statement.
        relation: where the texts are.
        sql: of the text.
        written: the same, as a person writes it.
    """
    text = f"trim(CAST({sql} AS VARCHAR))"
    [(present, numbers, commas, dots)] = run(
        f"SELECT count({sql}), count(*) FILTER (regexp_full_match({text}, '{GERMAN}')), "
        f"count(*) FILTER (regexp_matches({text}, '{DECIMALS}')), count(*) FILTER (contains({text}, '.')) "
        f"FROM {relation}"
    )
    if not commas or numbers < present:
        return None
    whole = f"replace({written}, '.', '')" if dots else written
    return f"cast(replace({whole}, ',', '.') as double)"


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
