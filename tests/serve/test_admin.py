"""What an administrator may do, who is one, and what monitoring sees."""

from __future__ import annotations

import datetime
import getpass
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from small_servers import ADMIN, RESERVE, USE, USE_TOKEN, Client, request, server

from outlay.bundles.decide import Bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.core.errors import OutlayError
from outlay.serve.clock import Clock
from outlay.serve.config import Plan, ServeConfig
from outlay.serve.deciding.decider import decode_draw
from outlay.serve.deciding.loaded_bundle import LoadedBundle, prepare_bundle, register_bundle
from outlay.serve.handlers.metrics import _forget_dead
from outlay.serve.handlers.state import ServingState
from outlay.serve.ledger.campaigns import ActorNote
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import LedgerError
from outlay.serve.ledger.sqlite import SqliteLedger
from patience import PATIENCE
from telling import missing


@pytest.fixture
def client(bundle: Bundle, tmp_path: Path) -> Iterator[Client]:
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}) as client:
        yield client


@pytest.fixture
def other(tmp_path: Path, make_spec: Callable[..., BundleSpec]) -> Path:
    """A bundle of the same campaign with other weights."""
    write_bundle(tmp_path / "other", make_spec(weights=(0.1, 0.9)))
    return tmp_path / "other"


def admin(client: Client, what: str, body: Any = None) -> Any:
    return client.post(f"/v1/admin/{what}", json=body, headers=ADMIN)


def reason(client: Client, number: int) -> str:
    return str(client.post("/v1/decisions", json=request(number, eligible=[3])).json()["reason"])


def test_only_the_token_opens_the_admin_routes(client: Client) -> None:
    for what in ("pause", "resume", "bundle", "caps"):
        path = f"/v1/admin/{what}"
        none = client.post(path)
        assert (none.status_code, none.headers["www-authenticate"]) == (401, "Bearer")
        assert client.post(path, headers={"Authorization": "Bearer other"}).status_code == 401
        assert client.post(path, headers={"Authorization": "Basic secret"}).status_code == 401
    assert client.post("/v1/decisions", json=request()).status_code == 200


@pytest.mark.parametrize("use", [None, USE_TOKEN])
def test_without_a_token_nobody_is_an_administrator(bundle: Bundle, tmp_path: Path, use: str | None) -> None:
    with server(bundle, tmp_path / "ledger.db", use=use, admin=None) as client:
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}, USE):
            answer = client.post("/v1/admin/pause", headers=headers)
            assert (answer.status_code, answer.json()["way_out"]) == (403, "Start it with OUTLAY_ADMIN_TOKEN set.")


def test_who_may_use_a_server_may_not_administer_it(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", use=USE_TOKEN) as client:
        for path in ("/metrics", "/docs", "/openapi.json", "/nowhere"):
            assert client.get(path).status_code == 401
            assert {client.get(path, headers=headers).status_code for headers in (USE, ADMIN)} <= {200, 404}
        assert client.post("/v1/decisions", json=request()).status_code == 401
        for headers in (USE, ADMIN):
            assert client.post("/v1/decisions", json=request(), headers=headers).status_code == 200
        for what in ("pause", "resume", "bundle", "caps"):
            assert client.post(f"/v1/admin/{what}").status_code == 401
            assert client.post(f"/v1/admin/{what}", headers=USE).status_code == 403
        assert client.post("/v1/admin/pause", headers=ADMIN).status_code == 200


def test_probes_need_no_token_and_tell_nothing_without_one(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(bundle, tmp_path / "ledger.db", use=USE_TOKEN) as client:
        assert client.get("/v2/health/live").json() == {"live": True}
        assert client.get("/v2/health/ready").json() == {"ready": True}
        for headers in (USE, ADMIN):
            assert client.get("/v2/health/ready", headers=headers).json()["bundle"] == bundle.id
        client.service.state.behind = f"bundle {bundle.id} is away"
        answer = client.get("/v2/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"ready": False})
        client.service.ledger.broken = True  # type: ignore[attr-defined]
        answer = client.get("/v2/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"ready": False})


def trail(client: Client) -> list[tuple[str, str, str]]:
    """Every change, sorted: what, by which credential, in whose name."""
    notes = client.service.ledger.notes("coupons", "actor")
    kept = [msgspec.json.decode(note.content, type=ActorNote) for note in notes]
    for note, each in zip(notes, kept, strict=True):
        assert note.key in [other.key for other in client.service.ledger.notes("coupons", each.change)]
    return sorted((each.change, each.actor.credential, each.actor.name) for each in kept)


def test_the_trail_names_who_changed_what(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    process = "process", f"{getpass.getuser()}@{socket.gethostname()}"
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}) as client:
        first = [("caps", *process), ("config", *process)]
        assert trail(client) == first
        ann = ADMIN | {"Outlay-Actor": "Änn <ann@example.org>".encode()}
        for what, body in (("pause", None), ("caps", {"day": 5}), ("bundle", {"path": str(other)})):
            assert client.post(f"/v1/admin/{what}", json=body, headers=ann).status_code == 200
        assert client.post("/v1/admin/resume", headers=ADMIN).status_code == 200
        name = "admin", "Änn <ann@example.org>"
        then = [("pause", *name), ("caps", *name), ("config", *name), ("pause", "admin", "")]
        assert trail(client) == sorted([*first, *then])
        told = json.loads(client.service.ledger.notes("coupons", "config")[-1].content)
        assert (told["bundle"], told["path"]) == (client.service.state.loaded.bundle.id, str(other))
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}, expiry_hours=3) as client:
        assert trail(client) == sorted([*first, *then, ("config", *process)])
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}, expiry_hours=3, change=False) as client:
        assert len(trail(client)) == 7


