"""What a report shows: plain data, unrounded, without a word on how it looks.

Every part may be missing (None or empty); the page then leaves its section out, so that a report before the
evaluation is simply shorter. Costs and limits stand as the campaign file writes them: a floor is not negated here.
Tuples over budgets (`[m]`) follow the order of `ReportContent.budgets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from outlay.core.campaign import BudgetLimit
from outlay.core.estimate import Estimate
from outlay.pages.evidence_content import Against, Certificate, Evidence, SegmentLine
from outlay.pages.learned_content import CalibrationLine, Candidate, Measured, MemberPoint, Point, TrainingPoint

PolicyKind = Literal["old", "constant", "method", "chosen", "member"]


class Interval(NamedTuple):
    """A value with its interval, at the report's confidence; the ends are None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine(BudgetLimit):
    """One limit in a report.

    Attributes:
        training_limit: the limit that training plays against, in the unit of `Point.costs`; None: the same as `limit`.
            A budget per user is given one only where it was converted; otherwise its plane is drawn without a limit.
    """

    training_limit: float | None = None

    @property
    def plane_limit(self) -> float | None:
        """The limit in the unit of `Point.costs`, None where it has no counterpart there."""
        return self.limit if self.training_limit is None and self.per == "decision" else self.training_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One row of the result table.

    Attributes:
        name: what the reader calls it: `old policy`, `best constant mixture`, `aim-greedy`, `member 0`.
        kind: its part: the log's policy, a yardstick without states, a method's mixture as served, the one of this
            run, or a member of it.
        note: a few words beside the name, e.g. `2.0 yuan for 38 %, 1.5 yuan for 62 %`; may be empty.
        totals: {days: undiscounted sum of the reward over the first `days` days per user, in `reward_label`}.
        costs: {budget name: cost in the unit of that budget, per decision or per user}.
        reward: discount-weighted mean per decision, in `reward_label`; None where not estimated.
        certified: whether all limits are certified; None where nobody tried.
    """

    name: str
    kind: PolicyKind
    note: str = ""
    totals: Mapping[int, Interval] = field(default_factory=dict)
    costs: Mapping[str, Interval] = field(default_factory=dict)
    reward: Interval | None = None
    certified: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRow:
    """How often a policy gives an action in a segment.

    Attributes:
        segment: name of the group, taken at a user's first row; `all users` where the campaign has no segments.
        policy: `old` or `new`, or any name.
        action: the value given.
        share: of the segment's decisions, in [0, 1]; the shares of a segment and policy sum to 1.
    """

    segment: str
    policy: str
    action: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyRow:
    """One day of one policy, undiscounted.

    Attributes:
        policy: `old` or another name.
        day: of the user, from 1: that of the first row.
        reward: mean per user on that day, in `reward_label`.
        costs: `[m]` mean per user on that day, in the budget's unit.
    """

    policy: str
    day: int
    reward: float
    costs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """One report.

    Attributes:
        title: the campaign's name.
        unit: of money.
        reward_label: what the reward counts, plural: `active days`, `orders`.
        action_label: what is given, with its unit: `coupon (yuan)`.
        verdict: one sentence that says what to do.
        certified: the badge; None before the evaluation.
        loses: whether the policy is sure to bring less than the old one.
        confidence: of all intervals, in (0, 1).
        method: this run's mixing rule, e.g. `aim-greedy`.
        notes: cautions and choices made for the user, a sentence each.
        budgets: the m limits.
        policies: the result table, the old policy among them.
        candidates: every measured policy.
        candidates_measured_by: what gave their figures, which the rule chose by.
        members: of the mixture.
        mixture: its two figures.
        old: the old policy's measurement, from the log.
        training: the course of the game.
        calibration: of a response model, a line per head; empty where there is none.
        label_days: days that its labels span.
        shares: actions by segment and policy; two policies read best.
        daily: reward and cost day by day.
        certificate: None before the evaluation.
        segments: gains by segment; empty where the campaign has no segments.
        estimates: all of them, withheld ones too; `mixture` is the policy of this report.
        against: what that policy brings beyond others; the old policy first.
        evidence: what the numbers rest on; None before the evaluation.
        settings: {group: {name: value}}: settings, versions, hashes, seed.
        window: days that means are over, where they are not discounted means of all days.
        window_words: what is claimed then, and what is not.
        condition: what "sure" and "certified" rest on: `if …`.
    """

    title: str
    unit: str
    reward_label: str
    action_label: str
    verdict: str
    certified: bool | None
    confidence: float
    method: str
    budgets: tuple[BudgetLine, ...]
    notes: tuple[str, ...] = ()
    policies: tuple[PolicyRow, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    candidates_measured_by: str = "the critic"
    members: tuple[MemberPoint, ...] = ()
    mixture: Measured = field(default_factory=Measured)
    old: Point | None = None
    training: tuple[TrainingPoint, ...] = ()
    calibration: tuple[CalibrationLine, ...] = ()
    label_days: int = 1
    shares: tuple[ShareRow, ...] = ()
    daily: tuple[DailyRow, ...] = ()
    certificate: Certificate | None = None
    segments: tuple[SegmentLine, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    against: tuple[Against, ...] = ()
    evidence: Evidence | None = None
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    window: int | None = None
    window_words: str = ""
    loses: bool = False
    condition: str = ""
