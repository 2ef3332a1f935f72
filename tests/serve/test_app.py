"""Requests over HTTP get decisions that the ledger has, or a clear refusal."""

from __future__ import annotations

import asyncio
import datetime
import math
import random
import re
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from small_servers import STATE, Client, request, server
from stopwatch import Stopwatch

from outlay.bundles.decide import Bundle
from outlay.serve import log_format
from outlay.serve.config import ServeConfig
from outlay.serve.handlers import commit
from patience import PATIENCE, wait_until

CAMPAIGN = "coupons"


@pytest.fixture
def client(bundle: Bundle, tmp_path: Path) -> Iterator[Client]:
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}, limits={"batch": 20}) as client:
        yield client


def post(client: Client, body: Any, path: str = "/v1/decisions", status: int = 200) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_decision_is_the_bundles(client: Client, bundle: Bundle) -> None:
    for number in range(20):
        found = post(client, request(number, time=1_795_290_044))
        (wanted,) = bundle.decide({"user_id": [f"user-{number}"]} | {k: [v] for k, v in STATE.items()}).to_pylist()
        (row,) = (row for row in client.service.ledger.rows(CAMPAIGN, 0, 2**62) if row.request_id == f"r{number}")
        assert found.pop("decision_id") == row.decision_id
        expires = datetime.datetime.fromtimestamp(row.expires / 1000, datetime.UTC)
        assert found == {
            "action": wanted["action"],
            "action_index": wanted["action_index"],
            "member": wanted["member"],
            "probability": wanted["probability"],
            "bundle": bundle.id,
            "reason": "policy",
            "arm": "policy",
            "state": "reserved" if wanted["action"] else "none",
            "expires_at": expires.isoformat().replace("+00:00", "Z") if wanted["action"] else None,
        }


def test_many_requests_get_their_answers_in_order(client: Client) -> None:
    alone = [post(client, request(number)) for number in range(10)]
    asked = [request(number) for number in (3, 1, 9, 11)]
    found = post(client, {"requests": asked})["decisions"]
    assert found[:3] == [alone[3], alone[1], alone[9]]
    assert found[3]["reason"] == "policy"
    assert post(client, {"requests": []}) == {"decisions": []}


def test_a_retry_gets_the_stored_answer_and_another_body_a_conflict(client: Client) -> None:
    first = post(client, request(1))
    assert post(client, request(1)) == first
    other = client.post("/v1/decisions", json=request(1, user_id="other"))
    assert other.status_code == 409
    assert "'r1' belongs to another request" in other.json()["error"]
    one, two, three = post(client, {"requests": [request(2), request(1, user_id="x"), request(2)]})["decisions"]
    assert one == three
    assert two["where"] == "$.requests[1].request_id"
    reserved = client.service.ledger.totals(CAMPAIGN).total.reserved
    assert reserved == round(100 * (first["action"] + one["action"]))


def test_one_user_has_many_spellings_of_a_number(client: Client) -> None:
    for number, user in enumerate((3, 3.0, "3")):
        post(client, request(number, user_id=user))
    assert {row.user for row in client.service.ledger.rows(CAMPAIGN, 0, 2**62)} == {"3"}


@pytest.mark.parametrize(
    ("given", "kept"), [("2026-11-21T10:00:00+01:00", "2026-11-21T10:00:00+01:00"), (20_000, "20000"), (1.5, "1.5")]
)
def test_the_time_of_a_request_is_kept_as_it_was_given(client: Client, given: Any, kept: str) -> None:
    post(client, request(1, time=given))
    (row,) = client.service.ledger.rows(CAMPAIGN, 0, 2**62)
    assert row.time == kept


