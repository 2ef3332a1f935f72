"""The tutorials work as they stand: their blocks are run from top to bottom, and print what the pages show.

A page is a story in one folder, and later pages go on where earlier ones ended. Of its fenced blocks

* `sh` holds commands of outlay; `outlay serve` runs until the page ends, on a port that is free;
* `python` is run as it stands; the blocks of a page share their names;
* `diff`, with the name of a file as its title, replaces lines of that file: each has to be there, once;
* `toml`, with such a title, is written to that file;
* `text` is what was printed since the last one: `…` stands for what is left out; spaces and line ends may differ.

A block below a comment `<!-- not run: REASON -->` is left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import outlay

FOLDER = Path(__file__).parents[2] / "docs" / "tutorial"
PAGES = ("first-decision.md", "test-it.md", "serve-it.md")  # in the order in which they are read
BLOCK = re.compile(r'(<!-- not run: .+? -->\s+)?^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


class Story:
    """A folder in which pages are played.

    Attributes:
        folder: what commands and blocks work in.
        played: the pages so far.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.played: list[str] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])
        self._servers: list[subprocess.Popen[bytes]] = []
        self._names: dict[str, object] = {}
        self._printed = ""

    def play(self, page: str) -> None:
        """Run a page's blocks; servers that it starts end with it."""
        self._printed, self._names = "", {"__name__": "page"}
        try:
            for skipped, kind, title, text in BLOCK.findall((FOLDER / page).read_text(encoding="utf-8")):
                if not skipped:
                    getattr(self, f"_{kind}")(text, title)
        finally:
            for server in self._servers:
                server.terminate()
                server.wait()
        self.played.append(page)

    def _sh(self, text: str, _: str) -> None:
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            assert words[0] == "outlay", f"cannot run {line!r}"
            if words[1] == "serve":
                self._serve(words[1:])
                continue
            result = outlay(*words[1:])
            assert result.code == 0, f"{line}\n{result.err}"
            self._printed += result.out + result.err

    def _serve(self, words: list[str]) -> None:
        command = [sys.executable, "-c", "from outlay.cli.main import run; run()", *words, "--port", self._port]
        self._servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/v2/health/ready"):
                return
            assert self._servers[-1].poll() is None, words
            time.sleep(0.1)
        raise TimeoutError(words)

    def _python(self, text: str, _: str) -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(text.replace("localhost:8000", f"127.0.0.1:{self._port}"), "page", "exec"), self._names)
        self._printed += said.getvalue()

    def _diff(self, text: str, title: str) -> None:
        lines = (self.folder / title).read_text(encoding="utf-8").splitlines()
        at = 0
        for change in text.splitlines():
            sign, line = change[0], change[1:]
            if sign == "-":
                assert lines.count(line) == 1, f"{title} has no single line {line!r}"
                at = lines.index(line)
                del lines[at]
            else:
                assert sign == "+", change
                lines.insert(at, line)
                at += 1
        (self.folder / title).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _toml(self, text: str, title: str) -> None:
        if title:
            (self.folder / title).write_text(text, encoding="utf-8")

    def _text(self, text: str, _: str) -> None:
        printed, at = " ".join(self._printed.split()), 0
        for part in re.split(r"^…$", text, flags=re.MULTILINE):
            shown = " ".join(part.split())
            found = printed.find(shown, at)
            assert found >= 0, f"the page shows\n{part}\nbut this was printed\n{self._printed}"
            at = found + len(shown)
        self._printed = ""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("tutorial")
    with contextlib.chdir(folder):
        yield Story(folder)


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_does_what_it_says(page: str, story: Story) -> None:
    for each in PAGES[: PAGES.index(page) + 1]:
        if each not in story.played:
            story.play(each)


def test_every_tutorial_is_played() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == set(PAGES)
    assert os.environ["OUTLAY_LOOKS"]  # looks are counted in the tests' own file
