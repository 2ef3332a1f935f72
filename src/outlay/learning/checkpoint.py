"""Checkpoints of a training: arrays and JSON, never pickles; whole or absent.

    write(folder, key, {"learner": tree}, {"step": 100})     with reading(folder, key) as saved: …
    save_game(folder, progress, key)                         progress = load_game(folder, game, key)

The key holds what must be the same for a training to be resumed. A mixing rule's state is not stored: it is a function
of what the rule saw, and is replayed from the candidates.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST, new_folder, read_manifest, write_manifest
from outlay.core.transitions import Transitions
from outlay.learning import game as games

EVERY_SECONDS = 15.0
PROGRESS = "progress.json"
WAY_OUT = "Train without --resume."

Write = Callable[[Path], None]


@dataclass(frozen=True)
class TrainingKey:
    """What must be the same for a training to be resumed.

    Attributes:
        data: hash of the transitions.
        campaign: the campaign file without its settings, as JSON.
        settings: of the training, as JSON.
        seed: of everything random.
        method: of the training.
        oracle: what learns.
        folds: in how many folds.
    """

    data: str
    campaign: dict[str, Any]
    settings: dict[str, Any]
    seed: int
    method: str
    oracle: str
    folds: int = 1

    @classmethod
    def of(cls, data: Transitions, campaign: Campaign, method: str, oracle: str, seed: int) -> TrainingKey:
        """The key of a training of these transitions; of those of a fold, with the number of folds."""
        return cls(
            data=data.manifest.data_hash,
            campaign=campaign.model_dump(mode="json", exclude={"train"}),
            settings=campaign.train.model_dump(mode="json"),
            seed=seed,
            method=method,
            oracle=oracle,
            folds=data.folds,
        )


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is being read.

    Attributes:
        folder: where it lies.
        plain: all that is not an array.
    """

    folder: Path
    plain: dict[str, Any]

    def tree(self, name: str, like: Any) -> Any:
        """A tree of arrays with the shapes of `like`."""
        return eqx.tree_deserialise_leaves(self.folder / f"{name}.eqx", like)


def save_game(folder: Path, progress: games.GameProgress, key: TrainingKey) -> None:
    """Write a checkpoint, replacing the last."""
    trees = {"player": progress.player} | {f"network-{n}": network for n, network in progress.networks.items()}
    write(
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


def load_game(folder: Path, game: games.Game, key: TrainingKey) -> games.GameProgress:
    """Read a checkpoint of the same game.

    Raises:
        FolderError: if there is none, it is damaged, or it belongs to another training.
    """
    fresh = game.begin()
    with reading(folder, key) as saved:
        plain, pair = saved.plain, fresh.player.critic.target
        return games.GameProgress(
            player=saved.tree("player", fresh.player),
            multiplier=np.array(plain["multiplier"]),
            rounds=plain["rounds"],
            first=plain["first"],
            unsettled=[(np.array(multiplier), np.array(excess)) for multiplier, excess in plain["unsettled"]],
            candidates=[_candidate(row) for row in plain["candidates"]],
            networks={n: saved.tree(f"network-{n}", pair) for n in plain["networks"]},
            kept=plain["kept"],
            seconds=plain["seconds"],
        )


def refuse_others(folder: Path, key: TrainingKey) -> None:
    """Refuse to go on in the folder of a run whose checkpoints are of another number of folds.

    Args:
        folder: of the unfinished run.
        key: what its checkpoints must agree with.

    Raises:
        FolderError: if there are others: they would be lost.
    """
    other = (folder / "fold-1" if key.folds == 1 else folder) / "checkpoints"
    if (other / MANIFEST).exists():
        _refuse(other, key, [name for name in asdict(key) if name != "folds"])  # says what else differs, if it does
        _refuse(other, key, ["folds"])


def write(
    folder: Path, key: TrainingKey, trees: dict[str, Any], plain: dict[str, Any], further: Write = lambda _: None
) -> None:
    """Write a checkpoint, replacing the last: trees of arrays, what is no array, and what `further` writes."""
    with new_folder(folder) as temporary:
        for name, tree in trees.items():
            eqx.tree_serialise_leaves(temporary / f"{name}.eqx", tree)
        (temporary / PROGRESS).write_text(json.dumps(plain, default=np.ndarray.tolist), encoding="utf-8")
        further(temporary)
        write_manifest(temporary, "checkpoint", {"key": asdict(key)})


@contextmanager
def reading(folder: Path, key: TrainingKey) -> Iterator[Saved]:
    """Read a checkpoint.

    Raises:
        FolderError: if there is none, it is damaged, or it belongs to another training.
    """
    try:
        _refuse(folder, key, list(asdict(key)))
        yield Saved(folder, dict(json.loads((folder / PROGRESS).read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RuntimeError, zipfile.BadZipFile):
        raise FolderError("the checkpoint is damaged.", file=folder, way_out=WAY_OUT) from None


def _refuse(folder: Path, key: TrainingKey, names: list[str]) -> None:
    """Refuse a checkpoint in which one of these parts of the key is another."""
    made = {"folds": 1} | read_manifest(folder, "checkpoint", unfinished=WAY_OUT)["key"]
    differing = sorted(name for name in names if asdict(key)[name] != made.get(name))
    if differing:
        raise FolderError(
            f"the checkpoint was made with another {', '.join(differing)}.",
            file=folder,
            way_out="Resume with the same data, settings and seed, or train without --resume.",
        )


def _candidate(row: dict[str, Any]) -> games.GameCandidate:
    parts: dict[str, Any] = {name: np.array(x) if isinstance(x, list) else x for name, x in row.items()}
    return games.GameCandidate(**parts)
