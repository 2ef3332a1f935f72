"""A clock that goes on when a test says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stopwatch:
    """Stands in for the module `time` where callers of the ledger wait (`handlers/commit.py`).

    Attributes:
        now: seconds.
    """

    now: float = 0.0

    def monotonic(self) -> float:
        """The time."""
        return self.now
