"""Rows of users and times out of tables of events, against the same made by hand in plain Python."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from outlay import check, prepare
from outlay.cli.main import app
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError
from outlay.logs.event_rows import MadeRows, make_rows
from outlay.logs.source import Resources

Row = dict[str, Any]
START = datetime.datetime(2026, 3, 27)  # two days before the clocks change in Berlin
BERLIN = ZoneInfo("Europe/Berlin")

FILE = """
[campaign]
name = "shop"
none = "none"
[log]
user = "customer"
time = "day"
action = "coupon"
reward = "revenue"
[log.features]
categorical = ["city"]
[rows]
{rows}
[[events]]
source = "sent.parquet"
user = "client"
time = "at"
columns = {{ coupon = "kind" }}
[[events]]
source = "bought.parquet"
time = "at"
where = "money > 0"
columns = {{ revenue = "money", orders = "1" }}
[[events]]
source = "used.parquet"
time = "at"
columns = {{ paid = "value" }}
credited = "decision"
{within}
[[events]]
source = "moved.parquet"
time = "at"
columns = {{ city = "city" }}
credited = "before"
[[events]]
source = "people.parquet"
columns = {{ age = "age" }}
[[budget]]
name = "coupons"
cost = "paid"
at_most = 1
"""


def shop(folder: Path, *, seed: int = 1, rows: str = "", within: str = "", zoned: bool = False) -> Campaign:
    """A shop's tables of random events, and its campaign file."""
    rng = np.random.default_rng(seed)

    def events(count: int, **columns: Any) -> dict[str, Any]:
        minutes = rng.choice(20 * 24 * 60, count, replace=False)
        times = [START + datetime.timedelta(minutes=int(m)) for m in minutes]
        if zoned:
            times = [time.replace(tzinfo=datetime.UTC) for time in times]
        return {"customer": rng.integers(1, 12, count), "at": times, **columns}

    sent = events(60, kind=rng.choice(["none", "a", "b"], 60))
    sent["client"] = sent.pop("customer")
    tables: dict[str, Any] = {
        "sent": sent,
        "bought": events(200, money=rng.integers(0, 50, 200) / 4),
        "used": events(40, value=rng.integers(1, 9, 40) / 2),
        "moved": events(30, city=[("X", "Y", None)[i] for i in rng.integers(3, size=30)]),
        "people": {"customer": np.arange(1, 9), "age": rng.integers(20, 60, 8)},
    }
    for name, table in tables.items():
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    (folder / "campaign.toml").write_text(FILE.format(rows=rows, within=within))
    return Campaign.load(folder / "campaign.toml")


def made(campaign: Campaign, folder: Path) -> tuple[MadeRows, list[Row]]:
    """What was made, and its rows."""
    found = make_rows(campaign, folder, Resources())
    return found, list(pq.read_table(found.file).to_pylist())


