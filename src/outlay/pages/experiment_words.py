"""A test in words: effects, the verdict as a sentence to repeat, and what it rests on.

Effects are said relative to the control where that can be told, else in the metric's unit per user. Which interval is
meant is always said: of the planned decisions, of all days at once, or of one look.
"""

from __future__ import annotations

import datetime
import math

from outlay.pages import words
from outlay.pages.content import Interval
from outlay.pages.experiment_content import ArmComparison, CourseLine, Effect, ExperimentContent, Outcome

BADGES: dict[Outcome, tuple[str, str]] = {  # a blocked verdict stands in a box instead
    "better": ("yes", "✓ Better than the control"),
    "worse": ("no", "✕ Worse than the control"),
    "undecided": ("open", "No difference found"),
    "harm": ("no", "✕ Doing harm: stop it"),
    "open": ("open", "Not decided yet"),
}
MOST_DIGITS = 4  # after the point
MOST = 10.0  # a relative change beyond 1,000 % is not told in digits


def quoted(name: str) -> str:
    """`“new”`: an arm's name inside a sentence."""
    return f"“{name}”"


def value(effect: Effect) -> str:
    """`+2.9 %`, or `+0.12 per user`."""
    (text, _, _), unit = _told(effect)
    return text + unit


def ends(effect: Effect, between: str = "to") -> str:
    """`+1.1 % to +4.7 %`, or `+0.05 to +0.19 per user`."""
    (_, low, high), unit = _told(effect)
    return f"{low} {between} {high}{unit}"


def span(effect: Effect) -> str:
    """`+2.9 % (+1.1 % to +4.7 %)`."""
    return f"{value(effect)} ({ends(effect)})"


def size(effect: Effect) -> str:
    """Without its sign: `2.9 %`."""
    return value(effect).lstrip("+−")


def _told(effect: Effect) -> tuple[list[str], str]:
    """Value, low and high, rounded alike, and their unit."""
    if effect.relative is not None:
        value, low, high = effect.relative
        parts = Interval(100 * value, low and 100 * low, high and 100 * high)
        known = [end for end in parts if end is not None and abs(end) <= 100 * MOST]
        digits = max(1, words.decimals([Interval(*known)])) if len(known) == len(parts) else 1
        return [_change(end or 0.0, _seen(parts, digits)) for end in (value, low, high)], ""
    digits = _seen(effect.absolute, words.decimals([effect.absolute]))
    return [_signed(end or 0.0, digits) for end in effect.absolute], " per user"


def _seen(x: Interval, digits: int) -> int:
    """Digits with which no end of an interval looks as if it were 0."""
    least = min((abs(end) for end in (x.low, x.high) if end), default=1.0)
    while digits < MOST_DIGITS and round(least, digits) == 0:
        digits += 1
    return digits


def _change(x: float, digits: int) -> str:
    if abs(x) > MOST:
        return f"more than +{100 * MOST:,.0f} %"  # nothing falls by more than 100 %
    return f"{_signed(100 * x, digits)} %"


def _signed(x: float, digits: int) -> str:
    """With its sign, unless it rounds to 0."""
    text = words.number(x, digits)
    return f"+{text}" if x > 0 and math.isfinite(x) and text.strip("0.,") else text


def when(c: ExperimentContent) -> str:
    """`After day 7 of 14: 2 March 2026 to 8 March 2026`."""
    last = c.start + datetime.timedelta(days=c.day - 1)
    return f"After day {c.day} of {c.days}: {_date(c.start)} to {_date(last)}"


def _date(day: datetime.date) -> str:
    return f"{day.day} {day:%B %Y}"


def verdict(c: ExperimentContent, arm: ArmComparison) -> str:
    """What to do, in one sentence that can be repeated."""
    new, old, told = quoted(arm.arm), quoted(c.control), arm.told
    winners = sum(each.outcome == "better" for each in c.contestants)
    keep = not winners and all(each.outcome in ("worse", "undecided") for each in c.contestants)
    if arm.outcome == "better" and told is not None:
        head = f"Take {new}" if winners == 1 else f"{new} beats {old}"
        return f"{head}: {c.metric} is {change(told.effect, told.side)} than under {old}{_beside(arm)}."
    if arm.outcome == "worse" and told is not None:
        head = f"Keep {old}" if keep else f"Do not take {new}"
        return f"{head}: under {new} {c.metric} is {change(told.effect, told.side)}{_beside(arm)}."
    if arm.outcome == "undecided":
        cheaper = any(course.metric == "cost" and course.now < 0 for course in arm.guardrails)
        head = f"Keep {old}{', unless cost decides' if cheaper else ''}: " if keep else ""
        return f"{head}{new} made no difference to {c.metric} that shows{_beside(arm)}."
    if arm.outcome == "blocked":
        return f"No verdict on {new}{', and none of its numbers should be used' if c.doubted(arm.arm) else ''}."
    if arm.outcome == "harm" and arm.course is not None:
        now = change(arm.course.days[-1].always, arm.course.now)
        return f"Stop {new}: {c.metric} is {now} than under {old}{_beside(arm)}."
    due = next(day for day in c.decisions if day > c.day)
    harm = " and ".join(guardrail(course) for course in arm.guardrails if course.harmful)
    unless = f", unless it matters that {harm}" if harm else ""
    return f"Let it run{unless}: nothing is decided on {new} yet; the next planned decision is after day {due}."


