"""What a comparison says of each method, and which orderings hold: the paper's, and the frontier's.

A difference counts where it is larger than two standard deviations over seeds; else it is a tie. Two methods are judged
by the truth where it is known of both; otherwise both are judged by the estimate.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from outlay.comparing.results import CONTROLS, RE_SOLVED, Finding, Kind, Limit, Row, past
from outlay.core.target import Target


def findings(rows: Sequence[Row], limits: Sequence[Limit], days: Sequence[int]) -> list[Finding]:
    """The orderings of the paper's second table under each control, and of the frontier under the campaign's limits.

    The frontier is one of the methods that look ahead; where those are ordered among themselves it is left out.

    Args:
        rows: all methods.
        limits: of the campaign.
        days: the spans of the totals that are reported: looking ahead is to win over all but the first day.
    """
    found = []
    for control in CONTROLS:
        here = [row for row in rows if row.control == control and row.figures]
        held = limits if control == "total" else ()
        said = itertools.chain(_ahead(here, held, days), _orders(here, held, max(days)))
        if control == "total":
            said = itertools.chain(said, _frontiers(here, held, max(days)))
        found += [one for one in said if one]
    return found


def _ahead(rows: Sequence[Row], limits: Sequence[Limit], days: Sequence[int]) -> Iterator[Finding | None]:
    """Methods that look ahead against the shortest labels and the longest, over every span."""
    ahead = [row for row in rows if row.group == "rl"]
    spans = sorted({row.label_days for row in rows if row.label_days})
    for k in sorted(set(days)):
        target = str(Target("reward", k))
        for span in spans[:1] + spans[1:][-1:]:
            others = [row for row in rows if row.label_days == span]
            kind = _kind([*ahead, *others], target)
            first, second = (_best(side, target, kind, limits) for side in (ahead, others))
            claim = (
                f"looking ahead {'above' if k > 1 else 'below'} {span}-day labels over {k} day{'s' if k > 1 else ''}"
            )
            yield _judged(claim, first, second, target, limits, above=k > 1)


def _orders(rows: Sequence[Row], limits: Sequence[Limit], days: int) -> Iterator[Finding | None]:
    """AIM-greedy ≥ single-best ≥ AIM-mean of every oracle, and BCQ ≥ EDRR ≥ DDQN under every rule."""
    at = {(row.oracle, row.rule): row for row in rows if row.group == "rl" and _own(row.rule)}
    oracles, rules = (dict.fromkeys(part) for part in zip(*at, strict=True)) if at else ({}, {})
    chains = [[(oracle, rule) for rule in ("aim-greedy", "single-best", "aim-mean")] for oracle in oracles]
    chains += [[(oracle, rule) for oracle in ("bcq", "edrr", "ddqn")] for rule in rules]
    for chain in chains:
        for one, other in itertools.pairwise(at.get(who) for who in chain):
            yield _ordered(one, other, limits, days)


def _own(rule: str | None) -> bool:
    """Whether it is a mixing rule with the weights that it found."""
    return rule is not None and rule != "frontier" and not rule.endswith(RE_SOLVED)


def _frontiers(rows: Sequence[Row], limits: Sequence[Limit], days: int) -> Iterator[Finding | None]:
    """The frontier of every oracle ≥ its AIM-greedy, weights solved alike; the counted one ≥ that of every oracle."""
    at = {(row.oracle, row.rule): row for row in rows if row.group == "rl"}
    learned = {oracle: row for (oracle, rule), row in at.items() if rule == "frontier" and oracle != "tabular"}
    for oracle, row in learned.items():
        yield _ordered(row, at.get((oracle, f"aim-greedy{RE_SOLVED}")), limits, days)
    for row in learned.values():
        yield _ordered(at.get(("tabular", "frontier")), row, limits, days)


def _ordered(one: Row | None, other: Row | None, limits: Sequence[Limit], days: int) -> Finding | None:
    claim = f"{one.name} ≥ {other.name}" if one and other else ""
    return _judged(claim, one, other, str(Target("reward", days)), limits, above=True)


def _judged(
    claim: str, one: Row | None, other: Row | None, target: str, limits: Sequence[Limit], *, above: bool
) -> Finding | None:
    """None where a number is missing."""
    if one is None or other is None:
        return None
    kind = _kind([one, other], target)
    (a, first_sd), (b, second_sd) = (_number(row, target, kind) for row in (one, other))
    if a is None or b is None:
        return None
    noise = 2 * float(np.hypot(first_sd or 0.0, second_sd or 0.0))
    difference = a - b if above else b - a
    return Finding(
        control=one.control,
        claim=claim,
        verdict="holds" if difference > noise else "does not hold" if difference < -noise else "a tie",
        proven=first_sd is not None and second_sd is not None,
        first=one.name,
        first_value=a,
        second=other.name,
        second_value=b,
        target=target,
        true=kind == "truth",
        over=tuple(row.name for row in (one, other) if any(_past(row, limit, kind) for limit in limits)),
    )


def _best(rows: Sequence[Row], target: str, kind: Kind, limits: Sequence[Limit]) -> Row | None:
    """The largest number, of those that keep every limit; of all, where none does."""
    known = [(value, row) for row in rows if (value := _number(row, target, kind)[0]) is not None]
    within = [one for one in known if not any(_past(one[1], limit, kind) for limit in limits)]
    return max(within or known, key=lambda one: one[0], default=(0.0, None))[1]


def _past(row: Row, limit: Limit, kind: Kind) -> bool:
    return past(_number(row, limit.name, kind)[0], limit.limit, limit.sign)


def _kind(rows: Sequence[Row], target: str) -> Kind:
    """The truth, where it is known of all."""
    return "truth" if all(_number(row, target, "truth")[0] is not None for row in rows) else "value"


def _number(row: Row, target: str, kind: Kind) -> tuple[float | None, float | None]:
    """A figure and its standard deviation over seeds."""
    figure = row.figures.get(target)
    if figure is None:
        return None, None
    return (figure.truth, figure.truth_sd) if kind == "truth" else (figure.value, figure.sd)
