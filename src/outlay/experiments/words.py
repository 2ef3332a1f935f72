"""The verdict of a test and its numbers in words, for the terminal and for the page; notes have theirs in `notes.py`.

Effects are given relative to the control if that is possible, otherwise in the metric's unit per user. The sentences
say which interval is meant: that of the planned decisions, of all days at once, or of a single look.
"""

from __future__ import annotations

import math

from outlay.core.wording import days, decimals, exact, number
from outlay.experiments.lift import ArmDifference, IntervalEstimate
from outlay.experiments.notes import NoteKind
from outlay.experiments.results import Analysis, ArmComparison, Change, Course, PlannedDecision

MOST_DIGITS = 4  # after the point
MOST = 10.0  # a relative change beyond 1,000% is not shown in digits


def verdict(analysis: Analysis) -> str:
    """What to do, arm by arm."""
    tested = analysis.contestants
    shared = f" (each arm at {exact(1 - analysis.alpha)}, since {len(tested)} are tested)" if len(tested) > 1 else ""
    parts = []
    for arm in tested:
        parts.append(headline(analysis, arm))
        parts += [f"Because {reason.words}." for reason in arm.blocked]
        parts += [certainty(analysis, arm), lasting(arm)]
    parts.append(between_winners(analysis))
    return f"After day {analysis.day} of {analysis.experiment.meta.days}{shared}: {' '.join(filter(None, parts))}"


def headline(analysis: Analysis, arm: ArmComparison) -> str:
    """What to do about one arm, in a sentence that can be repeated."""
    meta, new, old, reported = analysis.experiment.meta, quoted(arm.arm), quoted(analysis.control), arm.reported
    outcomes = [each.outcome for each in analysis.contestants]
    keep = all(outcome in ("worse", "undecided") for outcome in outcomes)
    if arm.outcome == "better" and reported is not None:
        head = f"Take {new}" if outcomes.count("better") == 1 else f"{new} beats {old}"
        return f"{head}: {meta.metric} is {change(reported, reported.side)} than under {old}{_guardrails(arm)}."
    if arm.outcome == "worse" and reported is not None:
        head = f"Keep {old}" if keep else f"Do not take {new}"
        return f"{head}: under {new}, {meta.metric} is {change(reported, reported.side)}{_guardrails(arm)}."
    if arm.outcome == "undecided":
        cheaper = any(course.metric == "cost" and course.now < 0 for course in arm.guardrails)
        head = f"Keep {old}{', unless its cost decides' if cheaper else ''}: n" if keep else "N"
        return f"{head}o difference in {meta.metric} was found under {new}{_guardrails(arm)}."
    if arm.outcome == "blocked":
        return f"No verdict on {new}{', and none of its numbers should be used' if analysis.doubted(arm.arm) else ''}."
    if arm.outcome == "harm" and arm.course is not None:
        now = change(arm.course.points[-1].on_all_days, arm.course.now)
        return f"Stop {new}: {meta.metric} is {now} than under {old}{_guardrails(arm)}."
    due = next(day for day in meta.decisions if day > analysis.day)
    harm = " and ".join(guardrail(course) for course in arm.guardrails if course.harmful)
    late = analysis.late
    if late is not None and late.collected >= due:
        return (
            f"Wait: nothing is decided about {new} yet; the outcomes of the next planned decision, after day {due}, "
            f"are all known when they have been collected until {late.due(due)}."
        )
    unless = f", unless it matters that {harm}" if harm else ""
    return f"Let it run{unless}: nothing is decided about {new} yet; the next planned decision is after day {due}."


def certainty(analysis: Analysis, arm: ArmComparison) -> str:
    """What the headline rests on: the interval, and when it was decided."""
    if arm.outcome == "blocked" or arm.course is None:
        return ""
    metric, last = analysis.experiment.meta.metric, arm.course.points[-1]
    if arm.outcome == "open":
        already = {1: "; it already lies above 0", -1: "; it already lies below 0"}.get(arm.course.now, "")
        past = f" On day {arm.decisions[-1].day} it did not cross the bound." if arm.decisions else ""
        harmful = any(course.harmful for course in arm.guardrails)
        stop = " To stop because of a guardrail needs no planned day." if harmful else ""
        return (
            f"So far {metric} is at {span(last.on_all_days)}. You may look at this interval on any day{already}.{past} "
            f"The verdict comes on a planned day, when the size is better known.{stop}"
        )
    if arm.outcome == "harm":
        return (
            f"With {exact(analysis.experiment.meta.confidence)} confidence on all days at once, the difference in "
            f"{metric} lies between {ends(last.on_all_days, 'and')}. To stop for harm needs no planned day; to take an "
            "arm does."
        )
    reported = arm.reported or arm.decisions[-1]
    decided = f"Decided on day {arm.decided.day}, as planned. " if arm.decided else ""
    later = f" After day {last.day} it is {value(last)}." if last.day > reported.day else ""
    return (
        f"{decided}With {exact(1 - analysis.alpha)} confidence over all planned decisions, the difference in {metric} "
        f"after day {reported.day} lies between {ends(reported, 'and')}.{later}"
    )


