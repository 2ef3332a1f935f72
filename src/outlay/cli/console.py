"""What every command shares: options, progress on stderr, tables, JSON on stdout, exit codes."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
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
    Path | None,
    typer.Option(
        metavar="LOG_OR_DATA", help="Log or DATA folder with the users' past days, if the policy looks at them."
    ),
]
TableFile = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write: .parquet or .csv.")]
Confidence = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Confidence of intervals and the certificate, e.g. 0.95.")
]
Seed = Annotated[int, typer.Option(metavar="NUMBER", min=0, help="Random seed.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue where the same command was interrupted.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, even for an error; all else goes to stderr.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print everything, not just one screen.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no tables; errors still show.")]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="NUMBER", min=1, help="Processors to use. Default: all.")
]

WIDTH, LEAST = 80, 10  # columns of a screen, and of a table's column that is broken into lines
WORDS = 3  # spaces of a cell that is a sentence, not a name or a number
EVERY = 10.0  # seconds between two lines of progress

stdout = Console(soft_wrap=True)
stderr = Console(stderr=True)


_told: ContextVar[Callable[[str], str]] = ContextVar("told", default=str)  # in the log's unit of time


def tell_as(told: Callable[[str], str]) -> None:
    """Pass what is printed from now on through `Campaign.timed`, until the next command."""
    _told.set(told)


def use_threads(threads: int | None) -> None:
    """Begin a command: keep this process, and every library in it, on that many processors (where the system can)."""
    tell_as(str)
    if threads is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


@contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Progress]:
    """What is being done, on stderr: a bar with the time, or without a terminal a line every ten seconds.

    A share is shown once a job has one; until then the bar moves without. A report stops where Ctrl-C was pressed.
    """
    if quiet:
        yield lambda _share, _text: stop_if_noted()
        return
    told = _Told(title)
    with _bar(told) if stderr.is_terminal else _lines(told):
        yield told


class _Told:
    """What a job reported last: the share done, which never falls, and the step."""

    def __init__(self, title: str) -> None:
        self.title, self.text, self.share, self.began = title, "", 0.0, time.monotonic()
        self.shown: Callable[[], object] = lambda: None

    def __call__(self, share: float, text: str) -> None:
        stop_if_noted()
        self.share, self.text = max(self.share, share), text
        self.shown()

    def line(self) -> str:
        """As one line: train: 40%, policy 3 of 8 (20 s)."""
        done = f"{100 * self.share:.0f}%" if self.share else ""
        step = ", ".join(part for part in (done, self.text) if part) or "started"
        return f"{self.title}: {step} ({time.monotonic() - self.began:.0f} s)"


@contextmanager
def _bar(told: _Told) -> Iterator[None]:
    """A bar, gone when the work is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(told.title, total=None)

        def shown() -> None:
            known = 1.0 if told.share else None
            bar.update(task, total=known, completed=told.share, description=f"{told.title}: {told.text}")

        told.shown = shown
        yield


@contextmanager
def _lines(told: _Told) -> Iterator[None]:
    """A line every ten seconds, for the log of a job that nobody watches."""
    done = threading.Event()

    def tell() -> None:
        while not done.wait(EVERY):
            warn(told.line())

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


@contextmanager
def keeping(unfinished: Path, option: str = "") -> Iterator[None]:
    """Say after Ctrl-C that the same command (with `option`) goes on, if the folder of what is done is there."""
    try:
        yield
    except KeyboardInterrupt:
        if unfinished.is_dir():
            given = f" with {option}" if option else ""
            warn(f"What is done is kept in {unfinished}; the same command{given} goes on with what is left.")
        raise


def print_json(value: object) -> None:
    """The one document of `--json`."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def say(*sentences: str) -> None:
    """Print lines as they are."""
    for sentence in sentences:
        stdout.print(_told.get()(sentence), markup=False, highlight=False)


def warn(sentence: str) -> None:
    """Print a line beside the results, on stderr."""
    stderr.print(_told.get()(sentence), markup=False, highlight=False, soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, screen: bool = True) -> None:
    """An aligned table of values, no wider than a screen unless it is to be whole; columns of numbers to the right."""
    cells = [[text(value) for value in row] for row in rows]
    right = [i > 0 and all(line[i][:1] in "0123456789+-−–" for line in cells) for i in range(len(columns))]
    _print(title, [list(columns)], cells, right, screen=screen)


def show(table: Table, *, screen: bool = True) -> None:
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

    `screen`: where they are wider than one, heads and words are broken into lines, and what is still too wide follows
    below, with the first column again.
    """
    told = _told.get()
    heads = [[told(cell) for cell in line] for line in heads]
    lines = [[told(cell) if cell.count(" ") >= WORDS else cell for cell in line] for line in lines]  # no names
    if title:
        stdout.print(told(title), style="bold", markup=False, highlight=False)
    if not screen:
        _aligned(heads, lines, right)
        return
    for place, part in enumerate(_blocks(heads, lines, right)):
        if place:
            say("")
        _aligned(*part)


