"""The outcomes that learners learn from: costs that follow from others are derived, the luck of amounts is taken out.

A cost that follows from action and reward, like `coupon * active`, is not learned a second time.

An outcome may be 0 on most days and vary widely on others, such as money spent:

    x  →  KEPT · x + (1 − KEPT) · 1[x ≠ 0] · μ(s, a)            μ(s, a) = E[x | s, a, x ≠ 0]

How much a user spends on a day with a purchase is mostly luck, and of a heavy-tailed amount this luck is most of the
variance. An incentive mostly changes whether there is a purchase at all. So learners see the mean amount of a purchase
of this user with this action, and a share KEPT of the amount itself, in case the model of it is wrong. Where μ is
right, the mean of the outcome given state and action is the same. μ is learned on one half of the users for the rows of
the other, by boosted trees. Costs that follow from action and reward follow from what the reward is replaced by.

Only learning uses this; policies are measured on outcomes as they were logged.

Source: two-part models, Cragg (1971) and Duan et al. (1983); cross-fitting, Chernozhukov et al. (2018); the share that
is kept: ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning.boosting import BinnedTable, Boosted, BoostingRows, BoostingSettings, boost, slices, states
from outlay.ops.spread import spreads

DETERMINED = 1e-5  # of a cost's spread: the most by which one that follows from action and reward may be off
Vector = NDArray[np.float64]
KEPT = 0.25  # share of an amount's deviation from its mean that is learned from
MOST_OFTEN = 0.9  # share of days with an amount: with more, "whether there is one" says too little
VARIES = 0.05  # squared coefficient of variation, given the action, above which luck is worth taking out
FEWEST = 400  # rows with an amount, of either half
MOST_ROWS = 300_000  # that the mean amount is learned from
AMOUNT = BoostingSettings(leaves=16, rate=0.2, prior=50.0, rounds=60, patience=6)
Ints = NDArray[np.int64]


class Determined(NamedTuple):
    """Costs that follow from action and reward: cost = base + per_reward · reward for each action."""

    known: NDArray[np.bool_]  # [m]
    base: Vector  # [m, K]
    per_reward: Vector  # [m, K]


def determined_costs(data: Transitions, rows: NDArray[np.int64], spread: Vector) -> Determined:
    """Which costs are a straight line in the reward, given the action: all of a reward of 0 or 1 that look at no more.

    Args:
        data: the log.
        rows: `[n]` that have to agree.
        spread: `[H]` of the heads.
    """
    action = np.asarray(data.action[rows])
    outcome = np.asarray(data.outcome[rows], np.float64)
    count = outcome.shape[1] - 1
    known, base, per_reward = (
        np.ones(count, np.bool_),
        np.zeros((count, data.num_actions)),
        np.zeros((count, data.num_actions)),
    )
    for a in np.unique(action):
        reward, costs = outcome[action == a, 0], outcome[action == a, 1:]
        off = reward - reward.mean()
        variance = float(off @ off)
        slope = off @ costs / variance if variance > 0 else np.zeros(count)
        start = costs.mean(axis=0) - slope * reward.mean()
        error = np.abs(costs - start - np.outer(reward, slope)).max(axis=0)
        known &= error <= DETERMINED * spread[1 : 1 + count]
        base[:, a], per_reward[:, a] = start, slope
    return Determined(known, base, per_reward)


def outcomes(data: Transitions, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """`[n, H]` logged reward and costs of rows, and decisions where they are measured."""
    outcome = np.asarray(data.outcome[rows], np.float64)
    return outcome if data.steady else np.column_stack([outcome, ~data.forced[rows]])


def without_amount_luck(data: Transitions, seed: int) -> Transitions:
    """The log with such outcomes replaced in the rows of *learn* and *select* users; itself where there are none.

    Args:
        data: the log.
        seed: of everything random.
    """
    learn, select = data.rows_of(LEARN), data.rows_of(SELECT)
    derived = determined_costs(data, learn, spreads(data.outcome[learn]))
    follows = np.append(False, derived.known)
    columns = [h for h in range(data.outcome.shape[1]) if not follows[h] and _is_lucky(data, learn, h)]
    if not columns:
        return data
    outcome, rows = np.array(data.outcome), np.sort(np.concatenate([learn, select]))
    for h in columns:
        some = rows[outcome[rows, h] != 0]
        outcome[some, h] = KEPT * outcome[some, h] + (1 - KEPT) * _mean_amount(data, some, select, h, seed)
    if 0 in columns:
        action = np.asarray(data.action[rows])
        for j in np.flatnonzero(derived.known):
            outcome[rows, 1 + j] = derived.base[j, action] + derived.per_reward[j, action] * outcome[rows, 0]
    return replace(data, outcome=outcome)


def _is_lucky(data: Transitions, rows: Ints, column: int) -> bool:
    """Return whether an outcome is 0 on many days, and varies on others given the action."""
    x = np.asarray(data.outcome[rows, column], np.float64)
    some, half = x != 0, np.asarray(data.user[rows]) % 2
    if not 0 < some.mean() <= MOST_OFTEN or min(np.bincount(half[some], minlength=2)) < FEWEST:
        return False
    action, amount = np.asarray(data.action[rows])[some], x[some]
    count = np.maximum(np.bincount(action), 1)
    left = amount - (np.bincount(action, amount) / count)[action]
    return bool(np.square(left).mean() > VARIES * amount.mean() ** 2)


def _mean_amount(data: Transitions, rows: Ints, select: Ints, column: int, seed: int) -> Vector:
    """`[n]` μ in some rows, all with an amount: by the other half of the users, or by both for *select* users."""
    amount, half = np.asarray(data.outcome[rows, column], np.float64), np.asarray(data.user[rows]) % 2
    held = np.isin(rows, select, assume_unique=True)
    rng = np.random.default_rng(seed)
    means = np.zeros((2, len(rows)))
    for part in range(2):
        own = np.flatnonzero((half == part) & ~held)
        fit = np.sort(rng.choice(own, MOST_ROWS, replace=False)) if len(own) > MOST_ROWS else own
        judge = np.flatnonzero(held)
        judge = np.sort(rng.choice(judge, MOST_ROWS, replace=False)) if len(judge) > MOST_ROWS else judge
        means[part] = _by_trees(data, rows, amount, fit, judge, seed)
    return np.where(held, means.mean(axis=0), means[1 - half, np.arange(len(rows))])


def _by_trees(data: Transitions, rows: Ints, amount: Vector, fit: Ints, judge: Ints, seed: int) -> Vector:
    """`[n]` the mean amount in all rows, learned from those at `fit`; those at `judge` end the boosting."""
    unit = float(np.abs(amount[fit]).mean())
    taught = np.concatenate([fit, judge])
    table = BinnedTable.of(*_seen(data, rows[taught]), data.schema.sizes, seed)
    ones = np.ones((len(taught), 1))
    target = amount[taught][:, None] / unit
    own, held = (BoostingRows(at, target[at], ones[at]) for at in np.split(np.arange(len(taught)), [len(fit)]))
    model: Boosted = boost(table, own, held, AMOUNT)
    mean = np.empty(len(rows))
    for part in slices(len(rows)):
        mean[part] = unit * model(*_seen(data, rows[part]))[:, 0, 0]
    return mean


def _seen(data: Transitions, rows: Ints) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return the action's amount and the numbers of the state, `[r, 1+n]`, and its codes `[r, F]`."""
    given = data.actions[np.asarray(data.action[rows])].astype(np.float32)
    numbers, codes = states(data, rows)
    return np.hstack([given[:, None], numbers]), codes
