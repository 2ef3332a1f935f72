"""Progress of a long task: the share done, from 0 to 1, and what is being done.

    report = telling(progress)                              # in a notebook, one line that is updated
    prepare(campaign, folder, progress=within(report, 0, 0.15))
    tell = counted(within(report, 0.15, 1), rows, "writing rows")

A part of the task counts from 0 to 1 as well, and knows nothing of the whole.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

Progress = Callable[[float, str], None]
Counter = Callable[[int], None]  # takes how many more are done
NOTEBOOK = "ZMQInteractiveShell"  # IPython's shell behind a notebook
SECONDS = 0.5  # between two updates of a line


def silent(_share: float, _text: str) -> None:
    """Report nothing."""


def telling(progress: Progress | None) -> Progress:
    """Return what was given; else in a notebook one line that is updated, and elsewhere nothing."""
    if progress is not None:
        return progress
    ipython: Any = sys.modules.get("IPython")  # a notebook has loaded it
    shell = None if ipython is None else ipython.get_ipython()
    return _NotebookLine(ipython.display.display) if type(shell).__name__ == NOTEBOOK else silent


class _NotebookLine:
    """`40%: policy 3 of 8 (20 s)`, in the place of the line before; nothing of work that ends before the first line."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._line: Any = None
        self._began = self._last = time.monotonic()

    def __call__(self, share: float, text: str) -> None:
        now = time.monotonic()
        if now - self._last < SECONDS and (share < 1 or self._line is None):
            return
        self._last = now
        line = {"text/plain": f"{100 * share:.0f}%: {text} ({now - self._began:.0f} s)"}
        if self._line is None:
            self._line = self._display(line, raw=True, display_id=True)
        else:
            self._line.update(line, raw=True)


def within(report: Progress, start: float, end: float, before: str = "") -> Progress:
    """Return the progress of a part, which takes the whole from `start` to `end`; its texts begin with `before`."""
    return lambda share, text: report(start + (end - start) * share, before + text)


def counted(report: Progress, total: int, text: str) -> Counter:
    """Return a counter that reports which share of `total` is done."""
    done = 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        report(min(done / max(total, 1), 1.0), text)

    return tell
