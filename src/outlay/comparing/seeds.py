"""All seeds of a comparison, learned and measured one after the other or side by side; finished trainings are kept.

    seeds = Seeds(folder, campaign, trainings, most=1.8)
    seeds.learn(5, processes=2, report)                # what the folder does not hold yet
    seeds.outcomes(trainings[0], seed=0)               # of a finished training, by row and control

FOLDER/trained/seed-0/… holds a folder for each training, which is whole or absent: an interrupted comparison continues
with the first that is absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from pydantic import TypeAdapter

from outlay.bundles.read import load_bundle
from outlay.bundles.write import write_bundle
from outlay.choosing.measure import Measure
from outlay.comparing.contenders import Contender, Learning, values_of
from outlay.comparing.equal_spend import MethodEvaluator, MethodValues, Score, day_costs
from outlay.comparing.planned import PlannedTraining
from outlay.comparing.results import CONTROLS, MethodRow
from outlay.comparing.true_values import true_values
from outlay.core.campaign import Campaign
from outlay.core.files import kind_of, new_folder, write_manifest
from outlay.core.parallel import in_processes
from outlay.core.progress import Progress, silent, within
from outlay.core.reasons import Reason
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.clusters import Clusters
from outlay.estimators.fitted import Fitted
from outlay.response.model import Kind
from outlay.training.two_stage import FittedPolicies

TRAINED, DAY_COSTS, ENTRIES = "trained", "day-costs", "rows.json"
DAY_COST_MODEL: tuple[Kind, int] = ("deepfm", 1)  # predicts what a day costs, for all methods of a seed


@dataclass(frozen=True)
class SeedOutcome:
    """A row under one control after one seed.

    Attributes:
        row: without figures; what it stores, its seconds and why it was refused are of this seed.
        values: measured; None where it was refused.
        course: (gradient steps, parameters stored) of the training.
        original: the same of the original method.
    """

    row: MethodRow
    values: MethodValues | None = None
    course: list[tuple[int, int]] = field(default_factory=list)
    original: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class KeptOutcome:
    """What rows.json has of an outcome; the arrays of the estimates lie beside it."""

    row: MethodRow
    course: list[tuple[int, int]]
    original: list[tuple[int, int]]
    targets: tuple[str, ...] | None = None  # None where it was refused
    withheld: tuple[Reason | None, ...] = ()
    truth: dict[str, float] | None = None


KEPT = TypeAdapter(list[KeptOutcome])


@dataclass(frozen=True)
class Seeds:
    """The trainings of a comparison.

    Attributes:
        folder: with data/.
        campaign: its campaign.
        trainings: from `planned`.
        most: what day one may cost per user under immediate control.
    """

    folder: Path
    campaign: Campaign
    trainings: Sequence[PlannedTraining]
    most: float

    def learn(self, seeds: int, processes: int, report: Progress) -> None:
        """Run every training that the folder does not hold yet, with so many seeds side by side."""
        if (count := min(processes, seeds)) <= 1:
            for seed in range(seeds):
                self.learn_seed(seed, within(report, seed / seeds, (seed + 1) / seeds, f"seed {seed + 1} of {seeds}, "))
            return

        def tell() -> None:
            finished, total = len(list((self.folder / TRAINED).glob(f"*/*/{ENTRIES}"))), seeds * len(self.trainings)
            report(finished / total, f"{finished} of {total} trainings")

        for _ in in_processes(partial(Seeds.learn_seed, self), range(seeds), count, tell):
            tell()

    def learn_seed(self, seed: int, report: Progress = silent) -> None:
        """Learn and measure with one seed what the folder does not hold yet."""
        missing = [one for one in self.trainings if not self._is_kept(one, seed)]
        if not missing:
            return
        data, fitted = Transitions.open(self.folder / "data"), None
        evaluator = MethodEvaluator(data, self.campaign, true_values(self.campaign, data))
        learning = Learning(data, self.campaign, seed, self.folder / f"work-{seed}")
        model = self.folder / TRAINED / f"seed-{seed}" / DAY_COSTS
        parts = 1 + len(missing)
        if kind_of(model) is None:
            fitted = learning.response(*DAY_COST_MODEL, within(report, 0, 1 / parts))
            write_bundle(model, values_of(fitted))
        costs = day_costs(load_bundle(model), self.campaign.money)
        for number, training in enumerate(missing, start=1):
            told, outcomes = within(report, number / parts, (number + 1) / parts), list[SeedOutcome]()
            for contender in _learned(learning, training, fitted, told):
                outcomes += _measured(evaluator, contender, costs, self.most)
            self.keep(training, seed, outcomes)

    def keep(self, training: PlannedTraining, seed: int, outcomes: Sequence[SeedOutcome]) -> None:
        """Write the outcomes of a finished training."""
        with new_folder(self._place(training, seed)) as temporary:
            entries = []
            for number, outcome in enumerate(outcomes):
                kept = KeptOutcome(outcome.row, outcome.course, outcome.original)
                if outcome.values is not None:
                    fitted, truth = outcome.values
                    kept = replace(kept, targets=fitted.targets, withheld=fitted.withheld, truth=truth)
                    np.savez(
                        temporary / f"{number}.npz",
                        value=fitted.value,
                        influence=fitted.influence.astype(np.float32),
                        mass=fitted.mass.astype(np.float32),
                        unsupported=fitted.unsupported,
                        daily=fitted.daily,
                    )
                entries.append(kept)
            (temporary / ENTRIES).write_bytes(KEPT.dump_json(entries))
            write_manifest(temporary, "rows", {})

    def outcomes(self, training: PlannedTraining, seed: int, clusters: Clusters | None = None) -> list[SeedOutcome]:
        """Read the outcomes of a finished training; `clusters` are those of the users that it was measured on."""
        place, names, found = self._place(training, seed), {row.name for row in training.rows}, []
        for number, kept in enumerate(_entries(place)):
            if kept.row.name in names:
                values = None
                if kept.targets is not None:
                    with np.load(place / f"{number}.npz", allow_pickle=False) as file:
                        arrays = {name: file[name] for name in file.files}
                    fitted = Fitted(targets=kept.targets, withheld=kept.withheld, clusters=clusters, **arrays)
                    values = MethodValues(fitted, kept.truth)
                found.append(SeedOutcome(kept.row, values, kept.course, kept.original))
        return found

    def _place(self, training: PlannedTraining, seed: int) -> Path:
        return self.folder / TRAINED / f"seed-{seed}" / training.name

    def _is_kept(self, training: PlannedTraining, seed: int) -> bool:
        place = self._place(training, seed)
        wanted = {row.name for row in training.rows}
        return kind_of(place) == "rows" and wanted <= {kept.row.name for kept in _entries(place)}


def _learned(
    learning: Learning, training: PlannedTraining, day_cost: FittedPolicies | None, report: Progress
) -> Iterator[Contender]:
    """Learn what a training needs; `day_cost` is the model of the day's costs where it was fitted just before."""
    if training.kind == "game":
        yield from learning.rules(training, report)
    elif training.kind == "bisection":
        yield learning.bisection(training, report)
    elif training.kind == "frontier":
        yield learning.frontier(training, report)
    elif day_cost is not None and (training.learner, training.label_days) == DAY_COST_MODEL:
        yield learning.priced(training, day_cost)
    else:
        fitted = learning.response(cast(Kind, training.learner), training.label_days, report)
        yield learning.priced(training, fitted)


def _measured(evaluator: MethodEvaluator, contender: Contender, costs: Score, most: float) -> Iterator[SeedOutcome]:
    """A contender under both controls, measured by the features of what it serves, else of what it learned."""
    row, learned = contender.row, contender.learned
    by = contender.bundle or learned
    measure = None if by is None else Measure(evaluator.data, CERTIFY, by)
    for control in CONTROLS:
        values, refused = None, row.refused
        if control == "immediate":
            if row.re_solved:
                continue  # what is learned is the same: the row beside it prices it
            if measure is not None and learned is not None:
                values = evaluator.immediate(measure, learned, costs, most)
                refused = f"even the cheapest actions cost more than {most:.4g} on day one"
        elif measure is not None and contender.bundle is not None:
            values = evaluator.served(measure)
        stored = None if values is None else row.stored_parameters
        under = replace(row, control=control, stored_parameters=stored, refused=refused if values is None else None)
        yield SeedOutcome(under, values, contender.course, contender.original)


def _entries(place: Path) -> list[KeptOutcome]:
    return KEPT.validate_json((place / ENTRIES).read_bytes())
