"""The doctor tells what is here, and what is not."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from outlay.jobs import doctor


def test_it_tells_versions_devices_and_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctor.doctor()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["numpy"] == version("numpy")
    assert found["processors"] >= 1
    assert found["disk sync (ms)"] > 0
    assert "cpu" in found["devices"].lower()
    assert list(tmp_path.iterdir()) == []  # the disk is tested with a file that is gone afterwards


def test_what_is_absent_is_said_and_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", ("numpy", "no-such-package"))
    monkeypatch.setitem(sys.modules, "jax", None)
    found = doctor.doctor()
    assert found["no-such-package"] == "not installed"
    assert "pip install 'outlay[train]'" in found["devices"]
