"""What each section of a test's page found, in a sentence, and what follows from it."""

from __future__ import annotations

import math
from itertools import groupby

from outlay.pages import words
from outlay.pages.content import Interval
from outlay.pages.experiment_content import (
    ArmComparison,
    ArmLine,
    CourseLine,
    Effect,
    ExperimentContent,
    MetricLine,
    PromiseLine,
)
from outlay.pages.experiment_words import ends, guardrail, quoted, value


def course(c: ExperimentContent, arm: ArmComparison, found: CourseLine) -> str:
    """Where the verdict's metric stands, and whether a bound was crossed."""
    last, decided = found.days[-1], arm.decided
    now = f"{c.metric} under {quoted(arm.arm)} stands at {value(last.look)} after day {last.day}"
    if c.doubted(arm.arm):
        return _if_believed(c, arm) + now
    if arm.outcome is None:
        return f"{now}; no verdict is given on this arm"
    if decided is not None:
        return f"{now}; it crossed the bound on day {decided.day}"
    return f"{now}; {'it crossed no bound' if arm.decisions else 'no decision was due yet'}"


def guardrails(c: ExperimentContent, arm: ArmComparison) -> str:
    """Which guardrails moved, and since when."""
    return _if_believed(c, arm) + "; ".join(
        guardrail(found) + (f", first seen on day {found.seen[0]}" if found.now and found.seen else "")
        for found in arm.guardrails
    )


def _if_believed(c: ExperimentContent, arm: ArmComparison) -> str:
    return "Not to be believed: " if c.doubted(arm.arm) else ""


def spending(c: ExperimentContent) -> str:
    """Each arm's spending beside its budget, and what was due."""
    purses = [f"{arm.name} {words.percent(of_budget(arm))}" for arm in c.arms if arm.budget and arm.spent is not None]
    if not purses:
        return "No arm has a budget"
    due = "" if c.day == c.days else f"; {words.percent(c.pace[c.day - 1])} was due by day {c.day}"
    return f"Spent of its own budget: {', '.join(purses)}{due}"


def of_budget(arm: ArmLine) -> float:
    """The share of its budget that an arm has spent."""
    return (arm.spent or 0.0) / (arm.budget or math.inf)


def purses(c: ExperimentContent) -> str:
    """Whether the arms had the same money for a user, and what follows if not."""
    per_user = [arm.budget / arm.planned for arm in c.arms if arm.budget]
    over = [arm.name for arm in c.arms if arm.budget and of_budget(arm) > 1]
    text = "Every arm has a purse of its own, so that none can starve another. "
    if per_user and max(per_user) > 1.01 * min(per_user):
        text += "Budgets per user differ between the arms: what is shown is the effect of policy and money together. "
    if over:
        text += f"Over its budget: {', '.join(over)}. "
    return text + "The plan spreads a budget evenly over all days of the users whom the ramp lets in."


def ratio(c: ExperimentContent) -> str:
    """Whether the arms have the users that were planned."""
    failed = list(dict.fromkeys(quoted(check.arm) for check in c.ratios if not check.passed))
    if failed:
        return f"Not the users that were planned: {', '.join(failed)}"
    return "The arms have the users that were planned"


def ratio_consequence(c: ExperimentContent) -> str:
    """What follows from the sample ratio."""
    if all(check.passed for check in c.ratios):
        return "The draw alone can explain the difference from the plan, so the arms can be compared."
    return (
        "Chance alone hardly ever makes such a difference. Something other than the draw decides who is seen: lost "
        "rows, a redirect, a crash in one arm, users left out after they were assigned. Those who are missing are "
        "seldom like those who stayed, so no verdict is given on such an arm. Find the cause and repeat the test; do "
        "not drop users to restore the ratio."
    )


def groups(c: ExperimentContent, arm: ArmComparison) -> str:
    """The two ends of the segments' effects."""
    told = [(x.relative or x.absolute, group.name, x) for group in arm.groups if (x := group.metrics[0].effect)]
    if len(told) < 2:
        return "No difference between segments can be shown"
    ordered = sorted(told, key=lambda each: -each[0].value)
    (_, best, most), (_, worst, least) = ordered[0], ordered[-1]
    return (
        f"{_if_believed(c, arm)}{c.metric} under {quoted(arm.arm)}: {value(most)} in {best}, {value(least)} in {worst}"
    )


