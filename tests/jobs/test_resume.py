"""A killed training: nothing of it reads as finished, and `--resume` ends where it would have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import outlay
from conftest import Habit
from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST
from outlay.jobs.run import Run

# The real command, which waits to be killed once it has written its seventh checkpoint.
SLOW = """
import time
from outlay.jobs import play
from outlay.learning import checkpoint

play.CHECKPOINT_SECONDS = 0.0
save, saved = checkpoint.save, []

def slow_save(*arguments):
    save(*arguments)
    saved.append(1)
    if len(saved) == 7:
        time.sleep(600)

checkpoint.save = slow_save
from outlay.cli.main import run
run()
"""


def wait_for(path: Path, process: subprocess.Popen[bytes], candidates: int) -> None:
    """Until the checkpoint with that many candidates is there."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert process.poll() is None, "the training ended before it could be killed"
        try:
            if path.read_text().count('"number"') == candidates:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("no checkpoint came")


@pytest.fixture(scope="module")
def killed(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the RUN folder of a training that was killed (kill -9) after 7 of 20 candidates."""
    out = tmp_path_factory.mktemp("killed") / "run"
    command = [sys.executable, "-c", SLOW, "train", str(habit.data), "--out", str(out), "--seed", "2", "--method",
               "aim-greedy", "--quiet"]  # fmt: skip
    process = subprocess.Popen(command)
    try:
        wait_for(out.with_name(".run.partial") / "checkpoints" / "candidates.json", process, 7)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    return out


def test_a_killed_training_leaves_nothing_that_reads_as_finished(killed: Path) -> None:
    partial = killed.with_name(".run.partial")
    assert [path.name for path in killed.parent.iterdir()] == [partial.name]
    assert not (partial / MANIFEST).exists()
    with pytest.raises(FolderError, match="does not exist"):
        Run.open(killed)
    with pytest.raises(FolderError, match=r"not a finished RUN folder.*--resume"):
        Run.open(partial)


def test_a_wrong_option_does_not_cost_the_checkpoint(killed: Path, habit: Habit) -> None:
    """Another seed, method or campaign is refused, and the run can still be resumed."""
    before = sorted(killed.parent.rglob("*"))
    with pytest.raises(FolderError, match="made with another seed"):
        outlay.train(habit.data, killed, seed=3, resume=True, method="aim-greedy")
    with pytest.raises(FolderError, match="made with another method, oracle"):
        outlay.train(habit.data, killed, seed=2, method="lp", oracle="ddqn", resume=True)
    assert sorted(killed.parent.rglob("*")) == before


def test_other_limits_on_the_same_log_are_another_training(killed: Path, habit: Habit, tmp_path: Path) -> None:
    """The columns are the same, and so is their hash; the limit is not."""
    outlay.prepare(habit.changed(tmp_path, ("at_most = 2.2", "at_most = 3.0")), tmp_path / "data")
    with pytest.raises(FolderError, match="made with another campaign"):
        outlay.train(tmp_path / "data", killed, seed=2, resume=True, method="aim-greedy")


def test_resume_ends_where_an_uninterrupted_training_ends(killed: Path, habit: Habit, tmp_path: Path) -> None:
    """Bitwise: candidates, weights, networks and with them the bundle's id."""
    left_over = killed.with_name(".run.partial") / ".checkpoints.1.tmp"
    left_over.mkdir()
    calls: list[str] = []
    resumed = outlay.train(
        habit.data, killed, seed=2, resume=True, progress=lambda _, text: calls.append(text), method="aim-greedy"
    )
    whole = outlay.train(habit.data, tmp_path / "run", seed=2, method="aim-greedy")
    assert calls[0] == "800 of 2000 steps"  # it did go on, and did not start anew
    assert [path.name for path in killed.parent.iterdir()] == ["run"]
    assert not (killed / left_over.name).exists()
    names = ["candidates.parquet", "metrics.jsonl"]
    assert pq.read_table(killed / names[0]).equals(pq.read_table(tmp_path / "run" / names[0]))
    assert (killed / names[1]).read_text() == (tmp_path / "run" / names[1]).read_text()
    assert resumed.manifest["members"] == whole.manifest["members"]
    one, other = outlay.load_bundle(resumed.bundle), outlay.load_bundle(whole.bundle)
    assert one.id == other.id
    for name in one.manifest["files"]:
        if name.endswith(".onnx"):
            assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()


def test_there_must_be_something_to_resume(habit: Habit, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"no unfinished run to resume\. Train without --resume"):
        outlay.train(habit.data, tmp_path / "run", resume=True, method="aim-greedy")
    assert list(tmp_path.iterdir()) == []


def test_training_without_resume_starts_anew(habit: Habit, tmp_path: Path) -> None:
    partial = tmp_path / ".run.partial"
    partial.mkdir()
    (partial / "bundle").write_text("of a killed run")
    outlay.train(habit.data, tmp_path / "run", method="aim-greedy")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_checkpoint_of_the_last_step_is_finished_without_a_step(habit: Habit, tmp_path: Path) -> None:
    """Killed while the kept members were measured: the rule's mixture is replayed."""
    whole = outlay.train(habit.data, tmp_path / "run", method="aim-greedy")
    (tmp_path / ".run.partial").mkdir()
    (tmp_path / "run" / "checkpoints").rename(tmp_path / ".run.partial" / "checkpoints")
    again = outlay.train(habit.data, tmp_path / "run", resume=True, method="aim-greedy")
    assert again.manifest["members"] == whole.manifest["members"]


def test_a_changed_campaign_file_is_not_resumed(habit: Habit, tmp_path: Path) -> None:
    """Data were prepared, then the limit was changed: going on would certify the old limit."""
    text = (habit.folder / "campaign.toml").read_text().replace('"log.parquet"', f'"{habit.folder}/log.parquet"')
    path = tmp_path / "campaign.toml"
    path.write_text(text)
    outlay.prepare(path, tmp_path / ".run.partial" / "data")
    path.write_text(text.replace("at_most = 2.2", "at_most = 1.9"))
    with pytest.raises(FolderError, match="another campaign file"):
        outlay.train(path, tmp_path / "run", resume=True, method="aim-greedy")
    assert (tmp_path / ".run.partial" / "data").exists()
