"""The A/B test that would settle what an evaluation cannot, sized from the same log, with the command that plans it.

    x_i  = total of the reward of user i over the last w days of the log    w: those of the test, or of a shorter log

Two tests are planned. **Does the policy bring what its evaluation says?** (`plan_test`)

    n      = users of both arms that detect the effect (`units_needed` in `experiments/power.py`)
    effect = half of the estimated gain if the log's users are enough for that, else the estimated gain

Estimates of chosen policies are rather too high than too low, so half of the gain is what a test should be able to see.
It costs four times the users. Of one to four whole weeks, but not more than the log has, the shortest with which the
users suffice is taken. These are the numbers of `outlay experiment plan` with `--lift`, without its covariate from the
days before.

**What does each action do, if no state explains it?** (`plan_settling`)

    n    = z² Var(x) / (p · mean x)²          users an arm, for a half-width of p times the mean
    arms = constant actions, each kept by n users for 7 days

Where neither the state nor a summary of the past is enough (`estimators/markov.py`), no estimate from single days is to
be trusted, however large the log. A user who keeps an action shows its total over the days, fatigue and habit
included, and the mean of an arm's users needs no assumption about what drives them. The precision p is the finest of
`PRECISIONS` for which all arms together take a small share of the log's users; else the coarsest.

The days of a user are added up before users are compared, so that habits count as they are in the log. Where the
campaign file names a cluster, arms are drawn by it, and clusters are counted.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outlay.core.actions import Given, as_text, named
from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.core.wording import percent
from outlay.core.wording import weeks as in_weeks
from outlay.experiments.design import CONFIDENCE, POWER, WEEK
from outlay.experiments.moments import USERS, Metric, UserMoments, moments_of
from outlay.experiments.power import ENOUGH, units_needed
from outlay.ops.intervals import quantile

MOST_WEEKS = 4  # of a test
PARTS = (0.5, 1.0)  # of the estimated gain, tried in this order
ALWAYS = 0.9  # of the log's decisions: an action given so often is what the old policy does
SAME = 1e-3  # probabilities that differ by less are equal
SPARE = 1.2  # money of an arm, as a multiple of what it is expected to spend
PRECISIONS = (0.01, 0.02, 0.05, 0.1)  # half-widths of the 95% interval of a total, relative
SMALL = 0.1  # share of the log's users that all arms may take
MOST_ARMS = 6  # of constant actions; of more, as many that are evenly spread
REWARD = Metric("reward", "reward")
START = {"START": "the date on which it begins"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTest:
    """A test of the policy against the old one.

    Attributes:
        part: of the estimated gain that it detects: 0.5 or 1.
        lift: the same relative to the old policy, e.g. 0.011.
        days: of the test, whole weeks.
        users_per_arm: users that each of two arms needs.
        clusters_per_arm: clusters that hold them, where arms are drawn by cluster; else None.
        log_users: users of the log in its last days.
        power: probability of detecting the effect.
        alpha: two-sided error.
        enough: whether the log has so many users.
        words: the plan in a sentence.
        command: `outlay experiment plan …`.
        placeholders: what its words in capitals stand for.
    """

    part: float
    lift: float
    days: int
    users_per_arm: int
    clusters_per_arm: int | None
    log_users: int
    power: float
    alpha: float
    enough: bool
    words: str
    command: str
    placeholders: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlingTest:
    """A test of constant actions.

    Attributes:
        actions: that the arms keep.
        days: of the test.
        precision: half-width of the 95% interval of an arm's total of the reward, relative to the log's mean.
        users_per_arm: users that keep each action.
        clusters_per_arm: clusters that hold them, where arms are drawn by cluster; else None.
        share: of the log's users, in all arms together.
        log_users: users of the log in its last days.
        enough: whether the log has so many.
        words: the test in a sentence or two.
        command: `outlay experiment plan …`.
        placeholders: what its words in capitals stand for.
    """

    actions: tuple[Given, ...]
    days: int
    precision: float
    users_per_arm: int
    clusters_per_arm: int | None
    share: float
    log_users: int
    enough: bool
    words: str
    command: str
    placeholders: str


@dataclass(frozen=True, slots=True)
class _UserTotals:
    """Users' totals over a test's days, and their clusters' if arms are drawn by them: the units that are counted."""

    users: UserMoments
    clusters: UserMoments | None

    @property
    def count(self) -> int:
        return self.users.users

    @property
    def per_unit(self) -> float:
        """Users of a unit on average."""
        return 1.0 if self.clusters is None else self.users.users / self.clusters.users

    @property
    def variance(self) -> float:
        """Of a unit's part of the mean reward per user; 0 for fewer than two."""
        units, metric = (self.users, REWARD) if self.clusters is None else (self.clusters, REWARD.per_user)
        return units.variance(metric) if min(self.users.users, units.users) >= 2 else 0.0

    def drawn(self, units: int) -> int | None:
        """The clusters of so many units, or None."""
        return None if self.clusters is None else units