def _aligned(heads: list[list[str]], lines: list[list[str]], right: list[bool]) -> None:
    whole = [line for line in [*heads, *lines] if len(line) == len(right)]
    widths = [max(len(line[i]) for line in whole) for i in range(len(right))]
    widths[0] = max(len(line[0]) for line in [*heads, *lines])
    for line in [*heads, *lines]:
        aligned = [
            cell.rjust(width) if to_right and len(line) == len(right) else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=False)
        ]
        say("  " + "   ".join(aligned).rstrip())


Block = tuple[list[list[str]], list[list[str]], list[bool]]


def _blocks(heads: list[list[str]], lines: list[list[str]], right: list[bool]) -> list[Block]:
    """The table in blocks that fit a screen: as many columns as can be broken into it, then the next ones."""
    count, found, start = len(right), list[Block](), 1
    while start < count or not found:
        end = count
        while True:
            columns = [0, *range(start, end)]

            def picked(line: list[str], columns: list[int] = columns, first: bool = not found) -> list[str] | None:
                if len(line) == count:
                    return [line[i] for i in columns]
                return line if first else None  # what spans columns is told once

            above, below = ([each for line in part if (each := picked(line)) is not None] for part in (heads, lines))
            sides = [right[i] for i in columns]
            few = end - start <= 1
            broken = _broken(above, below, sides, words=few)
            if few or _width(*broken, sides) <= WIDTH:
                break
            end -= 1
        found.append((*broken, sides))
        start = max(end, 1)
        if count == 1:
            break
    return found


def _width(heads: list[list[str]], lines: list[list[str]], right: list[bool]) -> int:
    whole = [line for line in [*heads, *lines] if len(line) == len(right)]
    return 2 + sum(max(len(line[i]) for line in whole) for i in range(len(right))) + 3 * (len(right) - 1)


def _broken(
    heads: list[list[str]], lines: list[list[str]], right: list[bool], *, words: bool
) -> tuple[list[list[str]], list[list[str]]]:
    """Heads and lines of which the widest columns are broken at spaces, until all fit a screen as far as they can.

    `words`: a word that is still too long, such as a path, is broken too.
    """
    both = [line for line in [*heads, *lines] if len(line) == len(right)]
    widths = [max((len(line[i]) for line in both), default=0) for i in range(len(right))]
    longest = [max([0, *(len(word) for line in both for word in line[i].split(" "))]) for i in range(len(right))]
    spanned = (word for line in [*heads, *lines] if len(line) != len(right) for word in line[0].split(" "))
    longest[0] = max([longest[0], *map(len, spanned)])
    widths[0] = max(widths[0], longest[0])
    whole = [max([0, *(len(line[i]) for line in lines if len(line) == len(right))]) for i in range(len(right))]
    readable = [max(LEAST, longest[i], whole[i] if right[i] else 0) for i in range(len(right))]
    stages = [readable, longest]  # numbers are broken where all else was not enough
    if words:
        stages.append([longest[i] if right[i] else min(longest[i], LEAST) for i in range(len(right))])
    for least in stages:
        while 2 + sum(widths) + 3 * (len(widths) - 1) > WIDTH:
            able = [i for i in range(len(widths)) if widths[i] > least[i]]
            if not able:
                break
            widths[max(able, key=lambda i: widths[i])] -= 1

    def parts(line: list[str], *, below: bool) -> list[list[str]]:
        if len(line) != len(right):
            first = wrap(line[0], max(widths[0], LEAST)) or [""]
            room = max(LEAST, WIDTH - 5 - max(widths[0], *map(len, first)))
            said = wrap("   ".join(line[1:]), room) or [""]
            return [list(both) for both in zip_longest(first, said, fillvalue="")]
        cells = [wrap(cell, width) or [""] for cell, width in zip(line, widths, strict=True)]
        deep = max(map(len, cells))
        pad = [([""] * (deep - len(cell)) + cell) if below else (cell + [""] * (deep - len(cell))) for cell in cells]
        return [list(each) for each in zip(*pad, strict=True)]

    return (
        [part for line in heads for part in parts(line, below=True)],
        [part for line in lines for part in parts(line, below=False)],
    )


def text(value: Any) -> str:
    """A cell: a number to three digits, a dash for None."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if value is None or isinstance(value, (int, float)) else str(value)
