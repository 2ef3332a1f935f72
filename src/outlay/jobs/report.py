"""`outlay report`: the results of a RUN folder as one self-contained page, in the words of RUN/campaign.toml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from outlay.choosing.run import Run
from outlay.core.files import new_file
from outlay.pages.report import render
from outlay.pages.results import RunResults


def report(folder: str | Path | Run) -> Path:
    """Write RUN/report.html and return its path. Before the evaluation the page is shorter.

    Raises:
        FolderError: if the run is missing or damaged, or was evaluated by another version.
        CampaignError: if RUN/campaign.toml is no TOML, or its [labels] are impossible.
    """
    run = folder if isinstance(folder, Run) else Run.open(folder)
    page = render(replace(RunResults.read(run), labels=run.labelled.labels))
    path = run.folder / "report.html"
    with new_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path
