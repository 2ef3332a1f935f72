"""How large a log must be, and how much of it random, before it can prove a gain.

Of the next log a share ε of the decisions is to be drawn evenly among K actions, the others as before:

    π'(a|s) = (1−ε) f(a|s) + ε/K                  f: the old policy, as far as it is known to be random; else 0
    τ²      = Var[ r + γ V(s') − V(s) ]           what a day adds to, or takes from, the value of a user's future
    SE²     = τ² (E[1/π'(a*|s)] − 1) / rows       of the gain of a policy that gives a*, over the log's own
    rows    = users × days = reach² τ² (E[1/π'] − 1) / gain²                  to find the gain with a power of 80%
    cost(ε) = ε (V_old − V_even)                  what drawing evenly takes from the reward, to first order

V is that of the log's own policy, so any log of the customers gives τ, also one in which nothing was random. a* is
taken as every action alike, since nobody knows yet what will be learned. The formula is the efficient standard error of
a policy's value, with states visited as in the log. Where states are too many to count, policies are followed day by
day, which is less exact: SE is then multiplied by how much wider than this formula the past log's own intervals are, of
each of its actions alone. Where neighbouring amounts speak for each other, a log is more exact. The policy has to be
learned from the log as well, which takes users too: these are sizes to prove a gain with, and half of a gain is rarely
found with less.

Where states are counted, a policy is measured only if the log did in (nearly) each state what it does: in each fold of
the users, for all but SUPPORT of its paths. It takes 2 rows to measure with; what is learned leans to actions that few
rows make look good, so ENOUGH is asked for. With Poisson counts,

    Σ_s min(1, d(s) / (1−γ)) P(Poisson(rows d(s) π'(a*|s) / FOLDS) < ENOUGH) ≤ SUPPORT      d: share of state s

Source: Kallus & Uehara (2020) for the efficient variance; Kakade & Langford (2002) for the cost; the rest is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from outlay.estimators.windowed import SUPPORT
from outlay.experiments.design import CONFIDENCE, POWER
from outlay.ops.intervals import quantile

ENOUGH = 5  # rows of an action in a state
FOLDS = 4  # of users, each of which measures by itself
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastActivity:
    """What a past log says of the next one.

    Attributes:
        mean: reward of a decision, as the objective counts it.
        spread: τ, in units of the reward.
        given: `[S, K]` share of each action in each state of the past log if its decisions were drawn as the campaign
            file says, so that they can be relied on; zeros if it is not known how. `[1, K]`, of all rows, where states
            are too many to count.
        even: what a decision brings more, relative to `mean`, if all are drawn evenly; None if it is not known.
        even_error: its standard error; None if it is not known.
        users: of the past log.
        days: of it.
        states: `[S]` share of each state in its rows; None where states are too many to count.
        discount: γ.
        wider: how many times as large as the formula says errors are in the past log; None where they are likely larger
            and it cannot be said how much.
    """

    mean: float
    spread: float
    given: NDArray[np.float64]
    even: float | None
    even_error: float | None
    users: int
    days: int
    states: NDArray[np.float64] | None
    discount: float
    wider: float | None = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """One way to collect the next log.

    Attributes:
        share: of the decisions that are drawn evenly at random.
        supported: whether each action is given often enough in each state to measure policies at all.
        half_width: of the 95% interval of a gain, relative to the reward, with these users and days.
        smallest: gain that such a log finds with a power of 80%, relative to the reward.
        users_needed: users that find the gain that was asked for in as many days; None where none was asked for.
        cost: what drawing takes from the reward meanwhile, relative to it; below 0: it adds. None if not known.
        cost_error: its standard error; None if not known.
    """

    share: float
    supported: bool
    half_width: float
    smallest: float
    users_needed: int | None
    cost: float | None
    cost_error: float | None


def past_activity(
    outcome: NDArray[np.float64],
    advantage: NDArray[np.float64],
    action: NDArray[np.intp],
    propensity: NDArray[np.float64] | None,
    user: NDArray[np.intp],
    state: NDArray[np.intp] | None,
    *,
    actions: int,
    discount: float,
) -> PastActivity:
    """What the next log's size depends on.

    Args:
        outcome: `[n]` reward of rows with a choice.
        advantage: `[n]` r + γ V(s') − V(s), where the next row is known; NaN elsewhere.
        action: `[n]` index of what was given.
        propensity: `[n]` of that; None if it is not known how actions came about.
        user: `[n]` whose row it is.
        state: `[n]` index of its state; None where states are too many to count.
        actions: K.
        discount: γ.
    """
    known = np.isfinite(advantage)
    x = advantage[known] - advantage[known].mean()
    mean, users = float(outcome.mean()), len(np.unique(user))
    place = np.zeros(len(action), np.intp) if state is None else state
    count = int(place.max()) + 1
    given, even, error = np.zeros((count, actions)), None, None
    if propensity is not None:
        given = np.bincount(place * actions + action, minlength=given.size).reshape(given.shape).astype(np.float64)
        given /= np.maximum(given.sum(axis=1, keepdims=True), 1)
        weighted = x / (actions * propensity[known])  # of the policy that draws evenly
        by_user = np.bincount(user[known], weighted, minlength=int(user.max()) + 1)
        even = float(weighted.mean()) / abs(mean)
        error = float(np.sqrt((by_user**2).sum())) / len(x) / abs(mean)
    return PastActivity(
        mean=mean,
        spread=float(x.std()),
        given=given,
        even=even,
        even_error=error,
        users=users,
        days=max(1, round(len(outcome) / users)),
        states=None if state is None else np.bincount(state) / len(state),
        discount=discount,
    )


def log_size(past: PastActivity, share: float, *, users: int, days: int, gain: float | None) -> LogSize:
    """What a log can prove.

    Args:
        past: what a past log says.
        share: ε.
        users: of the next log.
        days: of the next log.
        gain: relative gain that users are wanted for; None: none.
    """
    drawn = (1 - share) * past.given + share / past.given.shape[1]
    inverse = float(np.average((1 / drawn).mean(axis=1), weights=past.states)) - 1
    relative = past.spread / abs(past.mean) * (past.wider or 1.0)
    two_sided = quantile(1 - (1 - CONFIDENCE) / 2)
    reach = two_sided + quantile(POWER)
    error = relative * np.sqrt(inverse / (users * days))
    needed = None
    if gain is not None:
        exact = ceil((reach * relative / gain) ** 2 * inverse / days)
        needed = exact
        while _unsupported(past, drawn, needed * days) > SUPPORT:
            needed = ceil(1.05 * needed)
    return LogSize(
        share=share,
        supported=_unsupported(past, drawn, users * days) <= SUPPORT,
        half_width=float(two_sided * error),
        smallest=float(reach * error),
        users_needed=needed,
        cost=None if past.even is None else -share * past.even,
        cost_error=None if past.even_error is None else share * past.even_error,
    )


def wider(past: PastActivity, errors: Sequence[float]) -> float | None:
    """How many times as large as the formula says the errors of the past log are; None where it has none.

    Args:
        past: of that log.
        errors: standard errors of the gains of its actions, each alone, relative to the reward.
    """
    if len(errors) == 0 or not past.given.all():
        return None
    by_formula = log_size(past, 0.0, users=past.users, days=past.days, gain=None).half_width
    return float(quantile(1 - (1 - CONFIDENCE) / 2) * np.mean(errors) / by_formula)


def _unsupported(past: PastActivity, drawn: NDArray[np.float64], rows: int) -> float:
    """Share of paths that meet a state in which the log hardly ever did what a policy does; of every action alike."""
    if past.states is None:
        return 0.0
    visited = np.minimum(1.0, past.states / (1 - past.discount))
    expected = rows / FOLDS * past.states[:, None] * drawn
    return float((visited[:, None] * pdtr(ENOUGH - 1, expected)).sum(axis=0).mean())


def log_sizes(
    past: PastActivity, *, users: int, days: int, gain: float | None, shares: Sequence[float] = SHARES
) -> list[LogSize]:
    """The same for each of several shares; arguments as for `log_size`."""
    return [log_size(past, share, users=users, days=days, gain=gain) for share in shares]
