"""What can be said of a plan, of a test's log and of its arms: every kind with its words, which are made here alone.

    note = NoteKind.BEYOND(rows=3_600, days=14)
    note.kind is NoteKind.BEYOND, note.figures["rows"]     # what decisions and tests go by
    note.words                                             # what people read, compared with nothing

A metric that cannot be compared and an arm that gets no verdict carry notes as well, as their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any

MOST_RUNS = 5  # of days that are named
LIST = "--assigned arms.parquet, as outlay experiment assign writes it for the last day"
CROSSED = "{metric} was {size} on day {day}, when it crossed the bound,"


class NoteKind(Enum):
    """The words of each kind, with the places of its figures. Reasons are parts of a sentence."""

    # Why a metric is not compared.
    FEW_UNITS = "an arm has {count} {units}; {needed} are needed"
    NO_DENOMINATOR = "{column} is 0 in an arm"
    CONSTANT = (
        "{treatment:.4g} against {control:.4g} in the control, the same for every user of an arm, so it has no error"
    )
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
    OPPOSITE = f"{CROSSED} and {{later_size}} on day {{later}}, when it crossed the opposite bound"
    TURNED = f"{CROSSED} and is {{later_size}} after day {{later}}: the effect did not last"
    FADED = f"{CROSSED} but the effect did not last: {{by_week}}"

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
    NEGATIVE_MONEY = "{money} is below 0 in some rows, down to {least:.4g}. Are these refunds, or is the sign wrong?"
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
    LATER_DAYS = "The log has {observed}{ripe} days; the look is after day {day}, the last whole week."
    BROKEN_WEEK = "{day} days are not whole weeks, so weekdays do not count equally."
    WHOLE_USERS = (
        "Each row is a whole user, so there is no course by day, and of earlier decisions only the days are known."
    )
    NO_REDEMPTION = (
        "{metric} is not shown: a row per user does not say on how many days money was paid. Give the days: --column "
        "{metric}=NAME."
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
        "the arm {most!r} has {times:.3g} times the budget per user of {least!r}: the lift will be that of the money "
        "as well as the policy."
    )
    SHORT_BUDGETS = (
        "as many users of the log spent more {unit} over as many days than the budget of {arms}. Once an arm's money "
        "is gone, the rest of the test says nothing about it."
    )
    RAMP_ENDS = (
        "the ramp ends on day {growth}: power counts only the {days} days after it, on which all users are in the test."
    )
    LATE_RAMP = (
        "all users are in the test for {full} of its {days} days, less than a week. End the ramp on day {last} or "
        "before."
    )
    EARLY_DECISION = "the decision after day {day} comes before the ramp's end, on {share:.0%} of the users."
    SCALED = (
        "{days} days are taken as {times:.3g} times the {window} days that the log has, so the real power is at least "
        "the power shown."
    )
    SINGLE_DAY = (
        "the log has a single day. If what it records happens once (a letter, a year) and not every day, the means and "
        "the money shown are too large by that factor."
    )
    NO_DAYS_BEFORE = "the log has no days before those that were measured, so it is not known what CUPED would gain."
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
        "arms are drawn by {cluster}: {clusters:,} clusters, of {size:,.3g} users for the average user; {metric} has "
        "an intra-cluster correlation of {correlation:.3g}, so a test needs {effect:,.3g} times the users that it "
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

    def __call__(self, **figures: str | int | float) -> Note:
        """A note of this kind."""
        return Note(self, figures)


@dataclass(frozen=True)
class Note:
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
        object.__setattr__(self, "words", self.kind.value.format(**self.figures))

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
