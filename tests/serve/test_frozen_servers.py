"""A server that stands still in the middle of a transaction: SIGSTOP, a debugger, a paused machine."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import ledger_waits
import psutil  # type: ignore[import-untyped]
import psycopg
import pytest
from small_frozen import awake, frozen, stands_still
from small_ledgers import new_url, proposal
from small_processes import RESERVES, outlay_serve
from small_servers import request, server

from outlay.bundles.decide import Bundle
from outlay.serve.config import ServeConfig
from outlay.serve.ledger import postgres, sqlite
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.sqlite import SqliteLedger
from patience import wait_until


def _ledger(url: str) -> Ledger:
    ledger = open_ledger(url)
    ledger.set_caps("coupons", Caps(total=10_000))
    return ledger


@pytest.mark.slow
@pytest.mark.parametrize("what", ["record", "caps"])
def test_postgres_takes_the_lock_from_a_server_that_stands_still(tmp_path: Path, what: str) -> None:
    url = new_url("postgres", tmp_path)
    ledger = _ledger(url)
    with frozen(url, what) as process:
        assert ledger.record([proposal("other")])[0].status == "new"
        ledger.touch("coupons")
        ledger.pause("coupons")
        ledger.resume("coupons")
        assert stands_still(process)
        assert ledger.totals("coupons").total.reserved == 100
        assert awake(process) == ["nothing", "new"]  # never what its lost transaction would have answered
        assert ledger.totals("coupons").total.reserved == 200
        assert ledger.check() == []
    ledger.close()


def test_a_file_stays_with_a_process_that_stands_still_and_every_other_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url("sqlite", tmp_path)
    ledger = _ledger(url)
    with frozen(url) as process:
        monkeypatch.setattr(sqlite, "WAIT", 0.1)
        with pytest.raises(LedgerError, match=r"another process .*writing"):
            ledger.touch("coupons")
        with pytest.raises(LedgerError, match=r"another process .*writing"):
            ledger.record([proposal("other")])
        assert ledger.totals("coupons").total.reserved == 0
        assert awake(process) == ["new", "replay"]
    monkeypatch.undo()
    ledger.touch("coupons")
    assert ledger.record([proposal("other")])[0].status == "new"
    assert ledger.totals("coupons").total.reserved == 200
    assert isinstance(ledger, SqliteLedger)
    ledger.close()


@pytest.mark.slow
def test_a_session_of_somebody_else_that_is_left_open_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url("postgres", tmp_path)
    ledger = _ledger(url)
    monkeypatch.setattr(postgres, "_WRITE", re.sub(r"(lock_timeout) = '\d+s'", r"\1 = '100ms'", postgres._WRITE))
    with psycopg.connect(url) as stranger:
        stranger.execute("select * from outlay.campaign for update")
        with pytest.raises(LedgerError, match=r"another session .*lock .*pg_stat_activity"):
            ledger.touch("coupons")
    ledger.touch("coupons")
    ledger.close()


def test_readiness_says_what_keeps_decisions_from_being_written(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits no longer than a decision; what the write before it found out, it tells."""
    with server(bundle, tmp_path / "ledger.db") as client, closing(sqlite3.connect(tmp_path / "ledger.db")) as other:
        assert client.get("/v2/health/ready").status_code == 200
        other.execute("begin immediate")
        monkeypatch.setattr(sqlite, "WAIT", 1.0)
        monkeypatch.setattr(client.service.state, "config", ServeConfig(ledger_seconds=0.05))

        def told() -> bool:
            refused = client.get("/v2/health/ready")
            assert refused.status_code == 503
            return "another process has been writing to it" in refused.text

        wait_until(told)
        other.rollback()
        monkeypatch.undo()
        wait_until(lambda: client.get("/v2/health/ready").status_code == 200)


@pytest.mark.slow
def test_one_server_that_stands_still_does_not_stop_the_campaign(bundle: Bundle, tmp_path: Path) -> None:
    """Stopped under load, in a transaction that holds the campaign: the other goes on, and so does it afterwards."""
    url = new_url("postgres", tmp_path)
    limits = {"outlay.serve.ledger.postgres:_WRITE": ledger_waits.WRITE}
    config = f"ledger_seconds = 1{RESERVES}"  # an answer may be 503 at any time
    with (
        outlay_serve(bundle.folder, url, tmp_path, "--cap", "60", config=config, limits=limits) as one,
        outlay_serve(bundle.folder, url, tmp_path, "--cap", "60", config=config) as two,
        psycopg.connect(url, autocommit=True) as database,
    ):

        def holds() -> bool:
            sql = b"""select 1 from pg_locks join pg_stat_activity using (pid)
                where state = 'idle in transaction' and locktype = 'transactionid' and granted"""
            return database.execute(sql).fetchone() is not None

        def again(server: str) -> bool:
            answer = {"one": one, "two": two}[server].post("/v1/decisions", request(1, eligible=[3]))
            assert answer.status_code in {200, 503}, answer.text
            return answer.status_code == 200

        wait_until(lambda: again("one"))
        with ExitStack() as stack:
            stack.callback(lambda: psutil.Process(one.popen.pid).resume())
            asking = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", _ASKS, one.url], stderr=subprocess.DEVNULL)
            )
            stack.callback(asking.kill)

            def caught() -> bool:
                psutil.Process(one.popen.pid).suspend()
                with suppress(AssertionError):
                    if _soon(holds):
                        return True
                psutil.Process(one.popen.pid).resume()
                return False

            wait_until(caught)
            asking.kill()
            wait_until(lambda: again("two"))
            wait_until(lambda: two.post("/v1/admin/pause", None).status_code == 200)
            wait_until(lambda: two.get("/v2/health/ready").status_code == 200)
            assert psutil.Process(one.popen.pid).status() == psutil.STATUS_STOPPED
        wait_until(lambda: two.post("/v1/admin/resume", None).status_code == 200)
        wait_until(lambda: again("one"))
        wait_until(lambda: one.get("/v2/health/ready").status_code == 200)
        ledger = open_ledger(url)
        assert ledger.totals("coupons").total.reserved <= 6000
        assert ledger.check() == []
        ledger.close()


_ASKS = """
import itertools, sys
import httpx
with httpx.Client(base_url=sys.argv[1], headers={"Authorization": "Bearer secret"}, trust_env=False) as http:
    for number in itertools.count(1000):
        body = {"request_id": f"r{number}", "user_id": number, "features": {"level": 1, "city": "Ulm", "spend": 12.5}}
        http.post("/v1/decisions", json=body, timeout=600)
"""


def _soon(look: Callable[[], bool]) -> bool:
    """Whether it is so, twice: a moment is not enough."""
    return look() and look()
