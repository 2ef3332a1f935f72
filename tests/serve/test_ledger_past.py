"""The user's past from the ledger: what an export would say of earlier days, as far as it is known by now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_ledgers import DAY, POSTGRES, new_url, outcome, proposal
from small_pasts import Time, campaign, write_past_bundle
from small_servers import ADMIN, Client, request, server

from outlay.serve.clock import Clock
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.sqlite import SqliteLedger
from telling import missing


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def client(tmp_path: Path, time: Time) -> Iterator[Client]:
    bundle = write_past_bundle(tmp_path / "bundle")
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time), caps={"total": 1e6}) as client:
        yield client


def decide(client: Client, number: int, user: str = "ann", **changes: Any) -> dict[str, Any]:
    response = client.post("/v1/decisions", json=request(number, user_id=user, **changes))
    assert response.status_code == 200, response.text
    decision: dict[str, Any] = response.json()
    return decision


def report(client: Client, decision: dict[str, Any], kind: str, value: float | None = None) -> None:
    event = {"decision_id": decision["decision_id"], "kind": kind, "event_id": f"{kind}{value}", "value": value}
    response = client.post("/v1/outcomes", json=event)
    assert response.status_code == 200, response.text


def seen(client: Client, decision: dict[str, Any]) -> dict[str, Any]:
    """The features that a decision was made on."""
    ledger = client.service.ledger
    assert isinstance(ledger, SqliteLedger)
    [row] = [row for row in ledger.rows("coupons", 0, 1 << 47) if row.decision_id == decision["decision_id"]]
    features: dict[str, Any] = json.loads(row.features)
    return features


def test_the_ledger_knows_the_past(client: Client, time: Time) -> None:
    first = decide(client, 0, features={"level": 1, "city": "Ulm", "spend": 4})
    decide(client, 1, user="bob")
    report(client, first, "active")
    report(client, first, "redeemed", 0.5)
    time.at(2)
    second = decide(client, 2)
    found = seen(client, second)
    assert (found["history_days"], found["action_last_4d"]) == (1, first["action"])
    assert (found["reward_mean_4d"], found["coupon_cost_last_4d"], found["spend_last_4d"]) == (1, 0.5, 4)
    assert found["reward_since_4d"] == 2
    time.at(5)
    assert seen(client, decide(client, 3))["history_days"] == 1  # the first day is out of reach


def test_single_summaries_look_back_over_days_of_their_own(tmp_path: Path, time: Time) -> None:
    history = {"features": ["sum(spend) over 3 days", "count(spend) over 1 day", "last(reward) over 3 days"]}
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(history=history))
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time)) as client:
        for day, spend in enumerate((4, 8, 0)):
            time.at(day)
            decide(client, day, features={"level": 1, "city": "Ulm", "spend": spend})
        time.at(3)
        found = seen(client, decide(client, 9))
        assert (found["spend_sum_3d"], found["spend_count_1d"], found["reward_last_3d"]) == (12, 0, 0)


def test_the_day_itself_is_never_the_past_and_days_are_the_servers(client: Client, time: Time) -> None:
    first = decide(client, 0)
    report(client, first, "active")
    time.at(0, 23.999)
    assert seen(client, decide(client, 1))["history_days"] == 0
    time.at(1, 0)
    assert seen(client, decide(client, 2))["history_days"] == 1


def test_outcomes_that_come_late_change_the_past_from_then_on(client: Client, time: Time) -> None:
    first = decide(client, 0)
    time.at(1)
    before = decide(client, 1)
    report(client, first, "active")
    after = decide(client, 2)
    assert [seen(client, each)["reward_last_4d"] for each in (before, after)] == [0, 1]


def test_a_value_is_unknown_until_its_declared_delay_is_over(tmp_path: Path, time: Time) -> None:
    """And an outcome within the delay counts from then on, although wait_days is shorter."""
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(delays={"reward": 2}))
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time), wait_days=1) as client:
        first = decide(client, 0)
        time.at(2, 12)
        report(client, first, "active")
        found = seen(client, decide(client, 1))
        assert (found["reward_last_4d"], found["action_last_4d"]) == (None, first["action"])
        time.at(3)
        assert seen(client, decide(client, 2, user="bob"))["history_days"] == 0
        assert seen(client, decide(client, 3))["reward_last_4d"] == 1


def test_the_row_of_a_day_is_the_exports(client: Client, time: Time) -> None:
    """The first choice that was not forced, with the outcomes of all decisions of the day."""
    client.post("/v1/admin/pause", headers=ADMIN)
    forced = decide(client, 0, features={"level": 3, "city": "Lyon", "spend": 1})
    client.post("/v1/admin/resume", headers=ADMIN)
    chosen = decide(client, 1, features={"level": 3, "city": "Lyon", "spend": 2})
    time.at(0, 10)
    decide(client, 2, features={"level": 1, "city": "Lyon", "spend": 3})
    assert forced["reason"] == "paused"
    report(client, forced, "active")
    report(client, chosen, "active")
    time.at(1)
    found = seen(client, decide(client, 3))
    assert (found["spend_last_4d"], found["action_last_4d"], found["reward_last_4d"]) == (2, chosen["action"], 2)


def test_a_past_in_the_request_takes_the_place_of_the_ledgers(client: Client, time: Time) -> None:
    decide(client, 0)
    time.at(1)
    assert seen(client, decide(client, 1, past=[]))["history_days"] == 0


def test_days_without_a_row_count_after_the_first_even_out_of_reach(tmp_path: Path, time: Time) -> None:
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(complete=True))
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time)) as client:
        decide(client, 0)
        time.at(9)
        found = seen(client, decide(client, 1))
        assert (found["history_days"], found["reward_mean_4d"], found["spend_mean_4d"]) == (4, 0, None)
        assert seen(client, decide(client, 2, user="bob"))["history_days"] == 0


def test_reward_and_costs_are_expressions_over_outcomes_and_features(tmp_path: Path, time: Time) -> None:
    reward = "active * 2 + case when city = 'Ulm' then coupon else 0 end"
    columns = ("reward", "spend / 4", "level * 10")
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(columns=columns, reward=reward))
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time)) as client:
        first, second = decide(client, 0), decide(client, 1, "bob", features={"level": 2, "city": "Lyon", "spend": 1})
        report(client, first, "active")
        report(client, second, "active")
        time.at(1)
        one, two = (seen(client, decide(client, 2 + i, user)) for i, user in enumerate(("ann", "bob")))
        assert (one["reward_last_4d"], two["reward_last_4d"]) == (2 + first["action"], 2)
        assert (one["spend / 4_last_4d"], two["level * 10_last_4d"]) == (3.125, 20)


def test_what_the_ledger_does_not_record_has_to_be_given(tmp_path: Path, time: Time) -> None:
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(columns=("action", "basket")))
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time)) as client:
        response = client.post("/v1/decisions", json=request())
        assert (response.status_code, response.json()["where"]) == (422, "$.past")
        assert not missing(response.json()["error"], "'basket'", "ledger")
        past = [{"days_ago": 1, "action": 3, "basket": 7.5}]
        assert seen(client, decide(client, 1, past=past))["basket_last_4d"] == 7.5


def test_a_bundle_that_comes_into_service_summarises_for_itself(client: Client, time: Time, tmp_path: Path) -> None:
    decide(client, 0)
    time.at(1)
    other = write_past_bundle(tmp_path / "other", 4, campaign(days=2, columns=None))
    assert client.post("/v1/admin/bundle", json={"path": str(other)}, headers=ADMIN).status_code == 200
    found = seen(client, decide(client, 1))
    assert found["coupon_cost_last_2d"] == 0
    assert "spend_last_4d" not in found
    plain = write_past_bundle(tmp_path / "third", 6, campaign(days=7))
    assert client.post("/v1/admin/bundle", json={"path": str(plain)}, headers=ADMIN).status_code == 200
    assert seen(client, decide(client, 2, user="bob"))["spend_last_7d"] is None


@pytest.mark.parametrize("backend", ["sqlite", POSTGRES, "memory"])
def test_every_backend_finds_the_past_of_users(backend: str, tmp_path: Path) -> None:
    ledger = open_ledger(new_url(backend, tmp_path))
    try:
        for name in ("coupons", "other"):
            ledger.set_caps(name, Caps())
        made = [
            proposal(f"{name}{user}{day}", campaign=name, user=user, day=DAY + day)
            for name in ("coupons", "other")
            for user in ("ann", "bob", "cid")
            for day in range(4)
        ]
        ledger.record(made)
        ledger.outcomes([outcome(made[1].decision_id, "active"), outcome(made[2].decision_id)])
        rows, earlier = ledger.past("coupons", ["ann", "bob", "new"], DAY + 1, DAY + 3)
        asked = [each for each in made[:8] if DAY + 1 <= each.day < DAY + 3]
        assert [row.decision_id for row in rows] == sorted(each.decision_id for each in asked)
        kinds = {row.day: [event.kind for event, _ in row.outcomes] for row in rows if row.user == "ann"}
        assert kinds == {DAY + 1: ["active"], DAY + 2: ["redeemed"]}
        assert earlier == {"ann", "bob"}
        assert ledger.past("coupons", ["ann"], DAY, DAY)[1] == set()
        assert ledger.past("coupons", [], DAY, DAY + 4) == ([], set())
    finally:
        ledger.close()
