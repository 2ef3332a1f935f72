"""What the page of a test says around its figures: headings' findings, cards, and a metric's cells.

The verdict's own sentences and notes are those of `experiments/words.py`.
"""

from __future__ import annotations

import datetime
from itertools import groupby

from outlay.core.wording import NONE, days, decimals, exact, number, percent, short
from outlay.experiments.lift import ArmDifference, Lift, Withheld
from outlay.experiments.results import Analysis, ArmComparison, Course, Outcome, Promise
from outlay.experiments.words import ends, guardrail, quoted, value

BADGES: dict[Outcome, tuple[str, str]] = {  # class and text; a blocked verdict stands in a box instead
    "better": ("yes", "✓ Better than the control"),
    "worse": ("no", "✕ Worse than the control"),
    "undecided": ("open", "No difference found"),
    "harm": ("no", "✕ Doing harm: stop it"),
    "open": ("open", "Not decided yet"),
}


def period(a: Analysis) -> str:
    """`After day 7 of 14: 2 March 2026 to 8 March 2026`."""
    first = a.experiment.meta.start
    last = first + datetime.timedelta(days=a.day - 1)
    dates = " to ".join(f"{date.day} {date:%B %Y}" for date in (first, last))
    return f"After day {a.day} of {a.experiment.meta.days}: {dates}"


def cards(a: Analysis) -> list[tuple[str, str, str]]:
    """The few figures that matter most: (what, value, note). A blocked arm has none."""
    cards = []
    metric, several = a.experiment.meta.metric, len(a.contestants) > 1
    arms = [arm for arm in a.contestants if arm.outcome != "blocked"]
    for arm in arms:
        name = f"{metric}, {arm.arm}" if several else metric
        decision = arm.reported if arm.decided or arm.outcome == "undecided" else None
        if decision is not None:
            cards.append((name, value(decision), f"{ends(decision)}, after day {decision.day}"))
        elif arm.course is not None:
            now = arm.course.points[-1].on_all_days
            cards.append((f"{name}, so far", value(now), ends(now)))
    for course in arms[0].guardrails[:2] if arms and not several else ():
        now = course.points[-1].on_all_days
        cards.append((course.metric, value(now), ends(now)))
    cards.append(("users", short(sum(arm.users for arm in a.arms)), f"in {len(a.arms)} arms"))
    known = [(arm.spent, arm.budget) for arm in a.arms if arm.budget and arm.spent is not None]
    if known:
        spent, budget = (sum(part) for part in zip(*known, strict=True))
        of = f"{short(spent)} of {short(budget)} {unit(a)}".strip()
        cards.append(("spent by all arms", percent(spent / budget), of))
    return cards


def course(a: Analysis, arm: ArmComparison, course: Course) -> str:
    """The verdict's metric now, and whether a bound was crossed."""
    last = course.points[-1]
    now = f"{course.metric} under {quoted(arm.arm)} is {value(last)} after day {last.day}"
    if a.doubted(arm.arm):
        return _if_trusted(a, arm) + now
    if arm.outcome is None:
        return f"{now}; this arm gets no verdict"
    if arm.decided is not None:
        return f"{now}; it crossed the bound on day {arm.decided.day}"
    return f"{now}; {'it has crossed no bound' if arm.decisions else 'no decision has been due yet'}"


def guardrails(a: Analysis, arm: ArmComparison) -> str:
    """Which guardrails moved, and since when."""
    return _if_trusted(a, arm) + "; ".join(
        guardrail(course) + (f", first seen on day {course.seen[0]}" if course.now and course.seen else "")
        for course in arm.guardrails
    )


def _if_trusted(a: Analysis, arm: ArmComparison) -> str:
    return "Not to be trusted: " if a.doubted(arm.arm) else ""


