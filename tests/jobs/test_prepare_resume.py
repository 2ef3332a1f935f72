"""A run of `prepare` that was killed goes on with what is left, and ends with the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay
from campaign_files import campaign_file, panel
from outlay.core.assignment import Assignment
from outlay.core.errors import FolderError, LogError
from outlay.core.files import partial_of, read_manifest
from outlay.core.journal import Journal, partial_folder, unfinished_folder
from outlay.logs import blocks, encode

ROWS = 40  # of a block

# `outlay.prepare`, killed when it calls a function for the n-th time: before that call, or in the middle of writing a
# line of the journal.
KILLED = f"""
import os, signal, sys
import outlay
from outlay.core.journal import Journal
from outlay.logs import blocks, encode, vocabulary

campaign, out, where, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
blocks.ROWS, encode.SAVE_SECONDS = {ROWS}, 0.0
owner, name = {{"count": (vocabulary, "count_block"), "encode": (encode, "encode_block"),
                "save": (Journal, "add")}}[where]
function, calls = getattr(owner, name), []

def until_killed(*arguments):
    calls.append(1)
    if len(calls) == n:
        if where == "save":
            with arguments[0].path.open("ab") as file:
                file.write(b'"rows 0 to')
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments)

setattr(owner, name, until_killed)
outlay.prepare(campaign, out, threads=1)
"""


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Many blocks; the rows of those that are encoded."""
    encoded: list[str] = []
    monkeypatch.setattr(blocks, "ROWS", ROWS)
    function = encode.encode_block

    def noted(encoding: encode.Encoding, block: blocks.Block) -> None:
        encoded.append(f"{block.first}")
        function(encoding, block)

    monkeypatch.setattr(encode, "encode_block", noted)
    return encoded


def log(folder: Path, seed: int = 0) -> Path:
    """400 rows in 10 blocks, with a filter, an expression, text, a number and days that are filled in."""
    rng = np.random.default_rng(seed)
    columns = panel(users=100) | {"word": rng.choice(["a", "b", "c", "NA"], 400).tolist()}
    path = campaign_file(
        folder,
        columns,
        categorical='["word", "level", "level * 2"]',
        numeric='["spend"]',
        campaign="none = 0.0",
        log='complete = true\nwhere = "(day + level) % 5 <> 0"',
    )
    pq.write_table(pa.table(columns), folder / "log.parquet", row_group_size=ROWS)
    return path


def kill(path: Path, out: Path, where: str, n: int) -> None:
    process = subprocess.run([sys.executable, "-c", KILLED, str(path), str(out), where, str(n)], check=False)
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_as_an_unbroken_one(tmp_path: Path, small_blocks: list[str]) -> None:
    path, out = log(tmp_path), tmp_path / "DATA"
    whole = outlay.prepare(path, tmp_path / "WHOLE", threads=1).manifest
    assert len(small_blocks) == 10
    small_blocks.clear()
    for where, n in (("count", 4), ("encode", 5), ("save", 3)):
        kill(path, out, where, n)
    again = outlay.prepare(path, out, threads=1).manifest
    assert 0 < len(small_blocks) <= 8  # two were saved by the last one at least
    assert again.data_hash == whole.data_hash
    assert again == whole
    names = [sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) for folder in (out, tmp_path / "WHOLE")]
    assert names[0] == names[1]


def test_with_another_log_it_starts_again(tmp_path: Path, small_blocks: list[str]) -> None:
    path, out = log(tmp_path), tmp_path / "DATA"
    kill(path, out, "encode", 8)
    log(tmp_path, seed=1)
    again = outlay.prepare(path, out, threads=1).manifest
    assert len(small_blocks) == 10
    assert again.data_hash == outlay.prepare(path, tmp_path / "WHOLE", threads=1).manifest.data_hash


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_one_process_at_a_time(first: bool, second: bool, tmp_path: Path) -> None:
    """Neither a folder that goes on by itself nor one that goes on with --resume is taken from who writes it."""

    def making(resumable: bool) -> Any:
        return unfinished_folder(out, {}) if resumable else partial_folder(out, "run", resume=False)

    out = tmp_path / "out"
    with making(first):
        (partial_of(out) / "part").touch()
        with pytest.raises(FolderError, match=rf"another outlay is writing to it \(process {os.getpid()}\)"):
            making(second).__enter__()
        with pytest.raises(FolderError, match=r"is not finished.*\.out\.partial.*again, with --resume"):
            read_manifest(out, "run")
        assert (partial_of(out) / "part").exists()
    with making(second):  # it is free again
        pass
    assert not [*tmp_path.glob("*.lock"), *tmp_path.glob(".*.lock")]


def test_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.begin({"of": 1})
    journal.add("a", "b")
    with journal.path.open("ab") as file:
        file.write(b'"c')
    again = Journal(journal.path)
    assert again.about == {"of": 1}
    assert "b" in again
    again.add("d")
    assert [name in Journal(journal.path) for name in "abcd"] == [True, True, False, True]


@pytest.mark.parametrize("moment", ["counting values", "finishing"])
def test_a_log_that_changes_while_it_is_read_is_refused(tmp_path: Path, moment: str) -> None:
    path = log(tmp_path)

    def change(_share: float, text: str) -> None:
        if text == moment:
            os.utime(tmp_path / "log.parquet", ns=(0, 0))

    with pytest.raises(LogError, match=r"changed while it was read.*log\.where"):
        outlay.prepare(path, tmp_path / "DATA", progress=change)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["campaign.toml", "log.parquet"]


def test_a_damaged_row_group_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB reads the features as well, for leaks; here it does not."""
    path = log(tmp_path)
    monkeypatch.setattr("outlay.logs.quality.leaks", lambda *_, **__: [])
    monkeypatch.setattr("outlay.jobs.prepare.assignment", lambda *_: Assignment(True, 0, ()))
    file = tmp_path / "log.parquet"
    place = pq.read_metadata(file).row_group(7).column(pq.read_schema(file).names.index("word")).dictionary_page_offset
    content = bytearray(file.read_bytes())
    content[place : place + 40] = b"\xff" * 40
    file.write_bytes(content)
    with pytest.raises(LogError, match=r"log\.parquet.*row groups? .*cannot be read.*damaged"):
        outlay.prepare(path, tmp_path / "DATA")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["campaign.toml", "log.parquet"]
