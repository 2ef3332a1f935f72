"""What docs/serving.md shows works as it stands: its serve.toml, its two requests, and the export after them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from small_servers import server

from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.campaign import Campaign
from outlay.core.schema import Categorical, Schema
from outlay.serve.config import ServeConfig
from outlay.serve.export.export import export_log
from small_bundles import random_network

TEXT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
ACTIONS = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0]


def bodies() -> list[tuple[str, Any]]:
    """Path and body of every curl with one."""
    found = re.findall(r"curl -s localhost:8000(/\S+) .*?-d '(.*?)'", TEXT, re.DOTALL)
    return [(path, json.loads(body)) for path, body in found]


@pytest.fixture(scope="module")
def habit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with the features and actions of `outlay simulate habit`, which the page takes as its example."""
    campaign = Campaign.parse(
        {
            "campaign": {"name": "habit", "unit": "yuan"},
            "log": {
                "source": "log.parquet",
                "user": "user_id",
                "time": "day",
                "action": "coupon",
                "actions": ACTIONS,
                "reward": "active",
                "features": {"categorical": ["yesterday", "level"]},
            },
            "budget": [{"name": "coupon_cost", "cost": "cost", "at_most": 2.2, "reserve": "coupon", "money": True}],
        },
        Path("campaign.toml"),
    )
    schema = Schema((Categorical("yesterday", ("0", "1")), Categorical("level", ("0", "1", "2", "3", "4"))), ())
    network = random_network(0, sizes=schema.sizes, numbers=0, actions=len(ACTIONS))
    member = MemberSpec(network, 1.0, [0.1], [1.0, -0.1], [0.2, 1.0])
    folder = tmp_path_factory.mktemp("habit") / "bundle"
    write_bundle(
        folder,
        BundleSpec(campaign, schema, ACTIONS, ("reward", "coupon_cost"), (member,), reserve=ACTIONS, data_hash="d4"),
    )
    return folder


@pytest.mark.parametrize("settings", [{}, {"outcomes": ["active"]}, tomllib.loads(SETTINGS)])
def test_the_requests_then_the_export(habit: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    (first, asked), (then, told) = bodies()
    with server(habit, tmp_path / "coupons.db", **{"reserve": None, **settings}) as client:
        answer = client.post(first, json=asked)
        assert answer.status_code == 200, answer.text
        for outcome in told["outcomes"]:
            outcome["decision_id"] = answer.json()["decision_id"]
        answers = client.post(then, json=told)
        assert answers.status_code == 200, answers.text
        assert [each["status"] for each in answers.json()["outcomes"]] == ["kept", "settled"]
    export_log(f"sqlite:///{tmp_path / 'coupons.db'}", tmp_path / "next", all_days=True)
    assert Campaign.load(tmp_path / "next" / "campaign.toml").log.reward == "active"


def test_the_settings_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text(SETTINGS)
    assert ServeConfig.load(tmp_path / "serve.toml").plan is not None


def test_the_page_of_the_interface_needs_no_network(habit: Path, tmp_path: Path) -> None:
    with server(habit, tmp_path / "coupons.db", reserve=None) as client:
        html = client.get("/docs").text
        page = client.get("/openapi.json").json()
    assert not re.search(r"https?://|<script|<link|@import", html)
    for path in page["paths"]:
        assert path in html
    for name in page["components"]["schemas"]:
        assert f'<h2 id="{name}">' in html
    for name in re.findall(r'href="#(\w+)"', html):
        assert f'id="{name}"' in html