def metrics(a: Analysis) -> str:
    """What the table of all metrics shows."""
    doubted = [quoted(arm.arm) for arm in a.comparisons if a.doubted(arm.arm)]
    return f"Totals per user after day {a.day}" + (f"; not to be trusted: {', '.join(doubted)}" if doubted else "")


def metric_cells(arm: ArmComparison, x: Lift | Withheld) -> list[tuple[str, str]]:
    """(value, interval) of the control, the arm, the difference, the relative difference and CUPED; may be empty."""
    if isinstance(x, Withheld):
        return []
    digits, absolute, saved = decimals([x.absolute]), ArmDifference(x.absolute, None), arm.saved.get(x.metric)
    return [
        (number(x.control, digits), ""),
        (number(x.treatment, digits), ""),
        (value(absolute, unit=""), ends(absolute, unit="")),
        (NONE, "") if x.relative is None else (value(x), ends(x)),
        (NONE if saved is None or not x.covariate else percent(max(saved, 0.0)), ""),
    ]


def exposed(a: Analysis, arm: ArmComparison) -> str:
    """The verdict's metric among users with a row."""
    x = arm.exposed[0]
    now = f"is {value(x)}" if isinstance(x, Lift) else "cannot be compared"
    return (
        f"{_if_trusted(a, arm)}Among users with at least one row, {x.metric} under {quoted(arm.arm)} {now}. The other "
        "users have nothing but zeros, which dilute every effect. Who leaves a row may itself depend on the arm, so "
        "this view is for understanding and never decides. It does not use CUPED."
    )


def spending(a: Analysis) -> str:
    """Each arm's spending beside its budget, and what was due."""
    used = [f"{arm.name} {percent(arm.budget_used)}" for arm in a.arms if arm.budget and arm.spent is not None]
    if not used:
        return "No arm has a budget"
    over = a.day == a.experiment.meta.days
    due = "" if over else f"; {percent(a.experiment.budget_due[a.day - 1])} was due by day {a.day}"
    return f"Share of its own budget spent: {', '.join(used)}{due}"


def arm_budgets(a: Analysis) -> str:
    """Whether the arms had the same money for each user, and what follows if not."""
    per_user = [arm.budget / arm.planned_share for arm in a.arms if arm.budget]
    over = [arm.name for arm in a.arms if arm.budget_used > 1]
    text = "Every arm has a budget of its own, so that none can starve another. "
    if per_user and max(per_user) > 1.01 * min(per_user):
        text += "Budgets per user differ between the arms: the effects shown are of policy and money together. "
    if over:
        text += f"Over its budget: {', '.join(over)}. "
    return text + "The plan spreads a budget evenly over all days of the users whom the ramp lets in."


def ratio(a: Analysis) -> str:
    """Whether the arms have the users that were planned."""
    failed = list(dict.fromkeys(quoted(check.arm) for check in a.ratios if not check.passed))
    if failed:
        return f"Not the users that were planned: {', '.join(failed)}"
    return "The arms have the users that were planned"


def ratio_consequence(a: Analysis) -> str:
    """What follows from the sample ratio."""
    if all(check.passed for check in a.ratios):
        return "Chance alone can explain the difference from the plan, so the arms can be compared."
    return (
        "Chance alone hardly ever makes such a difference. Something else decides who is seen: lost rows, a redirect, "
        "a crash in one arm, users left out after they were assigned. The missing users are seldom like those who "
        "stayed, so such an arm gets no verdict. Find the cause and repeat the test; do not drop users to restore the "
        "ratio."
    )


def segments(a: Analysis, arm: ArmComparison) -> str:
    """The two ends of the segments' effects."""
    known = [(segment.name, x) for segment in arm.segments if isinstance(x := segment.lifts[0], Lift)]
    if len(known) < 2:
        return "No difference between segments can be shown"
    known.sort(key=lambda each: -(each[1].relative or each[1].absolute).value)
    (best, most), (worst, least) = known[0], known[-1]
    return (
        f"{_if_trusted(a, arm)}{most.metric} under {quoted(arm.arm)}: {value(most)} in {best}, {value(least)} in "
        f"{worst}"
    )


