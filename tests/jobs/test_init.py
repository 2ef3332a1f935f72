"""`init` writes a campaign file that loads, and that prepare can read where the guesses are right."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaign_files import panel
from outlay.core.campaign import Campaign
from outlay.core.errors import LogError, OutlayError
from outlay.experiments.planning import measure_past
from outlay.jobs.check import check
from outlay.jobs.init import OpenQuestion, guide, init
from outlay.jobs.prepare import prepare
from telling import missing

pytestmark = pytest.mark.usefixtures("untested_state")


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


def test_copies_of_rows_are_told_from_rows_to_be_added_up(tmp_path: Path) -> None:
    """A file is written in spite of them, since nothing but the log is wrong."""
    columns = panel(users=100)
    copied = {name: [*values, *values[:3]] for name, values in columns.items()}
    differing = copied | {"spend": [*columns["spend"], 1.0, 2.0, 3.0]}
    for place, (log, copies) in enumerate(((copied, True), (differing, False))):
        campaign = tmp_path / f"{place}.toml"
        [found] = guide(write(tmp_path, log), campaign, query=None).errors
        assert found.count == 3
        assert (
            "3 rows repeat another row of the log exactly" in found.message,
            "SELECT DISTINCT" in found.way_out,
        ) == (copies, copies)
        assert ("aggregate" in found.way_out) != copies
        assert found in check(campaign).findings
        with pytest.raises(LogError, match="of the log exactly" if copies else "Sum them"):
            measure_past(Campaign.load(campaign), 4)
        with pytest.raises(LogError, match="of the log exactly" if copies else "aggregate"):
            prepare(campaign, tmp_path / "DATA")


def test_a_page_of_html_is_no_table_and_is_told_before_the_file_that_stands(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("<!DOCTYPE html>\n<html><body>Sign in, please</body></html>\n")
    (tmp_path / "campaign.toml").touch()
    with pytest.raises(LogError, match=r"log\.csv: is a page of HTML"):
        init(tmp_path / "log.csv", tmp_path / "campaign.toml")


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


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("TIME '08:00' + to_minutes(day)", "time"),
        ("CAST(TIME '08:00' + to_minutes(day) AS TIMETZ)", "time with time zone"),
        ("to_minutes(day)", "interval"),
        ("{'minute': day}", "struct"),
        ("MAP {'minute': day}", "map"),
    ],
)
def test_columns_of_times_and_of_parts_are_left_out_with_their_type(tmp_path: Path, value: str, type_: str) -> None:
    log, campaign = write(tmp_path, panel(users=100)), tmp_path / "campaign.toml"
    column = f"CASE WHEN day > 0 OR coupon > 0 THEN {value} END AS sent_at"
    duckdb.sql(f"COPY (SELECT *, {column} FROM '{log}') TO '{tmp_path / 'typed.parquet'}' (FORMAT parquet)")
    found = guide(tmp_path / "typed.parquet", campaign)
    [sent] = [each for each in found.looked if each.column == "sent_at"]
    assert (sent.role, sent.why) == ("left out", f"of type {type_}")
    assert not check(campaign).blocks


def test_a_time_of_day_in_a_csv_file_is_left_out(tmp_path: Path) -> None:
    columns = panel(users=100)
    columns["Uhrzeit"] = [f"{8 + d}:{m % 60:02d}" for m, d in enumerate(columns["day"])]
    pacsv.write_csv(pa.table(columns), tmp_path / "log.csv")
    assert "# left out: Uhrzeit (of type time)" in init(tmp_path / "log.csv", tmp_path / "campaign.toml")


def test_a_span_of_time_is_no_feature(tmp_path: Path) -> None:
    init(write(tmp_path, panel(users=100)), tmp_path / "campaign.toml")
    text = (tmp_path / "campaign.toml").read_text().replace('"level"', '"level", "to_minutes(day)"')
    (tmp_path / "campaign.toml").write_text(text)
    with pytest.raises(OutlayError, match=r"to_minutes.* is of type INTERVAL; a single value per row is expected"):
        check(tmp_path / "campaign.toml")


def test_one_row_per_user_becomes_a_one_step_campaign(tmp_path: Path) -> None:
    columns = {"treatment": [0, 1] * 50, "amount": [float(i % 9) for i in range(100)], "age": list(range(100))}
    init(write(tmp_path, columns), tmp_path / "campaign.toml")
    campaign = Campaign.load(tmp_path / "campaign.toml")
    assert (campaign.log.time, campaign.meta.none) == (None, 0)
    data = prepare(campaign, tmp_path / "DATA")
    assert len(data.users) == 100
    assert data.campaign.meta.discount == 0


def test_a_file_that_may_have_been_changed_is_never_replaced(tmp_path: Path) -> None:
    out = tmp_path / "campaign.toml"
    out.write_text("changed")
    with pytest.raises(OutlayError, match="exists already"):
        init(write(tmp_path, panel()), out)
    assert out.read_text() == "changed"


def test_a_failed_init_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no column .*action.*nothing says that word was given"):
        init(write(tmp_path, {"user_id": ["a", "b"], "word": ["x", "y"]}), tmp_path / "campaign.toml")
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.parquet"]


def test_a_missing_log_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        init(tmp_path / "no.csv", tmp_path / "campaign.toml")


def test_outcomes_are_no_features(tmp_path: Path) -> None:
    columns = panel(users=100)
    outcomes = {"orders": 3, "revenue": 7.5, "clicked": 1, "redeemed": 1, "spend": 2.5, "next_level": 2}
    earlier = {"orders_28d": 3, "last_spend": 2.5, "days_since_visit": 4}
    columns |= {name: [value * (i % 3) for i in range(400)] for name, value in outcomes.items()}
    columns |= {name: [value * ((i * i // 7) % 3) for i in range(400)] for name, value in earlier.items()}
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    log = Campaign.load(tmp_path / "campaign.toml").log
    names = set(log.features.names)
    assert not names & set(outcomes)
    assert names >= {"orders_28d", "last_spend"}
    for name in outcomes.keys() - {log.reward}:
        assert f"# left out: {name} (" in text


@pytest.mark.parametrize("wrong", ["order_id", "visit_code", "purchase_number"])
def test_an_identifier_is_no_reward(tmp_path: Path, wrong: str) -> None:
    columns = {wrong: list(range(400)), **panel(users=100)}
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    log = Campaign.load(tmp_path / "campaign.toml").log
    assert log.reward == "active"
    assert wrong not in log.features.names
    assert f"# left out: {wrong} (" in text


def test_a_reward_by_name_says_what_else_it_might_be(tmp_path: Path) -> None:
    columns = panel(users=100) | {"orders": [0, 1, 2, 3] * 100, "purchases": [0, 1] * 200}
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    [reason] = [line for line in text.splitlines() if line.startswith("# what you want more of")]
    reward = Campaign.load(tmp_path / "campaign.toml").log.reward
    others = {"active", "orders", "purchases"} - {reward}
    assert len(others) == 2
    assert any(each in reason.partition("so might")[2] for each in others)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ([float(i) for i in range(400)], "coupon has .* different values"),
        ([f"c{i}" for i in range(400)], "coupon holds too many different texts"),
        ([1.0] * 400, "every row has the same value of coupon: there is nothing to compare"),
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


# What columns do, and drafts that `check` accepts.


def accepted(folder: Path, text: str) -> Campaign:
    """What init writes for a CSV; `check` takes it as it stands."""
    (folder / "log.csv").write_text(text)
    init(folder / "log.csv", folder / "campaign.toml")
    assert not check(folder / "campaign.toml").blocks
    return Campaign.load(folder / "campaign.toml")


def csv(names: str, rows: Iterable[Iterable[Any]], separator: str = ",") -> str:
    lines = [separator.join(map(str, row)) for row in rows]
    return "\n".join([names.replace(",", separator), *lines]) + "\n"


def test_a_named_arm_is_the_action_and_no_feature(tmp_path: Path) -> None:
    arms = ["Mens E-Mail", "No E-Mail", "Womens E-Mail"]
    rows = [(i, 1 + i % 7, "web" if i % 2 else "phone", arms[i % 3], int(i % 5 == 0)) for i in range(60)]
    campaign = accepted(tmp_path, csv("customer,recency,channel,campaign,visit", rows))
    log = campaign.log
    assert (log.action, log.time) == ("campaign", None)
    assert campaign.budgets[0].cost == {"Mens E-Mail": 1, "Womens E-Mail": 1}
    assert (campaign.meta.none, log.reward, set(log.features.names)) == ("No E-Mail", "visit", {"recency", "channel"})
    assert campaign.budgets[0].limit == pytest.approx(2 / 3, rel=1e-3)  # of the rows get one


def test_truth_values_can_be_multiplied(tmp_path: Path) -> None:
    rows = [(i, "Yes" if i % 2 else "No", int(i % 3 == 0), "ab"[i % 2]) for i in range(60)]
    campaign = accepted(tmp_path, csv("ID,Promotion,purchase,V1", rows))
    assert (campaign.log.user, campaign.log.action, campaign.log.reward) == ("ID", "Promotion", "purchase")
    assert campaign.budgets[0].cost == {"Yes": 1}


def test_decimal_commas_are_numbers(tmp_path: Path) -> None:
    rows = [
        (u, d, ("0,1", "0,2", "0,0")[(u + d) % 3], ("12,50", "0", "3,75")[(u * d) % 3], "1,5" if u % 2 else "2,25")
        for u in range(20)
        for d in range(3)
    ]
    log = accepted(tmp_path, csv("user,day,rabatt,umsatz,wert", rows, ";")).log
    assert (log.action, log.reward, log.features.names) == ("rabatt", "umsatz", ("wert",))
    assert log.reading is not None
    assert log.reading.decimal == ","


def days(users: int = 60, length: int = 10, seed: int = 0) -> Iterator[tuple[int, int, int, float, int, int, int]]:
    """User, day, level, amount, whether they came, whether they come tomorrow, and the days since they came."""
    rng = np.random.default_rng(seed)
    for user in range(users):
        came, level, since = rng.random(length + 1) < 0.3, int(rng.integers(3)), int(rng.integers(0, 9))
        for day in range(length):
            yield user, day, level, float(rng.choice([0.0, 2.0, 5.0])), int(came[day]), int(came[day + 1]), since
            since = 0 if came[day] else since + 1


DAYS = list(days())


@pytest.mark.parametrize("names", ["visited,days_since_visit", "a7,b7"])
def test_a_counter_of_days_is_of_the_past_and_what_it_counts_is_what_happens(tmp_path: Path, names: str) -> None:
    y, x = names.split(",")
    rows = [(user, day, level, since, amount, came, came * amount) for user, day, level, amount, came, _, since in DAYS]
    campaign = accepted(tmp_path, csv(f"user_id,day,level,{x},coupon,{y},z7", rows))
    log = campaign.log
    assert (log.action, log.reward, campaign.budgets[0].cost) == ("coupon", y, "z7")
    assert set(log.features.names) == {"level", x}


def test_rows_without_an_action_were_given_nothing(tmp_path: Path) -> None:
    """A control group is often an empty cell: to leave its rows out would leave nothing to compare with."""
    arms = ["Mens E-Mail", "", "Womens E-Mail"]
    rows = [(i, 1 + i % 7, arms[i % 3], int(i % 5 == 0)) for i in range(60)]
    campaign = accepted(tmp_path, csv("customer,recency,campaign,visit", rows))
    assert (campaign.log.action, campaign.meta.none) == ("coalesce(campaign, 'none')", "none")
    assert campaign.budgets[0].limit == pytest.approx(2 / 3, rel=1e-3)
    report = check(tmp_path / "campaign.toml")
    assert report.rows == 60
    rows = [(i, 1 + i % 7, ["5", "", "10"][i % 3], int(i % 5 == 0)) for i in range(60)]
    (tmp_path / "amounts").mkdir()
    campaign = accepted(tmp_path / "amounts", csv("customer,recency,coupon,visit", rows))
    assert campaign.log.action == "coalesce(coupon, 0)"
    assert campaign.budgets[0].limit == pytest.approx(5, rel=1e-3)


def test_amounts_paid_with_the_reward_cost_nothing_where_none_was_given(tmp_path: Path) -> None:
    rows = [(i, 1 + i % 7, ["5", "", "10", "20"][i % 4], int(i % 5 == 0)) for i in range(80)]
    [budget] = accepted(tmp_path, csv("customer,recency,coupon,visit", rows)).budgets
    assert budget.cost == "coalesce(coupon, 0) * visit"
    assert budget.limit == pytest.approx(35 / 4 / 5, rel=1e-3)


@pytest.mark.parametrize("name", ["retention_1", "c7"])
def test_what_happens_tomorrow_is_neither_action_nor_feature(tmp_path: Path, name: str) -> None:
    rows = [(user, day, level, later, amount, came) for user, day, level, amount, came, later, _ in DAYS]
    log = accepted(tmp_path, csv(f"user_id,day,level,{name},coupon,visited", rows)).log
    assert (log.action, log.reward, log.features.names) == ("coupon", "visited", ("level",))


def test_an_outcome_of_the_future_is_not_the_action_of_an_experiment(tmp_path: Path) -> None:
    rows = [(i, "gate_30" if i % 2 else "gate_40", i % 90, i % 3 == 0, i % 7 == 0) for i in range(300)]
    log = accepted(tmp_path, csv("userid,version,sum_gamerounds,retention_1,retention_7", rows)).log
    assert log.action == "version"
    assert log.reward == "retention_1"
    assert log.features.names == ("1",)


def test_rows_and_roles_that_check_would_reject_are_left_out_and_said_so(tmp_path: Path) -> None:
    columns = panel(users=100)
    columns["p"] = [0.9] * 400  # not the chance of the actions given
    columns["active"][7] = None
    columns["twin"] = [100.0 if active else -3.5 for active in columns["active"]]  # the reward by another name
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    campaign = Campaign.load(tmp_path / "campaign.toml")
    assert not check(campaign).blocks
    assert (campaign.log.propensity, campaign.log.where) == (None, "active is not null")
    assert "twin" not in campaign.log.features.names
    assert "# p is not used: " in text
    assert "twin (determines the reward" in text


@pytest.mark.parametrize("days", [None, [0, 0, 1, 1] * 100])
def test_rows_that_no_time_tells_apart_are_users_in_groups(tmp_path: Path, days: list[int] | None) -> None:
    columns = panel(users=100)
    del columns["day"]
    columns |= {"day": days} if days else {}
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    log = Campaign.load(tmp_path / "campaign.toml").log
    assert (log.user, log.time, log.cluster) == (None, None, "user_id")
    assert not missing(text, "user_id has several rows of some values")
    assert not check(tmp_path / "campaign.toml").blocks


def test_many_copies_of_rows_leave_users_and_times_as_they_are(tmp_path: Path) -> None:
    """An eighth of the rows stands twice: a file was exported again, and appended."""
    columns = panel(users=200)
    count = len(columns["day"]) // 8
    doubled = {name: [*values, *values[:count]] for name, values in columns.items()}
    found = guide(write(tmp_path, doubled), tmp_path / "campaign.toml")
    role = {each.role: each.column for each in found.looked}
    assert (role["user"], role["time"]) == ("user_id", "day")
    (error,) = found.errors
    assert f"{count} rows repeat another row of the log exactly" in error.message


@pytest.mark.parametrize(
    ("ends", "last", "encoding"), [("\n", "\n", "cp1252"), ("\n", "", "utf-8"), ("\r\n", "\r\n", "utf-16")]
)
def test_the_way_out_of_copies_leaves_a_file_that_the_campaign_file_reads(
    tmp_path: Path, ends: str, last: str, encoding: str
) -> None:
    columns = panel(users=100) | {"Größe": ["groß", "klein"] * 200}
    rows = [
        ";".join(columns),
        *(";".join(map(str, row)).replace(".", ",") for row in zip(*columns.values(), strict=True)),
    ]
    text = ends.join([*rows, *rows[1:51]]) + last
    (tmp_path / "log.csv").write_bytes(text.encode(encoding))
    campaign = tmp_path / "campaign.toml"
    [error] = guide(tmp_path / "log.csv", campaign).errors
    command = error.way_out.split('python -c "')[1].split('"')[0].replace("LOG.csv", "log.csv")
    subprocess.run([sys.executable, "-c", command], cwd=tmp_path, check=True)
    campaign.write_text(campaign.read_text(encoding="utf-8").replace("log.csv", "once.csv"), encoding="utf-8")
    found = check(campaign)
    assert not found.blocks
    assert found.rows == 400


def test_two_doubled_users_make_no_path(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 500
    offer = rng.choice(["none", "mail"], n)
    columns: dict[str, Any] = {"customer_id": [0, 1, *range(n - 2)], "age": rng.integers(18, 80, n).tolist()}
    columns |= {
        "sent_on": [datetime.date(2026, 3, 1 + int(d)) for d in rng.integers(0, 28, n)],
        "offer": offer.tolist(),
    }
    columns["converted"] = (rng.random(n) < 0.2 + 0.2 * (offer == "mail")).tolist()
    init(write(tmp_path, columns), tmp_path / "campaign.toml")
    campaign = Campaign.load(tmp_path / "campaign.toml")
    assert (campaign.log.user, campaign.log.cluster) == (None, "customer_id")
    assert not check(campaign).blocks


def test_a_reward_that_never_varies_is_refused(tmp_path: Path) -> None:
    columns = panel(users=100) | {"active": [1] * 400}
    del columns["spend"]
    with pytest.raises(LogError, match="every row has the same value of active"):
        init(write(tmp_path, columns), tmp_path / "campaign.toml")


def test_per_cent_are_no_money(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 600
    given = rng.choice([0, 5, 10], n)
    rows = [f"{i},{rng.integers(18, 80)},{g} %,{int(rng.random() < 0.2 + g / 50)}" for i, g in enumerate(given)]
    (tmp_path / "log.csv").write_text("\n".join(["customer_id,age,discount,bought", *rows]))
    init(tmp_path / "log.csv", tmp_path / "campaign.toml")
    campaign = Campaign.load(tmp_path / "campaign.toml")
    assert campaign.budgets[0].cost == "cast(discount > 0 as integer)"
    assert campaign.budgets[0].limit == pytest.approx(np.mean(given > 0), rel=1e-3)
    assert campaign.meta.unit == "actions"


def test_yes_and_no_keep_their_words_and_even_draws_are_asked_about(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 600
    given = rng.random(n) < 0.5
    rows = [
        f"{i},{rng.integers(18, 80)},{'Yes' if g else 'No'},{int(rng.random() < 0.2 + g / 5)}"
        for i, g in enumerate(given)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["customer_id,age,offer,bought", *rows]))
    text = init(tmp_path / "log.csv", tmp_path / "campaign.toml")
    assert Campaign.load(tmp_path / "campaign.toml").meta.none == "No"
    assert "# randomised = true" in text
    assert [a.called for a in check(tmp_path / "campaign.toml").actions] == ["No", "Yes"]


def test_a_header_twice_and_dates_that_fit_both_orders_are_said(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 400
    rows = [f"{i},0{1 + i % 9}/04/2026,{i % 7},{i % 5},{'AB'[i % 2]},{int(rng.random() < 0.3)}" for i in range(n)]
    (tmp_path / "log.csv").write_text("\n".join(["customer_id,sent,level,level,variant,bought", *rows]))
    found = guide(tmp_path / "log.csv", tmp_path / "campaign.toml")
    assert any("2 columns are called level" in words for words in found.read)
    [sent] = [each for each in found.looked if each.column == "sent"]
    assert not sent.sure
    assert not missing(sent.why, "%d/%m/%Y", "%m/%d/%Y")


def test_names_that_differ_in_capitals_are_warned_of(tmp_path: Path) -> None:
    columns = panel(users=100)
    columns["coupon"] = [["none", "Mail", "mail"][i % 3] for i in range(400)]
    init(write(tmp_path, columns), tmp_path / "campaign.toml")
    told = [each for each in check(tmp_path / "campaign.toml").findings if each.key == "log.action"]
    assert any("differ only in capitals" in each.message and "lower(trim(coupon))" in each.way_out for each in told)


@pytest.mark.parametrize(("least", "complete"), [(0.0, True), (1.0, False)])
def test_days_without_rows_are_a_question_that_has_an_answer_already(
    tmp_path: Path, least: float, complete: bool
) -> None:
    """With an action that means nothing, a missing day may be one of it."""
    columns = panel(users=100, days=8)
    columns["coupon"] = [amount - 1 + least for amount in columns["coupon"]]
    kept = np.random.default_rng(0).random(800) < 0.7
    columns = {name: [x for x, keep in zip(values, kept, strict=True) if keep] for name, values in columns.items()}
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    assert not check(tmp_path / "campaign.toml").blocks
    assert Campaign.load(tmp_path / "campaign.toml").log.complete is complete
    assert "# CHECK: " in text
    assert not missing(text, "days have no row")


def test_names_that_say_little_get_labels_to_be_filled_in(tmp_path: Path) -> None:
    columns = panel(users=100)
    columns["cpn_amt"], columns["active_days"] = columns.pop("coupon"), columns.pop("active")
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    proposed = text[text.index("# [labels]") :].replace("# [labels]", "[labels]").replace("\n# ", "\n")
    found = Campaign.parse(tomllib.loads(text + proposed), tmp_path / "campaign.toml")
    assert found.labels.reward is not None
    assert (found.called("reward").label, found.called("action").label) == ("active days", "cpn amt")
    plain = init(write(tmp_path, panel(users=100)), tmp_path / "plain.toml")
    assert "[labels]" not in plain


def test_a_log_without_names_of_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "".join(f"u{i},2026-03-{d + 1:02d},{i % 3},0.5\n" for i in range(9) for d in range(4))
    )
    with pytest.raises(LogError, match=r"first line seems to be a row, .*'2026-03-01', '0', '0.5'.*a line of names"):
        init(tmp_path / "log.csv", tmp_path / "campaign.toml")


def test_a_few_texts_among_numbers_count_as_missing_and_the_draft_says_so(tmp_path: Path) -> None:
    columns = panel(users=100)
    numbers = [f"{i + 0.25}" for i in range(len(columns["day"]))]
    for name in ("balance", "order_id"):
        columns[name] = ["n/a", *numbers[1:]]
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    assert not missing(text, "try_cast(balance as double)", "# CHECK: balance: 1 of 400 texts", "'n/a'")
    assert "order_id as" not in text
    assert not check(tmp_path / "campaign.toml").blocks
    columns["balance"] = ["n/a" if i % 20 == 0 else text for i, text in enumerate(numbers)]
    assert "balance as" not in init(write(tmp_path, columns), tmp_path / "other.toml")


@pytest.mark.parametrize("every", [200, 40, 12])
def test_a_reward_with_texts_among_its_numbers_stays_the_reward_and_those_rows_are_left_out(
    tmp_path: Path, every: int
) -> None:
    """It was refused, or below 99% of numbers another column was taken."""
    columns = panel(users=500)
    del columns["active"]
    columns["revenue"] = ["refund" if i % every == 7 else f"{i % 71}.5" for i in range(len(columns["day"]))]
    text = init(write(tmp_path, columns), tmp_path / "campaign.toml")
    assert not missing(
        text, 'reward = "try_cast(revenue as double)"', 'where = "try_cast(revenue as double) is not null"', "'refund'"
    )
    assert not check(tmp_path / "campaign.toml").blocks


def test_money_with_empty_cells_stays_the_reward_and_they_are_counted(tmp_path: Path) -> None:
    """A row without a value was taken for one of 0, so that the money was a part of the visits."""
    columns = panel(users=500)
    rng = np.random.default_rng(1)
    columns["revenue"] = [round(10 + 5 * rng.random(), 2) if active else 0.0 for active in columns["active"]]
    whole = guide(write(tmp_path, columns), tmp_path / "whole.toml")
    columns["revenue"] = [None if i % 50 == 0 else value for i, value in enumerate(columns["revenue"])]
    found = guide(write(tmp_path, columns), tmp_path / "campaign.toml")
    [reward] = [each for each in found.looked if each.role == "reward"]
    assert reward.column == next(each.column for each in whole.looked if each.role == "reward") == "revenue"
    assert "40 rows without a value are left out" in reward.why
    assert 'where = "revenue is not null"' in found.text
    assert not check(tmp_path / "campaign.toml").blocks


def test_a_log_that_no_draft_fits_is_refused_with_what_check_says(tmp_path: Path) -> None:
    columns = panel(users=100)
    columns["active"] = [math.inf, *columns["active"][1:]]
    with pytest.raises(LogError, match=r"reward is infinite in 1 row"):
        init(write(tmp_path, columns), tmp_path / "campaign.toml")
    assert not (tmp_path / "campaign.toml").exists()


NAMES = [
    "ID",
    "user",
    "day",
    "Promotion",
    "discount",
    "variant",
    "purchase",
    "visited",
    "p",
    "cost",
    "x",
    "forced",
    "done",
]
KINDS = st.sampled_from(
    ["whole", "few", "binary", "yes", "arm", "comma", "share", "date", "moment", "gaps", "empty", "text"]
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(NAMES), KINDS, min_size=2, max_size=8), st.integers(0, 2**16))
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_check_rejects_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: dict[str, str], seed: int
) -> None:
    """Whatever the columns hold: a draft that check takes, or a refusal and no file."""
    monkeypatch.undo()  # with the test of the state
    rng, n = np.random.default_rng(seed), 80
    values: dict[str, Callable[[], Any]] = {
        "whole": lambda: rng.integers(0, 1000, n).tolist(),
        "few": lambda: rng.choice([0.0, 2.5, 5.0], n).tolist(),
        "binary": lambda: rng.integers(0, 2, n).tolist(),
        "yes": lambda: (rng.random(n) < 0.5).tolist(),
        "arm": lambda: rng.choice(["none", "10% off", "20% off"], n).tolist(),
        "comma": lambda: rng.choice(["0,5", "1,25", "3"], n).tolist(),
        "share": lambda: rng.uniform(0.1, 1.0, n).tolist(),
        "date": lambda: [datetime.date(2026, 3, 1 + int(d)) for d in rng.integers(0, 28, n)],
        "moment": lambda: [datetime.datetime(2026, 3, 1, int(h)) for h in rng.integers(0, 23, n)],
        "gaps": lambda: [None if rng.random() < 0.2 else int(x) for x in rng.integers(0, 3, n)],
        "empty": lambda: [None] * n,
        "text": lambda: [f"t{i}" for i in rng.integers(0, 30, n)],
    }
    out = tmp_path / f"{seed}-{len(list(tmp_path.iterdir()))}.toml"
    try:
        init(write(tmp_path, {name: values[kind]() for name, kind in kinds.items()}), out)
    except LogError:
        assert not out.exists()
    else:
        assert not check(out).blocks


# Kinds that real files showed.


def drawn(names: str, arms: Sequence[Any], n: int = 600) -> list[list[Any]]:
    """Rows with an action drawn evenly among arms, and a reward of 0 or 1 that it raises; other columns are ages."""
    rng, rows = np.random.default_rng(1), []
    for _ in range(n):
        arm = int(rng.integers(len(arms)))
        made = {"arm": arms[arm], "came": int(rng.random() < 0.2 + 0.5 * arm / len(arms)), "one": 1}
        rows.append([made.get(name, int(rng.integers(18, 80))) for name in names.split(",")])
    return rows


def test_a_column_of_one_value_named_like_an_offer_does_not_hide_the_offer(tmp_path: Path) -> None:
    rows = drawn("age,arm,one,came", ["Bar", "Coffee House", "Take away"])
    log = accepted(tmp_path, csv("age,coupon_type,to_coupon_within_5_minutes,visited", rows)).log
    assert (log.action, log.reward) == ("coupon_type", "visited")


def test_numbers_of_items_are_no_cost_even_where_a_column_is_0_or_the_number(tmp_path: Path) -> None:
    rows = [[*row, row[1] if row[1] == 7 else 0] for row in drawn("age,arm,came", [0, 5, 7])]
    campaign = accepted(tmp_path, csv("age,item_id,click,affinity", rows))
    assert (campaign.log.action, campaign.budgets[0].cost) == ("item_id", "1")
    assert campaign.meta.none is None  # item 0 is an item


def test_the_action_under_another_name_is_no_feature(tmp_path: Path) -> None:
    names = ["Back to School", "End of Summer", "Influencer"]
    rows = [[*row, names.index(row[1])] for row in drawn("age,arm,came", names)]
    log = accepted(tmp_path, csv("age,campaign,sales,campaign_id", rows)).log
    assert (log.action, log.outcomes) == ("campaign", ("campaign_id",))
    assert log.features.names == ("age",)


def test_what_decides_the_action_wholly_is_a_feature_and_check_says_so(tmp_path: Path) -> None:
    names = ["Back to School", "End of Summer", "Influencer"]
    rows = [["abc"[names.index(row[1])], *row] for row in drawn("age,arm,came", names)]
    log = accepted(tmp_path, csv("tier,age,campaign,sales", rows)).log
    assert (log.action, log.features.names, log.outcomes) == ("campaign", ("tier", "age"), ())
    drawn_by = check(tmp_path / "campaign.toml").randomisation
    assert drawn_by is not None
    assert not drawn_by.looks_randomised


def test_what_is_wanted_is_not_of_an_earlier_year(tmp_path: Path) -> None:
    rows = drawn("age,one,arm,came", ["0", "1"])
    rng = np.random.default_rng(2)
    rows = [[age, arm, *rng.choice([0.0, 12.5, 40.25], 2), 9.5 * came] for age, _, arm, came in rows]
    log = accepted(tmp_path, csv("age,treat,re74,re75,re78", rows)).log
    assert (log.action, log.reward, set(log.features.names)) == ("treat", "re78", {"age", "re74", "re75"})


def test_a_reward_that_no_name_tells_is_asked_for(tmp_path: Path) -> None:
    rows = drawn("x,y,arm,came", ["control", "mail"])
    (tmp_path / "log.csv").write_text(csv("c1,c2,c3,c4", rows))
    asked = []

    def ask(question: OpenQuestion) -> str:
        asked.append(question.role)
        return "c4"

    guide(tmp_path / "log.csv", tmp_path / "campaign.toml", ask=ask)
    assert asked == ["reward"]


def test_a_list_is_no_answer(tmp_path: Path) -> None:
    rows = drawn("x,y,arm,came", ["control", "mail"])
    (tmp_path / "log.csv").write_text(csv("c1,c2,c3,c4", rows))
    log = tmp_path / "log.parquet"
    duckdb.sql(f"COPY (SELECT *, [c1, c2] AS both FROM '{tmp_path / 'log.csv'}') TO '{log}' (FORMAT parquet)")
    taken = []

    def ask(question: OpenQuestion) -> str:
        taken.append(question.columns)
        return "c4"

    guide(log, tmp_path / "campaign.toml", ask=ask)
    assert taken == [("c1", "c2", "c3", "c4")]


def as_csv(path: Path, columns: dict[str, Any], last: str = "") -> Path:
    """A German export: semicolons, decimal commas, days first."""
    lines = [";".join(columns), *(";".join(str(value) for value in row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join([*lines, last]).rstrip("\n") + "\n", encoding="utf-8")
    return path


def german(rows: int = 400) -> dict[str, list[str]]:
    columns = panel(users=rows // 4)
    spend = [f"{value:.2f}".replace(".", ",") for value in columns["spend"]]
    dates = [f"{3 + day:02}.03.2026" for day in columns["day"]]
    return {
        "Kunde": [f"K{user}" for user in columns["user_id"]],
        "Datum": dates,
        "Gutschein": [str(coupon) for coupon in columns["coupon"]],
        "Umsatz": spend,
        "Kosten": [str(c * a) for c, a in zip(columns["coupon"], columns["active"], strict=True)],
    }


def test_a_row_of_totals_is_left_out_before_anything_is_guessed(tmp_path: Path) -> None:
    columns = german()
    plain = init(as_csv(tmp_path / "log.csv", columns), tmp_path / "plain.toml")
    for place, word in enumerate(("Summe", "GESAMT", "Grand total")):
        total = f"{word};;;{'99999,00'};{sum(map(float, columns['Kosten']))}"
        found = guide(as_csv(tmp_path / "log.csv", columns, total), tmp_path / f"{place}.toml")
        assert any(word in words and "left out" in words for words in found.read)
        where = tomllib.loads(found.text)["log"].pop("where")
        assert where == f"\"Kunde\" is distinct from '{word}'"
        assert [line for line in found.text.splitlines() if not line.startswith("where") and word not in line] == [
            line for line in plain.splitlines() if not line.startswith("where")
        ]
    assert not [each for each in check(tmp_path / "2.toml").findings if each.level == "error"]


def test_a_cost_is_that_of_the_rows_that_stay(tmp_path: Path) -> None:
    """Rows without a time are left out of the log, and out of what it spent."""
    columns = panel(users=100)
    columns["day"] = [None, *columns["day"][1:]]
    columns["cost"] = [1e6, *(c * a for c, a in zip(columns["coupon"][1:], columns["active"][1:], strict=True))]
    init(write(tmp_path, columns), tmp_path / "campaign.toml")
    assert Campaign.load(tmp_path / "campaign.toml").budgets[0].limit < 10


@pytest.mark.parametrize("other", ["2026-03-05", "5 March", "13/40/26"])
def test_dates_of_two_forms_are_refused_with_the_first_that_differs(tmp_path: Path, other: str) -> None:
    columns = german()
    columns["Datum"][6:] = [date if i % 5 else other for i, date in enumerate(columns["Datum"][6:])]
    with pytest.raises(LogError, match=r"column Datum.*row 7") as refused:
        init(as_csv(tmp_path / "log.csv", columns), tmp_path / "campaign.toml")
    assert repr(other) in str(refused.value)
    assert not (tmp_path / "campaign.toml").exists()
