"""`outlay experiment plan`: an experiment.toml, and what its test can detect.

    result = plan_experiment({"experiment": {...}, "arm": [...]}, "campaign.toml", "experiment.toml")

Power comes from a past log: the totals of its users over as many days as all users are in the test, and over the days
before for CUPED.
"""

from __future__ import annotations

import datetime
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outlay.bundles.manifest import unseal
from outlay.core.actions import all_named, named
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError, nearest
from outlay.core.files import as_path, new_file
from outlay.core.shown import Shown
from outlay.experiments.design import Experiment, experiment_text
from outlay.experiments.log import OUTSIDE
from outlay.experiments.moments import Metric
from outlay.experiments.planning import PastLog, RampDay, cluster_notes, known_metrics, measure_past, plan_notes
from outlay.experiments.power import Asked, DesignEffect, Power, design_effect, guardrail_alpha, last_alpha, solve
from outlay.experiments.split import expected_users
from outlay.experiments.words import ExperimentNote

SAME = 1e-6  # actions that differ by less are one
NEAREST = 8  # actions that an error names
GUARDRAILS = ("cost", "redemption")


@dataclass(frozen=True, repr=False)
class PlanResult(Shown):
    """A plan.

    Attributes:
        path: experiment.toml.
        experiment: its content, sealed.
        users: how many may be in the test, at full coverage of shares that sum to 1.
        past: the past log's totals.
        seen_days: days on which all users are in the test: those after the ramp's last step.
        alpha: two-sided error that the last decision on one arm may still make.
        guardrail_alpha: the same for a guardrail's sequence on the last day.
        ramp: users by day.
        powers: per metric and arm, without CUPED and, if the log has days before, with it.
        notes: what to consider before starting.
        design: what drawing clusters costs in the verdict's metric; None if arms are drawn by user.
    """

    path: Path
    experiment: Experiment
    users: int
    past: PastLog
    seen_days: int
    alpha: float
    guardrail_alpha: float
    ramp: tuple[RampDay, ...]
    powers: tuple[Power, ...]
    notes: tuple[ExperimentNote, ...]
    design: DesignEffect | None = None

    def headline(self) -> str:
        """The test, and where its file is."""
        meta, arms = self.experiment.meta, [arm.name for arm in self.experiment.arms]
        return (
            f"{meta.name}, {meta.days} days from {meta.start}, {self.users:,} users in {', '.join(arms)}: {self.path}."
        )

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """What it can detect, and the users in the test by day."""
        return {"powers": self.powers, "ramp": self.ramp}

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        past = self.past
        return {
            "path": str(self.path),
            **self.experiment.model_dump(mode="json", by_alias=True),
            "users": self.users,
            "seen_days": self.seen_days,
            "log": {
                "days": past.log_days,
                "window_days": past.window,
                "before_days": past.before,
                "users": past.moments.users,
            },
            "alpha": self.alpha,
            "guardrail_alpha": self.guardrail_alpha,
            "users_by_day": [asdict(step) | {"date": str(step.date)} for step in self.ramp],
            "power": [asdict(power) for power in self.powers],
            "notes": [note.to_dict() for note in self.notes],
            **({} if self.design is None else {"design_effect": asdict(self.design)}),
        }


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
        lift: a relative effect of interest, e.g. 0.006.
        today: decides what is live; default: the date of this machine.
        threads: for DuckDB.

    Raises:
        OutlayError: if the design is impossible, a metric is unknown or constant, or a live test would change.
        BundleError: if an arm's bundle is missing or damaged.
        CampaignError, LogError: if the log cannot be read.
    """
    campaign = campaign if isinstance(campaign, Campaign) else Campaign.load(campaign)
    out, today = as_path(out, "out", "the path to write to"), today or datetime.date.today()
    _check_asked(users, lift)
    experiment = Experiment.parse(_completed(design, campaign, out))
    _check_names(experiment, campaign)
    metrics = _metrics(experiment, campaign)
    if out.exists() and (live := Experiment.load(out)).meta.start <= today:
        experiment.check_growth(live)
    meta, seen_days = experiment.meta, experiment.meta.days - experiment.last_growth
    past = measure_past(campaign, seen_days, eligible=meta.eligible, cluster=meta.cluster, threads=threads)
    experiment = _with_actions(experiment, campaign, past)
    users = past.moments.users if users is None else users
    ramp = _ramp(experiment, users)
    drawn = None if past.clusters is None else design_effect(metrics[0], past.moments, past.clusters)
    shares = [count / past.moments.users for count in ramp[-1].users]
    notes = plan_notes(experiment, campaign, metrics, past, ramp, today)
    notes += cluster_notes(experiment, campaign, drawn, shares)
    result = PlanResult(
        path=out,
        experiment=experiment,
        users=users,
        past=past,
        seen_days=seen_days,
        alpha=last_alpha(experiment),
        guardrail_alpha=guardrail_alpha(experiment),
        ramp=ramp,
        powers=_powers(experiment, metrics, past, ramp[-1].users, lift),
        notes=(*past.notes, *notes),
        design=drawn,
    )
    return replace(result, experiment=_written(experiment, out))


def _written(experiment: Experiment, out: Path) -> Experiment:
    """Write experiment.toml; as it is read from there."""
    with new_file(out) as temporary:
        temporary.write_text(experiment_text(experiment), encoding="utf-8")
        Experiment.load(temporary)  # assign must be able to read what plan writes
    return Experiment.load(out)


def _check_asked(users: int | None, lift: float | None) -> None:
    if lift is not None and not (-1 < lift < 1 and lift != 0):
        way_out = "Give a relative effect, e.g. 0.02 for 2%."
        raise OutlayError(f"is {lift:g}; must be between -1 and 1, and not 0.", where="lift", way_out=way_out)
    if users is not None and users < 1:
        way_out = "Give how many users may be in the test."
        raise OutlayError(f"is {users}; must be at least 1.", where="users", way_out=way_out)


def _completed(design: Mapping[str, Any], campaign: Campaign, out: Path) -> dict[str, Any]:
    """The design with its defaults, and with bundles relative to the file."""
    content = dict(design)
    meta = content.get("experiment")
    if isinstance(meta, Mapping):
        metric = meta.get("metric", campaign.reward_label)
        guardrails = [name for name in GUARDRAILS if name != metric]
        own = {"campaign": campaign.meta.name, "metric": metric, "guardrails": guardrails, "unit": campaign.meta.unit}
        ceilings = [budget.name for budget in campaign.budgets if budget.sign > 0]
        if metric in ceilings and metric != campaign.reward_label:
            own["better"] = "lower"
        content["experiment"] = {**own, **meta}
    if isinstance(content.get("arm"), Sequence):
        content["arm"] = [_pinned(arm, out) for arm in content["arm"]]
    return content


def _check_names(experiment: Experiment, campaign: Campaign) -> None:
    """Refuse names now that a server would refuse later, when the file is sealed, and a salt that is in use."""
    for arm in experiment.arms:
        if arm.name in OUTSIDE:
            found = "is a server's name for users outside the test (policy, and random for the random slice)."
            raise OutlayError(found, where=f"arm {arm.name!r}", way_out="Give this arm another name.")
    if experiment.meta.salt == campaign.train.salt:
        found = f"is {experiment.meta.salt!r}, which already draws the learn / select / certify split of the campaign."
        raise OutlayError(found, where="experiment.salt", way_out="Give another salt: each draw needs its own.")


def _metrics(experiment: Experiment, campaign: Campaign) -> list[Metric]:
    """The verdict's metric, then the guardrails."""
    metrics = [_metric(name, campaign) for name in (experiment.meta.metric, *experiment.meta.guardrails)]
    if metrics[0].denominator is not None:
        found = f"{metrics[0].name!r} is a ratio; a verdict is about a total per user."
        way_out = f"Take {campaign.reward_label!r}, and the ratio as a guardrail."
        raise OutlayError(found, where="experiment.metric", way_out=way_out)
    return metrics


