"""Progress of a long task: the share done, from 0 to 1, and what is being done.

    report = progress or silent
    prepare(campaign, folder, progress=within(report, 0, 0.15))
    tell = counted(within(report, 0.15, 1), rows, "writing rows")

A part of the task counts from 0 to 1 as well, and knows nothing of the whole.
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, str], None]
Counter = Callable[[int], None]  # takes how many more are done


def silent(_share: float, _text: str) -> None:
    """Report nothing."""


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