def exposed(c: ExperimentContent, arm: ArmComparison) -> str:
    """The verdict's metric among users with a row."""
    effect = arm.exposed[0].effect
    told = "cannot be told" if effect is None else f"stands at {value(effect)}"
    return (
        f"{_if_believed(c, arm)}Among users with at least one row {c.metric} under {quoted(arm.arm)} {told}. The "
        "others have nothing but zeros, which thin every effect. Who leaves a row may itself depend on the arm, so "
        "this is to understand and never decides. Without CUPED."
    )


def metrics(c: ExperimentContent) -> str:
    """What the table of all metrics holds."""
    doubted = [quoted(arm.arm) for arm in c.comparisons if c.doubted(arm.arm)]
    return f"Totals per user after day {c.day}" + (f"; not to be believed: {', '.join(doubted)}" if doubted else "")


def promised(c: ExperimentContent) -> str:
    """The longest total of each arm and metric."""

    def about(p: PromiseLine) -> tuple[str, str]:
        return p.arm, p.metric

    parts = []
    for (arm, _), lines in groupby(sorted(c.promised, key=about), key=about):
        last = max(lines, key=lambda p: p.days)
        first, then = relative(last.promised)[0], relative(last.happened)[0]
        believed = " (not to be believed)" if c.doubted(arm) else ""
        parts.append(f"{total(c, last, ' in ')}: {first} promised, {then} happened{believed}")
    return "; ".join(parts)


def total(c: ExperimentContent, p: PromiseLine, within: str = ", ") -> str:
    """`active, 7 days`, with the arm in front where several promised: `new: active, 7 days`."""
    whose = f"{p.arm}: " if len({each.arm for each in c.promised}) > 1 else ""
    return f"{whose}{p.metric}{within}{words.days(p.days)}"


def power(c: ExperimentContent) -> str:
    """The smallest effect that is within reach."""
    told = reached(c)
    if not told:
        return "How small a difference this test could find is not known"
    smallest = [f"{_least(arm)}{f' in {quoted(arm.arm)}' if len(c.contestants) > 1 else ''}" for arm in told]
    now = "" if c.day == c.days else f" if it ended after day {c.day}"
    return f"This test finds a difference of {' or '.join(smallest)} in {c.metric}{now}; a smaller one may stay hidden"


def reached(c: ExperimentContent) -> list[ArmComparison]:
    """The arms whose power can be told."""
    return [arm for arm in c.contestants if arm.detectable is not None and not arm.blocked]


def _least(arm: ArmComparison) -> str:
    x = arm.detectable or 0.0
    return f"{words.number(100 * x, 1 if x >= 0.01 else 2)} %"


def cuped(arm: ArmComparison) -> str:
    """What the time before the start was worth, in users."""
    main = arm.metrics[0]
    if main.saved is None:
        return "No time before the start is known in which users differed, so CUPED saves nothing."
    if main.saved < 0.005:
        return f"Each user’s time before the start says nothing about {main.name}, so CUPED saves nothing."
    return (
        f"CUPED: each user’s time before the start explains {words.percent(main.saved)} of the variance of "
        f"{main.name}, as if the test had {words.number(1 / (1 - main.saved), 2)} times the users."
    )


def p_value(p: float) -> str:
    """`0.37`; tiny ones are only told to be tiny."""
    return "below 0.0001" if p < 1e-4 else words.number(p, 2 if p >= 0.1 else 4)


def share(x: float, digits: int = 2) -> str:
    """A share to two digits after the point: sample ratios are told apart there."""
    return f"{words.number(100 * x, digits)} %"


def unit(c: ExperimentContent) -> str:
    """Of money; empty where the test's file does not name one."""
    return "" if c.unit == "money" else c.unit


def per(c: ExperimentContent, line: MetricLine) -> str:
    """The unit of a metric that is money: `yuan per user`; else empty."""
    of = "user" if line.name == "cost" else line.name.removeprefix("cost_per_")
    return f"{unit(c)} per {of}" if unit(c) and (of == "user" or of != line.name) else ""


def money(x: float | None) -> str:
    """An amount, without small change where it is large."""
    return words.number(x, 0 if x is not None and abs(x) >= 100 else 2)


def relative(x: Interval) -> tuple[str, str]:
    """A relative change and its interval."""
    effect = Effect(x, x)
    return value(effect), ends(effect)
