"""The habit campaign: people who were active yesterday and often lately are more likely to be active today.

    P(active) = σ(intercept + level_effect·level + yesterday_effect·yesterday
                  + (coupon_effect + coupon_level_effect·level) · ln coupon)

State = (was active yesterday, activeness level 0…4). After an active day the level climbs by one with `climb_prob`,
after another day it slides by one with `slide_prob`. Reward: active today (0 or 1). Cost: the coupon, paid only when
active. Holding 3 yuan instead of 1 for a week wins the active days that the paper measured (`benchmarks/fit_habit.py`):
all six effects within 0.012, with 0.61 active on day one and 4.99 active days in 7 at 3 yuan (the paper: about 0.6, and
4.8 to 5.2).

What it can show: coupons act only through today's participation, and the days they win later cost coupons too. At equal
spend over the week looking ahead gains next to nothing over a 1-day rule priced in every state.

Source: ours, fitted to Table 1 of the paper (WSDM'23).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from outlay.simulators.simulator import Feature, Participation, Simulator

COUPONS = np.arange(2, 13) / 2  # yuan; no zero: everybody gets a coupon every day
LEVELS = 5
INACTIVE_UP_TO = 1  # the segment `inactive` is level 0 or 1 on a user's first row
DISCOUNT = 0.8  # per day
AT_MOST = 2.2  # yuan per decision: below what the uniform log spends, so that the limit binds


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """Parameters; effects are in log odds of being active. The defaults are what `benchmarks/fit_habit.py` prints."""

    intercept: float = -0.993  # at level 0, not active yesterday, coupon of 1 yuan
    level_effect: float = 0.321  # per level
    yesterday_effect: float = 1.098  # of having been active yesterday
    coupon_effect: float = 0.696  # per unit of ln(yuan), at level 0
    coupon_level_effect: float = -0.118  # per unit of ln(yuan) and level: the active need less persuading
    climb_prob: float = 0.8  # P(level + 1 | active today)
    slide_prob: float = 0.148  # P(level − 1 | not active today)
    start_prob: float = 0.377  # the first level is Binomial(4, start_prob)


def states() -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """`yesterday` and `level` of every state, both `[S]`: state index = 5·yesterday + level."""
    index = np.arange(2 * LEVELS)
    return (index // LEVELS).astype(np.int8), (index % LEVELS).astype(np.int8)


def model(habit: Habit = Habit()) -> Participation:
    """The truth: S = 10 states, A = 11 coupons."""
    yesterday, level = states()
    coupon = habit.coupon_effect + habit.coupon_level_effect * level
    odds = habit.intercept + habit.level_effect * level + habit.yesterday_effect * yesterday
    up, down = np.minimum(level + 1, LEVELS - 1), np.maximum(level - 1, 0)
    return Participation(
        active_prob=expit(odds[:, None] + coupon[:, None] * np.log(COUPONS)),
        move_prob=np.tile([habit.slide_prob, habit.climb_prob], (2 * LEVELS, 1)),
        moved=np.stack([down, LEVELS + up], axis=1).astype(np.intp),
        stayed=np.stack([level, LEVELS + level], axis=1).astype(np.intp),
        start=start(habit),
        coupons=COUPONS,
        discount=DISCOUNT,
    )


def start(habit: Habit = Habit()) -> NDArray[np.float64]:
    """`[S]` start population: binomial levels; at level k of 4 a share (k + ½) / 5 was active yesterday."""
    yesterday, level = states()
    top, p = LEVELS - 1, habit.start_prob
    binomial = np.array([comb(top, k) * p**k * (1 - p) ** (top - k) for k in range(LEVELS)])
    was_active = (level + 0.5) / LEVELS
    share: NDArray[np.float64] = binomial[level] * np.where(yesterday == 1, was_active, 1 - was_active)
    return share


def simulator() -> Simulator:
    """The campaign: both features show the state as it is."""
    return Simulator(
        name="habit",
        model=model(),
        features=(
            Feature("yesterday", np.arange(2, dtype=np.int8)),
            Feature("level", np.arange(LEVELS, dtype=np.int8)),
        ),
        codes=np.stack(states()),
        log_days=7,
        horizon_days=7,
        report_days=(1, 3, 7),
        at_most=AT_MOST,
        contrast=(1.0, 3.0),
        segment=f"case when level <= {INACTIVE_UP_TO} then 'inactive' else 'active' end",
        about_features="active yesterday (0, 1); activeness level (0 to 4)",
    )