def by_hand(
    folder: Path, unit: str, zone: ZoneInfo | None = None, within: datetime.timedelta | None = None
) -> list[Row]:
    """The rows of `shop`, one event after the other."""

    def table(name: str) -> list[Row]:
        rows: list[Row] = pq.read_table(folder / f"{name}.parquet").to_pylist()
        for row in rows:
            row["who"] = str(row["client" if name == "sent" else "customer"])
            if "at" in row and row["at"].tzinfo is not None:
                row["at"] = row["at"].astimezone(zone or datetime.UTC).replace(tzinfo=None)
        return rows

    def place(at: datetime.datetime) -> int:
        days = (at.date() - datetime.date(1970, 1, 1)).days
        return {"day": days, "week": (days - 4) // 7, "hour": days * 24 + at.hour}[unit]

    def begins(n: int) -> datetime.datetime:
        start = datetime.datetime(1970, 1, 5 if unit == "week" else 1)
        return start + n * datetime.timedelta(**{f"{unit}s": 1})

    sent, bought, used, moved = (table(name) for name in ("sent", "bought", "used", "moved"))
    bought = [row for row in bought if row["money"] > 0]
    ages = {row["who"]: row["age"] for row in table("people")}
    last = max(place(row["at"]) for row in (*sent, *bought, *used, *moved))
    found = []
    for who in sorted({row["who"] for row in (*sent, *bought, *used, *moved)}):
        mine = [
            sorted((r for r in rows if r["who"] == who), key=lambda r: r["at"]) for rows in (sent, bought, used, moved)
        ]
        first = min([place(r["at"]) for r in mine[0]] + [place(r["at"]) + 1 for rows in mine[1:] for r in rows])
        decisions: dict[int, Row] = {}
        for row in mine[0]:
            decisions.setdefault(place(row["at"]), row)
        paid: dict[int, float] = {}
        for row in mine[2]:
            given = [(n, d) for n, d in decisions.items() if d["kind"] != "none" and d["at"] <= row["at"]]
            if given and (within is None or row["at"] < given[-1][1]["at"] + within):
                paid[given[-1][0]] = paid.get(given[-1][0], 0) + row["value"]
        for n in range(first, last + 1):
            here = [row["money"] for row in mine[1] if place(row["at"]) == n]
            before = [row["city"] for row in mine[3] if row["at"] < begins(n)]
            found.append(
                {
                    "customer": who,
                    "day": begins(n).date() if unit == "day" else n,
                    "coupon": decisions[n]["kind"] if n in decisions else "none",
                    "revenue": float(sum(here)),
                    "orders": float(len(here)),
                    "paid": paid.get(n, 0.0),
                    "city": before[-1] if before else None,
                    "age": ages.get(who),
                }
            )
    return found


@pytest.mark.parametrize("unit", ["hour", "day", "week"])
@pytest.mark.parametrize("seed", [1, 2])
def test_rows_are_those_made_by_hand(tmp_path: Path, unit: str, seed: int) -> None:
    found, rows = made(shop(tmp_path, seed=seed, rows=f'unit = "{unit}"'), tmp_path)
    assert rows == by_hand(tmp_path, unit)
    assert (found.rows, found.users, found.tables) == (len(rows), len({row["customer"] for row in rows}), 5)
    assert found.crowded > 0 or unit == "hour"  # a coupon in a unit that had one


def test_days_are_those_of_the_users_zone(tmp_path: Path) -> None:
    _, rows = made(shop(tmp_path, rows='zone = "Europe/Berlin"', zoned=True), tmp_path)
    assert rows == by_hand(tmp_path, "day", BERLIN)
    assert rows != by_hand(tmp_path, "day")


def test_a_cost_counts_within_its_time(tmp_path: Path) -> None:
    found, rows = made(shop(tmp_path, within='within = "36 hours"'), tmp_path)
    assert rows == by_hand(tmp_path, "day", within=datetime.timedelta(hours=36))
    assert found.late > 0
    assert any("had none, or came too late" in finding.message for finding in found.findings())


def test_a_row_can_be_a_decision(tmp_path: Path) -> None:
    found, rows = made(shop(tmp_path, rows='unit = "decision"'), tmp_path)
    sent = pq.read_table(tmp_path / "sent.parquet").to_pylist()
    bought = pq.read_table(tmp_path / "bought.parquet").to_pylist()
    assert (found.rows, found.crowded) == (len(sent), 0)
    for who in {row["client"] for row in sent}:
        mine = sorted((row for row in sent if row["client"] == who), key=lambda row: row["at"])
        theirs = [row for row in rows if row["customer"] == str(who)]
        assert [row["day"] for row in theirs] == list(range(len(mine)))
        assert [row["coupon"] for row in theirs] == [row["kind"] for row in mine]
        ends = [row["at"] for row in mine[1:]] + [datetime.datetime.max]
        for row, decision, end in zip(theirs, mine, ends, strict=True):
            money = [b["money"] for b in bought if b["customer"] == who and decision["at"] <= b["at"] < end]
            assert row["revenue"] == sum(money)


def test_the_sql_that_is_shown_makes_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop(tmp_path, within='within = "2 days"')
    answer = CliRunner().invoke(app, ["check", str(tmp_path / "campaign.toml"), "--sql"])
    assert answer.exit_code == 0, answer.output
    monkeypatch.chdir(tmp_path)
    rows = duckdb.connect().execute(answer.output).fetchall()
    assert rows == [tuple(row.values()) for row in by_hand(tmp_path, "day", within=datetime.timedelta(days=2))]


def test_a_log_of_events_goes_through_check_and_prepare(tmp_path: Path) -> None:
    campaign = shop(tmp_path, rows='until = "user"')
    found = check(campaign)
    assert not found.blocks
    assert found.rows == len(prepare(campaign, tmp_path / "data"))
    assert any("are made of 5 tables" in finding.message for finding in found.findings)


def test_a_table_of_campaigns_is_joined(tmp_path: Path) -> None:
    shop(tmp_path)
    text = (tmp_path / "campaign.toml").read_text()
    pq.write_table(pa.table({"kind": ["a", "b"], "level": ["low", "high"]}), tmp_path / "kinds.parquet")
    joined = text.replace('"kind" }', '"level" }\njoin = { source = "kinds.parquet", on = "kind" }')
    (tmp_path / "campaign.toml").write_text(joined)
    _, rows = made(Campaign.load(tmp_path / "campaign.toml"), tmp_path)
    names = {"a": "low", "b": "high", "none": "none"}
    assert rows == [{**row, "coupon": names[row["coupon"]]} for row in by_hand(tmp_path, "day")]


def _refused(folder: Path, changes: Mapping[str, str]) -> str:
    text = (folder / "campaign.toml").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "campaign.toml").write_text(text)
    with pytest.raises((CampaignError, LogError)) as caught:
        make_rows(Campaign.load(folder / "campaign.toml"), folder, Resources())
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"[log]": '[log]\nsource = "x.csv"'}, "log.source is given, and so is [[events]]"),
        ({'time = "day"\n': ""}, "log.time is not given"),
        ({'action = "coupon"': 'action = "gift"'}, "log.action is 'gift'; expected: one of the columns of [[events]]"),
        ({"revenue =": "coupon ="}, "'coupon' is a column of the rows twice"),
        ({'"1" }': '"1" }\nwithin = "2 days"'}, "within is given, and credited is not 'decision'"),
        (
            {'credited = "decision"': 'credited = "decision"\nwithin = "soon"'},
            "within: is 'soon'; expected: a time in words",
        ),
        ({'none = "none"': ""}, "campaign.none: is not given, and there are rows in which nothing was decided"),
        ({"bought.parquet": "sold.parquet"}, "sold.parquet: does not exist. Fix events[2].source"),
        ({'"money"': '"mony"'}, "events[2].columns.revenue"),
        ({"money > 0": "money > 99"}, "has no rows that pass 'money > 99'"),
        ({'"money"': "\"customer || 'x'\""}, "is not a number"),
        ({'source = "people.parquet"': 'source = "moved.parquet"', '"age" }': '"city" }'}, "has no time"),
        ({'source = "moved.parquet"\ntime = "at"': 'source = "moved.parquet"\ntime = "city"'}, "events[4].time"),
        ({"[rows]": '[rows]\nzone = "Berlin"'}, "rows.zone: is 'Berlin'; expected: a time zone, as Europe/Berlin"),
    ],
)
def test_what_cannot_be_made_is_told(tmp_path: Path, changes: Mapping[str, str], said: str) -> None:
    shop(tmp_path)
    assert said in _refused(tmp_path, changes)
