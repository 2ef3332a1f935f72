"""What was served under names is exported as the log had it: the same campaign file reads both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from small_servers import server

import outlay
from outlay.core.actions import ActionNames
from outlay.core.campaign import Campaign
from outlay.serve.clock import Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import NotedBundle, _check_names, bundle_note, noted_bundle, register_bundle
from outlay.serve.export.export import export_log
from outlay.serve.user_days.campaign_history import _with_earlier_actions
from outlay.serve.user_days.ledger_past import _getters

FIRST, USERS = 20_454, 300  # 2026-01-01
MEN = "men's mail, 10 %"


@dataclass(frozen=True)
class Kind:
    """A way in which a log has actions: names in its rows, keys of its campaign file, SQL that names the column."""

    rows: tuple[Any, ...]
    file: str
    called: tuple[str, ...]
    second: str  # SQL of a second budget's cost
    sent: tuple[str, ...]  # for which that is 1
    holds: Any  # the type of the column
    log: str = ""
    cost: str = ""


KINDS = {
    "texts": Kind(
        ("none", MEN, "B"),
        'none = "none"',
        ("none", "B", MEN),
        "case mail when 'none' then 0 else 1 end",
        (MEN, "B"),
        pa.string(),
        cost=f'{{ "{MEN}" = 0.5, B = 0.2 }}',
    ),
    "no none": Kind(
        ("A", MEN, "B"),
        "",
        ("A", "B", MEN),
        "case mail when 'A' then 1 when 'B' then 1 else 0 end",
        ("A", "B"),
        pa.string(),
        cost=f'{{ A = 0.1, "{MEN}" = 0.5, B = 0.2 }}',
    ),
    "truth values": Kind(
        (False, True),
        "none = false",
        ("false", "true"),
        "case when mail then 1 else 0 end",
        ("true",),
        pa.bool_(),
        cost="{ true = 0.5 }",
    ),
    "yes": Kind(
        ("No", "Yes"),
        'none = "No"',
        ("No", "Yes"),
        "case when mail then 1 else 0 end",
        ("Yes",),
        pa.bool_(),
        cost="{ Yes = 0.5 }",
    ),
    "numbers": Kind(
        (0, 1, 2),
        "none = 0",
        ("0", "1", "2"),
        "case when mail = 2 then 1 else 0 end",
        ("2",),
        pa.int64(),
        log='actions = ["0", "1", "2"]',
        cost='{ "1" = 0.5, "2" = 0.2 }',
    ),
    "amounts": Kind(
        ("none", "5 off", "10 off"),
        'none = "none"',
        ("none", "5 off", "10 off"),
        "case when mail like '%off' then 1 else 0 end",
        ("5 off", "10 off"),
        pa.string(),
        log='actions = ["none", "5 off", "10 off"]\namounts = [0, 5, 10]',
        cost='{ "5 off" = 0.5, "10 off" = 0.2 }',
    ),
    "bins": Kind(
        tuple(np.linspace(0, 9.9, 100).round(2)),
        "none = 0",
        ("0", "0.1 to 3", "3 to 6", "6 to 10"),
        "case when mail > 5 then 1 else 0 end",
        ("6 to 10",),
        pa.float64(),
        log="bins = [0.1, 3, 6, 10]",
        cost='"mail / 10"',
    ),
}


def trained(folder: Path, kind: Kind, name: str) -> Path:
    """A run on a log of this kind."""
    rng, rows = np.random.default_rng(3), 2 * USERS
    mail = rng.integers(0, len(kind.rows), rows)
    table = {
        "user": [f"u{i // 2}" for i in range(rows)],
        "day": [f"2026-01-0{1 + i % 2}" for i in range(rows)],
        "level": rng.integers(0, 3, rows).tolist(),
        "mail": [kind.rows[i] for i in mail],
        "visit": (rng.random(rows) < 0.2 + 0.3 * (mail > 0)).astype(int).tolist(),
    }
    folder.mkdir(exist_ok=True)
    if name == "yes":  # a reader of CSV makes truth values of them
        pacsv.write_csv(pa.table(table), folder / "log.csv")
    else:
        pq.write_table(pa.table(table), folder / "log.parquet")
    (folder / "campaign.toml").write_text(
        f'[campaign]\nname = "mails"\nhorizon_days = 2\nreport_days = [1]\n{kind.file}\n[log]\nsource = "log.*"\n'
        f'user = "user"\ntime = "cast(day as date)"\naction = "mail"\nreward = "visit"\nrandomised = true\n{kind.log}\n'
        f'[log.features]\ncategorical = ["level"]\n'
        f'[[budget]]\nname = "money"\ncost = {kind.cost}\nat_most = 1\nmoney = true\n'
        + ('reserve = "mail"\n' if name == "bins" else "")
        + f'[[budget]]\nname = "sent"\ncost = "{kind.second}"\nat_most = 1\n'
        + '[labels]\nreward = "visits"\nbudgets.money = { label = "postage", unit = "cent" }\n[train]\nfolds = 1\n'
    )
    return Path(outlay.train(folder / "campaign.toml", folder / "run", oracle="tabular").bundle)


class Time:
    """Seconds since 1970."""

    now = FIRST * 86_400.0 + 3_600

    def __call__(self) -> float:
        """Now."""
        return self.now


@pytest.mark.parametrize("name", KINDS)
def test_an_exported_log_is_read_by_the_campaign_file_that_was_trained_with(tmp_path: Path, name: str) -> None:
    kind, time = KINDS[name], Time()
    bundle = outlay.load_bundle(trained(tmp_path, kind, name))
    settings: dict[str, Any] = {"reserve": None, "random": {"share": 1.0}}
    answers = []
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time), caps={"total": 40}, **settings) as client:
        service = client.service
        register_bundle(service.ledger, service.state.loaded, service.state.config, int(time.now * 1000))
        for day in range(2):
            asked: list[dict[str, Any]] = []
            for user in range(90):
                body = {"request_id": f"{day}-{user}", "user_id": f"u{user}", "features": {"level": 1}}
                asked.append(body | ({} if user % 3 else {"eligible": list(kind.called[:2])}))
            decided = client.post("/v1/decisions", json={"requests": asked}).json()["decisions"]
            told = [
                {"decision_id": answer["decision_id"], "kind": "redeemed", "event_id": "1"}
                for answer in decided
                if answer["state"] == "reserved"
            ]
            assert client.post("/v1/outcomes", json={"outcomes": told}).status_code == 200
            answers += decided
            time.now += 86_400
    reserve = dict(zip(map(bundle.names.given, bundle.actions.tolist()), bundle.manifest.reserve or (), strict=True))

    out = tmp_path / "next"
    time.now += 40 * 86_400  # both days are closed
    exported = export_log(
        f"sqlite:///{tmp_path / 'ledger.db'}", out, all_days=True, clock=lambda zone: Clock(zone, time)
    )

    log = ds.dataset(sorted(map(str, (out / "log").glob("*/*.parquet")))).to_table()
    found = dict(zip(log["decision_id"].to_pylist(), log["mail"].to_pylist(), strict=True))
    assert log["mail"].type == kind.holds
    said = bundle.names
    assert [found[each["decision_id"]] for each in answers] == [
        said.logged(said.value(each["action"]) or 0.0) for each in answers
    ]
    campaign = Campaign.load(out / "campaign.toml")
    assert campaign.log.action == "mail"
    assert (campaign.called("reward").label, campaign.called("budgets", "money").unit) == ("visits", "cent")
    assert set(kind.called) <= set(campaign.log.labels)
    stated = campaign.budgets[0].reserve
    assert isinstance(stated, dict)
    assert {label: amount for label, amount in stated.items() if amount} == {
        label: amount for label, amount in reserve.items() if amount
    }

    assert not [each for each in outlay.check(out / "campaign.toml").findings if each.level == "error"]
    data = outlay.prepare(out / "campaign.toml", tmp_path / "data")
    given = [data.called[place] for place in np.asarray(data.action)]
    assert sorted(given) == sorted(str(each["action"]) for each in answers)
    assert data.outcome[:, 2].tolist() == [each in kind.sent for each in given]
    assert [
        each for each in exported.warnings() if "'none', which the log before did not have" in each
    ] or name != "no none"
    first = next((out / "log").glob("*/*.parquet"))  # as a bundle that read the log otherwise left it
    table = pq.read_table(first)
    other = pa.int64() if kind.holds == pa.string() else pa.string()
    column = pa.array([0] * len(table), other) if other == pa.int64() else table["mail"].cast(other)
    pq.write_table(table.set_column(table.schema.get_field_index("mail"), "mail", column), first)
    export_log(f"sqlite:///{tmp_path / 'ledger.db'}", out, all_days=True, clock=lambda zone: Clock(zone, time))
    assert pq.read_table(first)["mail"].equals(table["mail"])
    again: Any = SimpleNamespace(bundle=SimpleNamespace(names=data.campaign.names), path=out)
    earlier = noted_bundle(bundle_note(service.state.loaded, "bundle", 0).content)
    _check_names(again, earlier)  # what is trained on it may serve on the same ledger
    assert {label: data.campaign.names.value(label) for label in bundle.names.labels} == dict(
        zip(bundle.names.labels, bundle.names.values, strict=True)
    )


@pytest.mark.parametrize(
    ("log", "value", "held"),
    [
        ({"actions": ["none", MEN, "B"]}, 1.0, MEN),
        ({"actions": ["none", MEN, "B"]}, 0.0, "none"),
        ({"actions": ["No", "Yes"], "amounts": [0.0, 1.0], "holds": "truth values"}, 1.0, True),
        ({"actions": ["2", "3"], "holds": "whole numbers"}, 2.0, 3),
        ({"actions": ["0 to 5", "5 to 10"], "amounts": [2.0, 7.0], "bins": [0, 5, 10]}, 7.0, 7.0),
        ({"actions": [0.0, 1.5]}, 1.5, 1.5),
    ],
)
def test_the_past_in_a_ledger_holds_what_the_log_would(log: dict[str, Any], value: float, held: Any) -> None:
    content = {
        "campaign": {"none": "none"},
        "log": {"action": "mail", "reward": "visit", "features": {"categorical": ["level"]}} | log,
        "budget": [{"name": "money", "cost": "paid", "at_most": 1}],
    }
    getters = _getters(content, [], ServeConfig(), 100)
    day: Any = SimpleNamespace(row=SimpleNamespace(action=value))
    assert getters["mail"](day) == held


def noted(labels: list[str], cost: dict[str, float], **more: Any) -> NotedBundle:
    names = ActionNames.of(labels, more.get("amounts", ()), "none")
    content: dict[str, Any] = {
        "campaign": {"none": "none"},
        "log": {"actions": labels, **more},
        "budget": [{"name": "money", "cost": cost}, {"name": "sent", "cost": dict.fromkeys(cost, 1.0)}],
    }
    reserve = tuple(cost.get(label, 0.0) for label in labels)
    features: Any = {}
    return NotedBundle(
        id="b", unit="eur", actions=names.values, reserve=reserve, features=features, campaign=content, members=()
    )


def test_an_export_lists_what_earlier_bundles_gave() -> None:
    earlier = noted(["none", "x", "z"], {"x": 0.4, "z": 0.7})
    content = _with_earlier_actions(noted(["none", "x"], {"x": 0.5}), [earlier])
    assert content["log"]["actions"] == ["none", "x", "z"]
    assert content["budget"][0]["reserve"] == {"none": 0.0, "x": 0.5, "z": 0.7}
    assert content["budget"][1]["cost"] == {"x": 1.0, "z": 1.0}
    earlier = noted(["none", "x", "z"], {"x": 0.4}, amounts=[0.0, 5.0, 9.0])
    content = _with_earlier_actions(noted(["none", "x"], {"x": 0.5}, amounts=[0.0, 5.0]), [earlier])
    assert (content["log"]["actions"], content["log"]["amounts"]) == (["none", "x", "z"], [0.0, 5.0, 9.0])
