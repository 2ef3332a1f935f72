"""What every command shares: options, progress on stderr, tables, JSON on stdout, exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from outlay.cli.interrupts import stop_if_noted
from outlay.core.progress import Progress

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; all else goes to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no tables; errors still show.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Processors to use. Default: all.")]

WHOLE, LONGEST = 1e4, 1e15  # between them a number is told in whole units, beyond them by its power of ten

stdout = Console(soft_wrap=True)
stderr = Console(stderr=True)


def use_threads(threads: int | None) -> None:
    """Keep this process, and every library in it, on that many processors (where the system can)."""
    if threads is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


@contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Progress]:
    """A progress bar with time left, on stderr; gone when the work is done. A report stops where Ctrl-C was pressed."""
    if quiet or not stderr.is_terminal:
        yield lambda _fraction, _text: stop_if_noted()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with ProgressBar(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(title, total=1.0)

        def report(fraction: float, text: str) -> None:
            stop_if_noted()
            bar.update(task, completed=fraction, description=f"{title}: {text}")

        yield report


@contextmanager
def keeping(unfinished: Path) -> Iterator[None]:
    """Say after Ctrl-C that the same command goes on with what is left, if the folder of what is done is there."""
    try:
        yield
    except KeyboardInterrupt:
        if unfinished.is_dir():
            stderr.print("What is done is kept; the same command goes on with what is left.", markup=False)
        raise


def print_json(value: object) -> None:
    """The one document of `--json`."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """An aligned table on stdout, never cut off; columns of numbers to the right."""
    cells = [[number(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    numeric = [i > 0 and all(line[i][:1] in "0123456789+-−–" for line in cells) for i in range(len(columns))]
    if title:
        stdout.print(title, style="bold", markup=False, highlight=False)
    for line in [list(columns), *cells]:
        parts = [
            text.rjust(w) if right else text.ljust(w) for text, w, right in zip(line, widths, numeric, strict=True)
        ]
        stdout.print("  " + "   ".join(parts).rstrip(), markup=False, highlight=False)


def number(value: Any) -> str:
    """Format a cell: four significant digits, commas in large numbers, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and WHOLE <= abs(value) < LONGEST):
        return f"{value:,.0f}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