def plan_test(
    data: Transitions, campaign: Campaign, gain: float | None, spend: float, bundle: Path | None
) -> PlannedTest | None:
    """Plan a test that detects a gain.

    Args:
        data: the whole log.
        campaign: its settings.
        gain: the estimated gain relative to the old policy; None if it is not known.
        spend: money of the policy relative to the old policy's.
        bundle: of the policy; None if it has none.

    Returns:
        None if there is no gain to detect, or users do not differ.
    """
    if gain is None or not np.isfinite(gain) or gain <= 0:
        return None
    length = int(_length(data) / data.campaign.units(WEEK))  # in weeks
    weeks = range(1, (1 if campaign.log.once else max(1, min(MOST_WEEKS, length))) + 1)
    logs = {WEEK * week: _totals(data, WEEK * week) for week in weeks}
    sizes = [(part, days, _units(part * gain, logs[days])) for part in PARTS for days in logs]
    known = [(part, days, units) for part, days, units in sizes if units is not None]
    if len(known) < len(sizes):
        return None
    fits = (each for each in known if 2 * ceil(each[2] * logs[each[1]].per_unit) <= logs[each[1]].count)
    part, days, units = next(fits, known[-1])  # or the longest test for the whole gain
    totals, lift = logs[days], float(f"{part * gain:.3g}")
    per_arm = ceil(units * totals.per_unit)
    enough = 2 * per_arm <= totals.count
    share = min(0.5, ceil(1000 * per_arm / totals.count) / 1000)
    budget = _budget(totals.users.average("money") * max(1.0, spend), per_arm)
    stands = dict(START)
    old, new = _old(data), "NEW/bundle" if bundle is None else str(bundle)
    if old is None:
        old, stands["OLD/bundle"] = "bundle=OLD/bundle", "a bundle that decides as the old policy does"
    if bundle is None:
        stands["NEW/bundle"] = "a bundle of the policy"
    arms = [
        f"{name},{gives},share={share:g},budget={budget:.12g}"
        for name, gives in (("old", old), ("new", f"bundle={new}"))
    ]
    return PlannedTest(
        part=part,
        lift=lift,
        days=days,
        users_per_arm=per_arm,
        clusters_per_arm=totals.drawn(units),
        log_users=totals.count,
        power=POWER,
        alpha=1 - CONFIDENCE,
        enough=enough,
        words=_planned_words(part, lift, days, per_arm, totals, units, campaign.told("reward")),
        command=_command(data, campaign, days, arms, lift=lift, users=None if enough else 2 * per_arm),
        placeholders=_in_words(stands),
    )