@pytest.mark.parametrize("name", ["a" * 129, "a\tb", b"\xff", "\u202e".encode()])
def test_a_name_that_no_trail_can_show_is_refused(client: Client, name: str | bytes) -> None:
    answer = client.post("/v1/admin/pause", headers=ADMIN | {"Outlay-Actor": name})
    assert answer.status_code == 400
    assert not missing(answer.json()["error"], "Outlay-Actor")
    assert reason(client, 1) == "policy"


def test_a_pause_answers_none_and_lasts_over_restarts(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", fallback=1.5) as client:
        assert admin(client, "pause").json() == {"campaign": "coupons", "paused": True}
        assert reason(client, 1) == "paused"
        assert client.post("/v1/decisions", json=request(2, features={})).json()["reason"] == "paused"
    with server(bundle, tmp_path / "ledger.db") as client:
        assert reason(client, 3) == "paused"
        assert client.get("/v2/health/ready").json()["paused"] is True
        admin(client, "resume")
        assert reason(client, 4) == "policy"


def test_caps_are_lowered_and_raised_and_last_over_restarts(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}) as client:
        assert reason(client, 1) == "policy"
        assert admin(client, "caps", {"total": 5.5}).json() == {"total": 5.5, "day": None, "arms": {}}
        assert reason(client, 2) == "total_cap"
    with server(bundle, tmp_path / "ledger.db", caps={"total": 1000}) as client:
        assert reason(client, 3) == "total_cap"
        assert admin(client, "caps", {"total": None, "day": 6, "arms": {"policy": 100}}).json()["total"] is None
        assert [reason(client, i) for i in (4, 5)] == ["policy", "day_cap"]
        found = admin(client, "caps", {"day": None, "arms": {"policy": None, "random": 1}}).json()
        assert found == {"total": None, "day": None, "arms": {"random": 1.0}}


@pytest.mark.parametrize(
    "body", [{"total": -1}, {"totl": 1}, {"total": "much"}, {"total": 0.001}, {"total": 1e300}, {"arms": {"": 1}}, []]
)
def test_impossible_caps_change_nothing(client: Client, body: Any) -> None:
    assert admin(client, "caps", body).status_code == 422
    assert admin(client, "caps", {}).json() == {"total": 1000.0, "day": None, "arms": {}}


def test_another_bundle_goes_into_service(client: Client, bundle: Bundle, other: Path) -> None:
    before = client.post("/v1/decisions", json=request(1)).json()
    found = admin(client, "bundle", {"path": str(other)}).json()
    assert found["before"] == bundle.id
    after = client.post("/v1/decisions", json=request(2)).json()
    assert after["bundle"] == found["bundle"] != bundle.id
    assert client.post("/v1/decisions", json=request(1)).json() == before
    meters = client.get("/metrics").text
    assert f'outlay_bundle_info{{bundle="{found["bundle"]}"}} 1.0' in meters
    assert f'outlay_bundle_info{{bundle="{bundle.id}"}} 0.0' in meters


