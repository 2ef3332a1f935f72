"""The policies that an evaluation holds side by side: a run's mixture, a policy from outside, the log's own.

A subject is a sticky mixture of parts; most have one. A part is what `Panel.follow` takes: an action index for every
row, probabilities for every row, or None for the log's own policy.
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
from outlay.logs.policy_file import read_policy


@dataclass(frozen=True)
class EvaluatedPolicy:
    """A policy on the rows of one split.

    Attributes:
        name: in estimates: `old`, `mixture`, `policy`, `against`, ….
        title: what tables call it.
        parts: what each part does in the rows.
        weights: `[k]` shares of users.
        features: for each part the bundle's member whose features tell it (`Measure.evaluator`).
        identity: names it among the looks.
        run: the other run whose mixture it is, or None.
    """

    name: str
    title: str
    parts: tuple[NDArray[Any] | None, ...]
    weights: NDArray[np.float64]
    features: tuple[Source, ...]
    identity: str
    run: Run | None = None

    def members(self) -> list[EvaluatedPolicy]:
        """Each part by itself, where there is more than one."""
        if len(self.parts) == 1:
            return []
        return [
            EvaluatedPolicy(f"member {i}", f"member {i}", (part,), np.ones(1), (features,), self.identity)
            for i, (part, features) in enumerate(zip(self.parts, self.features, strict=True))
        ]


OLD = EvaluatedPolicy("old", "old policy", (None,), np.ones(1), (0,), "old")


def mixture_of(at: Measure, title: str) -> EvaluatedPolicy:
    """The mixture of the bundle that measures."""
    parts, weights, features = at.mixture()
    identity = str(at.served.manifest["id"])
    return EvaluatedPolicy("mixture", title, tuple(parts), weights, tuple(features), identity)


def from_file(at: Measure, path: str | Path, name: str) -> EvaluatedPolicy:
    """A policy from a Parquet table (`logs/policy_file.py`).

    Raises:
        LogError: if it is no such table, or no policy for these rows.
    """
    probability, identity = read_policy(path, at.data, at.panel.rows)
    return EvaluatedPolicy(name, Path(path).name, (probability,), np.ones(1), (0,), identity)


def from_run(at: Measure, run: Run, name: str) -> EvaluatedPolicy:
    """The mixture of another run on the users of `at`.

    Raises:
        FolderError: if it was trained on a log that was encoded otherwise.
    """
    bundle = load_bundle(run.bundle)
    if bundle.schema != at.data.schema or not np.array_equal(bundle.actions, at.data.actions):
        raise FolderError(
            "was trained on a log with other features, values or actions.", file=run.folder, where="--against",
            way_out="Train both runs on one DATA folder: outlay prepare once, then outlay train DATA.",
        )  # fmt: skip
    if len(run.fold_weights) != at.data.folds:
        raise FolderError(
            f"was trained with folds = {len(run.fold_weights)}, and the policy beside it with folds = {at.data.folds}: "
            "no users certify both.", file=run.folder, where="--against",
            way_out="Train both runs with the same --folds.",
        )  # fmt: skip
    whole = measured_on(at.data, bundle, run.fold_weights) if at.data.folds > 1 else Measure(at.data, at.split, bundle)
    other = mixture_of(whole, "")
    features = (0,) * len(other.parts)
    title = f"{run.folder.name} ({run.manifest['method']})"
    return EvaluatedPolicy(name, title, other.parts, other.weights, features, other.identity, run)


def compared_policy(at: Measure, against: str | Path | Run | None) -> EvaluatedPolicy | None:
    """The policy to hold another against: of a RUN folder or of a Parquet table; None is the old one.

    Raises:
        OutlayError: if there is no such folder or file, or it holds no policy for these rows.
    """
    if against is None or against == "old":
        return None
    if isinstance(against, Run):
        return from_run(at, against, "against")
    if not Path(against).exists():
        raise FolderError("does not exist.", file=against, where="--against",
                          way_out="Give a RUN folder, a policy's Parquet table, or old.")  # fmt: skip
    return from_run(at, Run.open(against), "against") if Path(against).is_dir() else from_file(at, against, "against")
