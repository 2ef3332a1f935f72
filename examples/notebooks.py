"""Run the notebooks of docs/notebooks from top to bottom and keep what they print: `make notebooks`.

Each runs in a folder of its own that is deleted afterwards, with its own count of looks. An error of a cell ends it.
What changes with every run and says nothing, times and the folder's name, is left out.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient

PROGRESS = re.compile(r"\d+%: .* \(\d+ s\)")  # the line that work leaves behind; how much there is varies
FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def executed(path: Path) -> Any:
    """The notebook as it is after a run.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        settings = {"OUTLAY_LOOKS": f"{place}/looks.sqlite", "IPYTHONDIR": f"{place}/ipython"}
        with patch.dict(os.environ, settings):
            where = {"metadata": {"path": place}}
            NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
        text = nbformat.writes(notebook).replace(f"{place}/", "")
    notebook = nbformat.reads(text, as_version=4)
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not PROGRESS.fullmatch(_text(output))]
        for part in [cell, *cell.get("outputs", ())]:
            if "execution_count" in part:
                part.execution_count = None
    return notebook


def _text(output: Any) -> str:
    return str(output.get("data", {}).get("text/plain", ""))


def main() -> None:
    """Run those that are named, or all, and write them."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        print(path.name, flush=True)
        nbformat.write(executed(path), path)


if __name__ == "__main__":
    main()
