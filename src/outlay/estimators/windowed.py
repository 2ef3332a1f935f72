"""Claims about a user's first days, where the log cannot carry discounted means: which days, of whom, what lies beyond.

    discounted    (1−γ) Σ_t γ^t x_t          the days after the log count γ^k of all, and are extrapolated
    over k days   (1/k) Σ_{t<k} x_t          by the recursion over the days left; nothing beyond the log is needed

Both weigh days with weights that sum to 1, so that all that follows — limits per decision, margins, mixtures, bounds —
is the same in either: budgets compare Σ c with limit · Σ decisions, whatever the weights of the days.

    days = window_of(data)         # None, or k
    claims_window(data)            # None, or a Window with the sentence that pages show

Means over days take users whose window ends before the others' into account by users like them whose days the log goes
on to show (`sequential.py`). That needs such users. At every day, rows after which nothing is known are told from rows
after which something is, by the line in their features that does it best:

    e(f)      least squares of "goes on" on features f and a constant, from every other user, for the users between
    unlike    an ending row whose e(f) is below that of all but `FEW` of the rows that go on

Of all users, the share of those whose window ended in such a row is summed over days. Where gaps between rows are
long, a user may have several rows after which nothing is known: only the first of them counts. New users of whom none
has as many days as old users is what this is to see, where some feature tells new from old. Another case is a weekday:
if users joined on each of the first ten days of a log of 14, the eighth and last day of those who joined on the seventh
is a weekday on which no user with nine days has an eighth. Where fewer days do, claims are about these.

Source: overlap (positivity) of censoring as in Robins & Rotnitzky (1992); the measure, and all else, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from outlay.core.campaign import Campaign
from outlay.core.estimate import Target
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, EVERYONE, SELECT, Transitions
from outlay.estimators.importance import LEAST_ESS
from outlay.estimators.joint import J
from outlay.estimators.panel import Panel
from outlay.estimators.row_features import standardised

LEAST_ROWS = 2  # behind a state and action: with fewer the pair is thin, and counts say nothing of it
SUPPORT = 0.01  # of a policy's paths: as many may meet thin pairs, and a number is still given
CHANCE = 1e-3  # that actions drawn whatever the state follow it so far; below it, the log chose them by the state
COVERED = 0.5  # of the users who joined late, whose windows cover the days that claims are about
LITTLE = 0.05  # of the discounted weight: what may lie beyond the days that the log shows
Array = NDArray[np.float64]
FEW = 0.01  # of the rows that go on: so many may be unlike all others
MOST_UNLIKE = 0.05  # of the users: as much may rest on users who are not like them
RIDGE = 1.0  # rows, in features of spread 1
SAMPLE_USERS = 5_000  # so many say of how many days the log shows users who are alike
MOST_VALUES = 32  # of a categorical field that tells users apart there
LEAST_KEPT = 0.5  # of the days that half of the late users have: claims are not about fewer


@dataclass(frozen=True)
class Window:
    """What claims are about where the log cannot carry discounted values.

    Attributes:
        days: k.
        beyond: share γ^k of the discounted weight that lies after them.
        words: sentences that say so.
    """

    days: int
    beyond: float
    words: str


def window_of(data: Transitions) -> int | None:
    """The days k that claims are about where the log cannot carry discounted values; None where it can.

    It can where states are counted: a fixed point of counts is a fixed point of the log. Between features it is
    extrapolated: nothing holds the values of the days after the log to those that were seen. There k is as many days as
    hold all but `LITTLE` of the discounted weight, or as the log shows, if these are fewer: those that the windows of
    half the users cover who joined after its first day, if more than `LITTLE` of all did. Claims are about all users
    (`estimators/sequential.py`), and users who joined late may be of a kind of their own: where they are unlike those
    who are shown longer, the most days of which that is not so, if at least half as many. With discount 0 the first day
    is all that counts. Without a tail (every path ends in a terminal row) there is nothing to extrapolate.
    """
    discount = data.campaign.meta.discount
    if all(counted(data, split) for split in (SELECT, CERTIFY)):
        return None
    if discount == 0:
        return 1
    if not ((np.asarray(data.next_row) < 0) & ~np.asarray(data.terminal)).any():
        return None
    windows = np.sort(np.asarray(data.users["window"], np.int64))[::-1]
    late = windows[windows < windows[0]]
    shown = late if len(late) > LITTLE * len(windows) else windows[:1]
    covered = int(shown[int(np.ceil(COVERED * len(shown))) - 1])
    return _shown_alike(data, max(1, min(covered, int(np.ceil(np.log(LITTLE) / np.log(discount))))))


@lru_cache(maxsize=8)
def _shown_alike(data: Transitions, most: int) -> int:
    """The most days, `most` or at least half of them, of which users are shown who are like the others; else `most`."""
    if np.asarray(data.users["window"]).min() >= most:
        return most
    panel = Panel.of(data, EVERYONE, SAMPLE_USERS)
    features, members = _told(data, panel.rows), np.ones(panel.num_users, np.bool_)
    enough = (
        k
        for k in range(most, int(np.ceil(LEAST_KEPT * most)) - 1, -1)
        if why_unlike(unlike(panel, features, members, k)) is None
    )
    return next(enough, most)


def _told(data: Transitions, rows: NDArray[np.integer]) -> NDArray[np.float32]:
    """`[n, p]` of rows: numbers and values as the log has them, whatever fold of it this is."""
    codes, numbers = data.features(rows)
    few = [column for column in codes.T if len(np.unique(column)) <= MOST_VALUES]
    values = [column[:, None] == np.unique(column)[1:] for column in few]
    return standardised(np.hstack([numbers, *values], dtype=np.float32, casting="unsafe"))


@lru_cache(maxsize=8)  # the columns of a log do not change, and every policy of it asks
def counted(data: Transitions, split: int) -> bool:
    """Whether the states of a split are few, and those that users meet are met often enough to speak for themselves.

    A counter that grows, such as days since the last visit, or a feature of many values, such as an age, makes states
    that few users meet. An estimate by counts is withheld where more than `SUPPORT` of the users meet a state in which
    the policy gives what has fewer than `LEAST_ROWS` rows there. Lines through the features say more if as many users
    meet a state with fewer rows than that for each action; and also if as many are expected to, of a policy that always
    gives one action, drawn as often as the log gave it. The latter says something of the states only where the log drew
    its actions whatever the state, as elsewhere what is rare in a state is so by design; and lines say more only where
    each action was given to `LEAST_ESS` of the users on a day.
    Of a fold: whether they are so in all folds, which are then measured alike.
    """
    return all(_counted(view, split) for view in data.siblings())


def _counted(data: Transitions, split: int) -> bool:
    if data.states is None or data.state is None:
        return False
    rows, actions = data.rows_of(split), data.num_actions
    state, action, user = (np.asarray(of[rows], np.intp) for of in (data.state, data.action, data.user))
    pairs = np.bincount(state * actions + action, minlength=len(data.states) * actions).reshape(-1, actions)
    least, given = LEAST_ROWS * actions, pairs.sum(axis=1, keepdims=True)
    if len(np.unique(user[given[state, 0] < least])) > SUPPORT * len(data.users_of(split)):
        return False
    share = pairs.sum(axis=0) / max(1, len(rows))
    if len(data.users_of(split)) * share[share > 0].min(initial=1.0) < LEAST_ESS:
        return True
    expected = given * share
    told = expected > 0
    apart = float(((pairs - expected)[told] ** 2 / expected[told]).sum())
    freedom = (np.count_nonzero(given) - 1) * (np.count_nonzero(share) - 1)
    if freedom > 0 and chdtrc(freedom, apart) < CHANCE:
        return True
    meet = sum(of * len(np.unique(user[pairs[state, a] < LEAST_ROWS])) for a, of in enumerate(share))
    return bool(meet <= SUPPORT * len(data.users_of(split)))


def claimed(campaign: Campaign, days: int | None) -> int | None:
    """The days that a certificate is about; None where those are all days, or the horizon of budgets per user."""
    return days if all(budget.per == "decision" for budget in campaign.budgets) else None


def claims_window(data: Transitions) -> Window | None:
    """Return the days that claims are about, with the sentence that pages show; None where values are discounted."""
    days, campaign = window_of(data), data.campaign
    if days is None or campaign.meta.discount == 0:  # without a discount the first day is all there is
        return None
    beyond = campaign.meta.discount**days
    least, most = (np.asarray(bound) for bound in (data.outcome.min(axis=0), data.outcome.max(axis=0)))
    names = campaign.told_outcomes.values()
    seen = ", ".join(f"{name} {low:g} to {high:g}" for name, low, high in zip(names, least, most, strict=True))
    span = "first day" if days == 1 else f"first {days} days"
    what = "Claims" if claimed(campaign, days) else "Means per day and per decision"
    late = float((windows < windows.max()).mean()) if len(windows := np.asarray(data.users["window"])) else 0.0
    joined = (
        f" They are of all users, {late:.0%} of whom joined after the log's first day: the mean over all rows of the "
        "log is another figure, in which these have fewer rows."
        if late > LITTLE
        else ""
    )
    words = (
        f"{what} are about a user's {span} in the log, each weighing the same: the states are too many to count, and "
        f"what comes after is not claimed. {100 * beyond:.2g}% of the discounted weight (discount "
        f"{campaign.meta.discount:g}) lies there, where the log gives no more than the range of a row ({seen}).{joined}"
    )
    return Window(days, beyond, words)


def over_window(joint: J, names: Sequence[str], days: int | None) -> J:
    """Return the quantities with means over `days` days under the names of the discounted ones; None: unchanged.

    Args:
        joint: with `name@days` for each of the names, and `name` where discounted means were estimated.
        names: `reward`, the budgets, `decisions`.
        days: k. The discounted means follow as `name/discounted`.
    """
    if days is None:
        return joint
    sums = {name: (joint.column(str(Target(name, days))), 1 / days) for name in names}
    own = [name for name in names if name not in joint.targets] + [*joint.targets]
    discounted = [name for name in names if name in joint.targets]
    places = [
        *(sums[target] if target in sums else (joint.column(target), 1.0) for target in own),
        *((joint.column(name), 1.0) for name in discounted),
    ]
    targets = [*own, *(str(Target(name, kind="discounted")) for name in discounted)]
    return joint.picked(targets, [place for place, _ in places], [factor for _, factor in places])


def discounted_weights(days: int, discount: float) -> Array:
    """`[k]` weights of the first k days in a discounted mean whose later days are as the later half of these.

    They are (1−γ)γᵗ, and the γᵏ that lies beyond them is spread evenly over that half.
    """
    weights = np.asarray((1 - discount) * discount ** np.arange(days), np.float64)
    late = days // 2
    weights[late:] += discount**days / (days - late)
    return weights


def beyond_window(daily: Array, least: Array, most: Array, days: int, discount: float) -> Reason | None:
    """Return why not to rely on a discounted mean that extrapolates the days shown, and where it must lie; or None.

    None if the discount leaves little weight beyond the window.

    Args:
        daily: `[D, 1+m]` of the first, second, … day per user, D ≥ `days`.
        least: `[1+m]` of a day in the log.
        most: the same.
        days: k.
        discount: γ.
    """
    beyond = discount**days
    if beyond <= LITTLE:
        return None
    shown = (1 - discount) * discount ** np.arange(days) @ daily[:days]
    low, high = shown + beyond * least, shown + beyond * most
    figures = {"share": float(beyond), "days": days}
    if not np.isfinite([low[0], high[0]]).all():  # not all of those days are known
        return Reason(ReasonKind.BEYOND_DAYS, figures)
    return Reason(ReasonKind.BEYOND_DAYS_WITHIN, figures | {"low": float(low[0]), "high": float(high[0])})


def unlike(panel: Panel, features: NDArray[np.floating], members: NDArray[np.bool_], days: int) -> Array:
    """Share `[days]` of members `[U]` whose window ended before each day, and who were unlike all who went on."""
    ended, until = np.zeros(days), panel.known_until(days)
    short = np.flatnonzero((until < days) & members[panel.user])
    short = short[np.unique(panel.user[short], return_index=True)[1]]  # the first row of each user
    for day in np.unique(panel.day[short]):
        ends = short[panel.day[short] == day]
        rows = np.flatnonzero((panel.day == day) & (until >= days) & members[panel.user])
        odd = _odd(features[ends], features[rows], panel.user[ends] % 2, panel.user[rows] % 2)
        ended += np.bincount(until[ends[odd]], minlength=days)[:days]
    share: Array = ended.cumsum() / max(1, members.sum())
    return share


def why_unlike(unlike: Array) -> Reason | None:
    """Return why sums over some days are not given: users who joined late are unlike all who did not; or None."""
    worst = float(unlike.max(initial=0.0))
    if worst <= MOST_UNLIKE:
        return None
    return Reason(ReasonKind.UNLIKE, {"share": worst, "most": MOST_UNLIKE})


def _odd(
    ends: NDArray[np.floating], goes: NDArray[np.floating], ends_half: NDArray[np.intp], goes_half: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """`[e]` which of the ending rows `[e, p]` are unlike the rows that go on `[g, p]`; halves tell each other."""
    odd = np.ones(len(ends), np.bool_)
    for half in (0, 1):
        mine, here, there = ends_half == half, goes[goes_half == half], goes[goes_half != half]
        if not len(here) or not len(there):
            continue
        told = np.concatenate([ends[~mine], there]).astype(np.float64)
        centre = told.mean(axis=0)
        told -= centre
        gram = told.T @ told + RIDGE * np.eye(told.shape[1])
        line = np.linalg.solve(gram, told[len(told) - len(there) :].sum(axis=0))
        least = np.quantile((here - centre) @ line, FEW, method="lower")
        odd[mine] = (ends[mine] - centre) @ line < least - 1e-9 * (1 + abs(least))
    return odd
