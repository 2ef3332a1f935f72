"""All seeds of a comparison: learned one after the other or side by side, and their means in one row a method.

learn_seeds(folder, campaign, trainings, seeds, most, processes, report)
row = mean_row(outcomes[0].row, outcomes, campaign)          # the outcomes of one method, one for each seed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from outlay.choosing.measure import Measure
from outlay.comparing.equal_spend import MethodEvaluator
from outlay.comparing.results import CAPTURED, MethodRow, SeedMean, StoredCount
from outlay.comparing.trainings import TRAINED, PlannedTraining, SeedOutcome, learn_seed
from outlay.core.campaign import Campaign
from outlay.core.parallel import in_processes
from outlay.core.progress import Progress, within
from outlay.core.target import Target
from outlay.estimators.fitted import combine
from outlay.estimators.units import estimates, objective


def learn_seeds(
    folder: Path,
    campaign: Campaign,
    trainings: Sequence[PlannedTraining],
    seeds: int,
    most: float,
    processes: int,
    report: Progress,
) -> None:
    """Run every training with every seed that FOLDER/trained does not hold yet.

    Args:
        folder: with data/.
        campaign: its campaign.
        trainings: from `planned`.
        seeds: how many.
        most: what day one may cost per user under immediate control.
        processes: seeds that are learned side by side.
        report: called with the share done and what is being done.
    """
    if (count := min(processes, seeds)) <= 1:
        for seed in range(seeds):
            of_seed = within(report, seed / seeds, (seed + 1) / seeds, f"seed {seed + 1} of {seeds}, ")
            learn_seed(folder, campaign, trainings, seed, most, of_seed)
        return

    def tell() -> None:
        finished = len(list((folder / TRAINED).glob("seed-*/*/rows.json")))
        total = seeds * len(trainings)
        report(finished / total, f"{finished} of {total} trainings")

    for _ in in_processes(partial(_learn_seed, folder, campaign, trainings, most), range(seeds), count, tell):
        tell()


def _learn_seed(folder: Path, campaign: Campaign, trainings: Sequence[PlannedTraining], most: float, seed: int) -> None:
    learn_seed(folder, campaign, trainings, seed, most)


def yardsticks(evaluator: MethodEvaluator, measure: Measure) -> Iterator[MethodRow]:
    """The rows of the log's policy and of the best constants: nothing is learned, so no seeds are needed."""
    campaign = evaluator.campaign
    old = MethodRow("old policy", "log", "none")
    yield mean_row(old, [SeedOutcome(old, evaluator.old(measure))], campaign)
    if (best := evaluator.constants(measure)) is not None:
        values, words = best
        constants = MethodRow(f"best constants ({words})", "constant", "total")
        yield mean_row(constants, [SeedOutcome(constants, values)], campaign)


def mean_row(row: MethodRow, outcomes: Sequence[SeedOutcome], campaign: Campaign) -> MethodRow:
    """A row with the means over its seeds.

    Args:
        row: names the method and its control.
        outcomes: one for each seed.
        campaign: the campaign.
    """
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


def mean_course(courses: Sequence[Sequence[tuple[int, int]]]) -> tuple[StoredCount, ...]:
    """The mean over seeds of the parameters in store, step by step.

    Args:
        courses: of each seed, (gradient step, parameters stored).
    """
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
