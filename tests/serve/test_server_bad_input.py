"""Whatever comes in, or breaks below: a clear refusal or a guarded answer, nothing lost, nothing spent twice."""

from __future__ import annotations

import json
import resource
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_processes import TOKEN, Process, outlay_serve
from small_servers import ADMIN, STATE, Client, request, server

from outlay.bundles.decide import Bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.serve.clock import Clock
from outlay.serve.ledger.backends import open_ledger
from patience import PATIENCE, wait_until

CAMPAIGN = "coupons"
DAY = 86_400
NOW = 1_795_290_044.0
JSON = {"Content-Type": "application/json"}
EVER = 2**47


@pytest.fixture
def client(bundle: Bundle, tmp_path: Path) -> Iterator[Client]:
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}) as client:
        yield client


def rows(client: Client) -> list[Any]:
    return list(client.service.ledger.rows(CAMPAIGN, 0, EVER))


DEEP = b"[" * 100_000
START = b'{"request_id":"a","user_id":1,"features":'


@pytest.mark.parametrize(
    "body",
    [
        START + b'{"level":[1]}',
        START + b'{"level":[1]},"features":3}',
        START + b'{"level":[1]},"features":{"level":1}}',
        START + b'{"spend":1e400}}',
        START + b'{"spend":-1e999}}',
        START + b'{"spend":' + b"9" * 5000 + b"}}",
        START + b'{"spend":NaN}}',
        START + b'{"spend":Infinity}}',
        START + b'{"city":"\\ud800"}}',
        START + b'{"city":"\xff"}}',
        START + b"{}} {}",
        START + DEEP,
        START + b'{"city":' + DEEP,
        b'{"x":' + DEEP,
        b'{"requests":' + DEEP,
        b'{"requests":[' + START + b'{"city":' + DEEP,
        b"\xef\xbb\xbf{}",
        b"\0",
        DEEP,
    ],
)
@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/outcomes", "/v1/admin/caps", "/v1/admin/bundle"])
def test_bodies_that_are_hardly_json_are_refused(client: Client, path: str, body: bytes) -> None:
    found = client.post(path, content=body, headers=JSON | ADMIN)
    assert found.status_code in (400, 422)
    assert found.json()["error"]
    assert rows(client) == []


def test_a_batch_of_a_hundred_thousand_is_refused_whole(bundle: Bundle, tmp_path: Path) -> None:
    body = json.dumps({"requests": [request(i) for i in range(100_000)]}).encode()
    events = [{"decision_id": "0" * 32, "kind": "redeemed", "event_id": str(i)} for i in range(100_000)]
    for limits, status in (({}, 413), ({"body_bytes": 1 << 30}, 422)):
        with server(bundle, tmp_path / "ledger.db", limits=limits) as client:
            assert client.post("/v1/decisions", content=body, headers=JSON).status_code == status
            assert client.post("/v1/outcomes", json={"outcomes": events}).status_code == status
            assert client.post("/v1/decisions", json=request(1)).json()["reason"] == "policy"
            assert len(rows(client)) == 1


def test_a_category_that_nobody_knows_is_decided_as_unknown(client: Client, bundle: Bundle) -> None:
    states = [
        {"level": level, "city": city, "spend": 12.5} for level, city in ((9, "Rome"), ("", "x" * 5000), (1e308, True))
    ]
    for number, state in enumerate(states):
        found = client.post("/v1/decisions", json=request(number, features=state)).json()
        (wanted,) = bundle.decide({"user_id": [f"user-{number}"]} | {k: [v] for k, v in state.items()}).to_pylist()
        assert (found["reason"], found["action"]) == ("policy", wanted["action"])


def test_a_request_id_with_another_body_spends_nothing_more(client: Client) -> None:
    first = client.post("/v1/decisions", json=request(1, eligible=[3])).json()
    others = [
        request(1, eligible=[3], features=STATE | {"spend": 1}),
        request(1),
        request(1, eligible=[3], user_id="x"),
    ]
    answers = client.post_together("/v1/decisions", [*others, request(1, eligible=[3]), *others])
    assert [answer.status_code for answer in answers] == [409] * 3 + [200] + [409] * 3
    assert answers[3].json() == first
    assert client.service.ledger.totals(CAMPAIGN).total.reserved == 300