@pytest.mark.parametrize("harm", ["absent", "cut", "golden", "campaign", "actions"])
def test_a_broken_bundle_leaves_the_old_in_service(
    client: Client, bundle: Bundle, other: Path, tmp_path: Path, make_spec: Callable[..., BundleSpec], harm: str
) -> None:
    words = {"absent": "does not exist", "campaign": "is a bundle of campaign 'x'", "actions": "reserve"}.get(
        harm, "hash differs"
    )
    if harm == "absent":
        shutil.rmtree(other)
    elif harm in ("cut", "golden"):
        file = other / ("policy-0.onnx" if harm == "cut" else "golden.npz")
        file.write_bytes(file.read_bytes()[:-1])
    elif harm == "campaign":
        campaign = make_spec().campaign
        meta = campaign.meta.model_copy(update={"name": "x"})
        write_bundle(other, replace(make_spec(), campaign=campaign.model_copy(update={"meta": meta})))
    else:
        write_bundle(other, replace(make_spec(), actions=[0.0, 1.5, 4.0]))
    found = admin(client, "bundle", {"path": str(other)})
    assert found.status_code == 422
    assert words in found.json()["error"]
    assert f"Bundle {bundle.id} stays in service." in found.json()["error"]
    assert client.post("/v1/decisions", json=request(1)).json()["bundle"] == bundle.id
    assert admin(client, "bundle", {"path": "", "x": 1}).status_code == 422


def test_requests_during_a_swap_see_one_bundle_or_the_other(client: Client, bundle: Bundle, other: Path) -> None:
    service = client.service
    old, new = service.state.loaded, prepare_bundle(other, service.state.config)
    with service.state._swap:  # as while one is loaded: the ledger's is not followed then
        for i in range(40):
            service.state.loaded = new if i % 2 else old
            asked = client.post_together("/v1/decisions", [request(1000 * i + j) for j in range(5)])
            assert {answer.json()["bundle"] for answer in asked} == {service.state.loaded.bundle.id}
    assert {row.bundle for row in service.ledger.rows("coupons", 0, 2**62)} == {bundle.id, new.bundle.id}


