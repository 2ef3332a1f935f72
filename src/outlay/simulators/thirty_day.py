"""The thirty-day campaign, where looking ahead pays: habit carries on unpaid, once it is there.

    P(active) = σ(intercept + level_effect·level + coupon_effect · ln(1 + coupon))        effects by type of user

State = (type, activeness level 0…4). After an active day the level climbs by one with `climb_prob`, after another day
it slides by one with `slide_prob`. Reward: active today (0 or 1). Cost: the coupon, paid only when active; there are 21
coupons, and no coupon at all. The types:

    regular     form a habit
    wavering    form the strongest habit, and coupons persuade them least
    bargain     come for a coupon like nobody else, and form no habit

What it shows: a 1-day rule buys the bargain hunters' days, which are the cheapest today and leave nothing behind. Money
spent on people at the brink of a habit is worth more than its first day. At equal discounted spend, at 20, 40 and 60%
of what the largest constant coupon spends, the exact optimum is 5 to 9% above the 1-day allocator that is priced in
every state: `benchmarks/fit_thirty_day.py` finds the parameters, prints the gains, and asserts that they are 3% or
more. Active days per day, discounted: 0.15 without coupons, 0.57 at the largest.

Source: ours, after the description of the campaign of BCORLE(λ) (Zhang et al., NeurIPS 2021); parameters invented.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from outlay.simulators.simulator import Feature, Participation, Simulator

COUPONS = np.arange(22) / 10  # yuan; 0 is no coupon
LEVELS = 5
DISCOUNT = 0.95  # per day
AT_MOST = 0.4  # yuan per decision: below what the uniform log spends, so that the limit binds
TYPES = ("regular", "wavering", "bargain")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserType:
    """Effects are in log odds of being active."""

    share: float  # of the users
    intercept: float  # at level 0, without a coupon
    level_effect: float  # per level
    coupon_effect: float  # per unit of ln(1 + yuan)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThirtyDay:
    """Parameters. The defaults are what `benchmarks/fit_thirty_day.py` finds."""

    regular: UserType = UserType(share=0.28, intercept=-2.65, level_effect=1.01, coupon_effect=0.89)
    wavering: UserType = UserType(share=0.29, intercept=-2.75, level_effect=1.33, coupon_effect=0.73)
    bargain: UserType = UserType(share=0.43, intercept=-1.84, level_effect=0.0, coupon_effect=2.65)
    climb_prob: float = 0.53  # P(level + 1 | active today)
    slide_prob: float = 0.70  # P(level − 1 | not active today)
    start_prob: float = 0.24  # the first level is Binomial(4, start_prob)


def states() -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Type (position in TYPES) and level of every state, both `[S]`: state index = 5·type + level."""
    index = np.arange(len(TYPES) * LEVELS)
    return (index // LEVELS).astype(np.int8), (index % LEVELS).astype(np.int8)


def model(campaign: ThirtyDay = ThirtyDay()) -> Participation:
    """The truth: S = 15 states, A = 22 actions."""
    kind, level = states()
    types = (campaign.regular, campaign.wavering, campaign.bargain)
    share, intercept, level_effect, coupon_effect = (
        np.array([getattr(user, name) for user in types])[kind]
        for name in ("share", "intercept", "level_effect", "coupon_effect")
    )
    top, p = LEVELS - 1, campaign.start_prob
    binomial = np.array([comb(top, k) * p**k * (1 - p) ** (top - k) for k in range(LEVELS)])
    same_type = kind.astype(np.intp) * LEVELS
    stayed = same_type + level
    up, down = same_type + np.minimum(level + 1, top), same_type + np.maximum(level - 1, 0)
    return Participation(
        active_prob=expit((intercept + level_effect * level)[:, None] + coupon_effect[:, None] * np.log1p(COUPONS)),
        move_prob=np.tile([campaign.slide_prob, campaign.climb_prob], (len(kind), 1)),
        moved=np.stack([down, up], axis=1),
        stayed=np.stack([stayed, stayed], axis=1),
        start=share * binomial[level],
        coupons=COUPONS,
        discount=DISCOUNT,
    )


def simulator() -> Simulator:
    """The campaign: both features show the state as it is."""
    return Simulator(
        name="thirty-day",
        model=model(),
        features=(Feature("type", np.array(TYPES)), Feature("level", np.arange(LEVELS, dtype=np.int8))),
        codes=np.stack(states()),
        log_days=30,
        horizon_days=30,
        report_days=(1, 7, 30),
        at_most=AT_MOST,
        contrast=(0.0, 1.0),
        none=0.0,
        segment="type",
        about_features="type of user; activeness level (0 to 4)",
    )
