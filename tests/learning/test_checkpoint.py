"""Checkpoints: what is saved comes back bitwise, and belongs to one game only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from small_games import game

from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST
from outlay.learning import checkpoint
from outlay.learning.game import Game, Progress, play

KEY = {"data": "d4", "seed": 0, "settings": {"batch": 32, "shares": [0.7, 0.15, 0.15]}}


@pytest.fixture(scope="module")
def halfway() -> tuple[Game, Progress]:
    of = game(min_steps=200)
    going = play(of)
    for _ in range(6):
        progress, _ = next(going)
    return of, progress


def same(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype for a, b in pairs)


def test_what_is_saved_comes_back(halfway: tuple[Game, Progress], tmp_path: Path) -> None:
    of, progress = halfway
    checkpoint.save(tmp_path / "checkpoints", progress, KEY)
    found = checkpoint.load(tmp_path / "checkpoints", of, KEY)
    assert same(found.player, progress.player)
    assert sorted(found.networks) == sorted(progress.networks)
    for number, network in progress.networks.items():
        assert same(found.networks[number], network)
    assert len(found.candidates) == 6
    for a, b in zip(found.candidates, progress.candidates, strict=True):
        assert (a.number, a.step, a.loss) == (b.number, b.step, b.loss)
        for name in ("multiplier", "critic", "measured"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
    assert found.kept == progress.kept
    assert found.seconds == progress.seconds
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_checkpoint_replaces_the_last(halfway: tuple[Game, Progress], tmp_path: Path) -> None:
    of, progress = halfway
    for _ in range(2):
        checkpoint.save(tmp_path / "checkpoints", progress, KEY)
    going = play(of, checkpoint.load(tmp_path / "checkpoints", of, KEY))
    later, _ = next(going)
    checkpoint.save(tmp_path / "checkpoints", later, KEY)
    assert len(checkpoint.load(tmp_path / "checkpoints", of, KEY).candidates) == 7
    stored = {path.name for path in (tmp_path / "checkpoints").glob("network-*")}
    assert stored == {f"network-{number}.eqx" for number in later.networks}


def test_another_seed_or_other_data_or_settings_are_refused(halfway: tuple[Game, Progress], tmp_path: Path) -> None:
    of, progress = halfway
    checkpoint.save(tmp_path / "checkpoints", progress, KEY)
    for change in ({"seed": 1}, {"data": "other"}, {"settings": {"batch": 64, "shares": [0.7, 0.15, 0.15]}}):
        with pytest.raises(FolderError, match=f"made with another {next(iter(change))}"):
            checkpoint.load(tmp_path / "checkpoints", of, {**KEY, **change})
    with pytest.raises(FolderError, match="another data, seed"):
        checkpoint.load(tmp_path / "checkpoints", of, {**KEY, "seed": 1, "data": "other"})


def test_a_half_written_checkpoint_is_none(halfway: tuple[Game, Progress], tmp_path: Path) -> None:
    of, progress = halfway
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, progress, KEY)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).unlink()
    with pytest.raises(FolderError, match="Train without --resume"):
        checkpoint.load(folder, of, KEY)
    (folder / MANIFEST).write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(FolderError, match="version is 99"):
        checkpoint.load(folder, of, KEY)


def test_a_checkpoint_holds_no_pickles(halfway: tuple[Game, Progress], tmp_path: Path) -> None:
    """Its arrays are read by NumPy with pickling refused; the rest is JSON."""
    checkpoint.save(tmp_path / "checkpoints", halfway[1], KEY)
    for path in (tmp_path / "checkpoints").iterdir():
        if path.suffix == ".json":
            json.loads(path.read_text())
            continue
        assert path.suffix == ".eqx"
        with path.open("rb") as handle:
            first = np.load(handle, allow_pickle=False)
        assert first.dtype == np.float32
