"""A killed training: nothing of it reads as finished, and `--resume` ends where it would have ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import outlay
from command_line import outlay as command
from conftest import Habit
from outlay.choosing.run import Run
from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST, partial_of
from outlay.learning import checkpoint
from patience import PATIENCE
from telling import missing

# The real command, which waits to be killed once it has written its seventh checkpoint.
SLOW = """
import time
from outlay.learning import checkpoint
from outlay.learning.critic_grid import FrontierTraining

checkpoint.EVERY_SECONDS = 0.0
saved = []

def slow(save):
    def then_wait(*arguments):
        save(*arguments)
        saved.append(1)
        if len(saved) == 7:
            time.sleep(600)
    return then_wait

checkpoint.save_game = slow(checkpoint.save_game)
FrontierTraining.save = slow(FrontierTraining.save)
from outlay.cli.main import run
run()
"""


# Of a method that mixes candidates, and of one network for every λ, in one fold: options, and what the checkpoint says
# after the seventh block.
Way = tuple[dict[str, Any], str]
WAYS: dict[str, Way] = {
    "a game": ({"method": "aim-greedy", "oracle": "bcq"}, '"number": 6'),
    "a frontier": ({"method": "frontier", "oracle": "bcq", "folds": 1, "seed": 2}, '"step": 700'),
}


def wait_for(path: Path, process: subprocess.Popen[Any], text: str) -> None:
    """Until the checkpoint says it."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert process.poll() is None, "the training ended before it could be killed"
        try:
            if text in path.read_text():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("no checkpoint came")


class Killed(NamedTuple):
    """A training that was killed.

    Attributes:
        folder: of the RUN that it would have written.
        options: what it trained with.
    """

    folder: Path
    options: dict[str, Any]


