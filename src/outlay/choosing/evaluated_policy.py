"""The policies that an evaluation compares: a run's mixture, a policy from outside, the log's own.

An evaluated policy is a mixture of parts, of which every user keeps one; most have a single part. A part is what
`Panel.follow` takes: an action index for every row, probabilities for every row, or None for the log's own policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.read import load_bundle
from outlay.choosing.measure import Measure, Source
from outlay.choosing.rotation import measured_on
from outlay.choosing.run import Run
from outlay.core.errors import FolderError
from outlay.core.looking_back import LagFields, looking_back
from outlay.logs.policy_file import read_policy


@dataclass(frozen=True)
class EvaluatedPolicy:
    """A policy on the rows of one split.

    Attributes:
        name: its name in estimates: `old`, `mixture`, `policy`, `against`, ….
        title: what tables call it.
        parts: the actions of each part in the rows.
        weights: `[k]` shares of users.
        features: for each part, the member of the bundle whose features it is evaluated on (`Measure.evaluator`).
        identity: its key among the looks.
        run: the other run whose mixture it is, or None.
    """

    name: str
    title: str
    parts: tuple[NDArray[Any] | None, ...]
    weights: NDArray[np.float64]
    features: tuple[Source, ...]
    identity: str
    run: Run | None = None

    @property
    def sources(self) -> list[tuple[NDArray[Any] | None, Source]]:
        """Each part with the member whose features it is evaluated on."""
        return list(zip(self.parts, self.features, strict=True))

    def members(self) -> list[EvaluatedPolicy]:
        """Return each part as a policy of its own, if there is more than one."""
        if len(self.parts) == 1:
            return []
        return [
            EvaluatedPolicy(f"member {i}", f"member {i}", (part,), np.ones(1), (features,), self.identity)
            for i, (part, features) in enumerate(self.sources)
        ]


OLD = EvaluatedPolicy("old", "old policy", (None,), np.ones(1), (0,), "old")


def mixture_of(measure: Measure, title: str) -> EvaluatedPolicy:
    """Return the mixture of the bundle on whose features `measure` rests."""
    parts, weights, features = measure.mixture()
    identity = measure.served.id
    return EvaluatedPolicy("mixture", title, tuple(parts), weights, tuple(features), identity)


def from_file(measure: Measure, path: str | Path, name: str) -> EvaluatedPolicy:
    """Read a policy from a Parquet table (`logs/policy_file.py`).

    Raises:
        LogError: if it is not such a table, or not a policy for these rows.
    """
    probability, identity = read_policy(path, measure.data, measure.panel.rows)
    return EvaluatedPolicy(name, Path(path).name, (probability,), np.ones(1), (0,), identity)


def from_run(measure: Measure, run: Run, name: str) -> EvaluatedPolicy:
    """Return the mixture of another run, on the users of `measure`.

    Raises:
        FolderError: if it was trained on a log with another encoding.
    """
    bundle = load_bundle(run.bundle)
    lags = LagFields.of(measure.data.schema, bundle.campaign, bundle.schema)
    if (
        bundle.schema != looking_back(measure.data, lags).schema
        or not np.array_equal(bundle.actions, measure.data.actions)
        or bundle.names != measure.data.campaign.names
    ):
        raise FolderError(
            "was trained on a log with other features, values or actions.",
            file=run.folder,
            where="--against",
            way_out="Train both runs on one DATA folder: outlay prepare once, then outlay train DATA.",
        )
    if len(run.fold_weights) != measure.data.folds:
        raise FolderError(
            f"was trained with folds = {len(run.fold_weights)} and the evaluated policy with folds = "
            f"{measure.data.folds}; no users certify both.",
            file=run.folder,
            where="--against",
            way_out="Train both runs with the same --folds.",
        )
    whole = (
        measured_on(measure.data, bundle, run.fold_weights)
        if measure.data.folds > 1
        else Measure(measure.data, measure.split, bundle)
    )
    other = mixture_of(whole, "")
    features = (0,) * len(other.parts)
    title = f"{run.folder.name} ({run.manifest['method']})"
    return EvaluatedPolicy(name, title, other.parts, other.weights, features, other.identity, run)


def compared_policy(measure: Measure, against: str | Path | Run | None) -> EvaluatedPolicy | None:
    """Return the policy that `--against` names: of a RUN folder or a Parquet table; None for the old policy.

    Raises:
        OutlayError: if there is no such folder or file, or it does not hold a policy for these rows.
    """
    if against is None or against == "old":
        return None
    if isinstance(against, Run):
        return from_run(measure, against, "against")
    if not Path(against).exists():
        raise FolderError(
            "does not exist.",
            file=against,
            where="--against",
            way_out="Give a RUN folder, the Parquet table of a policy, or old.",
        )
    return (
        from_run(measure, Run.open(against), "against")
        if Path(against).is_dir()
        else from_file(measure, against, "against")
    )