def lasting(arm: ArmComparison) -> str:
    """How the effect changed after the first week; empty if no change shows, or if a reason already says it."""
    change = arm.change
    if change is None or change.trend == "steady" or any(reason.kind is NoteKind.FADED for reason in arm.blocked):
        return ""
    became = {"fading": "is fading", "growing": "is growing", "reversed": "has reversed"}[change.trend]
    return f"The effect {became}: {by_week(change)} (p = {p_value(change.p_value)} at a single look)."


def between_winners(analysis: Analysis) -> str:
    """What a test does not say if several arms beat the control."""
    winners = [quoted(arm.arm) for arm in analysis.contestants if arm.outcome == "better"]
    if len(winners) < 2:
        return ""
    return (
        f"The test was not planned to decide which of {' and '.join(winners)} is best: each was compared with "
        f"{quoted(analysis.control)} alone."
    )


def guardrail(course: Course) -> str:
    """`cost is 1.4% lower`, or that it was for some days, or that it never was."""
    last = course.points[-1]
    if course.seen is None:
        return f"no change in {course.metric} shows"
    if course.now:
        return f"{course.metric} is {change(last.on_all_days, course.now)}"
    first = "on the first day" if course.seen[1] == 1 else f"over the first {course.seen[1]} days"
    return f"{course.metric} was {direction(course.moved)} {first}, but over {days(last.day)} no change shows"


def _guardrails(arm: ArmComparison) -> str:
    """`; cost is 1.4% lower; no change in redemption shows`."""
    moved = [f"; {guardrail(course)}" for course in arm.guardrails if course.moved]
    still = [course.metric for course in arm.guardrails if not course.moved]
    return "".join(moved) + (f"; no change in {' or '.join(still)} shows" if still else "")


def by_week(change: Change) -> str:
    """`+10.2 % (+8.0% to +12.4%) in week 1, −1.0 % (−3.1% to +1.2%) in week 2`."""
    return f"{span(change.first)} in week 1, {span(change.since)} in {change.weeks}"


def quoted(name: str) -> str:
    """`“new”`: an arm's name inside a sentence."""
    return f"“{name}”"


def direction(side: int) -> str:
    """`higher` or `lower`."""
    return "higher" if side > 0 else "lower"


def change(x: ArmDifference, side: int) -> str:
    """`2.9% lower`."""
    return f"{value(x).lstrip('+−')} {direction(side)}"


def size(decision: PlannedDecision) -> str:
    """`2.9% lower`: what a decision showed, whether or not it crossed its bound."""
    return change(decision, 1 if decision.absolute.value > 0 else -1)


def value(x: ArmDifference) -> str:
    """`+2.9%`, or `+0.12 per user`."""
    (text, _, _), unit = _rounded(x)
    return text + unit


def ends(x: ArmDifference, between: str = "to") -> str:
    """`+1.1% to +4.7%`, or `+0.05 to +0.19 per user`."""
    (_, low, high), unit = _rounded(x)
    return f"{low} {between} {high}{unit}"


def span(x: ArmDifference) -> str:
    """`+2.9 % (+1.1% to +4.7%)`."""
    return f"{value(x)} ({ends(x)})"


def relative(x: IntervalEstimate) -> ArmDifference:
    """A relative change alone, as a difference that is shown in percent."""
    return ArmDifference(x, x)


def p_value(p: float) -> str:
    """`0.37`, `0.0021`, `below 0.0001`."""
    return "below 0.0001" if p < 1e-4 else number(p, 2 if p >= 0.1 else 4)


def _rounded(x: ArmDifference) -> tuple[list[str], str]:
    """Value, low and high with the same number of digits, and their unit."""
    if x.relative is None:
        parts = [x.absolute.value, x.absolute.low, x.absolute.high]
        digits = _visible(x.absolute, decimals([x.absolute]))
        return [_signed(part, digits) for part in parts], " per user"
    parts = [100 * x.relative.value, 100 * x.relative.low, 100 * x.relative.high]
    percents = IntervalEstimate(*parts)
    digits = max(1, decimals([percents])) if max(map(abs, parts)) <= 100 * MOST else 1
    digits = _visible(percents, digits)
    return [_percent(part, digits) for part in parts], ""


def _visible(x: IntervalEstimate, digits: int) -> int:
    """So many digits that no end of the interval looks like 0."""
    least = min((abs(end) for end in (x.low, x.high) if end), default=1.0)
    while digits < MOST_DIGITS and round(least, digits) == 0:
        digits += 1
    return digits


def _percent(x: float, digits: int) -> str:
    if abs(x) > 100 * MOST:
        return f"more than +{100 * MOST:,.0f}%"  # nothing falls by more than 100%
    return f"{_signed(x, digits)}%"


def _signed(x: float, digits: int) -> str:
    """With its sign, unless it rounds to 0."""
    text = number(x, digits)
    return f"+{text}" if x > 0 and math.isfinite(x) and text.strip("0.,") else text
