"""Looks at the certify users, counted where the users are: in the DATA folder.

Each mixture that is evaluated on them is a look, and so is the frontier of a run, all its mixtures together. Look k
gets α/2ᵏ, so that all looks together keep α. The same bundle or frontier looked at again is the same look.
"""

from __future__ import annotations

import json
from pathlib import Path

from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST, write_json

FILE = "looks.json"


def looks(folder: Path) -> list[str]:
    """What was looked at, in order.

    Raises:
        FolderError: if the record is damaged: without it no level can be stated.
    """
    path = folder / FILE
    if not path.exists():
        return []
    try:
        return [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
    except ValueError:
        raise FolderError(
            "is not valid JSON, so it is unknown how often the certify users were looked at.",
            file=path,
            way_out="Prepare the data again with another train.salt.",
        ) from None


def next_look(folder: Path) -> int:
    """The number of the next new look, from 1."""
    return len(looks(folder)) + 1


def alpha_of(number: int, confidence: float) -> float:
    """The α of a look."""
    return float((1 - confidence) / 2**number)


def next_alpha(folder: Path, confidence: float) -> float:
    """The α that the next new look will get."""
    return alpha_of(next_look(folder), confidence)


def look(folder: Path, what: str, confidence: float) -> tuple[int, float]:
    """Count a look at a bundle or a frontier. Returns which look it is, from 1, and its α."""
    seen = looks(folder)
    if what not in seen:
        seen.append(what)
        write_json(folder / FILE, seen)
    number = seen.index(what) + 1
    return number, alpha_of(number, confidence)


def carry_over(old: Path, new: Path) -> None:
    """Keep the count where the same data are written again: `new` takes over the looks of the DATA folder `old`."""
    try:
        hashes = [json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["data_hash"] for folder in (old, new)]
    except (OSError, ValueError, KeyError):
        return
    if hashes[0] == hashes[1] and (seen := looks(old)) and not looks(new):
        write_json(new / FILE, seen)
