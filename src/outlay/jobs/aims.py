"""What mixtures are chosen by, less the luck of measuring: the rewards of one critic's policies brought in line.

    measured_l  ≈  a + b · said_l             over the policies l of one critic; a by least squares
    b = w b̂ + (1 − w),   w = 1 / (1 + se(b̂)²)  b̂ by least squares, shrunk towards the critic's own 1

The best mixture of measured policies is a mixture of lucky ones. The policies of one critic answer neighbouring λ, and
what it says of them is a smooth, concave function of λ whose size may be wrong while its shape is not. So a line of
what it says stands in the place of what was measured, as long as no policy is off that line by more than chance.
Between the critics, and beside constant actions, a and b carry what was measured.

In a small log b̂ may be anything. Where it came out negative, the policy that spends nothing would look best. So b has
a prior: that it is 1, give or take 1.

Source: ours; calibration on held-out data is Platt's (1999) idea, shrinking it is the normal prior's, and the test is
Hausman's (1978).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outlay.ops.intervals import std_error

FEWEST = 5  # policies that a line is drawn through
BY_CHANCE = 4.0  # standard errors: of some dozens of policies hardly one is further off the line

Vector = NDArray[np.float64]


def in_line(said: Vector, measured: Vector, influence: Vector) -> tuple[Vector, Vector]:
    """The line's values `[L]` and their influences `[U, L]`; what was measured, where no rising line fits it.

    Args:
        said: `[L]` what the critic says of the reward of each of its policies, in the unit of `measured`.
        measured: `[L]` on users who taught it nothing.
        influence: `[U, L]` of each user on that.
    """
    if len(said) < FEWEST or np.ptp(said) <= 1e-9 * np.abs(said).max():
        return measured, influence
    said = said - said.mean()
    mean, slope = np.full((len(said), len(said)), 1 / len(said)), said / (said @ said)
    found, noise = float(slope @ measured), float(std_error((influence @ slope)[:, None])[0])
    weight = 1 / (1 + noise**2)
    shrunk = weight * found + (1 - weight)
    values, carried = mean @ measured + shrunk * said, influence @ (mean + weight * np.outer(slope, said))
    off, chance = np.abs(values - measured), std_error(carried - influence)
    fits = (off <= BY_CHANCE * chance + 1e-9 * np.abs(measured)).all()
    return (values, carried) if shrunk > 0 and fits else (measured, influence)
