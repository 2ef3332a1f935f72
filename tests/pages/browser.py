"""A real browser, where there is one: what a page has become after its scripts have run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from patience import PATIENCE

Test = TypeVar("Test", bound=Callable[..., None])

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


def in_a_browser(test: Test) -> Test:
    """A slow test that is skipped where there is none."""
    there = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the path")
    marked: Test = pytest.mark.slow(there(test))
    return marked


def _run(page: Path, folder: Path, *options: str) -> str:
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=8000", *options, f"file://{page}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def drawn(html: str, folder: Path, window: str = "1280,2000") -> str:
    """Return the document after its scripts have run; the browser keeps its profile in `folder`."""
    page = folder / "page.html"
    page.write_text(html, encoding="utf-8")
    return _run(page, folder, f"--window-size={window}", "--dump-dom")


def leaves(html: str, folder: Path) -> list[str]:
    """Print the page; return the text of each leaf. Skips the test where no pdftotext is on the path."""
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext on the path")
    page, paper = folder / "page.html", folder / "page.pdf"
    page.write_text(html, encoding="utf-8")
    _run(page, folder, "--no-pdf-header-footer", f"--print-to-pdf={paper}")
    text = subprocess.run(
        ["pdftotext", paper, "-"], capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout
    return text.split("\f")[:-1]
