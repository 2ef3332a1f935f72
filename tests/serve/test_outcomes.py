"""What happened after a decision settles its money once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_servers import ADMIN, Client, request, server

from outlay.bundles.decide import Bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.serve.clock import Clock
from telling import missing


@pytest.fixture
def client(bundle: Bundle, tmp_path: Path) -> Iterator[Client]:
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}) as client:
        yield client


def decided(client: Client, number: int = 0) -> str:
    found = client.post("/v1/decisions", json=request(number, eligible=[3])).json()
    return str(found["decision_id"])


def tell(client: Client, decision: str, kind: str = "redeemed", event: str = "e", **more: Any) -> Any:
    return client.post("/v1/outcomes", json={"decision_id": decision, "kind": kind, "event_id": event, **more})


def money(client: Client) -> tuple[int, int]:
    total = client.service.ledger.totals("coupons").total
    return total.reserved, total.settled


def test_redeemed_settles_and_a_repeated_event_changes_nothing(client: Client) -> None:
    decision = decided(client)
    assert money(client) == (300, 0)
    first = tell(client, decision, value=2.5, time="2026-11-21T10:00:00Z").json()
    assert first == {
        "decision_id": decision,
        "kind": "redeemed",
        "event_id": "e",
        "status": "settled",
        "amount": 2.5,
        "excess": 0.0,
        "replayed": False,
    }
    assert tell(client, decision, value=2.5).json() == first | {"replayed": True}
    assert money(client) == (0, 250)
    assert tell(client, decision, value=1).status_code == 409
    assert tell(client, decision, "refund", value=0.5, time=1.5).json()["status"] == "refunded"
    assert money(client) == (0, 200)
    assert 'outlay_outcomes_total{kind="redeemed",status="settled"} 1.0' in client.get("/metrics").text


def test_other_kinds_are_kept_with_any_value(client: Client) -> None:
    found = tell(client, decided(client), "active", value=-0.12345).json()
    assert (found["status"], found["amount"]) == ("kept", 0)
    assert money(client) == (300, 0)


@pytest.mark.parametrize(
    ("kind", "near"), [("Active", "active"), ("actve", "active"), ("Redeemed", "redeemed"), ("order", None)]
)
def test_a_kind_that_nobody_declared_is_refused_with_the_nearest(client: Client, kind: str, near: str | None) -> None:
    decision = decided(client)
    found = tell(client, decision, kind)
    assert (found.status_code, found.json()["where"]) == (422, "$.kind")
    assert found.json()["error"].startswith(f"is {kind!r}")
    guess = re.search(r"Did you mean '(.*)'", found.json()["error"])
    assert (guess and guess[1]) == near
    assert not missing(found.json()["way_out"], "redeemed, refund, active", "serve.toml", f'outcomes = ["{kind}"]')
    events = [{"decision_id": decision, "kind": each, "event_id": "e"} for each in ("active", kind)]
    assert client.post("/v1/outcomes", json={"outcomes": events}).json()["where"] == "$.outcomes[1].kind"
    assert [row.outcomes for row in client.service.ledger.rows("coupons", 0, 2**62)] == [()]


def test_serve_toml_declares_more_kinds_in_its_own_spelling(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", outcomes=["order", "Active"]) as client:
        decision = decided(client)
        assert tell(client, decision, "order", value=12.5).json()["status"] == "kept"
        assert tell(client, decision, "Active", "f").json()["status"] == "kept"
        assert tell(client, decision, "active", "g").status_code == 422  # one column, one spelling


def test_what_an_older_bundle_is_made_of_may_still_come_after_a_swap_and_a_restart(
    bundle: Bundle, tmp_path: Path, make_spec: Callable[..., BundleSpec]
) -> None:
    spec = make_spec(weights=(0.1, 0.9))
    log = spec.campaign.log.model_copy(update={"reward": "orders + 2 * visits"})
    write_bundle(tmp_path / "next", replace(spec, campaign=spec.campaign.model_copy(update={"log": log})))
    with server(bundle, tmp_path / "ledger.db") as client:
        old = decided(client)
        assert tell(client, old, "visits", "v").status_code == 422
        swapped = client.post("/v1/admin/bundle", json={"path": str(tmp_path / "next")}, headers=ADMIN)
        assert swapped.status_code == 200, swapped.text
        assert tell(client, old, "active", "a").status_code == tell(client, old, "visits", "v").status_code == 200
    with server(tmp_path / "next", tmp_path / "ledger.db") as client:
        assert tell(client, old, "active", "b").status_code == tell(client, old, "orders", "o").status_code == 200
        assert tell(client, old, "order", "o").json()["error"].endswith("Did you mean 'orders'?")


def test_what_cannot_be_is_refused(client: Client) -> None:
    decision = decided(client)
    assert tell(client, "0" * 32).status_code == 404
    assert tell(client, "zzz").json()["where"] == "$.decision_id"
    for value in (-1, 0.001, 1e300):
        found = tell(client, decision, value=value)
        assert (found.status_code, found.json()["where"]) == (422, "$.value")
    assert tell(client, decision, time=1e300).json()["where"] == "$.time"
    assert tell(client, decision, kind="").status_code == 422
    assert money(client) == (300, 0)


def test_what_cost_more_than_was_reserved_is_told_in_the_answer_the_log_and_the_meters(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    decision = decided(client)
    found = tell(client, decision, value=4).json()
    assert (found["status"], found["amount"], found["excess"]) == ("overrun", 4.0, 1.0)
    assert tell(client, decision, value=4).json() == found | {"replayed": True}
    assert money(client) == (0, 400)
    (line,) = (line for line in caplog.text.splitlines() if decision in line)
    assert not missing(line, f"decision {decision}", "redeemed for 4.0", "1.0 exceed")
    client.post("/v1/admin/caps", json={"total": 3.5}, headers=ADMIN)
    meters = client.get("/metrics").text
    for name, value in (("spent", 4), ("excess", 1), ("overrun", 0.5), ("reserved", 0)):
        assert f'outlay_budget_{name}_units{{scope="total"}} {float(value)}' in meters
    assert 'outlay_outcomes_total{kind="redeemed",status="overrun"} 1.0' in meters


def test_many_overruns_at_once_are_told_in_one_line(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    events = [
        {"decision_id": decided(client, number), "kind": "redeemed", "event_id": str(number), "value": 4}
        for number in range(50)
    ]
    for _ in range(2):  # a repetition is told nothing
        answers = client.post("/v1/outcomes", json={"outcomes": events}).json()["outcomes"]
        assert {each["status"] for each in answers} == {"overrun"}
    told = [record.getMessage() for record in caplog.records if record.name == "outlay.serve"]
    assert len(told) == 4
    assert not missing(told[-1], "47 more decisions", "redeemed for 188.0", "47.0 exceed")


def test_many_outcomes_are_answered_in_order(client: Client) -> None:
    one, two = decided(client, 1), decided(client, 2)
    events = [{"decision_id": d, "kind": "redeemed", "event_id": "e"} for d in (two, "0" * 32, one)]
    found = client.post("/v1/outcomes", json={"outcomes": events}).json()["outcomes"]
    assert [found[0]["decision_id"], found[2]["decision_id"]] == [two, one]
    assert found[1]["where"] == "$.outcomes[1].decision_id"
    assert money(client) == (0, 600)
    bad = {"decision_id": one, "kind": "redeemed", "event_id": "f", "value": -1}
    wrong = client.post("/v1/outcomes", json={"outcomes": [events[0], bad]})
    assert (wrong.status_code, wrong.json()["where"]) == (422, "$.outcomes[1].value")


def test_a_client_that_asks_again_after_the_expiry_gives_nothing(bundle: Bundle, tmp_path: Path) -> None:
    """The client of docs/serving.md, whose first answer was lost: what is given never costs more than the cap."""
    now, given = [1_795_290_044.0], 0.0
    clock = Clock("UTC", lambda: now[0])

    def ask(client: Client, *numbers: int) -> list[Any]:
        requests = [request(number, eligible=[3]) for number in numbers]
        return list(client.post("/v1/decisions", json={"requests": requests}).json()["decisions"])

    with server(bundle, tmp_path / "ledger.db", clock=clock, caps={"total": 3}, expiry_hours=1) as client:
        (lost,) = ask(client, 1)
        assert (lost["state"], lost["expires_at"]) == ("reserved", "2026-11-21T20:40:44Z")
        now[0] += 3600
        before, two = ask(client, 1, 2)  # the money is not released yet
        assert client.service.ledger.release("coupons", clock.now()) == 1
        (three,) = ask(client, 3)
        retried, none = ask(client, 1, 2)
        assert before == retried
        assert (retried["decision_id"], retried["expires_at"]) == (lost["decision_id"], lost["expires_at"])
        told = ("action", "action_index", "probability", "reason", "state")
        assert [retried[name] for name in told] == [0.0, 0, 1.0, "expired", "expired"]
        assert two == none
        assert (none["reason"], none["state"], none["expires_at"]) == ("total_cap", "none", None)
        for answer in (retried, none, three):
            if answer["action"]:
                assert tell(client, answer["decision_id"]).json()["status"] == "settled"
                given += answer["action"]
        assert given == 3.0
        (redeemed,) = ask(client, 3)
        assert redeemed == three | {"state": "redeemed"}
        assert tell(client, lost["decision_id"]).json()["status"] == "overrun"  # it was given after all
        assert ask(client, 1) == [lost | {"state": "redeemed"}]
        assert client.service.ledger.check() == []


def test_days_and_expiry_follow_the_servers_clock(bundle: Bundle, tmp_path: Path) -> None:
    now = [1_795_290_044.0]
    clock = Clock("UTC", lambda: now[0])
    with server(bundle, tmp_path / "ledger.db", clock=clock, caps={"day": 3}, expiry_hours=48) as client:
        ask = [client.post("/v1/decisions", json=request(i, eligible=[3], time=0)).json() for i in range(2)]
        assert [answer["reason"] for answer in ask] == ["policy", "day_cap"]
        now[0] += 86_400
        assert client.post("/v1/decisions", json=request(4, eligible=[3])).json()["reason"] == "policy"
        ledger = client.service.ledger
        assert ledger.release("coupons", clock.now()) == 0
        now[0] += 86_400
        assert ledger.release("coupons", clock.now()) == 1
