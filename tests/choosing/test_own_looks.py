"""Benchmarks count their looks apart: none may use up the looks of the person who runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import own_looks
from outlay.choosing.looks import SETTING, counted_in

BENCHMARKS = Path(own_looks.__file__).parent
LOOKS = re.compile(r"outlay\.(evaluate|frontier)\(|certify_run\(|timed\(\"evaluate\"")


def test_it_sets_what_looks_are_counted_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "elsewhere")
    own_looks.count_looks_in(tmp_path)
    assert counted_in() == tmp_path / "looks.sqlite"


def test_every_benchmark_that_looks_does_so() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in BENCHMARKS.glob("*.py")}
    looking = {name for name, text in texts.items() if LOOKS.search(text)}
    assert {"whole_job.py", "mutated_input.py", "rich_claims.py", "evaluation_certificate.py"} <= looking
    assert all("count_looks_in(" in texts[name] for name in looking)
