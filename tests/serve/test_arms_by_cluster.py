"""A server whose test draws arms by cluster: arms as `assign` writes them, one cluster a user, the export analysed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_servers import STATE, Client, server
from small_trials import Days, trial

from outlay.bundles.decide import Bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.core.errors import LogError
from outlay.experiments.design import Experiment
from outlay.experiments.words import NoteKind
from outlay.jobs.analyze_experiment import analyze_experiment
from outlay.jobs.assign_users import assign_users
from outlay.serve.export.export import export_log
from telling import missing

TOWNS = [f"town-{i}" for i in range(90)]
HOME = {f"u{i}": TOWNS[i % 90] for i in range(360)}
RAMP = [{"day": 0, "coverage": 0.3}, {"day": 2, "coverage": 1.0}]


@pytest.fixture
def towns(bundle: Bundle, tmp_path: Path) -> Experiment:
    return trial(tmp_path, bundle.folder, RAMP, cluster="town")


def body(user: str, tag: str, **changes: Any) -> dict[str, Any]:
    return {"request_id": f"{tag}-{user}", "user_id": user, "features": STATE} | changes


def ask(client: Client, tag: str, homes: dict[str, Any], **changes: Any) -> dict[str, dict[str, Any]]:
    asked = [body(user, tag, cluster=town, **changes) for user, town in homes.items()]
    answer = client.post("/v1/decisions", json={"requests": asked})
    assert answer.status_code == 200, answer.text
    return dict(zip(homes, answer.json()["decisions"], strict=True))


def assigned(experiment: Experiment, folder: Path, day: int) -> dict[str, str | None]:
    users = pa.table({"user": list(HOME), "town": list(HOME.values())})
    pq.write_table(users, folder / "users.parquet")
    assign_users(experiment, folder / "users.parquet", folder / "arms.parquet", day=day)
    found = pq.read_table(folder / "arms.parquet").to_pydict()
    return dict(zip(found["user"], found["arm"], strict=True))


def test_the_arms_are_those_that_assign_writes(bundle: Bundle, towns: Experiment, tmp_path: Path) -> None:
    clock = Days(-0.5)
    with server(bundle, tmp_path / "ledger.db", clock=clock, experiment=towns) as client:
        assert {each["arm"] for each in ask(client, "before", HOME).values()} == {"policy"}
        for day in (0, 2):
            clock.at = day + 0.5
            arms = {user: each["arm"] for user, each in ask(client, str(day), HOME).items()}
            assert arms == {user: arm or "policy" for user, arm in assigned(towns, tmp_path, day).items()}
        assert set(arms.values()) == {"policy", "old", "new", "even", "nobody"}


def test_numbers_and_features_are_clusters_too(bundle: Bundle, tmp_path: Path) -> None:
    """3, 3.0 and "3" are one; a cluster that is a feature needs no other place."""
    levels = trial(tmp_path, bundle.folder, RAMP, cluster="level")
    with server(bundle, tmp_path / "ledger.db", clock=Days(2), experiment=levels) as client:
        for level in range(12):
            asked = [body(f"a{level}", "1", features=STATE | {"level": level})]
            asked += [
                body(f"{name}{level}", "1", cluster=given, features={})
                for name, given in (("b", level), ("c", float(level)), ("d", str(level)))
            ]
            found = client.post("/v1/decisions", json={"requests": asked}).json()["decisions"]
            assert len({each["arm"] for each in found}) == 1
        assert client.post("/v1/decisions", json=body("e", "1", cluster="1")).status_code == 200


@pytest.mark.parametrize(
    ("changes", "error", "way_out"),
    [
        ({}, "is absent … town", "cluster … outlay experiment assign"),
        ({"cluster": None}, "is absent … town", "cluster"),
        ({"features": STATE | {"town": None}}, "is absent … town", "missing"),
        (
            {"cluster": "Ulm", "features": STATE | {"town": "Lyon"}},
            "is 'Ulm' … 'town' is 'Lyon'",
            "same",
        ),
    ],
)
def test_a_request_without_one_cluster_is_refused(
    bundle: Bundle, towns: Experiment, tmp_path: Path, changes: dict[str, Any], error: str, way_out: str
) -> None:
    with server(bundle, tmp_path / "ledger.db", clock=Days(), experiment=towns) as client:
        answer = client.post(
            "/v1/decisions", json={"requests": [body("a", "1", cluster="x"), body("b", "1") | changes]}
        )
        assert answer.status_code == 422
        assert answer.json()["where"] == "$.requests[1].cluster"
        assert not missing(answer.json()["error"], error)
        assert not missing(answer.json()["way_out"], way_out)
        assert client.service.ledger.totals("coupons").total.decisions == 0


def test_a_user_who_moves_stays_in_the_first_arm_and_is_counted(
    bundle: Bundle, towns: Experiment, tmp_path: Path
) -> None:
    """Also a user who was met before the ramp let the cluster in, and within one group of requests."""
    clock, path = Days(0.2), tmp_path / "ledger.db"
    away = {user: TOWNS[(i + 7) % 90] for i, user in enumerate(HOME)}
    with server(bundle, path, clock=clock, experiment=towns) as client:
        ask(client, "one", HOME)
        clock.at = 3.0
        moved = ask(client, "two", away)
        together = [body("new", str(i), cluster=town) for i, town in enumerate(TOWNS[:3])]
        found = client.post("/v1/decisions", json={"requests": together}).json()["decisions"]
        page = client.get("/metrics").text
        assert client.service.ledger.check() == []
    wanted = assigned(towns, tmp_path, 3)
    assert {user: each["arm"] for user, each in moved.items()} == {u: arm or "policy" for u, arm in wanted.items()}
    assert len({each["arm"] for each in found}) == 1
    assert f"outlay_moved_clusters_total {len(HOME) + 2}.0" in page


def test_a_retry_is_answered_as_before_and_a_changed_cluster_is_another_request(
    bundle: Bundle, towns: Experiment, tmp_path: Path
) -> None:
    with server(bundle, tmp_path / "ledger.db", clock=Days(), experiment=towns) as client:
        first = client.post("/v1/decisions", json=body("a", "1", cluster="x"))
        assert client.post("/v1/decisions", json=body("a", "1", cluster="x")).json() == first.json()
        assert client.post("/v1/decisions", json=body("a", "1", cluster="y")).status_code == 409


def test_every_arm_has_to_be_able_to_read_a_request(
    bundle: Bundle, make_spec: Callable[..., BundleSpec], tmp_path: Path
) -> None:
    """The ledger may know the user in another arm than the request's cluster draws."""
    write_bundle(tmp_path / "other", replace(make_spec(weights=(0.2, 0.3, 0.5)), reserve=[0.0, 1.5, 3.0]))
    experiment = trial(tmp_path, tmp_path / "other", RAMP, cluster="town")
    with server(bundle, tmp_path / "ledger.db", clock=Days(3), experiment=experiment) as client:
        for town in TOWNS[:20]:
            wrong = body(town, "1", cluster=town, features=STATE | {"spend": "much"})
            assert client.post("/v1/decisions", json=wrong).status_code == 422


