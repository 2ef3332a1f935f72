"""A server with a test: who lands in which arm, what each arm gives, and that nothing else moves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from small_servers import ADMIN, RESERVE, STATE, BrokenLedger, Client, server
from small_trials import RAMP, Days, trial

from outlay.bundles.decide import Bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.core.errors import OutlayError
from outlay.jobs.assign_users import assign_users
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.experiment import load_experiment
from outlay.serve.export.export import export_log

USERS = [f"user-{i}" for i in range(300)]
ALL_IN = [{"day": 0, "coverage": 1.0}]


@pytest.fixture(scope="module")
def other(make_spec: Callable[..., BundleSpec], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("other") / "bundle"
    write_bundle(path, make_spec(weights=(0.2, 0.3, 0.5)))
    return path


def ask(client: Client, users: list[str], tag: str, status: int = 200, **changes: Any) -> list[dict[str, Any]]:
    found = []
    for i in range(0, len(users), 1_000):
        asked = [{"request_id": f"{tag}-{u}", "user_id": u, "features": STATE} | changes for u in users[i : i + 1_000]]
        answer = client.post("/v1/decisions", json={"requests": asked})
        assert answer.status_code == status, answer.text
        found += answer.json()["decisions"]
    return found


def by_arm(users: list[str], found: list[dict[str, Any]]) -> dict[str, str]:
    return {user: each["arm"] for user, each in zip(users, found, strict=True)}


def test_the_arms_of_a_server_are_those_that_assign_writes(bundle: Bundle, tmp_path: Path) -> None:
    """5,000 users on every step of the ramp."""
    experiment, clock = trial(tmp_path, bundle.folder), Days()
    users = [f"user-{i}" for i in range(4_000)] + [str(i) for i in range(1_000)]
    pq.write_table(pa.table({"user": users}), tmp_path / "users.parquet")
    with server(bundle, tmp_path / "ledger.db", clock=clock, experiment=experiment) as client:
        for day in (0, 1, 2, 4, 6):
            clock.at = day + 0.5
            assigned = tmp_path / f"arms-{day}.parquet"
            assign_users(experiment, tmp_path / "users.parquet", assigned, day=day)
            wanted = pq.read_table(assigned).to_pydict()
            arms = by_arm(users, ask(client, users, str(day)))
            assert arms == {u: arm or "policy" for u, arm in zip(wanted["user"], wanted["arm"], strict=True)}
        assert set(arms.values()) == {"policy", "old", "new", "even", "nobody"}


def test_nobody_is_in_the_test_before_it_and_after_it(bundle: Bundle, tmp_path: Path) -> None:
    experiment, clock = trial(tmp_path, bundle.folder, ALL_IN), Days(-0.001)
    with server(bundle, tmp_path / "ledger.db", clock=clock, experiment=experiment) as client:
        assert {each["arm"] for each in ask(client, USERS, "before")} == {"policy"}
        for at in (0.0, 6.999):
            clock.at = at
            assert {each["arm"] for each in ask(client, USERS, str(at))} == {"policy", "old", "new", "even", "nobody"}
        clock.at = 7.0
        assert {each["arm"] for each in ask(client, USERS, "after")} == {"policy"}


def test_every_arm_gives_what_it_is_for(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    experiment = trial(tmp_path, other, ALL_IN)
    path = tmp_path / "ledger.db"
    with server(bundle, path, clock=Days(), experiment=experiment, random={"share": 0.3}) as client:
        found = ask(client, USERS, "a")
        again = ask(client, USERS, "a")
        later = ask(client, USERS, "b")
    assert again == found
    assert by_arm(USERS, later) == by_arm(USERS, found)
    arms: dict[str, list[dict[str, Any]]] = {name: [] for name in ("old", "new", "even", "nobody", "policy", "random")}
    for each in found:
        arms[each["arm"]].append(each)
    assert all(arms.values())
    ours = bundle.id
    assert {(e["action"], e["probability"], e["reason"], e["bundle"]) for e in arms["old"]} == {
        (1.5, 1.0, "constant", ours)
    }
    assert {(e["action"], e["probability"], e["reason"], e["bundle"]) for e in arms["nobody"]} == {
        (0.0, 1.0, "holdout", ours)
    }
    assert {(e["probability"], e["reason"], e["member"]) for e in arms["even"]} == {(1 / 3, "random", None)}
    assert {e["action"] for e in arms["even"]} == {0.0, 1.5, 3.0}
    assert {e["reason"] for e in arms["new"]} == {"policy"}
    assert {e["member"] for e in arms["new"]} == {0, 1, 2}
    assert {e["bundle"] for e in arms["new"]} == {
        prepare_bundle(other, ServeConfig.parse({"reserve": RESERVE})).bundle.id
    }
    assert {e["bundle"] for e in arms["policy"]} == {ours}


def test_an_arm_of_the_served_bundle_decides_as_it_does(bundle: Bundle, tmp_path: Path) -> None:
    experiment = trial(tmp_path, bundle.folder, ALL_IN)
    with server(bundle, tmp_path / "one.db", clock=Days(), experiment=experiment) as client:
        tested = ask(client, USERS, "a")
    with server(bundle, tmp_path / "two.db", clock=Days()) as client:
        plain = ask(client, USERS, "a")
    same = ("action", "member", "probability", "bundle", "reason")
    pairs = [(t, p) for t, p in zip(tested, plain, strict=True) if t["arm"] in ("new", "policy")]
    assert len({t["arm"] for t, _ in pairs}) == 2
    assert all(t[key] == p[key] for t, p in pairs for key in same)


def test_what_a_request_does_not_allow_is_not_given(bundle: Bundle, tmp_path: Path) -> None:
    experiment = trial(tmp_path, bundle.folder, ALL_IN)
    with server(bundle, tmp_path / "ledger.db", clock=Days(), experiment=experiment) as client:
        none = ask(client, USERS, "none", eligible=[])
        three = ask(client, USERS, "three", eligible=[3.0])
        bare = ask(client, USERS, "bare", features={})
    assert {(e["action"], e["reason"]) for e in none} == {(0.0, "not_eligible")}
    assert {(e["arm"], e["action"], e["reason"]) for e in three} == {
        ("policy", 3.0, "policy"),
        ("new", 3.0, "policy"),
        ("even", 3.0, "random"),
        ("old", 0.0, "not_eligible"),
        ("nobody", 0.0, "holdout"),
    }
    reasons = {e["arm"]: e["reason"] for e in bare}
    assert reasons == {
        "policy": "missing_features",
        "new": "missing_features",
        "even": "missing_features",
        "old": "constant",
        "nobody": "holdout",
    }


def test_what_a_request_allows_stands_in_the_log_of_every_arm(bundle: Bundle, tmp_path: Path) -> None:
    """A constant has drawn nothing; who learns from its rows is to know all the same what else was allowed."""
    experiment, path = trial(tmp_path, bundle.folder, ALL_IN), tmp_path / "ledger.db"
    with server(bundle, path, clock=Days(), experiment=experiment, outcomes=["active"]) as client:
        ask(client, USERS, "some", eligible=[0.0, 1.5])
        ask(client, USERS[:100], "one", eligible=[1.5])
    export_log(f"sqlite:///{path}", tmp_path / "next", all_days=True)
    rows = ds.dataset([str(each) for each in (tmp_path / "next").glob("*/*/*.parquet")]).to_table().to_pylist()
    asked = [row for row in rows if row["request_id"].startswith("some")]
    assert {row["arm"] for row in asked} == {"policy", "old", "new", "even", "nobody"}
    assert {(tuple(row["eligible"]), row["forced"]) for row in asked} == {((0.0, 1.5), False)}
    alone = {(row["arm"], row["forced"]) for row in rows if row["request_id"].startswith("one")}
    assert {("policy", True), ("old", True), ("nobody", False)} <= alone


def test_an_arms_budget_is_never_exceeded_and_starves_nobody_else(bundle: Bundle, tmp_path: Path) -> None:
    arms = [
        {"name": "old", "kind": "constant", "action": 3.0, "share": 0.3, "budget": 20.0},
        {"name": "new", "kind": "random", "share": 0.3, "budget": 40.5},
    ]
    experiment, clock = trial(tmp_path, bundle.folder, ALL_IN, arms), Days()
    path = tmp_path / "ledger.db"
    with server(bundle, path, clock=clock, experiment=experiment, caps={"total": 5_000}) as client:
        ledger = client.service.ledger
        for day in range(3):
            clock.at = day
            found = ask(client, USERS, str(day))
            totals = ledger.totals("coupons")
            for name, cap in (("old", 2_000), ("new", 4_050)):
                tally = totals.arms[name]
                assert tally.cap == cap
                assert tally.reserved + tally.settled <= cap
        reasons = Counter((each["arm"], each["reason"]) for each in found)
        assert reasons["old", "arm_cap"] > 50
        assert reasons["new", "arm_cap"] > 20
        assert {reason for arm, reason in reasons if arm == "policy"} == {"policy"}
        assert ledger.check() == []
        changed = client.post("/v1/admin/caps", json={"arms": {"old": 23}}, headers=ADMIN)
        assert changed.json()["arms"] == {"old": 23.0, "new": 40.5}
        assert client.post("/v1/admin/caps", json={"arms": {"x": 1}}, headers=ADMIN).status_code == 422
    with server(bundle, path, clock=clock, experiment=experiment) as client:  # the ledger knows better by now
        assert dict(client.service.ledger.totals("coupons").caps.arms) == {"old": 2_300, "new": 4_050}


def test_another_bundle_for_the_others_leaves_the_arms_alone(
    make_spec: Callable[..., BundleSpec], tmp_path: Path
) -> None:
    own, changed, far = (tmp_path / name for name in ("own", "changed", "far"))
    for path, weights, most in ((own, (0.6, 0.4), 3.0), (changed, (0.2, 0.3, 0.5), 3.0), (far, (0.6, 0.4), 4.0)):
        write_bundle(path, replace(make_spec(weights=weights), actions=[0.0, 1.5, most], reserve=[0.0, 1.5, most]))
    experiment = trial(tmp_path, own, ALL_IN)
    with server(own, tmp_path / "ledger.db", clock=Days(), experiment=experiment, reserve=None) as client:
        before = ask(client, USERS, "before")
        assert client.post("/v1/admin/bundle", json={"path": str(changed)}, headers=ADMIN).status_code == 200
        after = ask(client, USERS, "after")
        refused = client.post("/v1/admin/bundle", json={"path": str(far)}, headers=ADMIN)
        assert refused.status_code == 422
        assert "bundles of the same actions" in refused.json()["error"]
    told = ("arm", "bundle", "member", "probability", "reason")
    for one, two in zip(before, after, strict=True):
        if one["arm"] == "policy":
            assert one["bundle"] != two["bundle"]
        else:
            assert [one[key] for key in told] == [two[key] for key in told]
            assert one["action"] == two["action"] or one["arm"] == "even"  # drawn by the request


def test_without_its_ledger_the_answer_still_names_the_arm(bundle: Bundle, tmp_path: Path) -> None:
    experiment = trial(tmp_path, bundle.folder, ALL_IN)
    with server(bundle, tmp_path / "ledger.db", clock=Days(), experiment=experiment) as client:
        arms = by_arm(USERS, ask(client, USERS, "a"))
        ledger = client.service.ledger
        assert isinstance(ledger, BrokenLedger)
        ledger.broken = True
        found = ask(client, USERS, "b", status=503)
    assert by_arm(USERS, found) == arms
    assert {(each["reason"], each["action"], each["decision_id"]) for each in found} == {
        ("ledger_unavailable", 0.0, None)
    }


def test_a_feature_that_the_arm_cannot_read_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    experiment = trial(tmp_path, bundle.folder, ALL_IN)
    with server(bundle, tmp_path / "ledger.db", clock=Days(), experiment=experiment) as client:
        wrong = {"request_id": "r", "user_id": "user-17", "features": STATE | {"spend": "much"}}
        answer = client.post("/v1/decisions", json={"requests": [wrong]})
        assert answer.status_code == 422
        assert answer.json()["where"] == "$.requests[0].features.spend"


def test_propensities_of_an_export_are_those_of_the_arm(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    """Users who were outside on the first days, and whose episode goes on in the arm."""
    experiment, clock = trial(tmp_path, other), Days()
    path = tmp_path / "ledger.db"
    with server(bundle, path, clock=clock, experiment=experiment, random={"share": 0.2}, wait_days=1) as client:
        for day in range(6):
            clock.at = day + 0.4
            found = ask(client, USERS, str(day))
            told = [{"decision_id": e["decision_id"], "kind": "active", "event_id": "a"} for e in found]
            assert client.post("/v1/outcomes", json={"outcomes": told}).status_code == 200
    exported = export_log(f"sqlite:///{path}", tmp_path / "next", clock=lambda _zone: Days(20))
    assert exported.restarts.histories == 0
    rows = pq.read_table(tmp_path / "next" / "log", partitioning=None).to_pylist()
    assert len(rows) == 6 * len(USERS)
    assert not any(row["forced"] for row in rows)
    given = {arm: {row["propensity"] for row in rows if row["arm"] == arm} for arm in {row["arm"] for row in rows}}
    assert set(given) == {"policy", "random", "old", "new", "even", "nobody"}
    assert given["old"] == given["nobody"] == {1.0}
    assert list(given["even"]) == pytest.approx([1 / 3] * len(given["even"]))
    inside = [row for row in rows if row["arm"] == "new"]
    first = [row for row in inside if str(row["day"]) == "2026-03-02"]
    assert len(first) > 5
    assert [row["propensity"] for row in first] == pytest.approx([row["marginal"] for row in first])
    assert {row["propensity"] for row in inside} > {1.0}  # who has shown a member keeps it
    assert min(row["propensity"] for row in inside) > 0


def config() -> ServeConfig:
    return ServeConfig.parse({"reserve": RESERVE})


@pytest.mark.parametrize(
    ("arm", "meta", "words"),
    [
        ({}, {"campaign": "other"}, r"experiment\.campaign: is 'other'; .*'coupons'"),
        ({}, {"eligible": "level > 1"}, r"experiment\.eligible: .*SQL.* experiment assign"),
        ({"name": "policy"}, {}, "arm 'policy': .*the server .*outside"),
        ({"name": "random"}, {}, "arm 'random': "),
        ({"name": "x" * 300}, {}, "more than 248 characters"),
        ({"action": 2.0}, {}, r"arm 'a'\.action: is 2, .*\[0, 1\.5, 3\]"),
        ({"budget": 10.001}, {}, r"arm 'a'\.budget: 10\.001 yuan .*minor units"),
        ({"kind": "bundle", "action": None, "bundle": "nowhere"}, {}, "nowhere: does not exist"),
        (
            {"kind": "bundle", "action": None, "bundle": "BUNDLE", "bundle_id": "feed"},
            {},
            "bundle_id: is 'feed', .*another bundle",
        ),
    ],
)
def test_a_test_that_cannot_be_served_is_said(
    bundle: Bundle, tmp_path: Path, arm: dict[str, Any], meta: dict[str, Any], words: str
) -> None:
    one = {"name": "a", "kind": "constant", "action": 1.5, "share": 0.5, "budget": 10.0} | arm
    one = {key: str(bundle.folder) if value == "BUNDLE" else value for key, value in one.items() if value is not None}
    two = {"name": "b", "kind": "holdout", "share": 0.5}
    experiment = trial(tmp_path, bundle.folder, ALL_IN, [one, two], **meta)
    with pytest.raises(OutlayError, match=words):
        load_experiment(experiment, prepare_bundle(bundle.folder, config()), config())


def test_a_bundle_of_another_campaign_or_other_actions_is_no_arm(
    make_spec: Callable[..., BundleSpec], tmp_path: Path
) -> None:
    plain = replace(make_spec(), reserve=[0.0, 1.5, 3.0])
    theirs = plain.campaign.model_copy(update={"meta": plain.campaign.meta.model_copy(update={"name": "theirs"})})
    write_bundle(tmp_path / "plain", plain)
    write_bundle(tmp_path / "theirs", replace(plain, campaign=theirs))
    write_bundle(tmp_path / "far", replace(plain, actions=[0.0, 1.5, 4.0]))
    loaded = prepare_bundle(tmp_path / "plain", ServeConfig())
    for name, words in (
        ("theirs", "campaign 'theirs'"),
        ("far", "the same actions"),
    ):
        with pytest.raises(OutlayError, match=words):
            load_experiment(trial(tmp_path, tmp_path / name, RAMP, name=name), loaded, ServeConfig())
