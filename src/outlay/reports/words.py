"""Numbers and findings in words: the only place where a report rounds.

A title says what its figure shows, in numbers; what those are worth is said by the intervals and the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from outlay.core.estimate import Estimate
from outlay.reports.content import (
    Bound,
    BudgetLine,
    CalibrationLine,
    Interval,
    Measured,
    Point,
    PolicyRow,
    ReportContent,
)

NONE = "–"


def number(value: float | None, digits: int | None = None) -> str:
    """A number for a reader: `digits` after the point, default three significant ones; `–`: none."""
    if value is None or not math.isfinite(value):
        return NONE
    if digits is None:
        digits = 0 if float(value).is_integer() else _digits_for(abs(value) / 10)
    text = f"{value:,.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.removeprefix("-")  # no "−0.00"
    return text.replace("-", "−")


def plain(value: float) -> str:
    """A value somebody wrote (a limit, an action), as short as it was written."""
    return f"{value:,.12g}".replace("-", "−")


def decimals(intervals: Iterable[Interval | None]) -> int:
    """Digits after the point for a column: what its narrowest half interval calls for, else three of its values."""
    known = [i for i in intervals if i is not None and math.isfinite(i.value)]
    halves = [(i.high - i.low) / 2 for i in known if i.low is not None and i.high is not None and i.high > i.low]
    if halves:
        half = min(halves)
        leading = half / 10 ** math.floor(math.log10(half))
        return _digits_for(half if leading < 3 else 10 * half)  # two digits of 0.021, one of 0.041
    return _digits_for(max((abs(i.value) / 10 for i in known if i.value), default=1.0))


def _digits_for(size: float) -> int:
    """Digits after the point that show two significant ones of `size`, between 0 and 6."""
    if size <= 0 or not math.isfinite(size):
        return 2
    return min(max(1 - math.floor(math.log10(size)), 0), 6)


def percent(share: float) -> str:
    """`0.3712` → `37 %`; small shares keep a digit."""
    return f"{100 * share:.0f} %" if share >= 0.095 or share == 0 else f"{100 * share:.1f} %"


def exact(share: float) -> str:
    """A chosen share, as it was chosen: `0.975` → `97.5 %`."""
    return f"{100 * share:.6g} %"


def short(count: float) -> str:
    """`4_412_000` → `4.41 million`."""
    for size, word in ((1e9, " billion"), (1e6, " million")):
        if abs(count) >= size:
            return f"{count / size:.3g}{word}"
    return f"{count:,.0f}"


def per(budget: BudgetLine) -> str:
    """The unit of a budget: `yuan per decision`."""
    return f"{budget.unit} per {budget.per}".strip()


def limit(budget: BudgetLine) -> str:
    """The limit in words: `at most 1.2 yuan per decision`."""
    return f"{'at most' if budget.sign > 0 else 'at least'} {plain(budget.limit)} {per(budget)}"


def target(content: ReportContent, name: str) -> str:
    """What an estimate is of: `reward@7` → `active days, total of 7 days`."""
    what, _, horizon = name.partition("@")
    if what == "reward":
        what = content.reward_label
    if horizon:
        return f"{what}, total of {days(horizon)}"
    budget = next((b for b in content.budgets if b.name == name), None)
    return f"{what}, {per(budget)}" if budget else f"{what} per decision, discounted mean"


def days(count: str | int) -> str:
    """`1 day`, `7 days`."""
    return f"{count} day" if str(count) == "1" else f"{count} days"


def calibration_title(content: ReportContent, line: CalibrationLine) -> str:
    """What a head of a response model predicts."""
    what = content.reward_label if line.head == "reward" else line.head
    return f"{what} within {days(content.label_days)}"


def calibration_finding(content: ReportContent) -> str:
    """Whether outcomes follow the predictions, head by head."""
    parts = []
    for line in content.calibration:
        said = calibration_title(content, line)
        if line.slope is None or line.slope_error is None:
            parts.append(f"{said}: all predictions are alike")
        else:
            slope = f"{number(line.slope, 3)} ± {number(2 * line.slope_error, 3)}"
            parts.append(f"{said}: outcomes move by {slope} where predictions move by 1")
    return "; ".join(parts)


def one_of(content: ReportContent, kind: str) -> PolicyRow | None:
    """The first row of a kind."""
    return next((row for row in content.policies if row.kind == kind), None)


def keeps_limits(point: Point, budgets: Sequence[BudgetLine]) -> bool:
    """Whether a measured point keeps every limit that can be drawn beside it."""
    return all(
        b.plane_limit is None or b.sign * (cost - b.plane_limit) <= 0
        for cost, b in zip(point.costs, budgets, strict=True)
    )


def policies_finding(content: ReportContent) -> str:
    """What the new policy brings and costs, beside the old one."""
    new, old = one_of(content, "chosen"), one_of(content, "old")
    longest = max(set(new.totals) & set(old.totals), default=None) if new and old else None
    if new is None or old is None or longest is None:
        return "Policies side by side"
    first, second = new.totals[longest], old.totals[longest]
    digits = decimals([first, second])
    both = number(first.value, digits), number(second.value, digits)
    text = f"{both[0]} {content.reward_label} in {days(longest)} against {both[1]}"
    for budget in content.budgets:
        if budget.name in new.costs and budget.name in old.costs:
            costs = new.costs[budget.name], old.costs[budget.name]
            places = decimals(costs)
            text += f", for {number(costs[0].value, places)} against {number(costs[1].value, places)} {per(budget)}"
    return text


def headline(content: ReportContent) -> list[tuple[str, str, str]]:
    """The few figures a manager reads: (what, value, beside it)."""
    new, old = one_of(content, "chosen"), one_of(content, "old")
    if new is None:
        return []
    cards = []
    if new.totals:
        longest = max(new.totals)
        cards.append(
            (
                f"{content.reward_label} in {days(longest)}",
                *_beside(new.totals[longest], old.totals.get(longest) if old else None),
            )
        )
    for budget in content.budgets:
        if budget.name in new.costs:
            value, note = _beside(new.costs[budget.name], old.costs.get(budget.name) if old else None)
            cards.append(
                (budget.name, f"{value} {budget.unit}".strip(), f"{limit(budget)} · {note}".removesuffix(" · "))
            )
    return cards


def _beside(new: Interval, old: Interval | None) -> tuple[str, str]:
    digits = decimals([new, old])
    return number(new.value, digits), "" if old is None else f"old policy {number(old.value, digits)}"


def plane_finding(content: ReportContent) -> str:
    """How many candidates kept the limits, and what the mixture is made of."""
    kept = sum(keeps_limits(c.measured, content.budgets) for c in content.candidates)
    by = content.candidates_measured_by
    every = {1: "the limit", 2: "both limits"}.get(len(content.budgets), "every limit")
    texts = []
    if content.candidates:
        texts.append(f"{kept:,} of {len(content.candidates):,} candidates keep {every}, by {by}")
    if content.members:
        count = len(content.members)
        texts.append("one policy is served" if count == 1 else f"a mixture of {count} is served")
    text = "; ".join(texts)
    return text[:1].upper() + text[1:]


def multiplier_finding(content: ReportContent) -> str:
    """Where λ stood in the last quarter of training."""
    tail = content.training[-max(1, len(content.training) // 4) :]
    parts = []
    for j, budget in enumerate(content.budgets):
        values = [t.multiplier[j] for t in tail]
        ends = number(min(values)), number(max(values))
        span = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
        parts.append(span if len(content.budgets) == 1 else f"{span} for {budget.name}")
    return f"The price of the budget, λ, ended at {', '.join(parts)} in the last quarter"


def stored_finding(content: ReportContent) -> str:
    """Stored numbers against the original method."""
    known = [t for t in content.training if t.stored_parameters is not None]
    if not known:
        return "Stored parameters"
    last = known[-1]
    text = f"{short(last.stored_parameters or 0)} parameters kept at the end"
    if last.original_parameters and last.stored_parameters:
        times = last.original_parameters / last.stored_parameters
        text += f"; the original method would keep {short(last.original_parameters)}"
        if times >= 1.5:
            text += f", {number(times, 0 if times >= 10 else 1)} times as many"
    return text


def mean_actions(content: ReportContent) -> dict[tuple[str, str], float]:
    """{(segment, policy): mean value given}, in the order of the rows."""
    means: dict[tuple[str, str], float] = {}
    for row in content.shares:
        key = row.segment, row.policy
        means[key] = means.get(key, 0.0) + row.action * row.share
    return means


def shares_finding(content: ReportContent) -> str:
    """The segments whose mean value moves most, with both means."""
    means = mean_actions(content)
    segments = list(dict.fromkeys(row.segment for row in content.shares))
    moves = {s: (means[s, "old"], means[s, "new"]) for s in segments if (s, "old") in means and (s, "new") in means}
    if not moves:
        return "Who gets what"
    most = sorted(moves, key=lambda s: -abs(moves[s][1] - moves[s][0]))[:2]
    digits = decimals([Interval(value) for s in most for value in moves[s]])
    parts = [f"{s} from {number(moves[s][0], digits)} to {number(moves[s][1], digits)}" for s in most]
    return f"Mean {content.action_label}: {', '.join(parts)}"


def daily_finding(content: ReportContent) -> str:
    """How the old policy's cost moved from the first to the last day."""
    old = [row for row in content.daily if row.policy == "old"] or list(content.daily)
    first, last = min(old, key=lambda row: row.day), max(old, key=lambda row: row.day)
    parts = []
    for budget, begin, end in zip(content.budgets, first.costs, last.costs, strict=True):
        digits = decimals([Interval(begin), Interval(end)])
        parts.append(f"{budget.name} {number(begin, digits)} on the first day, {number(end, digits)} on the last")
    whose = "Old policy: " if old[0].policy == "old" else ""
    return whose + "; ".join(parts)


