"""`outlay experiment plan`, `assign` and `analyze`, through the real entry point."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import Result, outlay
from outlay.experiments.design import experiment_text
from outlay.experiments.words import NoteKind
from small_panels import experiment, panel, written
from telling import missing

CAMPAIGN = """
[campaign]
name = "coupons"
unit = "yuan"
[log]
source = "log.parquet"
user = "user_id"
time = "day"
action = "coupon"
reward = "active"
[log.features]
categorical = ["level"]
[[budget]]
name = "coupon_cost"
cost = "coupon * active"
at_most = 1.0
"""
OLD, NEW = "old,action=1,share=0.5,budget=9000", "new,random,share=0.4,budget=7200"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 users over 21 days, active at random."""
    active = np.random.default_rng(0).random((400, 21)) < 0.4
    folder = tmp_path_factory.mktemp("campaign")
    rows = [(f"u{u}", d, u % 3, 1.0 + d % 2, float(active[u, d])) for u in range(400) for d in range(21)]
    names = ("user_id", "day", "level", "coupon", "active")
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), folder / "log.parquet")
    (folder / "campaign.toml").write_text(CAMPAIGN)
    return folder / "campaign.toml"


def plan(
    campaign: Path, out: Path, *more: str, arms: tuple[str, ...] = (OLD, NEW), start: str = "2999-01-07"
) -> Result:
    named = [part for arm in arms for part in ("--arm", arm)]
    return outlay("experiment", "plan", campaign, "--start", start, "--out", out, *named, *more)


@pytest.mark.parametrize("command", ["plan", "assign"])
def test_every_help_has_an_example_and_says_what_options_mean(command: str) -> None:
    found = outlay("experiment", command, "--help")
    assert (found.code, found.err) == (0, "")
    assert f"Example: outlay experiment {command} " in found.out
    for option in re.split(r"\n(?=  -)", found.out.split("Options:\n")[1]):
        name, _, words = option.strip().partition("  ")
        assert name.startswith("-")
        assert len(words.split()) > 1, f"{name} is not explained"


def test_plan_then_assign(campaign: Path, tmp_path: Path) -> None:
    out = tmp_path / "experiment.toml"
    planned = plan(campaign, out, "--ramp", "0:0.1,2:1", "--days", "7", "--lift", "0.01", "--users", "100000")
    assert planned.code == 0
    assert not missing(planned.out, "Smallest effect", "80%", "5 days", "An effect of +1.0%")
    assert ["0", "2999-01-07", "0.1", "5,000", "4,000"] in [row.split()[:5] for row in planned.out.splitlines()]
    assert f"note: {NoteKind.RAMP_ENDS(growth=2, days=5).words}" in " ".join(planned.err.split())
    arms = tmp_path / "arms.parquet"
    log = campaign.parent / "log.parquet"
    assigned = outlay("experiment", "assign", out, log, "--user", "user_id", "--day", "2", "--out", arms)
    assert (assigned.code, assigned.err) == (0, "")
    counts = dict(re.findall(r"^  (old|new) +(\d+)$", assigned.out, re.MULTILINE))
    found = pq.read_table(arms)["arm"].to_pylist()
    assert counts == {name: str(found.count(name)) for name in ("old", "new")}


def test_the_command_that_plan_proposes_runs_as_it_stands(campaign: Path, tmp_path: Path) -> None:
    planned = plan(campaign, tmp_path / "a test.toml", "--days", "7")
    words = shlex.split(planned.out.rsplit("table of others: outlay ", 1)[1])
    assert words[:2] == ["experiment", "assign"]
    words[words.index("arms.parquet")] = str(tmp_path / "arms.parquet")
    found = outlay(*words)
    assert (found.code, found.err) == (0, "")
    assert "400 users on day 0" in found.out


def test_json_is_one_document(campaign: Path, tmp_path: Path) -> None:
    out = tmp_path / "experiment.toml"
    planned = json.loads(plan(campaign, out, "--json").out)
    assert planned["experiment"]["name"] == "coupons-2999-01-07"
    assert planned["experiment"]["seal"] in out.read_text()
    assert {power["metric"] for power in planned["power"]} == {"active", "cost", "redemption"}
    log = campaign.parent / "log.parquet"
    arms = tmp_path / "arms.csv"
    found = outlay("experiment", "assign", out, log, "--user", "user_id", "--day", 0, "--out", arms, "--json")
    told = json.loads(found.out)
    assert told["users"] == told["eligible"] == 400
    assert [arm["arm"] for arm in told["arms"]] == ["old", "new"]


def test_quiet_says_nothing(campaign: Path, tmp_path: Path) -> None:
    assert plan(campaign, tmp_path / "experiment.toml", "-q", "--days", "7") == (0, "", "")


