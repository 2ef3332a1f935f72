"""A/B tests with outcomes that come later: days that are not ripe count nowhere, and no verdict rests on them."""

from __future__ import annotations

import datetime
import json
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from outlay.core.campaign import Campaign, Labels
from outlay.core.errors import OutlayError
from outlay.experiments.results import Analysis
from outlay.experiments.words import NoteKind
from outlay.jobs.analyze_experiment import analyze_experiment
from outlay.pages.experiment import render
from small_panels import START, experiment, panel, written
from telling import missing

LOG = panel(users=600, days=14, before=3, lift=0.3)


def campaign(delay: int | None = 3, **log: Any) -> Campaign:
    delays = {} if delay is None else {"reward": 1, "spent": delay}
    roles = {"source": "log.parquet", "user": "user", "time": "day", "action": "arm", "reward": "active"}
    return Campaign.parse(
        {
            "campaign": {"name": "habit"},
            "log": roles | {"delays": delays, "features": {"categorical": ["level"]}} | log,
            "budget": [{"name": "spent", "cost": "cost", "at_most": 1.0}],
        }
    )


def spoilt(log: pa.Table, first: int) -> pa.Table:
    """The log with other outcomes from a day on, some of them missing: what has not come yet."""
    late = pc.greater_equal(log["day"], first)
    log = log.set_column(3, "active", pc.if_else(late, None, log["active"]))
    return log.set_column(4, "cost", pc.if_else(late, 99.0, log["cost"]))


def numbers(found: Analysis) -> dict[str, Any]:
    """All of an analysis but what the file says of days that were left out."""
    return {name: value for name, value in found.to_dict().items() if name not in ("notes", "late", "verdict")}


def test_days_that_are_not_ripe_are_in_no_number(tmp_path: Path) -> None:
    """The analysis is that of a log that ends with the last ripe day, whatever the others say."""
    short = LOG.filter(pc.less(LOG["day"], 9))
    wanted = analyze_experiment(written(short, tmp_path), experiment())
    late = analyze_experiment(written(spoilt(LOG, 9), tmp_path), experiment(), campaign=campaign(5))
    assert json.dumps(numbers(late)) == json.dumps(numbers(wanted))
    assert late.day == 7
    assert NoteKind.LATER_RIPE_DAYS(observed=9, day=7) in late.notes
    told = next(note for note in late.notes if note.kind is NoteKind.UNRIPE)
    assert not missing(told.words, "5 days", "log.delays", "9 days", "3,000 rows", "day 14", "2026-03-20")
    assert late.to_dict()["late"] == {
        "delay": 5,
        "start": "2026-03-02",
        "planned": 14,
        "collected": 14,
        "rows": 3000,
        "due": "2026-03-20",
        "ripe": 9,
        "final": False,
    }
    assert told.words in " ".join(unescape(render(late)).split())


def test_no_verdict_before_the_last_day_is_ripe(tmp_path: Path) -> None:
    path, planned = written(LOG, tmp_path), experiment(decisions=(14,))
    until = START + datetime.timedelta(days=13 + 3)
    wait = analyze_experiment(path, planned, campaign=campaign(as_of=until - datetime.timedelta(days=1)))
    assert (wait.day, wait.comparisons[0].outcome) == (7, "open")
    assert not missing(wait.verdict, "day 7 of 14", "Wait", "“new”", "day 14", "2026-03-18")
    with pytest.raises(OutlayError, match=r"day: is 14, .*\b13 days are ripe.*day 13\b"):
        analyze_experiment(path, planned, day=14, campaign=campaign(as_of=until - datetime.timedelta(days=1)))
    final = analyze_experiment(path, planned, campaign=campaign(as_of=until))
    assert (final.day, final.comparisons[0].outcome) == (14, "better")
    assert not any(note.kind is NoteKind.UNRIPE for note in final.notes)


def test_rows_after_the_end_are_time_for_outcomes_to_come(tmp_path: Path) -> None:
    later = LOG.filter(pc.equal(LOG["day"], 13))
    later = later.set_column(1, "day", pa.array(np.full(len(later), 16)))
    found = analyze_experiment(written(pa.concat_tables([LOG, later]), tmp_path), experiment(), campaign=campaign())
    assert (found.day, found.to_dict()["late"]["rows"]) == (14, 0)


def test_an_exported_log_brings_its_campaign(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    written(LOG, tmp_path / "log")
    assert analyze_experiment(tmp_path, experiment()).day == 14
    (tmp_path / "campaign.toml").write_text(
        '[campaign]\nname = "habit"\n[log]\nsource = "log/*.parquet"\nuser = "user"\ntime = "day"\naction = "arm"\n'
        'reward = "active"\n[log.delays]\nreward = 7\n[log.features]\ncategorical = ["level"]\n'
        '[[budget]]\nname = "spent"\ncost = "cost"\nat_most = 1.0\n'
    )
    assert analyze_experiment(tmp_path, experiment()).day == 7


def test_a_row_a_user_needs_the_date(tmp_path: Path) -> None:
    totals = LOG.filter(pc.greater_equal(LOG["day"], 0)).group_by(["user", "arm"])
    users = totals.aggregate([("active", "sum"), ("cost", "sum")]).rename_columns(["user", "arm", "active", "cost"])
    path = written(users, tmp_path)
    with pytest.raises(OutlayError, match="until when were outcomes collected"):
        analyze_experiment(path, experiment(), day=14, campaign=campaign(), columns={"redemption": "1"})
    last = START + datetime.timedelta(days=16)
    assert (
        analyze_experiment(path, experiment(), day=14, campaign=campaign(as_of=last), columns={"redemption": "1"})
        .comparisons[0]
        .outcome
        == "better"
    )
    with pytest.raises(OutlayError, match="only 13 days are ripe"):
        analyze_experiment(
            path,
            experiment(),
            day=14,
            columns={"redemption": "1"},
            campaign=campaign(as_of=last - datetime.timedelta(days=1)),
        )


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"delay": 20},
            r"log\.delays: .*ripe.*\b20 days .*2026-03-22",
        ),
        ({"as_of": 7}, r"log\.as_of: .*number, 7; .*dates"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, given: dict[str, Any], error: str) -> None:
    with pytest.raises(OutlayError, match=error):
        analyze_experiment(written(LOG, tmp_path), experiment(), campaign=campaign(**given))


def test_the_labels_of_the_campaign_are_those_of_the_analysis(tmp_path: Path) -> None:
    labels = {"reward": "active days", "budgets": {"spent": "coupon money"}, "segments": {"new": "new users"}}
    about = campaign(None).model_copy(update={"labels": Labels.model_validate(labels)})
    found = analyze_experiment(written(LOG, tmp_path), experiment(), campaign=about)
    assert found.called("cost_per_active") == "coupon money per active day"
    assert (found.called("cost"), found.called("redemption")) == ("coupon money", "redemption")
    assert found.segment_names == {"new": "new users"}
    assert "active days are" in found.verdict
