"""What benchmarks print and keep: the head of a table, and JSON that says when, where and on which commit it was made.

print(head("case", "a second"))
keep("ledger_speed", results=results)            # benchmarks/out/ledger_speed.json, which git ignores
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"


def head(*columns: str) -> str:
    """The first two lines of a Markdown table."""
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"


def keep(name: str, **content: Any) -> Path:
    """Write `OUT/NAME.json`, with the date, the commit, the cores and the platform; the file's path."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=OUT.parent, capture_output=True, text=True, check=False
    )
    made = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": described.stdout.strip() or None,
        "cores": os.cpu_count(),
        "platform": platform.platform(),
    }
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps({**made, **content}, indent=1) + "\n", encoding="utf-8")
    return path
