"""What a RUN folder holds when training is done: bundle, course of the training, settings; the manifest last."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from outlay.bundles.write import write_bundle
from outlay.choosing.candidates import RunContext, WeightedPolicies, bundle_spec, shown
from outlay.choosing.choose import Selection
from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.files import write_manifest
from outlay.estimators.units import objective
from outlay.estimators.windowed import window_of

NOT_IN_REACH = (
    "A margin for what a few users may cost would leave less than half of a limit, so a certificate is hardly in reach "
    "of this log. The mixture keeps a margin for all other errors. If you know the largest cost of an action, state it "
    "(budget.reserve); or serve behind a cap, which needs no certificate (outlay serve, outlay allocate)."
)


@dataclass(frozen=True)
class CourseRow:
    """A candidate in the course of a training: a line of metrics.jsonl and a row of candidates.parquet.

    Attributes:
        step: gradient steps made by then.
        multiplier: `[m]` the λ it answers.
        critic: `[1+m]` the learner's own estimate, as tables show it; None where it has none.
        measured: `[1+m]` the same as measured.
        loss: mean loss of the steps before it; None where one training makes all.
        kept: networks that are needed by then.
        stored_parameters: of these.
        original_parameters: of those that the original method would keep.
    """

    step: int
    multiplier: list[float]
    critic: list[float] | None
    measured: list[float]
    loss: float | None
    kept: int
    stored_parameters: int
    original_parameters: int


@dataclass(frozen=True, kw_only=True)
class TrainingFigures:
    """What the manifest says of a training; each way of learning adds its own.

    Attributes:
        steps: gradient steps.
        seconds: of training.
        parameters: of all networks.
        multiplier_max: `[m]` λ_max.
        multiplier_mean: `[m]` of all λ that were answered.
        candidates_measured_by: what measured the candidates, in words.
    """

    steps: int
    seconds: float
    parameters: int
    multiplier_max: list[float]
    multiplier_mean: list[float]
    candidates_measured_by: str

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Learned:
    """What a way of learning hands over.

    Attributes:
        context: what all policies share.
        chosen: the mixture to serve.
        capped: the mixture to serve where a cap holds the money budget; None: the same.
        course: a row per candidate.
        figures: what the manifest says of it.
        teacher: what learned, in words.
        notes: what to tell the user.
    """

    context: RunContext
    chosen: Selection
    course: list[CourseRow]
    figures: TrainingFigures
    teacher: str
    notes: list[str]
    capped: WeightedPolicies | None = None


def record(learned: Learned, method: str, notes: Sequence[str], fields: Sequence[str] | None = None) -> None:
    """Write everything of a RUN folder.

    Args:
        learned: what was learned, with the mixture as it will be served.
        method: of `train`.
        notes: what to tell the user beside what the training says.
        fields: the fields that were learned from, where the log is wide; None: all.
    """
    context, chosen = learned.context, learned.chosen
    folder, campaign, data = context.folder, context.campaign, context.data
    spec = bundle_spec(context, chosen.members, chosen.weights, learned.capped)
    if (folder / "frontier").is_dir():  # trained for every budget: a server may mix all its policies anew
        spec = StoredFrontier.read(folder / "frontier").beside(spec)
    write_bundle(folder / "bundle", spec)
    course = [asdict(row) for row in learned.course]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in course), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(course), folder / "candidates.parquet")
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
        **learned.figures.to_dict(),
        "method": method,
        "oracle": learned.teacher,
        "notes": [*notes, *learned.notes, *([] if chosen.rare else [NOT_IN_REACH])],
        **({} if fields is None else {"fields": list(fields)}),
    }
    if campaign.path.exists():
        shutil.copyfile(campaign.path, folder / "campaign.toml")
    settings = campaign.train.model_dump(mode="json", exclude_none=True)
    lines = ["[train]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    (folder / "settings.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_manifest(folder, "run", manifest)


def course_of(chosen: Selection, campaign: Campaign, parameters: int) -> list[CourseRow]:
    """The course where one network answers every λ: a row per measured policy, in their order."""
    return [
        CourseRow(
            step=kept.policy.step,
            multiplier=kept.policy.multiplier.tolist(),
            critic=None if kept.policy.learned is None else kept.policy.learned.tolist(),
            measured=shown(kept, campaign).tolist(),
            loss=None,
            kept=1,
            stored_parameters=parameters,
            original_parameters=parameters,
        )
        for kept in chosen.measured
        if kept.policy.step is not None and kept.withheld is None
    ]
