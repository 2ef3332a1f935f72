"""`outlay frontier` through the real entry point: what it prints, and one message with code 2 for wrong input."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_bad_input import refused

from command_line import outlay
from conftest import Habit
from outlay.core.files import MANIFEST
from telling import missing

FLOOR = """
[[budget]]
name = "floor"
cost = "active"
at_least = 0.1
"""


@pytest.fixture
def a_run(counted: Path, tmp_path: Path) -> Path:
    """A copy to do with as one likes."""
    shutil.copytree(counted, tmp_path / "run")
    return tmp_path / "run"


def test_the_table_has_the_curve_and_every_requested_budget(a_run: Path) -> None:
    found = outlay("frontier", a_run, "--budget", 1.5, "--budget", 1.9)
    assert (found.code, found.err) == (0, "")
    lines = found.out.splitlines()
    assert not missing(lines[0], "habit", "95% intervals", "select users")
    asked = [line.split()[0] for line in lines if "(requested)" in line]
    assert asked == ["1.50", "1.90"]
    assert sum("one more yuan per decision" in line for line in lines) == 2
    assert "The log's policy: 0.7" in found.out
    assert "spends less, as it must" in found.out


def test_a_budget_may_be_a_change_of_the_campaigns(a_run: Path) -> None:
    found = outlay("frontier", a_run, "--budget", "-50%", "--budget", "+4.5 %", "--json")
    assert [point["budget"] for point in json.loads(found.out)["requested"]] == [1.1, 2.299]


def test_json_is_one_document_and_quiet_says_nothing(a_run: Path) -> None:
    asked = json.loads(outlay("frontier", a_run, "--budget", 1.5, "--json").out)
    assert (asked["requested"][0]["budget"], asked["page"]) == (1.5, None)
    found = outlay("frontier", a_run, "--json")
    assert found.code == 0
    content = json.loads(found.out)
    assert content.pop("page") == str(a_run / "frontier.html")
    assert content == json.loads((a_run / "frontier.json").read_text())
    assert outlay("frontier", a_run, "--quiet") == (0, "", "")


def test_a_question_leaves_the_page_of_the_run_as_it_is_and_says_so(a_run: Path) -> None:
    """The page is the run's own: it may have been sent to somebody who decides by it."""
    found = outlay("frontier", a_run)
    assert "frontier.html written" in found.out.splitlines()[-1]
    before = [(a_run / name).read_bytes() for name in ("frontier.html", "frontier.json")]
    for asked in (("--budget", 1.2), ("--confidence", 0.8), ("--budget", 1.2, "--budget", 1.9, "--json")):
        found = outlay("frontier", a_run, *asked)
        assert found.code == 0
        assert "written" not in found.out
    assert f"outlay frontier {a_run} writes" in outlay("frontier", a_run, "--budget", 1.2).out.splitlines()[-1]
    assert [(a_run / name).read_bytes() for name in ("frontier.html", "frontier.json")] == before


def test_the_page_takes_the_labels_of_the_runs_campaign_file(a_run: Path) -> None:
    path = a_run / "campaign.toml"
    path.write_text(re.sub(r"(?s)\n\[labels\].*", "", path.read_text()) + '\n[labels]\nreward = "days <with> us"\n')
    assert outlay("frontier", a_run, "--quiet").code == 0
    assert "days &lt;with&gt; us" in (a_run / "frontier.html").read_text()


def test_an_export_prints_the_look_and_the_verdict_and_leaves_the_page_of_the_run(a_run: Path, tmp_path: Path) -> None:
    assert outlay("frontier", a_run).code == 0
    before = [(a_run / name).read_bytes() for name in ("frontier.html", "frontier.json")]
    found = outlay("frontier", a_run, "-v", "--budget", 1.5, "--export", tmp_path / "bundle")
    assert (found.code, "frontier.html" in found.out) == (0, False)
    assert not missing(found.out, "bundle written", "look 1", "certify users")
    assert re.search(r"\bcoupon money at most 1\.5\b[^.;]* is certified\b", found.out)
    assert found.out.splitlines()[1].split()[-2:] == ["certified", "mixture"]
    assert [" yes " in line for line in found.out.splitlines() if "(requested)" in line] == [True]
    assert not missing(found.out, "budgets of the curve", "certified at 99.38%", "one look")
    again = outlay("frontier", a_run, "--budget", 1.9, "--export", tmp_path / "other")
    assert not missing(again.out, "other written", "look 1", "certify users")
    assert [(a_run / name).read_bytes() for name in ("frontier.html", "frontier.json")] == before


