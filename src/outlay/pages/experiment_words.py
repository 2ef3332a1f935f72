"""What page and terminal say of a test around its figures: headings' findings, cards, and its tables.

The verdict's own sentences and notes are those of `experiments/words.py`.
"""

from __future__ import annotations

import datetime
from itertools import groupby

from outlay.core.wording import NONE, days, decimals, exact, money, number, percent, readable, short, singular
from outlay.evaluating.totals import Total
from outlay.experiments.lift import ArmDifference, Lift, Withheld
from outlay.experiments.results import Analysis, ArmComparison, ArmState, Course, Outcome, Promise
from outlay.experiments.words import ends, guardrail, p_value, plural, quoted, value
from outlay.pages.amounts import Rounding
from outlay.pages.tables import Cell, Column, Table, kept, numbers, row, words

BADGES: dict[Outcome, tuple[str, str]] = {  # class and text; a blocked verdict stands in a box instead
    "better": ("yes", "✓ Better than the control"),
    "worse": ("no", "✕ Worse than the control"),
    "undecided": ("open", "No difference found"),
    "harm": ("no", "✕ Doing harm: stop it"),
    "open": ("open", "Not decided yet"),
}
WIDENED = (
    "interval widened: a few users account for most of this metric, and one arm is too small to estimate its own "
    "variance, so both arms are given the pooled variance"
)


def period(a: Analysis) -> str:
    """`After day 7 of 14: 2 March 2026 to 8 March 2026`."""
    first = a.experiment.meta.start
    last = first + datetime.timedelta(days=a.day - 1)
    dates = " to ".join(f"{date.day} {date:%B %Y}" for date in (first, last))
    return f"After day {a.day} of {a.experiment.meta.days}: {dates}"


def decision(a: Analysis) -> str:
    """Roll out, discuss, do not roll out, or wait: the first line."""
    by = {
        outcome: [quoted(arm.arm) for arm in a.contestants if arm.outcome == outcome]
        for outcome in (*BADGES, "blocked")
    }
    harmed = " and ".join(
        a.called(course.metric)
        for arm in a.contestants
        if arm.outcome == "better"
        for course in arm.guardrails
        if course.harmful
    )
    if len(by["better"]) > 1:
        return f"Discuss which to roll out: {' or '.join(by['better'])}. Each beats {quoted(a.control)}."
    if by["better"] and harmed:
        return f"Discuss {by['better'][0]}: it wins, and {harmed} moved the wrong way."
    if by["better"]:
        return f"Roll out {by['better'][0]}."
    if by["harm"]:
        return f"Stop {' and '.join(by['harm'])}: it does harm."
    if by["open"]:
        return f"Wait: the test of {' and '.join(by['open'])} is not over."
    if by["blocked"]:
        return "Decide nothing by this test: repeat it."
    if by["undecided"]:
        cheaper = [quoted(arm.arm) for arm in a.contestants if arm.outcome == "undecided" and _cheaper(arm)]
        if cheaper:
            return f"Discuss {' and '.join(cheaper)}: no difference was found, and it costs less."
        return f"Do not roll out {' or '.join([*by['undecided'], *by['worse']])}: no gain was found."
    return f"Do not roll out {' or '.join(by['worse'])}."


def _cheaper(arm: ArmComparison) -> bool:
    cost = arm.lift("cost")
    return cost is not None and cost.absolute.side < 0


def stakes(a: Analysis, arm: ArmComparison) -> str:
    """What it would bring and cost all users of the test, in people and money; empty where nothing is known.

    `Given to all 24,000 users of the test for 14 days: about 3,700 more active (2,600 to 4,900), for 2,400 yuan less.`
    """
    course, users = arm.course, sum(each.users for each in a.arms)
    found = arm.reported or (None if course is None else course.points[-1].on_all_days)
    if found is None or arm.outcome == "blocked":
        return ""
    cost, metric = arm.lift("cost"), a.experiment.meta.metric
    gained = _in_all(found, users, "", readable(a.called(metric)), "fewer" if plural(a, metric) else "less")
    given = f"Given to all {number(users)} users of the test for {days(a.day)}: {gained}"
    money = "" if cost is None else f", for {_in_all(cost, users, unit(a), '' if unit(a) else a.called('cost'))}"
    return f"{given}{money}."


