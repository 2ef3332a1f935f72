"""Checkpoints of a training: arrays and JSON, never pickles; whole or absent.

    save_game(folder, progress, key)      progress = load_game(folder, game, key)
    save_frontier(folder, progress, key)  progress = load_frontier(folder, frontier, key)
    save_orthogonal(folder, progress, key)  progress = load_orthogonal(folder, training, key)
    save_trees(folder, network, judge, seconds, key)  network, judge, seconds = load_trees(folder, key)

The key holds what must be the same for a training to be resumed. A mixing rule's state is not stored: it is a function
of what the rule saw, and is replayed from the candidates.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from outlay.core.arrays import NetworkArrays, read_network, write_network
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST, new_folder, read_manifest, write_manifest
from outlay.core.transitions import Transitions
from outlay.learning import frontier as frontiers
from outlay.learning import game as games
from outlay.learning import orthogonal
from outlay.learning.effect_score import EffectScore

EVERY_SECONDS = 15.0
PROGRESS, NETWORK, JUDGE = "progress.json", "network.npz", "judge.npz"
WAY_OUT = "Train without --resume."


def key_of(data: Transitions, campaign: Campaign, method: str, oracle: str, seed: int) -> dict[str, Any]:
    """Return what must be the same for a training to be resumed."""
    return {
        "data": data.manifest.data_hash,
        "campaign": campaign.model_dump(mode="json", exclude={"train"}),
        "settings": campaign.train.model_dump(mode="json"),
        "seed": seed,
        "method": method,
        "oracle": oracle,
    }


def save_game(folder: Path, progress: games.GameProgress, key: dict[str, Any]) -> None:
    """Write a checkpoint, replacing the last."""
    trees = {"player": progress.player} | {f"network-{n}": network for n, network in progress.networks.items()}
    _write(
        folder,
        key,
        trees,
        {
            "multiplier": progress.multiplier,
            "rounds": progress.rounds,
            "first": progress.first,
            "unsettled": progress.unsettled,
            "candidates": [asdict(candidate) for candidate in progress.candidates],
            "networks": sorted(progress.networks),
            "kept": progress.kept,
            "seconds": progress.seconds,
        },
    )


def load_game(folder: Path, game: games.Game, key: dict[str, Any]) -> games.GameProgress:
    """Read a checkpoint of the same game.

    Raises:
        FolderError: if there is none, it is damaged, or it belongs to another training.
    """
    fresh = game.begin()
    with _whole(folder):
        saved = _read(folder, key)
        pair = fresh.player.critic.target
        return games.GameProgress(
            player=_tree(folder, "player", fresh.player),
            multiplier=np.array(saved["multiplier"]),
            rounds=saved["rounds"],
            first=saved["first"],
            unsettled=[(np.array(multiplier), np.array(excess)) for multiplier, excess in saved["unsettled"]],
            candidates=[_candidate(row) for row in saved["candidates"]],
            networks={n: _tree(folder, f"network-{n}", pair) for n in saved["networks"]},
            kept=saved["kept"],
            seconds=saved["seconds"],
        )


def save_frontier(folder: Path, progress: frontiers.FrontierProgress, key: dict[str, Any]) -> None:
    """Write a checkpoint, replacing the last."""
    trees = {"learner": (progress.learner, progress.multipliers, progress.own)}
    _write(folder, key, trees, {"step": progress.step, "losses": progress.losses, "seconds": progress.seconds})


def load_frontier(
    folder: Path, frontier: frontiers.FrontierTraining, key: dict[str, Any]
) -> frontiers.FrontierProgress:
    """Read a checkpoint of the same frontier.

    Raises:
        FolderError: if there is none, it is damaged, or it belongs to another training.
    """
    fresh = frontier.begin()
    with _whole(folder):
        saved = _read(folder, key)
        learner, multipliers, own = _tree(folder, "learner", (fresh.learner, fresh.multipliers, fresh.own))
        return frontiers.FrontierProgress(learner, multipliers, own, saved["step"], saved["losses"], saved["seconds"])


def save_orthogonal(folder: Path, progress: orthogonal.OrthogonalProgress, key: dict[str, Any]) -> None:
    """Write a checkpoint, replacing the last."""
    plain = {
        "step": progress.step,
        "losses": progress.losses,
        "seconds": progress.seconds,
        "best_step": progress.best.step,
        "explained": progress.best.explained,
    }
    _write(folder, key, {"learner": progress.learner, "best": progress.best.learner}, plain)


def load_orthogonal(
    folder: Path, training: orthogonal.Orthogonal, key: dict[str, Any]
) -> orthogonal.OrthogonalProgress:
    """Read a checkpoint of the same training.

    Raises:
        FolderError: if there is none, it is damaged, or it belongs to another training.
    """
    with _whole(folder):
        saved = _read(folder, key)
        fresh = training.begin().learner
        learner, best = (_tree(folder, name, fresh) for name in ("learner", "best"))
        return orthogonal.OrthogonalProgress(
            learner,
            orthogonal.Best(best, saved["best_step"], saved["explained"]),
            saved["step"],
            saved["losses"],
            saved["seconds"],
        )


def save_trees(folder: Path, network: NetworkArrays, judge: EffectScore, seconds: float, key: dict[str, Any]) -> None:
    """Write what was learned; trees are done in seconds, so there is nothing to save on the way."""
    with new_folder(folder) as temporary:
        write_network(temporary / NETWORK, network)
        np.savez(temporary / JUDGE, **judge._asdict())
        (temporary / PROGRESS).write_text(json.dumps({"seconds": seconds}), encoding="utf-8")
        write_manifest(temporary, "checkpoint", {"key": key})


def load_trees(folder: Path, key: dict[str, Any]) -> tuple[NetworkArrays, EffectScore, float]:
    """Read what was learned, what learners are judged by, and the seconds it took.

    Raises:
        FolderError: if there is none, it is damaged, or it belongs to another training.
    """
    with _whole(folder):
        saved = _read(folder, key)
        with (folder / JUDGE).open("rb") as handle, np.load(handle) as file:
            judge = EffectScore(*(file[name] for name in EffectScore._fields))
        return read_network(folder / NETWORK), judge, float(saved["seconds"])


def refuse_others(folder: Path, folds: int, key: dict[str, Any]) -> None:
    """Refuse to go on in the folder of a run whose checkpoints are of another number of folds.

    Args:
        folder: of the unfinished run.
        folds: K of the training that is to go on; 1: it has no folds.
        key: what its checkpoints must agree with.

    Raises:
        FolderError: if there are others: they would be lost.
    """
    other = (folder / "fold-1" if folds == 1 else folder) / "checkpoints"
    if (other / MANIFEST).exists():
        _read(other, key)  # says what else differs, if anything does
        _read(other, key | {"folds": folds})


def _write(folder: Path, key: dict[str, Any], trees: dict[str, Any], plain: dict[str, Any]) -> None:
    with new_folder(folder) as temporary:
        for name, tree in trees.items():
            eqx.tree_serialise_leaves(temporary / f"{name}.eqx", tree)
        (temporary / PROGRESS).write_text(json.dumps(plain, default=np.ndarray.tolist), encoding="utf-8")
        write_manifest(temporary, "checkpoint", {"key": key})


def _read(folder: Path, key: dict[str, Any]) -> dict[str, Any]:
    """All that is not an array."""
    made = read_manifest(folder, "checkpoint", unfinished=WAY_OUT)["key"]
    differing = sorted(name for name in key if key[name] != made.get(name))
    if differing:
        raise FolderError(
            f"the checkpoint was made with another {', '.join(differing)}.",
            file=folder,
            way_out="Resume with the same data, settings and seed, or train without --resume.",
        )
    return dict(json.loads((folder / PROGRESS).read_text(encoding="utf-8")))


def _candidate(row: dict[str, Any]) -> games.GameCandidate:
    parts: dict[str, Any] = {name: np.array(x) if isinstance(x, list) else x for name, x in row.items()}
    return games.GameCandidate(**parts)


def _tree(folder: Path, name: str, like: Any) -> Any:
    return eqx.tree_deserialise_leaves(folder / f"{name}.eqx", like)


@contextmanager
def _whole(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RuntimeError, zipfile.BadZipFile):
        raise FolderError("the checkpoint is damaged.", file=folder, way_out=WAY_OUT) from None
