"""A comparison in words: its controls, what leads, and each ordering that was looked at.

Rows and findings as comparison.json has them in, words out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outlay.comparing.results import CONTROLS, Kind, past
from outlay.core.target import Target
from outlay.pages import words
from outlay.pages.content import BudgetLine

MARKS = {"holds": "✓", "a tie": "≈", "does not hold": "✕"}

Row = Mapping[str, Any]

_KINDS = {"rl": "looking ahead", "two-stage": "two-stage", "constant": "best constants"}
BY = {"truth": "true", "value": "estimated"}


def of_limit(cost: float | None, limit: float) -> str:
    """A cost as a share of its limit: `99.2 %`."""
    return words.NONE if cost is None or limit <= 0 else f"{100 * cost / limit:.1f} %"


def share(figure: Mapping[str, Any]) -> tuple[str, str]:
    """A true share with its spread over seeds: `0.62`, `± 0.05`."""
    if figure["truth"] is None:
        return words.NONE, ""
    spread = figure["truth_sd"]
    return f"{figure['truth']:.2f}", "" if spread is None else f"± {spread:.2f}"


def seconds(time: float | None) -> str:
    """`8.4 s`, `64 s`."""
    return words.NONE if time is None else f"{time:.{0 if time >= 10 else 1}f} s"


def keeps(row: Row, budgets: Sequence[BudgetLine], kind: Kind) -> bool:
    """Whether every cost of a row is known and within its limit."""
    costs = {b: row["figures"].get(b.name, {}).get(kind) for b in budgets}
    return all(cost is not None and not past(cost, b.limit, b.sign) for b, cost in costs.items())


def lead(found: Row, rows: Sequence[Row], limits: Sequence[BudgetLine]) -> str:
    """The best of each kind over the longest horizon, of those that keep every limit, beside the old policy.

    All methods are judged by the truth where it is known of all of them, else all by the estimate.

    Args:
        found: the comparison.
        rows: under one control.
        limits: that the control holds.
    """
    target = str(Target("reward", max(found["report_days"])))
    here = [row for row in rows if target in row["figures"]]
    true = all(row["figures"][target]["truth"] is not None for row in here if row["group"] != "log")
    kind: Kind = "truth" if true else "value"
    groups = {title: [row for row in here if row["group"] == group] for group, title in _KINDS.items()}
    said = [_best(title, group, target, limits, kind) for title, group in groups.items()]
    said += [_old(row, target, limits, kind) for row in here if row["group"] == "log"]
    if not any(said):
        return "Nothing could be evaluated"
    which = f"the best of each kind{f' that keeps {_every(limits)}' if limits else ''}"
    what = f"{BY[kind].capitalize()} {found['reward_label']} in {words.days(max(found['report_days']))}"
    return f"{what}, {which}: {'; '.join(filter(None, said))}"


def _best(title: str, rows: Sequence[Row], target: str, limits: Sequence[BudgetLine], kind: Kind) -> str:
    known = [row for row in rows if row["figures"][target][kind] is not None]
    within = [row for row in known if keeps(row, limits, kind)]
    if not within:
        return f"{title} none" if known else ""
    best = max(within, key=lambda row: float(row["figures"][target][kind]))
    return f"{best['name'].partition(' (')[0]} {words.number(best['figures'][target][kind])}"


def _old(row: Row, target: str, limits: Sequence[BudgetLine], kind: Kind) -> str:
    """The old policy as it is: it was not chosen to keep a limit."""
    figure = row["figures"][target]
    by: Kind = kind if figure[kind] is not None else "value"
    notes = [] if by == kind else [BY[by]]
    notes += [] if keeps(row, limits, by) else [f"does not keep {_every(limits)}"]
    return f"{row['name']} {words.number(figure[by])}" + (f" ({', '.join(notes)})" if notes else "")


def _every(limits: Sequence[BudgetLine]) -> str:
    return "the limit" if len(limits) == 1 else "every limit"


def numbers(finding: Row, reward: str) -> str:
    """The two values that an ordering was judged by."""
    first, second = (f"{finding[which]} {finding[f'{which}_value']:.4f}" for which in ("first", "second"))
    days = words.days(Target.parse(finding["target"]).days or 1)
    text = f"{first} against {second}, {BY['truth' if finding['true'] else 'value']} {reward} in {days}"
    return text + "".join(f"; {name} breaks a limit" for name in finding["over"])


def sentence(finding: Row, reward: str) -> str:
    """One ordering, its verdict and its numbers."""
    verdict = finding["verdict"] + ("" if finding["proven"] else " in one seed, which proves nothing")
    return f"{CONTROLS[finding['control']]}: {finding['claim']}: {verdict} ({numbers(finding, reward)})."


def count(findings: Sequence[Row]) -> str:
    """How many orderings hold."""
    proven = [finding for finding in findings if finding["proven"]]
    parts = []
    for listed, title in ((proven, "Orderings"), ([f for f in findings if not f["proven"]], "In one seed, orderings")):
        if listed:
            verdicts = [finding["verdict"] for finding in listed]
            holds, ties, fails = (verdicts.count(verdict) for verdict in MARKS)
            parts.append(f"{title} that hold: {holds}; ties: {ties}; that do not hold: {fails}")
    return ". ".join(parts)
