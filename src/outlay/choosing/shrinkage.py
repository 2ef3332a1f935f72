"""Objectives of one critic's policies, with the luck of measuring taken out: a line of the critic's own estimates.

    measured_l  ≈  a + b · predicted_l        over the policies l of one critic; a, b by least squares

The best mixture of measured policies is a mixture of lucky ones. The policies of one critic answer neighbouring λ, and
its estimates of them are a smooth, concave function of λ, whose size may be wrong while its shape is not. So a line of
these estimates replaces the measurements, as long as no policy is off that line by more than chance. Between critics,
and beside constant actions, a and b carry what was measured.

In a small log b may be anything. If it comes out negative, the policy that spends nothing would look best. Then b is
shrunk towards 1, the critic's own slope: w b + (1 − w) with w = 1 / (1 + se(b)²), a prior of 1 ± 1.

Source: ours; calibration on held-out data is Platt's (1999) idea, shrinking it is the normal prior's, and the test is
Hausman's (1978).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outlay.ops.intervals import BY_CHANCE, std_error

FEWEST = 5  # policies that a line is drawn through

Vector = NDArray[np.float64]


def shrunk(predicted: Vector, measured: Vector, influence: Vector) -> tuple[Vector, Vector]:
    """Return the line's values `[L]` and their influences `[U, L]`; the measurements if no rising line fits them.

    Args:
        predicted: `[L]` the critic's estimates of the reward of each of its policies, in the unit of `measured`.
        measured: `[L]` on users who taught it nothing.
        influence: `[U, L]` of each user on that.
    """
    if len(predicted) < FEWEST or np.ptp(predicted) <= 1e-9 * np.abs(predicted).max():
        return measured, influence
    centred = predicted - predicted.mean()
    weights = centred / (centred @ centred)  # of the measurements in the slope
    slope = float(weights @ measured)
    values = measured.mean() + slope * centred
    carried = influence.mean(axis=1, keepdims=True) + np.outer(influence @ weights, centred)
    off, noise = np.abs(values - measured), std_error(carried - influence)
    fits = (off <= BY_CHANCE * noise + 1e-9 * np.abs(measured)).all()
    if slope <= 0:
        weight = 1 / (1 + float(std_error(influence @ weights)) ** 2)
        slope = weight * slope + (1 - weight)
        values = measured.mean() + slope * centred
    return (values, carried) if slope > 0 and fits else (measured, influence)