def test_servers_follow_the_bundle_of_the_ledger(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    """However often it goes back and forth."""
    config = ServeConfig.parse({"reserve": RESERVE})
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.set_caps("coupons", Caps())
    one, two = (ServingState(prepare_bundle(bundle.folder, config), config) for _ in range(2))
    assert two.follow(ledger, 0) is None
    for path in (other, bundle.folder, other):
        wanted = one.load(path, ledger, 0)
        assert one.follow(ledger, 0) is None
        found = two.follow(ledger, 0)
        assert found is two.loaded
        assert found.bundle.id == wanted.bundle.id
        assert two.follow(ledger, 0) is None
    ledger.close()


def test_a_bundle_that_could_not_be_loaded_is_tried_again_after_a_growing_wait(
    bundle: Bundle, other: Path, tmp_path: Path, make_spec: Callable[..., BundleSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []

    def counted(path: Path, *values: Any, **more: Any) -> LoadedBundle:
        tries.append(path)
        return prepare_bundle(path, *values, **more)

    monkeypatch.setattr("outlay.serve.handlers.state.prepare_bundle", counted)
    config = ServeConfig.parse({"reserve": RESERVE})
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.set_caps("coupons", Caps())
    one, two = (ServingState(prepare_bundle(bundle.folder, config), config) for _ in range(2))
    new = one.load(other, ledger, 0).bundle.id
    other.rename(tmp_path / "away")
    tries.clear()
    tried_at = []
    for second in range(400):
        before = len(tries)
        assert two.follow(ledger, 1_000 * second) is None
        tried_at += [second] * (len(tries) - before)
        assert not missing(two.behind, f"bundle {new}", "does not exist")
    assert tried_at == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]
    assert two.loaded.bundle.id == bundle.id
    write_bundle(other, make_spec(weights=(0.5, 0.5)))
    assert two.follow(ledger, 423_000) is None
    assert "holds bundle" in two.behind  # a folder that holds another one by now
    shutil.rmtree(other)
    (tmp_path / "away").rename(other)
    assert two.follow(ledger, 482_000) is None
    assert two.follow(ledger, 483_000) is two.loaded
    assert (two.loaded.bundle.id, two.behind) == (new, "")
    other.rename(tmp_path / "away")
    elsewhere = tmp_path / "elsewhere"
    write_bundle(elsewhere, make_spec(weights=(0.5, 0.5)))
    one.load(elsewhere, ledger, 0)  # another bundle is tried at once
    assert two.follow(ledger, 483_500) is two.loaded
    ledger.close()


def test_what_a_server_is_not_ready_for_is_said_once(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    service = client.service
    for behind in ("bundle b7 is away", "bundle b7 is away", "bundle b8 is away", "", "", "bundle b9 is away"):
        service.state.behind = behind
        service._release(0)
    told = [record.getMessage() for record in caplog.records if "ready" in record.getMessage()]
    causes = ["bundle b7 is away", "bundle b8 is away", None, "bundle b9 is away"]
    assert told == ["ready again" if why is None else f"not ready: {why}" for why in causes]


def test_a_ledger_out_of_reach_does_not_delay_the_bundle_that_it_names(
    bundle: Bundle, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ServeConfig.parse({"reserve": RESERVE})
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.set_caps("coupons", Caps())
    one, two = (ServingState(prepare_bundle(bundle.folder, config), config) for _ in range(2))
    one.load(other, ledger, 0)

    def broken(*_values: Any) -> Any:
        raise LedgerError("the disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "note", broken)
        with pytest.raises(LedgerError, match="full"):
            two.follow(ledger, 0)
    assert two.behind == ""
    assert two.follow(ledger, 1) is two.loaded
    ledger.close()


def test_a_bundle_that_cannot_be_noted_goes_into_service_nowhere(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    config = ServeConfig.parse({"reserve": RESERVE})
    strange = SqliteLedger(tmp_path / "strange.db")
    state = ServingState(prepare_bundle(bundle.folder, config), config)
    with pytest.raises(LedgerError):
        state.load(other, strange, 0)
    assert state.loaded.bundle.id == bundle.id
    assert strange.config("coupons") is None
    strange.close()


def test_what_another_worker_announced_does_not_undo_the_bundle_that_is_being_loaded(
    bundle: Bundle, other: Path, tmp_path: Path, make_spec: Callable[..., BundleSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, third = ServeConfig.parse({"reserve": RESERVE}), tmp_path / "third"
    write_bundle(third, make_spec(weights=(0.3, 0.7)))
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.set_caps("coupons", Caps())
    one, two = (ServingState(prepare_bundle(bundle.folder, config), config) for _ in range(2))
    one.load(third, ledger, 0)
    begun, go = threading.Event(), threading.Event()

    def slowly(path: Path, *values: Any, **more: Any) -> LoadedBundle:
        if path == other:
            begun.set()
            assert go.wait(PATIENCE)
        return prepare_bundle(path, *values, **more)

    monkeypatch.setattr("outlay.serve.handlers.state.prepare_bundle", slowly)
    with ThreadPoolExecutor(1) as pool:
        loaded = pool.submit(two.load, other, ledger, 0)
        assert begun.wait(PATIENCE)
        assert two.follow(ledger, 0) is None
        go.set()
        wanted = loaded.result(PATIENCE)
    assert two.follow(ledger, 0) is None
    assert two.loaded is wanted
    found = one.follow(ledger, 0)
    assert found is not None
    assert found.bundle.id == wanted.bundle.id
    ledger.close()


def test_a_ledger_out_of_reach_is_no_fault_of_the_bundle(
    client: Client, bundle: Bundle, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_values: Any) -> Any:
        raise LedgerError("the disk is full.")

    monkeypatch.setattr(client.service.ledger, "note", broken)
    found = admin(client, "bundle", {"path": str(other)})
    assert (found.status_code, found.headers["retry-after"]) == (503, "1")
    assert not missing(found.json()["error"], "ledger", "the disk is full.")
    assert client.post("/v1/decisions", json=request(1)).json()["bundle"] == bundle.id


def test_a_path_that_no_system_has_is_refused(client: Client) -> None:
    for path in ("a\0b", "x" * 10_000):
        found = admin(client, "bundle", {"path": path})
        assert (found.status_code, found.json()["where"]) == (422, "$.path")


def test_a_duty_that_fails_keeps_the_server_from_no_other(
    client: Client, other: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bundle that would fix it must be able to come."""
    service = client.service
    told = ServingState(service.state.loaded, service.state.config).load(other, service.ledger, 0)

    def release(*_values: Any) -> Any:
        raise ZeroDivisionError("a bug")

    def steer(*_values: Any) -> Any:
        raise LedgerError("the disk is full.")

    monkeypatch.setattr(service.ledger, "release", release)
    monkeypatch.setattr(service.state, "update", steer)
    service.maintain()
    assert "ZeroDivisionError: a bug" in caplog.text
    assert not missing(caplog.text, "maintenance", "the disk is full.")
    assert service.state.loaded.bundle.id == told.bundle.id


def test_the_ledger_says_which_bundle_and_settings_decided(client: Client, bundle: Bundle, other: Path) -> None:
    ledger, config = client.service.ledger, client.service.state.config
    for again in (config, config.with_cap(7), config.with_cap(7)):
        register_bundle(ledger, client.service.state.loaded, again, client.service.clock.now() + 1)
    admin(client, "bundle", {"path": str(other)})
    notes = {note.key: json.loads(note.content) for note in ledger.notes("coupons", "bundle")}
    assert set(notes) == {bundle.id, client.service.state.loaded.bundle.id}
    assert notes[bundle.id]["members"] == json.loads(json.dumps([asdict(m) for m in bundle.manifest.members]))
    assert notes[bundle.id]["campaign"] == bundle.manifest.campaign
    assert not {"files", "versions"} & set(notes[bundle.id])
    settings = [ServeConfig.parse(json.loads(note.content)) for note in ledger.notes("coupons", "settings")]
    assert [one.caps.total for one in settings] == [1000.0, 7.0, 1000.0]
    assert settings[-1] == config


def test_another_minor_unit_than_the_ledgers_is_refused(client: Client) -> None:
    service = client.service
    other = service.state.config.model_copy(update={"minor": 1000})
    with pytest.raises(OutlayError, match=r"minor: is 1000, .*100 minor units"):
        register_bundle(service.ledger, service.state.loaded, other, 2)


def test_a_plan_needs_money_and_says_when_it_is_not_the_time(client: Client) -> None:
    service = client.service
    plan = Plan(start=datetime.date(2026, 3, 2), days=2)
    config = service.state.config.model_copy(update={"plan": plan})
    day = 86_400_000
    told = [
        register_bundle(service.ledger, service.state.loaded, config, (plan.first + at) * day) for at in (-1, 0, 1, 2)
    ]
    assert told[1] == told[2] == []
    assert not missing(told[0][0], "2026-03-02", "cheapest policy")
    assert "the plan is over" in told[3][0]
    service.ledger.set_caps("coupons", Caps(day=5))
    with pytest.raises(OutlayError, match=r"plan: .*no total cap"):
        register_bundle(service.ledger, service.state.loaded, config, 0)


def test_a_plan_is_followed_from_request_to_request(frontier_bundle: Bundle, tmp_path: Path) -> None:
    """By the server's clock: the price of an hour stands in its decisions, and in the notes."""
    now = [datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC).timestamp()]
    plan = {"start": datetime.date(2026, 3, 2), "days": 2, "correct_minutes": 60}
    clock = Clock("UTC", lambda: now[0])
    with server(frontier_bundle, tmp_path / "ledger.db", caps={"total": 20}, plan=plan, clock=clock) as client:
        for number in range(6):
            client.post("/v1/decisions", json=request(number, eligible=[3]))
        now[0] += 3_600
        client.service.maintain()
        assert client.post("/v1/decisions", json=request(7)).json()["member"] in (1, 3)
        rows = list(client.service.ledger.rows("coupons", 0, 2**62))
        assert [decode_draw(row.members).price for row in rows] == pytest.approx([1.0] * 6 + [1.1])
        assert [json.loads(note.content)["price"] for note in client.service.ledger.notes("coupons", "pace")] == (
            pytest.approx([1.0, 1.1])
        )
        (line,) = (line for line in client.get("/metrics").text.splitlines() if line.startswith("outlay_price{"))
        assert line.startswith('outlay_price{arm="policy"} 1.1')


def test_what_to_set_aside_is_the_bundles_or_the_settings(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutlayError, match="how much money"):
        prepare_bundle(bundle.folder, ServeConfig())
    for reserve, words in (
        ({"0": 0, "1.5": 1.5}, "reserve: has no amount for the action 3"),
        ({**RESERVE, "2": 2}, r"reserve\.2: is not one of the actions"),
        ({**RESERVE, "x": 2}, r"reserve\.x: is not one of the actions"),
    ):
        with pytest.raises(OutlayError, match=words):
            prepare_bundle(bundle.folder, ServeConfig.parse({"reserve": reserve}))
    with pytest.raises(OutlayError, match=r"fallback: is 2, .*actions"):
        prepare_bundle(bundle.folder, ServeConfig.parse({"reserve": RESERVE, "fallback": 2.0}))
    near = prepare_bundle(bundle.folder, ServeConfig.parse({"reserve": RESERVE, "fallback": 1.5000001}))
    assert near.decider.fallback == 1.5
    stored = replace(bundle, manifest=replace(bundle.manifest, reserve=(0.0, 0.754, 3.0)))
    monkeypatch.setattr("outlay.serve.deciding.loaded_bundle.load_bundle", lambda _path, **_options: stored)
    assert prepare_bundle(bundle.folder, ServeConfig()).amounts == (0, 76, 300)


def test_the_page_describes_every_route_and_message(client: Client) -> None:
    page = client.get("/openapi.json").json()
    assert set(page["paths"]) == {
        "/v1/decisions",
        "/v1/outcomes",
        "/v1/admin/pause",
        "/v1/admin/resume",
        "/v1/admin/bundle",
        "/v1/admin/caps",
        "/v2/health/live",
        "/v2/health/ready",
        "/metrics",
    }
    named = set(page["components"]["schemas"])
    used = {part.split('"')[0] for part in json.dumps(page).split("#/components/schemas/")[1:]}
    assert used <= named
    assert {"DecisionRequest", "DecisionAnswer", "OutcomeRequest", "Problem", "DecisionAnswers"} <= used
    assert client.get("/docs").status_code == 200


def test_meters_count_decisions_and_money(client: Client) -> None:
    assert reason(client, 1) == "policy"
    client.post("/v1/decisions", json=request(2, features={"level": 9, "city": "Rome", "spend": 1}))
    client.post("/v1/decisions", json={})
    text = client.get("/metrics").text
    assert 'outlay_decisions_total{arm="policy",campaign="coupons",member=' in text
    for line in (
        'outlay_unknown_values_total{feature="level"} 1.0',
        'outlay_refused_requests_total{status="422"} 1.0',
        'outlay_budget_cap_units{scope="total"} 1000.0',
        "outlay_paused 0.0",
    ):
        assert f"\n{line}\n" in text
    assert "outlay_decision_seconds_count 2.0" in text
    assert "_created" not in text
    assert "outlay_price{" not in text


def test_decisions_for_states_that_the_log_never_showed_are_counted(table_bundle: Bundle, tmp_path: Path) -> None:
    with server(table_bundle, tmp_path / "ledger.db") as client:
        for i, level in enumerate((1, 2, 3, 3)):
            client.post("/v1/decisions", json=request(i, features={"level": level, "city": "Ulm", "spend": 10}))
        assert "\noutlay_unseen_states_total 2.0\n" in client.get("/metrics").text


def test_the_money_of_a_day_is_todays(bundle: Bundle, tmp_path: Path) -> None:
    now = [1_795_290_044.0]
    with server(bundle, tmp_path / "ledger.db", caps={"day": 6}, clock=Clock("UTC", lambda: now[0])) as client:
        for day, held in ((0, 3.0), (1, 0.0)):
            now[0] += 86_400 * day
            if day == 0:
                assert reason(client, 1) == "policy"
            text = client.get("/metrics").text
            assert f'\noutlay_budget_reserved_units{{scope="day"}} {held}\n' in text
            assert '\noutlay_budget_cap_units{scope="day"} 6.0\n' in text


def test_what_workers_that_have_ended_said_is_forgotten_even_if_others_have_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {1: ProcessLookupError, 2: PermissionError}

    def kill(process: int, _signal: int) -> None:
        if process in numbers:
            raise numbers[process]

    forgotten: list[int] = []
    monkeypatch.setattr("os.kill", kill)
    monkeypatch.setattr("prometheus_client.multiprocess.mark_process_dead", forgotten.append)
    for process in (1, 2, 3):
        (tmp_path / f"gauge_livemax_{process}.db").touch()
    _forget_dead(tmp_path)
    assert sorted(forgotten) == [1, 2]


def test_two_administrators_do_not_undo_one_another(client: Client) -> None:
    bodies = [{"total": 50}, {"day": 5}, {"arms": {"policy": 40}}, {"arms": {"random": 4}}] * 5
    found = client.post_together("/v1/admin/caps", bodies, headers=ADMIN)
    assert {answer.status_code for answer in found} == {200}
    assert admin(client, "caps", {}).json() == {"total": 50.0, "day": 5.0, "arms": {"policy": 40.0, "random": 4.0}}
