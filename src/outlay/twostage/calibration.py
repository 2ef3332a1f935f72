"""Calibration: do outcomes follow the predictions, over the whole range and for every incentive?

    groups          rows by tenths of the prediction, and by logged incentive: mean ŷ against mean y
    slope, intercept   of y = intercept + slope · ŷ by least squares; 1 and 0 where predictions are right
    expected error     Σ_g n_g/n · |mean ŷ − mean y| over the tenths, in the unit of y

Predictions must be of rows whose users the model never saw. Standard errors are by user, whose rows are alike. Noise
alone makes the expected error positive: compare it with the standard errors.

Source: Cox (1958) for slope and intercept; Naeini et al. (2015) for the expected error; Liang & Zeger (1986) for errors
by cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Groups:
    """G groups of rows. Where a group is empty its means are NaN.

    Attributes:
        count: `[G]` rows.
        predicted: `[G]` mean prediction.
        observed: `[G]` mean outcome.
        std_error: `[G]` of observed − predicted; NaN for fewer than two users.
    """

    count: NDArray[np.int64]
    predicted: Array
    observed: Array
    std_error: Array


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well one head is calibrated.

    Attributes:
        tenths: by prediction, ascending; equal predictions stay together, so there may be fewer than ten.
        actions: by logged incentive, K groups.
        slope: of outcomes on predictions; NaN where all predictions are equal.
        slope_error: its standard error.
        intercept: outcome at prediction 0.
        intercept_error: its standard error.
        expected_error: mean distance between predicted and observed over the tenths, in the unit of the outcome.
    """

    tenths: Groups
    actions: Groups
    slope: float
    slope_error: float
    intercept: float
    intercept_error: float
    expected_error: float


def calibrate(
    predicted: NDArray[np.floating],
    observed: NDArray[np.floating],
    *,
    action: NDArray[np.integer],
    user: NDArray[np.integer],
    num_actions: int,
) -> tuple[Calibration, ...]:
    """Calibration of every head.

    Args:
        predicted: `[n, H]` for the logged incentive, by a model that never saw the row's user.
        observed: `[n, H]` labels.
        action: `[n]` index of the logged incentive.
        user: `[n]`.
        num_actions: K.

    Returns:
        One for each of the H heads.

    Raises:
        LogError: if there are no rows, or a prediction is not a number.
    """
    if len(predicted) == 0:
        raise LogError(
            "there are no rows to compare predictions with.",
            where="calibration",
            way_out="Hold users with labels back.",
        )
    wrong = ~np.isfinite(predicted).all(axis=1)
    if wrong.any():
        raise LogError(
            f"{wrong.sum():,} predictions are not finite numbers, the first for row {wrong.argmax()}.",
            where="calibration",
            way_out="Lower train.learning_rate and train again.",
        )
    _, place = np.unique(user, return_inverse=True)
    return tuple(
        _calibrate_head(p.astype(np.float64), y.astype(np.float64), action, place, num_actions)
        for p, y in zip(predicted.T, observed.T, strict=True)
    )


def _calibrate_head(
    predicted: Array, observed: Array, action: NDArray[np.integer], user: NDArray[np.intp], num_actions: int
) -> Calibration:
    # Cuts are values that occur, above the least one, so that no group is empty.
    cuts = np.unique(np.quantile(predicted, np.arange(1, 10) / 10, method="higher"))
    cuts = cuts[cuts > predicted.min()]
    tenths = _groups(predicted, observed, np.searchsorted(cuts, predicted, side="right"), user, len(cuts) + 1)
    share = tenths.count / len(predicted)
    intercept, slope, errors = _line(predicted, observed, user)
    return Calibration(
        tenths=tenths,
        actions=_groups(predicted, observed, action, user, num_actions),
        slope=slope,
        slope_error=errors[1],
        intercept=intercept,
        intercept_error=errors[0],
        expected_error=float(share @ np.abs(tenths.predicted - tenths.observed)),
    )


def _groups(
    predicted: Array, observed: Array, group: NDArray[np.integer], user: NDArray[np.intp], num_groups: int
) -> Groups:
    count = np.bincount(group, minlength=num_groups)
    rows = np.where(count > 0, count, np.nan)
    means = [np.bincount(group, values, num_groups) / rows for values in (predicted, observed)]
    off = observed - predicted - (means[1] - means[0])[group]
    error = np.array([_error(off[group == g], user[group == g]) for g in range(num_groups)]) / rows
    return Groups(count, means[0], means[1], error)


def _line(predicted: Array, observed: Array, user: NDArray[np.intp]) -> tuple[float, float, tuple[float, float]]:
    """Intercept and slope of observed on predicted, and their standard errors by user."""
    centre = predicted.mean()
    spread = np.square(predicted - centre).sum()
    if spread <= 1e-12 * np.square(predicted).sum():
        return float("nan"), float("nan"), (float("nan"), float("nan"))
    slope = float((predicted - centre) @ observed / spread)
    residual = observed - observed.mean() - slope * (predicted - centre)
    weight = (predicted - centre) / spread  # what each residual adds to the slope
    errors = _error(residual * (1 / len(predicted) - centre * weight), user), _error(residual * weight, user)
    return float(observed.mean() - slope * centre), slope, errors


def _error(parts: Array, user: NDArray[np.intp]) -> float:
    """Standard error of a sum of `parts` `[n]` with mean 0, the parts of a user not independent."""
    users = np.count_nonzero(np.bincount(user))
    if users < 2:
        return float("nan")
    return float(np.sqrt(np.square(np.bincount(user, parts)).sum() * users / (users - 1)))
