"""Serve, export, prepare: DATA holds the summaries that every decision was made on, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from small_pasts import FIRST, Time, campaign, write_past_bundle
from small_servers import ADMIN, server

from outlay.core.history import History
from outlay.core.schema import Schema
from outlay.core.transitions import Transitions
from outlay.jobs.prepare import prepare
from outlay.logs.past_days import UserPast
from outlay.serve.clock import Clock
from outlay.serve.export.export import export_log
from outlay.serve.ledger.sqlite import SqliteLedger
from small_exports import on

USERS, DAYS, ABSENT = 24, 7, (2, 4)
Decisions = dict[tuple[str, int], dict[str, Any]]


def serve(tmp_path: Path, bundle: Path, *, late: bool, given: bool, swap: Path | None = None) -> Decisions:
    """Some days of decisions, and the features that each was made on, by user and day.

    Users miss days. Outcomes come before midnight and after; if `late`, some after the next decision too. If `given`,
    some requests have a past of their own.
    """
    time, rng = Time(), np.random.default_rng(5)
    made: dict[int, list[str]] = {}
    with server(
        bundle,
        tmp_path / "ledger.db",
        clock=Clock("Asia/Shanghai", time),
        timezone="Asia/Shanghai",
        random={"share": 0.4},
        wait_days=2,
    ) as client:

        def report(day: int, part: int, event_id: str, *, paid: bool = False) -> None:
            for user, decision in enumerate(made[day]):
                if decision and user % 3 == part:
                    event = {"decision_id": decision, "event_id": event_id}
                    assert client.post("/v1/outcomes", json=event | {"kind": "active"}).status_code == 200
                    if paid:
                        value = {"kind": "redeemed", "value": float(rng.integers(0, 300)) / 100}
                        assert client.post("/v1/outcomes", json=event | value).status_code == 200

        for day in range(DAYS):
            time.at(day, 2)  # ten in the morning in Shanghai
            if swap is not None and day == 4:
                assert client.post("/v1/admin/bundle", json={"path": str(swap)}, headers=ADMIN).status_code == 200
            bodies: list[dict[str, Any]] = []
            for user in range(USERS):
                if (user + day) % 5 in ABSENT and day:
                    continue
                features = {"level": user % 3, "city": "Ulm", "spend": round(rng.normal(), 3)}
                body: dict[str, Any] = {"request_id": f"{user}-{day}", "user_id": f"u{user}", "features": features}
                if given and user % 4 == 1:
                    body["past"] = [{"days_ago": 1, "action": 3, "reward": 0.1, "coupon_cost": 2, "spend": None}]
                bodies.append(body)
            answers = client.post("/v1/decisions", json={"requests": bodies}).json()["decisions"]
            asked = {body["user_id"]: answer["decision_id"] for body, answer in zip(bodies, answers, strict=True)}
            made[day] = [asked.get(f"u{user}", "") for user in range(USERS)]
            if late and day:
                time.at(day, 5)
                report(day - 1, 2, "late")
            time.at(day, 12)
            report(day, 0, "evening", paid=True)
            time.at(day, 17)  # one in the night in Shanghai: the next day
            report(day, 1, "night", paid=True)
        ledger = client.service.ledger
        assert isinstance(ledger, SqliteLedger)
        return {(row.user, row.day): json.loads(row.features) for row in ledger.rows("coupons", 0, 1 << 47)}


def exported(tmp_path: Path, recorded: bool = True) -> Transitions:
    out = tmp_path / "next"
    export_log(f"sqlite:///{tmp_path / 'ledger.db'}", out, clock=on(DAYS + 5))
    file = out / "campaign.toml"
    text = file.read_text()
    assert "recorded = true" in text
    if not recorded:
        file = out / "again.toml"
        file.write_text(text.replace("recorded = true", "recorded = false"))
    return prepare(file, tmp_path / f"data-{recorded}")


def differing(data: Transitions, made: Decisions) -> set[str]:
    """Users of whom DATA has other summaries than their decisions were made on."""
    history = History.of(data.campaign)
    assert history is not None
    width = len(history.names)
    schema = Schema((), data.schema.numeric[-width:])
    assert tuple(field.name for field in schema.numeric) == history.names
    numbers = np.asarray(data.number_columns)[:, -2 * width :]
    users = np.array(data.user_ids().to_pylist())
    days = data.first_times()[np.asarray(data.user)] + np.asarray(data.day)
    places = {pair: i for i, pair in enumerate(zip(users[np.asarray(data.user)].tolist(), days.tolist(), strict=True))}
    assert places.keys() >= made.keys()
    keys = [key for key in made if history.names[-1] in made[key]]
    table = pa.table({name: pa.array([made[key][name] for key in keys], pa.float64()) for name in history.names})
    same = (schema.encode(table).numbers == numbers[[places[key] for key in keys]]).all(axis=1)
    assert np.ptp(numbers, axis=0)[2::2].max() > 0
    return {user for (user, _), alike in zip(keys, same.tolist(), strict=True) if not alike}


@pytest.mark.parametrize("complete", [False, True])
def test_data_has_what_decisions_were_made_on(tmp_path: Path, complete: bool) -> None:
    """Late outcomes and pasts in requests included; what prepare computes itself differs for those users only."""
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(complete=complete, actions=[0.0, 1.5, 3.0]))
    made = serve(tmp_path, bundle, late=True, given=True)
    assert differing(exported(tmp_path), made) == set()
    computed = differing(exported(tmp_path, recorded=False), made)
    assert computed
    assert computed <= {f"u{user}" for user in range(USERS) if user % 3 == 2 or user % 4 == 1}


@pytest.mark.parametrize("complete", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_with_a_declared_delay_late_outcomes_change_nothing(tmp_path: Path, complete: bool) -> None:
    """Rewards that come after the next decision are unknown to it and, in training, to its row: to the bit the same."""
    made_for = campaign(complete=complete, actions=[0.0, 1.5, 3.0], delays={"reward": 1})
    made = serve(tmp_path, write_past_bundle(tmp_path / "bundle", campaign=made_for), late=True, given=False)
    data = exported(tmp_path, recorded=False)
    assert data.campaign.log.delays == {"reward": 1}
    assert differing(data, made) == set()


@pytest.mark.parametrize("complete", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_prepare_computes_the_same_from_the_exported_log(tmp_path: Path, complete: bool) -> None:
    """And so does the past of `outlay score --history`."""
    reward = "active + 0.3 * case when city = 'Ulm' then 1 else coupon end"
    made_for = campaign(complete=complete, actions=[0.0, 1.5, 3.0], reward=reward, columns=None)
    made = serve(tmp_path, write_past_bundle(tmp_path / "bundle", campaign=made_for), late=False, given=False)
    data = exported(tmp_path, recorded=False)
    assert differing(data, made) == set()
    past = UserPast.read(data.campaign, tmp_path / "next/log/*/*.parquet", data.actions)
    keys = list(made)
    table = past.with_features(
        pa.table({"user": [user for user, _ in keys]}),
        user=pa.array([user for user, _ in keys]),
        time=pa.array([day for _, day in keys]),
    )
    for name in past.history.names:
        expected = np.array([made[key][name] for key in keys], np.float64).astype(np.float32)
        assert np.array_equal(table[name].to_numpy(), expected, equal_nan=True)


@pytest.mark.slow
def test_what_another_bundle_recorded_is_computed_anew(tmp_path: Path) -> None:
    """`history_days` of 4 days is not that of 2."""
    first, second = (campaign(days=days, complete=False, actions=[0.0, 1.5, 3.0]) for days in (4, 2))
    one = write_past_bundle(tmp_path / "one", campaign=first)
    made = serve(tmp_path, one, late=True, given=True, swap=write_past_bundle(tmp_path / "two", 2, second))
    data = exported(tmp_path)
    assert differing(data, made) == set()
    history = History.of(data.campaign)
    assert history is not None
    assert history.days == 2
    field = data.schema.numeric[-len(history.names)]
    column = np.asarray(data.number_columns)[:, -2 * len(history.names)]
    assert np.rint(column * field.scale + field.mean).max() == 2
    assert {key for _, key in made} == set(range(FIRST, FIRST + DAYS))
