"""A comparison in words: what leads under each control, and single figures as the page and the terminal write them."""

from __future__ import annotations

from collections.abc import Sequence

from outlay.comparing.results import Comparison, Kind, MethodRow, SeedMean, decided_by, leaders
from outlay.core.campaign import BudgetLimit
from outlay.core.target import Target
from outlay.pages import words

BY = {"truth": "true", "value": "estimated"}

_KINDS = {"rl": "looking ahead", "two-stage": "two-stage", "constant": "best constants"}


def of_limit(cost: float | None, limit: float) -> str:
    """A cost as a share of its limit: `99.2%`."""
    return words.NONE if cost is None or limit <= 0 else f"{100 * cost / limit:.1f}%"


def share(figure: SeedMean | None) -> tuple[str, str]:
    """A true share with its spread over seeds: `0.62`, `± 0.05`."""
    if figure is None or figure.truth is None:
        return words.NONE, ""
    return f"{figure.truth:.2f}", "" if figure.truth_sd is None else f"± {figure.truth_sd:.2f}"


def seconds(time: float | None) -> str:
    """`8.4 s`, `64 s`."""
    return words.NONE if time is None else f"{time:.{0 if time >= 10 else 1}f} s"


def lead(comparison: Comparison, control: str) -> str:
    """The best of each kind over the longest horizon, of those that keep every limit, beside the old policy.

    All methods are judged by the truth where it is known of all of them, else all by the estimate.
    """
    days, limits = max(comparison.report_days), comparison.limits(control)
    target = str(Target("reward", days))
    rows = [row for row in comparison.under(control) if target in row.figures]
    kind = decided_by([row for row in rows if row.group != "log"], target)
    parts = [_best(title, [row for row in rows if row.group == group], target, limits, kind)
             for group, title in _KINDS.items()]  # fmt: skip
    parts += [_old(row, target, limits, kind) for row in rows if row.group == "log"]
    if not any(parts):
        return "Nothing could be evaluated"
    which = f"the best of each kind{f' that keeps {_every(limits)}' if limits else ''}"
    what = f"{BY[kind].capitalize()} {comparison.reward_label} in {words.days(days)}"
    return f"{what}, {which}: {'; '.join(filter(None, parts))}"


def ties(comparison: Comparison, control: str) -> str:
    """Which methods are not behind the best by more than two standard deviations; empty for one seed."""
    days, rows = max(comparison.report_days), [row for row in comparison.under(control) if row.group != "log"]
    target = str(Target("reward", days))
    rows = [row for row in rows if target in row.figures]
    names = [_short(rows[place]) for place in leaders(rows, target, decided_by(rows, target),
             comparison.limits(control))]  # fmt: skip
    if comparison.seeds < 2 or not names:
        return ""
    if len(names) == 1:
        return f"{names[0]} leads by more than two standard deviations over seeds"
    return f"Not behind {names[0]} by more than two standard deviations over seeds: {'; '.join(names[1:])}"


def _best(title: str, rows: Sequence[MethodRow], target: str, limits: Sequence[BudgetLimit], kind: Kind) -> str:
    known = [(value, row) for row in rows if (value := row.number(target, kind)) is not None]
    within = [one for one in known if one[1].keeps(limits, kind)]
    if not within:
        return f"{title} none" if known else ""
    value, best = max(within, key=lambda one: one[0])
    return f"{_short(best)} {words.number(value)}"


def _old(row: MethodRow, target: str, limits: Sequence[BudgetLimit], kind: Kind) -> str:
    """The old policy as it is: it was not chosen to keep a limit."""
    by: Kind = kind if row.number(target, kind) is not None else "value"
    notes = [] if by == kind else [BY[by]]
    notes += [] if row.keeps(limits, by) else [f"does not keep {_every(limits)}"]
    return f"{row.name} {words.number(row.number(target, by))}" + (f" ({', '.join(notes)})" if notes else "")


def _every(limits: Sequence[BudgetLimit]) -> str:
    return "the limit" if len(limits) == 1 else "every limit"


def _short(row: MethodRow) -> str:
    """The name without the actions of constants."""
    return row.name.partition(" (")[0]