def test_served_exported_and_analysed_by_cluster(bundle: Bundle, towns: Experiment, tmp_path: Path) -> None:
    """From the first request to the verdict: the clusters drawn are those in the log, though users move."""
    clock, path = Days(), tmp_path / "ledger.db"
    with server(bundle, path, clock=clock, experiment=towns, wait_days=1) as client:
        for day in range(7):
            clock.at = day + 0.3
            homes = HOME if day < 5 else {user: TOWNS[(i * 3) % 90] for i, user in enumerate(HOME)}
            given = ask(client, str(day), homes)
            told = [
                {"decision_id": each["decision_id"], "kind": "active", "event_id": "a"}
                for i, each in enumerate(given.values())
                if (i * (day + 3)) % 5 < 2
            ]
            assert client.post("/v1/outcomes", json={"outcomes": told}).status_code == 200
    export_log(f"sqlite:///{path}", tmp_path / "next", clock=lambda _zone: Days(20))
    rows = pq.read_table(tmp_path / "next" / "log", partitioning=None).to_pylist()
    assert {row["user_id"]: row["arm_cluster"] for row in rows} == HOME
    found = analyze_experiment(tmp_path / "next", towns, columns={"user": "user_id"})
    wanted = assigned(towns, tmp_path, 6)
    counts = {arm.name: arm.users for arm in found.arms}
    assert counts == {arm: list(wanted.values()).count(arm) for arm in counts}
    drawn = len({HOME[user] for user, arm in wanted.items() if arm})
    assert NoteKind.BY_CLUSTER(clusters=drawn) in found.notes
    listed = analyze_experiment(
        tmp_path / "next", towns, columns={"user": "user_id"}, assigned=tmp_path / "arms.parquet"
    )
    assert [each.users for each in listed.arms] == list(counts.values())
    with pytest.raises(LogError, match="more than one cluster"):
        analyze_experiment(tmp_path / "next", towns, columns={"user": "user_id", "cluster": "arm_cluster || day"})
