"""The index of runs: what is ready first, links that work, and a folder without runs refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import index_examples
import pytest

from command_line import outlay
from outlay.core.errors import FolderError
from outlay.jobs.index import index
from outlay.pages.index import OtherPage, render
from telling import missing


def test_what_is_ready_stands_first_and_every_run_says_how_it_ended() -> None:
    page = render("runs", index_examples.runs(), [OtherPage("tests/page one.html")])
    assert not missing(page, "1 run ready to serve", "autumn &amp; &lt;winter&gt;", "+11.2% active days, −18.0% money")
    assert not missing(page, "not evaluated yet", "not supported", "is not valid JSON. Evaluate it again.")
    links = re.findall(r'href="([^"]+)"', page)
    assert links[0] == "autumn%20%26%20%3Cwinter%3E/frontier.html"
    assert links[-1] == "tests/page%20one.html"
    assert "<script" not in page
    assert "No run is ready" in render("runs", index_examples.runs()[1:], [])


def test_runs_are_found_with_their_pages_and_a_second_index_does_not_list_the_first(
    finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "runs" / "first")
    (tmp_path / "runs" / "first" / "report.html").write_text("x")
    (tmp_path / "runs" / "test").mkdir()
    (tmp_path / "runs" / "test" / "page.html").write_text("x")
    for _ in range(2):
        found = index(tmp_path / "runs")
        assert [(run.folder, run.grade) for run in found.runs] == [("first", None)]
        assert "report.html" in found.runs[0].pages
        assert [page.path for page in found.others] == ["test/page.html"]
    (tmp_path / "runs" / "first" / "estimates.json").write_text("{")
    assert "not valid JSON" in index(tmp_path / "runs").runs[0].problem
    told = outlay("index", tmp_path / "runs")
    assert (told.code, told.err) == (0, "")
    assert not missing(told.out, "first", "index.html written")


@pytest.mark.parametrize("name", ["none", "empty", "file"])
def test_a_folder_without_runs_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match=name):
        index(tmp_path / name)
