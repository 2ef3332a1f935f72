"""A few rounds of `benchmarks/ledger_crash.py`, which tells what a round is."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from small_ledgers import POSTGRES, new_url, proposal

from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from patience import PATIENCE

CRASH = Path(__file__).parents[2] / "benchmarks" / "ledger_crash.py"


@pytest.mark.parametrize(("backend", "rounds"), [("sqlite", 5), pytest.param("postgres", 3, marks=pytest.mark.slow)])
def test_killed_writers_spend_nothing_twice_and_never_too_much(backend: str, rounds: int, tmp_path: Path) -> None:
    url = new_url(backend, tmp_path)
    command = [sys.executable, str(CRASH), "--rounds", str(rounds), "--ledger", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    assert seen["broken"] == []
    assert (done.returncode, seen["rounds"], seen["kills"]) == (0, rounds, 3 * rounds)
    assert seen["answers"] > seen["repeated"] > 0
    assert seen["decisions"] > 0
    assert seen["outcomes"] > 0
    assert seen["committed"] == 300_000


@pytest.mark.parametrize("backend", ["sqlite", POSTGRES])
def test_processes_that_start_together_make_one_ledger_and_share_its_money(backend: str, tmp_path: Path) -> None:
    url = new_url(backend, tmp_path)
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        spent = list(pool.map(spend, [url] * 4, range(4)))
    ledger = open_ledger(url)
    assert sum(spent) == ledger.totals("coupons").total.reserved == 100
    assert ledger.check() == []
    ledger.close()


def spend(url: str, process: int) -> int:
    ledger = open_ledger(url)
    ledger.set_caps("coupons", Caps(total=100))
    answers = [ledger.record([proposal(f"{process} {i}", 4, user=f"u{i}")])[0] for i in range(20)]
    ledger.close()
    return sum(answer.amount for answer in answers)
