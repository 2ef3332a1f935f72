"""The A/B test that would settle whether a policy brings what its evaluation says, sized from the same log.

    x_i  = total of the reward of user i over the last w days of the log    w: those of the test, or of a shorter log
    n    = users of both arms that detect the effect (`experiments/power.py`)
    effect = half of the estimated gain if the log's users are enough for that, else the estimated gain

Estimates of chosen policies are rather too high than too low, so half of the gain is what a test should be able to see.
It costs four times the users. The days of a user are added up before users are compared, so that habits count as they
are in the log. Of one to four whole weeks, but not more than the log has, the shortest with which the users suffice is
taken. Where the campaign file names a cluster, arms are drawn by it, and clusters are counted.

These are the numbers of `outlay experiment plan` with `--lift`, without its covariate from the days before.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.experiments.design import WEEK
from outlay.experiments.moments import USERS, Metric, UserMoments, moments_of
from outlay.experiments.power import units_needed

MOST_WEEKS = 4  # of a test
POWER, ALPHA = 0.8, 0.05
PARTS = (0.5, 1.0)  # of the estimated gain, tried in this order
FEWEST = 100  # users or clusters an arm, below which the formula does not hold
ALWAYS = 0.9  # of the log's decisions: an action given so often is what the old policy does
SAME = 1e-3  # probabilities that differ by less are equal
SPARE = 1.2  # money of an arm, as a multiple of what it is expected to spend


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


@dataclass(frozen=True, slots=True)
class _Size:
    part: float
    days: int
    per_arm: int  # users
    clusters: int | None
    moments: UserMoments  # by user

    @property
    def enough(self) -> bool:
        return 2 * self.per_arm <= self.moments.users


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
    time = data.first_times()[data.user] + np.asarray(data.day)
    length = int(time.max() - time.min()) + 1
    weeks = range(1, max(1, min(MOST_WEEKS, length // WEEK)) + 1)
    logs = {WEEK * week: window_totals(data, time, WEEK * week, length) for week in weeks}
    found: _Size | None = None
    for part in PARTS:
        for days, (moments, clusters) in logs.items():
            found = _size(part, days, part * gain, moments, clusters)
            if found is None:
                return None
            if found.enough:
                return _planned(found, data, campaign, gain, spend, bundle)
    assert found is not None  # the longest test for the whole gain
    return _planned(found, data, campaign, gain, spend, bundle)


def window_totals(
    data: Transitions, time: NDArray[np.int64], days: int, length: int
) -> tuple[UserMoments, UserMoments | None]:
    """Totals over a test's days of every user with a row in the last of the log, and of their clusters."""
    window = min(days, length)
    rows = np.flatnonzero(time > time.max() - window)
    user = np.asarray(data.user)[rows]
    seen = np.unique(user)
    money = 1 + data.campaign.money
    sums: dict[str, NDArray[np.float64]] = {
        name: (np.bincount(user, data.outcome[rows, j], int(user.max()) + 1)[seen] * (days / window)).astype(np.float64)
        for name, j in (("reward", 0), ("money", money))
    }
    users = moments_of(sums)
    if data.cluster is None:
        return users, None
    _, cluster = np.unique(data.cluster[seen], return_inverse=True)
    sums[USERS] = np.ones(len(seen))
    added = {name: np.bincount(cluster, total).astype(np.float64) for name, total in sums.items()}
    return users, moments_of(added, clustered=True)


def _size(part: float, days: int, lift: float, users: UserMoments, clusters: UserMoments | None) -> _Size | None:
    """Users that a test needs; None where the metric is 0 or the same for all."""
    metric = Metric("reward", "reward")
    effect = lift * float(users.mean[users.place("reward")])
    if effect == 0 or len(users.mean) == 0 or users.users < 2:
        return None
    if clusters is None:
        variance = users.variance(metric)
        units = max(units_needed(variance, effect, alpha=ALPHA, power=POWER), 2 * FEWEST)
        return _Size(part, days, ceil(units / 2), None, users) if variance > 0 else None
    if clusters.users < 2 or not (variance := clusters.variance(metric.per_user)) > 0:
        return None
    units = ceil(units_needed(variance, effect, alpha=ALPHA, power=POWER) / 2)
    return _Size(part, days, ceil(units * users.users / clusters.users), units, users)