def test_requests_under_one_id_at_the_same_time_spend_once(client: Client) -> None:
    answers = client.post_together("/v1/decisions", [request(1, eligible=[3], user_id=i % 2) for i in range(40)])
    assert sorted(answer.status_code for answer in answers) == [200] * 20 + [409] * 20
    assert len({answer.json()["decision_id"] for answer in answers if answer.status_code == 200}) == 1
    assert client.service.ledger.totals(CAMPAIGN).total.reserved == 300


def test_outcomes_of_unknown_decisions_and_repeated_ones_move_nothing(client: Client) -> None:
    decision = client.post("/v1/decisions", json=request(1, eligible=[3])).json()["decision_id"]
    event = {"decision_id": decision, "kind": "redeemed", "event_id": "e", "value": 2}
    unknown = event | {"decision_id": decision[:-1] + ("0" if decision[-1] != "0" else "1")}
    again = event | {"event_id": "f"}
    answers = client.post_together("/v1/outcomes", [event, unknown, again, event | {"value": 1}] * 10)
    assert [answer.status_code for answer in answers] == [200, 404, 200, 409] * 10
    assert [answer.json()["status"] for answer in answers[::4]] == ["settled"] * 10
    assert [answer.json()["status"] for answer in answers[2::4]] == ["refused"] * 10
    total = client.service.ledger.totals(CAMPAIGN).total
    assert (total.reserved, total.settled) == (0, 200)
    assert client.service.ledger.check() == []


def test_a_decision_of_another_campaign_is_unknown(
    bundle: Bundle, tmp_path: Path, make_spec: Callable[..., BundleSpec]
) -> None:
    with server(bundle, tmp_path / "ledger.db") as client:
        decision = client.post("/v1/decisions", json=request(1, eligible=[3])).json()["decision_id"]
    spec = make_spec()
    meta = spec.campaign.meta.model_copy(update={"name": "other"})
    write_bundle(tmp_path / "other", replace(spec, campaign=spec.campaign.model_copy(update={"meta": meta})))
    with server(tmp_path / "other", tmp_path / "ledger.db", minor=1000) as client:
        event = {"decision_id": decision, "kind": "redeemed", "event_id": "e", "value": 0.3}
        assert client.post("/v1/outcomes", json=event).status_code == 404
        total = client.service.ledger.totals(CAMPAIGN).total
        assert (total.reserved, total.settled) == (300, 0)


def test_a_clock_that_goes_back_over_a_restart_opens_no_cap(bundle: Bundle, tmp_path: Path) -> None:
    reasons: list[list[str]] = []
    for moment in (NOW, NOW + DAY, NOW, NOW - 40 * DAY):
        clock = Clock("UTC", lambda moment=moment: moment)  # type: ignore[misc]
        with server(
            bundle, tmp_path / "ledger.db", clock=clock, caps={"day": 3, "total": 7}, expiry_hours=9999
        ) as client:
            asked = [request(10 * len(reasons) + i, eligible=[3]) for i in range(2)]
            reasons.append([client.post("/v1/decisions", json=body).json()["reason"] for body in asked])
            assert len(rows(client)) == 2 * len(reasons)
            assert client.service.ledger.check() == []
    assert reasons == [["policy", "day_cap"], ["policy", "day_cap"], ["day_cap", "day_cap"], ["total_cap", "total_cap"]]


