"""Two real servers on one real PostgreSQL: one campaign, one budget, one memory; PostgreSQL may go and come back."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from small_ledgers import new_database, postgres_or_skip
from small_processes import CONFIG, RESERVES, Process, all_workers, outlay_serve, workers
from small_servers import request

from outlay.bundles.decide import Bundle
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.ledger import Ledger, LedgerError
from own_postgres import OwnPostgres
from patience import wait_until

CAMPAIGN = "coupons"
EVER = 2**47
Pair = tuple[Process, Process, Ledger]
pytestmark = pytest.mark.slow


@contextmanager
def standing_still(server: OwnPostgres) -> Iterator[None]:
    """It holds its connections, and does nothing."""
    family = server.processes
    for process in family:
        process.suspend()
    try:
        yield
    finally:
        for process in family:
            process.resume()


@pytest.fixture(scope="module")
def database() -> Iterator[OwnPostgres]:
    """A PostgreSQL that may be killed without harm to other tests."""
    found = postgres_or_skip()
    yield found
    found.close()


@pytest.fixture
def url(database: OwnPostgres) -> str:
    """The place of a new ledger."""
    database.start()
    return new_database(database)


@pytest.fixture
def start(bundle: Bundle, tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    """Starts two servers on a ledger, whose cap is 60; at the end they stop in order and the ledger is whole."""
    with ExitStack() as stack:

        def pair(url: str, config: str = CONFIG) -> Pair:
            one, two = (
                stack.enter_context(outlay_serve(bundle.folder, url, tmp_path, "--cap", "60", config=config))
                for _ in range(2)
            )
            for process in (one, two):
                wait_until(lambda process=process: _ready(process))  # type: ignore[misc]
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


def _ready(server: Process) -> bool:
    return server.get("/v2/health/ready").status_code == 200


def _again(server: Process, body: Any) -> Any:
    """The answer, or None while the ledger is away."""
    answer = server.post("/v1/decisions", body)
    assert answer.status_code in {200, 503}, answer.text
    return answer.json() if answer.status_code == 200 else None


def test_two_servers_share_answers_outcomes_pause_and_caps_and_give_the_cap_and_no_more(
    url: str, start: Callable[..., Pair]
) -> None:
    one, two, ledger = start(url)
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

    assert two.post("/v1/admin/caps", {"total": 59}).status_code == 200
    requests = [(server, request(1000 + i, eligible=[3])) for i in range(40) for server in (one, two)]  # each at both
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: pair[0].decide(pair[1]), requests))
    assert found[::2] == found[1::2]
    assert sum(answer["action"] for answer in found[::2]) == 51  # and 8 before
    assert {answer["reason"] for answer in found} == {"policy", "total_cap"}
    total = ledger.totals(CAMPAIGN).total
    assert (total.reserved, total.settled) == (5700, 200)


def event_answer(event: dict[str, Any]) -> dict[str, Any]:
    return {key: event[key] for key in ("decision_id", "kind", "event_id")} | {
        "status": "settled",
        "amount": 2.0,
        "excess": 0.0,
    }


def test_a_postgres_that_is_killed_is_missed_and_used_again(
    database: OwnPostgres, url: str, start: Callable[..., Pair]
) -> None:
    one, two, ledger = start(url)
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
        wait_until(lambda server=server: _ready(server))  # type: ignore[misc]
    assert {i: two.decide(request(i, eligible=[3])) for i in range(4)} == kept
    assert one.decide(request(10, eligible=[3]))["reason"] == "policy"
    assert two.post("/v1/outcomes", event).json()["status"] == "settled"
    reasons = [server.decide(request(20 + i, eligible=[3]))["reason"] for i in range(20) for server in (one, two)]
    assert reasons == ["policy"] * 30 + ["total_cap"] * 10
    assert len(list(ledger.rows(CAMPAIGN, 0, EVER))) == 25


def test_a_postgres_that_stands_still_is_not_waited_for(
    database: OwnPostgres, url: str, start: Callable[..., Pair]
) -> None:
    one, two, ledger = start(url, f"ledger_seconds = 1{RESERVES}")  # may be too short for an answer at any time

    def answer(server: Process, number: int) -> Any:
        return wait_until(lambda: _again(server, request(number, eligible=[3])))

    first = answer(one, 1)
    with standing_still(database):

        def refuses(server: Process) -> None:
            undecided = server.post("/v1/decisions", request(2, eligible=[3]))  # it was sent
            assert (undecided.status_code, undecided.headers["retry-after"]) == (503, "1")
            assert server.get("/v2/health/ready").status_code == 503
            assert server.get("/v2/health/live").status_code == 200

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(refuses, (one, two)))
    for server in (one, two):
        assert answer(server, 1) == first
        wait_until(lambda server=server: _ready(server))  # type: ignore[misc]
        assert answer(server, 2)["reason"] == "policy"
    assert ledger.totals(CAMPAIGN).total.reserved == 600


def test_a_worker_that_is_replaced_while_postgres_is_away_waits_for_it(
    database: OwnPostgres, url: str, bundle: Bundle, tmp_path: Path
) -> None:
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
    database.start()
    url = new_database(database, f"encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'")
    with pytest.raises(LedgerError, match="UTF8"):
        open_ledger(url)
