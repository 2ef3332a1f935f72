"""Which arm a user is in: ranges of one hash, so that a ramp moves nobody between arms.

    u      = uniform(salt, user)                                      in [0, 1), `ops/hashing.py`
    arm i  owns [start_i, start_i + share_i),  start_i = Σ_{j<i} share_j   in the order of the file
    in it  when start_i ≤ u < start_i + coverage · share_i

Coverage widens every arm inside its own range, so a user who is in the test stays in it, in the same arm. The rule is
GrowthBook's, with BLAKE2b; `docs/ab-tests.md` has test vectors. The unit is the user alone: an arm holds for the whole
test, regardless of the episodes of a mixture inside it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from outlay.experiments.design import Experiment
from outlay.ops.hashing import uniform

Places = NDArray[np.int64]

OUTSIDE = -1  # in place of an arm or a day: not in the test


def entries(experiment: Experiment, users: Iterable[object]) -> tuple[Places, Places]:
    """The arm of every user, and the day on which the ramp lets the user in.

    Args:
        experiment: its salt, arms and ramp; the caller applies `eligible`.
        users: N users as canonical text (`core.schema.canonical_text`): 3, 3.0 and "3" are one user.

    Returns:
        `[N]` positions in `experiment.arms` and `[N]` days of the test, of which 0 is the start; both −1 for a user
        whom the ramp never lets in.

    Source: GrowthBook's SDK specification, coverage inside ranges, with another hash.
    """
    drawn = uniform(experiment.meta.salt, users)
    shares = np.array([arm.share for arm in experiment.arms])
    starts = np.concatenate([[0.0], np.cumsum(shares)[:-1]])
    arm = np.searchsorted(starts, drawn, side="right") - 1
    since = np.full(len(arm), OUTSIDE)
    for step in reversed(experiment.ramp):  # coverage grows, so an earlier step lets in some of the same users
        since[drawn < starts[arm] + step.coverage * shares[arm]] = step.day
    return np.where(since == OUTSIDE, OUTSIDE, arm), since


def expected_users(experiment: Experiment, users: int, day: int) -> list[int]:
    """The expected number of users in each arm on a day, out of `users` eligible users, in the order of the arms."""
    coverage = experiment.coverage(day)
    return [round(users * coverage * arm.share) for arm in experiment.arms]
