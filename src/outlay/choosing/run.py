"""A RUN folder, opened: its manifest and what lies beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.files import read_manifest
from outlay.core.transitions import Transitions

EVALUATION = {"beside", "certificate", "condition", "confidence", "daily", "diagnostics", "differences", "estimates",
              "notes", "policies", "segments", "shares", "subject", "verdict", "window"}  # fmt: skip
ESTIMATES = "estimates.json"
UNFINISHED = "Finish it with: outlay train … --resume, or train again."


@dataclass(frozen=True)
class Run:
    """A finished training.

    Attributes:
        folder: where it lies.
        manifest: its manifest.json.
    """

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a RUN folder.

        Raises:
            FolderError: if it is missing, half-written or of another format version.
        """
        manifest = read_manifest(Path(folder), "run", unfinished=UNFINISHED)
        absent = {"campaign", "campaign_file", "data", "data_hash", "members", "method"} - set(manifest)
        if absent or not (Path(folder) / "metrics.jsonl").exists():
            raise FolderError(f"is damaged: {', '.join(sorted(absent)) or 'metrics.jsonl'} is absent.", file=folder,
                              way_out="Train again.")  # fmt: skip
        return cls(Path(folder), manifest)

    @property
    def bundle(self) -> Path:
        """The bundle's folder."""
        return self.folder / "bundle"

    @property
    def fold_weights(self) -> list[list[float]]:
        """`[K, k]` of the members of its bundle in the mixture of each fold; one row where there were no folds."""
        return list(self.manifest.get("fold_weights", [[]]))

    @property
    def campaign(self) -> Campaign:
        """The campaign it was trained for, settings as used."""
        return Campaign.parse(self.manifest["campaign"], Path(self.manifest["campaign_file"]))

    def data(self) -> Transitions:
        """The transitions it was trained on.

        Raises:
            FolderError: if they are gone, damaged, or not the ones it was trained on.
        """
        data = Transitions.open(self.folder / self.manifest["data"])
        if data.manifest["data_hash"] != self.manifest["data_hash"]:
            raise FolderError(
                "the DATA folder is not the one that this run was trained on (its hash differs).",
                file=data.folder,
                way_out="Train again on it, or restore the old one.",
            )
        return data

    def metrics(self) -> list[dict[str, Any]]:
        """metrics.jsonl: one record per candidate."""
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def estimates(self) -> dict[str, Any] | None:
        """estimates.json, or None before the evaluation.

        Raises:
            FolderError: if it is damaged, or another version wrote it.
        """
        path = self.folder / ESTIMATES
        if not path.exists():
            return None
        way_out = f"Run outlay evaluate {self.folder} again."
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise FolderError("is not valid JSON.", file=path, way_out=way_out) from None
        absent = EVALUATION - set(found)
        if absent:
            raise FolderError(f"was written by another version of outlay: {', '.join(sorted(absent))} is absent.",
                              file=path, way_out=way_out)  # fmt: skip
        return dict(found)
