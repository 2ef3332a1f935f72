"""What is wrong with a settings file, in words: the first unknown key that pydantic found, else the first problem."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

KnownKeys = Callable[[tuple[int | str, ...]], list[str]]  # the keys of a section


def in_words(error: ValidationError, path: Path | None, known_keys: KnownKeys, add: str = "Add it.") -> dict[str, Any]:
    """The fields of an OutlayError.

    Args:
        error: of the model.
        path: the file.
        known_keys: what a section may hold, so that the nearest key can be named.
        add: the way out where a key is missing.
    """
    found = error.errors()
    # A key that is unknown is often a required one, written wrongly: to say that it is missing would not show where.
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = known_keys(first["loc"][:-1])
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.5)
        way_out = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}."
        return {"found": "unknown key.", "file": path, "where": where, "way_out": way_out}
    if first["type"] == "missing":
        return {"found": "is missing.", "file": path, "where": where, "way_out": add}
    message = first["msg"].removeprefix("Value error, ")
    words = f"{message}." if first["type"] == "value_error" else f"is {first['input']!r}; {message}."
    return {"found": words, "file": path, "where": where or None, "way_out": "Mend the file."}
