"""The command line: help with examples, one JSON document, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import outlay
from conftest import Habit
from outlay.bundles.decide import Bundle
from outlay.choosing.stored import StoredFrontier
from outlay.cli import interrupts
from outlay.cli.console import text, use_threads
from outlay.cli.main import app
from outlay.core.version import __version__
from outlay.jobs import doctor
from outlay.training import every_budget as train_frontier
from telling import missing

COMMANDS = (
    "init",
    "check",
    "plan-log",
    "prepare",
    "train",
    "evaluate",
    "frontier",
    "report",
    "index",
    "compare",
    "score",
    "allocate",
    "serve",
    "export-log",
    "simulate",
    "doctor",
    "mcp",
)


def test_these_are_the_commands() -> None:
    names = [command.callback.__name__ for command in app.registered_commands if command.callback]
    assert [name.replace("_", "-") for name in names] == list(COMMANDS)
    found = outlay("--help")
    assert found.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in found.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example_and_says_what_options_mean(command: str) -> None:
    found = outlay(command, "--help")
    assert found.code == 0
    assert f"Example: outlay {command}" in found.out
    assert found.err == ""
    options = found.out.split("Options:\n")[1]
    for option in re.split(r"\n(?=  -)", options):
        name, _, words = option.strip().partition("  ")
        assert name.startswith("-")
        assert len(words.split()) > 1, f"{name} is not explained"


def test_version() -> None:
    assert outlay("--version") == (0, f"outlay {__version__}\n", "")


def test_the_console_script_is_this_entry_point() -> None:
    (script,) = [e for e in entry_points(group="console_scripts") if e.name == "outlay"]
    assert script.value == "outlay.cli.main:run"
    program = Path(sys.executable).with_name("outlay")
    found = subprocess.run([program, "prepare", "none.toml", "--out", "none"], capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("error: none.toml: does not exist")
    assert found.stderr.count("\n") == 1
    assert not missing(found.stderr, "outlay init LOG", "--out campaign.toml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Start with: outlay init LOG"),
        (("trane",), "No such command 'trane'"),
        (("train",), "Missing argument 'CAMPAIGN_OR_DATA'"),
        (("train", "c.toml"), "Missing option '--out'"),
        (("train", "c.toml", "--out", "r", "--metod", "lp"), "No such option: --metod"),
        (("train", "c.toml", "--out", "r", "--seed", "-1"), "--seed"),
        (("simulate", "habit", "--out", "r", "--users", "many"), "--users"),
        (("simulate", "wide-open", "--out", "r"), "'wide-open'"),
    ],
)
def test_wrong_options_are_told_in_a_line_and_exit_with_2(arguments: tuple[str, ...], message: str) -> None:
    found = outlay(*arguments)
    assert found.code == 2
    assert message in found.err
    assert "Traceback" not in found.err
    assert found.out == ""


def document(*arguments: object) -> Any:
    """The one JSON document on stdout."""
    found = outlay(*arguments, "--json")
    assert found.code == 0, found.err
    assert "NaN" not in found.out
    return json.loads(found.out)


def test_check_json_has_the_effect_table(habit: Habit) -> None:
    found = document("check", habit.campaign)
    wanted = {(segment, days) for segment in ("inactive", "active") for days in (1, 3, 7)}
    assert wanted <= {(e["segment"], e["days"]) for e in found["effects"]}
    for effect in found["effects"]:
        assert effect["low"] < effect["effect"] < effect["high"]
    assert (found["rows"], found["users"], found["days"], found["duplicates"]) == (42_000, 6000, 7, 0)
    assert found["blocks"] is False


def test_train_json_is_the_manifest(habit: Habit, tmp_path: Path) -> None:
    found = document("train", habit.data, "--out", tmp_path / "run", "--seed", 3, "--method", "aim-greedy")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert found == {"run": str(tmp_path / "run"), **manifest}
    assert (found["seed"], found["method"]) == (3, "aim-greedy")


def test_evaluate_json_is_estimates_json(run: Path) -> None:
    found = document("evaluate", run)
    assert found == json.loads((run / "estimates.json").read_text())
    assert {"estimates", "certificate"} <= set(found)


def test_score_json_says_what_was_given(finished: Path, habit: Habit, tmp_path: Path) -> None:
    out = tmp_path / "decisions.parquet"
    found = document("score", finished / "bundle", habit.folder / "states.parquet", "--out", out)
    table = pq.read_table(out)
    assert (found["path"], found["rows"], found["unknown"]) == (str(out), 10, 0)
    counts = np.bincount(table["action_index"].to_numpy(), minlength=11) / 10
    assert [s["share"] for s in found["shares"]] == counts.tolist()
    assert [s["action"] for s in found["shares"]][:2] == [1, 1.5]


def test_doctor_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = document("doctor")
    assert found["outlay"] == __version__
    assert set(doctor.PACKAGES) <= set(found)


def test_a_blocked_check_exits_with_2_and_still_lists_all_it_found(habit: Habit, tmp_path: Path) -> None:
    path = habit.changed(tmp_path, ('reward = "active"', 'reward = "if(day = 3, null, active)"'))
    found = outlay("check", path, "--json")
    assert found.code == 2
    assert json.loads(found.out)["blocks"] is True
    found = outlay("check", path)
    assert found.code == 2
    assert not missing(found.out, "Fix", "before", "outlay prepare")


def test_quiet_says_nothing_when_all_is_well(habit: Habit, tmp_path: Path, run: Path) -> None:
    for command in (
        ("simulate", "habit", "--out", tmp_path / "c", "--users", 50),
        ("init", habit.folder / "log.parquet", "--out", tmp_path / "guess.toml"),
        ("check", habit.campaign),
        ("prepare", habit.campaign, "--out", tmp_path / "data"),
        ("evaluate", run),
        ("report", run),
        ("score", run / "bundle", habit.folder / "states.parquet", "--out", tmp_path / "d.csv"),
    ):
        assert outlay(*command, "--quiet") == (0, "", "")


def test_a_bug_of_ours_exits_with_1_and_asks_for_a_report(
    habit: Habit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(train_frontier, "learn", broken)
    found = outlay("train", habit.data, "--out", tmp_path / "run")
    assert found.code == 1
    assert "ZeroDivisionError: ours" in found.err
    assert not missing(found.err, "a bug in outlay")
    assert not (tmp_path / "run").exists()


def test_ctrl_c_is_told_without_a_traceback(habit: Habit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train_frontier, "learn", interrupted)
    found = outlay("train", habit.data, "--out", tmp_path / "run")
    assert found.code == 130
    assert "interrupted" in found.err
    assert "Traceback" not in found.err
    assert not missing(found.err, ".run.partial", "--resume")
    assert not (tmp_path / "run").exists()
    assert not missing(outlay("evaluate", tmp_path / "run").err, "is not finished", "again, with --resume")


def pressed() -> None:
    """Ctrl-C, of which Python says KeyboardInterrupt at once."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)


