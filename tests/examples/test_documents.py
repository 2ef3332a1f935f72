"""Code that documents show does what they say it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
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