def plan_settling(data: Transitions, campaign: Campaign, bundle: Path | None = None) -> SettlingTest | None:
    """Plan the test of constant actions.

    Args:
        data: the whole log.
        campaign: its settings.
        bundle: a policy that gets an arm of its own; None: constant actions alone.

    Returns:
        None if the reward is the same for all users, or 0 on average.
    """
    totals = _totals(data, WEEK)
    mean, variance = totals.users.average("reward"), totals.variance
    if mean == 0 or not variance > 0:
        return None
    count, log_users, per_unit = data.num_actions, totals.count, totals.per_unit
    places = np.unique(np.linspace(0, count - 1, min(count, MOST_ARMS)).round().astype(np.intp))
    number, factor, spread = len(places) + (bundle is not None), quantile(0.5 + CONFIDENCE / 2), variance / mean**2
    sizes = {p: max(ceil((factor / p) ** 2 * spread), ceil(ENOUGH / per_unit)) for p in PRECISIONS}
    units = next((n for n in sizes.values() if number * n * per_unit <= SMALL * log_users), sizes[PRECISIONS[-1]])
    per_arm = ceil(units * per_unit)
    users = number * per_arm
    found = SettlingTest(
        actions=tuple(data.given(place) for place in places),
        days=WEEK,
        precision=factor * sqrt(spread / units),
        users_per_arm=per_arm,
        clusters_per_arm=totals.drawn(units),
        share=users / log_users,
        log_users=log_users,
        enough=users <= log_users,
        words="",
        command=_command(
            data,
            campaign,
            WEEK,
            _constant_arms(data, campaign, places, bundle, totals, per_arm),
            users=users if users > log_users else None,
        ),
        placeholders=_in_words(START),
    )
    policy = " or the policy" if bundle is not None else ""
    return replace(found, words=_settling_words(found, campaign.told("reward"), policy, every=len(places) == count))


def _length(data: Transitions) -> int:
    """Units of the log's time, from the first to the last."""
    time = _times(data)
    return int(time.max() - time.min()) + 1


def _times(data: Transitions) -> NDArray[np.int64]:
    """`[rows]` the time of every row."""
    return data.first_times()[data.user] + np.asarray(data.day)


def _totals(data: Transitions, days: int) -> _UserTotals:
    """Totals over a test's days of every user with a row in the last of the log, and of their clusters."""
    time = _times(data)
    once, wanted = bool(data.campaign.log.once), data.campaign.units(days)
    window = _length(data) if once else min(ceil(wanted), _length(data))
    factor = 1.0 if once else wanted / window  # a row of a log of one step is all that a user brings
    rows = np.flatnonzero(time > time.max() - window)
    user = np.asarray(data.user)[rows]
    seen = np.unique(user)
    sums: dict[str, NDArray[np.float64]] = {
        name: (np.bincount(user, data.outcome[rows, j], int(user.max()) + 1)[seen] * factor).astype(np.float64)
        for name, j in (("reward", 0), ("money", 1 + data.campaign.money))
    }
    users = moments_of(sums)
    if data.cluster is None:
        return _UserTotals(users, None)
    _, cluster = np.unique(data.cluster[seen], return_inverse=True)
    sums[USERS] = np.ones(len(seen))
    added = {name: np.bincount(cluster, total).astype(np.float64) for name, total in sums.items()}
    return _UserTotals(users, moments_of(added, clustered=True))


def _units(lift: float, totals: _UserTotals) -> int | None:
    """Units that an arm needs to detect a lift; None where the metric is 0 or the same for all."""
    effect, variance = lift * totals.users.average("reward"), totals.variance
    if effect == 0 or not variance > 0:
        return None
    needed = ceil(units_needed(variance, effect, alpha=1 - CONFIDENCE, power=POWER) / 2)
    return max(needed, ENOUGH) if totals.clusters is None else needed


def _constant_arms(
    data: Transitions,
    campaign: Campaign,
    places: NDArray[np.intp],
    bundle: Path | None,
    totals: _UserTotals,
    per_arm: int,
) -> list[str]:
    """Arms of constant actions and of the policy, with the money that their users are expected to spend, and more."""
    number = len(places) + (bundle is not None)
    share = min(ceil(1e4 * per_arm / max(totals.count, number * per_arm)) / 1e4, floor(1e4 / number) / 1e4)
    action, money = np.asarray(data.action), np.asarray(data.outcome[:, 1 + campaign.money], np.float64)
    week = totals.users.average("money") / max(float(money.mean()), 1e-300)  # of a user: rows' worth of money
    spent = [week * float(money[action == place].mean()) if (action == place).any() else 0.0 for place in places]
    called = [as_text(data.given(place)) for place in places]
    given = {f"always {each}".replace(",", ""): f"action={each}" for each in called}
    if bundle is not None:
        given["policy"], spent = f"bundle={bundle}", [*spent, max(spent)]
    return [
        f"{name},{gives},share={share:g},budget={_budget(cost, per_arm):.12g}"
        for (name, gives), cost in zip(given.items(), spent, strict=True)
    ]


