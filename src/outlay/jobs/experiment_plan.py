"""`outlay experiment plan`: an experiment.toml, and what the test in it can find.

    result = plan_experiment({"experiment": {...}, "arm": [...]}, "campaign.toml", "experiment.toml")

Power comes from a past log: the totals of its users over as many days as every user of the test is seen, and over the
days before for CUPED.
"""

from __future__ import annotations

import datetime
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outlay.bundles.manifest import unseal
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError
from outlay.core.files import new_file
from outlay.experiments.design import Experiment
from outlay.experiments.moments import Metric
from outlay.experiments.power import Power, is_constant, last_alpha, solve
from outlay.experiments.split import expected_users
from outlay.experiments.text import experiment_text
from outlay.jobs.experiment_past import Past, known_metrics, measure_past

GUARDRAILS = ("cost", "redemption")
EQUAL = 0.01  # budgets per user that differ by less count as equal
ENOUGH = 100  # users per arm: below it, means are not yet normal


@dataclass(frozen=True)
class RampDay:
    """Users in the test from a day on: `users` of each arm, in expectation, in the order of the arms."""

    day: int
    date: datetime.date
    coverage: float
    users: tuple[int, ...]


@dataclass(frozen=True)
class PlanResult:
    """What was planned.

    Attributes:
        path: experiment.toml.
        experiment: what is in it, sealed.
        users: who may be in the test, at full coverage of shares that sum to 1.
        past: what the past log says.
        seen_days: days that every user is seen: those after the ramp's last step.
        alpha: two-sided error that the last decision on one arm may still make.
        ramp: users by day.
        powers: per metric and arm, without CUPED and, where the log has days before, with it.
        notes: what to think about before starting.
    """

    path: Path
    experiment: Experiment
    users: int
    past: Past
    seen_days: int
    alpha: float
    ramp: tuple[RampDay, ...]
    powers: tuple[Power, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "path": str(self.path), **self.experiment.model_dump(mode="json", by_alias=True),
            "users": self.users, "seen_days": self.seen_days,
            "log": {"days": self.past.log_days, "window_days": self.past.window, "before_days": self.past.before,
                    "users": self.past.moments.users},
            "alpha": self.alpha, "users_by_day": [asdict(step) | {"date": str(step.date)} for step in self.ramp],
            "power": [asdict(power) for power in self.powers], "notes": list(self.notes),
        }  # fmt: skip


def plan_experiment(
    design: Mapping[str, Any],
    campaign: Campaign | str | Path,
    out: str | Path,
    *,
    users: int | None = None,
    lift: float | None = None,
    today: datetime.date | None = None,
    threads: int | None = None,
) -> PlanResult:
    """Plan a test and write its file.

    Args:
        design: as in experiment.toml. `campaign`, `metric` and `guardrails` have defaults, `seal` is not needed;
            folders of bundles are relative to the working directory.
        campaign: with a past log of the users to be tested.
        out: experiment.toml. One that is live is replaced only if nothing but its coverage grows.
        users: who may be in the test; default: the users in the last days of the log.
        lift: a relative effect to ask about, e.g. 0.006.
        today: decides what is live; default: the date of this machine.
        threads: of DuckDB.

    Raises:
        OutlayError: if the design is impossible, a metric is unknown or constant, or a live test would change.
        BundleError: if an arm's bundle is missing or damaged.
        CampaignError, LogError: if the log cannot be read.
    """
    campaign = campaign if isinstance(campaign, Campaign) else Campaign.load(campaign)
    out = Path(out)
    if lift is not None and not (-1 < lift < float("inf") and lift != 0):
        raise OutlayError(f"is {lift:g}.", where="lift", way_out="Give a relative effect, e.g. 0.01 for one per cent.")
    if users is not None and users < 1:
        raise OutlayError(f"is {users}.", where="users", way_out="Give how many users may be in the test.")
    experiment = Experiment.parse(_completed(design, campaign, out))
    if experiment.meta.salt == campaign.train.salt:
        raise OutlayError(
            f"is {experiment.meta.salt!r}, which already draws the learn / select / certify split of the campaign.",
            where="experiment.salt", way_out="Give another salt: one salt draws one thing.",
        )  # fmt: skip
    metrics = [_metric(name, campaign) for name in (experiment.meta.metric, *experiment.meta.guardrails)]
    if metrics[0].denominator is not None:
        raise OutlayError(
            f"{metrics[0].name!r} is a ratio; a verdict is about a total per user.", where="experiment.metric",
            way_out=f"Take {campaign.reward_label!r}, and the ratio as a guardrail.",
        )  # fmt: skip
    if out.exists() and (live := Experiment.load(out)).meta.start <= (today or datetime.date.today()):
        experiment.check_growth(live)
    seen_days = experiment.meta.days - experiment.last_growth
    past = measure_past(campaign, seen_days, eligible=experiment.meta.eligible, threads=threads)
    users = past.moments.users if users is None else users
    alpha = last_alpha(experiment)
    ramp = tuple(
        RampDay(step.day, experiment.meta.start + datetime.timedelta(days=step.day), step.coverage,
                tuple(expected_users(experiment, users, step.day)))
        for step in experiment.ramp
    )  # fmt: skip
    notes = _notes(experiment, campaign, past, ramp)
    for metric in metrics[1:]:
        if is_constant(past.moments, metric):
            notes.append(f"the guardrail {metric.name!r} is the same for all users of the log: its power is not known.")
    metrics[1:] = [metric for metric in metrics[1:] if not is_constant(past.moments, metric)]
    powers = _powers(experiment, metrics, past, ramp[-1].users, alpha, lift)
    with new_file(out) as temporary:
        temporary.write_text(experiment_text(experiment), encoding="utf-8")
        Experiment.load(temporary)  # what plan writes, assign can read
    return PlanResult(out, Experiment.load(out), users, past, seen_days, alpha, ramp, powers, tuple(notes))