def _in_all(x: ArmDifference, users: int, of: str, what: str, less: str = "less") -> str:
    """`about 3,700 more active (2,600 to 4,900)`; less of it with the ends turned."""
    sign, total = -1 if x.absolute.value < 0 else 1, users * x.absolute.value
    low, high = sorted((sign * users * x.absolute.low, sign * users * x.absolute.high))
    rounding = Rounding.of(Total(value=abs(total), low=low, high=high))
    side = less if sign < 0 else "more"
    said = " ".join(part for part in (rounding.amount(abs(total), of), side, what) if part)
    return f"about {said} ({rounding.number(low)} to {rounding.number(high)})"


def cards(a: Analysis) -> list[tuple[str, str, str]]:
    """The few figures that matter most: (what, value, note). A blocked arm has none."""
    cards = []
    metric, several = a.called(a.experiment.meta.metric), len(a.contestants) > 1
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
        cards.append((a.called(course.metric), value(now), ends(now)))
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
    now = f"{_under(a, arm, course.metric)}: {value(last)} after day {last.day}"
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
        guardrail(a, course) + (f", first seen on day {course.seen[0]}" if course.now and course.seen else "")
        for course in arm.guardrails
    )


def _under(a: Analysis, arm: ArmComparison, metric: str) -> str:
    """`active days under “new”`."""
    return f"{a.called(metric)} under {quoted(arm.arm)}"


def _segment(a: Analysis, name: str) -> str:
    return a.segment_names.get(name, name)


def _if_trusted(a: Analysis, arm: ArmComparison) -> str:
    return "Not to be trusted: " if a.doubted(arm.arm) else ""


def metrics(a: Analysis) -> str:
    """What the table of all metrics shows."""
    doubted = [quoted(arm.arm) for arm in a.comparisons if a.doubted(arm.arm)]
    return f"Totals per user after day {a.day}" + (f"; not to be trusted: {', '.join(doubted)}" if doubted else "")


