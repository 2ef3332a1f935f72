"""What a machine lacks is said in words: packages of an extra, room on a disk."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import numpy as np
import pytest

from outlay.core.errors import FolderError, LogError, LostWorkerError, OutlayError
from outlay.core.files import new_folder, partial_of
from outlay.core.journal import partial_folder, unfinished_folder
from outlay.core.machine import DISK, EXTRAS, in_words
from outlay.logs.encode import Columns
from outlay.logs.source import Source
from telling import missing

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED = {
    "vl-convert-python": "vl_convert",
    "adbc-driver-postgresql": "adbc_driver_postgresql",
    "python-calamine": "python_calamine",
    "pillow": "PIL",
}  # where it is not the package's name


def test_every_package_of_every_extra_is_known() -> None:
    for extra, wanted in PROJECT["optional-dependencies"].items():
        names = {re.split(r"[\[<>=]", name)[0] for name in wanted} - {"outlay"}
        if extra not in ("test", "dev", "all", "cuda", "docs"):
            assert {IMPORTED.get(name, name) for name in names} <= set(EXTRAS[extra])


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("equinox", ("train", "none.toml", "--out", "run"), "train"),
        ("vl_convert", ("experiment", "analyze", "none", "--report", "a.html"), "report"),
        ("starlette", ("serve", "none"), "serve"),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, package: str, command: tuple[str, ...], extra: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['outlay', *{list(command)}]; "
        "from outlay.cli.main import run; run()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert found.stderr.startswith("error: ")
    assert not missing(found.stderr, package, f"pip install 'outlay[{extra}]'")


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("jax", "import outlay; outlay.train", "train"),
        ("altair", "from outlay import report", "report"),
        ("onnx", "from outlay.bundles.graph import Graph; Graph()", "train"),
        ("gymnasium", "import outlay.simulators.environment", "gym"),
        ("psycopg", "from outlay.serve.ledger.backends import open_ledger; open_ledger('postgresql:///a')", "postgres"),
    ],
)
def test_in_python_too(tmp_path: Path, package: str, code: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; {code}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    told = found.stderr.splitlines()[-1]
    assert told.startswith("outlay.core.errors.OutlayError: ")
    assert not missing(told, package, f"pip install 'outlay[{extra}]'")


def test_another_module_that_is_missing_is_a_bug() -> None:
    assert in_words(ModuleNotFoundError("No module named 'outlay.jbos'", name="outlay.jbos")) is None
    assert in_words(OSError(errno.EBADF, "Bad file descriptor")) is None
    assert in_words(ValueError("wrong")) is None


@pytest.mark.parametrize("number", DISK)
def test_a_disk_that_is_full_or_read_only_is_no_bug(tmp_path: Path, number: int) -> None:
    told = in_words(OSError(number, "Told so", str(tmp_path / "a")))
    assert told is not None
    assert str(told).startswith(f"{tmp_path / 'a'}: ")
    assert not missing(str(told), "cannot be written (Told so)")
    with pytest.raises(FolderError, match=r"out: .*\(Told so\)"), new_folder(tmp_path / "out"):
        raise OSError(number, "Told so")
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_hides_a_full_disk_behind_its_own_error_is_no_bug(tmp_path: Path) -> None:
    """As equinox does with NumPy's word for an array that was written in part."""
    with (
        pytest.raises(FolderError, match=r"out: .*\(No space left on device\)"),
        new_folder(tmp_path / "out"),
    ):
        raise RuntimeError("at leaf weight") from OSError("1000 requested and 262 written")
    with pytest.raises(RuntimeError, match="at leaf"), new_folder(tmp_path / "out"):
        raise RuntimeError("at leaf weight") from ValueError("of another kind")


def test_what_is_done_is_kept_where_the_disk_was_full(tmp_path: Path) -> None:
    def work(error: Exception) -> None:
        with unfinished_folder(tmp_path / "out", {}) as (folder, _):
            (folder / "part").write_text("done")
            raise error

    for error, kept in ((FolderError("cannot be written (No space left on device)."), True), (ValueError("x"), False)):
        with pytest.raises(type(error)):
            work(error)
        assert (tmp_path / ".out.partial" / "part").exists() == kept


def test_a_full_disk_of_temporary_files_is_not_the_logs_fault(tmp_path: Path) -> None:
    source = Source(duckdb.connect(), tmp_path / "log.csv", {})
    full = duckdb.IOException('IO Error: Could not write file "/t/work.duckdb": No space left on device')
    assert "log.csv" not in str(source.in_words(full))
    assert "/t/work.duckdb" in str(source.in_words(full))
    assert isinstance(source.in_words(duckdb.IOException("IO Error: no magic bytes")), LogError)


@pytest.mark.skipif(sys.platform != "linux", reason="room is taken by posix_fallocate")
def test_mapped_columns_have_their_room_before_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written to where there is none, a mapped file would kill the process by SIGBUS."""
    Columns(tmp_path, 1_000_000).add("reward", np.float64)
    assert (tmp_path / "columns" / "reward.npy").stat().st_blocks * 512 >= 8_000_000

    def full(_file: int, _start: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    (tmp_path / "other").mkdir()
    with pytest.raises(FolderError, match=r"reward\.npy: .*\(No space left on device\)"):
        Columns(tmp_path / "other", 10).add("reward", np.float64)


@pytest.mark.parametrize(
    ("resume", "error", "stays"),
    [
        (False, LogError("a column is missing."), False),
        (True, LogError("a column is missing."), True),
        (False, LostWorkerError("a process was killed."), True),
        (False, FolderError("cannot be written (No space left on device)."), True),
        (False, KeyboardInterrupt(), True),
    ],
    ids=["wrong input", "wrong option when resumed", "killed", "full disk", "Ctrl-C"],
)
def test_what_was_done_stays_where_the_work_can_go_on(
    resume: bool, error: BaseException, stays: bool, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(OutlayError, match="no unfinished run"), partial_folder(out, "run", resume=True):
        pass
    partial_of(out).mkdir()
    (partial_of(out) / "earlier").touch()

    def cut_off() -> None:
        with partial_folder(out, "run", resume=resume) as folder:
            assert (folder / "earlier").exists() == resume
            (folder / "done").touch()
            raise error

    with pytest.raises(type(error)):
        cut_off()
    assert (partial_of(out) / "done").exists() == stays


@pytest.mark.skipif(sys.platform != "linux", reason="there is no folder that takes no entries")
def test_a_folder_that_takes_no_entries_is_no_bug() -> None:
    out = Path("/proc/out")
    for making in (
        new_folder(out),
        unfinished_folder(out, {}),
        partial_folder(out, "run", resume=False),
    ):
        with pytest.raises(FolderError, match=r"/proc/out: cannot be written .* Give another path"):
            making.__enter__()
