"""All words of an A/B test: notes and reasons, its verdict, and numbers, for the terminal and for the page.

    note = NoteKind.BEYOND(rows=3_600, days=14)
    note.kind is NoteKind.BEYOND, note.figures["rows"]     # what decisions and tests go by
    note.words                                             # what people read, compared with nothing

Effects are given relative to the control if that is possible, otherwise in the metric's unit per user. The sentences
say which interval is meant: that of the planned decisions, of all days at once, or of a single look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import pairwise
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

from outlay.core.wording import days, decimals, exact, four, number, signed, singular

if TYPE_CHECKING:
    from outlay.experiments.lift import ArmDifference
    from outlay.experiments.results import Analysis, ArmComparison, Change, Course, PlannedDecision

PER_USER = " per user"
MOST_DIGITS = 4  # after the point
MOST = 10.0  # a relative change beyond 1,000% is not shown in digits
BEYOND = f"more than +{number(100 * MOST)}%"  # nothing falls by more than 100%
MOST_RUNS = 5  # of days that are named
LIST = "--assigned arms.parquet, as outlay experiment assign writes it for the last day"
CROSSED = "{metric} crossed the bound on day {day} ({size})"


class NoteKind(Enum):
    """The words of each kind, with the places of its figures. Reasons are parts of a sentence."""

    # Why a metric is not compared.
    FEW_UNITS = "an arm has {count} {units}; {needed} are needed"
    NO_DENOMINATOR = "{column} is 0 in an arm"
    CONSTANT = "{treatment} against {control} in the control, the same for every user of an arm, so it has no error"
    ALIKE = "the users of an arm differ in it only by the day on which they came, so it has no error"
    PREDICTED = "the days before the start predict it exactly"

    # Why an arm gets no verdict.
    NO_USERS = "the arm “{arm}” has no users"
    SAMPLE_RATIO = "{found}: something other than chance decides who is seen{parts}"
    RATIO_OF_PARTS = (
        "the arms have the planned {units} in all, but not among {units} {parts}: something other than chance decides "
        "who is seen"
    )
    DAYS_WITHOUT_ROWS = "the log has no row of any user on {days}, which would count as a day without any outcome"
    ONLY_OUTCOMES = (
        "the log has rows only where {metric} is not 0 ({share} of its users' days), so users without any are "
        f"missing, and how many they are depends on the arm. Say who was assigned: {LIST}"
    )
    NOT_COMPARED = "{metric} cannot be compared: {reason}"
    OPPOSITE = f"{CROSSED}, and the opposite bound on day {{later}} ({{later_size}})"
    TURNED = f"{CROSSED}, but after day {{later}} the effect is the opposite: {{later_size}}"
    FADED = f"{CROSSED}, but the effect did not last: {{by_week}}"

    # What to know about a test's log.
    UNRECORDED = (
        "The log has no row of any user on {days}. Were they exported? If nothing happened then, give the log a row of "
        "0 for any user on such a day."
    )
    THIN_LAST_DAY = (
        "The last day, {date}, has {rows:,} rows; the median day before it has {median:,.0f}. Was it exported before "
        "it ended?"
    )
    NO_ZEROS = (
        "No user in the log has 0 of {metric}. If users without any are left out, how many they are depends on the "
        f"arm, and the effects shown are biased. Say who was assigned: {LIST}."
    )
    NEGATIVE_MONEY = "{money} is below 0 in some rows, down to {least}. Are these refunds, or is the sign wrong?"
    NOT_LISTED = (
        "{count:,} users are in an arm in the log but not on the list of assigned users, so they do not count. Write "
        "the list for the last day of the test."
    )
    WITHOUT_ROWS = "{count:,} of {assigned:,} assigned users have no row in the log; they count as 0."
    OTHER_SYSTEM = (
        "Of the users in a sample, {percent}% are in the arm that the experiment file draws, so another system has "
        "assigned them. Its shares and its ramp must be those of the file."
    )
    FEW_MOVED = (
        "{count:,} of {sample:,} users in a sample are in another arm than the file draws, for example user {user!r}: "
        "what put them there may not have been chance."
    )
    UNRIPE = (
        "Outcomes can come up to {delay} later (log.delays), so {ripe} ripe.{left_out} The verdict is not final before "
        "day {planned} is ripe: when outcomes have been collected until {due}."
    )
    EVENTS = (
        "The campaign has later outcomes in a table of their own (log.events), which an analysis does not read: the "
        "columns of the log have to include them."
    )
    BEYOND = (
        "{rows:,} rows after the planned end (day {days}) are left out: to go on until something shows would not be a "
        "test."
    )
    LATER_DAYS = "The log has {observed} days; the look is after day {day}, the last whole week."
    LATER_RIPE_DAYS = "The log has {observed} ripe days; the look is after day {day}, the last whole week."
    BROKEN_WEEK = "{day} days are not whole weeks, so weekdays do not count equally."
    WHOLE_USERS = (
        "Each row is a whole user, so there is no course by day, and of earlier decisions only the days are known."
    )
    NO_REDEMPTION = (
        "{column} is not shown: a row per user does not say on how many days money was paid. Give the days: --column "
        "{column}=NAME."
    )
    OVERSPENT = "The arm “{arm}” spent {spent:,.10g}, more than its budget of {budget:,.10g}; nothing stopped it there."
    BY_CLUSTER = (
        "Arms were drawn by cluster: errors are those of {clusters:,} clusters. Segments, users with a row and the "
        "first week are not compared."
    )
    ELIGIBLE_UNKNOWN = "The log lacks the columns of the test's condition, so it is not checked who was eligible."
    NO_COMMON_TOTAL = "The estimate for “{arm}” and the test have no total in common, so that promise is not compared."
    OTHER_CONTROL = (
        "The promise is relative to the policy of the estimate's log; what happened is relative to “{control}”. If "
        "these are not the same policy, the two need not agree."
    )
    RAMP_OF_PROMISE = (
        "The promise is for {days} days; by then, the users of the ramp had been in the test for {inside:.1f} of them "
        "on average."
    )

    # What to consider before a test starts.
    PAST_UNRECORDED = (
        "the past log has no row of any user on {days}; they count as days on which nobody did anything. Were they "
        "exported?"
    )
    LIVE = "the test starts {when}: it counts as live, and plan can rewrite this file only with more coverage."
    NOTHING_GIVEN = "no arm gives anything: such a test (an A/A test) can only find faults in the assignment."
    CONTROL_GIVES_NOTHING = (
        "the control {control!r} gives nothing: lifts are relative to no incentive at all, not to today's policy."
    )
    UNEQUAL_BUDGETS = (
        "the arm {most!r} has {times} times the budget per user of {least!r}: the lift will be that of the money "
        "as well as the policy."
    )
    SHORT_BUDGETS = (
        "money may run out early. Of the {unit} that the log says as many users spend in as many days, {arms}. Once an "
        "arm's money is gone, the rest of the test says nothing about it."
    )
    SHORT_BUDGETS_ONCE = (
        "money may run out early. Of the {unit} that the log says as many users spend, {arms}. Once an arm's money is "
        "gone, the rest of the test says nothing about it."
    )
    ONE_ROW = (
        "each user of the log has one row, which is taken as all that a user brings and costs in the test, "
        "however long that is."
    )
    COUNTED = (
        "the log counts {unit}s, not days: {days} of them are taken as what a user has in the test. Give --days as "
        "many as a user is expected to have."
    )
    RAMP_ENDS = (
        "the ramp ends on day {growth}: power counts only the {days} days after it, on which all users are in the test."
    )
    LATE_RAMP = (
        "all users are in the test for {full} of its {days} days, less than a week. End the ramp on day {last} or "
        "before."
    )
    EARLY_DECISION = "the decision after day {day} comes before the ramp's end, on {share:.0%} of the users."
    SCALED = "{days} days are taken as {times} times the {had}, so the real power is at least the power shown."
    SINGLE_DAY = (
        "the log has a single {unit}. If what it records happens once (a letter, a year) and not every {unit}, the "
        "means and the money shown are too large by that factor."
    )
    NO_DAYS_BEFORE = "the log has no rows before those that were measured, so it is not known what CUPED would gain."
    ROUGH_POWER = "an arm has {users} users; with fewer than {enough}, the power is a rough guess."
    CONSTANT_GUARDRAIL = "the guardrail {metric!r} is the same for all users of the log, so its power is not known."
    SKEWED = (
        "a few users account for most of {metrics}, and the control and the arm {arm!r} have {control:,} and "
        "{treatment:,} users: the smaller arm's own variance will not be trusted, so the power is less than shown. "
        "Arms of equal size avoid this."
    )
    CLUSTERS_ADVISED = (
        "the campaign says that users share what happens to them ({cluster}), and arms are drawn by user: what an arm "
        "does may reach users of another arm. Draw arms by it: cluster."
    )
    CLUSTERED = (
        "arms are drawn by {cluster}: {clusters:,} clusters, of {size} users for the average user; {metric} has "
        "an intra-cluster correlation of {correlation}, so a test needs {effect} times the users that it "
        "would if arms were drawn by user."
    )
    FEW_CLUSTERS = (
        "an arm has {clusters} clusters; with fewer than {few} a test {consequence}, since quantiles are those of "
        "Student's t; {needed} are needed."
    )

    @property
    def named(self) -> str:
        """`thin last day`: as files and `--json` call it."""
        return self.name.lower().replace("_", " ")

    def __call__(self, **figures: str | int | float) -> ExperimentNote:
        """A note of this kind."""
        return ExperimentNote(self, figures)


class _Figures(Formatter):
    """Places without a format of their own take numbers as people write them: `1,600`, not `1.6e+03`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        plain = isinstance(value, float) and not format_spec
        return four(value) if plain else str(super().format_field(value, format_spec))


