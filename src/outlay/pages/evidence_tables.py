"""The tables of the evaluation: estimators side by side, differences, gains by segment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from outlay.core.estimate import Estimate
from outlay.core.target import Target
from outlay.pages import evidence_words, words
from outlay.pages.content import ReportContent

MOST_FIGURES = 4

Cell = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class Table:
    """Quantities against estimators or policies, as texts.

    Attributes:
        heads: of the columns beside the first ones.
        rows: what a row is about (one text or more), and its cells: value, interval, whether to rely on it.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Cell, ...]], ...]


def side_by_side(content: ReportContent, estimates: Sequence[Estimate]) -> Table:
    """A row for each quantity, a column for each estimator."""
    by = {(e.target, e.estimator): e for e in estimates}
    names = tuple(dict.fromkeys(e.estimator for e in estimates))
    rows = [
        ((words.target(content, target),), _cells([by.get((target, name)) for name in names]))
        for target in dict.fromkeys(e.target for e in estimates)
    ]
    return Table(names, tuple(rows))


def segments(content: ReportContent) -> list[tuple[str, Table]]:
    """Old, new and change of each segment: a table for the reward's longest total and one for each budget."""
    return [
        (
            words.target(content, target),
            Table(
                ("old policy", "as served", "change"),
                tuple(
                    ((line.segment, words.number(line.users, 0)), _cells([line.old, line.new, line.gain]))
                    for line in content.segments
                    if line.target == target
                ),
            ),
        )
        for target in segment_targets(content)
    ]


def segment_targets(content: ReportContent) -> list[str]:
    """The quantities by segment that are shown, of those that are there."""
    known = {line.target for line in content.segments}
    first = evidence_words.longest(known)
    return [target for target in (first, *(b.name for b in content.budgets)) if target in known]


def compared(content: ReportContent) -> list[list[Estimate]]:
    """What several estimators say of the mixture: its longest total and its budgets first."""
    groups: dict[str, list[Estimate]] = defaultdict(list)
    for e in content.estimates:
        if e.policy == "mixture":
            groups[e.target].append(e)
    shown = [t for t, each in groups.items() if sum(e.value is not None for e in each) > 1]
    days = sorted({int(t.partition("@")[2]) for t in shown if "@" in t}, reverse=True)
    names = [b.name for b in content.budgets]
    order = [
        *(str(Target("reward", d)) for d in days[:1]),
        *names,
        "reward",
        *(str(Target("reward", d)) for d in days[1:]),
    ]
    return [groups[target] for target in order if target in shown][:MOST_FIGURES]


def listed(content: ReportContent) -> tuple[list[Estimate], list[Estimate]]:
    """All estimates, those of the mixture and the others, quantity by quantity."""
    targets = list(dict.fromkeys(e.target for e in content.estimates))
    ordered = sorted(content.estimates, key=lambda e: targets.index(e.target))
    return [e for e in ordered if e.policy == "mixture"], [e for e in ordered if e.policy != "mixture"]


def _cells(estimates: Sequence[Estimate | None]) -> tuple[Cell, ...]:
    """One row, rounded alike: as finely as the best of the numbers to be relied on calls for."""
    known = [evidence_words.interval(e) for e in estimates if e is not None and e.recommended]
    digits = words.decimals(known or [evidence_words.interval(e) for e in estimates if e is not None])
    return tuple(
        (words.NONE, "", True) if e is None or e.value is None else (*evidence_words.estimate(e, digits), e.recommended)
        for e in estimates
    )
