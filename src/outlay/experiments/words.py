"""The verdict of a test, in a sentence that can be repeated."""

from __future__ import annotations

from outlay.experiments.design import Experiment
from outlay.experiments.findings import ArmComparison, Change, Course, Findings
from outlay.experiments.lift import IntervalEstimate, Lift


def verdict(experiment: Experiment, findings: Findings) -> str:
    """What to do, arm by arm."""
    meta = experiment.meta
    tested = [comparison for comparison in findings.comparisons if comparison.outcome is not None]
    told = [
        _verdict(experiment, findings.day, comparison, alone=len(tested) == 1) + _lasting(comparison)
        for comparison in tested
    ]
    alike = ""
    if len(tested) > 1:
        alike = f" (each arm at {100 * (1 - findings.alpha):.4g} %, since {len(tested)} are tested)"
        told.insert(0, _of_several(experiment, tested))
    return f"After day {findings.day} of {meta.days}{alike}: {' '.join(part for part in told if part)}"


def percent(x: float) -> str:
    """`+12.3 %`; below 1 % with two decimals or more, since that is where decisions are made."""
    size = abs(100 * x)
    digits = 1 if size >= 1 else 2 if size >= 0.005 or not size else 4
    return f"{100 * x:+.{digits}f} %"


def span(x: IntervalEstimate) -> str:
    """`+0.61 % (+0.20 % to +1.0 %)`."""
    return f"{percent(x.value)} ({percent(x.low)} to {percent(x.high)})"


def _of_several(experiment: Experiment, tested: list[ArmComparison]) -> str:
    """What to do where several arms stand against the control; empty while the test goes on undecided."""
    won = [repr(c.arm) for c in tested if c.outcome == "better"]
    if len(won) > 1:
        return f"Take {' or '.join(won)}; which of them is the better was not tested."
    if won:
        return f"Take {won[0]}."
    if any(c.outcome in ("open", "harm", "blocked") for c in tested):
        return ""
    cheaper = [repr(c.arm) for c in tested if c.outcome == "undecided" and _costs_less(c)]
    return f"Keep {experiment.control.name!r}{f', unless cost decides for {cheaper[0]}' if cheaper else ''}."


def _verdict(experiment: Experiment, day: int, found: ArmComparison, *, alone: bool) -> str:
    meta, new, old = experiment.meta, repr(found.arm), repr(experiment.control.name)
    beside = _beside(found, day)
    planned = f"{100 * meta.confidence:.4g} % sure over all planned decisions"
    if found.outcome == "blocked":
        return f"No verdict on {new}: {'; '.join(found.blocked)}."
    if found.decided is not None and found.told is not None:
        what = "" if not alone else f"Take {new}: " if found.outcome == "better" else f"Keep {old}: "
        of, last = found.told, found.decisions[-1]
        faint = "" if last.side else f"; {ends(last.absolute, last.relative)} after day {last.day}"
        return (
            f"{what}{meta.metric} is {size(of.absolute, of.relative)} {_side(of.side)} under {new} than under {old} "
            f"after day {of.day} ({ends(of.absolute, of.relative)}; {planned}, decided on day {found.decided.day}"
            f"{faint}){beside}."
        )
    if found.outcome == "harm":
        now = found.courses[0].points[-1]
        return (
            f"Stop {new}: {meta.metric} is {size(now.always, now.always_relative)} {_side(now.side)} than under {old} "
            f"({ends(now.always, now.always_relative)}; {100 * meta.confidence:.4g} % sure on all days at once)"
            f"{beside}. To stop for harm needs no planned day."
        )
    latest = found.decisions[-1] if found.decisions else None
    between = "" if latest is None else ends(latest.absolute, latest.relative)
    if found.outcome == "open":
        seen = "" if latest is None else f": on day {latest.day} {meta.metric} ({between}) did not cross the bound"
        after = next(d for d in meta.decisions if d > day)
        return (
            f"No verdict on {new} yet{seen}. The next planned decision is after day {after}{beside}."
            f"{_reason_to_stop(found)}"
        )
    keep = "No" if not alone else f"Keep {old}{', unless cost decides' if _costs_less(found) else ''}: no"
    return f"{keep} difference in {meta.metric} was found under {new} ({between}; {planned}){beside}."


def _costs_less(found: ArmComparison) -> bool:
    return any(course.metric == "cost" and course.now < 0 for course in found.courses[1:])


def _side(side: int) -> str:
    return "higher" if side > 0 else "lower"


def size(absolute: IntervalEstimate, relative: IntervalEstimate | None) -> str:
    """`12.3 %`, or `0.12 a user`: without its sign."""
    return f"{abs(absolute.value):.4g} a user" if relative is None else percent(abs(relative.value)).removeprefix("+")


def ends(absolute: IntervalEstimate, relative: IntervalEstimate | None) -> str:
    """`-0.5 % to +2.9 %`, or `-0.05 to +0.29 a user`."""
    if relative is None:
        return f"{absolute.low:+.4g} to {absolute.high:+.4g} a user"
    return f"{percent(relative.low)} to {percent(relative.high)}"


def weeks(change: Change) -> str:
    """`+10.2 % (+8.0 % to +12.4 %) in week 1, -1.0 % (-3.1 % to +1.2 %) in week 2`."""
    return f"{_effect(change.first)} in week 1, {_effect(change.since)} in {change.weeks}"


def _effect(x: Lift) -> str:
    return span(x.relative) if x.relative else f"{x.absolute.value:+.4g} ({ends(x.absolute, None)} and day)"


def _lasting(found: ArmComparison) -> str:
    """What became of the effect, where it has changed; empty where a reason already says so."""
    change = found.change
    if change is None or change.trend == "steady" or any(weeks(change) in reason for reason in found.blocked):
        return ""
    became = {"fading": "fades", "growing": "grows", "reversed": "turned round"}[change.trend]
    return f" The effect {became}: {weeks(change)}; p = {change.p_value:.2g} at one look."


def _beside(found: ArmComparison, day: int) -> str:
    """`; cost is lower (-1.4 % to -0.2 %)`: guardrails, with the intervals that hold on all days."""
    parts = [_guardrail(course, day) for course in found.courses[1:] if course.points]
    return f"; {'; '.join(parts)}" if parts else ""


def _guardrail(course: Course, day: int) -> str:
    last, ever = course.points[-1], course.seen
    between = ends(last.always, last.always_relative)
    if ever is None:
        return f"{course.metric} has not moved visibly ({between})"
    if course.now:
        return f"{course.metric} is {_side(course.now)} ({between})"
    first = "on the first day" if ever[1] == 1 else f"over the first {ever[1]} days"
    return f"{course.metric} was {_side(course.moved)} {first}, but over {day} days that does not show ({between})"


def _reason_to_stop(found: ArmComparison) -> str:
    """Guardrails that went the wrong way; they hold on any day."""
    wrong = [f"{course.metric} may not be {_side(course.now)}" for course in found.courses[1:] if course.harmful]
    return f" Stop {found.arm!r} now if {' or '.join(wrong)}: guardrails hold on any day." if wrong else ""