def _planned(
    size: _Size, data: Transitions, campaign: Campaign, gain: float, spend: float, bundle: Path | None
) -> PlannedTest:
    lift = float(f"{size.part * gain:.3g}")
    command, placeholders = _command(size, data, campaign, lift, spend, bundle)
    return PlannedTest(
        part=size.part, lift=lift, days=size.days, users_per_arm=size.per_arm, clusters_per_arm=size.clusters,
        log_users=size.moments.users, power=POWER, alpha=ALPHA, enough=size.enough,
        words=_words(size, lift, campaign.reward_label), command=command, placeholders=placeholders,
    )  # fmt: skip


def _words(size: _Size, lift: float, reward: str) -> str:
    what = "half of the estimated gain" if size.part < 1 else "the estimated gain"
    clusters = "" if size.clusters is None else f" ({size.clusters:,} clusters)"
    needs = (
        f"A test that detects {what} ({100 * lift:+.2g}% {reward}) with {100 * POWER:g}% power at a two-sided "
        f"{100 * ALPHA:g}% needs {size.per_arm:,} users{clusters} an arm for {size.days} days"
    )
    has = f"the log has {size.moments.users:,} users"
    if size.enough:
        return f"{needs}; {has}."
    return (
        f"{needs}; {has}, and {2 * size.per_arm:,} would be needed: more users, a longer test or a larger difference."
    )


def _command(
    size: _Size, data: Transitions, campaign: Campaign, lift: float, spend: float, bundle: Path | None
) -> tuple[str, str]:
    """The command that plans the test, and what its placeholders stand for."""
    money = float(size.moments.mean[size.moments.place("money")]) * max(1.0, spend)
    budget = rounded_up(SPARE * money * size.per_arm)
    share = min(0.5, ceil(1000 * size.per_arm / size.moments.users) / 1000)
    stands = {"START": "the date of its first day"}
    old, new = _old(data), "NEW/bundle" if bundle is None else str(bundle)
    if old is None:
        old, stands["OLD/bundle"] = "bundle=OLD/bundle", "a bundle that decides as the old policy does"
    if bundle is None:
        stands["NEW/bundle"] = "a bundle of the policy"
    arms = {"old": old, "new": f"bundle={new}"}
    parts = ["outlay", "experiment", "plan", "--log", str(data.campaign.path), "--start", "START"]
    parts += ["--days", str(size.days), "--lift", f"{lift:g}"]
    if not size.enough:
        parts += ["--users", str(2 * size.per_arm)]
    if campaign.log.cluster is not None:
        parts += ["--cluster", campaign.log.cluster]
    for name, gives in arms.items():
        parts += ["--arm", f"{name},{gives},share={share:g},budget={budget:g}"]
    return shlex.join(parts), in_words(stands)


def in_words(stands: Mapping[str, str]) -> str:
    """What placeholders of a command stand for."""
    *most, last = (f"{name} is {meaning}" for name, meaning in stands.items())
    return f"{', '.join(most)} and {last}." if most else f"{last}."


def _old(data: Transitions) -> str | None:
    """What an arm gives that decides as the old policy does; None where no kind of arm but a bundle does."""
    free = ~np.asarray(data.forced)
    if not free.any():
        return None
    even = 1 / data.num_actions
    if data.propensity is not None and data.eligible is None and np.allclose(data.propensity[free], even, atol=SAME):
        return "random"
    shares = np.bincount(np.asarray(data.action)[free], minlength=data.num_actions) / free.sum()
    return f"action={data.actions[shares.argmax()]:g}" if shares.max() >= ALWAYS else None


def rounded_up(money: float) -> float:
    """Money to two digits, at least 1."""
    unit = 10.0 ** (floor(log10(max(money, 1.0))) - 1)
    return max(1.0, ceil(money / unit) * unit)
