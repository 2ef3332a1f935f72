"""`outlay experiment analyze`, through the real entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import outlay
from outlay.experiments.design import experiment_text
from small_panels import experiment, panel, written


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed experiment and a log of it, in which the new arm is better."""
    place = tmp_path_factory.mktemp("test")
    (place / "experiment.toml").write_text(experiment_text(experiment()))
    written(panel(users=800, before=7, lift=0.3), place)
    return place


def test_the_tables_end_with_the_verdict(folder: Path) -> None:
    found = outlay("experiment", "analyze", folder / "log.parquet", "--experiment", folder / "experiment.toml")
    assert found.code == 0
    assert found.out.splitlines()[0] == "spring: arms after day 14 of 14"
    for part in (
        "new against old: at a single look",
        "planned decisions",
        "by week, at a single look",
        "any day, with intervals that hold on all days at once",
        "explained by CUPED",
    ):
        assert part in found.out
    assert found.out.splitlines()[-1].startswith("After day 14 of 14: Take “new”: active is ")
    assert "note: " in found.err


def test_json_is_one_document(folder: Path) -> None:
    found = outlay(
        "experiment",
        "analyze",
        folder / "log.parquet",
        "--experiment",
        folder / "experiment.toml",
        "--json",
        "--day",
        7,
        "--column",
        "segment=case when \"user\" < 'u5' then 'a' else 'b' end",
    )
    told = json.loads(found.out)
    assert (told["experiment"], told["day"], told["control"]) == ("spring", 7, "old")
    assert [s["name"] for s in told["comparisons"][0]["segments"]] == ["a", "b"]


def test_segments_are_shown(folder: Path) -> None:
    found = outlay(
        "experiment",
        "analyze",
        folder / "log.parquet",
        "--experiment",
        folder / "experiment.toml",
        "--column",
        "segment=case when \"user\" < 'u5' then 'a' else 'b' end",
    )
    assert "active by segment" in found.out


def test_a_file_changed_by_hand_is_refused(folder: Path, tmp_path: Path) -> None:
    text = (folder / "experiment.toml").read_text().replace("share = 0.5", "share = 0.4", 1)
    (tmp_path / "experiment.toml").write_text(text)
    found = outlay("experiment", "analyze", folder / "log.parquet", "--experiment", tmp_path / "experiment.toml")
    assert found.code == 2
    assert "was changed after it was sealed" in found.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--day", 15), "a look after its end would be one too many"),
        (("--column", "cost"), "--column: is 'cost'. Give every role once, e.g. --column cost="),
        (("--column", "cost="), "--column: is 'cost='"),
        (("--column", "cost=a", "--column", "cost=b"), "--column: is 'cost=b'. Give every role once"),
        (("--day", 0), "day: is 0; must be at least 1. Days of a look are counted from 1"),
        (("--assigned", "none.csv"), "none.csv, assigned: does not exist. Give what outlay experiment assign wrote"),
        (("--promised", "none.json"), "none.json, promised: does not exist. Give RUN/estimates.json"),
        (("--promised", "old=none.json"), "'old' is not an arm that is compared with the control"),
        (("--promised", "new=a.json", "--promised", "b.json"), "--promised: is 'b.json'. Give every arm once"),
    ],
)
def test_wrong_options_are_one_message(folder: Path, more: tuple[object, ...], said: str) -> None:
    found = outlay("experiment", "analyze", folder / "log.parquet", "--experiment", folder / "experiment.toml", *more)
    assert found.code == 2
    assert said in found.err
    assert "Traceback" not in found.err


def test_the_page_is_written_if_asked(folder: Path, tmp_path: Path) -> None:
    options = ("experiment", "analyze", folder / "log.parquet", "--experiment", folder / "experiment.toml")
    found = outlay(*options, "--report", tmp_path / "test.html", "--json")
    assert json.loads(found.out)["control"] == "old"
    assert "Take “new”: active is" in (tmp_path / "test.html").read_text(encoding="utf-8")
    wrong = outlay(*options, "--report", folder / "log.parquet")
    assert (wrong.code, "--report" in wrong.err, "ends in .html" in wrong.err) == (2, True, True)