def budget(content: ReportContent, name: str) -> BudgetLine:
    """The limit of that name."""
    return next(b for b in content.budgets if b.name == name)


def bound_numbers(bound: Bound) -> tuple[str, str, str]:
    """Margin, estimate and bound, rounded alike."""
    digits = decimals([Interval(bound.value, min(bound.value, bound.bound), max(bound.value, bound.bound))])
    return number(bound.margin, digits), number(bound.value, digits), number(bound.bound, digits)


def two_figures(measured: Measured, budgets: int) -> list[str]:
    """Reward, then each cost: the critic's figure and the fitted one, side by side."""
    points = [measured.critic, measured.fitted]
    rows = [[None if p is None else p.reward for p in points]]
    rows += [[None if p is None else p.costs[j] for p in points] for j in range(budgets)]
    return [number(value, 3 if value is not None and abs(value) < 10 else None) for row in rows for value in row]


def certificate_finding(content: ReportContent) -> str:
    """Each bound against its limit."""
    certificate = content.certificate
    if certificate is None or certificate.refused:
        return "No certificate"
    parts = []
    for bound in certificate.bounds:
        line = budget(content, bound.budget)
        side = "at most" if line.sign > 0 else "at least"
        parts.append(
            f"{bound.budget} is {side} {bound_numbers(bound)[2]} {per(line)} "
            f"({'inside' if bound.kept else 'outside'} the limit of {plain(line.limit)})"
        )
    return f"With {exact(certificate.confidence)} confidence {' and '.join(parts)}"


def estimates_finding(content: ReportContent) -> str:
    """How many figures are given and how many withheld."""
    withheld = sum(e.withheld is not None for e in content.estimates)
    recommended = sum(e.recommended for e in content.estimates)
    count = len(content.estimates)
    text = f"{recommended} of {count} estimates are recommended for decisions"
    return f"{text}; {withheld} withheld, with the reason" if withheld else text


def estimate(e: Estimate) -> tuple[str, str]:
    """Value and interval, rounded alike."""
    if e.value is None:
        return NONE, NONE
    digits = decimals([Interval(e.value, e.low, e.high)])
    ends = NONE if e.low is None or e.high is None else f"{number(e.low, digits)} to {number(e.high, digits)}"
    return number(e.value, digits), ends


def candidates(content: ReportContent) -> str:
    """How the candidates came to be."""
    if not content.training:
        return f"{len(content.candidates):,} policies, one for each λ; the best mixture of them is served"
    last = max((c.step for c in content.candidates), default=0)
    many = f"{len(content.candidates):,} policies over {last:,} gradient steps"
    return f"{many}; the rule {content.method} chose among them"
