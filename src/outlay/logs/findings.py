"""A finding about a log: an error, a warning or a note."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LEVELS = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One finding. `count`: rows, users or values it is about; 0 where there is nothing to count."""

    level: Literal["error", "warning", "note"]
    where: str
    message: str
    way_out: str
    count: int