@pytest.fixture
def listening() -> Iterator[None]:
    """As in a terminal: where tests run in several processes, these ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.listen()
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("listening")
def test_ctrl_c_that_a_library_swallows_stops_the_work_where_it_reports_next(
    counted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As extension modules do while they are loaded."""
    first = StoredFrontier.read

    def swallowing(folder: Path) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            pressed()
        return first(folder)

    frontier = tmp_path / "run"
    shutil.copytree(counted, frontier)
    (frontier / "frontier.html").unlink(missing_ok=True)  # another test may have written it
    monkeypatch.setattr(StoredFrontier, "read", swallowing)
    found = outlay("frontier", frontier, "--quiet")
    assert (found.code, found.out) == (130, "")
    assert "interrupted" in found.err
    assert not (frontier / "frontier.html").exists()


def test_ctrl_c_stays_ignored_where_it_was() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.listen()
    assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN


@pytest.mark.usefixtures("listening")
def test_ctrl_c_that_a_library_makes_an_error_of_is_no_bug_of_ours(
    habit: Habit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        try:
            pressed()
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(train_frontier, "learn", failing)
    found = outlay("train", habit.data, "--out", tmp_path / "run")
    assert found.code == 130
    assert "bug in outlay" not in found.err
    assert "interrupted" in found.err


@pytest.mark.slow
def test_a_run_that_was_evaluated_is_not_replaced_unasked(habit: Habit, evaluated: Path, tmp_path: Path) -> None:
    """Its estimates would be gone; one that was not evaluated is replaced as ever."""
    shutil.copytree(evaluated, tmp_path / "run")
    before = (tmp_path / "run" / "estimates.json").read_bytes()
    command = ("train", habit.data, "--out", tmp_path / "run", "--folds", 1)
    found = outlay(*command)
    assert found.code == 2
    assert not missing(found.err, "evaluated run", "estimates.json", "another --out", "--overwrite")
    assert (tmp_path / "run" / "estimates.json").read_bytes() == before
    assert outlay(*command, "--overwrite", "--quiet").code == 0
    assert not (tmp_path / "run" / "estimates.json").exists()
    assert outlay(*command, "--quiet").code == 0


def test_a_quiet_check_still_says_what_blocks(habit: Habit, tmp_path: Path) -> None:
    log = pq.read_table(habit.folder / "log.parquet")
    pq.write_table(pa.concat_tables([log, log.slice(0, 1)]), tmp_path / "log.parquet")
    (tmp_path / "campaign.toml").write_text(habit.campaign.read_text())
    found = outlay("check", tmp_path / "campaign.toml", "--quiet")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: log.")
    assert found.err in outlay("check", tmp_path / "campaign.toml").out


def test_threads_keep_the_process_on_that_many_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, list[int]]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 1, 2}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: seen.append((pid, cores)), raising=False)
    use_threads(None)
    assert seen == []
    use_threads(2)
    assert seen == [(0, [1, 2])]
    assert outlay("check", "c.toml", "--threads", 0).code == 2


