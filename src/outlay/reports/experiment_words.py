"""A test in words: effects, the verdict as a sentence to repeat, and what it rests on.

Effects are said relative to the control where that can be told, else in the metric's unit per user. Which interval is
meant is always said: of the planned decisions, of all days at once, or of one look.
"""

from __future__ import annotations

import datetime
import math

from outlay.reports import words
from outlay.reports.content import Interval
from outlay.reports.experiment_content import ArmComparison, CourseLine, Effect, ExperimentContent, Outcome

BADGES: dict[Outcome, tuple[str, str]] = {  # a blocked verdict stands in a box instead
    "better": ("yes", "✓ Better than the control"),
    "worse": ("no", "✕ Worse than the control"),
    "same": ("open", "No difference found"),
    "open": ("open", "Not decided yet"),
}
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
        known = [100 * end for end in effect.relative if end is not None and abs(end) <= MOST]
        digits = max(1, words.decimals([Interval(*known)])) if len(known) == len(effect.relative) else 1
        return [_change(end or 0.0, digits) for end in effect.relative], ""
    digits = words.decimals([effect.absolute])
    return [_signed(end or 0.0, digits) for end in effect.absolute], " per user"


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
    new, old, decided = quoted(arm.arm), quoted(c.control), arm.decided
    winners = sum(each.outcome == "better" for each in c.contestants)
    if arm.outcome == "better" and decided is not None:
        head = f"Take {new}" if winners == 1 else f"{new} beats {old}"
        return f"{head}: {c.metric} is {size(decided.effect)} higher than under {old}{_beside(arm)}."
    if arm.outcome == "worse" and decided is not None:
        head = f"Do not take {new}" if winners else f"Keep {old}"
        return f"{head}: under {new} {c.metric} is {size(decided.effect)} lower{_beside(arm)}."
    if arm.outcome == "same":
        head = "" if winners else f"Keep {old}, unless cost decides: "
        return f"{head}{new} made no difference to {c.metric} that shows{_beside(arm)}."
    if arm.outcome == "blocked":
        return f"No verdict on {new}{', and none of its numbers should be used' if c.doubted(arm.arm) else ''}."
    due = next(day for day in c.decisions if day > c.day)
    return f"Let it run: nothing is decided on {new} yet; the next planned decision is after day {due}."


def _beside(arm: ArmComparison) -> str:
    """`; cost is 1.4 % lower`: the guardrails that moved, and that the others did not."""
    moved = [f"; {guardrail(course)}" for course in arm.guardrails if course.moved]
    still = [course.metric for course in arm.guardrails if not course.moved]
    verb = "have" if len(still) > 1 else "has"
    return "".join(moved) + (f"; {' and '.join(still)} {verb} not moved visibly" if still else "")


def guardrail(course: CourseLine) -> str:
    """`cost is 1.4 % lower` where its interval still says so; else that it once moved, or never."""
    last = course.days[-1].always
    if not course.moved:
        return f"{course.metric} has not moved visibly"
    if stays_moved(course):
        return f"{course.metric} is {size(last)} {'higher' if course.moved > 0 else 'lower'}"
    return f"{course.metric} moved {'up' if course.moved > 0 else 'down'} on day {course.since}"


def stays_moved(course: CourseLine) -> bool:
    """Whether the last interval lies on the side to which the metric moved."""
    _, low, high = course.days[-1].always.absolute
    return (course.moved > 0 and (low or 0.0) > 0) or (course.moved < 0 and (high or 0.0) < 0)


def certainty(c: ExperimentContent, arm: ArmComparison) -> str:
    """What the verdict's sentence rests on: the interval, and when it was decided."""
    if arm.outcome == "blocked" or arm.course is None:
        return ""
    last = arm.course.days[-1]
    if arm.outcome == "open":
        return (
            f"So far {c.metric} stands at {span(last.always)}. That interval may be looked at on any day; a verdict "
            "before the planned day would be luck."
        )
    told = arm.decided or arm.decisions[-1]
    decided = f"Decided on day {told.day}, as planned: with" if arm.decided else "With"
    later = f" After day {last.day} it stands at {value(last.look)}." if last.day > told.day else ""
    return (
        f"{decided} {words.exact(c.arm_confidence)} confidence the difference in {c.metric} lies between "
        f"{ends(told.effect, 'and')}.{later}"
    )


def between_winners(c: ExperimentContent) -> str:
    """What a test does not say where several arms beat the control."""
    winners = [quoted(arm.arm) for arm in c.contestants if arm.outcome == "better"]
    if len(winners) < 2:
        return ""
    return (
        f"Which of {' and '.join(winners)} is the best this test was not planned to decide: each was held against "
        f"{quoted(c.control)} alone."
    )


def cards(c: ExperimentContent) -> list[tuple[str, str, str]]:
    """The few figures a manager reads: (what, value, beside it). A blocked arm has none."""
    found = []
    sure = [arm for arm in c.contestants if arm.outcome != "blocked"]
    for arm in sure:
        whose = f", {arm.arm}" if len(c.contestants) > 1 else ""
        made = arm.decided or (arm.decisions[-1] if arm.outcome == "same" else None)
        if made is not None:
            found.append((f"{c.metric}{whose}", value(made.effect), f"{ends(made.effect)}, on day {made.day}"))
        elif arm.course is not None:
            now = arm.course.days[-1].always
            found.append((f"{c.metric}{whose}, so far", value(now), ends(now)))
    for course in sure[0].guardrails[:2] if len(c.contestants) == 1 and sure else ():
        found.append((course.metric, value(course.days[-1].always), ends(course.days[-1].always)))
    found.append(("users", words.short(sum(arm.users for arm in c.arms)), f"in {len(c.arms)} arms"))
    purses = [(arm.spent, arm.budget) for arm in c.arms if arm.budget and arm.spent is not None]
    if purses:
        spent, budget = (sum(part) for part in zip(*purses, strict=True))
        found.append(("spent", words.percent(spent / budget), f"{words.short(spent)} of {words.short(budget)}"))
    return found