def _completed(design: Mapping[str, Any], campaign: Campaign, out: Path) -> dict[str, Any]:
    """The design with its defaults, and bundles as seen from the file."""
    content = dict(design)
    meta = content.get("experiment")
    if isinstance(meta, Mapping):
        metric = meta.get("metric", campaign.reward_label)
        guardrails = [name for name in GUARDRAILS if name != metric]
        content["experiment"] = {"campaign": campaign.meta.name, "metric": metric, "guardrails": guardrails, **meta}
    if isinstance(content.get("arm"), Sequence):
        content["arm"] = [_pinned(arm, out) for arm in content["arm"]]
    return content


def _pinned(arm: Any, out: Path) -> Any:
    if not isinstance(arm, Mapping) or not isinstance(arm.get("bundle"), str):
        return arm
    folder = Path(arm["bundle"])
    relative = os.path.relpath(folder.absolute(), out.absolute().parent)
    return {**arm, "bundle": Path(relative).as_posix(), "bundle_id": unseal(folder)["id"]}


def _metric(name: str, campaign: Campaign) -> Metric:
    known = known_metrics(campaign)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        raise OutlayError(f"the campaign has no metric {name!r}.", file=campaign.path, where="metric or guardrails",
                          way_out=f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}.")  # fmt: skip
    return known[name]


def _powers(
    experiment: Experiment, metrics: Sequence[Metric], past: Past, users: Sequence[int], alpha: float,
    lift: float | None,
) -> tuple[Power, ...]:  # fmt: skip
    return tuple(
        solve(past.moments, metric, arm=arm.name, users=(users[0], count), alpha=alpha, power=experiment.meta.power,
              cuped=cuped, lift=lift)
        for metric in metrics
        for arm, count in zip(experiment.arms[1:], users[1:], strict=True)
        for cuped in (False, True)[: 2 if past.before else 1]
    )  # fmt: skip


def _notes(experiment: Experiment, campaign: Campaign, past: Past, ramp: Sequence[RampDay]) -> list[str]:
    notes: list[str] = []
    unit, full = campaign.meta.unit, ramp[-1].users
    per_user = {arm.name: arm.budget / arm.share for arm in experiment.arms if arm.budget is not None}
    if max(per_user.values(), default=0) > min(per_user.values(), default=0) * (1 + EQUAL):
        most, least = (pick(per_user, key=lambda name: per_user[name]) for pick in (max, min))
        factor = f"{per_user[most] / per_user[least]:.3g} times" if per_user[least] else "more than"
        notes.append(f"the arm {most!r} has {factor} the budget per user of {least!r}: the lift will show the money as "
                     "well as the policy.")  # fmt: skip
    spent = past.moments.mean[past.moments.place(f"cost{campaign.money}")] / past.days  # per user and day
    for i, arm in enumerate(experiment.arms):
        needed = spent * _user_days(experiment, full[i])
        if arm.budget is not None and arm.budget < needed * (1 - EQUAL):
            notes.append(f"the arm {arm.name!r} has a budget of {arm.budget:,.10g} {unit}; as many users of the log "
                         f"spent {needed:,.0f} in as many days.")  # fmt: skip
    if experiment.last_growth:
        notes.append(f"the ramp ends on day {experiment.last_growth}: power counts the {past.days} days after it, "
                     "which every user is seen.")  # fmt: skip
    if past.window < past.days:
        notes.append(f"{past.days} days are taken as {past.days / past.window:.3g} times the {past.window} that the "
                     "log has, so the real power is at least the one shown.")  # fmt: skip
    if not past.before:
        notes.append("the log has no days before those that were measured, so what CUPED would gain is not known.")
    if min(full) < ENOUGH:
        notes.append(f"an arm has {min(full)} users; below {ENOUGH} the power is a rough guess.")
    return notes


def _user_days(experiment: Experiment, full: int) -> float:
    """Days in the test, summed over the users of an arm that has `full` users in the end."""
    coverage = [experiment.coverage(day) for day in range(experiment.meta.days)]
    return full * sum(coverage) / coverage[-1]