def test_numbers_in_tables() -> None:
    values = [None, True, 1234567, 0.123456, 1e-9, "x"]
    assert [text(v) for v in values] == ["–", "yes", "1,234,567", "0.123", "1e−09", "x"]


def test_unknown_values_are_counted_on_stderr(finished: Path, tmp_path: Path) -> None:
    """And the rows are decided all the same."""
    (tmp_path / "rows.csv").write_text("user_id,yesterday,level\na,0,9\nb,1,2\n")
    found = outlay("score", finished / "bundle", tmp_path / "rows.csv", "--out", tmp_path / "d.csv")
    assert found.code == 0
    assert not missing(found.err, "1 values", "vocabulary")
    assert "2 rows" in found.out


def test_rows_in_unseen_states_are_counted_on_stderr(table_bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user_id,level,city,spend\na,1,Ulm,10\nb,3,Ulm,10\n")
    found = outlay("score", table_bundle.folder, tmp_path / "rows.csv", "--out", tmp_path / "d.csv")
    assert found.code == 0
    assert not missing(found.err, "states", "never showed: 1")


def test_the_package_lists_what_it_offers() -> None:
    """In a fresh process: what is loaded already is listed anyway."""
    code = "import outlay; print(sorted(set(outlay.__all__) - set(dir(outlay))))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_ctrl_c_while_the_command_line_is_loaded_is_one_line() -> None:
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from outlay.cli import interrupts; listen = interrupts.listen\n"
        "def early(**how):\n    listen(**how)\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "interrupts.listen = early; sys.argv = ['outlay', 'doctor']\n"
        "from outlay.cli.main import run; run()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 130
    assert found.stderr.startswith("interrupted; nothing half-written")
    assert found.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break otherwise there")
@pytest.mark.parametrize("command", [("--help",), ("doctor",), ("evaluate", "none")])
def test_a_pipe_whose_reader_has_gone_is_no_bug(command: tuple[str, ...]) -> None:
    """`outlay … | head`"""
    reader, writer = os.pipe()
    os.close(reader)
    code = f"import sys; sys.argv = ['outlay', *{command!r}]; from outlay.cli.main import run; run()"
    found = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=writer, check=False)
    os.close(writer)
    assert found.returncode == 141
