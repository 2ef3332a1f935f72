"""The notebooks run from top to bottom, and what they hold is what they print: lines, tables, but for digits."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LARGEST = 30_000  # bytes: outputs are for reading


def printed(notebook: Any) -> list[list[str]]:
    """What each cell of code printed, without digits, which the last place of a machine may change."""
    return [
        [
            re.sub(r"[\d.,]+|<[^>]*>|\s+", "", "".join(each))
            for output in cell["outputs"]
            for each in (output["data"].values() if "data" in output else [output["text"]])
        ]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_whole_and_is_small(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    kinds = [output["output_type"] for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert kinds
    assert "error" not in kinds
    assert path.stat().st_size < LARGEST


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_holds(path: Path) -> None:
    pytest.importorskip("nbclient", reason="the extra docs is not installed")
    pytest.importorskip("ipykernel", reason="the extra docs is not installed")
    spec = importlib.util.spec_from_file_location("notebooks_example", ROOT / "examples" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert printed(script.executed(path)) == printed(json.loads(path.read_text(encoding="utf-8")))
