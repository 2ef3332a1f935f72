"""The site of the pages is built without a warning and without the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import outlay

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_pages_fetch_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="?(?:https?:)?//', html), page.name


def test_every_public_function_is_in_the_reference(site: Path) -> None:
    html = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in set(outlay.__all__) - {"__version__"}:
        assert re.search(rf'id="outlay\.[\w.]+\.{name}"', html), name


def test_every_command_is_in_the_reference(site: Path) -> None:
    html = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for words in ("outlay init", "outlay export-log", "outlay experiment analyze"):
        assert f">{words}<" in html
