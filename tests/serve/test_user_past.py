"""The past of users as policies see it: from requests, from `outlay serve --history`, and the ledger's days on top."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_pasts import FIRST, Time, campaign, write_past_bundle
from small_servers import ADMIN, RESERVE, Client, request, server
from small_trials import START, trial
from test_ledger_past import decide, report, seen

from outlay.bundles.read import load_bundle
from outlay.core.errors import LogError, OutlayError
from outlay.core.history import History, PastRows
from outlay.serve.application import ServerOptions
from outlay.serve.clock import EPOCH, Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.launch import serve
from outlay.serve.ledger.sqlite import SqliteLedger
from telling import missing

NO_PAST = {"history_days": 0.0, "reward_mean_4d": None, "spend_since_4d": None}


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def client(tmp_path: Path, time: Time) -> Iterator[Client]:
    with server(write_past_bundle(tmp_path / "bundle"), tmp_path / "ledger.db", clock=Clock("UTC", time)) as client:
        yield client


def recorded(client: Client) -> list[dict[str, Any]]:
    """The features of every decision."""
    ledger = client.service.ledger
    assert isinstance(ledger, SqliteLedger)
    return [json.loads(row.features) for row in ledger.rows("coupons", 0, 1 << 47)]


def day(ago: float, **changes: Any) -> dict[str, Any]:
    return {"days_ago": ago, "action": 1.5, "reward": 1, "coupon_cost": 1.5, "spend": 3.25} | changes


def test_the_past_in_a_request_is_what_training_would_see(client: Client, tmp_path: Path) -> None:
    past = [day(2), day(1, action=0, reward=0.1, coupon_cost=0, spend=None), day(4, action=3)]
    answer = client.post("/v1/decisions", json=request(past=past)).json()
    bundle = load_bundle(tmp_path / "bundle")
    history = History.of(bundle.campaign)
    assert history is not None
    rows = [(FIRST - 4, 3, 1, 1.5, 3.25), (FIRST - 2, 1.5, 1, 1.5, 3.25), (FIRST - 1, 0, 0.1, 0, np.nan)]
    days, values = [row[0] for row in rows], np.array([row[1:] for row in rows], np.float32)
    found = history.summarise(PastRows(np.zeros(3, np.int64), np.array(days), values), np.zeros(1), np.array([FIRST]))
    [features] = recorded(client)
    kept = np.array([features[name] for name in history.names], np.float64).astype(np.float32)
    assert np.array_equal(kept, found[0], equal_nan=True)
    assert features["level"] == 1
    table = pa.table({name: [features[name]] for name in bundle.schema.names} | {"user_id": ["user-0"]})
    assert bundle.decide(table)["action"].to_pylist() == [answer["action"]]


def test_the_past_decides(client: Client) -> None:
    pasts = [[], [day(1)], [day(1, action=0, reward=0, coupon_cost=0)], [day(n, spend=-5) for n in range(1, 5)]]
    bodies = [
        request(number, user_id="ann", past=past, features={"level": level, "city": "Ulm", "spend": 12.5})
        for number, (past, level) in enumerate((past, level) for past in pasts for level in (1, 2, 3))
    ]
    answers = client.post("/v1/decisions", json={"requests": bodies}).json()["decisions"]
    actions = np.array([answer["action"] for answer in answers]).reshape(len(pasts), -1)
    assert len(np.unique(actions, axis=0)) > 1
    assert {answer["reason"] for answer in answers} == {"policy"}


def test_a_user_whom_nobody_knows_has_no_past(client: Client) -> None:
    assert client.post("/v1/decisions", json=request()).json()["reason"] == "policy"
    [features] = recorded(client)
    assert {name: features[name] for name in NO_PAST} == NO_PAST


def test_days_without_a_row_count_as_the_campaign_says(tmp_path: Path, time: Time) -> None:
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(complete=True))
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time)) as client:
        client.post("/v1/decisions", json=request(past=[day(3)]))
        [features] = recorded(client)
    assert features["history_days"] == 3
    assert features["reward_mean_4d"] == pytest.approx(1 / 3)
    assert (features["spend_mean_4d"], features["reward_since_4d"]) == (3.25, 3)


@pytest.mark.parametrize(
    ("past", "where", "error"),
    [
        (
            [day(0)],
            ".past[0].days_ago",
            "is 0 … 1 (yesterday) to 4",
        ),
        ([day(1), day(5)], ".past[1].days_ago", "is 5 … 1 (yesterday) to 4"),
        ([day(1.5)], ".past[0].days_ago", "is 1.5; expected"),
        ([{"action": 1}], ".past[0].days_ago", "is absent; expected"),
        ([day(2), day(1), day(2.0)], ".past[2].days_ago", "is 2, as in row 0"),
        (
            [day(1, costs=3)],
            ".past[0].costs",
            "is not a column … action, reward, coupon_cost, spend",
        ),
        ([{"days_ago": 1, "action": 1, "reward": 0, "coupon_cost": 0}], ".past[0].spend", "is absent; give null"),
        ([day(1), day(2, reward="1")], ".past[1].reward", "is '1'; expected: a number, or null"),
        ([day(1, action=True)], ".past[0].action", "Expected `int | float | str | null`, got `bool`."),
        ({"days_ago": 1}, ".past", "Expected `array | null`, got `object`."),
    ],
)
def test_a_wrong_past_is_one_error(client: Client, past: Any, where: str, error: str) -> None:
    for body, root in ((request(past=past), "$"), ({"requests": [request(), request(1, past=past)]}, "$.requests[1]")):
        response = client.post("/v1/decisions", json=body)
        assert response.status_code == 422
        assert response.json()["where"] == root + where
        begin, *told = error.split(" … ")
        assert response.json()["error"].startswith(begin)
        assert not missing(response.json()["error"], *told)
    assert recorded(client) == []


def test_a_summary_is_not_a_feature_to_give(client: Client) -> None:
    features = {"level": 1, "city": "Ulm", "spend": 12.5, "history_days": 3}
    response = client.post("/v1/decisions", json=request(features=features))
    assert (response.status_code, response.json()["where"]) == (422, "$.features.history_days")
    assert "summary of the user's past" in response.json()["error"]


def test_the_interface_describes_the_past(client: Client) -> None:
    schema = client.get("/openapi.json").json()["components"]["schemas"]["DecisionRequest"]["properties"]["past"]
    assert "days_ago" in schema["description"]


def test_a_bundle_without_a_history_ignores_the_past(bundle: Any, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db") as client:
        assert client.post("/v1/decisions", json=request(past=[{"days_ago": 99, "x": 1}])).status_code == 200
        assert recorded(client) == [{"level": 1, "city": "Ulm", "spend": 12.5}]


def written(path: Path, rows: list[tuple[str, int, float, float, float]]) -> Path:
    """A log of users, days since FIRST, coupons, active and spend."""
    user, day, coupon, active, spend = zip(*rows, strict=True)
    dates = [EPOCH + datetime.timedelta(FIRST + each) for each in day]
    columns: dict[str, Any] = {"user_id": user, "day": dates, "coupon": coupon, "active": active, "spend": spend}
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [("ann", -9, 3.0, 1.0, 5.0), ("ann", -2, 1.5, 1.0, 7.0), ("bob", -1, 0.0, 0.0, 2.0), ("cid", -9, 0, 1, 1)]
    return written(tmp_path / "log.parquet", rows)


@pytest.mark.parametrize("complete", [False, True])
def test_what_the_log_knew_comes_first_and_then_the_ledger(tmp_path: Path, log: Path, complete: bool) -> None:
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(complete=complete))
    time = Time()
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time), history=log) as client:
        first = decide(client, 0)
        found = seen(client, first)
        assert (found["history_days"], found["spend_last_4d"]) == (4 if complete else 1, 7)
        assert (found["reward_since_4d"], found["spend_mean_4d"]) == (2, 7)
        assert seen(client, decide(client, 1, user="bob"))["history_days"] == 1
        assert seen(client, decide(client, 2, user="cid"))["history_days"] == (4 if complete else 0)
        assert seen(client, decide(client, 3, user="dan"))["history_days"] == 0
        report(client, first, "active")
        time.at(1)
        found = seen(client, decide(client, 4))
        assert (found["reward_last_4d"], found["spend_last_4d"], found["spend_mean_4d"]) == (1, 12.5, 9.75)
        time.at(3)
        assert seen(client, decide(client, 5))["spend_mean_4d"] == 12.5  # the log's day is out of reach


def test_a_day_that_both_know_is_the_ledgers(tmp_path: Path) -> None:
    log = written(tmp_path / "log.parquet", [("ann", 0, 3.0, 1.0, 5.0)])
    time = Time()
    bundle = write_past_bundle(tmp_path / "bundle")
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time), history=log) as client:
        decide(client, 0)
        time.at(1)
        found = seen(client, decide(client, 1))
        assert (found["history_days"], found["spend_last_4d"], found["reward_last_4d"]) == (1, 12.5, 0)


def test_bundles_of_other_histories_read_it_for_themselves(tmp_path: Path, log: Path) -> None:
    """One that comes into service, and the arm of a test."""
    other = write_past_bundle(tmp_path / "other", 4, campaign(days=14, columns=("spend",)))
    time = Time()
    with server(
        write_past_bundle(tmp_path / "bundle"), tmp_path / "ledger.db", clock=Clock("UTC", time), history=log
    ) as client:
        assert client.post("/v1/admin/bundle", json={"path": str(other)}, headers=ADMIN).status_code == 200
        assert seen(client, decide(client, 0))["spend_mean_14d"] == 6


def test_arms_summarise_for_themselves(tmp_path: Path) -> None:
    days = (START - EPOCH).days - FIRST
    log = written(tmp_path / "log.parquet", [(f"u{i}", days - 1, 3.0, 1.0, float(i)) for i in range(40)])
    other = write_past_bundle(tmp_path / "other", 4, campaign(days=2, columns=("spend", "reward")))
    time = Time()
    time.at(days)
    test = trial(tmp_path, other, ramp=[{"day": 0, "coverage": 1.0}])

    def own(client: Client, user: int) -> tuple[str, set[str]]:
        answer = decide(client, user, f"u{user}")
        found = seen(client, answer)
        assert {value for name, value in found.items() if name.startswith("spend_last")} == {user}
        return answer["arm"], {name for name in found if name.startswith("spend_last")}

    with server(
        write_past_bundle(tmp_path / "bundle"),
        tmp_path / "ledger.db",
        clock=Clock("UTC", time),
        history=log,
        experiment=test,
        caps={"total": 1e5},
    ) as client:
        arms = [own(client, user) for user in range(40)]
    assert {arm for arm, _ in arms} == {"old", "new", "even", "nobody", "policy"}
    assert all(names == {"spend_last_2d" if arm == "new" else "spend_last_4d"} for arm, names in arms)


def test_times_that_are_no_dates_are_an_error(tmp_path: Path) -> None:
    columns = {"user_id": ["ann"], "day": [3], "coupon": [0.0], "active": [1.0], "spend": [1.0]}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    bundle = write_past_bundle(tmp_path / "bundle")
    with pytest.raises(LogError, match=r"times end with 3, .*no date"):
        prepare_bundle(bundle, ServeConfig.parse({"reserve": RESERVE}), history=tmp_path / "log.parquet")


def test_a_history_that_no_policy_looks_at_is_an_error(bundle: Any, log: Path, tmp_path: Path) -> None:
    config = ServeConfig.parse({"reserve": RESERVE})
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    with pytest.raises(OutlayError, match="no past days"):
        serve(ServerOptions(bundle=bundle.folder, ledger=ledger, config=config, history=log))
