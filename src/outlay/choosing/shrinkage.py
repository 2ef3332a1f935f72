"""What mixtures are chosen by, less the luck of measuring: the rewards of one critic's policies brought in line.

    measured_l  ≈  a + b · said_l             over the policies l of one critic; a, b by least squares

The best mixture of measured policies is a mixture of lucky ones. The policies of one critic answer neighbouring λ, and
what it says of them is a smooth, concave function of λ whose size may be wrong while its shape is not. So a line of
what it says stands in the place of what was measured, as long as no policy is off that line by more than chance.
Between the critics, and beside constant actions, a and b carry what was measured.

In a small log b may be anything. Where it comes out negative, the policy that spends nothing would look best. There b
is shrunk towards the critic's own, w b + (1 − w) with w = 1 / (1 + se(b)²): a prior of 1, give or take 1.

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
    line = mean + np.outer(said, slope)
    values, carried = line @ measured, influence @ line
    off, noise = np.abs(values - measured), std_error(carried - influence)
    fits = (off <= BY_CHANCE * noise + 1e-9 * np.abs(measured)).all()
    rise = float(slope @ measured)
    if rise <= 0:
        weight = 1 / (1 + float(std_error(influence @ slope)) ** 2)
        rise = weight * rise + (1 - weight)
        values = mean @ measured + rise * said
    return (values, carried) if rise > 0 and fits else (measured, influence)
