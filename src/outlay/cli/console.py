"""What every command shares: options, progress on stderr, tables, JSON on stdout, exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from outlay.cli.interrupts import stop_if_noted
from outlay.core.progress import Progress
from outlay.core.wording import number

if TYPE_CHECKING:  # the import takes long, and --help does without it
    from outlay.pages.tables import Table

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that outlay train wrote.")]
BundleFolder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's folder (RUN/bundle).")]
CampaignFile = Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="The campaign.toml.")]
PastDays = Annotated[
    Path | None, typer.Option(help="Log or DATA folder with the users' past days, if the policy looks at them.")
]
TableFile = Annotated[Path, typer.Option("--out", help="Where to write: .parquet or .csv.")]
Confidence = Annotated[float | None, typer.Option(help="Of intervals and the certificate, e.g. 0.95.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the same command was cut off.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; all else goes to stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all that was found, not one screen of it.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no tables; errors still show.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Processors to use. Default: all.")]

WIDTH, LEAST = 80, 10  # columns of a screen, and of a table's column that is broken into lines

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


def say(*sentences: str) -> None:
    """Print lines as they are."""
    for sentence in sentences:
        stdout.print(sentence, markup=False, highlight=False)


def warn(sentence: str) -> None:
    """Print a line beside the results, on stderr."""
    stderr.print(sentence, markup=False, highlight=False, soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, screen: bool = False) -> None:
    """An aligned table of values; columns of numbers to the right. `screen`: broken into lines, to be no wider."""
    cells = [[text(value) for value in row] for row in rows]
    right = [i > 0 and all(line[i][:1] in "0123456789+-−–" for line in cells) for i in range(len(columns))]
    _print(title, [list(columns)], cells, right, screen=screen)


def show(table: Table, *, screen: bool = False) -> None:
    """A table that a page shows as well: its columns' notes stand below their heads. `screen`: as of `table`."""
    heads = [[column.head for column in table.columns], [column.note for column in table.columns]]
    lines = [[cell.line for cell in row.cells] for row in table.rows]
    _print(
        table.title,
        heads if any(heads[1]) else heads[:1],
        lines,
        [not column.words for column in table.columns],
        screen=screen,
    )


def _print(title: str, heads: list[list[str]], lines: list[list[str]], right: list[bool], *, screen: bool) -> None:
    """Aligned columns on stdout, never cut off; a line of fewer cells, one of which spans columns, widens none.

    `screen`: where they are wider than one, heads and words are broken into lines.
    """
    heads, lines = _broken(heads, lines, right) if screen else (heads, lines)
    whole = [line for line in [*heads, *lines] if len(line) == len(right)]
    widths = [max(len(line[i]) for line in whole) for i in range(len(right))]
    widths[0] = max(len(line[0]) for line in [*heads, *lines])
    if title:
        stdout.print(title, style="bold", markup=False, highlight=False)
    for line in [*heads, *lines]:
        aligned = [
            cell.rjust(width) if to_right and len(line) == len(right) else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=False)
        ]
        say("  " + "   ".join(aligned).rstrip())


def _broken(
    heads: list[list[str]], lines: list[list[str]], right: list[bool]
) -> tuple[list[list[str]], list[list[str]]]:
    """Heads and lines of which the widest columns are broken at spaces, until all fit a screen as far as they can."""
    both = [line for line in [*heads, *lines] if len(line) == len(right)]
    widths = [max((len(line[i]) for line in both), default=0) for i in range(len(right))]
    least = [
        max([LEAST, *(len(word) for line in both for word in line[i].split(" "))])
        if not right[i]
        else max([LEAST, *(len(line[i]) for line in lines if len(line) == len(right)), *_words(heads, i)])
        for i in range(len(right))
    ]
    while 2 + sum(widths) + 3 * (len(widths) - 1) > WIDTH:
        able = [i for i in range(len(widths)) if widths[i] > least[i]]
        if not able:
            break
        widths[max(able, key=lambda i: widths[i])] -= 1

    def parts(line: list[str], *, below: bool) -> list[list[str]]:
        if len(line) != len(right):
            return [line]
        cells = [wrap(cell, width) or [""] for cell, width in zip(line, widths, strict=True)]
        deep = max(map(len, cells))
        pad = [([""] * (deep - len(cell)) + cell) if below else (cell + [""] * (deep - len(cell))) for cell in cells]
        return [list(each) for each in zip(*pad, strict=True)]

    return (
        [part for line in heads for part in parts(line, below=True)],
        [part for line in lines for part in parts(line, below=False)],
    )


def _words(heads: list[list[str]], i: int) -> list[int]:
    return [len(word) for line in heads if len(line) > i for word in line[i].split(" ")]


def text(value: Any) -> str:
    """A cell: a number to three digits, a dash for None."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if value is None or isinstance(value, (int, float)) else str(value)
