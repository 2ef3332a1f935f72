"""Looks at the certify users: counted once per bundle or frontier wherever their rows lie, with α halved each time."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pytest

import outlay
from conftest import Habit
from outlay.choosing.looks import FILE, alpha_of, counted_in, look, looks, next_alpha, next_look
from outlay.core.errors import FolderError
from outlay.core.transitions import Transitions
from patience import PATIENCE

NAMES, MANY = "abc", 10
COUNT = """
import sys, time
from pathlib import Path
from outlay.core.transitions import Transitions
from outlay.choosing import looks
from outlay.choosing.looks import look
looks.PATIENCE = {patience}
data, start = Transitions.open(sys.argv[1]), Path(sys.argv[2])
{before}
print("ready", flush=True)
while not start.exists():
    time.sleep(0.001)
for number in range(int(sys.argv[4])):
    look(data, f"{{sys.argv[3]}}-{{number}}", 0.95)
"""
TWO_OFFERS = """
[campaign]
name = "two offers"

[log]
source = "log.parquet"
user = "person"
time = "day"
action = "offer"
reward = "bought"
randomised = true

[log.features]
numeric = ["day"]

[[budget]]
name = "cost"
cost = "cost"
at_most = 0.6
"""
STUCK = "looks.write_json = lambda *_: (print('within', flush=True), time.sleep(600))"


@pytest.fixture
def data(habit: Habit, tmp_path: Path) -> Transitions:
    return Transitions.open(shutil.copytree(habit.data, tmp_path / "data"))


def whats(data: Transitions) -> list[str]:
    return [name.partition("@")[0] for name in looks(data)]


def counting(
    stack: ExitStack, data: Transitions, folder: Path, name: str, times: int, before: str = ""
) -> subprocess.Popen[str]:
    """A process that looks so often once the file `start` is there."""
    script = COUNT.format(before=before, patience=PATIENCE)
    arguments = [str(data.folder), str(folder / "start"), name, str(times)]
    command = [sys.executable, "-c", script, *arguments]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_each_new_bundle_gets_its_share(data: Transitions) -> None:
    assert next_alpha(data, 0.95) == pytest.approx(0.025)
    for number, bundle in enumerate(("a", "b", "c"), start=1):
        assert next_look(data) == number
        assert next_alpha(data, 0.95) == alpha_of(number, 0.95) == pytest.approx(0.05 / (number * (number + 1)))
        found, alpha = look(data, bundle, 0.95)
        assert found == number
        assert alpha == pytest.approx(0.05 / (number * (number + 1)))
    assert whats(data) == ["a", "b", "c"]


def test_all_looks_together_keep_alpha(data: Transitions) -> None:
    assert sum(look(data, str(i), 0.9).alpha for i in range(40)) <= 0.1 + 1e-12


def test_the_tenth_look_is_not_starved() -> None:
    assert alpha_of(10, 0.95) > 0.05 / 120


def test_the_same_bundle_again_is_the_same_look(data: Transitions) -> None:
    for bundle in ("a", "b"):
        look(data, bundle, 0.95)
    for confidence, wanted in ((0.95, 0.025), (0.99, 0.005)):
        number, alpha = look(data, "a", confidence)
        assert number == 1
        assert alpha == pytest.approx(wanted)
    assert whats(data) == ["a", "b"]


def test_no_look_is_lost_where_processes_count_at_once(data: Transitions, tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = [counting(stack, data, tmp_path, name, MANY) for name in NAMES]
        (tmp_path / "start").touch()
        assert [process.wait(PATIENCE) for process in running] == [0, 0, 0]
    assert sorted(whats(data)) == sorted(f"{name}-{i}" for name in NAMES for i in range(MANY))
    assert json.loads((data.folder / FILE).read_text()) == looks(data)


def test_a_process_killed_while_it_counts_leaves_nothing_half_written(data: Transitions, tmp_path: Path) -> None:
    look(data, "before", 0.95)
    (tmp_path / "start").touch()
    with ExitStack() as stack:
        killed = counting(stack, data, tmp_path, "killed", 1, STUCK)
        assert killed.stdout is not None
        assert killed.stdout.readline() == "within\n"  # the transaction is open, and everybody else waits
        killed.kill()
    assert look(data, "after", 0.95).number == 2
    assert whats(data) == ["before", "after"]


@pytest.mark.parametrize(
    "change",
    [
        (),
        (("at_most = 2.2", "at_most = 1.9"),),
        (('categorical = ["yesterday", "level"]', 'categorical = ["level"]'),),
    ],
)
def test_another_data_folder_goes_on_with_the_count(
    habit: Habit, data: Transitions, tmp_path: Path, change: tuple[tuple[str, str], ...]
) -> None:
    look(data, "first", 0.95)
    again = outlay.prepare(habit.changed(tmp_path / "again", *change), tmp_path / "elsewhere")
    assert not (again.folder / FILE).exists()
    assert next_look(again) == 2
    assert look(again, "second", 0.95).number == 2
    assert next_look(data) == 3


def test_other_rewards_features_days_and_users_go_on_with_the_count(
    habit: Habit, data: Transitions, tmp_path: Path
) -> None:
    """The log as it was given, rescaled, with a feature more, half as long, and of half the users."""
    text, whole = habit.campaign.read_text(), habit.folder / "log.parquet"
    look(data, "first", 0.95)
    reward = data.campaign.log.reward
    half = f"SELECT * FROM '{whole}' WHERE"
    variants = {
        "rescaled": f"SELECT * REPLACE (7.5 * {reward} AS {reward}) FROM '{whole}'",
        "feature": f"SELECT *, day % 2 AS parity FROM '{whole}'",
        "days": f"{half} day < (SELECT max(day) FROM '{whole}')",
        "users": f"{half} hash(user_id) % 2 = 0",
    }
    numbers = []
    for name, query in variants.items():
        path = tmp_path / f"{name}.parquet"
        duckdb.sql(f"COPY ({query}) TO '{path}'")
        changed = text.replace('"log.parquet"', f'"{path}"')
        if name == "feature":
            changed = changed.replace("categorical = [", 'categorical = ["parity", ')
        assert changed.count(str(path)) == 1
        (tmp_path / f"{name}.toml").write_text(changed)
        other = outlay.prepare(tmp_path / f"{name}.toml", tmp_path / name)
        assert other.manifest.data_hash != data.manifest.data_hash
        numbers.append(look(other, "first", 0.95).number)
    assert numbers == [2, 3, 4, 5]
    assert next_look(data) == 6


def test_other_rows_of_users_called_the_same_begin_anew(habit: Habit, data: Transitions, tmp_path: Path) -> None:
    """Another campaign with users 1, 2, …; and other certify users of the same log."""
    look(data, "first", 0.95)
    path = outlay.simulate("habit", tmp_path / "other", users=2000, seed=2)
    assert next_look(outlay.prepare(path, tmp_path / "other-data")) == 1
    salted = habit.changed(tmp_path / "salted", ("[train]", "[train]\nsalt = 'another'"))
    assert next_look(outlay.prepare(salted, tmp_path / "salted-data")) == 1


def test_rows_that_are_alike_by_chance_are_not_the_same(tmp_path: Path) -> None:
    """Two logs of users 0, 1, … on days 0 to 6 in which most rows give nothing, and so two thirds of them agree."""
    data = []
    for seed in (0.1, 0.2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        duckdb.sql(
            f"""SELECT setseed({seed}); COPY (
                SELECT i // 7 AS person, i % 7 AS day, (random() < 0.2)::INT AS offer, random() AS bought, 0.5 AS cost
                FROM range(7000) rows(i)
            ) TO '{folder / "log.parquet"}'"""
        )
        (folder / "campaign.toml").write_text(TWO_OFFERS)
        data.append(outlay.prepare(folder / "campaign.toml", folder / "data"))
    look(data[0], "first", 0.95)
    assert next_look(data[0]) == 2
    assert next_look(data[1]) == 1


def test_looks_go_with_the_folder_to_another_machine(
    data: Transitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        look(data, name, 0.95)
    monkeypatch.setenv("OUTLAY_LOOKS", str(tmp_path / "machine" / "looks.sqlite"))
    assert next_look(data) == 3
    assert look(data, "b", 0.95).number == 2
    (data.folder / FILE).unlink()  # now the other machine knows as well
    assert next_look(data) == 3


def test_a_folder_that_cannot_be_written_is_counted_all_the_same(
    data: Transitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FolderError("cannot be written (Read-only file system).", file=data.folder / FILE)

    monkeypatch.setattr("outlay.choosing.looks.write_json", full)
    assert [look(data, name, 0.95).number for name in "ab"] == [1, 2]
    assert not (data.folder / FILE).exists()
    assert next_look(data) == 3


def test_looks_that_cannot_be_counted_are_refused(
    data: Transitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OUTLAY_LOOKS", str(tmp_path / "file" / "looks.sqlite"))
    with pytest.raises(FolderError, match=r"cannot be counted.*OUTLAY_LOOKS"):
        look(data, "a", 0.95)


def test_the_count_lies_in_the_state_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAY_LOOKS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert counted_in() == tmp_path / "state" / "outlay" / "looks.sqlite"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert counted_in() == tmp_path / "home" / ".local" / "state" / "outlay" / "looks.sqlite"


@pytest.mark.parametrize("content", ["[", '["a",', "\x00"])
def test_a_damaged_copy_is_not_taken_for_no_looks(data: Transitions, content: str) -> None:
    (data.folder / FILE).write_text(content)
    for function in (looks, lambda data: next_alpha(data, 0.95), lambda data: look(data, "a", 0.95)):
        with pytest.raises(FolderError, match=r"looks\.json: .*JSON.*train\.salt"):
            function(data)
    assert (data.folder / FILE).read_text() == content


def test_a_damaged_count_is_not_taken_for_no_looks(data: Transitions) -> None:
    look(data, "a", 0.95)
    counted_in().write_bytes(b"no database" * 100)
    for function in (looks, lambda data: look(data, "b", 0.95)):
        with pytest.raises(FolderError, match=r"damaged.*unknown how often.*train\.salt"):
            function(data)


def test_the_count_holds_no_names(data: Transitions) -> None:
    look(data, "a", 0.95)
    with sqlite3.connect(counted_in()) as store:
        ((hashes,),) = store.execute("SELECT hashes FROM rows")
    content = counted_in().read_bytes()
    assert len(hashes) == 8 * 4_096
    assert not any(name.encode() in content for name in data.user_ids().to_pylist()[:100])