def test_before_the_look_it_says_how_to_get_one(a_run: Path) -> None:
    found = outlay("frontier", a_run)
    assert not missing(found.out, "Not certified yet", f"outlay evaluate {a_run}", "certify users")
    assert "certified" not in found.out.splitlines()[1]
    assert not (a_run / "data" / "looks.json").exists()


def test_a_cost_of_nothing_prints_as_0(a_run: Path) -> None:
    path = a_run / "frontier" / "points.npz"
    with np.load(path) as file:
        part = {name: file[name] for name in file.files}
    part["budgets"][0] = 0
    part["grid_value"][0, 1] = 1e-18
    part["grid_covariance"][0, 1] = part["grid_covariance"][:, :, 0, 1] = 0
    np.savez(path, **part)
    lines = outlay("frontier", a_run, "-v").out.splitlines()
    budget, _, _, _, spend, half = lines[3].split()[:6]
    assert {float(text.lstrip("±")) for text in (budget, spend, half)} == {0.0}
    assert not re.search("e[-−]1", "".join(lines))


def test_a_limit_below_the_curve_is_said_where_no_budget_is_requested(a_run: Path) -> None:
    text = (a_run / MANIFEST).read_text()
    (a_run / MANIFEST).write_text(text.replace('"at_most": 2.2', '"at_most": 0.1'))
    found = outlay("frontier", a_run)
    assert found.code == 0
    assert not missing(found.out, "limit, 0.1", "below the curve")


def test_a_goal_is_answered_with_its_budget_and_leaves_the_page(a_run: Path) -> None:
    found = outlay("frontier", a_run, "--least-money", "--worth", 2, "--gain", 0.02)
    assert (found.code, found.err) == (0, "")
    assert not missing(found.out, "for the least money", "costs over 2 yuan", "2% more", "also chose it")
    assert "written" not in found.out
    goals = json.loads(outlay("frontier", a_run, "--least-money", "--gain", 0.02, "--json").out)["goals"]
    assert [(goal["kind"], goal["asked"]) for goal in goals] == [("least money", None), ("gain", 0.02)]
    assert goals[0]["point"]["budget"] < goals[1]["point"]["budget"]


# Wrong input.


def test_an_impossible_budget_is_refused(a_run: Path, tmp_path: Path) -> None:
    for budget, words in (
        ("-1", "-1% for a change"),
        ("+20", "or 20 for the limit itself"),
        ("nan", "at least 0"),
        ("inf", "at least 0"),
        ("'1,9'", "+20%"),
    ):
        refused(tmp_path, f"--budget: is {budget};", words, command=("frontier", a_run, "--budget", budget.strip("'")))
    refused(
        tmp_path,
        "budget 0.01: lies below the curve",
        "coupon_cost",
        "Give 0.",
        command=("frontier", a_run, "--budget", 0.01, "--export", tmp_path / "b"),
    )
    refused(tmp_path, "--worth: is 0", "2.5", command=("frontier", a_run, "--worth", 0))
    refused(tmp_path, "--gain: is -1", "0.02", command=("frontier", a_run, "--gain", -1))
    found = outlay("frontier", a_run, "--budget", "much")
    assert found.code == 2
    assert "--budget" in found.err
    refused(tmp_path, "--confidence: is 2", command=("frontier", a_run, "--confidence", 2))


def test_a_run_without_a_frontier_is_told_apart(finished: Path, habit: Habit, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "greedy")
    refused(
        tmp_path,
        "greedy",
        "trained for one budget",
        "Train with --method frontier",
        command=("frontier", tmp_path / "greedy"),
    )
    refused(tmp_path, "none: does not exist", "Check the path", command=("frontier", tmp_path / "none"))
    refused(tmp_path, "expected 'outlay-run'", command=("frontier", habit.data))


