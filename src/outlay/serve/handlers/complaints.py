"""The log of a server in trouble: what fails for every request is said once a second, or it would fill the disk."""

from __future__ import annotations

import logging

EVERY = 1.0  # seconds


class RepeatFilter(logging.Filter):
    """Drops lines that were said less than a second ago, with the same words and the same error."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it may be said."""
        now = record.created
        error = record.exc_info[1] if record.exc_info else None
        line = record.getMessage(), repr(error)
        self._said = {each: when for each, when in self._said.items() if 0 <= now - when < EVERY}
        if line in self._said:
            return False
        self._said[line] = now
        return True
