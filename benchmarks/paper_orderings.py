"""Which orderings of the paper's second table hold in a comparison, and whether the frontier leads.

    python benchmarks/paper_orderings.py comparison/comparison.json

A difference counts where it is larger than two standard deviations over seeds; otherwise it is a tie. Two methods are
judged by the truth where it is known of both; otherwise both are judged by the estimate.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from outlay.comparing.results import CONTROLS, RE_SOLVED, Comparison, Kind, MethodRow, breaks_limit, decided_by
from outlay.core import wording as words
from outlay.core.campaign import BudgetLimit
from outlay.core.estimate import Target

Verdict = Literal["holds", "does not hold", "a tie"]


@dataclass(frozen=True)
class Ordering:
    """Whether one ordering holds.

    Attributes:
        control: `immediate` or `total`.
        claim: the ordering, `BCQ, lp ≥ EDRR, lp`.
        verdict: of the two numbers.
        proven: False where a spread over seeds is not known, so that nothing is proven.
        first, first_value: a method and its reward.
        second, second_value: the method that it is compared with.
        target: the reward that decides, `reward@7`.
        kind: whether both values are true or both are estimated.
        over: those of the two methods that break a limit of the campaign.
    """

    control: str
    claim: str
    verdict: Verdict
    proven: bool
    first: str
    first_value: float
    second: str
    second_value: float
    target: str
    kind: Kind
    over: tuple[str, ...] = ()

    def sentence(self, reward: str) -> str:
        """The ordering, its verdict and its numbers."""
        verdict = self.verdict + ("" if self.proven else " in one seed, which proves nothing")
        days = words.days(Target.parse(self.target).days or 1)
        by = "true" if self.kind == "truth" else "estimated"
        numbers = f"{self.first} {self.first_value:.4f} against {self.second} {self.second_value:.4f}"
        over = "".join(f"; {name} breaks a limit" for name in self.over)
        return f"{CONTROLS[self.control]}: {self.claim}: {verdict} ({numbers}, {by} {reward} in {days}{over})."


def orderings(rows: Sequence[MethodRow], limits: Sequence[BudgetLimit], days: Sequence[int]) -> list[Ordering]:
    """The orderings of the paper's second table under each control, and of the frontier under the campaign's limits.

    The frontier is one of the methods that look ahead; where those are ordered among themselves it is left out.

    Args:
        rows: all methods.
        limits: of the campaign.
        days: of the totals that are reported: looking ahead should win over all but the first day.
    """
    judged: list[Ordering | None] = []
    for control in CONTROLS:
        here = [row for row in rows if row.control == control and row.figures]
        kept = limits if control == "total" else ()
        judged += [*_looking_ahead(here, kept, days), *_rules_and_oracles(here, kept, max(days))]
        if control == "total":
            judged += _frontiers(here, kept, max(days))
    return [ordering for ordering in judged if ordering is not None]


def count(judged: Sequence[Ordering]) -> str:
    """How many orderings hold; those of one seed are counted apart."""
    proven, open_ = ([one for one in judged if one.proven is known] for known in (True, False))
    parts = []
    for listed, title in ((proven, "Orderings"), (open_, "In one seed, orderings")):
        if listed:
            verdicts = [one.verdict for one in listed]
            holds, ties, fails = (verdicts.count(verdict) for verdict in ("holds", "a tie", "does not hold"))
            parts.append(f"{title} that hold: {holds}; ties: {ties}; that do not hold: {fails}")
    return ". ".join(parts)


def _looking_ahead(
    rows: Sequence[MethodRow], limits: Sequence[BudgetLimit], days: Sequence[int]
) -> Iterator[Ordering | None]:
    """Methods that look ahead against the shortest labels and the longest, over every span."""
    ahead = [row for row in rows if row.group == "rl"]
    spans = sorted({row.label_days for row in rows if row.label_days})
    for k in sorted(set(days)):
        target = str(Target("reward", k))
        for span in spans[:1] + spans[1:][-1:]:
            others = [row for row in rows if row.label_days == span]
            kind = decided_by([*ahead, *others], target)
            first, second = (_best(side, target, kind, limits) for side in (ahead, others))
            claim = f"looking ahead {'above' if k > 1 else 'below'} {span}-day labels over {words.days(k)}"
            yield _judged(claim, first, second, target, limits, above=k > 1)


def _rules_and_oracles(
    rows: Sequence[MethodRow], limits: Sequence[BudgetLimit], days: int
) -> Iterator[Ordering | None]:
    """AIM-greedy ≥ single-best ≥ AIM-mean of every oracle, AIM-greedy ≥ bisection, and BCQ ≥ EDRR ≥ DDQN by rule."""
    at = {(row.oracle, row.rule): row for row in rows if row.group == "rl" and _has_own_weights(row)}
    oracles, rules = (dict.fromkeys(part) for part in zip(*at, strict=True)) if at else ({}, {})
    chains = [[(oracle, rule) for rule in ("aim-greedy", "single-best", "aim-mean")] for oracle in oracles]
    chains += [[(oracle, rule) for rule in ("aim-greedy", "bisection")] for oracle in oracles]
    chains += [[(oracle, rule) for oracle in ("bcq", "edrr", "ddqn")] for rule in rules]
    for chain in chains:
        for one, other in itertools.pairwise(at.get(method) for method in chain):
            yield _ordered(one, other, limits, days)


def _has_own_weights(row: MethodRow) -> bool:
    """Whether it is a mixing rule with the weights that it found."""
    return row.rule is not None and row.rule != "frontier" and not row.re_solved


def _frontiers(rows: Sequence[MethodRow], limits: Sequence[BudgetLimit], days: int) -> Iterator[Ordering | None]:
    """The frontier of every oracle ≥ its AIM-greedy, weights solved alike; the counted one ≥ that of every oracle."""
    at = {(row.oracle, row.rule): row for row in rows if row.group == "rl"}
    learned = {oracle: row for (oracle, rule), row in at.items() if rule == "frontier" and oracle != "tabular"}
    for oracle, row in learned.items():
        yield _ordered(row, at.get((oracle, f"aim-greedy{RE_SOLVED}")), limits, days)
    for row in learned.values():
        yield _ordered(at.get(("tabular", "frontier")), row, limits, days)


def _ordered(
    one: MethodRow | None, other: MethodRow | None, limits: Sequence[BudgetLimit], days: int
) -> Ordering | None:
    claim = f"{one.name} ≥ {other.name}" if one and other else ""
    return _judged(claim, one, other, str(Target("reward", days)), limits, above=True)


def _judged(
    claim: str,
    one: MethodRow | None,
    other: MethodRow | None,
    target: str,
    limits: Sequence[BudgetLimit],
    *,
    above: bool,
) -> Ordering | None:
    """The verdict on one ordering; None where a number is missing."""
    if one is None or other is None or target not in one.figures or target not in other.figures:
        return None
    kind = decided_by([one, other], target)
    a, b = one.number(target, kind), other.number(target, kind)
    if a is None or b is None:
        return None
    spreads = [row.figures[target].spread(kind) for row in (one, other)]
    noise = 2 * math.hypot(*(sd or 0.0 for sd in spreads))
    difference = a - b if above else b - a
    return Ordering(
        control=one.control,
        claim=claim,
        verdict="holds" if difference > noise else "does not hold" if difference < -noise else "a tie",
        proven=None not in spreads,
        first=one.name,
        first_value=a,
        second=other.name,
        second_value=b,
        target=target,
        kind=kind,
        over=tuple(row.name for row in (one, other) if _breaks(row, limits, kind)),
    )


def _best(rows: Sequence[MethodRow], target: str, kind: Kind, limits: Sequence[BudgetLimit]) -> MethodRow | None:
    """The largest number, of those that keep every limit; of all, where none does."""
    known = [(value, row) for row in rows if (value := row.number(target, kind)) is not None]
    within = [one for one in known if not _breaks(one[1], limits, kind)]
    return max(within or known, key=lambda one: one[0], default=(0.0, None))[1]


def _breaks(row: MethodRow, limits: Sequence[BudgetLimit], kind: Kind) -> bool:
    return any(breaks_limit(row.number(limit.name, kind), limit) for limit in limits)


def main() -> None:
    """Print every ordering of a comparison as a sentence, and how many hold."""
    comparison = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Comparison)
    judged = orderings(comparison.rows, comparison.budgets, comparison.report_days)
    for ordering in judged:
        print(ordering.sentence(comparison.reward_label))
    print(f"{count(judged)}.")


if __name__ == "__main__":
    main()
