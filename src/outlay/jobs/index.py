"""`outlay index`: one page of the runs in a folder, with their verdicts and links to their pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlay.choosing.run import Run
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import MANIFEST
from outlay.core.shown import Shown
from outlay.core.wording import counted
from outlay.evaluating.evaluation import Evaluation
from outlay.pages.index import IndexedRun, OtherPage, render
from outlay.pages.page import write_page
from outlay.pages.page_one import PageOne

PAGE = "index.html"


@dataclass(frozen=True, repr=False)
class RunIndex(Shown):
    """The runs of a folder.

    Attributes:
        page: what was written.
        runs: the latest first.
        others: pages that belong to no run.
    """

    page: str
    runs: tuple[IndexedRun, ...]
    others: tuple[OtherPage, ...]

    def headline(self) -> str:
        """How many there are, and where the page lies."""
        return f"{counted(len(self.runs), 'run')}, on {self.page}."

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """The runs, and other pages."""
        return {"runs": self.runs, "others": self.others}


def index(folder: str | Path) -> RunIndex:
    """Write FOLDER/index.html: the runs in a folder and the folders in it, with their verdicts.

    Args:
        folder: that holds RUN folders.

    Raises:
        FolderError: if it is no folder, or holds no run and no page.
    """
    folder = Path(folder)
    if not folder.is_dir():
        found = "is a file; a folder of runs is expected." if folder.exists() else "does not exist."
        raise FolderError(found, file=folder, way_out="Give the folder that holds your runs, such as runs.")
    runs, inside = [], set()
    for manifest in sorted([*folder.glob(f"*/{MANIFEST}"), *folder.glob(f"*/*/{MANIFEST}")]):
        if (found_run := _run(manifest.parent, folder)) is not None:
            runs.append(found_run)
            inside.add(manifest.parent)
    pages = [path for path in sorted([*folder.glob("*.html"), *folder.glob("*/*.html")]) if path != folder / PAGE]
    others = tuple(OtherPage(path.relative_to(folder).as_posix()) for path in pages if path.parent not in inside)
    if not runs and not others:
        raise FolderError(
            "holds no run and no page.",
            file=folder,
            way_out=f"Train one: outlay train campaign.toml --out {folder}/first",
        )
    runs.sort(key=lambda each: each.trained, reverse=True)
    page = write_page(render(folder.resolve().name, runs, others), folder / PAGE)
    return RunIndex(str(page), tuple(runs), others)


def _run(folder: Path, below: Path) -> IndexedRun | None:
    """A run as a line of the index; None for another folder of ours."""
    try:
        run = Run.open(folder)
    except FolderError:
        return None
    name, pages = folder.relative_to(below).as_posix(), tuple(sorted(path.name for path in folder.glob("*.html")))
    trained = (folder / MANIFEST).stat().st_mtime
    try:
        campaign = run.labelled
    except OutlayError:  # labels that are wrong keep no run from its index
        campaign = run.campaign
    common: dict[str, Any] = {"folder": name, "campaign": campaign.meta.name, "pages": pages, "trained": trained}
    try:
        found = Evaluation.read(folder)
    except FolderError as error:
        return IndexedRun(**common, problem=f"{error.found} {error.way_out}")
    if found is None:
        return IndexedRun(**common)
    totals = found.totals
    return IndexedRun(
        **common,
        verdict=found.verdict.kind.value,
        grade=found.grade,
        words=PageOne(found, campaign).headline,
        reward=campaign.called("reward").label,
        more=None if totals is None else totals.reward.share,
        spends=None if totals is None else totals.money.share,
    )