def promised(a: Analysis) -> str:
    """The longest total of each arm and metric."""

    def about(p: Promise) -> tuple[str, str]:
        return p.arm, p.metric

    parts = []
    for (arm, _), promises in groupby(sorted(a.promised, key=about), key=about):
        last = max(promises, key=lambda p: p.days)
        first, then = value(last.promised.in_percent), value(last.happened.in_percent)
        trusted = " (not to be trusted)" if a.doubted(arm) else ""
        parts.append(f"{promise_name(a, last, ' in ')}: {first} promised, {then} happened{trusted}")
    return "; ".join(parts)


def promise_name(a: Analysis, p: Promise, within: str = ", ") -> str:
    """`active, 7 days`, with the arm in front if there are several: `new: active, 7 days`."""
    arm = f"{p.arm}: " if len({each.arm for each in a.promised}) > 1 else ""
    return f"{arm}{p.metric}{within}{days(p.days)}"


def power(a: Analysis) -> str:
    """The smallest effect that can be detected."""
    arms = with_power(a)
    if not arms:
        return "It is not known how small a difference this test could detect"
    several = len(a.contestants) > 1
    smallest = [f"{_detectable(arm)}{f' in {quoted(arm.arm)}' if several else ''}" for arm in arms]
    now = "" if a.day == a.experiment.meta.days else f" if it ended after day {a.day}"
    return (
        f"This test detects a difference of {' or '.join(smallest)} in {a.experiment.meta.metric}{now}; a smaller one "
        "may stay hidden"
    )


def with_power(a: Analysis) -> list[ArmComparison]:
    """The arms whose power is known."""
    return [arm for arm in a.contestants if arm.detectable is not None and not arm.blocked]


def _detectable(arm: ArmComparison) -> str:
    x = arm.detectable or 0.0
    return f"{number(100 * x, 1 if x >= 0.01 else 2)}%"


def cuped(arm: ArmComparison) -> str:
    """What the days before the start were worth, in users."""
    metric = arm.lifts[0].metric
    saved = arm.saved.get(metric)
    if saved is None:
        return "The log has no days before the start on which users differed, so CUPED saves nothing."
    if saved < 0.005:
        return f"What users did before the start says nothing about {metric}, so CUPED saves nothing."
    return (
        f"CUPED: what users did before the start explains {percent(saved)} of the variance of {metric}, as if the test "
        f"had {number(1 / (1 - saved), 2)} times the users."
    )


def share(x: float, digits: int = 2) -> str:
    """A share with two digits after the point, since sample ratios differ there."""
    return f"{number(100 * x, digits)}%"


def money(x: float | None) -> str:
    """An amount, without small change if it is large."""
    return number(x, 0 if x is not None and abs(x) >= 100 else 2)


def unit(a: Analysis) -> str:
    """The unit of money; empty if experiment.toml does not name one."""
    name = a.experiment.meta.unit
    return "" if name == "money" else name


def per(a: Analysis, metric: str) -> str:
    """The unit of a metric that is money: `yuan per user`; empty for others."""
    of = "user" if metric == "cost" else metric.removeprefix("cost_per_")
    return f"{unit(a)} per {of}" if unit(a) and (of == "user" or of != metric) else ""


def settings(a: Analysis, version: str) -> dict[str, dict[str, object]]:
    """{group: {name: value}}: how the test was planned."""
    experiment = a.experiment
    meta: dict[str, object] = experiment.meta.model_dump(exclude={"seal"}, exclude_none=True)
    return {
        "test": {**meta, "seal": experiment.seal(), "outlay": version},
        "ramp": {f"from day {step.day}": f"{exact(step.coverage)} of every arm" for step in experiment.ramp},
        "arms": {arm.name: arm.model_dump(exclude={"name"}, exclude_none=True) for arm in experiment.arms},
    }