@dataclass(frozen=True)
class ExperimentNote:
    """One note or reason.

    Attributes:
        kind: what it says.
        figures: by name.
        words: the same for people; a reason without a full stop.
    """

    kind: NoteKind
    figures: Mapping[str, str | int | float]
    words: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", _Figures().vformat(self.kind.value, (), self.figures))

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"kind": self.kind.named}


def spans(days: Sequence[int], text: Callable[[int], str]) -> str:
    """Ascending days in words, with runs of them joined: `4 to 6, 9`."""
    if not days:
        return ""
    starts = [days[0], *(b for a, b in pairwise(days) if b > a + 1)]
    ends = [*(a for a, b in pairwise(days) if b > a + 1), days[-1]]
    runs = [text(a) if a == b else f"{text(a)} to {text(b)}" for a, b in zip(starts, ends, strict=True)]
    more = f" and other days, {len(days)} in all" if len(runs) > MOST_RUNS else ""
    return ", ".join(runs[:MOST_RUNS]) + more


def verdict(analysis: Analysis) -> str:
    """What to do, arm by arm."""
    tested = analysis.contestants
    shared = f" (each arm at {exact(1 - analysis.alpha)}, since {len(tested)} are tested)" if len(tested) > 1 else ""
    parts = []
    for arm in tested:
        parts.append(headline(analysis, arm))
        parts += [f"Because {told(analysis, reason)}." for reason in arm.blocked]
        parts += [certainty(analysis, arm), lasting(arm)]
    parts.append(between_winners(analysis))
    return f"After day {analysis.day} of {analysis.experiment.meta.days}{shared}: {' '.join(filter(None, parts))}"


