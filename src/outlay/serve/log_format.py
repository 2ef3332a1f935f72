"""The server's log on stderr: one line for one event, from us, uvicorn and everything else in the process.

2027-03-01T06:00:00.123Z WARNING outlay.serve: bundle 5a4d3bee6282e684 is in service
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

REPEAT = 1.0  # seconds until the same line may be logged again


class UtcFormatter(logging.Formatter):
    """A line with time (UTC, ISO 8601), level and logger."""

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


class RepeatFilter(logging.Filter):
    """Drops lines that were logged less than a second ago with the same text and error.

    Otherwise an error in every request would fill the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._recent: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line may be logged."""
        now = record.created
        error = record.exc_info[1] if record.exc_info else None
        line = record.getMessage(), repr(error)
        self._recent = {each: when for each, when in self._recent.items() if 0 <= now - when < REPEAT}
        if line in self._recent:
            return False
        self._recent[line] = now
        return True


class StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever stderr is at that moment."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(UtcFormatter())
        self.addFilter(RepeatFilter())

    @property
    def stream(self) -> TextIO:
        """Return stderr."""
        return sys.stderr


def log_to_stderr() -> None:
    """Send the process's log to stderr in this form, once; what else handles it stays."""
    root = logging.getLogger()
    if not any(isinstance(handler, StderrHandler) for handler in root.handlers):
        root.addHandler(StderrHandler())
        logging.getLogger("outlay.start").setLevel(logging.INFO)  # what is served and where, and what to know of it
