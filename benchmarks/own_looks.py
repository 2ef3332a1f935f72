"""Looks of a benchmark are counted in its own working folder, not among those at logs of your own."""

from __future__ import annotations

import os
from pathlib import Path

SETTING = "OUTLAY_LOOKS"  # not imported: whole_job.py measures its children's memory, which starts at its own


def count_looks_in(folder: Path) -> None:
    """This process, and the commands that it starts, count looks at certify users in a file of `folder`."""
    os.environ[SETTING] = str((folder / "looks.sqlite").resolve())
