"""Means over seeds: of the outcomes of one method in one row, and of the parameters that it stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from outlay.choosing.measure import Measure
from outlay.comparing.equal_spend import MethodEvaluator
from outlay.comparing.results import CAPTURED, ORIGINAL, MethodRow, SeedMean, StoredCount
from outlay.comparing.seeds import SeedOutcome, Seeds
from outlay.core.campaign import Campaign
from outlay.core.target import Target
from outlay.estimators.clusters import Clusters
from outlay.estimators.joint import combine
from outlay.estimators.units import estimates, objective


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
