"""What a RUN folder holds when training is done: bundle, course of the game, settings; the manifest last."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from outlay.bundles.write import write_bundle
from outlay.core.campaign import Campaign
from outlay.core.files import write_manifest
from outlay.estimators.units import objective
from outlay.jobs.choose import Chosen, bundle_spec, shown
from outlay.learning.game import Game, Progress
from outlay.nets.network import arrays


def record(
    game: Game,
    progress: Progress,
    chosen: Chosen,
    campaign: Campaign,
    method: str,
    oracle: str,
    seed: int,
    notes: list[str],
    folder: Path,
) -> None:
    """Write everything of a RUN folder."""
    write_bundle(folder / "bundle", bundle_spec(game, chosen.members, chosen.weights, campaign, seed))
    parameters = arrays(next(iter(progress.networks.values())), game.coords.spread).num_parameters
    records = [
        {
            "step": c.step,
            "multiplier": c.multiplier.tolist(),
            "critic": game.coords.shown(c.critic, c.decisions).tolist(),
            "measured": game.coords.shown(c.measured, c.decisions).tolist(),
            "loss": c.loss,
            "kept": kept,
            "stored_parameters": kept * parameters,
            "original_parameters": (c.number + 1) * parameters,
        }
        for c, kept in zip(progress.candidates, progress.kept, strict=True)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(records), folder / "candidates.parquet")
    members = [
        {
            "name": kept.name,
            "number": None if kept.candidate is None else kept.candidate.number,
            "step": None if kept.candidate is None else kept.candidate.step,
            "multiplier": kept.multiplier.tolist(),
            "weight": float(weight),
            "critic": None
            if kept.candidate is None
            else game.coords.shown(kept.candidate.critic, kept.candidate.decisions).tolist(),
            "fitted": shown(kept, campaign).tolist(),
            "std_error": kept.std_error.tolist(),
        }
        for kept, weight in zip(chosen.members, chosen.weights, strict=True)
    ]
    data = game.data.folder.resolve()
    inside = data.is_relative_to(folder.resolve())
    multipliers = np.array([c.multiplier for c in progress.candidates])
    content = {
        "data": "data" if inside else str(data),
        "data_hash": game.data.manifest["data_hash"],
        "source": game.data.manifest["source"],
        "campaign": campaign.model_dump(by_alias=True, mode="json", exclude_none=True),
        "campaign_file": str(campaign.path.absolute()),
        "method": method,
        "oracle": oracle,
        "seed": seed,
        "steps": game.steps,
        "seconds": progress.seconds,
        "objective": objective(campaign),
        "members": members,
        "margin": chosen.margin.tolist(),
        "parameters": parameters,
        "stored_parameters": sum(kept.network.num_parameters for kept in chosen.members),
        "multiplier_max": (game.bound * game.multiplier_unit).tolist(),
        "multiplier_mean": multipliers.mean(axis=0).tolist(),
        "candidates_measured_by": "the critic" if game.measure is None else "the counted model of the select users",
        "notes": notes,
        "versions": {name: version(name) for name in ("outlay", "jax", "equinox", "optax", "numpy", "duckdb")},
    }
    if campaign.path.exists():
        shutil.copyfile(campaign.path, folder / "campaign.toml")
    settings = campaign.train.model_dump(mode="json", exclude_none=True)
    lines = ["[train]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    (folder / "settings.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_manifest(folder, "run", content)