def test_a_damaged_frontier_is_not_read(a_run: Path, tmp_path: Path) -> None:
    folder = a_run / "frontier"
    again = "Train again with --method frontier"
    for name in ("points.npz", "network-0.npz", MANIFEST):
        content = (folder / name).read_bytes()
        changed = bytearray(content)
        changed[len(content) // 2] ^= 1
        for damage in (content[: len(content) // 2], b"", b"no archive", bytes(changed)):
            if name == MANIFEST and damage == changed:
                continue
            (folder / name).write_bytes(damage)
            refused(tmp_path, str(folder), again, command=("frontier", a_run, "--budget", 1.5))
        (folder / name).unlink()
        refused(tmp_path, str(folder), again, command=("frontier", a_run))
        (folder / name).write_bytes(content)
    manifest = json.loads((folder / MANIFEST).read_text())
    for key in ("users", "heads", "check", "seed"):
        (folder / MANIFEST).write_text(json.dumps({k: v for k, v in manifest.items() if k != key}))
        refused(tmp_path, "damaged", again, command=("frontier", a_run))
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert outlay("frontier", a_run, "--quiet").code == 0


def test_a_bundle_is_exported_for_one_budget_into_a_free_folder(a_run: Path, tmp_path: Path) -> None:
    export = ("--export", tmp_path / "bundle")
    refused(
        tmp_path,
        "export: 2 budgets",
        "Give the one budget",
        command=("frontier", a_run, "--budget", 1.5, "--budget", 2.0, *export),
    )
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("x")
    for folder, words in (
        (mine, "outlay did not write it"),
        (mine / "thesis.tex", "a file stands"),
        (a_run, "RUN folder"),
        (a_run / "bundle", "bundle of the run itself"),
        (a_run / "data", "DATA folder"),
    ):
        refused(
            tmp_path,
            str(folder),
            words,
            "Export to another folder",
            command=("frontier", a_run, "--budget", 1.5, "--export", folder),
        )
    assert not (a_run / "data" / "looks.json").exists()


def test_what_the_counted_model_does_not_apply_to_is_refused(habit: Habit, tmp_path: Path) -> None:
    """A number of every row among the features: states are many."""
    wide = habit.changed(tmp_path / "in", ('"level"]', '"level", "user_id"]'))
    out = ("--out", tmp_path / "run")
    refused(
        tmp_path,
        "oracle tabular: needs few distinct states",
        "--oracle orthogonal",
        command=("train", wide, *out, "--oracle", "tabular"),
    )
    refused(
        tmp_path,
        "--oracle: is 'tabular', which lp does not take",
        "--method frontier",
        command=("train", habit.campaign, *out, "--oracle", "tabular", "--method", "lp"),
    )


@pytest.mark.parametrize("oracle", ["auto", "tabular", "bcq"])
def test_four_budgets_are_too_many(oracle: str, habit: Habit, tmp_path: Path) -> None:
    four = "".join(FLOOR.replace('"floor"', f'"floor {i}"') for i in range(3))
    path = habit.changed(tmp_path / "in", ("\n[train]", four + "\n[train]"))
    refused(
        tmp_path,
        "[[budget]]",
        "has 4 budgets",
        "at most 3",
        "aim-greedy",
        command=("train", path, "--out", tmp_path / "run", "--oracle", oracle),
    )


def test_a_floor_as_money_budget_has_no_curve(a_run: Path, tmp_path: Path) -> None:
    text = (a_run / MANIFEST).read_text()
    assert text.count('"at_most": 2.2') == 1
    (a_run / MANIFEST).write_text(text.replace('"at_most": 2.2', '"at_least": 2.2'))
    refused(tmp_path, "budget coupon_cost: is a floor", "money = true", command=("frontier", a_run))


def test_a_damaged_band_is_told(a_run: Path, tmp_path: Path) -> None:
    (a_run / "frontier" / "band.npz").write_text("[")
    refused(tmp_path, "band.npz: is damaged", "Remove it", "same look", command=("frontier", a_run))
