"""`init` writes a campaign file that loads, and that prepare can read where the guesses are right."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from campaign_files import panel
from outlay.core.campaign import Campaign
from outlay.core.errors import LogError, OutlayError
from outlay.jobs.init import init
from outlay.jobs.prepare import prepare


def write(folder: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), folder / "log.parquet")
    return folder / "log.parquet"


def test_a_plain_log_is_guessed_and_prepared(tmp_path: Path) -> None:
    columns = panel(users=100)
    columns["spend_28d"] = columns.pop("spend")
    columns["active_yesterday"] = columns["active"][::-1]
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    campaign = Campaign.load(tmp_path / "campaign.toml")
    log = campaign.log
    assert (log.user, log.time, log.action, log.reward) == ("user_id", "day", "coupon", "active")
    assert log.propensity == "p"
    assert set(log.features.categorical) == {"level", "active_yesterday"}
    assert log.features.numeric == ("spend_28d",)
    assert campaign.budgets[0].cost == "coupon * active"
    spent = sum(c * a for c, a in zip(columns["coupon"], columns["active"], strict=True)) / 400
    assert campaign.budgets[0].limit == pytest.approx(spent, rel=1e-3)
    assert campaign.log.source == "log.parquet"
    assert "CHECK" in text
    assert len(prepare(tmp_path / "campaign.toml", tmp_path / "DATA")) == 400


def test_odd_columns_are_left_out_or_cast_and_said_so(tmp_path: Path) -> None:
    columns = panel(users=100)
    columns["spend_28d"] = columns.pop("spend")
    columns["when"] = [datetime.datetime(2024, 1, 1, 9) + datetime.timedelta(days=d) for d in columns.pop("day")]
    columns["coupon_sent"] = columns["coupon"]
    columns["constant"] = [1] * 400
    columns['a "quoted"\nname'] = columns["level"]
    columns["session"] = [f"s{i}" for i in range(400)]
    columns["no_choice"] = [i % 7 == 0 for i in range(400)]
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    log = Campaign.load(tmp_path / "campaign.toml").log
    assert log.time == 'cast("when" as date)'
    assert log.forced == "no_choice"
    assert 'a "quoted"\nname' in log.features.categorical
    assert not {"coupon_sent", "constant", "session", "when"} & set(log.features.names)
    for name in ("coupon_sent", "constant", "session"):
        assert f"# left out: {name}" in text


def test_one_row_per_user_becomes_a_one_step_campaign(tmp_path: Path) -> None:
    columns = {"treatment": [0, 1] * 50, "amount": [float(i % 9) for i in range(100)], "age": list(range(100))}
    init(write(tmp_path, columns), tmp_path / "campaign.toml")
    campaign = Campaign.load(tmp_path / "campaign.toml")
    assert campaign.meta.discount == 0
    assert campaign.meta.none == 0
    assert len(prepare(campaign, tmp_path / "DATA").users) == 100


def test_a_file_that_may_have_been_changed_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "campaign.toml"
    out.write_text("changed")
    with pytest.raises(OutlayError, match="exists already"):
        init(write(tmp_path, panel()), out)
    assert out.read_text() == "changed"


def test_a_failed_init_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no column can be the action.*word holds no numbers"):
        init(write(tmp_path, {"user_id": ["a", "b"], "word": ["x", "y"]}), tmp_path / "campaign.toml")
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.parquet"]


def test_a_missing_log_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        init(tmp_path / "no.csv", tmp_path / "campaign.toml")


def test_outcomes_are_no_features(tmp_path: Path) -> None:
    columns = panel(users=100)
    outcomes = {"orders": 3, "revenue": 7.5, "clicked": 1, "redeemed": 1, "spend": 2.5, "next_level": 2}
    earlier = {"orders_28d": 3, "last_spend": 2.5, "days_since_visit": 4}
    columns |= {name: [value * (i % 3) for i in range(400)] for name, value in (outcomes | earlier).items()}
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    names = set(Campaign.load(tmp_path / "campaign.toml").log.features.names)
    assert not names & set(outcomes)
    assert names >= {"orders_28d", "last_spend"}
    for name in outcomes:
        assert f"# left out: {name} (" in text


@pytest.mark.parametrize("wrong", ["order_id", "visit_code", "purchase_number"])
def test_an_identifier_is_no_reward(tmp_path: Path, wrong: str) -> None:
    columns = {wrong: list(range(400)), **panel(users=100)}
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    log = Campaign.load(tmp_path / "campaign.toml").log
    assert log.reward == "active"
    assert wrong not in log.features.names
    [reason] = [line for line in text.splitlines() if line.startswith("# what you want more of")]
    assert "CHECK" in reason


def test_a_reward_by_name_says_what_else_it_might_be(tmp_path: Path) -> None:
    columns = panel(users=100) | {"orders": [0, 1, 2, 3] * 100, "purchases": [0, 1] * 200}
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    [reason] = [line for line in text.splitlines() if line.startswith("# what you want more of")]
    assert "so might orders, purchases" in reason


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ([float(i) for i in range(400)], "coupon has .* different values"),
        (["ten", "five"] * 200, "coupon holds no numbers"),
        ([1.0] * 400, "coupon has 1 different value$|coupon has 1 different value[.;]"),
    ],
)
def test_a_log_without_an_action_is_refused_with_the_reason(tmp_path: Path, action: list[Any], reason: str) -> None:
    columns = panel(users=100)
    columns = {"user_id": columns["user_id"], "day": columns["day"], "coupon": action, "order_id": [1, 2] * 200}
    with pytest.raises(LogError, match=reason):
        init(write(tmp_path, columns), tmp_path / "campaign.toml")


def test_a_number_with_twenty_values_can_be_the_action(tmp_path: Path) -> None:
    columns = panel(users=100)
    columns["gutschein"] = [float(i % 20) for i in range(400)]
    del columns["coupon"]
    init(write(tmp_path, columns), tmp_path / "campaign.toml")
    assert Campaign.load(tmp_path / "campaign.toml").log.action in ("gutschein", "level")