def test_many_clients_at_once_share_transactions_and_never_pass_the_cap(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", caps={"total": 30}) as client:
        asked = [request(i % 50, eligible=[3]) for i in range(100)]  # every request twice
        found = [answer.json() for answer in client.post_together("/v1/decisions", asked)]
        assert found[:50] == found[50:]
        assert sum(answer["action"] for answer in found[:50]) == 30
        groups = client.get("/metrics").text.split("outlay_ledger_commit_seconds_count ")[1].split()[0]
        assert float(groups) < 20
        assert client.service.ledger.check() == []


def test_the_ledger_keeps_what_was_decided(client: Client, bundle: Bundle) -> None:
    found = post(client, request(7))
    (row,) = client.service.ledger.rows(CAMPAIGN, 0, 2**62)
    assert (row.decision_id, row.user, row.episode, row.bundle) == (found["decision_id"], "user-7", CAMPAIGN, bundle.id)
    assert row.amount == round(100 * found["action"])
    assert row.features == '{"level":1,"city":"Ulm","spend":12.5}'
    assert row.members.startswith('{"members":[')
    assert row.time is None
    assert row.expires - row.ts == 24 * 3_600_000
    assert client.service.ledger.check() == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"caps": {"total": 6}}, "total_cap"),
        ({"caps": {"day": 6}}, "day_cap"),
        ({"caps": {"policy": 6}}, "arm_cap"),
        ({"random": {"share": 1, "cap": 6}}, "arm_cap"),
    ],
)
def test_no_cap_is_passed_and_the_rest_get_none(
    bundle: Bundle, tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    with server(bundle, tmp_path / "ledger.db", **settings) as client:
        found = post(client, {"requests": [request(i) for i in range(60)]})["decisions"]
        assert 3 < sum(answer["action"] for answer in found) <= 6
        refused = [answer for answer in found if answer["reason"] == reason]
        assert refused
        assert {(a["action"], a["action_index"], a["probability"]) for a in refused} == {(0.0, 0, 1.0)}
        assert client.service.ledger.totals(CAMPAIGN).total.reserved <= 600


def test_limits_of_a_user_are_kept(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", user={"decisions_per_day": 1}, random={"share": 1}) as client:
        asked = [request(i, user_id=i % 2, eligible=[1.5]) for i in range(6)]
        found = post(client, {"requests": asked})["decisions"]
        assert [answer["reason"] for answer in found] == ["random"] * 2 + ["user_limit"] * 4


def test_guards_that_need_no_counter_give_none(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", values={"at_most": 1.0}, fallback=3.0) as client:
        assert post(client, request(1, eligible=[3]))["reason"] == "value_limit"
        assert post(client, request(2, eligible=[]))["reason"] == "not_eligible"
        assert post(client, request(3, eligible=[0]))["reason"] == "policy"
        assert post(client, request(4, features={}))["reason"] == "value_limit"
        rows = list(client.service.ledger.rows(CAMPAIGN, 0, 2**62))
        assert [(row.action, row.amount, row.forced) for row in rows] == [
            (0.0, 0, row.reason != "policy") for row in rows
        ]


@pytest.mark.parametrize(
    ("body", "error", "way_out"),
    [
        ({"request_id": "a", "user_id": "b"}, "the field 'features' is missing.", "Add 'features'."),
        (request(1, more=1), "the field 'more' is unknown.", "Leave 'more' out."),
        (request(1, request_id="a\nb"), "the text holds a control character, such as a line break.", "Leave it out."),
        (request(1, user_id=True), "Expected `int | float | str`, got `bool`.", "GET /openapi.json"),
    ],
)
def test_a_request_that_is_none_says_the_way_out(client: Client, body: Any, error: str, way_out: str) -> None:
    told = client.post("/v1/decisions", json=body).json()
    assert told["error"] == error
    assert told["way_out"].startswith(way_out)


def test_an_absent_feature_gets_the_fallback_and_is_logged_once(
    bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with server(bundle, tmp_path / "ledger.db", fallback=1.5) as client:
        found = post(client, request(1, features={"level": 1}))
        assert (found["action"], found["reason"], found["probability"]) == (1.5, "missing_features", 1.0)
        assert post(client, request(3, features={"level": 1}))["reason"] == "missing_features"
        assert sum("lack the feature 'city'" in line for line in caplog.messages) == 1
        assert post(client, request(2, features=dict.fromkeys(STATE)))["reason"] == "policy"
        assert 'outlay_absent_features_total{feature="city"} 2.0' in client.get("/metrics").text


def test_without_a_ledger_the_answer_is_none_and_a_retry_is_served(client: Client) -> None:
    ledger: Any = client.service.ledger
    ledger.broken = True
    found = post(client, request(1, eligible=[3]), status=503)
    assert (found["decision_id"], found["action"], found["reason"]) == (None, 0.0, "ledger_unavailable")
    assert post(client, {"requests": [request(1, eligible=[3])] * 2}, status=503) == {"decisions": [found] * 2}
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/metrics").status_code == 200
    outcome = {"decision_id": "0" * 32, "kind": "redeemed", "event_id": "e"}
    assert client.post("/v1/outcomes", json=outcome).status_code == 503
    ledger.broken = False
    assert post(client, request(1, eligible=[3]))["action"] == 3.0


def test_many_requests_without_a_ledger_do_not_fill_the_log(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_format, "REPEAT", PATIENCE)  # seconds, and twenty answers may take some
    caplog.handler.addFilter(log_format.RepeatFilter())
    ledger: Any = client.service.ledger
    ledger.broken = True
    for number in range(20):
        assert post(client, request(number), status=503)["reason"] == "ledger_unavailable"
    assert 1 <= len(re.findall(r"decisions .*: the disk is full\.", caplog.text)) < 5
    meters = client.get("/metrics").text
    assert "\noutlay_ledger_errors_total 20.0\n" in meters
    assert '\noutlay_refused_requests_total{status="503"} 20.0\n' in meters


def test_a_model_that_fails_for_everybody_does_not_fill_the_log(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_values: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(log_format, "REPEAT", PATIENCE)
    caplog.handler.addFilter(log_format.RepeatFilter())
    monkeypatch.setattr(Bundle, "choices", broken)
    for number in range(20):
        assert post(client, request(number))["reason"] == "model_error"
    assert 1 <= caplog.text.count("ZeroDivisionError: a bug") < 5


class Stall:
    """Holds up whoever writes to a server's ledger; for those who wait, an hour passes as soon as it does.

    Attributes:
        watch: by which they wait.
        begun: set while somebody is held up.
        go: lets them go on; set at first.
    """

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.watch, self.begun, self.go = Stopwatch(), threading.Event(), threading.Event()
        self.go.set()
        self.hours = 1.0
        self._client = client
        self._record = client.service.ledger.record
        monkeypatch.setattr(commit, "time", self.watch)
        monkeypatch.setattr(client.service.ledger, "record", self._slowly)

    def _slowly(self, group: Any) -> Any:
        if not self.go.is_set():
            self.watch.now += 3600 * self.hours
            self.begun.set()
            assert self.go.wait(PATIENCE)
            self.begun.clear()
        return self._record(group)

    def end(self) -> None:
        """Let them go on, and wait until all is written."""
        self.go.set()
        wait_until(lambda: self._client.service.decisions._group._oldest == math.inf)


def test_a_ledger_that_takes_too_long_is_not_waited_for_and_a_retry_tells_what_it_wrote(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(bundle, tmp_path / "ledger.db", ledger_seconds=0.05) as client:
        stall = Stall(client, monkeypatch)
        stall.go.clear()
        found = client.post("/v1/decisions", json=request(1))
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
        assert "not known yet" in found.json()["error"]
        assert "same ids" in found.json()["way_out"]
        assert stall.begun.is_set()
        stall.end()
        (row,) = client.service.ledger.rows(CAMPAIGN, 0, 2**62)
        assert post(client, request(1))["decision_id"] == row.decision_id


def test_none_is_never_the_answer_where_an_incentive_is_written(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that needs about as long as anybody waits; asked until every end has been seen."""
    with server(bundle, tmp_path / "ledger.db", ledger_seconds=0.1) as client:
        ledger: Any = client.service.ledger
        record, watch, rng = ledger.record, Stopwatch(), random.Random(0)

        def slowly(group: Any) -> Any:
            watch.now += rng.uniform(0.0, 0.1)
            time.sleep(0.03)
            watch.now += rng.uniform(0.0, 0.1)
            return record(group)

        monkeypatch.setattr(commit, "time", watch)
        monkeypatch.setattr(ledger, "record", slowly)
        given, none, undecided = set[str](), set[str](), set[str]()

        def every_end(first: int) -> bool:
            asked = [request(i, eligible=[3]) for i in range(first, first + 80)]
            for body, answer in zip(asked, client.post_together("/v1/decisions", asked, every=0.005), strict=True):
                end = given if answer.status_code == 200 else none if "decision_id" in answer.json() else undecided
                end.add(body["request_id"])
            return min(map(len, (given, none, undecided))) > 0

        firsts = count(0, 80)
        wait_until(lambda: every_end(next(firsts)))
        wait_until(lambda: client.service.decisions._group._oldest == math.inf)
        written = {row.request_id for row in ledger.rows(CAMPAIGN, 0, 2**62)}
        assert given <= written
        assert not none & written


def test_a_retry_is_not_told_none_for_good_while_the_first_try_is_in_the_ledger(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(bundle, tmp_path / "ledger.db", ledger_seconds=0.1) as client:
        stall, ledger = Stall(client, monkeypatch), client.service.ledger
        again = request(1, eligible=[3])
        stall.go.clear()
        tries = [client.post("/v1/decisions", json=again)]  # is being written
        tries.append(client.post("/v1/decisions", json=again))  # is refused at once
        stall.end()
        (row,) = ledger.rows(CAMPAIGN, 0, 2**62)

        async def ask_behind_another(http: httpx.AsyncClient) -> httpx.Response:
            other = asyncio.create_task(http.post("/v1/decisions", json=request(2)))
            while not stall.begun.is_set():
                await asyncio.sleep(0.001)
            behind = asyncio.create_task(http.post("/v1/decisions", json=again))
            while len(client.service.decisions._group._waiting) < 2:
                await asyncio.sleep(0.001)
            stall.watch.now += 3600
            found = await behind
            await other
            return found

        stall.hours = 0.0
        stall.go.clear()
        tries.append(client.play(ask_behind_another))  # waits in line until it is withdrawn
        stall.end()
        monkeypatch.setattr(ledger, "broken", True)
        tries.append(client.post("/v1/decisions", json=again))
        monkeypatch.setattr(ledger, "broken", False)
        assert [(answer.status_code, answer.headers["retry-after"]) for answer in tries] == [(503, "1")] * 4
        assert [answer.json().get("action") for answer in tries] == [None, 0.0, 0.0, 0.0]
        found = post(client, again)
        assert (found["decision_id"], found["action"]) == (row.decision_id, 3.0)


def test_a_server_that_may_only_read_is_not_ready(client: Client) -> None:
    ledger: Any = client.service.ledger
    for only, status in (("off", 200), ("on", 503), ("off", 200)):
        ledger._writer.execute(f"pragma query_only = {only}")
        found = client.get("/v2/health/ready")
        assert (found.status_code, found.json().get("ready")) == (status, status == 200 or None)
    assert client.get("/v2/health/live").status_code == 200


def test_many_who_look_at_a_ledger_that_hangs_take_one_thread(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    touched, go = list[int](), threading.Event()

    def hangs(_campaign: str) -> None:
        touched.append(1)
        assert go.wait(PATIENCE)

    monkeypatch.setattr(client.service.ledger, "touch", hangs)
    monkeypatch.setattr(client.service.state, "config", ServeConfig(ledger_seconds=0.05))
    assert [client.get("/v2/health/ready").status_code for _ in range(4)] == [503] * 4
    assert len(touched) == 1
    go.set()


BAD = [
    (b"{", 400, None),
    (b"", 400, None),
    (b'{"request_id":NaN}', 400, None),
    (b"[1]", 422, "$"),
    (b'{"request_id":"a"}', 422, "$"),
    (request(1, more=1), 422, "$"),
    (request(1, request_id=""), 422, "$.request_id"),
    (request(1, request_id="a\nb"), 422, "$.request_id"),
    (request(1, request_id="a" * 1000), 422, "$.request_id"),
    (request(1, user_id=True), 422, "$.user_id"),
    (request(1, user_id=2**70), 422, "$.user_id"),
    (request(1, user_id="NA"), 422, "$.user_id"),
    (request(1, time="now\n"), 422, "$.time"),
    (request(1, features=[]), 422, "$.features"),
    (request(1, features={**STATE, "level": [1]}), 422, "$.features.level"),
    (request(1, features={**STATE, "spend": "much"}), 422, "$.features.spend"),
    (request(1, eligible=[1.5, 2]), 422, "$.eligible[1]"),
    (request(1, eligible=1.5), 422, "$.eligible"),
    (request(1, eligible=[1.5] * 1_001), 422, "$.eligible"),
    (request(1, user_id=1e300), 422, "$.user_id"),
    ({"requests": [request(1), request(2, user_id=None)]}, 422, "$.requests[1].user_id"),
    ({"requests": [request(1), request(2, features={**STATE, "spend": {}})]}, 422, "$.requests[1].features.spend"),
    ({"requests": [request(1), request(2, features={**STATE, "spend": "x"})]}, 422, "$.requests[1].features.spend"),
    ({"requests": 3}, 422, "$.requests"),
    ({"requests": [], "more": 1}, 422, "$"),
    ({"requests": [request(i) for i in range(21)]}, 422, "$.requests"),
]


@pytest.mark.parametrize(("body", "status", "where"), BAD)
def test_bad_requests_are_refused_with_their_place_and_spend_nothing(
    client: Client, body: Any, status: int, where: str | None
) -> None:
    how: Any = (
        {"content": body, "headers": {"Content-Type": "application/json"}}
        if isinstance(body, bytes)
        else {"json": body}
    )
    found = client.post("/v1/decisions", **how)
    assert (found.status_code, found.json().get("where")) == (status, where)
    assert found.json()["error"]
    assert list(client.service.ledger.rows(CAMPAIGN, 0, 2**62)) == []


def test_large_and_unnamed_bodies_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", limits={"body_bytes": 300}) as client:
        assert client.post("/v1/decisions", json=request(1, user_id="u" * 250)).status_code == 413
        assert client.post("/v1/decisions", json=request(1)).status_code == 200
        plain = client.post("/v1/decisions", content=b"{}", headers={"Content-Type": "text/plain"})
        assert plain.status_code == 415
        spelt = client.post("/v1/decisions", content=b"{}", headers={"Content-Type": "Application/JSON; charset=utf-8"})
        assert spelt.status_code == 422
        assert client.get("/v1/decisions").status_code == 405
        assert client.get("/nowhere").json() == {"error": "Not Found."}
