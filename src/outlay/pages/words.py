"""Numbers and findings in words: the only place where a report rounds.

A title says what its figure shows, in numbers; what those are worth is said by the intervals and the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlay.core.campaign import BudgetLimit
from outlay.core.wording import NONE as NONE
from outlay.core.wording import days as days
from outlay.core.wording import decimals as decimals
from outlay.core.wording import exact as exact
from outlay.core.wording import number as number
from outlay.core.wording import percent as percent
from outlay.core.wording import plain as plain
from outlay.core.wording import short as short
from outlay.pages.content import BudgetLine, Interval, PolicyRow, ReportContent
from outlay.pages.learned_content import Point


def per(budget: BudgetLimit) -> str:
    """The unit of a budget: `yuan per decision`."""
    return f"{budget.unit} per {budget.per}".strip()


def limit(budget: BudgetLimit) -> str:
    """The limit in words: `at most 1.2 yuan per decision`."""
    return f"{'at most' if budget.sign > 0 else 'at least'} {plain(budget.limit)} {per(budget)}"


def target(content: ReportContent, name: str) -> str:
    """What an estimate is of: `reward@7` → `active days, total of 7 days`."""
    what, _, horizon = name.partition("@")
    what, _, discounted = what.partition("/")
    if what == "reward":
        what = content.reward_label
    if horizon:
        return f"{what}, total of {days(horizon)}"
    budget = next((b for b in content.budgets if b.name == what), None)
    mean = "discounted mean" if content.window is None or discounted else f"mean of the first {days(content.window)}"
    if budget is None:
        return f"{what} per decision, {mean}"
    return (
        f"{what}, {per(budget)}" if content.window is None or budget.per == "user" else f"{what}, {per(budget)}, {mean}"
    )


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