def exposed(a: Analysis, arm: ArmComparison) -> str:
    """The verdict's metric among users with a row."""
    x = arm.exposed[0]
    now = f"{_under(a, arm, x.metric)}: {value(x) if isinstance(x, Lift) else 'not compared'}"
    return (
        f"{_if_trusted(a, arm)}Among users with at least one row, {now}. The other "
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
    known = [(_segment(a, segment.name), x) for segment in arm.segments if isinstance(x := segment.lifts[0], Lift)]
    if len(known) < 2:
        return "No difference between segments can be shown"
    known.sort(key=lambda each: -(each[1].relative or each[1].absolute).value)
    (best, most), (worst, least) = known[0], known[-1]
    ends = f"{value(most)} in {best}, {value(least)} in {worst}"
    return f"{_if_trusted(a, arm)}{_under(a, arm, most.metric)}: {ends}"


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
    return f"{arm}{a.called(p.metric)}{within}{days(p.days)}"


def power(a: Analysis) -> str:
    """The smallest effect that can be detected."""
    arms = with_power(a)
    if not arms:
        return "It is not known how small a difference this test could detect"
    several = len(a.contestants) > 1
    smallest = [
        f"{percent(x, 1 if x >= 0.01 else 2)}{f' in {quoted(arm.arm)}' if several else ''}"
        for arm in arms
        if (x := arm.detectable) is not None
    ]
    now = "" if a.day == a.experiment.meta.days else f" if it ended after day {a.day}"
    found = f"{' or '.join(smallest)} in {a.called(a.experiment.meta.metric)}"
    return f"This test detects a difference of {found}{now}; a smaller one may stay hidden"


def with_power(a: Analysis) -> list[ArmComparison]:
    """The arms whose power is known."""
    return [arm for arm in a.contestants if arm.detectable is not None and not arm.blocked]


def cuped(a: Analysis, arm: ArmComparison) -> str:
    """What the days before the start were worth, in users."""
    metric, saved = a.called(arm.lifts[0].metric), arm.saved.get(arm.lifts[0].metric)
    if saved is None:
        return "The log has no days before the start on which users differed, so CUPED saves nothing."
    if saved < 0.005:
        return f"What users did before the start says nothing about {metric}, so CUPED saves nothing."
    return (
        f"CUPED: what users did before the start explains {percent(saved)} of the variance of {metric}, as if the test "
        f"had {number(1 / (1 - saved), 2)} times the users."
    )


def unit(a: Analysis) -> str:
    """The unit of money; empty if experiment.toml does not name one."""
    name = a.experiment.meta.unit
    return "" if name == "money" else name


def per(a: Analysis, metric: str) -> str:
    """The unit of a metric that is money: `yuan per user`; empty for others."""
    of = "user" if metric == "cost" else metric.removeprefix("cost_per_")
    return f"{unit(a)} per {singular(a.called(of))}" if unit(a) and (of == "user" or of != metric) else ""


def settings(a: Analysis, version: str) -> dict[str, dict[str, object]]:
    """{group: {name: value}}: how the test was planned."""
    experiment = a.experiment
    meta: dict[str, object] = experiment.meta.model_dump(exclude={"seal"}, exclude_none=True)
    return {
        "test": {**meta, "seal": experiment.seal(), "outlay": version},
        "ramp": {f"from day {step.day}": f"{exact(step.coverage)} of every arm" for step in experiment.ramp},
        "arms": {arm.name: arm.model_dump(exclude={"name"}, exclude_none=True) for arm in experiment.arms},
    }


# Tables.


def shares(a: Analysis) -> Table:
    """The users of each arm, beside the plan."""
    rows = (row(arm.name, percent(arm.planned_share, 2), percent(arm.share, 2), number(arm.users)) for arm in a.arms)
    title = f"{a.experiment.meta.name}: arms after day {a.day} of {a.experiment.meta.days}"
    return Table(title, (*words("arm"), *numbers("share planned", "share observed", "users")), tuple(rows))


def ratios(a: Analysis) -> Table:
    """The users of each arm against the control's: two digits after the point, since sample ratios differ there."""
    rows = (
        row(
            Cell(check.arm, ", ".join(filter(None, (check.of, check.part)))),
            kept(check.passed),
            *map(number, (check.control, check.treatment)),
            number(check.control * check.planned, 0),
            p_value(check.p_value),
        )
        for check in a.ratios
    )
    columns = (
        *words(f"against {a.control}", "as planned"),
        Column("users", f"in {a.control}"),
        Column("users", "in this arm"),
        Column("expected", f"for as many in {a.control}"),
        Column("p", "blocks below 0.001"),
    )
    return Table("sample ratio", columns, tuple(rows))


def spent(a: Analysis) -> Table:
    """Each arm's money: its budget, what was due and what was spent."""
    due = a.experiment.budget_due[a.day - 1]

    def line(arm: ArmState) -> tuple[Cell | str, ...]:
        used = Cell(percent(arm.budget_used, 1), look="no" if arm.budget_used > 1 else "") if arm.budget else NONE
        amounts = (arm.budget, arm.budget and arm.budget * due, arm.spent)
        each = NONE if arm.spent is None or not arm.users else number(arm.spent / arm.users)
        return Cell(arm.name, arm.kind), number(arm.users), *map(money, amounts), used, each

    heads = ("users", "budget", f"due by day {a.day}", "spent", "share of its budget", "spent per user")
    title = f"money{f', in {unit(a)}' if unit(a) else ''}"
    return Table(title, (*words("arm"), *numbers(*heads)), tuple(row(*line(arm)) for arm in a.arms))


def spent_by_day(a: Analysis) -> Table:
    """What each arm has spent by day, and as a share of its budget."""
    arms = [arm for arm in a.arms if arm.spent_by_day]
    columns = (
        Column("after day", "spent so far, and share of its budget", words=True),
        *numbers(*(x.name for x in arms)),
    )
    rows = (
        row(
            str(day),
            *(
                Cell(money(x), percent(x / arm.budget, 1) if arm.budget else "")
                for arm, x in zip(arms, after, strict=True)
            ),
        )
        for day, after in enumerate(zip(*(arm.spent_by_day for arm in arms), strict=True), 1)
    )
    return Table("", columns, tuple(rows))


def all_metrics(a: Analysis, arm: ArmComparison, *, among_rows: bool = False) -> Table:
    """Every metric at a single look; among users with a row, or among all."""
    of = "users with a row, " if among_rows else ""
    columns = (
        *words(f"{of}{arm.arm} against {a.control}"),
        *numbers(a.control, arm.arm, "difference", "relative"),
        Column("variance explained", "by CUPED"),
    )

    def line(x: Lift | Withheld) -> tuple[Cell | str, ...]:
        if isinstance(x, Withheld):
            return Cell(a.called(x.metric), per(a, x.metric)), Cell(f"not shown: {x.reason.words}", span=5)
        digits, saved = decimals([x.absolute]), arm.saved.get(x.metric)
        notes = (per(a, x.metric), "interval widened*" if x.cautious else "")
        return (
            Cell(a.called(x.metric), ", ".join(filter(None, notes))),
            number(x.control, digits),
            number(x.treatment, digits),
            effect(ArmDifference(x.absolute, None), per_user=""),
            NONE if x.relative is None else effect(x),
            NONE if saved is None or not x.covariate else percent(max(saved, 0.0)),
        )

    found = arm.exposed if among_rows else arm.lifts
    title = f"{of}{arm.arm} against {a.control}: at a single look, {exact(a.experiment.meta.confidence)} intervals"
    return Table(
        title, columns, tuple(row(*line(x), look="withheld" if isinstance(x, Withheld) else "") for x in found)
    )


def decisions(a: Analysis, arm: ArmComparison) -> Table:
    """The planned decisions, with intervals that hold over all of them."""
    columns = (
        *words("planned decision", "crossed"),
        Column("difference", f"{exact(1 - a.alpha)} over all decisions"),
        *numbers("in standard errors", "bound"),
    )
    sides = {0: Cell("no verdict"), 1: Cell("better", look="yes"), -1: Cell("worse", look="no")}
    rows = (
        row(
            f"after day {d.day}",
            sides[arm.favours(d)] if d.side else "no",
            effect(d),
            number(d.z, 2),
            f"±{number(d.bound, 2)}",
        )
        for d in arm.decisions
    )
    return Table("planned decisions, with intervals that hold over all of them", columns, tuple(rows))


def by_week(a: Analysis, arm: ArmComparison) -> Table:
    """The effect in the first week and since."""
    change = arm.change
    assert change is not None
    first = Column(f"{a.called(a.experiment.meta.metric)} by week", "per day, of users who came in week 1", words=True)
    line = row(change.trend, effect(change.first), effect(change.since), p_value(change.p_value))
    title = "by week, at a single look"
    return Table(title, (first, *numbers("week 1", change.weeks, "p of no change")), (line,))


def followed(a: Analysis, arm: ArmComparison) -> Table:
    """Every followed metric now, and the days on which it was seen to move."""
    sides = {1: "higher", -1: "lower", 0: "no change shows"}
    rows = (
        row(
            a.called(course.metric),
            effect(course.points[-1].on_all_days),
            sides[course.now],
            NONE if course.seen is None else " to ".join(map(str, dict.fromkeys(course.seen))),
        )
        for course in arm.courses
        if course.points
    )
    columns = (*words("metric"), *numbers("so far"), *words("now", "seen on days"))
    return Table("any day, with intervals that hold on all days at once", columns, tuple(rows))


def by_day(a: Analysis, arm: ArmComparison) -> Table:
    """Every followed metric by day, with the interval for all days."""
    courses = [*([arm.course] if arm.course else []), *arm.guardrails]
    found = {(course.metric, point.day): point.on_all_days for course in courses for point in course.points}
    first = Column("after day", "intervals that hold on all days at once", words=True)
    rows = (
        row(str(day), *(effect(found.get((course.metric, day))) for course in courses))
        for day in sorted({day for _, day in found})
    )
    return Table("", (first, *numbers(*(a.called(course.metric) for course in courses))), tuple(rows))


def by_segment(a: Analysis, arm: ArmComparison) -> Table:
    """Every metric by segment."""
    first = Column("segment", f"{arm.arm} against {a.control}", words=True)
    rows = (row(_segment(a, each.name), number(each.users), *map(effect, each.lifts)) for each in arm.segments)
    columns = (first, *numbers("users", *(a.called(x.metric) for x in arm.segments[0].lifts)))
    return Table("by segment, at a single look: for understanding, not for deciding", columns, tuple(rows))


def promises(a: Analysis) -> Table:
    """What an estimate promised of each arm, and what happened."""
    rows = (
        row(
            Cell(promise_name(a, p), f"by {p.estimator}{f'; {p.caution}' if p.caution else ''}"),
            *(effect(x.in_percent) for x in (p.promised, p.happened)),
            kept(p.agrees),
        )
        for p in a.promised
    )
    columns = (*words("metric"), *numbers("promised", "happened"), *words("agree"))
    return Table("promised and happened, relative", columns, tuple(rows))


def effect(x: ArmDifference | Withheld | None, per_user: str = " per user") -> Cell:
    """A difference with its interval."""
    return Cell(value(x, per_user), ends(x, unit=per_user)) if isinstance(x, ArmDifference) else Cell()
