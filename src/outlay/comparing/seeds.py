"""All seeds of a comparison, learned and measured one after the other or side by side, and the means over them.

    seeds = Seeds(folder, campaign, trainings, most=1.8)
    seeds.learn(5, processes=2, report)                # what the folder does not hold yet
    seeds.outcomes(trainings[0], seed=0)               # of a finished training, by row and control
    mean_rows(seeds, 5, clusters)                      # the rows of the comparison

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
from outlay.comparing.contenders import Contender, Learning, PlannedTraining, values_of
from outlay.comparing.equal_spend import MethodEvaluator, MethodValues, Score, day_costs
from outlay.comparing.results import CAPTURED, CONTROLS, ORIGINAL, MethodRow, SeedMean, StoredCount
from outlay.comparing.true_values import true_values
from outlay.core.campaign import Campaign
from outlay.core.estimate import Target
from outlay.core.files import kind_of, new_folder, write_manifest
from outlay.core.parallel import in_processes
from outlay.core.progress import Progress, silent, within
from outlay.core.reasons import Reason
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.clusters import Clusters
from outlay.estimators.fitted import Fitted
from outlay.estimators.joint import combine
from outlay.estimators.units import estimates, objective
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


def yardsticks(evaluator: MethodEvaluator, measure: Measure) -> list[MethodRow]:
    """The rows of the log's policy and of the best constants: nothing is learned, so no seeds are needed."""
    outcomes = [SeedOutcome(MethodRow("old policy", "log", "none"), evaluator.old(measure))]
    if (best := evaluator.constants(measure)) is not None:
        values, words = best
        outcomes.append(SeedOutcome(MethodRow(f"best constants ({words})", "constant", "total"), values))
    return [mean_row([outcome], evaluator.campaign) for outcome in outcomes]


def mean_rows(
    learned: Seeds, seeds: int, clusters: Clusters | None
) -> tuple[list[MethodRow], dict[str, tuple[StoredCount, ...]]]:
    """The rows of all trainings, and the parameters in store by method.

    Args:
        learned: after `learn`.
        seeds: how many.
        clusters: of the users that methods were measured on.
    """
    rows: list[MethodRow] = []
    stored: dict[str, tuple[StoredCount, ...]] = {}
    for training in learned.trainings:
        by_seed = [learned.outcomes(training, seed, clusters) for seed in range(seeds)]
        for outcomes in zip(*by_seed, strict=True):
            rows.append(mean_row(outcomes, learned.campaign))
            if outcomes[0].course:
                stored[rows[-1].name] = _mean_course([outcome.course for outcome in outcomes])
            if outcomes[0].original:  # of the first oracle
                stored.setdefault(ORIGINAL, _mean_course([outcome.original for outcome in outcomes]))
    return rows, stored


def mean_row(outcomes: Sequence[SeedOutcome], campaign: Campaign) -> MethodRow:
    """The row of a method under a control, from its outcome after each seed."""
    row = outcomes[0].row
    refused = next((outcome.row.refused for outcome in outcomes if outcome.row.refused), None)
    seconds = [outcome.row.seconds for outcome in outcomes if outcome.row.seconds is not None]
    row = replace(row, seconds=float(np.mean(seconds)) if seconds else None, refused=refused)
    kept = [(outcome.row, outcome.values) for outcome in outcomes if outcome.values is not None]
    if not kept:
        return replace(row, stored_parameters=None)
    values = [each for _, each in kept]
    confidence, count = campaign.train.confidence, len(values)
    whole = combine([each.fitted for each in values], np.full(count, 1 / count))
    by_seed = [estimates(each.fitted, campaign, "", "fqe", confidence=confidence) for each in values]
    truths = [each.truth for each in values if each.truth is not None]
    wanted = _targets(campaign)
    # The truth has discounted means under a budget's name; what a table shows of a budget per user is its total.
    totals = {b.name: str(Target(b.name, campaign.meta.horizon_days)) for b in campaign.budgets if b.per == "user"}
    figures = {}
    for place, estimate in enumerate(estimates(whole, campaign, "", "fqe", confidence=confidence)):
        if estimate.target not in wanted:
            continue
        numbers = [each[place].value for each in by_seed]
        sd = None if count < 2 or None in numbers else float(np.std(np.array(numbers, np.float64), ddof=1))
        true = [truth[totals.get(estimate.target, estimate.target)] for truth in truths]
        figures[estimate.target] = SeedMean(estimate.value, estimate.low, estimate.high, sd, *_true_mean(true, count))
    if truths and all(CAPTURED in truth for truth in truths):
        truth, truth_sd = _true_mean([truth[CAPTURED] for truth in truths], count)
        figures[CAPTURED] = SeedMean(truth=truth, truth_sd=truth_sd)
    stored = [each.stored_parameters for each, _ in kept if each.stored_parameters is not None]
    return replace(row, figures=figures, stored_parameters=float(np.mean(stored)) if stored else None)


def _mean_course(courses: Sequence[Sequence[tuple[int, int]]]) -> tuple[StoredCount, ...]:
    """The mean over seeds of the parameters in store, step by step."""
    count = np.array([[stored for _, stored in course] for course in courses], np.float64)
    deviation = [None] * count.shape[1] if len(count) < 2 else count.std(axis=0, ddof=1).tolist()
    return tuple(
        StoredCount(step, mean, sd)
        for (step, _), mean, sd in zip(courses[0], count.mean(axis=0).tolist(), deviation, strict=True)
    )


def _true_mean(values: list[float], seeds: int) -> tuple[float | None, float | None]:
    """Mean and standard deviation over seeds; None where the truth is not known for all of them."""
    if len(values) < seeds:
        return None, None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if seeds > 1 else None


def _targets(campaign: Campaign) -> set[str]:
    """What the page shows: totals of the report days, what day one costs, what is maximised, each budget's own unit."""
    names = ["reward", *(budget.name for budget in campaign.budgets)]
    spans = {1, *campaign.meta.report_days}
    return {*names, objective(campaign), *(str(Target(name, k)) for name in names for k in spans)}
