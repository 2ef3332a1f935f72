"""The verdict of a test, in a sentence that can be repeated."""

from __future__ import annotations

from outlay.experiments.design import Experiment
from outlay.experiments.findings import Comparison, Decision, Findings
from outlay.experiments.lift import Interval


def verdict(experiment: Experiment, findings: Findings) -> str:
    """What to do, arm by arm."""
    meta = experiment.meta
    tested = [comparison for comparison in findings.comparisons if comparison.contestant]
    told = [_verdict(experiment, findings.day, comparison, alone=len(tested) == 1) for comparison in tested]
    alike = ""
    if len(tested) > 1:
        alike = f" (each arm at {100 * (1 - findings.alpha):.4g} %, since {len(tested)} are tested)"
        told.insert(0, _of_several(experiment, findings.day, tested))
    return f"After day {findings.day} of {meta.days}{alike}: {' '.join(part for part in told if part)}"


def percent(x: float) -> str:
    """`+12.3 %`; below 1 % with two decimals, since that is where decisions are made."""
    return f"{100 * x:+.1f} %" if abs(x) >= 0.01 else f"{100 * x:+.2f} %"


def span(x: Interval) -> str:
    """`+0.61 % (+0.20 % to +1.0 %)`."""
    return f"{percent(x.value)} ({percent(x.low)} to {percent(x.high)})"


def _of_several(experiment: Experiment, day: int, tested: list[Comparison]) -> str:
    """What to do where several arms stand against the control; empty while the test goes on undecided."""
    won = [repr(c.arm) for c in tested if not c.blocked and c.decided is not None and c.decided.side > 0]
    if len(won) > 1:
        return f"Take {' or '.join(won)}; which of them is the better was not tested."
    if won:
        return f"Take {won[0]}."
    over = all(c.blocked or c.decided is not None for c in tested) or day >= experiment.meta.days
    return f"Keep {experiment.control.name!r}." if over and not all(c.blocked for c in tested) else ""


def _verdict(experiment: Experiment, day: int, found: Comparison, *, alone: bool) -> str:
    meta, control = experiment.meta, experiment.control.name
    if found.blocked:
        return f"No verdict on {found.arm!r}: {'; '.join(found.blocked)}."
    decided = found.decided
    beside = _beside(found, [name for name in meta.guardrails if name != meta.metric])
    sure = f"{100 * meta.confidence:.4g} % sure over all planned decisions"
    if decided is not None:
        what = "" if not alone else f"Take {found.arm!r}: " if decided.side > 0 else f"Keep {control!r}: "
        side = "higher" if decided.side > 0 else "lower"
        return (
            f"{what}{meta.metric} is {_size(decided)} {side} under {found.arm!r} than under {control!r} "
            f"({_ends(decided)}; {sure}, decided on day {decided.day}){beside}."
        )
    after = next((d for d in meta.decisions if d > day), None)
    if after is not None:
        last = found.decisions[-1] if found.decisions else None
        seen = f" yet: on day {last.day} {meta.metric} ({_ends(last)}) did not cross the bound" if last else " yet"
        return f"No verdict on {found.arm!r}{seen}. The next planned decision is after day {after}{beside}."
    keep = f"Keep {control!r}, unless cost decides: no" if alone else "No"
    return (
        f"{keep} difference in {meta.metric} was found under {found.arm!r} "
        f"({_ends(found.decisions[-1])}; {sure}){beside}."
    )


def _size(decision: Decision) -> str:
    x = decision.relative
    return f"{abs(decision.absolute.value):.4g} a user" if x is None else percent(abs(x.value)).removeprefix("+")


def _ends(decision: Decision) -> str:
    x = decision.relative
    if x is None:
        return f"{decision.absolute.low:+.4g} to {decision.absolute.high:+.4g} a user"
    return f"{percent(x.low)} to {percent(x.high)}"


def _beside(found: Comparison, guardrails: list[str]) -> str:
    """`; cost is lower (-1.4 % to -0.2 %)`: guardrails, with the intervals that hold on all days."""
    parts = []
    for name in guardrails:
        course = found.course(name)
        if course is None or not course.points:
            continue
        shown, now = course.points[-1].always_relative, course.points[-1].side
        state = {1: "is higher", -1: "is lower", 0: "has not moved visibly"}[now]
        if course.moved and not now:
            state = f"moved {'up' if course.moved > 0 else 'down'} by day {course.since}"
        parts.append(f"{name} {state}" + (f" ({percent(shown.low)} to {percent(shown.high)})" if shown else ""))
    return f"; {'; '.join(parts)}" if parts else ""
