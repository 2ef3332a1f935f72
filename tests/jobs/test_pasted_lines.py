"""Lines that an error offers for the campaign file work when they are pasted; expressions read nothing but the log."""

from __future__ import annotations

import datetime
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import outlay
from campaign_files import campaign_file, panel
from outlay.core.errors import OutlayError
from outlay.logs.reading import quoted

ODD = 'the "user" of\'s'


def pasted(error: str, key: str) -> str:
    """The line for a key that an error offers."""
    [line] = re.findall(rf"""({key} = (?:"(?:[^"\\]|\\.)*"|'[^']*'))""", error)[:1]
    return str(line)


def with_line(path: Path, line: str) -> None:
    """Put a line into [log] in place of the one with its key."""
    key = line.split(" = ")[0]
    kept = [old for old in path.read_text().splitlines() if not old.startswith(f"{key} = ")]
    kept.insert(kept.index("[log]") + 1, line)
    tomllib.loads("\n".join(kept))
    path.write_text("\n".join(kept))


@pytest.mark.parametrize("name", ["user_id", "user", "order", ODD, "case when level >= 0 then user_id end"])
@pytest.mark.parametrize("where", [None, "level >= 0 or coupon > 0"])
def test_rows_without_a_value_are_left_out_by_the_line_offered(tmp_path: Path, name: str, where: str | None) -> None:
    columns = panel()
    columns["user_id"][3] = None
    if not name.startswith("case"):
        columns[name] = columns["user_id"]
    path = campaign_file(tmp_path, columns, log="" if where is None else f'where = "{where}"')
    text = path.read_text().replace('user = "user_id"', "user = " + toml(name))
    path.write_text(text)

    with pytest.raises(OutlayError, match="user is missing") as error:
        outlay.prepare(path, tmp_path / "data")
    with_line(path, pasted(str(error.value), "where"))

    assert len(outlay.prepare(path, tmp_path / "data").action) == 119


@pytest.mark.parametrize("name", ["day", "when", ODD])
def test_a_moment_becomes_a_day_by_the_line_offered(tmp_path: Path, name: str) -> None:
    columns = panel()
    start = datetime.datetime(2027, 3, 1, 9)
    columns[name] = [start + datetime.timedelta(days=day) for day in columns.pop("day")]
    path = campaign_file(tmp_path, columns)
    path.write_text(path.read_text().replace('time = "day"', "time = " + toml(name)))

    with pytest.raises(OutlayError, match="timestamp") as error:
        outlay.prepare(path, tmp_path / "data")
    with_line(path, pasted(str(error.value), "time"))

    assert len(outlay.prepare(path, tmp_path / "data").action) == 120


@pytest.mark.parametrize("name", ["sent_at", ODD])
def test_two_decisions_of_a_day_become_rows_by_the_line_offered(tmp_path: Path, name: str) -> None:
    columns = panel()
    start = datetime.datetime(2027, 3, 1, 9)
    columns[name] = [start + datetime.timedelta(hours=6 * day) for day in columns.pop("day")]
    path = campaign_file(tmp_path, columns)
    path.write_text(path.read_text().replace('time = "day"', "time = " + toml(f"cast({quoted(name)} as date)")))

    with pytest.raises(OutlayError, match="repeat a user and time") as error:
        outlay.prepare(path, tmp_path / "data")
    with_line(path, pasted(str(error.value), "time"))
    assert 'unit = "decision" in [rows]' in str(error.value)
    path.write_text(path.read_text() + '\n[rows]\nunit = "decision"\n')

    assert len(outlay.prepare(path, tmp_path / "data").action) == 120


def test_two_rows_of_a_difference_of_dates_are_told_as_ever(tmp_path: Path) -> None:
    columns = panel()
    start = datetime.datetime(2027, 3, 1, 9)
    columns["sent"] = [start + datetime.timedelta(hours=6 * day) for day in columns.pop("day")]
    path = campaign_file(tmp_path, columns)
    path.write_text(
        path.read_text().replace('time = "day"', "time = \"cast(sent as date) - cast('2027-01-01' as date)\"")
    )

    with pytest.raises(OutlayError, match=r"repeat a user and time.*Keep one row per user"):
        outlay.prepare(path, tmp_path / "data")


@pytest.mark.parametrize("role", ["action", "reward", "cost", "numeric"])
def test_decimal_commas_are_told_and_become_numbers_by_the_expression_offered(tmp_path: Path, role: str) -> None:
    columns = panel()
    column = {"action": "coupon", "reward": "active", "cost": "paid", "numeric": "spend"}[role]
    columns["paid"] = columns["active"]
    columns[column] = [f"{float(value) + 0.5:.2f}".replace(".", ",") for value in columns[column]]
    path = campaign_file(tmp_path, columns, numeric='["spend"]')
    path.write_text(path.read_text().replace('cost = "coupon * active"', 'cost = "paid"'))
    with pytest.raises(OutlayError, match="has decimal commas: '") as error:
        outlay.prepare(path, tmp_path / "data")
    [offered] = re.findall(rf'Write ("cast.*?") for "{column}"', str(error.value))
    path.write_text(path.read_text().replace(f'"{column}"', offered))
    data = outlay.prepare(path, tmp_path / "data")
    if role == "action":
        assert data.actions.tolist() == [1.5, 2.5, 3.5]
    elif role != "numeric":
        assert set(data.outcome[:, 0 if role == "reward" else 1].tolist()) == {0.5, 1.5}


READS: list[dict[str, Any]] = [
    {"reward": "(select count(*) from read_csv('{secret}'))"},
    {"user": "(select content from read_text('{secret}'))"},
    {"where": "day in (select count(*) from glob('{secret}'))"},
    {"action": "(select count(*) from '{secret}')"},
]


@pytest.mark.parametrize("role", READS, ids=[next(iter(role)) for role in READS])
def test_an_expression_reads_no_other_file(tmp_path: Path, role: dict[str, str]) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("password\nhunter2\n")
    [(key, sql)] = role.items()
    path = campaign_file(tmp_path, panel())
    with_line(path, f"{key} = {toml(sql.format(secret=secret))}")

    with pytest.raises(OutlayError) as error:
        outlay.check(path)

    assert f"log.{key}" in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_reserve_reads_no_file(tmp_path: Path) -> None:
    from outlay.choosing.reserve import reserves
    from outlay.core.campaign import Campaign

    secret = tmp_path / "secret.csv"
    secret.write_text("amount\n7\n")
    path = campaign_file(tmp_path, panel(), tail=f"reserve = \"(select max(amount) from read_csv('{secret}'))\"")
    data = outlay.prepare(campaign_file(tmp_path, panel()), tmp_path / "data")
    path = campaign_file(tmp_path, panel(), tail=f"reserve = \"(select max(amount) from read_csv('{secret}'))\"")
    with pytest.raises(OutlayError, match="reserve"):
        reserves(data, Campaign.load(path))


def toml(text: str) -> str:
    """A text in TOML."""
    import json

    return json.dumps(text)
