"""`outlay evaluate` as an analyst meets it: a policy table on DATA, what is printed, what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import outlay as package
from command_line import Result, outlay
from conftest import Habit
from outlay.cli import judge
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import Transitions
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.next_test import plan_settling, plan_test
from outlay.evaluating.randomising import RandomisingCost
from policy_files import generous, habit_policy, thrifty
from telling import missing

USERS, DAYS = 200, 4
CAMPAIGN = """
[campaign]
name = "coupons"
report_days = [1, 3]
horizon_days = 4

[log]
source = "log.parquet"
user = "user_id"
time = "day"
action = "coupon"
reward = "active"
propensity = "p"
eligible = "allowed"
forced = "fixed"

[log.features]
categorical = ["level"]

[[budget]]
name = "coupon_cost"
cost = "coupon * active"
at_most = 1.0
"""


@pytest.fixture(scope="module")
def judged(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """DATA of the habit campaign, a policy and another."""
    folder = tmp_path_factory.mktemp("analyst")
    shutil.copytree(habit.data, folder / "data")
    return (
        folder / "data",
        habit_policy(habit, folder / "generous.parquet", generous),
        habit_policy(habit, folder / "thrifty.parquet", thrifty, 0.3),
    )


@pytest.fixture(scope="module")
def printed(judged: tuple[Path, Path, Path]) -> list[str]:
    """The lines of an evaluation on DATA."""
    data, policy, other = judged
    found = outlay("evaluate", data, "--policy", policy, "--against", other, "--learned-here", "-v")
    assert (found.code, found.err) == (0, "")
    return found.out.splitlines()


def line(printed: list[str], begin: str) -> str:
    return next(line for line in printed if line.strip().startswith(begin))


def test_the_table_has_the_policy_beside_the_old_one_and_constants(printed: list[str]) -> None:
    assert not missing(printed[0], "habit", "per user", "95% intervals", "never used for choosing")
    unit = printed[2].split("   ")[-1].strip()
    assert not missing(unit, "at most 2.2", "yuan per decision"), "units stand below the heads"
    names = [row.split("   ")[0].strip() for row in printed[3:7]]
    assert names == ["old policy", "best constant mixture", "thrifty.parquet", "generous.parquet"]
    assert "of users" in line(printed, "best constant mixture: ")  # which ones
    assert max(map(len, printed[:7])) <= 130


def test_every_estimator_is_a_column_that_is_explained(printed: list[str]) -> None:
    at = printed.index("generous.parquet, by each estimator")
    names = printed[at + 1].split()[1:]
    assert names == ["fqe", "dr", "mis", "snpdis", "pdis"]
    for name in names:
        assert len(line(printed, f"{name}: ").split()) > 3
    targets = [row.strip().split("   ")[0] for row in printed[at + 2 : at + 10]]
    assert targets == [
        "active days per decision, discounted mean",
        "coupon money, yuan per decision",
        "active days, total of 1 day",
        "coupon money, total of 1 day",
        "active days, total of 3 days",
        "coupon money, total of 3 days",
        "active days, total of 7 days",
        "coupon money, total of 7 days",
    ]
    # 1 of 11 paths goes a rule's way on each day: nothing is left of 7 days, and the reason is printed.
    assert printed[at + 8].count("–") >= 3
    at = printed.index("  * not to be relied on; – no number")
    reasons = printed[at + 1 : printed.index("By segment of a user's first row, by fqe")]
    assert any("no number" in reason and "by chance" in reason for reason in reasons)
    assert any("pdis" in reason and "not recommended" in reason for reason in reasons)


def test_segments_and_differences_have_their_tables(printed: list[str]) -> None:
    at = printed.index("By segment of a user's first row, by fqe")
    assert printed[at + 1].split() == ["segment", "users", "old", "policy", "generous.parquet", "change"]
    assert printed[at + 2].strip() == "active days, total of 7 days"
    users = [int(row.split()[1]) for row in printed[at + 3 : at + 5]]
    at = printed.index("generous.parquet less thrifty.parquet, paired by user")
    assert printed[at + 1].split()[:2] == ["quantity", "fqe"]
    assert f"{sum(users):,} users" in line(printed, "Certificate at ")


def test_what_it_rests_on_comes_last_and_then_what_to_do(printed: list[str], judged: tuple[Path, Path, Path]) -> None:
    at = printed.index("What the numbers rest on")
    checks = {row.split()[0]: row.split()[1] for row in printed[at + 2 : at + 7]}
    assert list(checks)[:3] == ["propensities", "reproduction", "state"]
    assert set(checks.values()) <= {"yes", "no", "–"}
    begins = [
        "Bias:",
        "Days:",
        "Logged",
        "days",
        "with",
        *("1", "3", "7"),
        "Certificate",
        "budget",
        "coupon",
        "Looks",
        "Grade:",
    ]
    assert [row.split()[0] for row in printed[at + 7 : -2]] == begins
    assert not missing(printed[-5], "at most 2.2", "yuan per decision")
    assert re.search(r" \S+/\d+\.sqlite, .*\bDATA\b", printed[-4])
    found = package.evaluate(judged[0], policy=judged[1], learned_here=True)
    assert printed[-2] == found.verdict.words
    assert printed[-1].startswith('"Sure" and "certified" hold if ')
    assert found.certificate.look == 1
    assert "look 1 at these" in line(printed, "Certificate at 97.5%")


def test_what_is_doubted_has_a_star_in_every_table(
    judged: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data, policy, _ = judged
    result = package.evaluate(data, policy=policy)
    doubted: dict[str, Any] = {
        name: tuple(
            replace(e, recommended=False, caution="for a reason") if e.estimator == "fqe" else e
            for e in getattr(result, name)
        )
        for name in ("estimates", "beside", "segments")
    }
    judge._show(replace(result, **doubted), Transitions.open(data).campaign)
    shown = capsys.readouterr().out.splitlines()
    old, constants, asked = shown[3:6]
    assert (old.count("*"), constants.count("*"), asked.count("*")) == (1, 4, 4)  # old totals are observed
    assert all(reason.endswith(": for a reason.") for reason in shown if reason.startswith("  fqe is not recommended"))
    assert not missing(line(shown, "fqe is not recommended"), "discounted means")
    assert line(shown, "inactive").count("*") == 3


def test_totals_of_some_users_give_way_to_those_of_all_and_stars_of_other_policies_are_explained(
    judged: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data, policy, _ = judged
    result, campaign = package.evaluate(data, policy=policy), Transitions.open(data).campaign
    some = Reason(ReasonKind.SOME_USERS, {"share": 0.6})

    def doubted(*estimators: str) -> Evaluation:
        beside = (
            replace(e, recommended=False, caution=some) if e.estimator in estimators else e for e in result.beside
        )
        return replace(result, beside=tuple(beside))

    for estimators, kept in (((), "observed"), (("observed",), "fqe")):
        old = next(row for row in doubted(*estimators).rows(campaign) if row.kind == "old")
        assert {e.estimator for e in old.totals.values()} == {kept}
    judge._show_first(doubted("observed"), campaign, data)
    assert "*" not in capsys.readouterr().out
    judge._show_first(doubted("fqe"), campaign, data)
    shown = capsys.readouterr().out.splitlines()
    assert line(shown, "* old policy, best constant mixture: it is of the 60% of users")


def test_the_test_that_would_settle_it_follows_the_verdict(
    judged: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data, policy, _ = judged
    result, log = package.evaluate(data, policy=policy), Transitions.open(data)
    assert (result.grade, result.test) == ("not supported", None)  # it loses: there is nothing to test
    planned = plan_test(log, log.campaign, 0.05, 1.0, None)
    assert planned is not None
    judge._show(replace(result, test=planned), log.campaign)
    shown = capsys.readouterr().out.splitlines()
    at = shown.index(result.verdict.words)
    assert shown[at + 1] == f"{planned.words} Plan it with:"
    assert [row.strip() for row in shown[at + 2 : -1]] == [planned.command, planned.placeholders]
    settling = plan_settling(log, log.campaign)
    assert settling is not None
    cost = RandomisingCost(share=0.05, reward=0.1, relative=0.1, spend=None, words="From now on, draw some.")
    judge._show(replace(result, settling=settling, randomising=cost), log.campaign)
    shown = capsys.readouterr().out.splitlines()
    at = shown.index(result.verdict.words)
    assert [row.strip() for row in shown[at + 1 : -1]] == [
        f"{settling.words} Plan it with:",
        settling.command,
        settling.placeholders,
        cost.words,
    ]


def test_json_is_one_document_with_what_is_promised(judged: tuple[Path, Path, Path]) -> None:
    data, policy, other = judged
    found = outlay("evaluate", data, "--policy", policy, "--against", other, "--confidence", 0.9, "--json")
    assert (found.code, found.err) == (0, "")
    assert "NaN" not in found.out
    assert "Infinity" not in found.out
    document = json.loads(found.out)
    assert document["confidence"] == 0.9
    keys = {"estimator", "target", "value", "low", "high", "ess", "recommended", "withheld"}
    for e in document["estimates"]:
        assert keys <= set(e)
        assert e["policy"] == document["subject"] == "policy"
        assert (e["low"] is None) == (e["value"] is None) == (e["withheld"] is not None)
    assert {"reward", "coupon_cost", "reward@7", "coupon_cost@7"} <= {e["target"] for e in document["estimates"]}
    assert isinstance(document["certificate"]["certified"], bool)
    assert outlay("evaluate", data, "--policy", policy, "--quiet") == (0, "", "")


def test_a_run_may_be_held_against_old_by_name(run: Path) -> None:
    found = outlay("evaluate", run, "--against", "old", "-v")
    assert found.code == 0
    assert "paired by user" not in found.out
    assert not any(d["against"] != "old" for d in json.loads((run / "estimates.json").read_text())["differences"])


def test_numbers_that_cannot_be_given_have_their_reason_in_the_output(small: Path) -> None:
    """All that is left of 30 users is a dash and why."""
    found = outlay("evaluate", small / "data", "--policy", written(small), "--learned-here", "-v")
    assert found.code == 0
    assert "not certified" in found.out
    assert "are needed" in found.out


Columns = dict[str, Any]


def columns() -> Columns:
    rng = np.random.default_rng(0)
    rows = USERS * DAYS
    coupon = rng.integers(1, 4, rows).astype(float)
    level = rng.integers(0, 3, rows)
    coupon = np.where((level == 0) & (coupon == 3), 1.0, coupon)
    return {
        "user_id": [f"u{i // DAYS}" for i in range(rows)],
        "day": [i % DAYS for i in range(rows)],
        "level": level,
        "coupon": coupon,
        "active": (rng.random(rows) < 0.2 + 0.1 * coupon).astype(float),
        "p": np.where(level == 0, np.where(coupon == 1, 2 / 3, 1 / 3), 1 / 3),
        "allowed": [[1.0, 2.0] if x == 0 else [1.0, 2.0, 3.0] for x in level],
        "fixed": np.zeros(rows, np.bool_),
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    pq.write_table(pa.table(columns()), folder / "log.parquet")
    (folder / "campaign.toml").write_text(CAMPAIGN)
    package.prepare(folder / "campaign.toml", folder / "data")
    return folder


@pytest.fixture
def small(prepared: Path, tmp_path: Path) -> Path:
    """A folder with a log, DATA made from it, and room for a policy."""
    shutil.copytree(prepared, tmp_path / "small")
    return tmp_path / "small"


def right() -> pa.Table:
    log = columns()
    low = (log["level"] == 0)[:, None]
    policy = np.where(low, [0.5, 0.5, 0.0], [0.25, 0.25, 0.5])
    return pa.table({"user_id": log["user_id"], "day": log["day"]} | dict(zip("123", policy.T, strict=True)))


def written(folder: Path, table: pa.Table | None = None) -> Path:
    path = folder / "policy.parquet"
    pq.write_table(right() if table is None else table, path)
    return path


def changed(table: pa.Table, column: str, values: Any, name: str | None = None) -> pa.Table:
    at = table.column_names.index(column)
    return table.set_column(at, name or column, pa.array(values) if values is not None else table[column])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(found: Result, *words: str) -> None:
    assert found.code == 2, found
    assert found.out == ""
    assert found.err.startswith("error: ")
    assert found.err.count("\n") == 1, found.err
    assert "Traceback" not in found.err
    for word in words:
        assert word in found.err, found.err


WRONG: dict[str, tuple[Callable[[pa.Table], pa.Table], tuple[str, ...]]] = {
    "an action that is not allowed": (
        lambda t: changed(changed(t, "2", np.full(800, 0.25)), "3", 0.75 - t["1"].to_numpy()),
        ("gives a probability of 0.25 to 3", "not allowed", "user u", "eligible actions"),
    ),
    "no sum": (lambda t: changed(t, "2", np.full(800, 0.1)), ("sum to ", "user u", "Make them sum to 1")),
    "some rows are missing": (
        lambda t: t.filter(pa.array(np.arange(800) % 5 > 0)),
        ("has no row for user u", "Give a row for every row"),
    ),
    "all rows are missing": (lambda t: t.slice(0, 0), ("has no row for user u", "Give a row for every row")),
    "a row stands twice": (lambda t: pa.concat_tables([t, t]), ("more than one row for user u", "Keep one row")),
    "the user has another name": (
        lambda t: changed(t, "user_id", None, "customer"),
        ("first two columns are 'customer', 'day'", "'user_id', 'day'", "log.user and log.time"),
    ),
    "an action has another name": (
        lambda t: changed(t, "3", None, "coupon_3"),
        ("column 'coupon_3'", "not an action of this log (1, 2, 3)", "by its action"),
    ),
    "an action is unknown": (lambda t: t.append_column("4", t["3"]), ("column '4'", "not an action of this log")),
    "an action is absent": (lambda t: t.drop_columns(["2"]), ("has no column for 2", "with 0 where it is never given")),
    "probabilities are texts": (
        lambda t: changed(t, "2", [str(x) for x in t["2"].to_pylist()]),
        ("column '2'", "is of type string", "numbers from 0 to 1"),
    ),
    "a probability is missing": (
        lambda t: changed(t, "2", [None, *t["2"].to_pylist()[1:]]),
        ("column '2'", "is missing in row 1", "from 0 to 1 in every row"),
    ),
    "a probability is a percentage": (
        lambda t: changed(t, "2", 100 * t["2"].to_numpy()),
        ("column '2'", "in row 1", "from 0 to 1"),
    ),
    "times are dates": (
        lambda t: changed(t, "day", pa.array(t["day"].to_numpy().astype("datetime64[D]"))),
        ("column 'day'", "date32", "whole numbers"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_policy_is_refused_in_one_line_and_nothing_is_written(name: str, small: Path) -> None:
    change, words = WRONG[name]
    path = written(small, change(right()))
    before = contents(small)
    refused(outlay("evaluate", small / "data", "--policy", path), str(path), *words)
    assert contents(small) == before


def test_a_file_that_is_no_parquet_is_refused(small: Path) -> None:
    pacsv.write_csv(right(), small / "policy.csv")
    refused(outlay("evaluate", small / "data", "--policy", small / "policy.csv"), "policy.csv", "Parquet", "user, time")
    refused(outlay("evaluate", small / "data", "--policy", small / "none.parquet"), "none.parquet", "does not exist")
    refused(outlay("evaluate", small / "data", "--policy", small), "cannot be read as Parquet")
    whole = bytearray(written(small).read_bytes())
    for at in range(100, len(whole) // 2):
        whole[at] ^= 0xFF
    (small / "damaged.parquet").write_bytes(whole)
    refused(outlay("evaluate", small / "data", "--policy", small / "damaged.parquet"), "cannot be read as Parquet")
    assert not (small / "data" / "looks.json").exists()


def test_what_it_is_held_against_must_be_there_and_fit(small: Path, habit: Habit) -> None:
    path = written(small)
    refused(
        outlay("evaluate", small / "data", "--policy", path, "--against", small / "nothing"),
        "nothing, --against",
        "does not exist",
        "RUN folder",
    )
    refused(outlay("evaluate", small / "data", "--policy", path, "--against", small / "data"), "outlay-run")
    other = habit_policy(habit, small / "habit.parquet", generous)
    refused(outlay("evaluate", small / "data", "--policy", path, "--against", other), "habit.parquet", "column '1.5'")
    refused(outlay("evaluate", small / "data"), "holds no policy", "--policy")
    assert not (small / "data" / "looks.json").exists()


def test_a_run_with_another_schema_is_refused(small: Path, finished: Path) -> None:
    found = outlay("evaluate", small / "data", "--policy", written(small), "--against", finished)
    refused(found, "--against", "other features, values or actions", "outlay prepare once")
    assert not (small / "data" / "looks.json").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["p"].__setitem__(slice(3, 6), np.nan), ("log.propensity", "missing", "3 rows", "row 4")),
        (lambda c: c["fixed"].__setitem__(slice(None), True), ("log.forced", "every row is forced")),
        (lambda c: c["p"].__setitem__(slice(None), 0.9), ("log.propensity", "contradict", "standard errors")),
    ],
    ids=["missing", "forced", "contradicted"],
)
def test_a_log_that_no_policy_can_be_judged_on_is_not_prepared(
    change: Callable[[Columns], None], words: tuple[str, ...], tmp_path: Path
) -> None:
    log = columns()
    change(log)
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    (tmp_path / "campaign.toml").write_text(CAMPAIGN)
    found = outlay("prepare", tmp_path / "campaign.toml", "--out", tmp_path / "data")
    assert found.code == 2
    assert "Traceback" not in found.err
    for word in (*words, "log.parquet"):
        assert word in found.err
    assert not (tmp_path / "data").exists()


def test_a_pipeline_can_fail_on_what_it_names(judged: tuple[Path, Path, Path]) -> None:
    data, policy, _ = judged
    asked = ("evaluate", data, "--policy", policy, "--learned-here")
    certificate = json.loads(outlay(*asked, "--json").out)["certificate"]
    kept = certificate["certified"] or certificate["held"] is not None
    gained = certificate["gain_bound"] is not None and certificate["gain_bound"] > 0
    assert outlay(*asked, "-q", "--fail-on", "not-certified").code == (0 if kept else 3)
    found = outlay(*asked, "-q", "--fail-on", "no-gain, loss")
    assert found.code == (0 if gained else 3)
    assert ("no-gain" in found.err) == (not gained)
    wrong = outlay(*asked, "--fail-on", "lost")
    assert wrong.code == 2
    assert "Did you mean 'loss'?" in wrong.err