@pytest.fixture(scope="module", params=["a game", pytest.param("a frontier", marks=pytest.mark.slow)])
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture(scope="module")
def whole(way: Way, habit: Habit, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The training that is killed, uninterrupted; shared, so only read it."""
    options, _ = way
    if options["method"] == "aim-greedy":
        return Run.open(finished)
    return outlay.train(habit.data, tmp_path_factory.mktemp("whole") / "run", **options)


@pytest.fixture(scope="module")
def killed(way: Way, habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Killed (kill -9) after 7 of 20 blocks."""
    options, text = way
    out = tmp_path_factory.mktemp("killed") / "run"
    given = [f"--{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "train", str(habit.data), "--out", str(out), "--quiet", *given]
    )
    try:
        wait_for(out.with_name(".run.partial") / "checkpoints" / "progress.json", process, text)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    return Killed(out, options)


def test_a_killed_training_leaves_nothing_that_reads_as_finished(killed: Killed) -> None:
    partial = killed.folder.with_name(".run.partial")
    assert sorted(path.name for path in killed.folder.parent.iterdir()) == [".run.lock", partial.name]
    assert not (partial / MANIFEST).exists()
    with pytest.raises(FolderError, match=r"is not finished.*with --resume"):
        Run.open(killed.folder)
    with pytest.raises(FolderError, match=r"not a finished RUN folder.*--resume"):
        Run.open(partial)


def test_a_wrong_option_does_not_cost_the_checkpoint(killed: Killed, habit: Habit) -> None:
    """Another seed, method or campaign is refused, and the run can still be resumed."""
    out, options = killed
    before = sorted(partial_of(out).rglob("*"))
    with pytest.raises(FolderError, match="made with another seed"):
        outlay.train(habit.data, out, resume=True, **options | {"seed": 3})
    other: dict[str, Any] = {
        "method": {"aim-greedy": "frontier", "frontier": "lp"}[options["method"]],
        "oracle": "ddqn",
    }
    with pytest.raises(FolderError, match="made with another method, oracle"):
        outlay.train(habit.data, out, resume=True, seed=options.get("seed", 0), **other)
    assert sorted(partial_of(out).rglob("*")) == before


def test_other_limits_on_the_same_log_are_another_training(killed: Killed, habit: Habit, tmp_path: Path) -> None:
    """The columns are the same, and so is their hash; the limit is not."""
    outlay.prepare(habit.changed(tmp_path, ("at_most = 2.2", "at_most = 3.0")), tmp_path / "data")
    with pytest.raises(FolderError, match="made with another campaign"):
        outlay.train(tmp_path / "data", killed.folder, resume=True, **killed.options)


def arrays(folder: Path) -> dict[str, NDArray[Any]]:
    """Of every .npz in a folder."""
    found: dict[str, NDArray[Any]] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            found |= {f"{path.name}/{name}": file[name] for name in file.files}
    return found


def test_resume_ends_where_an_uninterrupted_training_ends(killed: Killed, whole: Run, habit: Habit) -> None:
    """Bitwise: candidates, measurements, weights, networks and with them the bundle's id."""
    out, options = killed
    left_over = out.with_name(".run.partial") / ".checkpoints.1.tmp"
    left_over.mkdir()
    calls: list[str] = []
    resumed = outlay.train(habit.data, out, resume=True, progress=lambda _, text: calls.append(text), **options)
    assert calls[0] == "800 of 2000 steps"  # it did go on, and did not start anew
    assert [path.name for path in out.parent.iterdir()] == ["run"]
    assert not (out / left_over.name).exists()
    names = ["candidates.parquet", "metrics.jsonl"]
    assert pq.read_table(out / names[0]).equals(pq.read_table(whole.folder / names[0]))
    assert (out / names[1]).read_text() == (whole.folder / names[1]).read_text()
    for part in ("frontier", "checkpoints"):
        ours, theirs = arrays(out / part), arrays(whole.folder / part)
        assert list(ours) == list(theirs)
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    learned = sorted((out / "checkpoints").glob("*.eqx"))
    assert [path.name for path in learned] == sorted(p.name for p in whole.folder.glob("checkpoints/*.eqx"))
    for path in learned:
        assert path.read_bytes() == (whole.folder / "checkpoints" / path.name).read_bytes()
    assert resumed.manifest["members"] == whole.manifest["members"]
    one, other = outlay.load_bundle(resumed.bundle), outlay.load_bundle(whole.bundle)
    assert one.id == other.id
    for name in one.manifest.files:
        if name.endswith(".onnx"):
            assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()


def test_a_training_in_folds_does_not_cost_the_checkpoint_of_another(whole: Run, habit: Habit, tmp_path: Path) -> None:
    """Its own checkpoints lie elsewhere, a folder for each fold."""
    told = {name: whole.manifest[name] for name in ("oracle", "seed")}
    shutil.copytree(whole.folder / "checkpoints", tmp_path / ".run.partial" / "checkpoints")
    with pytest.raises(FolderError, match=r"made with another (settings|method)"):
        outlay.train(habit.data, tmp_path / "run", resume=True, method="frontier", folds=2, **told)
    assert (tmp_path / ".run.partial" / "checkpoints" / "progress.json").exists()


def test_there_must_be_something_to_resume(habit: Habit, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"no unfinished run.*--resume"):
        outlay.train(habit.data, tmp_path / "run", resume=True, method="aim-greedy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_training_without_resume_starts_anew(habit: Habit, tmp_path: Path) -> None:
    partial = tmp_path / ".run.partial"
    partial.mkdir()
    (partial / "bundle").write_text("of a killed run")
    outlay.train(habit.data, tmp_path / "run", method="aim-greedy")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_checkpoint_of_the_last_step_is_finished_without_a_step(
    way: Way, whole: Run, habit: Habit, tmp_path: Path
) -> None:
    """Killed while policies were measured: the rule's mixture is replayed, and what the critic said is there."""
    options, _ = way
    shutil.copytree(whole.folder / "checkpoints", tmp_path / ".run.partial" / "checkpoints")
    trained = json.loads((tmp_path / ".run.partial" / "checkpoints" / "progress.json").read_text())["seconds"]
    calls: list[str] = []
    again = outlay.train(
        habit.data, tmp_path / "run", resume=True, progress=lambda _, text: calls.append(text), **options
    )
    assert not any("steps" in text for text in calls)
    assert again.manifest["members"] == whole.manifest["members"]
    assert again.manifest["seconds"] >= trained > 0


@pytest.mark.slow
def test_a_counted_model_has_nothing_to_resume_and_is_made_again(habit: Habit, tmp_path: Path) -> None:
    (tmp_path / ".run.partial").mkdir()
    run = outlay.train(habit.data, tmp_path / "run", resume=True, folds=1)
    assert run.manifest["oracle"] == "tabular"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


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


@pytest.mark.slow
def test_ctrl_c_promises_what_resume_keeps(habit: Habit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = checkpoint.save_game

    def then_pressed(*arguments: Any) -> None:
        save(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "save_game", then_pressed)
    found = command("train", habit.data, "--out", tmp_path / "run", "--method", "aim-greedy", "--quiet")
    assert found.code == 130
    assert not missing(found.err, ".run.partial", "--resume")
    assert (partial_of(tmp_path / "run") / "checkpoints" / "progress.json").is_file()
