"""Every route answers in JSON, is described in the OpenAPI document, and counts what it refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_servers import ADMIN, USE_TOKEN, Client, request, server

from outlay.bundles.decide import Bundle
from outlay.serve.http.routes import ENDPOINTS
from telling import missing

POSTS = {endpoint.path for endpoint in ENDPOINTS if endpoint.method == "POST"}


@pytest.fixture
def client(bundle: Bundle, tmp_path: Path) -> Iterator[Client]:
    with server(bundle, tmp_path / "ledger.db") as client:
        yield client


def refused(client: Client, status: int) -> bool:
    """Whether a request was counted as refused with this status."""
    return f'outlay_refused_requests_total{{status="{status}"}} 1.0' in client.get("/metrics").text


def test_the_document_describes_every_endpoint(client: Client) -> None:
    page = client.get("/openapi.json").json()["paths"]
    assert {path for path, methods in page.items() if "post" in methods} == POSTS
    assert {(path, method.upper()) for path, methods in page.items() for method in methods} == {
        (endpoint.path, endpoint.method) for endpoint in ENDPOINTS
    }
    asks = page["/v1/decisions"]["post"]
    assert asks["description"].startswith("Which incentive users get.")
    body = asks["requestBody"]["content"]["application/json"]["schema"]["oneOf"]
    assert [kind["$ref"].rsplit("/", 1)[1] for kind in body] == ["DecisionRequest", "DecisionRequests"]
    assert set(asks["responses"]) == {"200", "400", "409", "413", "415", "422", "503"}
    assert "requestBody" not in page["/v1/admin/pause"]["post"]


@pytest.mark.parametrize("path", sorted(POSTS))
def test_other_methods_are_refused_with_the_one_that_is_allowed(client: Client, path: str) -> None:
    answer = client.get(path, headers=ADMIN)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json() == {"error": "Method Not Allowed."}


def test_a_path_that_is_not_there_is_said(client: Client) -> None:
    assert client.post("/v1/decision", json=request()).json() == {"error": "Not Found."}


@pytest.mark.parametrize("path", ["/v1/decisions/", "/v2/health/ready/", "/docs/", "//evil.example/v1/decisions/"])
def test_nothing_is_sent_elsewhere(client: Client, path: str) -> None:
    """Not even to the host that a request claims to be for."""
    for method in ("GET", "POST"):
        answer = client.ask(method, f"http://server{path}", headers={"Host": "evil.example"})
        assert (answer.status_code, answer.json()) == (404, {"error": "Not Found."})
        assert "location" not in answer.headers


@pytest.mark.parametrize(
    "path", [*(each.path for each in ENDPOINTS if each.method == "GET"), "/docs", "/openapi.json", "/nowhere"]
)
def test_head_answers_as_get_does(client: Client, path: str) -> None:
    get, head = client.get(path), client.ask("HEAD", path)
    assert head.status_code == get.status_code
    assert head.headers["content-type"] == get.headers["content-type"]


def test_the_token_is_asked_for_before_the_route(client: Client, bundle: Bundle, tmp_path: Path) -> None:
    assert client.post("/v1/admin/pause").status_code == 401
    assert client.post("/v1/admin/pause", headers=ADMIN).json() == {"campaign": "coupons", "paused": True}
    with server(bundle, tmp_path / "other.db", use=USE_TOKEN) as closed:
        assert closed.post("/v1/decisions", json=request()).status_code == 401
        assert closed.post("/v1/decisions", json=request(), headers=ADMIN).status_code == 200


def test_an_answer_is_json_of_its_length(client: Client) -> None:
    answer = client.post("/v1/decisions", json=request())
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert "retry-after" not in answer.headers


def test_a_ledger_out_of_reach_says_when_to_ask_again(client: Client) -> None:
    decided = client.post("/v1/decisions", json=request()).json()
    client.service.ledger.broken = True  # type: ignore[attr-defined]
    told = {"decision_id": decided["decision_id"], "kind": "redeemed", "event_id": "e"}
    for answer in (client.post("/v1/outcomes", json=told), client.get("/v2/health/ready")):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert not missing(answer.json()["error"], "ledger", "the disk is full.")


def test_a_bug_is_answered_counted_and_in_the_log(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_values: Any, **_more: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(client.service.decisions, "decide", broken)
    with caplog.at_level(logging.ERROR):
        answer = client.post("/v1/decisions", json=request())
    assert answer.status_code == 500
    assert not missing(answer.json()["error"], "log")
    assert "a bug" not in answer.json()["error"]
    assert "ZeroDivisionError: a bug" in caplog.text
    assert refused(client, 500)


def test_caps_of_arms_that_do_not_exist_are_refused(client: Client) -> None:
    answer = client.post("/v1/admin/caps", json={"arms": {"polcy": 5}}, headers=ADMIN)
    assert (answer.status_code, answer.json()["where"]) == (422, "$.arms.polcy")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"total": 5, "day": 0.001}, "$.day"),
        ({"total": 1e300}, "$.total"),
        ({"arms": {"policy": 0.5e-2}}, "$.arms.policy"),
    ],
)
def test_a_cap_that_is_no_money_is_named(client: Client, body: Any, where: str) -> None:
    answer = client.post("/v1/admin/caps", json=body, headers=ADMIN)
    assert (answer.status_code, answer.json()["where"]) == (422, where)
