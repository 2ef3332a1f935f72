"""Wrong input, through the real entry point: one clear error, exit code 2, no traceback, nothing half-written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import Result, outlay
from conftest import Habit

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

[log.features]
categorical = ["level"]

[[budget]]
name = "coupon_cost"
cost = "coupon * active"
at_most = 1.0

[train]
folds = 1
layers = [8]
min_steps = 200
epochs = 1.0
"""

Columns = dict[str, Any]


def columns() -> Columns:
    rng = np.random.default_rng(0)
    rows = USERS * DAYS
    coupon = rng.integers(1, 4, rows).astype(float)
    return {
        "user_id": [f"u{i // DAYS}" for i in range(rows)],
        "day": [i % DAYS for i in range(rows)],
        "level": rng.integers(0, 3, rows),
        "coupon": coupon,
        "active": (rng.random(rows) < 0.2 + 0.1 * coupon).astype(float),
        "p": np.full(rows, 1 / 3),
    }


def write(folder: Path, text: str = CAMPAIGN, log: Columns | None = None) -> Path:
    pq.write_table(pa.table(columns() if log is None else log), folder / "log.parquet")
    (folder / "campaign.toml").write_text(text)
    return folder / "campaign.toml"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_refused(found: Result, words: tuple[str, ...]) -> None:
    assert found.code == 2, found
    assert "Traceback" not in found.err + found.out
    assert found.err.startswith("error: ")
    first, *others = found.err.splitlines()
    assert all(line.startswith("  also ") for line in others), "one message"
    for word in words:
        assert word in first, found.err


