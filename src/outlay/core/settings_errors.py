"""What is wrong with a settings file, in words: the first unknown key that pydantic found, else the first problem."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

WANTED = {
    "int": "a whole number",
    "int_from_float": "a whole number",
    "float": "a number, as 0.5",
    "finite_number": "a finite number",
    "date": "a date, as 2027-03-31",
    "bool": "true or false",
    "string": "a text",
    "string_too_short": "a text",
    "model_type": "a section",
    "list": "a list",
    "tuple": "a list",
    "dict": "a table",
}
BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
KINDS_OF_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}

KnownKeys = Callable[[tuple[int | str, ...]], list[str]]  # the keys of a section


def in_words(
    error: ValidationError, content: Any, path: Path | None, known_keys: KnownKeys, add: str = "Add it."
) -> dict[str, Any]:
    """The fields of an OutlayError.

    Args:
        error: of the model.
        content: what was given to it.
        path: the file.
        known_keys: what a section may hold, so that the nearest key can be named.
        add: the way out where a key is missing.
    """
    found = error.errors()
    # A key that is unknown is often a required one, written wrongly: to say that it is missing would not show where.
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    where = _place(first["loc"], content)
    if first["type"] == "extra_forbidden":
        known = known_keys(first["loc"][:-1])
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.5)
        way_out = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}."
        return {"found": "unknown key.", "file": path, "where": where, "way_out": way_out}
    if first["type"] == "missing":
        return {"found": "is missing.", "file": path, "where": where, "way_out": add}
    if first["type"] == "value_error":
        words = f"{first['msg'].removeprefix('Value error, ')}."
    else:
        words = f"is {first['input']!r}; wanted: {_wanted(first)}."
    return {"found": words, "file": path, "where": where or None, "way_out": "Fix the file."}


def _wanted(problem: Any) -> str:
    """What should stand there: pydantic's own words where ours say no more."""
    kind, context = problem["type"], problem.get("ctx", {})
    for ending in ("_parsing", "_type", "_from_datetime_parsing", "_from_datetime_inexact"):
        if (name := kind.removesuffix(ending)) != kind and name in WANTED:
            return WANTED[name]
    for key, words in BOUNDS.items():
        if key in context and kind in KINDS_OF_BOUNDS:
            return f"{words} {context[key]:g}"
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "string_pattern_mismatch":
        return f"a text that fits {context['pattern']}"
    return WANTED.get(kind) or str(problem["msg"])


def _place(path: tuple[int | str, ...], content: Any) -> str:
    """`arm 'new'.share`: what has a name is called by it."""
    parts: list[str] = []
    for step in path:
        try:
            content = content[step]
        except (LookupError, TypeError):  # a key that is missing, or one that only the model has
            content = None
        if isinstance(step, str):
            parts.append(step)
        elif isinstance(content, Mapping) and isinstance(content.get("name"), str):
            parts[-1] += f" {content['name']!r}"
        else:
            parts[-1] += f"[{step}]"
    return ".".join(parts)