@pytest.mark.parametrize(
    ("arms", "more", "message"),
    [
        ((OLD, "new,share=0.4"), (), "'new,share=0.4'"),
        ((OLD, "new,random,bundel=x"), (), "'bundel=x' … --arm new,bundle"),
        ((OLD, "new,random=1"), (), "'random=1'"),
        ((OLD, "new,random,action=2,share=0.4"), (), "describes the arm twice"),
        ((OLD, "new,random,share=0.4,share=0.5"), (), "describes the arm twice"),
        ((OLD, "new,random,share=half,budget=1"), (), "arm 'new'.share: is 'half' … number, as 0.5"),
        ((OLD, "new,random,share=0.4"), (), "'new' has no budget … Give it a budget."),
        ((OLD,), (), "1 arm … at least 2. Add the arm"),
        ((OLD, NEW), ("--ramp", "0.5"), "--ramp: '0.5' … --ramp 0:0.01,2:0.1,4:1"),
        ((OLD, NEW), ("--days", "10"), "whole weeks. Give 7 or 14."),
        ((OLD, NEW), ("--decisions", "7,x"), "experiment.decisions[1]: is 'x' … whole number"),
        ((OLD, NEW), ("--start", "03/01/2027"), "--start: is '03/01/2027' … date … 2027-03-31"),
        (
            (OLD, NEW),
            ("--lift", "2"),
            "--lift: is 2 … -1 and 1 … not 0 … 0.02 for 2%",
        ),
        ((OLD, "random,random,share=0.4,budget=9"), (), "arm 'random': … server's name"),
        ((OLD, NEW), ("--out", "/proc/plan.toml"), "/proc/plan.toml: cannot be written"),
        ((OLD, NEW), ("--metric", "activ"), "Did you mean 'active'?"),
    ],
)
def test_wrong_plans_are_told_in_a_line_and_exit_with_2(
    campaign: Path, tmp_path: Path, arms: tuple[str, ...], more: tuple[str, ...], message: str
) -> None:
    found = plan(campaign, tmp_path / "experiment.toml", *more, arms=arms)
    assert found.code == 2
    assert not missing(found.err, message)
    assert found.err.count("\n") == 1
    assert found.err.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_a_file_changed_by_hand_is_told(campaign: Path, tmp_path: Path) -> None:
    out = tmp_path / "experiment.toml"
    plan(campaign, out)
    out.write_text(out.read_text().replace("share = 0.4", "share = 0.5"))
    found = outlay("experiment", "assign", out, "users.parquet", "--day", 0, "--out", tmp_path / "a.parquet")
    assert found.code == 2
    assert "experiment.seal: is " in found.err
    assert not missing(found.err, "experiment.seal", "ramp")


# analyze


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
    assert not missing(found.out.splitlines()[0], "spring", "arms", "day 14 of 14")
    lines = found.out.splitlines()
    for title in ("new against old: at a single look, 95% intervals", "sample ratio", "by week, at a single look"):
        assert title in lines
    at = lines.index("planned decisions, with intervals that hold over all of them")
    table = " ".join(" ".join(lines[at : at + 9]).split())
    assert not missing(table, "bound", "after day 7", "better")
    at = lines.index("any day, with intervals that hold on all days at once")
    (active,) = [line for line in lines[at : at + 6] if line.split()[:1] == ["active"]]
    assert "higher" in active
    assert not missing(found.out, "variance", "explained")
    assert not missing(found.out.splitlines()[-1], "day 14 of 14", "Take “new”", "active")
    assert "note: " in found.err


def test_the_json_of_an_analysis_is_one_document(folder: Path) -> None:
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
    lines = found.out.splitlines()
    (at,) = (at for at, line in enumerate(lines) if line.startswith("by segment"))
    below = [line.split()[0] for line in lines[at + 1 : at + 12] if line.strip()]
    assert [name for name in below if name in ("a", "b")][:2] == ["a", "b"]


def test_an_analysis_of_a_file_changed_by_hand_is_refused(folder: Path, tmp_path: Path) -> None:
    text = (folder / "experiment.toml").read_text().replace("share = 0.5", "share = 0.4", 1)
    (tmp_path / "experiment.toml").write_text(text)
    found = outlay("experiment", "analyze", folder / "log.parquet", "--experiment", tmp_path / "experiment.toml")
    assert found.code == 2
    assert not missing(found.err, "experiment.toml", "changed", "sealed")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--day", 15), "after its end"),
        (("--column", "cost"), "--column: is 'cost' … every role once … --column cost="),
        (("--column", "cost="), "--column: is 'cost='"),
        (("--column", "cost=a", "--column", "cost=b"), "--column: is 'cost=b' … every role once"),
        (("--day", 0), "--day: is 0 … at least 1 … counted from 1"),
        (("--assigned", "none.csv"), "none.csv, assigned: does not exist … outlay experiment assign"),
        (("--promised", "none.json"), "none.json, promised: does not exist … RUN/estimates.json"),
        (("--promised", "old=none.json"), "'old' … control"),
        (("--promised", "new=a.json", "--promised", "b.json"), "--promised: is 'b.json' … every arm once"),
    ],
)
def test_wrong_options_are_one_message(folder: Path, more: tuple[object, ...], said: str) -> None:
    found = outlay("experiment", "analyze", folder / "log.parquet", "--experiment", folder / "experiment.toml", *more)
    assert found.code == 2
    assert not missing(found.err, said)
    assert "Traceback" not in found.err


def test_the_page_is_written_if_asked(folder: Path, tmp_path: Path) -> None:
    options = ("experiment", "analyze", folder / "log.parquet", "--experiment", folder / "experiment.toml")
    found = outlay(*options, "--report", tmp_path / "test.html", "--json")
    assert json.loads(found.out)["control"] == "old"
    assert "Take “new”: active is" in (tmp_path / "test.html").read_text(encoding="utf-8")
    wrong = outlay(*options, "--report", folder / "log.parquet")
    assert (wrong.code, "--report" in wrong.err, "ends in .html" in wrong.err) == (2, True, True)