def headline(analysis: Analysis, arm: ArmComparison) -> str:
    """What to do about one arm, in a sentence that can be repeated."""
    meta, new, old, reported = analysis.experiment.meta, quoted(arm.arm), quoted(analysis.control), arm.reported
    outcomes = [each.outcome for each in analysis.contestants]
    keep = all(outcome in ("worse", "undecided") for outcome in outcomes)
    subject, others = with_verb(analysis, meta.metric), _guardrails(analysis, arm)
    if arm.outcome == "better" and reported is not None:
        head = f"Take {new}" if outcomes.count("better") == 1 else f"{new} beats {old}"
        return f"{head}: {subject} {change(reported, reported.side)} than under {old}{others}."
    if arm.outcome == "worse" and reported is not None:
        head = f"Keep {old}" if keep else f"Do not take {new}"
        return f"{head}: under {new}, {subject} {change(reported, reported.side)}{others}."
    if arm.outcome == "undecided":
        cheaper = any(course.metric == "cost" and course.now < 0 for course in arm.guardrails)
        head = f"Keep {old}{', unless its cost decides' if cheaper else ''}: n" if keep else "N"
        return f"{head}o difference in {analysis.called(meta.metric)} was found under {new}{others}."
    if arm.outcome == "blocked":
        return f"No verdict on {new}{', and none of its numbers should be used' if analysis.doubted(arm.arm) else ''}."
    if arm.outcome == "harm" and arm.course is not None:
        now = change(arm.course.points[-1].on_all_days, arm.course.now)
        return f"Stop {new}: {subject} {now} than under {old}{others}."
    due = next(day for day in meta.decisions if day > analysis.day)
    harm = " and ".join(guardrail(analysis, course) for course in arm.guardrails if course.harmful)
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
    metric, last = analysis.called(analysis.experiment.meta.metric), arm.course.points[-1]
    if arm.outcome == "open":
        already = {1: "; it already lies above 0", -1: "; it already lies below 0"}.get(arm.course.now, "")
        past = f" On day {arm.decisions[-1].day} it did not cross the bound." if arm.decisions else ""
        harmful = any(course.harmful for course in arm.guardrails)
        stop = " To stop because of a guardrail needs no planned day." if harmful else ""
        return (
            f"So far the difference in {metric} is {span(last.on_all_days)}. You may look at this interval on any "
            f"day{already}.{past} "
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


def guardrail(analysis: Analysis, course: Course) -> str:
    """`cost is 1.4% lower`, or that it was for some days, or that it never was."""
    last = course.points[-1]
    if course.seen is None:
        return f"no change in {analysis.called(course.metric)} shows"
    if course.now:
        return f"{with_verb(analysis, course.metric)} {change(last.on_all_days, course.now)}"
    first = "on the first day" if course.seen[1] == 1 else f"over the first {course.seen[1]} days"
    was = with_verb(analysis, course.metric, past=True)
    return f"{was} {direction(course.moved)} {first}, but over {days(last.day)} no change shows"


def _guardrails(analysis: Analysis, arm: ArmComparison) -> str:
    """`; cost is 1.4% lower; no change in redemption shows`."""
    moved = [f"; {guardrail(analysis, course)}" for course in arm.guardrails if course.moved]
    still = [analysis.called(course.metric) for course in arm.guardrails if not course.moved]
    return "".join(moved) + (f"; no change in {' or '.join(still)} shows" if still else "")


def by_week(change: Change) -> str:
    """`+10.2 % (+8.0% to +12.4%) in week 1, −1.0 % (−3.1% to +1.2%) in week 2`."""
    return f"{span(change.first)} in week 1, {span(change.since)} in {change.weeks}"


def told(analysis: Analysis, note: ExperimentNote) -> str:
    """The words of a note, with what sentences call its metric."""
    figures = dict(note.figures)
    if "metric" in figures:
        figures["metric"] = analysis.called(str(figures["metric"]))
    return note.kind.value.format(**figures)


def with_verb(analysis: Analysis, metric: str, *, past: bool = False) -> str:
    """`cost is`, `active days are`: a label that ends in s is taken as a plural."""
    many = plural(analysis, metric)
    return f"{analysis.called(metric)} {('were' if many else 'was') if past else 'are' if many else 'is'}"


def plural(analysis: Analysis, metric: str) -> bool:
    """Whether a metric has a label in the plural."""
    return singular(analysis.names.get(metric, "")) != analysis.names.get(metric, "")


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


def value(x: ArmDifference, unit: str = PER_USER) -> str:
    """`+2.9%`, or `+0.12 per user`."""
    return _rounded(x)[0] + (unit if x.relative is None else "")


def ends(x: ArmDifference, between: str = "to", unit: str = PER_USER) -> str:
    """`+1.1% to +4.7%`, or `+0.05 to +0.19 per user`."""
    _, low, high = _rounded(x)
    return f"{low} {between} {high}{unit if x.relative is None else ''}"


def span(x: ArmDifference) -> str:
    """`+2.9 % (+1.1% to +4.7%)`."""
    return f"{value(x)} ({ends(x)})"


def p_value(p: float) -> str:
    """`0.37`, `0.0021`, `below 0.0001`."""
    return "below 0.0001" if p < 1e-4 else number(p, 2 if p >= 0.1 else 4)


class _Ends(NamedTuple):
    value: float
    low: float
    high: float


def _rounded(x: ArmDifference) -> list[str]:
    """Value, low and high with the same number of digits, in percent if they are known so."""
    if x.relative is None:
        absolute = _Ends(x.absolute.value, x.absolute.low, x.absolute.high)
        digits = _visible(absolute, decimals([absolute]))
        return [signed(part, digits) for part in absolute]
    percents = _Ends(100 * x.relative.value, 100 * x.relative.low, 100 * x.relative.high)
    digits = max(1, decimals([percents])) if max(map(abs, percents)) <= 100 * MOST else 1
    digits = _visible(percents, digits)
    return [f"{signed(part, digits)}%" if abs(part) <= 100 * MOST else BEYOND for part in percents]


def _visible(x: _Ends, digits: int) -> int:
    """So many digits that no end of the interval looks like 0."""
    least = min((abs(end) for end in (x.low, x.high) if end), default=1.0)
    while digits < MOST_DIGITS and round(least, digits) == 0:
        digits += 1
    return digits
