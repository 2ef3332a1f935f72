"""The page of `outlay index`: runs and their verdicts, with links to their pages."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from outlay.core.wording import NONE, change, counted
from outlay.pages.page import template
from outlay.pages.tables import Look

LOOKS: dict[str, Look] = {"certified": "yes", "held": "yes", "promising": "", "not supported": "no"}
NAMES = {"report.html": "report", "frontier.html": "frontier"}


@dataclass(frozen=True)
class IndexedRun:
    """One run.

    Attributes:
        folder: below that of the index.
        campaign: its name.
        pages: in its folder.
        trained: when, in seconds since 1970.
        verdict: its kind; None before the evaluation.
        grade: `certified`, `held`, `promising` or `not supported`.
        words: what to do, as page one of its report says it.
        reward: what is to be more.
        more: of it than now, as a share; None where that is not known.
        spends: more money than now, likewise.
        problem: why the evaluation cannot be read; empty where it can.
    """

    folder: str
    campaign: str
    pages: tuple[str, ...]
    trained: float
    verdict: str | None = None
    grade: str | None = None
    words: str = ""
    reward: str = ""
    more: float | None = None
    spends: float | None = None
    problem: str = ""

    @property
    def links(self) -> list[tuple[str, str]]:
        """What the pages are called, and where they are."""
        return [(NAMES.get(page, page), quote(f"{self.folder}/{page}")) for page in self.pages]

    @property
    def gain(self) -> str:
        """`+11.2% active days, −18.0% money`."""
        if self.more is None:
            return NONE
        money = "" if self.spends is None else f", {change(self.spends)} money"
        return f"{change(self.more)} {self.reward}{money}"

    @property
    def day(self) -> str:
        """When it was trained."""
        return datetime.datetime.fromtimestamp(self.trained).astimezone().strftime("%Y-%m-%d %H:%M")

    @property
    def look(self) -> Look:
        """How its verdict is marked."""
        return LOOKS.get(self.grade or "", "")


@dataclass(frozen=True)
class OtherPage:
    """A page that belongs to no run: of a test, a comparison, a log."""

    path: str

    @property
    def link(self) -> str:
        """Where it is."""
        return quote(self.path)


def render(name: str, runs: Sequence[IndexedRun], others: Sequence[OtherPage]) -> str:
    """The page: the latest run first."""
    ready = [run for run in runs if run.look == "yes"]
    decision = "No run is ready to serve."
    if ready:
        which = " and ".join(run.folder for run in ready[:3])
        more = f", and {len(ready) - 3} more" if len(ready) > 3 else ""
        decision = f"{counted(len(ready), 'run')} ready to serve: {which}{more}."
    titles = [(str(PurePosixPath(page.path)), page.link) for page in others]
    return template("index.html").render(name=name, runs=runs, others=titles, decision=decision)
