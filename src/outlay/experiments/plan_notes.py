"""What to consider before a test starts: its money, its ramp, its arms, and what the past log does not say."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from outlay.core.campaign import Campaign
from outlay.experiments.by_cluster import DesignEffect
from outlay.experiments.design import EQUAL, Experiment
from outlay.experiments.lift import LEAST_CLUSTERS, MOST_SKEWED, skewness
from outlay.experiments.moments import Metric
from outlay.experiments.past import PastLog
from outlay.experiments.power import is_constant

FEW_CLUSTERS = 30  # per arm: with fewer, power planned with the normal quantile is too large
ENOUGH = 100  # users per arm: with fewer, means are not yet normal
FEW_DAYS = 7  # at full coverage: with fewer, weekdays do not count equally


@dataclass(frozen=True)
class RampDay:
    """Users in the test from a day on: `users` of each arm, in expectation, in the order of the arms."""

    day: int
    date: datetime.date
    coverage: float
    users: tuple[int, ...]


def plan_notes(
    experiment: Experiment, campaign: Campaign, metrics: Sequence[Metric], past: PastLog, ramp: Sequence[RampDay],
    today: datetime.date,
) -> list[str]:  # fmt: skip
    """The notes on a plan, a sentence or two each.

    Args:
        experiment: the planned test.
        campaign: it belongs to.
        metrics: the verdict's, then the guardrails.
        past: what the past log says.
        ramp: users by day.
        today: a test that started earlier is live.
    """
    full = ramp[-1].users
    return [
        *_about_the_start(experiment, today),
        *_about_arms(experiment),
        *_about_money(experiment, campaign, past, full),
        *_about_days(experiment, past, ramp),
        *_about_metrics(experiment, metrics, past, full),
    ]


def cluster_notes(
    experiment: Experiment, campaign: Campaign, drawn: DesignEffect | None, shares: Sequence[float]
) -> list[str]:
    """Notes about clusters.

    Args:
        experiment: the planned test.
        campaign: it belongs to.
        drawn: what drawing clusters costs; None if arms are drawn by user.
        shares: of the past log's users in each arm.
    """
    if drawn is None:
        if campaign.log.cluster is None:
            return []
        return [
            f"the campaign says that users share what happens to them ({campaign.log.cluster}), and arms are drawn by "
            "user: what an arm does may reach users of another arm. Draw arms by it: cluster."
        ]
    notes = [
        f"arms are drawn by {experiment.meta.cluster}: {drawn.clusters:,} clusters, of {drawn.size:,.3g} users for the "
        f"average user; {experiment.meta.metric} has an intra-cluster correlation of {drawn.correlation:.3g}, so a "
        f"test needs {drawn.effect:,.3g} times the users that it would if arms were drawn by user."
    ]
    least = min(round(share * drawn.clusters) for share in shares)
    if least < FEW_CLUSTERS:
        needed = "cannot be analyzed" if least < LEAST_CLUSTERS else "detects less than planned"
        notes.append(f"an arm has {least} clusters; with fewer than {FEW_CLUSTERS} a test {needed}, since quantiles "
                     f"are those of Student's t; {LEAST_CLUSTERS} are needed.")  # fmt: skip
    return notes


def _about_the_start(experiment: Experiment, today: datetime.date) -> list[str]:
    start = experiment.meta.start
    if start > today:
        return []
    when = "today" if start == today else f"on {start}, {(today - start).days} days ago"
    return [f"the test starts {when}: it counts as live, and plan can rewrite this file only with more coverage."]


def _about_arms(experiment: Experiment) -> list[str]:
    if all(arm.kind == "holdout" for arm in experiment.arms):
        return ["no arm gives anything: such a test (an A/A test) can only find faults in the assignment."]
    if experiment.control.kind == "holdout":
        return [f"the control {experiment.control.name!r} gives nothing: lifts are relative to no incentive at all, "
                "not to today's policy."]  # fmt: skip
    return []


def _about_money(experiment: Experiment, campaign: Campaign, past: PastLog, full: Sequence[int]) -> list[str]:
    notes: list[str] = []
    per_user = {arm.name: arm.budget / arm.share for arm in experiment.arms if arm.budget is not None}
    if max(per_user.values(), default=0) > min(per_user.values(), default=0) * (1 + EQUAL):
        most, least = (pick(per_user, key=lambda name: per_user[name]) for pick in (max, min))
        notes.append(f"the arm {most!r} has {per_user[most] / per_user[least]:.3g} times the budget per user of "
                     f"{least!r}: the lift will be that of the money as well as the policy.")  # fmt: skip
    spent = past.moments.mean[past.moments.place(f"cost{campaign.money}")] / past.days  # per user and day
    short = []
    for arm, users in zip(experiment.arms, full, strict=True):
        needed = spent * _user_days(experiment, users)
        if arm.budget is not None and arm.budget < needed * (1 - EQUAL):
            enough = _last_day(experiment, arm.budget / (spent * users))
            short.append(f"{arm.name!r} has {arm.budget:,.10g} of {needed:,.0f}, gone after day {enough}")
    if short:
        notes.append(f"as many users of the log spent more {campaign.meta.unit} over as many days than the budget of "
                     f"{'; '.join(short)}. Once an arm's money is gone, the rest of the test says nothing about "
                     "it.")  # fmt: skip
    return notes


def _about_days(experiment: Experiment, past: PastLog, ramp: Sequence[RampDay]) -> list[str]:
    notes: list[str] = []
    meta, growth = experiment.meta, experiment.last_growth
    if growth:
        notes.append(f"the ramp ends on day {growth}: power counts only the {past.days} days after it, on which all "
                     "users are in the test.")  # fmt: skip
    if meta.days - growth < FEW_DAYS:
        notes.append(f"all users are in the test for {meta.days - growth} of its {meta.days} days, less than a week. "
                     f"End the ramp on day {meta.days - FEW_DAYS} or before.")  # fmt: skip
    early = [day for day in meta.decisions if day <= growth]
    if early:
        part = experiment.coverage(early[-1] - 1) / experiment.coverage(growth)
        notes.append(f"the decision after day {early[-1]} comes before the ramp's end, on {part:.0%} of the users.")
    if past.window < past.days:
        notes.append(f"{past.days} days are taken as {past.days / past.window:.3g} times the {past.window} days that "
                     "the log has, so the real power is at least the power shown.")  # fmt: skip
        if past.log_days == 1:
            notes.append("the log has a single day. If what it records happens once (a letter, a year) and not every "
                         "day, the means and the money shown are too large by that factor.")  # fmt: skip
    if not past.before:
        notes.append("the log has no days before those that were measured, so it is not known what CUPED would gain.")
    if min(ramp[-1].users) < ENOUGH:
        notes.append(f"an arm has {min(ramp[-1].users)} users; with fewer than {ENOUGH}, the power is a rough guess.")
    return notes


def _about_metrics(experiment: Experiment, metrics: Sequence[Metric], past: PastLog, full: Sequence[int]) -> list[str]:
    notes = [
        f"the guardrail {metric.name!r} is the same for all users of the log, so its power is not known."
        for metric in metrics[1:]
        if is_constant(past.moments, metric)
    ]
    for arm, users in zip(experiment.arms[1:], full[1:], strict=True):
        sizes = full[0], users
        skewed = [m.name for m in metrics if min(sizes) > 0 and skewness(m, [past.moments], sizes) > MOST_SKEWED]
        if skewed:
            notes.append(f"a few users account for most of {' and '.join(skewed)}, and the control and the arm "
                         f"{arm.name!r} have {sizes[0]:,} and {users:,} users: the smaller arm's own variance will not "
                         "be trusted, so the power is less than shown. Arms of equal size avoid this.")  # fmt: skip
    return notes


def _user_days(experiment: Experiment, full: int) -> float:
    """Days in the test, summed over the users of an arm that has `full` users at the end."""
    coverage = [experiment.coverage(day) for day in range(experiment.meta.days)]
    return full * sum(coverage) / coverage[-1]


def _last_day(experiment: Experiment, days: float) -> int:
    """The last day that is covered by money for `days` days of all users of an arm; 0 if not even the first is."""
    coverage = [experiment.coverage(day) for day in range(experiment.meta.days)]
    used = 0.0
    for day, now in enumerate(coverage):
        used += now / coverage[-1]
        if used > days:
            return day
    return experiment.meta.days
