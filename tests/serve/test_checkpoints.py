"""The log goes back into the file while others write, and does not grow for ever."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from small_ledgers import proposal

from outlay.serve.ledger import sqlite
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.sqlite import SqliteLedger
from patience import PATIENCE, wait_until

PAGE = 4096  # bytes


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteLedger:
    monkeypatch.setattr(sqlite, "EVERY", 0.005)
    monkeypatch.setattr(sqlite, "LONG", 20)
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger._writer.execute("pragma synchronous = off")
    ledger.set_caps("coupons", Caps())
    return ledger


def write(ledger: SqliteLedger, name: str, rows: int = 20) -> None:
    ledger.record([proposal(f"{name} {i}", features="x" * 1000) for i in range(rows)])


def log(ledger: SqliteLedger) -> int:
    return ledger.path.with_name("ledger.db-wal").stat().st_size // PAGE


def test_a_log_that_is_written_to_again_and_again_stays_short(ledger: SqliteLedger) -> None:
    sizes = []
    for group in range(20):
        write(ledger, str(group), 80)
        wait_until(lambda: ledger._checkpoints._long)
        sizes.append(log(ledger))
    ledger.close()
    assert sizes[0] > 20
    assert sizes[-1] < 3 * sizes[0]  # though twenty groups went through it


def test_what_was_written_reaches_the_file_without_another_commit(ledger: SqliteLedger) -> None:
    before = ledger.path.stat().st_size
    write(ledger, "r")
    wait_until(lambda: ledger.path.stat().st_size > before)
    ledger.close()


def test_a_reader_holds_no_commit_up_and_sees_one_moment(ledger: SqliteLedger) -> None:
    write(ledger, "before")
    with ledger._reading() as reader:
        count = "select count(*) from decision"
        assert reader.read(count) == [(20,)]
        for group in range(20):
            began = time.monotonic()
            write(ledger, str(group))
            assert time.monotonic() - began < PATIENCE  # the ledger itself would wait for longer
        assert reader.read(count) == [(20,)]
    assert ledger.check() == []
    ledger.close()


def test_a_closed_ledger_leaves_one_file(ledger: SqliteLedger) -> None:
    write(ledger, "r")
    ledger.close()
    ledger.close()
    assert [path.name for path in ledger.path.parent.iterdir()] == ["ledger.db"]
