"""Checkpoints: what is saved comes back bitwise, and belongs to one training only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from small_games import BUDGETS, game

from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST
from outlay.core.transitions import LEARN, SELECT
from outlay.learning import checkpoint, critic_grid
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.critic_grid import FrontierTraining
from outlay.learning.fresh import settings_of
from outlay.learning.game import Game, GameProgress, play
from outlay.learning.heads import critic_coordinates
from small_logs import campaign, draw, random_cmdp

KEY = TrainingKey("d4", {}, {"batch": 32, "shares": [0.7, 0.15, 0.15]}, 0, "frontier", "ddqn")


@pytest.fixture(scope="module")
def halfway() -> tuple[Game, GameProgress]:
    of = game(min_steps=200)
    going = play(of)
    for _ in range(6):
        progress, _ = next(going)
    return of, progress


def same(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype for a, b in pairs)


def test_what_is_saved_comes_back(halfway: tuple[Game, GameProgress], tmp_path: Path) -> None:
    of, progress = halfway
    checkpoint.save_game(tmp_path / "checkpoints", progress, KEY)
    found = checkpoint.load_game(tmp_path / "checkpoints", of, KEY)
    assert same(found.player, progress.player)
    assert np.array_equal(found.multiplier, progress.multiplier)
    assert (found.rounds, found.first) == (progress.rounds, progress.first)
    assert same(found.unsettled, progress.unsettled)
    assert sorted(found.networks) == sorted(progress.networks)
    for number, network in progress.networks.items():
        assert same(found.networks[number], network)
    assert len(found.candidates) == 6
    for a, b in zip(found.candidates, progress.candidates, strict=True):
        assert (a.number, a.step, a.loss) == (b.number, b.step, b.loss)
        for name in ("multiplier", "critic", "acting", "measured"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
    assert found.kept == progress.kept
    assert found.seconds == progress.seconds
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_checkpoint_replaces_the_last(halfway: tuple[Game, GameProgress], tmp_path: Path) -> None:
    of, progress = halfway
    for _ in range(2):
        checkpoint.save_game(tmp_path / "checkpoints", progress, KEY)
    going = play(of, checkpoint.load_game(tmp_path / "checkpoints", of, KEY))
    later, _ = next(going)
    checkpoint.save_game(tmp_path / "checkpoints", later, KEY)
    assert len(checkpoint.load_game(tmp_path / "checkpoints", of, KEY).candidates) == 7
    stored = {path.name for path in (tmp_path / "checkpoints").glob("network-*")}
    assert stored == {f"network-{number}.eqx" for number in later.networks}


def test_another_seed_or_other_data_or_settings_are_refused(halfway: tuple[Game, GameProgress], tmp_path: Path) -> None:
    of, progress = halfway
    checkpoint.save_game(tmp_path / "checkpoints", progress, KEY)
    changes: tuple[dict[str, Any], ...] = (
        {"seed": 1},
        {"data": "other"},
        {"settings": {"batch": 64, "shares": [0.7, 0.15, 0.15]}},
    )
    for change in changes:
        with pytest.raises(FolderError, match=rf"made with another {next(iter(change))}"):
            checkpoint.load_game(tmp_path / "checkpoints", of, replace(KEY, **change))
    with pytest.raises(FolderError, match="another data, seed"):
        checkpoint.load_game(tmp_path / "checkpoints", of, replace(KEY, seed=1, data="other"))


def test_a_half_written_checkpoint_is_none(halfway: tuple[Game, GameProgress], tmp_path: Path) -> None:
    of, progress = halfway
    folder = tmp_path / "checkpoints"
    checkpoint.save_game(folder, progress, KEY)
    manifest = json.loads((folder / MANIFEST).read_text())
    for name in ("player.eqx", "progress.json"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(FolderError, match=r"damaged.*without --resume"):
            checkpoint.load_game(folder, of, KEY)
        (folder / name).unlink()
        with pytest.raises(FolderError, match="the checkpoint is damaged"):
            checkpoint.load_game(folder, of, KEY)
        (folder / name).write_bytes(content)
    (folder / MANIFEST).unlink()
    with pytest.raises(FolderError, match="Train without --resume"):
        checkpoint.load_game(folder, of, KEY)
    (folder / MANIFEST).write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(FolderError, match="version is 99"):
        checkpoint.load_game(folder, of, KEY)


@pytest.fixture(scope="module")
def partway() -> tuple[FrontierTraining, critic_grid.FrontierProgress]:
    """One network for every λ, after 4 of 10 blocks; its grid was laid again after the first and the fourth."""
    about = campaign(0.8, BUDGETS[:1], {"layers": [8], "batch": 32, "min_steps": 1000, "epochs": 0.1})
    data = draw(random_cmdp(3), 300, 6, seed=0, about=about, split=np.repeat([LEARN, SELECT], [200, 100]))
    coords = critic_coordinates(about, data.outcome, steady=True)
    settings = settings_of(about.train, "ddqn", 0.8)
    of = FrontierTraining(data, about.train, coords, np.full(1, 3.0), 0, data.rows_of(LEARN), 0, settings)
    going = of.blocks(of.begin())
    for _ in range(4):
        progress = next(going)
    return of, progress


def test_a_frontier_comes_back_with_its_grid_and_goes_on(
    partway: tuple[FrontierTraining, critic_grid.FrontierProgress], tmp_path: Path
) -> None:
    of, progress = partway
    of.save(tmp_path / "checkpoints", progress, KEY)
    found = of.load(tmp_path / "checkpoints", KEY)
    assert same(found.learner, progress.learner)
    assert not np.array_equal(found.multipliers, of.begin().multipliers)
    for name in ("multipliers", "own", "step", "losses", "seconds"):
        assert np.array_equal(getattr(found, name), getattr(progress, name)), name
    assert (found.step, len(found.losses)) == (400, 4)
    *_, whole = of.blocks(of.begin())
    *_, resumed = of.blocks(found)
    assert same(resumed.learner, whole.learner)
    assert np.array_equal(resumed.own, whole.own)
    assert resumed.losses == whole.losses


def test_a_frontier_is_not_taken_for_a_game_nor_for_another_frontier(
    partway: tuple[FrontierTraining, critic_grid.FrontierProgress], halfway: tuple[Game, GameProgress], tmp_path: Path
) -> None:
    of, progress = partway
    of.save(tmp_path / "checkpoints", progress, KEY)
    with pytest.raises(FolderError, match="made with another seed"):
        of.load(tmp_path / "checkpoints", replace(KEY, seed=1))
    with pytest.raises(FolderError, match="damaged"):
        checkpoint.load_game(tmp_path / "checkpoints", halfway[0], KEY)
    checkpoint.save_game(tmp_path / "checkpoints", halfway[1], KEY)
    with pytest.raises(FolderError, match="damaged"):
        of.load(tmp_path / "checkpoints", KEY)


def test_a_checkpoint_holds_no_pickles(
    halfway: tuple[Game, GameProgress], partway: tuple[FrontierTraining, critic_grid.FrontierProgress], tmp_path: Path
) -> None:
    """Its arrays are read by NumPy with pickling refused; the rest is JSON."""
    checkpoint.save_game(tmp_path / "game", halfway[1], KEY)
    partway[0].save(tmp_path / "frontier", partway[1], KEY)
    for path in (*(tmp_path / "game").iterdir(), *(tmp_path / "frontier").iterdir()):
        if path.suffix == ".json":
            json.loads(path.read_text())
            continue
        assert path.suffix == ".eqx"
        with path.open("rb") as handle:
            first = np.load(handle, allow_pickle=False)
        assert first.dtype == np.float32
