"""A ledger behind a real PgBouncer that pools transactions: two sessions for everyone, given to whoever comes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from small_frozen import awake, frozen, stands_still
from small_ledgers import CLOCK, new_url, outcome, proposal
from small_processes import free_port

from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.postgres import PostgresLedger
from patience import PATIENCE, wait_until

pytestmark = pytest.mark.slow
SETTINGS = """
[databases]
{name} = host={host} user=postgres dbname={name}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
"""


@pytest.fixture
def pooled(tmp_path: Path) -> Iterator[str]:
    """The place of a new ledger behind PgBouncer."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    found, port = conninfo_to_dict(new_url("postgres", tmp_path)), free_port()
    settings = tmp_path / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(name=found["dbname"], host=found["host"], port=port))
    command = [program, "--quiet", str(settings)]
    if os.geteuid() == 0:  # as whom PgBouncer does not run
        settings = Path(shutil.copy(settings, str(found["host"])))
        command = [program, "--quiet", "--user", Path(str(found["host"])).owner(), str(settings)]
    with (tmp_path / "pgbouncer.txt").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        url = f"postgresql://outlay@127.0.0.1:{port}/{found['dbname']}"
        _wait_for(url, process, tmp_path / "pgbouncer.txt")
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _wait_for(url: str, process: subprocess.Popen[bytes], said: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, said.read_text()
        with suppress(psycopg.OperationalError):
            psycopg.connect(url).close()
            return True
        return False

    wait_until(answers)


def test_servers_share_a_ledger_behind_a_pooler_and_leave_nothing_in_its_sessions(pooled: str) -> None:
    with closing(PostgresLedger(pooled)) as one, closing(PostgresLedger(pooled)) as two:
        one.set_caps("coupons", Caps(total=10_000, user_offers=3))

        def play(number: int) -> int:
            ledger = (one, two)[number % 2]
            [answer] = ledger.record([proposal(f"r{number}", user=f"u{number}")])
            [settled] = ledger.outcomes([outcome(answer.decision_id)])
            return int(settled.amount + len(ledger.notes("coupons", "caps")))

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(play, range(40))) == [101] * 40
        assert len(list(two.rows("coupons", CLOCK - 1, CLOCK + 1))) == 40
        assert one.totals("coupons").total.settled == 4_000
        assert one.check() == []
    for _ in range(4):
        with psycopg.connect(pooled, prepare_threshold=None) as stranger:
            for name, wanted in (
                ("search_path", '"$user", public'),
                ("enable_seqscan", "on"),
                ("jit", "on"),
                ("idle_in_transaction_session_timeout", "0"),
                ("lock_timeout", "0"),
            ):
                assert stranger.execute(f"show {name}".encode()).fetchall() == [(wanted,)]


def test_a_server_that_stands_still_behind_a_pooler_loses_its_lock(pooled: str) -> None:
    with closing(PostgresLedger(pooled)) as ledger:
        ledger.set_caps("coupons", Caps(total=10_000))
        with frozen(pooled) as process:
            assert ledger.record([proposal("other")])[0].status == "new"
            assert stands_still(process)
            assert awake(process) == ["nothing", "new"]
        assert ledger.totals("coupons").total.reserved == 200
        assert ledger.check() == []
