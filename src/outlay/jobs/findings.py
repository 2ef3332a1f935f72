"""What a comparison says of each method, and which of the paper's orderings hold, in words.

A difference counts where it is larger than two standard deviations over seeds; else it is a tie. Where the truth is
known it is judged by the truth.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Figure:
    """One number of one row.

    Attributes:
        value: mean over seeds, estimated; None where it is withheld.
        low, high: interval of the mean over seeds; None where there is none.
        sd: standard deviation over seeds; None for one seed.
        truth: true mean over seeds; None where it is not known.
        truth_sd: its standard deviation over seeds.
    """

    value: float | None
    low: float | None
    high: float | None
    sd: float | None
    truth: float | None
    truth_sd: float | None


@dataclass(frozen=True)
class Row:
    """A method under one control.

    Attributes:
        name: of the method.
        group: `log`, `constant`, `two-stage` or `rl`.
        control: `immediate`, `total`, or `none` for the log's policy.
        oracle, rule, label_days: of the method; None where it has none.
        figures: by target: `reward@7`, `coupon_cost`, ….
        stored_parameters, seconds: means over seeds; None where nothing was learned.
        refused: why there are no figures, if there are none.
    """

    name: str
    group: str
    control: str
    oracle: str | None = None
    rule: str | None = None
    label_days: int | None = None
    figures: dict[str, Figure] = field(default_factory=dict)
    stored_parameters: float | None = None
    seconds: float | None = None
    refused: str | None = None


def findings(rows: Sequence[Row], days: Sequence[int], reward: str) -> list[str]:
    """One sentence for each ordering of the paper's second table, under each control."""
    said = []
    for control, words in (("immediate", "equal spend on day one"), ("total", "the campaign's limits")):
        here = [row for row in rows if row.control == control and row.figures]
        ahead = [row for row in here if row.group == "rl"]
        spans = sorted({row.label_days for row in here if row.label_days})
        for k in days:
            target = f"reward@{k}"
            first = _best(ahead, target)
            for span in spans[:1] + spans[1:][-1:]:  # the shortest labels and the longest
                second = _best([row for row in here if row.label_days == span], target)
                if first is not None and second is not None:
                    claim = f"{words}, {k} d: looking ahead {'above' if k > 1 else 'below'} {span}-day labels"
                    said.append(_said(claim, first, second, target, reward, above=k > 1))
        last = f"reward@{max(days)}"
        for oracle in dict.fromkeys(row.oracle for row in ahead):
            order = [(oracle, rule) for rule in ("aim-greedy", "single-best", "aim-mean")]
            said += _chain(ahead, last, reward, words, order)
        for rule in dict.fromkeys(row.rule for row in ahead):
            said += _chain(ahead, last, reward, words, [(oracle, rule) for oracle in ("bcq", "edrr", "ddqn")])
    return said


def _best(rows: Sequence[Row], target: str) -> Row | None:
    known = [row for row in rows if _value(row.figures.get(target)) is not None]
    return max(known, key=lambda row: _value(row.figures[target]) or 0.0, default=None)


def _chain(
    rows: Sequence[Row], target: str, reward: str, words: str, order: Sequence[tuple[str | None, str | None]]
) -> list[str]:
    """`a ≥ b` and `b ≥ c`, where the rows are there."""
    found = [_best([row for row in rows if (row.oracle, row.rule) == who], target) for who in order]
    return [
        _said(f"{words}: {one.name} ≥ {other.name}", one, other, target, reward, above=True)
        for one, other in itertools.pairwise(found)
        if one is not None and other is not None
    ]


def _said(claim: str, one: Row, other: Row, target: str, reward: str, *, above: bool) -> str:
    first, second = one.figures[target], other.figures[target]
    a, b = _value(first), _value(second)
    assert a is not None
    assert b is not None
    noise = 2 * float(np.hypot(_sd(first), _sd(second)))
    difference = a - b if above else b - a
    verdict = "holds" if difference > noise else "does not hold" if difference < -noise else "a tie"
    if first.sd is None or second.sd is None:
        verdict += " in one seed, which proves nothing"
    days = target.partition("@")[2]
    by = "" if first.truth is None or second.truth is None else "true "
    return f"{claim}: {verdict} ({one.name} {a:.4f}, {other.name} {b:.4f} {by}{reward} in {days} d)."


def _value(figure: Figure | None) -> float | None:
    if figure is None:
        return None
    return figure.value if figure.truth is None else figure.truth


def _sd(figure: Figure) -> float:
    return (figure.sd if figure.truth is None else figure.truth_sd) or 0.0
