"""Rows decided in shards: by how many processes makes no difference, and a run that was cut off goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outlay.core.errors import FolderError, LogError, LostWorkerError
from outlay.core.files import partial_of, read_manifest
from outlay.jobs import score as module
from outlay.jobs.score import score
from scored_rows import make_bundle, make_rows

COUNTS = 130, 60, 1  # rows of the files
SHARD = 50  # so there are 3 + 2 + 1 shards

KILLED = f"""
import os, signal, sys
from outlay.jobs import score as module

module.SHARD_ROWS, calls = {SHARD}, []
decide = module._decide

def until_killed(*arguments, **named):
    calls.append(1)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    decide(*arguments, **named)

module._decide = until_killed
module.score(*sys.argv[1:])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle and three files of rows."""
    monkeypatch.setattr(module, "SHARD_ROWS", SHARD)
    make_bundle(tmp_path / "bundle")
    rows, begin = make_rows(sum(COUNTS)), 0
    for i, count in enumerate(COUNTS):
        pq.write_table(rows.slice(begin, count), tmp_path / f"rows-{i}.parquet", row_group_size=20)
        begin += count
    pq.write_table(rows, tmp_path / "all.parquet")
    return tmp_path


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the shards that are decided in this process."""
    numbers: list[int] = []
    decide = module._decide

    def noted(*arguments: Any, **named: Any) -> None:
        numbers.append(arguments[2])
        decide(*arguments, **named)

    monkeypatch.setattr(module, "_decide", noted)
    return numbers


def test_the_number_of_processes_makes_no_difference(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = score(place / "bundle", place / "rows-*.parquet", place / "one.parquet", members=True)
    whole = score(place / "bundle", place / "all.parquet", place / "whole.parquet", members=True)
    monkeypatch.chdir(place)
    two = score("bundle", "rows-*.parquet", "two.parquet", members=True, workers=2)  # paths may be relative
    tables = [pq.read_table(place / f"{name}.parquet") for name in ("one", "two", "whole")]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    assert tables[0]["row"].to_pylist()[-1] == sum(COUNTS) - 1
    for other in (two, whole):
        assert (one.rows, one.unknown, one.unseen) == (other.rows, other.unknown, other.unseen)
        assert one.shares == pytest.approx(other.shares)


def test_a_run_that_was_killed_goes_on_with_what_is_left(place: Path, decided: list[int]) -> None:
    """What was decided of other rows, or otherwise, is not taken."""
    arguments = [str(place / name) for name in ("bundle", "rows-*.parquet", "out.parquet")]
    process = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert process.returncode == -signal.SIGKILL
    assert not (place / "out.parquet").exists()
    shutil.copytree(partial_of(place / "out.parquet"), place / "left")
    again = score(arguments[0], arguments[1], arguments[2])
    assert decided == [3, 4, 5]
    whole = score(arguments[0], arguments[1], place / "whole.parquet")
    assert pq.read_table(place / "out.parquet").equals(pq.read_table(place / "whole.parquet"))
    assert (again.rows, again.shares) == (whole.rows, whole.shares)
    assert not partial_of(place / "out.parquet").exists()
    for changed in ("episode", "rows"):
        shutil.copytree(place / "left", partial_of(place / "out.parquet"))
        decided.clear()
        if changed == "rows":
            pq.write_table(make_rows(61), place / "rows-1.parquet")
        score(arguments[0], arguments[1], arguments[2], episode="spring" if changed == "episode" else None)
        assert decided == list(range(6))


def test_a_folder_takes_a_file_per_shard(place: Path) -> None:
    result = score(place / "bundle", place / "rows-*.parquet", place / "decisions")
    score(place / "bundle", place / "rows-*.parquet", place / "one.parquet")
    files = sorted((place / "decisions").glob("*.parquet"))
    assert len(files) == 6
    assert sorted(path.name for path in (place / "decisions").iterdir()) == [*(f.name for f in files), "manifest.json"]
    assert pa.concat_tables([pq.read_table(f) for f in files]).equals(pq.read_table(place / "one.parquet"))
    manifest = read_manifest(place / "decisions", "decisions")
    assert manifest["rows"] == result.rows == sum(COUNTS)
    score(place / "bundle", place / "all.parquet", place / "decisions")  # an older one of ours is replaced
    assert read_manifest(place / "decisions", "decisions")["rows"] == sum(COUNTS)
    with pytest.raises(FolderError, match="is a BUNDLE folder"):
        score(place / "bundle", place / "all.parquet", place / "bundle")


@pytest.mark.slow
def test_a_wrong_row_is_named_by_its_place_among_all_and_leaves_nothing(place: Path) -> None:
    table = pq.read_table(place / "rows-1.parquet")
    users = table["user_id"].to_pylist()
    users[55] = None
    pq.write_table(table.set_column(0, "user_id", pa.array(users)), place / "rows-1.parquet")
    for workers in (1, 2):
        with pytest.raises(LogError, match=r"row 186, column 'user_id': "):
            score(place / "bundle", place / "rows-*.parquet", place / "out.parquet", workers=workers)
        assert not (place / "out.parquet").exists()
        assert not partial_of(place / "out.parquet").exists()


def test_a_place_that_cannot_be_written_is_named(place: Path) -> None:
    (place / "file").touch()
    with pytest.raises(FolderError, match=r"out\.parquet: .*\(Not a directory\)"):
        score(place / "bundle", place / "all.parquet", place / "file" / "out.parquet")


def test_rows_that_change_meanwhile_are_noticed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = module._decide

    def overwritten(*arguments: Any, **named: Any) -> None:
        decide(*arguments, **named)
        pq.write_table(make_rows(1), place / "rows-2.parquet")

    monkeypatch.setattr(module, "_decide", overwritten)
    with pytest.raises(LogError, match="changed while it was read"):
        score(place / "bundle", place / "rows-*.parquet", place / "out.parquet")
    assert not (place / "out.parquet").exists()


def test_a_lost_worker_is_told_and_what_is_done_is_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch, decided: list[int]
) -> None:
    monkeypatch.setattr(module, "_decide_apart", _die_at_the_third)
    with pytest.raises(LostWorkerError, match="killed from outside"):
        score(place / "bundle", place / "rows-*.parquet", place / "out.parquet", workers=2)
    assert not (place / "out.parquet").exists()
    done = {int(file.stem[-5:]) for file in partial_of(place / "out.parquet").glob("totals-*")}
    assert 2 not in done
    score(place / "bundle", place / "rows-*.parquet", place / "out.parquet")
    assert set(decided) == set(range(6)) - done
    assert pq.read_table(place / "out.parquet").num_rows == sum(COUNTS)


def _die_at_the_third(task: Any, folder: Path, numbered: Any) -> int:
    if numbered[0] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return module._decide_apart(task, folder, numbered)
