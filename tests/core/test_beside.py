"""What is being made stands beside its path, also where that is `.` or `..`."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlay.core.errors import FolderError
from outlay.core.files import beside, new_folder


def test_names_are_those_of_the_folder_that_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run" / "bundle").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run" / "bundle")
    assert beside(Path("run"), "partial") == Path(".run.partial")
    assert beside(Path(), "partial") == tmp_path / "run" / ".bundle.partial"
    assert beside(Path(".."), "partial") == tmp_path / ".run.partial"
    assert beside(Path("/"), "partial") == Path("/..partial")


def test_the_folder_that_one_is_in_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(), tmp_path):
        with pytest.raises(FolderError, match="the folder that you are in"), new_folder(path):
            raise AssertionError
    assert list(tmp_path.parent.glob(f".{tmp_path.name}.*")) == []
