"""Code that documents show does what they say it prints."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from outlay.cli.main import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [  # tutorials are played by test_tutorials.py
    page
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
    if page.parent.name != "tutorial"
]
PAIRS = re.compile(r"```python\n(.*?)```\n+```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", ["game.md"])
def test_code_in_a_document_prints_what_stands_below_it(name: str) -> None:
    pairs = PAIRS.findall((DOCS / name).read_text(encoding="utf-8"))
    assert pairs
    for code, wanted in pairs:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), {})
        assert printed.getvalue() == wanted


def test_the_tour_names_files_and_what_is_in_them() -> None:
    stops = re.findall(
        r"^\| \d\. `(\S+)`: (.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(stops) == 5
    for file, words in stops:
        tree = ast.parse((ROOT / "src" / "outlay" / file).read_text(encoding="utf-8"))
        found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        named = re.findall(r"`(\w+)`", words)
        assert named
        assert set(named) <= found, file


def blocks(language: str) -> list[tuple[str, str]]:
    """Page and text of every block of a language."""
    found = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [(page.name, text) for page in PAGES for text in found.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_settings_in_a_document_are_toml(page: str, text: str) -> None:
    assert tomllib.loads(text), page


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_in_a_document_uses_no_name_that_it_does_not_make(page: str, text: str) -> None:
    nodes = list(ast.walk(ast.parse(text)))
    made = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert used - made - set(dir(builtins)) == set(), page


def commands() -> list[tuple[str, str]]:
    """Page and text of every line of a page that calls the command, comments and optional parts' brackets left out."""
    lines = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        lines += [(page.name, line) for line in re.findall(r"^    (outlay [^\n|]*)", text, re.MULTILINE)]
    return [(page, re.sub(r"[\[\]]", "", line)) for page, line in lines]


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_in_a_document_exist_with_their_options(page: str, line: str) -> None:
    command: Any = typer.main.get_command(app)
    context: Any = command.make_context("outlay", [], resilient_parsing=True)
    words = shlex.split(line, comments=True)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
        context = command.make_context(command.name, [], parent=context, resilient_parsing=True)
    command.make_parser(context).parse_args(words)
