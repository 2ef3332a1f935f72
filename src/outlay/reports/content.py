"""What a report shows: plain data, unrounded, without a word on how it looks.

Every part may be missing (None or empty); the page then leaves its section out, so that a report before the
evaluation is simply shorter. Costs and limits stand as the campaign file writes them: a floor is not negated here.
Tuples over budgets (`[m]`) follow the order of `ReportContent.budgets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from outlay.core.estimate import Estimate

PolicyKind = Literal["old", "constant", "method", "chosen", "member"]


class Interval(NamedTuple):
    """A value with its interval, at the report's confidence; the ends are None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None


class Point(NamedTuple):
    """A measurement vector x(π): discount-weighted means per decision, as the game sees them.

    Attributes:
        reward: in `reward_label` per decision.
        costs: `[m]` in the budget's unit per decision.
    """

    reward: float
    costs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One limit.

    Attributes:
        name: as in the campaign file.
        limit: as in the campaign file, in `unit` per `per`.
        sign: +1 at most, −1 at least.
        per: `decision` or `user` (a total over the horizon).
        unit: of its cost, e.g. `yuan`; empty for a pure count.
        training_limit: the limit that training plays against, in the unit of `Point.costs`; None: the same as `limit`.
            A budget per user is given one only where it was converted; otherwise its plane is drawn without a limit.
    """

    name: str
    limit: float
    sign: Literal[1, -1] = 1
    per: Literal["decision", "user"] = "decision"
    unit: str = ""
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
class Candidate:
    """A policy that training measured on the select users.

    Attributes:
        step: gradient step.
        multiplier: `[m]` λ it answers, reward per unit of cost.
        measured: the figures that the rule chose by.
        kept: whether it is in the final mixture.
    """

    step: int
    multiplier: tuple[float, ...]
    measured: Point
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The two figures of one policy.

    Attributes:
        critic: the training critic's own measurement.
        fitted: measured again by a fitted evaluation of the fixed policy; None before that.
    """

    critic: Point | None = None
    fitted: Point | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPoint:
    """A member of the mixture.

    Attributes:
        name: `member 0`, ….
        weight: share of users who get it, in (0, 1].
        multiplier: `[m]` λ it answers, reward per unit of cost.
        measured: its two figures.
    """

    name: str
    weight: float
    multiplier: tuple[float, ...]
    measured: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPoint:
    """The state of the game at one step.

    Attributes:
        step: gradient step.
        multiplier: `[m]` λ, reward per unit of cost.
        measured: the critic's measurement of the policy of that step; None between measurements.
        stored_parameters: numbers held for policies by this run's rule; None where not recorded.
        original_parameters: the same for the original method, which keeps every candidate.
        loss: scaled temporal-difference loss, no unit; None where not recorded.
    """

    step: int
    multiplier: tuple[float, ...]
    measured: Point | None = None
    stored_parameters: int | None = None
    original_parameters: int | None = None
    loss: float | None = None


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
        policy: `old` for what the log shows; another name for a forecast.
        day: days since the first day of the log.
        reward: mean per decision of that day, in `reward_label`.
        costs: `[m]` mean per decision of that day, in the budget's unit.
        decisions: rows of that day; None for a forecast.
    """

    policy: str
    day: int
    reward: float
    costs: tuple[float, ...]
    decisions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTenth:
    """Rows of the select users with like predictions: what a response model said, and what came.

    Attributes:
        head: `reward` or a budget's name.
        predicted: mean prediction, in the unit of the label.
        observed: mean outcome.
        std_error: of observed − predicted; None where it is unknown.
        rows: how many.
    """

    head: str
    predicted: float
    observed: float
    std_error: float | None
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationLine:
    """How outcomes follow the predictions of one head: observed = intercept + slope · predicted.

    Attributes:
        head: `reward` or a budget's name.
        slope: 1 where predictions are right; None where it cannot be told.
        slope_error: its standard error.
        expected_error: mean distance of predicted and observed over the tenths, in the unit of the label.
        tenths: by prediction, ascending.
    """

    head: str
    slope: float | None
    slope_error: float | None
    expected_error: float
    tenths: tuple[CalibrationTenth, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One limit in the certificate, in the unit of its budget.

    Attributes:
        budget: name.
        value: estimated cost of the mixture as served.
        bound: one-sided bound on it: upper for a ceiling, lower for a floor.
        margin: what the limit was tightened by when the mixture was chosen, ≥ 0.
        kept: whether the bound is on the right side of the limit.
    """

    budget: str
    value: float
    bound: float
    margin: float
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """All limits as one verdict, on users never used for choosing.

    Attributes:
        bounds: one per budget.
        confidence: of the bounds, 1 − `level`.
        look: which look at the certify users this was, from 1.
        level: the share of α this look was allowed, α / 2^look.
        users: certify users.
        rests_on: what must be true for it to hold, a sentence each.
        refused: None, or why no bound can be given (support is missing, say).
    """

    bounds: tuple[Bound, ...]
    confidence: float
    look: int
    level: float
    users: int
    rests_on: tuple[str, ...] = ()
    refused: str | None = None


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
        estimates: all of them, withheld ones too.
        settings: {group: {name: value}}: settings, versions, hashes, seed.
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
    mixture: Measured = Measured()
    old: Point | None = None
    training: tuple[TrainingPoint, ...] = ()
    calibration: tuple[CalibrationLine, ...] = ()
    label_days: int = 1
    shares: tuple[ShareRow, ...] = ()
    daily: tuple[DailyRow, ...] = ()
    certificate: Certificate | None = None
    estimates: tuple[Estimate, ...] = ()
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