def _beside(arm: ArmComparison) -> str:
    """`; cost is 1.4 % lower`: the guardrails that moved, and that the others did not."""
    moved = [f"; {guardrail(course)}" for course in arm.guardrails if course.moved]
    still = [course.metric for course in arm.guardrails if not course.moved]
    verb = "have" if len(still) > 1 else "has"
    return "".join(moved) + (f"; {' and '.join(still)} {verb} not moved visibly" if still else "")


def guardrail(course: CourseLine) -> str:
    """`cost is 1.4 % lower` where its interval still says so; else over how many days it was, or that it never was."""
    last = course.days[-1]
    if course.seen is None:
        return f"{course.metric} has not moved visibly"
    if course.now:
        return f"{course.metric} is {change(last.always, course.now)}"
    first = "on the first day" if course.seen[1] == 1 else f"over the first {course.seen[1]} days"
    return f"{course.metric} was {_side(course.moved)} {first}, but over {words.days(last.day)} that does not show"


def change(effect: Effect, side: int) -> str:
    """`2.9 % lower`."""
    return f"{size(effect)} {_side(side)}"


def _side(side: int) -> str:
    return "higher" if side > 0 else "lower"


def certainty(c: ExperimentContent, arm: ArmComparison) -> str:
    """What the verdict's sentence rests on: the interval, and when it was decided."""
    if arm.outcome == "blocked" or arm.course is None:
        return ""
    last = arm.course.days[-1]
    if arm.outcome == "open":
        already = {1: "; it already lies above 0", -1: "; it already lies below 0"}.get(arm.course.now, "")
        return (
            f"So far {c.metric} stands at {span(last.always)}. That interval may be looked at on any day{already}. The "
            "verdict comes on the planned day, when the size is better known."
        )
    if arm.outcome == "harm":
        return (
            f"With {words.exact(c.confidence)} confidence, on all days at once, the difference in {c.metric} lies "
            f"between {ends(last.always, 'and')}. To stop for harm needs no planned day; to take an arm does."
        )
    told = arm.told or arm.decisions[-1]
    decided = f"Decided on day {arm.decided.day}, as planned. " if arm.decided else ""
    later = f" After day {last.day} it stands at {value(last.look)}." if last.day > told.day else ""
    return (
        f"{decided}With {words.exact(c.arm_confidence)} confidence over all planned decisions, the difference in "
        f"{c.metric} after day {told.day} lies between {ends(told.effect, 'and')}.{later}"
    )


def lasting(arm: ArmComparison) -> str:
    """What became of the effect after the first week; empty where it has not changed visibly."""
    found = arm.change
    if found is None or found.trend == "steady":
        return ""
    became = {"fading": "fades", "growing": "grows", "reversed": "turned round"}[found.trend]
    return f"The effect {became}: {span(found.first)} in week 1, {span(found.since)} in {found.weeks}."


def between_winners(c: ExperimentContent) -> str:
    """What a test does not say where several arms beat the control."""
    winners = [quoted(arm.arm) for arm in c.contestants if arm.outcome == "better"]
    if len(winners) < 2:
        return ""
    return (
        f"Which of {' and '.join(winners)} is the best this test was not planned to decide: each was compared with "
        f"{quoted(c.control)} alone."
    )


def cards(c: ExperimentContent) -> list[tuple[str, str, str]]:
    """The few figures a manager reads: (what, value, beside it). A blocked arm has none."""
    found = []
    sure = [arm for arm in c.contestants if arm.outcome != "blocked"]
    for arm in sure:
        whose = f", {arm.arm}" if len(c.contestants) > 1 else ""
        made = arm.told if arm.decided or arm.outcome == "undecided" else None
        if made is not None:
            found.append((f"{c.metric}{whose}", value(made.effect), f"{ends(made.effect)}, after day {made.day}"))
        elif arm.course is not None:
            now = arm.course.days[-1].always
            found.append((f"{c.metric}{whose}, so far", value(now), ends(now)))
    for course in sure[0].guardrails[:2] if len(c.contestants) == 1 and sure else ():
        found.append((course.metric, value(course.days[-1].always), ends(course.days[-1].always)))
    found.append(("users", words.short(sum(arm.users for arm in c.arms)), f"in {len(c.arms)} arms"))
    purses = [(arm.spent, arm.budget) for arm in c.arms if arm.budget and arm.spent is not None]
    if purses:
        spent, budget = (sum(part) for part in zip(*purses, strict=True))
        of = f"{words.short(spent)} of {words.short(budget)}{'' if c.unit == 'money' else f' {c.unit}'}"
        found.append(("spent by all arms", words.percent(spent / budget), of))
    return found
