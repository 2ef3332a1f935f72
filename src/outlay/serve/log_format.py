"""The server's log on stderr: one line for one event, from us, uvicorn and everything else in the process.

2027-03-01T06:00:00.123Z WARNING outlay.serve: bundle 5a4d3bee6282e684 is in service
"""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import TextIO

REPEAT = 1.0  # seconds until the same line may be logged again
KEPT = 1_000  # lines; more different ones in a second are not told apart from new ones
ADDRESS = re.compile(r"0x[0-9a-fA-F]+")  # of an object in memory, which differs each time


class UtcFormatter(logging.Formatter):
    """A line with time (UTC, ISO 8601), level and logger."""

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


class RepeatFilter(logging.Filter):
    """Drops lines that were logged less than a second ago with the same text and error, but for addresses in memory.

    Otherwise an error in every request would fill the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._recent: dict[tuple[str, str], float] = {}  # when each line was logged, oldest first

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line may be logged."""
        now = record.created
        error = record.exc_info[1] if record.exc_info else None
        line = ADDRESS.sub("", record.getMessage()), ADDRESS.sub("", repr(error))
        when = self._recent.get(line)
        if when is not None and 0 <= now - when < REPEAT:
            return False
        self._recent.pop(line, None)
        self._recent[line] = now
        while not 0 <= now - self._recent[first := next(iter(self._recent))] < REPEAT or len(self._recent) > KEPT:
            del self._recent[first]
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
        logging.getLogger("outlay.start").setLevel(logging.INFO)  # what is served and where
