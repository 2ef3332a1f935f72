"""What a report shows of training: candidates, members, the course of the game, a response model's calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Point(NamedTuple):
    """A measurement vector x(π): discount-weighted means per decision, as the game sees them.

    Attributes:
        reward: in `reward_label` per decision.
        costs: `[m]` in the budget's unit per decision.
    """

    reward: float
    costs: tuple[float, ...]


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