def _ramp(experiment: Experiment, users: int) -> tuple[RampDay, ...]:
    return tuple(
        RampDay(
            step.day,
            experiment.date(step.day),
            step.coverage,
            tuple(expected_users(experiment, users, step.day)),
        )
        for step in experiment.ramp
    )


def _with_actions(experiment: Experiment, campaign: Campaign, past: PastLog) -> Experiment:
    """The test with the arms' actions as the campaign calls them. Raises OutlayError if there is no such action."""
    names, none = past.names, campaign.meta.none
    known = [*past.actions, *(campaign.log.actions or ()), *(() if none is None else (none,))]
    values = np.array([names.value(each) for each in known], np.float64)
    arms = []
    for arm in experiment.arms:
        value = None if arm.action is None else names.value(arm.action)
        far = np.abs(values - (np.nan if value is None else value))
        if arm.action is None or (far < SAME).any():
            arms.append(arm if value is None else arm.model_copy(update={"action": names.given(values[far.argmin()])}))
            continue
        near = difflib.get_close_matches(str(arm.action), names.labels, NEAREST, 0)
        shown = all_named(near or [names.given(each) for each in sorted(values[np.argsort(far)[:NEAREST]].tolist())])
        found, way_out = f"is {named(arm.action)}, which is not an action of the campaign.", "Give one of its actions"
        raise OutlayError(found, where=f"arm {arm.name!r}.action", way_out=f"{way_out}, e.g. {shown}.")
    return experiment.model_copy(update={"arms": tuple(arms)})


