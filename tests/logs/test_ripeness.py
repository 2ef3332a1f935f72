"""Rows whose outcomes can still come: they are left out of everything that is learnt or measured."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign_files import campaign_file, panel
from outlay.core.errors import CampaignError, LogError
from outlay.core.transitions import Transitions
from outlay.jobs.check import check
from outlay.jobs.prepare import prepare
from telling import missing

DELAY = "[log.delays]\ncoupon_cost = 3\n"


def spoilt(columns: dict[str, list[Any]], after: int) -> dict[str, list[Any]]:
    """The log with other outcomes in the rows later than `after`."""
    late = np.array(columns["day"]) > after
    return columns | {"active": np.where(late, 9 - np.array(columns["active"]), columns["active"]).tolist()}


def arrays(data: Transitions) -> dict[str, np.ndarray[Any, Any]]:
    names = ("action", "outcome", "next_row", "gap", "day", "user", "users", "number_columns")
    return {name: np.asarray(getattr(data, name)) for name in names}


@pytest.mark.parametrize("log", ["", "complete = true"])
def test_rows_that_are_not_ripe_do_not_exist_for_data(tmp_path: Path, log: str) -> None:
    """What is left is, to the bit, what a log that ends with the last ripe day gives, whatever the others say."""
    columns = panel(users=60, days=8)
    columns = {
        name: [v for v, day, i in zip(values, columns["day"], range(480), strict=True) if (i + day) % 5]
        for name, values in columns.items()
    }
    early = {
        name: [v for v, day in zip(values, columns["day"], strict=True) if day <= 4] for name, values in columns.items()
    }
    for name in ("delayed", "short"):
        (tmp_path / name).mkdir()
    settings: dict[str, Any] = {"campaign": "none = 1.0", "numeric": '["spend"]', "log": log or "complete = false"}
    delayed = campaign_file(tmp_path / "delayed", spoilt(columns, 4), tail=DELAY, **settings)
    short = campaign_file(tmp_path / "short", early, **settings)
    data, wanted = (prepare(path, path.parent / "data") for path in (delayed, short))
    for name, array in arrays(data).items():
        assert np.array_equal(array, arrays(wanted)[name]), name
    assert data.manifest.last_time == 4
    late = len(columns["day"]) - len(early["day"])
    assert data.manifest.ripeness["left_out"] == late
    assert data.manifest.ripeness["words"].startswith(f"{late:,} rows (")
    assert not missing(data.manifest.ripeness["words"], "last 3 days")


def test_outcomes_that_were_collected_after_the_last_row_make_rows_ripe(tmp_path: Path) -> None:
    columns = panel(users=60, days=8)
    rows = [
        len(prepare(campaign_file(tmp_path, columns, tail=DELAY, log=f"as_of = {as_of}"), tmp_path / "data"))
        for as_of in (10, 9, 5)
    ]
    assert rows == [60 * 8, 60 * 7, 60 * 3]


def test_as_of_may_be_a_date(tmp_path: Path) -> None:
    columns = panel(users=60, days=8)
    columns["day"] = [datetime.date(2027, 3, 1) + datetime.timedelta(days=day) for day in columns["day"]]
    path = campaign_file(tmp_path, columns, tail=DELAY, log="as_of = 2027-03-07")
    data = prepare(path, tmp_path / "data")
    assert (data.manifest.last_time, len(data)) == ("2027-03-04", 60 * 4)
    again = Transitions.open(tmp_path / "data").campaign
    assert again.log.as_of == datetime.date(2027, 3, 7)  # a DATA folder can be read again
    with pytest.raises(CampaignError, match=r"log\.as_of: .*number, 7; .*dates"):
        prepare(campaign_file(tmp_path, columns, tail=DELAY, log="as_of = 7"), tmp_path / "data")


@pytest.mark.parametrize(
    ("log", "days", "level"), [("", 3, "note"), ("as_of = 6", 4, "note"), ("as_of = 5", 5, "warning")]
)
def test_check_says_how_many_rows_are_not_ripe(tmp_path: Path, log: str, days: int, level: str) -> None:
    """It is a warning if they are more than half."""
    path = campaign_file(tmp_path, panel(users=60, days=8), tail=DELAY, log=log)
    report = check(path)
    [found] = [finding for finding in report.findings if finding.where == "log.delays"]
    assert (found.level, found.count) == (level, 60 * days)
    assert f"{60 * days} rows" in found.message
    assert report.rows == 60 * (8 - days)


@pytest.mark.parametrize(
    ("tail", "log", "kind", "error"),
    [
        ("[log.delays]\ncoupon = 3", "", CampaignError, r"'coupon', .*no outcome.*'coupon_cost'"),
        ("[log.delays]\naction = 3", "", CampaignError, r"'action', .*no outcome"),
        ("[log.delays]\nreward = -1", "", CampaignError, r"log\.delays\.reward: is -1; .*at least 0"),
        ("[log.delays]\nreward = 0.5", "", CampaignError, "whole number"),
        ("[log.delays]\nreward = 8", "", LogError, r"no row is ripe: .*\b8 days .* until 7\b"),
        ("", "as_of = -1", LogError, r"log\.as_of: is -1, .*of 0\b"),
        ("", 'as_of = "soon"', CampaignError, r"log\.as_of: is 'soon'; .*date"),
        ("", "as_of = true", CampaignError, r"log\.as_of: is True; .*whole number"),
        ("[log.delays]\ncoupon_costs = 3", "", CampaignError, r"Did you mean 'coupon_cost'\? Fix"),
        (
            '[log.delays]\nreward = 4\n[log.history]\ndays = 4\ncolumns = ["reward"]',
            "",
            CampaignError,
            "past would be unknown",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, tail: str, log: str, kind: type[Exception], error: str) -> None:
    path = campaign_file(tmp_path, panel(users=60, days=8), tail=tail, log=log)
    with pytest.raises(kind, match=error):
        prepare(path, tmp_path / "data")
