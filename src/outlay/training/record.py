"""What a RUN folder holds when training is done: bundle, course of the training, settings; the manifest last."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from outlay.bundles.write import write_bundle
from outlay.choosing.candidates import RunContext, bundle_spec, shown
from outlay.choosing.choose import Selection
from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.files import write_manifest
from outlay.estimators.units import objective
from outlay.estimators.windowed import window_of


def record(context: RunContext, chosen: Selection, course: Sequence[dict[str, Any]], content: dict[str, Any]) -> None:
    """Write everything of a RUN folder.

    Args:
        context: what all policies share.
        chosen: the mixture as it will be served.
        course: of the training, a record per candidate: metrics.jsonl and candidates.parquet.
        content: what the manifest says of the way the policies were found: method, oracle, steps, seconds, ….
    """
    folder, campaign, data = context.folder, context.campaign, context.data
    spec = bundle_spec(context, chosen.members, chosen.weights)
    if (folder / "frontier").is_dir():  # trained for every budget: a server may mix all its policies anew
        spec = StoredFrontier.read(folder / "frontier").beside(spec)
    write_bundle(folder / "bundle", spec)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in course), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(list(course)), folder / "candidates.parquet")
    members = [
        {
            "name": kept.policy.name,
            "number": kept.policy.number,
            "step": kept.policy.step,
            "multiplier": kept.policy.multiplier.tolist(),
            "weight": float(weight),
            "fold": kept.policy.fold,
            "critic": None if kept.policy.learned is None else kept.policy.learned.tolist(),
            "fitted": None if kept.withheld else shown(kept, campaign).tolist(),
            "std_error": None if kept.withheld else kept.std_error.tolist(),
        }
        for kept, weight in zip(chosen.members, chosen.weights, strict=True)
    ]
    inside = data.folder.resolve().is_relative_to(folder.resolve())
    manifest = {
        "data": "data" if inside else str(data.folder.resolve()),
        "data_hash": data.manifest.data_hash,
        "source": data.manifest.source,
        "campaign": campaign.model_dump(by_alias=True, mode="json", exclude_none=True),
        "campaign_file": str(campaign.path.absolute()),
        "seed": context.seed,
        "objective": objective(campaign),
        "window": window_of(data),
        "members": members,
        "fold_weights": chosen.fold_weights.tolist(),
        "margin": chosen.margin.tolist(),
        "stored_parameters": sum(network.num_parameters for network in spec.networks),
        "versions": {name: version(name) for name in ("outlay", "numpy", "duckdb")} | spec.versions,
        **content,
    }
    if campaign.path.exists():
        shutil.copyfile(campaign.path, folder / "campaign.toml")
    settings = campaign.train.model_dump(mode="json", exclude_none=True)
    lines = ["[train]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    (folder / "settings.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_manifest(folder, "run", manifest)


def course_of(chosen: Selection, campaign: Campaign, parameters: int) -> list[dict[str, Any]]:
    """The course where one network answers every λ: a record per measured policy, in their order."""
    return [
        {
            "step": kept.policy.step,
            "multiplier": kept.policy.multiplier.tolist(),
            "critic": None if kept.policy.learned is None else kept.policy.learned.tolist(),
            "measured": shown(kept, campaign).tolist(),
            "loss": None,
            "kept": 1,
            "stored_parameters": parameters,
            "original_parameters": parameters,
        }
        for kept in chosen.measured
        if kept.policy.step is not None and kept.withheld is None
    ]