def _pinned(arm: Any, out: Path) -> Any:
    if not isinstance(arm, Mapping) or not isinstance(arm.get("bundle"), str):
        return arm
    folder = Path(arm["bundle"])
    relative = os.path.relpath(folder.absolute(), out.absolute().parent)
    return {**arm, "bundle": Path(relative).as_posix(), "bundle_id": unseal(folder).id}


def _metric(name: str, campaign: Campaign) -> Metric:
    known = known_metrics(campaign)
    if name not in known:
        raise OutlayError(
            f"the campaign has no metric {name!r}.",
            file=campaign.path,
            where="metric or guardrails",
            way_out=nearest(name, known),
        )
    return known[name]


def _powers(
    experiment: Experiment, metrics: Sequence[Metric], past: PastLog, users: Sequence[int], lift: float | None
) -> tuple[Power, ...]:
    """Of the verdict's metric and the guardrails that differ between users, for every arm, without and with CUPED."""
    alphas = [last_alpha(experiment), *(guardrail_alpha(experiment) for _ in metrics[1:])]
    return tuple(
        _power(past, metric, Asked(arm.name, (users[0], count), alpha, experiment.meta.power, lift), cuped=cuped)
        for metric, alpha in zip(metrics, alphas, strict=True)
        if metric is metrics[0] or not past.moments.is_constant(metric)
        for arm, count in zip(experiment.arms[1:], users[1:], strict=True)
        for cuped in (False, True)[: 2 if past.before else 1]
    )


def _power(past: PastLog, metric: Metric, asked: Asked, *, cuped: bool) -> Power:
    """The power; if arms are drawn by cluster, clusters of the past log's sizes hold the users."""
    if past.clusters is None:
        return solve(past.moments, metric, asked, cuped=cuped)
    size = past.moments.users / past.clusters.users
    control, treated = (round(count / size) for count in asked.users)
    found = solve(past.clusters, metric.per_user, replace(asked, users=(control, treated)), cuped=cuped)
    needed = None if found.lift_users is None else round(found.lift_users * size)
    return replace(found, users=sum(asked.users), lift_users=needed)