def _command(
    data: Transitions,
    campaign: Campaign,
    days: int,
    arms: Sequence[str],
    *,
    lift: float | None = None,
    users: int | None = None,
) -> str:
    """The command that plans the test; `users` if the log has too few."""
    parts = ["outlay", "experiment", "plan", str(data.campaign.path), "--start", "START", "--days", str(days)]
    parts += [] if lift is None else ["--lift", f"{lift:g}"]
    parts += [] if users is None else ["--users", str(users)]
    parts += [] if campaign.log.cluster is None else ["--cluster", campaign.log.cluster]
    return shlex.join([*parts, *(part for arm in arms for part in ("--arm", arm))])


def _old(data: Transitions) -> str | None:
    """What an arm gives that decides as the old policy does; None where no kind of arm but a bundle does."""
    free = ~np.asarray(data.forced)
    if not free.any():
        return None
    even = 1 / data.num_actions
    if data.propensity is not None and data.eligible is None and np.allclose(data.propensity[free], even, atol=SAME):
        return "random"
    shares = np.bincount(np.asarray(data.action)[free], minlength=data.num_actions) / free.sum()
    return f"action={as_text(data.given(int(shares.argmax())))}" if shares.max() >= ALWAYS else None


def _budget(per_user: float, users: int) -> float:
    """Money of an arm: what its users are expected to spend and a fifth more, to two digits, at least 1."""
    money = SPARE * per_user * users
    unit = 10.0 ** (floor(log10(max(money, 1.0))) - 1)
    return max(1.0, ceil(money / unit) * unit)


def _planned_words(
    part: float, lift: float, days: int, per_arm: int, totals: _UserTotals, units: int, reward: str
) -> str:
    what = "half of the estimated gain" if part < 1 else "the estimated gain"
    drawn = totals.drawn(units)
    clusters = "" if drawn is None else f" ({drawn:,} clusters)"
    needs = (
        f"A test that detects {what} ({100 * lift:+.2g}% {reward}) with {100 * POWER:g}% power at a two-sided "
        f"{100 * (1 - CONFIDENCE):g}% needs {per_arm:,} users{clusters} an arm for {in_weeks(days)}"
    )
    has = f"the log has {totals.count:,} users"
    if 2 * per_arm <= totals.count:
        return f"{needs}; {has}."
    return f"{needs}; {has}, and {2 * per_arm:,} would be needed: more users, a longer test or a larger difference."


def _settling_words(test: SettlingTest, reward: str, policy: str, *, every: bool) -> str:
    actions = ", ".join(map(named, test.actions))
    kept = f"one action ({actions}{'' if every else ', of all actions'}){policy}"
    arms = len(test.actions) + bool(policy)
    held = "" if test.clusters_per_arm is None else f" ({test.clusters_per_arm:,} clusters)"
    needs = (
        f"A test settles it without any assumption about the state: {arms * test.users_per_arm:,} users, "
        f"{test.users_per_arm:,}{held} an arm, keep {kept}, drawn at random, for {in_weeks(WEEK)}. The total of "
        f"{reward} of each is then known to ±{100 * test.precision:.2g}% (95%)"
    )
    if test.enough:
        return f"{needs}; that is {percent(test.share)} of the log's {test.log_users:,} users."
    return f"{needs}; the log has {test.log_users:,} users, which are too few for {arms} arms of that size."


def _in_words(stands: Mapping[str, str]) -> str:
    """What placeholders of a command stand for."""
    *most, last = (f"{name} is {meaning}" for name, meaning in stands.items())
    return f"{', '.join(most)} and {last}." if most else f"{last}."
