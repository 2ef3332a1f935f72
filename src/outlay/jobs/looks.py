"""Looks at the certify users, counted where the users are: in the DATA folder.

Each mixture that is evaluated on them is a look; look k gets α/2ᵏ, so that all looks together keep α. The same bundle
looked at again is the same look.
"""

from __future__ import annotations

import json
from pathlib import Path

from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST, write_json

FILE = "looks.json"


def looks(folder: Path) -> list[str]:
    """Bundles that were looked at, in order.

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


def next_alpha(folder: Path, confidence: float) -> float:
    """The α that the next new bundle will get."""
    return float((1 - confidence) / 2 ** (len(looks(folder)) + 1))


def look(folder: Path, bundle: str, confidence: float) -> tuple[int, float]:
    """Count a look. Returns which look it is, from 1, and its α."""
    seen = looks(folder)
    if bundle not in seen:
        seen.append(bundle)
        write_json(folder / FILE, seen)
    number = seen.index(bundle) + 1
    return number, (1 - confidence) / 2**number


def carry_over(old: Path, new: Path) -> None:
    """Keep the count where the same data are written again: `new` takes over the looks of the DATA folder `old`."""
    try:
        hashes = [json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["data_hash"] for folder in (old, new)]
    except (OSError, ValueError, KeyError):
        return
    if hashes[0] == hashes[1] and (seen := looks(old)) and not looks(new):
        write_json(new / FILE, seen)
