"""The habit campaign: people who were active yesterday and often lately are more likely to be active today.

    P(active) = σ(intercept + level_effect·level + yesterday_effect·yesterday
                  + (coupon_effect + coupon_level_effect·level) · ln coupon)

State = (was active yesterday, activeness level 0…4). After an active day the level climbs by one with `climb_prob`,
after another day it slides by one with `slide_prob`. Reward: active today (0 or 1). Cost: the coupon, paid only when
active. Holding 3 yuan instead of 1 for a week wins the active days that the paper measured (`benchmarks/fit_habit.py`).

What it can show: coupons act only through today's participation, and the days they win later cost coupons too. At equal
spend over the week looking ahead gains next to nothing over a 1-day rule priced in every state.

Source: ours, fitted to Table 1 of the paper (WSDM'23).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from outlay.core.cmdp import TabularCMDP
from outlay.ops.tabular import measure

COUPONS = np.arange(2, 13) / 2  # yuan; no zero: everybody gets a coupon every day
LEVELS = 5
INACTIVE_UP_TO = 1  # the segment `inactive` is level 0 or 1 on a user's first row
DISCOUNT = 0.8  # per day
AT_MOST = 2.2  # yuan per decision: below what the uniform log spends, so that the limit binds
HORIZON_DAYS = 7
REPORT_DAYS = (1, 3, 7)
CHUNK_ROWS = 100_000  # bounds the memory, and is the size of a row group in the log


TEMPLATE = """\
# A simulated coupon campaign whose truth is known (truth.npz, states.parquet). Made by: outlay simulate habit

[campaign]
name = "habit"
unit = "yuan"             # of money, for words and axes
discount = {discount}            # per day: how much a day counts against the day before
horizon_days = {horizon_days}          # the days that a total per user spans
report_days = {report_days}   # windows of the tables

[log]
source = "log.parquet"    # one row per user and day; relative to this file
user = "user_id"
time = "day"
action = "coupon"         # the value given, in yuan
actions = {actions}
reward = "active"         # 1 if the user was active that day
propensity = "propensity" # probability with which the log gave that coupon: {propensity}{forced}
segment = "case when level <= {inactive_up_to} then 'inactive' else 'active' end"   # groups of the tables, by first row
contrast = {contrast}     # the two coupons that the effect table compares

[log.features]            # the state, known before the decision
categorical = ["yesterday", "level"]   # active yesterday (0, 1); activeness level (0 to 4)

