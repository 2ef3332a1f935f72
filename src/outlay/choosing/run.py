"""A RUN folder: the manifest, and the record of the training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from outlay.bundles.manifest import unseal
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.files import as_path, read_manifest
from outlay.core.shown import Shown
from outlay.core.transitions import Transitions
from outlay.core.wording import counted

ESTIMATES = "estimates.json"
UNFINISHED = "Finish it with: outlay train … --resume, or train again."


Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member of the mixture, as the manifest has it. Measurements are `[1+m]`: the reward, then each cost.

    Attributes:
        weight: share of users who get it, in (0, 1].
        multiplier: `[m]` λ that it answers, reward per unit of cost.
        critic: measurement by the critic of the training; None without one.
        fitted: measurement by the fitted evaluation of the fixed policy; None if *select* users are too few to tell.
        step: gradient step at which it was found; None for a constant action.
    """

    weight: float
    multiplier: Vector
    critic: Vector | None
    fitted: Vector | None
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRecord:
    """A policy that training measured: one line of metrics.jsonl. Measurements are `[1+m]`, per decision.

    Attributes:
        step: gradient step.
        multiplier: `[m]` λ that it answers, reward per unit of cost.
        measured: the measurement that the rule chose by.
        critic: measurement by the critic; None without one.
        loss: loss of the critic; None without one.
        kept: how many policies the rule keeps after this one.
        stored_parameters: numbers stored for policies by this run's rule.
        original_parameters: the same by the original method, which keeps every candidate.
    """

    step: int
    multiplier: Vector
    measured: Vector
    critic: Vector | None
    loss: float | None
    kept: int
    stored_parameters: int
    original_parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsRecord:
    """Groups of rows with similar predictions: `[G]` each, as in `response/labels.py`; None for not known."""

    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    std_error: tuple[float | None, ...]
    count: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """How outcomes follow the predictions of one head of a response model.

    Attributes:
        head: `reward` or the name of a budget.
        slope: of outcomes on predictions, 1 where predictions are right; None if all predictions are equal.
        slope_error: its standard error.
        expected_error: mean distance of predicted and observed over the tenths, in the unit of the label.
        tenths: rows by prediction, ascending.
    """

    head: str
    slope: float | None
    slope_error: float | None
    expected_error: float
    tenths: GroupsRecord


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """A finished training.

    Attributes:
        folder: the RUN folder.
        manifest: its manifest.json.
    """

    folder: Path
    manifest: dict[str, Any]

    def headline(self) -> str:
        """Where it lies, and what was learned."""
        count = len(self.manifest["members"])
        return f"{self.folder}, {self.manifest['method']}, a mixture of {counted(count, 'member')}."

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a RUN folder.

        Raises:
            FolderError: if it is missing, half-written or of another format version.
        """
        folder = as_path(folder, "run", "the path of a RUN folder, or what train gives")
        manifest = read_manifest(folder, "run", unfinished=UNFINISHED)
        absent = {"campaign", "campaign_file", "data", "data_hash", "members", "method"} - set(manifest)
        if absent or not (folder / "metrics.jsonl").exists():
            raise FolderError(
                f"is damaged: {', '.join(sorted(absent)) or 'metrics.jsonl'} is missing.",
                file=folder,
                way_out="Train again.",
            )
        return cls(folder, manifest)

    @property
    def labelled(self) -> Campaign:
        """The campaign with the `[labels]` of RUN/campaign.toml, of which nothing else is read: it stays as trained.

        Raises:
            CampaignError: if that file is no TOML, or its labels are impossible.
        """
        own = self.folder / "campaign.toml"
        if not own.exists():
            return self.campaign
        content = {**self.manifest["campaign"], "labels": Campaign.content(own).get("labels", {})}
        return self.campaign.model_copy(update={"labels": Campaign.parse(content, own).labels})

    @property
    def bundle(self) -> Path:
        """The bundle's folder."""
        return self.folder / "bundle"

    @cached_property
    def identity(self) -> str:
        """What a look at what it serves is counted as: the id of its bundle.

        Raises:
            BundleError: if that is missing or damaged.
        """
        return unseal(self.bundle).id

    @property
    def fold_weights(self) -> list[list[float]]:
        """`[K, k]` weights of the bundle's members in the mixture of each fold; a single row without folds."""
        return list(self.manifest.get("fold_weights", [[]]))

    @cached_property
    def campaign(self) -> Campaign:
        """The campaign that it was trained for, with the settings that were used."""
        return Campaign.parse(self.manifest["campaign"], Path(self.manifest["campaign_file"]))

    def data(self) -> Transitions:
        """Open the transitions that it was trained on, with the fields that its policies read.

        Raises:
            FolderError: if they are gone, damaged, or not those that it was trained on.
        """
        data = Transitions.open(self.folder / self.manifest["data"])
        if data.manifest.data_hash != self.manifest["data_hash"]:
            raise FolderError(
                "the DATA folder is not the one that this run was trained on (its hash differs).",
                file=data.folder,
                way_out="Train again on it, or restore the old one.",
            )
        return data if (fields := self.manifest.get("fields")) is None else data.with_fields(fields)

    @cached_property
    def members(self) -> tuple[MemberRecord, ...]:
        """The members of the mixture."""
        return TypeAdapter(tuple[MemberRecord, ...]).validate_python(self.manifest["members"])

    @cached_property
    def calibration(self) -> tuple[CalibrationRecord, ...]:
        """Calibration of a response model, a record for each head; empty without such a model."""
        return TypeAdapter(tuple[CalibrationRecord, ...]).validate_python(self.manifest.get("calibration", ()))

    def metrics(self) -> tuple[CandidateRecord, ...]:
        """Read metrics.jsonl: a record for each candidate."""
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        read = TypeAdapter(CandidateRecord)
        return tuple(read.validate_json(line) for line in lines)
