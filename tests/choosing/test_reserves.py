"""What has to be set aside for each action, as the campaign file says it or the log shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay
from campaign_files import campaign_file, panel
from outlay.choosing.reserve import known_reserves, largest_costs, reserves
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError, OutlayError
from outlay.jobs.allocate import allocate_users
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.ledger.money import Money
from telling import missing


def test_the_largest_cost_seen_is_the_amount_that_the_log_writes(tmp_path: Path) -> None:
    """DATA keeps outcomes in float32, in which a tenth is 0.100000001: a server would set 11 fen aside for it."""
    columns = panel()
    columns["coupon"] = [amount / 10 for amount in columns["coupon"]]
    path = campaign_file(tmp_path, columns)
    found = reserves(outlay.prepare(path, tmp_path / "data"), Campaign.load(path))
    assert found.tolist() == [0.1, 0.2, 0.3]
    assert [Money("yuan").reserve(amount) for amount in found.tolist()] == [10, 20, 30]


NEVER = 3.0  # the coupon that nobody redeemed


def never_redeemed(folder: Path, stated: str = "", **changes: Any) -> Path:
    """A campaign file whose log shows what two of three coupons cost."""
    columns = panel(600, 1)
    columns["active"] = [
        0 if amount == NEVER else came for amount, came in zip(columns["coupon"], columns["active"], strict=True)
    ]
    return campaign_file(folder, columns | changes, log='propensity = "p"', discount=0.0, tail=stated)


def test_an_action_that_never_cost_anything_is_told_by_check_train_and_serve(tmp_path: Path) -> None:
    path = never_redeemed(tmp_path)
    (found,) = (f for f in outlay.check(path).findings if f.where == "budget coupon_cost.reserve")
    words = found.message
    assert found.level == "warning"
    assert not missing(words, "no row", "the action 3", "no cap")
    run = outlay.train(path, tmp_path / "run", oracle="tabular", folds=1)
    assert f"{words} {found.way_out}" in run.manifest["notes"]
    with pytest.raises(OutlayError) as error:
        prepare_bundle(run.bundle, ServeConfig())
    assert str(error.value) == f"{run.bundle}: {words} {found.way_out}"
    with pytest.raises(CampaignError, match=re.escape(words)):
        allocate_users(run, path.parent / "log.parquet", 1000.0, tmp_path / "out.csv", cost="reserve")
    stated = ServeConfig.parse({"reserve": {"1": 1, "2": 2, "3": 3}})
    assert prepare_bundle(run.bundle, stated).amounts == (100, 200, 300)


def test_what_is_stated_is_set_aside_and_the_bundle_knows_what_was_seen(tmp_path: Path) -> None:
    path = never_redeemed(tmp_path, 'reserve = "coupon"')
    assert not [f for f in outlay.check(path).findings if f.where == "budget coupon_cost.reserve"]
    run = outlay.train(path, tmp_path / "run", oracle="tabular", folds=1)
    loaded = prepare_bundle(run.bundle, ServeConfig())
    assert loaded.amounts == (100, 200, 300)
    assert loaded.bundle.manifest.largest_costs == (1.0, 2.0, 0.0)
    with pytest.raises(OutlayError, match=r"1 for the action 2, .*cost 2"):
        prepare_bundle(run.bundle, ServeConfig.parse({"reserve": {"1": 1, "2": 1, "3": 0}}))


@pytest.mark.parametrize(
    ("stated", "level"),
    [
        ("coupon", None),
        ("coupon * 0.5", "error"),
        ("coupon * (1 - 1e-9)", None),  # by rounding
        ("case when level = 0 then 0 else coupon end", "error"),  # row by row
        ("coupon + level", None),
        ("coupon - 9", "error"),
    ],
)
def test_a_statement_that_a_row_contradicts_is_refused(tmp_path: Path, stated: str, level: str | None) -> None:
    path = never_redeemed(tmp_path, f'reserve = "{stated}"')
    found = [f for f in outlay.check(path).findings if f.where == "budget coupon_cost.reserve"]
    contradicted = [f.level for f in found if "is not the largest cost" in f.message]
    assert contradicted == ([] if level is None else [level])
    if level == "error":
        for make in (outlay.prepare, outlay.train):
            with pytest.raises(LogError, match="is not the largest cost"):
                make(path, tmp_path / "out")


def test_none_may_cost_more_than_is_stated_since_nothing_is_set_aside_for_it(tmp_path: Path) -> None:
    path = never_redeemed(tmp_path, 'reserve = "case when coupon = 1 then 0 else coupon end"')
    path.write_text(path.read_text().replace("discount = 0.0", "discount = 0.0\nnone = 1.0"))
    (found,) = (f for f in outlay.check(path).findings if f.where == "budget coupon_cost.reserve")
    assert (found.level, "is not the largest cost" in found.message) == ("warning", True)
    outlay.prepare(path, tmp_path / "data")


def test_costs_that_come_later_contradict_and_refunds_do_not(tmp_path: Path) -> None:
    events = {"user_id": ["u0", "u1"], "day": [0, 0], "amount": [9.0, -9.0]}
    pq.write_table(pa.table(events), tmp_path / "events.parquet")
    path = never_redeemed(tmp_path, 'reserve = "coupon"')
    section = (
        '[log.delays]\ncoupon_cost = 1\n[log.events]\nsource = "events.parquet"\nuser = "user_id"\ntime = "day"\n'
        '[log.events.outcomes]\ncoupon_cost = "amount"\n[[budget]]'
    )
    text = path.read_text().replace("[log.features]", "as_of = 9\n[log.features]").replace("[[budget]]", section)
    path.write_text(text)
    (found,) = (f for f in outlay.check(path).findings if f.where == "budget coupon_cost.reserve")
    assert (found.level, found.count) == ("error", 1)
    pq.write_table(pa.table(events | {"amount": [-9.0, -9.0]}), tmp_path / "events.parquet")
    assert not [f for f in outlay.check(path).findings if f.where == "budget coupon_cost.reserve"]


def test_data_of_an_older_version_that_the_log_contradicts_are_not_trained_on(tmp_path: Path) -> None:
    outlay.prepare(never_redeemed(tmp_path, 'reserve = "coupon"'), tmp_path / "data")
    file = tmp_path / "data" / "manifest.json"
    content = json.loads(file.read_text())
    content["campaign"]["budget"][0]["reserve"] = "coupon * 0.5"
    file.write_text(json.dumps(content))
    with pytest.raises(CampaignError, match=r"budget coupon_cost\.reserve: .*0\.5 for the action 1\b"):
        outlay.train(tmp_path / "data", tmp_path / "run")


@pytest.mark.parametrize("stated", ["case coupon when 1 then 1 when 2 then 2 end", "max(coupon)", "coupon / 0"])
def test_a_statement_without_an_amount_for_every_action_is_none(tmp_path: Path, stated: str) -> None:
    """A value that is missing is not 0."""
    campaign = Campaign.load(never_redeemed(tmp_path, f'reserve = "{stated}"'))
    data = outlay.prepare(never_redeemed(tmp_path), tmp_path / "data")
    assert known_reserves(data, campaign) is None


def test_an_action_that_was_never_given_is_not_priced_either(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, panel(), log='propensity = "p"\nactions = [1, 2, 3, 4]')
    (found,) = (f for f in outlay.check(path).findings if f.where == "budget coupon_cost.reserve")
    assert not missing(found.message, "no row", "the action 4")
    assert not re.search(r"action [123]\b", found.message)


def test_only_of_money_is_anything_set_aside(tmp_path: Path) -> None:
    """Of several budgets, it is one; what another one states may be wrong, and then is not believed."""
    path = never_redeemed(
        tmp_path, 'reserve = "coupon * 0.5"\n[[budget]]\nname = "sent"\ncost = "coupon"\nat_most = 2.5\nmoney = true'
    )
    levels = {f.where: f.level for f in outlay.check(path).findings if f.where.startswith("budget")}
    assert levels == {"budget coupon_cost.reserve": "warning"}
    data = outlay.prepare(path, tmp_path / "data")
    assert largest_costs(data, data.campaign).tolist() == [1.0, 2.0, 3.0]
