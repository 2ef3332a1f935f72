"""The tables of the evaluation: estimators side by side, differences, gains by segment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from outlay.core.estimate import Estimate
from outlay.core.target import Target, longest_total
from outlay.evaluating.evaluation import Evaluation
from outlay.pages import evidence_words, words
from outlay.pages.report_words import target
from outlay.pages.results import RunResults

MOST_FIGURES = 4

Cell = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class EstimateTable:
    """Quantities against estimators or policies, as text.

    Attributes:
        heads: of the columns beside the first ones.
        rows: what a row is about (one text or more), and its cells: value, interval, whether to rely on it.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Cell, ...]], ...]


def side_by_side(results: RunResults, estimates: Sequence[Estimate]) -> EstimateTable:
    """Return a row for each quantity and a column for each estimator."""
    by = {(e.target, e.estimator): e for e in estimates}
    names = tuple(dict.fromkeys(e.estimator for e in estimates))
    rows = [
        ((target(results, text),), _cells([by.get((text, name)) for name in names]))
        for text in dict.fromkeys(e.target for e in estimates)
    ]
    return EstimateTable(names, tuple(rows))


def differences(results: RunResults) -> list[tuple[str, EstimateTable]]:
    """Return a table for each policy that the mixture is compared with, under its title; the old policy first."""
    by: dict[str, list[Estimate]] = {}
    for e in results.evaluated.differences:
        by.setdefault(e.against, []).append(e)
    titles = {**results.evaluated.policies, "old": "the old policy"}
    return [(titles[name], side_by_side(results, estimates)) for name, estimates in by.items()]


def segments(results: RunResults) -> list[tuple[str, EstimateTable]]:
    """Return old, new and change of each segment: a table for the reward's longest total and one for each budget."""
    return [
        (
            target(results, text),
            EstimateTable(
                ("old policy", "as served", "change"),
                tuple(
                    ((line.gain.segment, words.number(line.gain.users, 0)), _cells(line))
                    for line in results.segments
                    if line.gain.target == text
                ),
            ),
        )
        for text in segment_targets(results)
    ]


def segment_targets(results: RunResults) -> list[str]:
    """Return the quantities by segment that are shown, of those that were estimated."""
    known = {line.gain.target for line in results.segments}
    return [text for text in (longest_total(known), *(b.name for b in results.budgets)) if text in known]


def compared(results: RunResults) -> list[list[Estimate]]:
    """Return the mixture's estimates for the quantities to draw: its longest total and its budgets first."""
    groups: dict[str, list[Estimate]] = defaultdict(list)
    for e in results.evaluated.estimates:
        groups[e.target].append(e)
    shown = [text for text, each in groups.items() if sum(e.value is not None for e in each) > 1]
    days = {span for text in shown if (span := Target.parse(text).days) is not None}
    totals = [str(Target("reward", span)) for span in sorted(days, reverse=True)]
    order = [*totals[:1], *(b.name for b in results.budgets), "reward", *totals[1:]]
    return [groups[text] for text in order if text in shown][:MOST_FIGURES]


def by_quantity(evaluation: Evaluation) -> tuple[list[Estimate], list[Estimate]]:
    """Return the estimates of the evaluated policy and those of the others, quantity by quantity."""
    order = list(dict.fromkeys(e.target for e in (*evaluation.estimates, *evaluation.beside)))
    mine, others = (sorted(es, key=lambda e: order.index(e.target)) for es in (evaluation.estimates, evaluation.beside))
    return mine, others


def _cells(estimates: Sequence[Estimate | None]) -> tuple[Cell, ...]:
    """Return one row, rounded alike: as finely as the best of the numbers to be relied on needs."""
    given = [e for e in estimates if e is not None]
    digits = words.decimals([e for e in given if e.recommended] or given)
    return tuple(
        (words.NONE, "", True) if e is None or e.value is None else (*evidence_words.estimate(e, digits), e.recommended)
        for e in estimates
    )
