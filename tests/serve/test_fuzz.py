"""Schemathesis asks what our OpenAPI page allows, and much that it does not allow: no answer is an error of ours.

Each question goes through the application on a ledger in a file. Its answer must be one that the page names, in a form
that the page gives; what the page forbids must be refused; and at the end the ledger must be whole.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_servers import ADMIN, STATE, Client, request, server

from outlay.bundles.decide import Bundle
from outlay.serve.http.app import document
from outlay.serve.http.routes import ENDPOINTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from schemathesis import checks

pytestmark = pytest.mark.slow
ALLOWED, FORBIDDEN = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]
EXAMPLES = {"POST /v1/decisions": 40, "POST /v1/outcomes": 30, "POST /v1/admin/caps": 20}  # of a mode; others 10


PAGE = schemathesis.openapi.from_dict(document(ENDPOINTS))
OPERATIONS = {operation.label: operation for operation in (found.ok() for found in PAGE.get_all_operations())}
MODES = [
    (label, mode)
    for label, operation in OPERATIONS.items()
    for mode in (ALLOWED, FORBIDDEN)
    if mode is ALLOWED or operation.body
]


@pytest.fixture(scope="module")
def client(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    ledger = tmp_path_factory.mktemp("fuzz") / "ledger.db"
    limits: dict[str, Any] = {"caps": {"total": 60}, "user": {"decisions": 3}, "random": {"share": 0.3}}
    with server(bundle, ledger, fallback=1.5, **limits) as client:
        yield client
        assert client.service.ledger.check() == []


@pytest.fixture(scope="module")
def decision(client: Client) -> str:
    """A decision that has money, for the outcomes."""
    return str(client.post("/v1/decisions", json=request(1, eligible=[3])).json()["decision_id"])


@pytest.mark.parametrize(("label", "mode"), MODES, ids=[f"{label} {mode.value}" for label, mode in MODES])
def test_every_answer_is_on_the_page(label: str, mode: Any, client: Client, decision: str) -> None:
    codes: list[int] = []

    @settings(max_examples=EXAMPLES.get(label, 10), suppress_health_check=list(HealthCheck))
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if mode is ALLOWED and len(codes) % 2:
            _make_known(case.body, decision)
        codes.append(_ask(case, client))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # schemathesis's own
        ask()
    assert (200 in codes) == (mode is ALLOWED and label != "POST /v1/admin/bundle")


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_edge_of_the_page_is_kept(label: str, client: Client) -> None:
    """Each keyword of each schema just kept and just broken, other methods, other content types."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = PAGE.iter_coverage_cases(
            OPERATIONS[label], generation_modes=[ALLOWED, FORBIDDEN], generation_config=PAGE.config.generation
        )
        assert {_ask(case, client) for case in cases} - {200}


TOKENS = re.findall(r'"[^"]*"|[\d.]+|\w+|[^\s\w]', json.dumps({"requests": [request(8), request(9, eligible=[3.0])]}))
PIECES = [
    "",
    "[",
    "]",
    "{",
    "}",
    ",",
    '"',
    "\\",
    "\0",
    "\udcff",
    "1e999",
    "null",
    "[1]",
    "9" * 400,
    "[" * 2000,
    '"features":',
]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(TOKENS) - 1), st.sampled_from(PIECES)), min_size=1, max_size=3))
def test_damaged_bodies_are_refused_or_whole(client: Client, damage: list[tuple[int, str]]) -> None:
    tokens = TOKENS.copy()
    for place, piece in damage:
        tokens[place] = piece
    body = "".join(tokens).encode(errors="surrogateescape")
    found = client.post("/v1/decisions", content=body, headers={"Content-Type": "application/json"})
    assert found.status_code in (200, 400, 422), body
    assert found.status_code == 200 or found.json()["error"]


def _make_known(body: Any, decision: str) -> None:
    """Give a question features and actions that the bundle knows, and a decision that exists."""
    for thing in body.get("requests", []) + body.get("outcomes", []) or [body]:
        if "features" in thing:
            thing["features"] |= STATE
            thing["eligible"] = None
        if "decision_id" in thing:
            thing["decision_id"] = decision


def _ask(case: Any, client: Client) -> int:
    """Send it, look at the answer, and say its status."""
    asked = case.as_transport_kwargs(base_url="http://server")
    headers = {name: value for name, value in asked["headers"].items() if value is not None} | ADMIN
    content = json.dumps(asked["json"]).encode() if "json" in asked else asked.get("data")
    answer = client.ask(asked["method"], asked["url"], content=content, headers=headers, params=asked.get("params"))
    case.validate_response(answer, checks=CHECKS)
    return answer.status_code