[[budget]]
name = "coupon_cost"
cost = "cost"             # the coupon, paid only on active days
at_most = {at_most}             # yuan per decision; change it and train again
per = "decision"
reserve = "coupon"        # set aside when the coupon is given: it may be used
money = true
"""


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


def active_prob(habit: Habit = Habit()) -> NDArray[np.float64]:
    """`[S, A]` probability of being active today; states as in `states`, actions as in COUPONS."""
    yesterday, level = (column[:, None] for column in states())
    coupon = habit.coupon_effect + habit.coupon_level_effect * level
    prob: NDArray[np.float64] = expit(
        habit.intercept
        + habit.level_effect * level
        + habit.yesterday_effect * yesterday
        + coupon * np.log(COUPONS)[None, :]
    )
    return prob


def states() -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """`yesterday` and `level` of every state, both `[S]`: state index = 5·yesterday + level."""
    index = np.arange(2 * LEVELS)
    return (index // LEVELS).astype(np.int8), (index % LEVELS).astype(np.int8)


def start(habit: Habit = Habit()) -> NDArray[np.float64]:
    """`[S]` start population: binomial levels; at level k of 4 a share (k + ½) / 5 was active yesterday."""
    yesterday, level = states()
    top, p = LEVELS - 1, habit.start_prob
    binomial = np.array([comb(top, k) * p**k * (1 - p) ** (top - k) for k in range(LEVELS)])
    was_active = (level + 0.5) / LEVELS
    share: NDArray[np.float64] = binomial[level] * np.where(yesterday == 1, was_active, 1 - was_active)
    return share


def cmdp(habit: Habit = Habit()) -> TabularCMDP:
    """The truth: S = 10 states, A = 11 coupons, one cost in yuan."""
    active = active_prob(habit)
    _, level = states()
    transition = np.zeros((2 * LEVELS, len(COUPONS), 2 * LEVELS))
    for state, at in enumerate(level):
        up, down = min(at + 1, LEVELS - 1), max(at - 1, 0)
        transition[state, :, LEVELS + up] += active[state] * habit.climb_prob
        transition[state, :, LEVELS + at] += active[state] * (1 - habit.climb_prob)
        transition[state, :, down] += (1 - active[state]) * habit.slide_prob
        transition[state, :, at] += (1 - active[state]) * (1 - habit.slide_prob)
    return TabularCMDP(
        transition=transition,
        reward=active,
        cost=(active * COUPONS)[:, :, None],
        start=start(habit),
        discount=DISCOUNT,
    )


def generate(
    users: int, days: int, seed: int, *, held: tuple[float, float] | None = None, habit: Habit = Habit()
) -> Iterator[dict[str, NDArray[np.generic]]]:
    """The log, in chunks of whole users; a user's rows are contiguous and in the order of the days.

    Args:
        users: number of users.
        days: rows per user.
        seed: of the random numbers; the same arguments give the same log.
        held: None: every day one of COUPONS, uniform and independent. Two of COUPONS: one of them per user, drawn with
            equal probability and kept, so that rows after the first are forced.
        habit: the parameters.

    Yields:
        Columns of N rows: `user` (index), `day`, `yesterday`, `level`, `coupon` (yuan), `active`, `cost` (yuan),
        `propensity`, and with `held` also `forced`.
    """
    rng = np.random.default_rng(seed)
    active_table, first = active_prob(habit), start(habit)
    per_chunk = max(1, CHUNK_ROWS // days)
    for begin in range(0, users, per_chunk):
        yield _chunk(rng, np.arange(begin, min(begin + per_chunk, users)), days, held, habit, active_table, first)


def _chunk(
    rng: np.random.Generator,
    user: NDArray[np.int64],
    days: int,
    held: tuple[float, float] | None,
    habit: Habit,
    active_table: NDArray[np.float64],
    first: NDArray[np.float64],
) -> dict[str, NDArray[np.generic]]:
    """All `days` of the users `[n]`, one day of all of them at a time."""
    n = len(user)
    if held is None:
        action = rng.integers(len(COUPONS), size=(n, days), dtype=np.int8)
        propensity = np.full((n, days), 1 / len(COUPONS))
    else:
        pair = np.searchsorted(COUPONS, held).astype(np.int8)
        action = np.repeat(pair[rng.integers(2, size=n)][:, None], days, axis=1)
        propensity = np.where(np.arange(days) == 0, 0.5, np.ones((n, 1)))
    yesterday, level, active = (np.empty((n, days), dtype=np.int8) for _ in range(3))
    state = rng.choice(len(first), size=n, p=first)
    yesterday_now, level_now = (column[state] for column in states())
    for day in range(days):
        yesterday[:, day], level[:, day] = yesterday_now, level_now
        now = rng.random(n) < active_table[yesterday_now * LEVELS + level_now, action[:, day]]
        moves = rng.random(n) < np.where(now, habit.climb_prob, habit.slide_prob)
        level_now = np.clip(level_now + np.where(now, moves, -moves.astype(np.int8)), 0, LEVELS - 1).astype(np.int8)
        yesterday_now = active[:, day] = now.astype(np.int8)
    coupon = COUPONS[action]
    columns: dict[str, NDArray[np.generic]] = {
        "user": np.repeat(user, days),
        "day": np.tile(np.arange(days, dtype=np.int32), n),
        "yesterday": yesterday.ravel(),
        "level": level.ravel(),
        "coupon": coupon.ravel(),
        "active": active.ravel(),
        "cost": (coupon * active).ravel(),
        "propensity": propensity.ravel(),
    }
    if held is not None:
        columns["forced"] = np.tile(np.arange(days) > 0, n)
    return columns


def limit(held: tuple[float, float] | None) -> float:
    """The limit that campaign.toml sets, yuan per decision; midway between what two held coupons cost."""
    if held is None:
        return AT_MOST
    costs = [float(measure(cmdp(), np.full(2 * LEVELS, np.searchsorted(COUPONS, coupon)))[1]) for coupon in held]
    return round(sum(costs) / 2, 2)


def campaign_text(days: int, held: tuple[float, float] | None = None) -> str:
    """campaign.toml for a log of `generate`.

    With `held` the actions are the two held coupons: the log says nothing about the other nine, so no policy may choose
    them (the truth keeps all eleven), and the contrast of the effect table is that pair.
    """
    return TEMPLATE.format(
        discount=DISCOUNT,
        actions=COUPONS.tolist() if held is None else sorted(held),
        horizon_days=min(days, HORIZON_DAYS),
        report_days=[k for k in REPORT_DAYS if k <= days],
        propensity="1/11 each day, independent" if held is None else "1/2 on the first day, 1 after it",
        forced="" if held is None else '\nforced = "forced"         # rows without a choice: after the first day',
        inactive_up_to=INACTIVE_UP_TO,
        contrast=[1.0, 3.0] if held is None else sorted(held),
        at_most=limit(held),
    )
