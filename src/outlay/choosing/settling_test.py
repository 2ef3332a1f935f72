"""The experiment that needs no state: users who keep one action for a week, drawn at random.

    x_i     = total of the reward of user i over the last 7 days of the log
    n       = z² Var(x) / (p · mean x)²          users an arm, for a half-width of p times the mean
    arms    = constant actions, each kept by n users for 7 days

Where neither the state nor a summary of the past is enough (`estimators/markov.py`), no estimate from single days is to
be trusted, however large the log. A user who keeps an action shows its total over the days, fatigue and habit
included, and the mean of an arm's users needs no assumption about what drives them. The precision p is the finest of
`PRECISIONS` for which all arms together take a small share of the log's users; else the coarsest.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from math import ceil, floor, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.planned_test import FEWEST, SPARE, in_words, rounded_up, window_totals
from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.core.wording import percent
from outlay.experiments.design import WEEK
from outlay.experiments.moments import Metric, UserMoments
from outlay.ops.intervals import quantile

PRECISIONS = (0.01, 0.02, 0.05, 0.1)  # half-widths of the 95% interval of a total, relative
SMALL = 0.1  # share of the log's users that all arms may take
MOST_ARMS = 6  # of constant actions; of more, as many that are evenly spread
CONFIDENCE = 0.95


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

    actions: tuple[float, ...]
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


def plan_settling(data: Transitions, campaign: Campaign, bundle: Path | None = None) -> SettlingTest | None:
    """Plan the test of constant actions.

    Args:
        data: the whole log.
        campaign: its settings.
        bundle: a policy that gets an arm of its own; None: constant actions alone.

    Returns:
        None if the reward is the same for all users, or 0 on average.
    """
    time = data.first_times()[data.user] + np.asarray(data.day)
    users, clusters = window_totals(data, time, WEEK, int(time.max() - time.min()) + 1)
    spread = _relative_spread(users, clusters)
    if spread is None:
        return None
    count = data.num_actions
    places = np.unique(np.linspace(0, count - 1, min(count, MOST_ARMS)).round().astype(np.intp))
    arms, log_users = len(places) + (bundle is not None), users.users
    factor, per_unit = quantile((1 + CONFIDENCE) / 2), 1.0 if clusters is None else users.users / clusters.users
    sizes = {p: max(ceil((factor / p) ** 2 * spread), ceil(FEWEST / per_unit)) for p in PRECISIONS}
    units = next((n for n in sizes.values() if arms * n * per_unit <= SMALL * log_users), sizes[PRECISIONS[-1]])
    per_arm, precision = ceil(units * per_unit), factor * sqrt(spread / units)
    actions = tuple(float(data.actions[place]) for place in places)
    drawn = None if clusters is None else units
    enough, share = arms * per_arm <= log_users, arms * per_arm / log_users
    words = _words(actions, precision, per_arm, drawn, share, log_users, campaign.reward_label,
                   bundle=bundle is not None, every=len(places) == count)  # fmt: skip
    return SettlingTest(
        actions=actions, days=WEEK, precision=precision, users_per_arm=per_arm, clusters_per_arm=drawn, share=share,
        log_users=log_users, enough=enough, words=words,
        command=_command(data, campaign, places, per_arm, users, bundle, arms),
        placeholders=in_words({"START": "the date of its first day"}),
    )  # fmt: skip


def _relative_spread(users: UserMoments, clusters: UserMoments | None) -> float | None:
    """Variance of a unit's part of the mean per user, relative to its square: divided by n, that of an arm's mean."""
    if users.users < 2 or (clusters is not None and clusters.users < 2):
        return None
    mean = float(users.mean[users.place("reward")])
    metric = Metric("reward", "reward")
    variance = users.variance(metric) if clusters is None else clusters.variance(metric.per_user)
    return float(variance) / mean**2 if mean != 0 and variance > 0 else None


def _words(
    actions: tuple[float, ...], precision: float, per_arm: int, clusters: int | None, share: float, log_users: int,
    reward: str, *, bundle: bool, every: bool,
) -> str:  # fmt: skip
    kept = f"one action ({', '.join(f'{action:g}' for action in actions)}{'' if every else ', of all actions'})"
    kept += " or the policy" if bundle else ""
    arms = len(actions) + bundle
    held = "" if clusters is None else f" ({clusters:,} clusters)"
    needs = (
        f"A test settles it without any assumption about the state: {arms * per_arm:,} users, {per_arm:,}{held} an "
        f"arm, keep {kept}, drawn at random, for {WEEK} days. The {WEEK}-day total of {reward} of each is then known "
        f"to ±{100 * precision:.2g}% (95%)"
    )
    if share <= 1:
        return f"{needs}; that is {percent(share)} of the log's {log_users:,} users."
    return f"{needs}; the log has {log_users:,} users, which are too few for {arms} arms of that size."


def _command(
    data: Transitions, campaign: Campaign, places: NDArray[np.intp], per_arm: int, users: UserMoments,
    bundle: Path | None, arms: int,
) -> str:  # fmt: skip
    """The command that plans the test: arms with the money that their users are expected to spend, and a fifth more."""
    all_users = max(users.users, arms * per_arm)
    share = min(ceil(1e4 * per_arm / all_users) / 1e4, floor(1e4 / arms) / 1e4)
    action, money = np.asarray(data.action), np.asarray(data.outcome[:, 1 + campaign.money], np.float64)
    week = float(users.mean[users.place("money")]) / max(float(money.mean()), 1e-300)  # of a user: rows' worth of money
    spent = [week * float(money[action == place].mean()) if (action == place).any() else 0.0 for place in places]
    given = {f"always {data.actions[place]:g}": f"action={data.actions[place]:g}" for place in places}
    if bundle is not None:
        given["policy"], spent = f"bundle={bundle}", [*spent, max(spent)]
    parts = ["outlay", "experiment", "plan", "--log", str(data.campaign.path), "--start", "START"]
    parts += ["--days", str(WEEK)]
    if all_users > users.users:
        parts += ["--users", str(all_users)]
    if campaign.log.cluster is not None:
        parts += ["--cluster", campaign.log.cluster]
    for (name, gives), cost in zip(given.items(), spent, strict=True):
        budget = rounded_up(SPARE * cost * per_arm)
        parts += ["--arm", f"{name},{gives},share={share:g},budget={budget:g}"]
    return shlex.join(parts)
