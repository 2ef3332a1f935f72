"""Checkpoints of a game: arrays and JSON, never pickles; whole or absent.

The mixing rule's state is not stored: it is a function of what the rule saw, and is replayed from the candidates.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from outlay.core.errors import FolderError
from outlay.core.files import new_folder, read_manifest, write_manifest
from outlay.learning.game import Candidate, Game, Progress


def save(folder: Path, progress: Progress, key: dict[str, Any]) -> None:
    """Write a checkpoint, replacing the last.

    Args:
        folder: where.
        progress: where the game stands.
        key: what must be the same for a resumed run (data hash, settings, seed).
    """
    with new_folder(folder) as temporary:
        eqx.tree_serialise_leaves(temporary / "player.eqx", progress.player)
        for number, network in progress.networks.items():
            eqx.tree_serialise_leaves(temporary / f"network-{number}.eqx", network)
        plain = [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(c).items()}
                 for c in progress.candidates]  # fmt: skip
        (temporary / "candidates.json").write_text(json.dumps(plain), encoding="utf-8")
        content = {
            "networks": sorted(progress.networks),
            "kept": progress.kept,
            "seconds": progress.seconds,
            "key": key,
        }
        write_manifest(temporary, "checkpoint", content)


def load(folder: Path, game: Game, key: dict[str, Any]) -> Progress:
    """Read a checkpoint of the same game.

    Raises:
        FolderError: if there is none, or it belongs to other data, settings or another seed.
    """
    manifest = read_manifest(folder, "checkpoint", unfinished="Train without --resume.")
    differing = sorted(name for name in key if key[name] != manifest["key"].get(name))
    if differing:
        raise FolderError(
            f"the checkpoint was made with another {', '.join(differing)}.",
            file=folder,
            way_out="Resume with the same data, settings and seed, or train without --resume.",
        )
    fresh = game.begin()
    candidates = [
        Candidate(
            number=row["number"],
            step=row["step"],
            multiplier=np.array(row["multiplier"], np.float64),
            critic=np.array(row["critic"], np.float64),
            measured=np.array(row["measured"], np.float64),
            loss=row["loss"],
            decisions=row["decisions"],
        )
        for row in json.loads((folder / "candidates.json").read_text(encoding="utf-8"))
    ]
    pair = fresh.player.critic.target
    return Progress(
        player=eqx.tree_deserialise_leaves(folder / "player.eqx", fresh.player),
        candidates=candidates,
        networks={n: eqx.tree_deserialise_leaves(folder / f"network-{n}.eqx", pair) for n in manifest["networks"]},
        kept=list(manifest["kept"]),
        seconds=float(manifest["seconds"]),
    )
