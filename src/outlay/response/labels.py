"""What a row brought within k days, the labels that response models learn; and whether outcomes follow predictions.

    label(row) = [ Σ reward, Σ costs over the days t … t+k−1 of its user, costs of day t ]

A row has a label where the log covers all k days, or the user's story ended within them (nothing follows). Days without
a row bring nothing. After day t the log's own policy goes on: that is what a k-day label means, and its limit.

Calibration, over the whole range and for every incentive:

    groups          rows by tenths of the prediction, and by logged incentive: mean ŷ against mean y
    slope, intercept   of y = intercept + slope · ŷ by least squares; 1 and 0 where predictions are right
    expected error     Σ_g n_g/n · |mean ŷ − mean y| over the tenths, in the unit of y

Predictions must be of rows whose users the model never saw. Standard errors are by user, whose rows are alike. Noise
alone makes the expected error positive: compare it with the standard errors.

Source: Cai et al. (WSDM 2023), section 6, "the corresponding user's DAU over the next 1/3/7 days", the costs are ours;
Cox (1958) for slope and intercept; Naeini et al. (2015) for the expected error; Liang & Zeger (1986) for errors by
cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError, OutlayError
from outlay.core.transitions import Transitions

BLOCK_ROWS = 1 << 18  # bounds the memory beside the labels themselves
Array = NDArray[np.float64]


class Heads(NamedTuple):
    """Which column of labels and predictions is what; H = 1+m for one day, 1+2m for more.

    Attributes:
        reward: over the k days.
        costs: over the k days, m columns.
        immediate: costs of the first day, m columns; for k = 1 they are `costs`.
        width: H.
    """

    reward: int
    costs: slice
    immediate: slice
    width: int


def heads(days: int, num_costs: int) -> Heads:
    """The columns of k-day labels in a campaign with m costs."""
    costs = slice(1, 1 + num_costs)
    if days == 1:
        return Heads(0, costs, costs, 1 + num_costs)
    return Heads(0, costs, slice(1 + num_costs, 1 + 2 * num_costs), 1 + 2 * num_costs)


def k_day_labels(
    data: Transitions, days: int, rows: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Labels of the rows that have a choice and k whole days of log.

    Forced rows get no label: what they were given tells nothing about the other actions. They do count in the totals
    of earlier rows.

    Args:
        data: the transitions.
        days: k ≥ 1, the row's own day included.
        rows: `[N']` rows to look at; default all.

    Returns:
        rows `[n]`, in the given order, and labels `[n, H]`; columns as `heads` says.

    Raises:
        OutlayError: if `days` is below 1.
        LogError: if no row has a choice, or none has k days of log.
    """
    if days < 1:
        raise OutlayError(f"is {days}.", where="label days", way_out="Give 1 or more.")
    rows = np.arange(len(data)) if rows is None else rows
    rows = rows[~data.forced[rows]]
    if len(rows) == 0:
        raise LogError(
            "no row has a choice: there is nothing to learn a response from.",
            where="log.forced",
            way_out="Take a log in which incentives were chosen.",
        )
    kept, labels = [], []
    longest = 0
    for begin in range(0, len(rows), BLOCK_ROWS):
        block = rows[begin : begin + BLOCK_ROWS]
        total, ended = _totals(data, block, days)
        left = data.users["window"][data.user[block]] - data.day[block]
        longest = max(longest, int(left.max()))
        complete = ended | (left >= days)
        if days > 1:
            total = np.concatenate([total, data.outcome[block, 1:]], axis=1)
        kept.append(block[complete])
        labels.append(total[complete].astype(np.float32))
    if not any(len(part) for part in kept):
        raise LogError(
            f"no row has {days} days of log, itself included; the most is {longest}.",
            where="label days",
            way_out=f"Take labels of at most {longest} days, or a longer log.",
        )
    return np.concatenate(kept), np.concatenate(labels)


def _totals(data: Transitions, rows: NDArray[np.int64], days: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Totals `[b, 1+m]` over the k days, and whether the story ended within them, by walking along the links."""
    total = data.outcome[rows].astype(np.float64)
    ended = np.array(data.terminal[rows])
    last = data.day[rows].astype(np.int64) + days - 1
    place, at = np.arange(len(rows)), data.next_row[rows].astype(np.int64)
    for _ in range(days - 1):
        place, at = place[at >= 0], at[at >= 0]
        inside = data.day[at] <= last[place]
        place, at = place[inside], at[inside]
        if len(place) == 0:
            break
        total[place] += data.outcome[at]
        ended[place] = data.terminal[at]
        at = data.next_row[at].astype(np.int64)
    return total, ended


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