def test_a_full_disk_is_guarded_and_what_was_answered_is_kept(bundle: Bundle, tmp_path: Path) -> None:
    """No file of the server may pass 400 KiB for a while: to SQLite that is a full disk."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with outlay_serve(bundle.folder, url, tmp_path, "--cap", "100000") as process:
        _, hard = resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (400 << 10, resource.RLIM_INFINITY))
        kept, refused = _decide_until_refused(process)
        told = _tell_until_refused(process, list(kept.values()))
        # The log begins anew after a while, which makes room once more: so none at all.
        resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (1 << 10, resource.RLIM_INFINITY))
        event = {"decision_id": next(iter(kept.values())), "kind": "redeemed", "event_id": "e"}
        assert process.post("/v1/outcomes", event).status_code == 503
        assert process.post("/v1/admin/pause", None).status_code == 503
        assert process.get("/v2/health/live").status_code == 200
        assert process.get("/v2/health/ready").status_code == 503
        resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert process.get("/v2/health/ready").status_code == 200
        found = process.decide(request(refused, eligible=[3], features=STATE | {"note": "x" * 2000}))
        assert found["reason"] == "policy"
        kept[f"r{refused}"] = found["decision_id"]
        assert process.post("/v1/outcomes", event).json()["status"] == "settled"
    ledger = open_ledger(url)
    stored = list(ledger.rows(CAMPAIGN, 0, EVER))
    assert {row.request_id: row.decision_id for row in stored} == kept
    found = {(row.decision_id, outcome.event_id) for row in stored for outcome, _ in row.outcomes}
    assert found == {*told, (event["decision_id"], "e")}
    assert ledger.check() == []
    ledger.close()


def _tell_until_refused(process: Process, decisions: list[str]) -> set[tuple[str, str]]:
    """An outcome is smaller than a decision, so some may still fit: decision and event of those that were kept."""
    kept: set[tuple[str, str]] = set()
    for number in range(2000):
        event = {"decision_id": decisions[number % len(decisions)], "kind": "active", "event_id": f"e{number}"}
        status = process.post("/v1/outcomes", event).status_code
        if status == 503:
            return kept
        assert status == 200
        kept.add((event["decision_id"], event["event_id"]))
    raise AssertionError("the disk never was full")


def _decide_until_refused(process: Process) -> tuple[dict[str, str], int]:
    kept: dict[str, str] = {}
    for number in range(2000):
        answer = process.post("/v1/decisions", request(number, eligible=[3], features=STATE | {"note": "x" * 2000}))
        found = answer.json()
        if answer.status_code == 503:
            assert (found["reason"], found["action"], found["decision_id"]) == ("ledger_unavailable", 0.0, None)
            return kept, number
        kept[f"r{number}"] = found["decision_id"]
    raise AssertionError("the disk never was full")


def test_a_ledger_that_is_taken_away_gives_nothing_more(bundle: Bundle, tmp_path: Path) -> None:
    """What is written into a deleted file is lost, so nothing may be given on it."""
    ledger = tmp_path / "ledger.db"
    with outlay_serve(bundle.folder, f"sqlite:///{ledger}", tmp_path, "--cap", "100") as process:
        assert process.decide(request(1, eligible=[3]))["reason"] == "policy"
        ledger.rename(tmp_path / "moved.db")
        refused = process.post("/v1/decisions", request(2, eligible=[3]))
        assert (refused.status_code, refused.json()["reason"]) == (503, "ledger_unavailable")
        assert process.get("/v2/health/ready").status_code == 503
        assert not ledger.exists()


def test_a_ledger_that_another_program_holds_is_not_waited_for(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%20&e='x'.db"  # whatever a file may be called
    with (
        server(bundle, path) as client,
        server(bundle, path, ledger_seconds=0.3) as other,
        closing(sqlite3.connect(path, timeout=PATIENCE)) as holder,
    ):
        assert client.post("/v1/decisions", json=request(1)).json()["reason"] == "policy"
        holder.execute("begin immediate")
        start = time.monotonic()
        assert other.post("/v1/decisions", json=request(2)).status_code == 503  # it may be written in a moment
        event = {"decision_id": "0" * 32, "kind": "active", "event_id": "e"}
        assert other.post("/v1/outcomes", json=event).status_code == 503
        assert other.get("/v2/health/ready").status_code == 503
        assert time.monotonic() - start < PATIENCE  # the ledger itself would wait for longer
        holder.execute("rollback")
        assert client.post("/v1/decisions", json=request(2)).json()["reason"] == "policy"
        assert len(rows(client)) == 2
        assert {file.name for file in tmp_path.iterdir()} <= {path.name, f"{path.name}-wal", f"{path.name}-shm"}


def test_clients_that_go_away_leave_no_traceback(bundle: Bundle, tmp_path: Path) -> None:
    with outlay_serve(bundle.folder, f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as process:
        for path in ("/v1/decisions", "/v1/outcomes", "/v1/admin/caps"):
            with _half_a_request(process, path):
                time.sleep(0.05)
        time.sleep(0.2)
        assert process.decide(request(1))["reason"] == "policy"
        assert "Traceback" not in process.said()


def test_a_client_that_never_ends_its_request_does_not_keep_the_server_alive(bundle: Bundle, tmp_path: Path) -> None:
    limits = {"outlay.serve.launch:UVICORN.timeout_graceful_shutdown": 1}
    with (
        outlay_serve(bundle.folder, f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path, limits=limits) as process,
        _half_a_request(process, "/v1/decisions"),
    ):
        time.sleep(0.2)
        process.popen.send_signal(signal.SIGTERM)
        wait_until(lambda: process.popen.poll() is not None)


def _half_a_request(process: Process, path: str) -> socket.socket:
    host, _, port = process.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer {TOKEN}\r\n"
    connection.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
    return connection