def refused(folder: Path, *words: str, command: tuple[object, ...]) -> None:
    """Exit 2 with one message that holds these words, and the folder is what it was."""
    before = contents(folder)
    names = sorted(path.name for path in folder.iterdir())
    check_refused(outlay(*command), words)
    assert contents(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == names


def test_the_campaign_that_the_others_break_is_fine(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert outlay("check", path).code == 0
    found = outlay("train", path, "--out", tmp_path / "run", "--quiet")
    assert found == Result(0, "", "")


# What is wrong with the log or the campaign file: how to break it, and what the message must say.
# (file, column or key, value, way out)


def without(name: str) -> Columns:
    return {key: value for key, value in columns().items() if key != name}


def changed(name: str, change: Callable[[Any], None]) -> Columns:
    log = columns()
    log[name] = np.array(log[name])
    change(log[name])
    return log


def at(row: int, value: float) -> Callable[[Any], None]:
    def put(column: Any) -> None:
        column[row] = value

    return put


def everywhere(value: float) -> Callable[[Any], None]:
    def put(column: Any) -> None:
        column[:] = value

    return put


BROKEN: dict[str, tuple[str, Columns, tuple[str, ...]]] = {
    "an empty log": (
        CAMPAIGN,
        {name: value[:0] for name, value in columns().items()},
        ("log.parquet", "no rows"),
    ),
    "an unknown column": (
        CAMPAIGN.replace('reward = "active"', 'reward = "actve"'),
        columns(),
        ("log.reward", "actve", "active"),
    ),
    "an unknown feature": (
        CAMPAIGN.replace('["level"]', '["levle"]'),
        columns(),
        ("log.features", "levle", "level"),
    ),
    "one action only": (
        CAMPAIGN,
        changed("coupon", everywhere(2.0)),
        ("log.action", "2", "action"),
    ),
    "one action listed": (
        CAMPAIGN.replace('action = "coupon"', 'action = "coupon"\nactions = [2.0]'),
        columns(),
        ("campaign.toml, log", "actions has 1 distinct value", "at least two"),
    ),
    "an action that is not listed": (
        CAMPAIGN.replace('action = "coupon"', 'action = "coupon"\nactions = [1.0, 2.0]'),
        columns(),
        ("log.action", "3"),
    ),
    "NaN rewards": (
        CAMPAIGN,
        changed("active", at(17, np.nan)),
        ("log.reward", "NaN", "row 18"),
    ),
    "an infinite cost": (
        CAMPAIGN.replace('"coupon * active"', "\"if(day = 2, 'inf'::double, coupon)\""),
        columns(),
        ("budget", "coupon_cost"),
    ),
    "costs of 1e300": (
        CAMPAIGN.replace('"coupon * active"', '"coupon * 1e300"'),
        columns(),
        ("budget coupon_cost.cost: ", "beyond 1e+30", "larger unit"),
    ),
    "a negative propensity": (
        CAMPAIGN,
        changed("p", at(17, -0.25)),
        ("log.propensity", "-0.25"),
    ),
    "a propensity above one": (
        CAMPAIGN,
        changed("p", at(17, 1.5)),
        ("log.propensity", "1.5"),
    ),
    "a duplicate user and day": (
        CAMPAIGN,
        changed("day", at(1, 0)),
        ("log.user, log.time", "user u0, time 0", "Keep one row"),
    ),
    "a misspelt key": (
        CAMPAIGN.replace("at_most", "at_mots"),
        columns(),
        ("campaign.toml, budget 'coupon_cost'.at_mots", "unknown key", "Did you mean 'at_most'?"),
    ),
    "a misspelt section": (
        CAMPAIGN.replace("[train]", "[trian]"),
        columns(),
        ("campaign.toml, trian", "unknown key", "Did you mean 'train'?"),
    ),
    "a number in quotes": (
        CAMPAIGN.replace("at_most = 1.0", 'at_most = "1.0"'),
        columns(),
        ("campaign.toml, budget 'coupon_cost'.at_most", "is '1.0'", "a number, as 0.5"),
    ),
    "a truth value for a number": (
        CAMPAIGN.replace("at_most = 1.0", "at_most = true"),
        columns(),
        ("campaign.toml, budget 'coupon_cost'.at_most", "is True", "a number, as 0.5"),
    ),
    "an impossible setting": (
        CAMPAIGN + "learning_rate = -1.0\n",
        columns(),
        ("campaign.toml, train.learning_rate", "is -1.0", "above 0"),
    ),
    "a file that is no TOML": (
        CAMPAIGN.replace("[log]", "[log"),
        columns(),
        ("campaign.toml", "is not valid TOML", "line"),
    ),
    "a limit with a decimal comma": (
        CAMPAIGN.replace("at_most = 1.0", "at_most = 1,25"),
        columns(),
        ("campaign.toml", "is not valid TOML", "with a decimal point: at_most = 1.25."),
    ),
    "a limit below the smallest reachable cost": (
        CAMPAIGN.replace("at_most = 1.0", "at_most = 0.01"),
        columns(),
        ("campaign.toml", "coupon_cost (at most 0.01", "the least ", " is 0.", "Raise"),
    ),
    "an expression that is no SQL": (
        CAMPAIGN.replace('"coupon * active"', '"coupon * * active"'),
        columns(),
        ("budget", "coupon_cost"),
    ),
    "a reward that is text": (
        CAMPAIGN,
        {**columns(), "active": ["yes"] * (USERS * DAYS)},
        ("log.reward",),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_log_or_campaign_file_stops_training_with_one_message(name: str, tmp_path: Path) -> None:
    text, log, words = BROKEN[name]
    path = write(tmp_path, text, log)
    refused(tmp_path, *words, command=("train", path, "--out", tmp_path / "run"))


@pytest.mark.parametrize("name", [name for name in BROKEN if "limit" not in name])
def test_a_broken_log_or_campaign_file_is_not_prepared(name: str, tmp_path: Path) -> None:
    """Nor passed by `check`, which lists its findings on stdout where there are rows to look at."""
    text, log, words = BROKEN[name]
    path = write(tmp_path, text, log)
    refused(tmp_path, *words, command=("prepare", path, "--out", tmp_path / "data"))
    checked = outlay("check", path)
    assert checked.code == 2
    assert "Traceback" not in checked.err + checked.out
    for word in words:
        assert word in checked.err + checked.out or word == "log.parquet"


def test_a_missing_campaign_file_or_log_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    for command in (("train", missing, "--out", tmp_path / "run"), ("check", missing)):
        refused(tmp_path, "none.toml: does not exist", "outlay init LOG", command=command)
    path = write(tmp_path)
    (tmp_path / "log.parquet").unlink()
    for command in (("train", path, "--out", tmp_path / "run"), ("check", path)):
        refused(tmp_path, "log.parquet", "does not exist", command=command)
    refused(tmp_path, "none.csv", "does not exist", command=("init", tmp_path / "none.csv"))


@pytest.mark.parametrize("command", ["train", "prepare", "check", "compare"])
def test_a_log_or_a_folder_is_no_campaign_file(command: str, tmp_path: Path) -> None:
    (tmp_path / "campaign").mkdir()
    path = write(tmp_path / "campaign")
    out = () if command == "check" else ("--out", tmp_path / "out")
    log, folder = path.with_name("log.parquet"), path.parent
    refused(
        tmp_path,
        "log.parquet: is not a text file",
        "campaign.toml",
        "outlay init LOG",
        command=(command, log, *out),
    )
    found, way_out = "is a folder; ", "Give the file itself."
    if command == "train":  # which takes some folders
        found, way_out = "is the folder of a campaign", f"Give {path}."
    refused(tmp_path, f"{folder}: {found}", way_out, command=(command, folder, *out))
    (tmp_path / "log.csv").write_text("user_id,day\n1,2\n")
    table = tmp_path / "log.csv"
    refused(tmp_path, "log.csv: is not valid TOML", "Give a campaign.toml.", command=(command, table, *out))


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "log.parquet").write_text("user_id,day\n1,2\n")
    refused(tmp_path, "log.parquet", command=("train", path, "--out", tmp_path / "run"))


def test_a_half_written_data_folder_is_not_taken_for_whole(habit: Habit, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(habit.data, data)
    command = ("train", data, "--out", tmp_path / "run")
    manifest = (data / "manifest.json").read_text()
    (data / "manifest.json").unlink()
    refused(tmp_path, str(data), "not a finished DATA folder", "outlay prepare", command=command)
    (data / "manifest.json").write_text(manifest[: len(manifest) // 2])
    refused(tmp_path, "manifest.json", "not valid JSON", "outlay prepare", command=command)
    (data / "manifest.json").write_text(manifest.replace('"version": 1', '"version": 7'))
    refused(tmp_path, "format version is 7", command=command)
    (data / "manifest.json").write_text(manifest)
    column = data / "columns" / "action.npy"
    content = column.read_bytes()
    column.write_bytes(content[: len(content) // 2])
    refused(tmp_path, "action.npy", "outlay prepare", command=command)
    column.unlink()
    refused(tmp_path, "action.npy", "outlay prepare", command=command)
    column.write_bytes(content)
    for name in ("users.npy", "vocabulary.parquet"):
        kept = (data / name).read_bytes()
        (data / name).unlink()
        refused(tmp_path, "damaged", "outlay prepare", command=command)
        (data / name).write_bytes(kept[: len(kept) // 2])
        refused(tmp_path, "damaged", "outlay prepare", command=command)
        (data / name).write_bytes(kept)


def test_a_data_folder_without_its_table_of_states_is_damaged(habit: Habit, tmp_path: Path) -> None:
    shutil.copytree(habit.data, tmp_path / "data")
    (tmp_path / "data" / "state_codes.npy").unlink()
    refused(tmp_path, "damaged", "outlay prepare", command=("train", tmp_path / "data", "--out", tmp_path / "run"))


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_a_half_written_run_folder_is_not_taken_for_whole(command: str, run: Path, tmp_path: Path) -> None:
    manifest = (run / "manifest.json").read_text()
    (run / "manifest.json").unlink()
    refused(tmp_path, str(run), "not a finished RUN folder", "outlay train", command=(command, run))
    (run / "manifest.json").write_text(manifest[:100])
    refused(tmp_path, "manifest.json", "not valid JSON", command=(command, run))
    (run / "manifest.json").write_text(manifest.replace("outlay-run", "outlay-data"))
    other = "is damaged" if command == "evaluate" else "format is 'outlay-data'; expected 'outlay-run'"
    refused(tmp_path, other, command=(command, run))
    refused(tmp_path, "does not exist", command=(command, tmp_path / "none"))


def test_a_data_folder_is_no_run_and_a_run_no_data(habit: Habit, run: Path, tmp_path: Path) -> None:
    refused(tmp_path, "expected 'outlay-run'", "Give a RUN folder", command=("report", habit.data))
    refused(tmp_path, "holds no policy", "--policy", command=("evaluate", habit.data))
    refused(tmp_path, "expected 'outlay-data'", "Give a DATA folder", command=("train", run, "--out", tmp_path / "new"))


@pytest.mark.parametrize("name", ["policy-0.onnx", "vocabulary.parquet", "golden.npz", "manifest.json"])
def test_a_bundle_with_a_changed_byte_decides_nothing(name: str, run: Path, tmp_path: Path, habit: Habit) -> None:
    path = run / "bundle" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    score = ("score", run / "bundle", habit.folder / "states.parquet", "--out", tmp_path / "d.parquet")
    refused(tmp_path, name, "Export the bundle again", command=score)
    refused(tmp_path, name, "Export the bundle again", command=("evaluate", run))


def test_rows_without_a_feature_column_are_not_decided(finished: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("user_id,yesterday\na,1\n")
    command = ("score", finished / "bundle", rows, "--out", tmp_path / "d.parquet")
    refused(tmp_path, "rows.csv", "'level'", command=command)
    rows.write_text("user_id,yesterday,level\n")
    refused(tmp_path, "rows.csv", "has no rows", command=command)
    rows.write_text("user_id,yesterday,level\na,1,2\n")
    command = ("score", finished / "bundle", rows, "--out", tmp_path / "d.xlsx")
    refused(tmp_path, "d.xlsx", "Change its ending", command=command)


@pytest.mark.parametrize("confidence", ["2", "0.5", "1", "-0.95", "nan"])
def test_an_impossible_confidence_is_refused(confidence: str, run: Path, tmp_path: Path) -> None:
    way_out = "finite number" if confidence == "nan" else "0.95"
    refused(tmp_path, "--confidence: is", confidence, way_out, command=("evaluate", run, "--confidence", confidence))


def test_an_unknown_method_is_refused_with_the_known_ones(habit: Habit, tmp_path: Path) -> None:
    for given, told in (("aim", "Did you mean 'aim-mean'?"), ("xyz", "aim-greedy")):
        found = outlay("train", habit.data, "--out", tmp_path / "run", "--method", given)
        assert found.code == 2
        assert f"--method: is '{given}'" in found.err
        assert told in found.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_is_not_replaced(habit: Habit, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "manifest.json").write_text('{"format": "thesis"}')
    for command in (
        ("train", habit.data, "--out", mine),
        ("prepare", habit.campaign, "--out", mine),
        ("simulate", "habit", "--out", mine, "--users", 10),
    ):
        refused(tmp_path, str(mine), "outlay did not write it", "--out", command=command)
        refused(
            tmp_path,
            "manifest.json",
            "a file stands",
            "--out",
            command=tuple(mine / "manifest.json" if part == mine else part for part in command),
        )


def test_a_path_through_a_file_is_told(habit: Habit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    below = tmp_path / "file" / "run"
    for command in (("prepare", habit.campaign, "--out", below), ("train", habit.data, "--out", below)):
        refused(tmp_path, "file", "Not a directory", "another path", command=command)


def test_init_does_not_write_over_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_text("no parquet")
    refused(tmp_path, "log.parquet", command=("init", tmp_path / "log.parquet", "--out", tmp_path / "c.toml"))


def test_held_actions_must_be_two_of_the_campaigns(tmp_path: Path) -> None:
    for held, words in (("1", "Give two actions"), ("1,7", "7 is not an action"), ("1,1", "two different")):
        command = ("simulate", "habit", "--out", tmp_path / "c", "--users", 10, "--held", held)
        refused(tmp_path, "held", words, command=command)
