"""The page of a test is filled from its analysis: outcomes, the ramp's pace, what is not known."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from outlay.core.errors import OutlayError
from outlay.experiments import words
from outlay.experiments.results import Analysis
from outlay.experiments.words import NoteKind
from outlay.jobs.analyze_experiment import analyze_experiment
from outlay.pages.experiment import render
from outlay.pages.page import write_page
from small_panels import START, experiment, panel, written
from telling import missing


def analysed(folder: Path, log: pa.Table, *, day: int | None = None, **changes: Any) -> Analysis:
    return analyze_experiment(written(log, folder), experiment(**changes), day=day)


@pytest.fixture(scope="module")
def won(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysed(tmp_path_factory.mktemp("won"), panel(users=1500, before=7, lift=0.3))


def test_the_outcome_is_the_verdicts(won: Analysis, tmp_path: Path) -> None:
    assert won.comparisons[0].outcome == "better"
    assert "Take “new”" in won.verdict
    for lift, outcome, said in ((-0.3, "worse", "under “new”, active"), (0.0, "undecided", "no difference")):
        found = analysed(tmp_path, panel(users=1500, lift=lift))
        assert found.comparisons[0].outcome == outcome
        assert f"Keep “old”: {said}" in found.verdict
    running = analysed(tmp_path, panel(users=1500).filter(pc.field("day") < 3))
    assert running.comparisons[0].outcome == "open"
    assert not missing(running.verdict, "Let it run", "“new”")


def test_a_wrong_sample_ratio_blocks(tmp_path: Path) -> None:
    log = panel(users=3000)
    found = analysed(tmp_path, log.filter((pc.field("arm") == "old") | (pc.field("user") < "u2")))
    comparison = found.comparisons[0]
    assert (comparison.outcome, found.ratios[0].passed) == ("blocked", False)
    assert comparison.blocked[0].kind is NoteKind.SAMPLE_RATIO


def test_what_the_analysis_found_stands_on_the_page(won: Analysis) -> None:
    html = render(won)
    comparison = won.comparisons[0]
    assert comparison.saved["active"] > 0.1
    assert [c.metric for c in comparison.guardrails] == ["cost"]
    assert comparison.course is not None
    assert len(won.arms[0].spent_by_day) == 14
    assert won.experiment.seal() in html
    assert comparison.detectable is not None
    last = comparison.course.points[-1]
    figures = [*comparison.decisions, last.on_all_days]
    for text in (f"detects a difference of {100 * comparison.detectable:.1f}%", *map(words.ends, figures)):
        assert text in html


def test_an_effect_that_fades_reaches_the_page_and_the_json(tmp_path: Path) -> None:
    result = analysed(tmp_path, panel(users=3000, lift=np.repeat([0.3, 0.1], 7)))
    change = result.comparisons[0].change
    told = result.to_dict()["comparisons"][0]["change"]
    assert change is not None
    assert (change.trend, told["trend"], told["side"]) == ("fading", "fading", -1)
    assert change.first.relative is not None
    assert change.first.relative.value == told["first"]["relative"]["value"]
    assert "The effect is fading: +" in result.verdict
    weeks = analysed(tmp_path, panel(users=300, days=7), day=7)
    assert weeks.to_dict()["comparisons"][0]["change"] is None


def test_the_pace_follows_the_ramp(tmp_path: Path) -> None:
    ramp = [{"day": 0, "coverage": 0.5}, {"day": 4, "coverage": 1.0}]
    pace = analysed(tmp_path, panel(users=300), ramp=ramp).experiment.budget_due
    assert pace[3] == pytest.approx(4 * 0.5 / (4 * 0.5 + 10))
    assert (len(pace), pace[-1]) == (14, 1)


def test_only_contestants_have_an_outcome_and_a_planned_ratio_of_their_own(tmp_path: Path) -> None:
    log = panel(users=3000)
    arm = np.where(log["user"].to_numpy(zero_copy_only=False) < "u3", "none", log["arm"].to_numpy(zero_copy_only=False))
    arms = [
        {"name": "old", "kind": "constant", "action": 1.0, "share": 0.4, "budget": 9e6},
        {"name": "new", "kind": "constant", "action": 2.0, "share": 0.4, "budget": 9e6},
        {"name": "none", "kind": "holdout", "share": 0.2},
    ]
    found = analysed(tmp_path, log.set_column(2, "arm", pa.array(arm.astype(str))), arm=arms)
    assert [c.outcome for c in found.comparisons if c.arm == "none"] == [None]
    assert {r.arm: r.planned for r in found.ratios} == {"new": 1.0, "none": 0.5}
    assert found.arms[2].budget is None


def test_a_log_of_users_has_no_days_of_spending(tmp_path: Path) -> None:
    log = panel(users=600).group_by(["user", "arm"]).aggregate([("active", "sum"), ("cost", "sum")])
    found = analysed(tmp_path, log.rename_columns(["user", "arm", "active", "cost"]), day=14)
    assert found.arms[0].spent is not None
    assert found.arms[0].spent_by_day == []
    assert [len(c.points) for c in found.comparisons[0].guardrails] == [1]


def test_the_page_is_one_file_and_is_replaced_whole(won: Analysis, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "test.html"
    assert write_page(render(won), path) == path
    first = path.read_text(encoding="utf-8")
    assert first.startswith("<!doctype html>")
    assert "Take “new”: active is" in first
    os.utime(path, (time.time() - 100,) * 2)
    before = path.stat().st_mtime
    write_page(render(won), path)
    assert path.stat().st_mtime > before
    assert [p.name for p in path.parent.iterdir()] == ["test.html"]


@pytest.mark.parametrize("name", ["log.parquet", "page", "folder.html"])
def test_nothing_but_a_page_is_written_over(won: Analysis, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(OutlayError, match=r"ends in \.html"):
        write_page(render(won), tmp_path / name)


def test_harm_a_lost_day_and_users_without_rows_reach_the_page(tmp_path: Path) -> None:
    harm = analyze_experiment(written(panel(users=1500, lift=-0.3), tmp_path), experiment(), day=5)
    assert harm.comparisons[0].outcome == "harm"
    assert harm.comparisons[0].course is not None
    assert harm.comparisons[0].course.harmful
    log = panel(users=6000, days=7)
    entry = np.array([int(user[1:]) % 7 for user in log["user"].to_pylist()])
    lost = (np.array(log["arm"].to_pylist()) == "new") & (entry == 3)
    log = log.filter(pa.array((log["day"].to_numpy() >= entry) & ~lost))
    lines = analysed(tmp_path, log).ratios
    assert [(line.part, line.passed) for line in lines] == [("", False), ("who came on 2026-03-05", False)]
    users = panel(users=1000, days=1).select(["user", "arm"])
    pq.write_table(users, tmp_path / "arms.parquet")
    half = panel(users=1000).filter(pc.not_equal(pc.utf8_slice_codeunits(pc.field("user"), -1), "7"))
    found = analyze_experiment(written(half, tmp_path), experiment(), assigned=tmp_path / "arms.parquet")
    assert [x.metric for x in found.comparisons[0].exposed] == ["active", "cost", "cost_per_active", "redemption"]


def test_money_has_the_unit_of_the_file(tmp_path: Path) -> None:
    meta = {"name": "spring", "campaign": "habit", "start": START, "days": 14, "metric": "active", "unit": "yuan"}
    assert analysed(tmp_path, panel(users=300), experiment=meta).experiment.meta.unit == "yuan"
