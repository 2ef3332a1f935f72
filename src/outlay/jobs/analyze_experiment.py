"""`outlay experiment analyze`: the results of an A/B test, from any log with arms.

    result = analyze_experiment("closed/*.parquet", "experiment.toml")

A row per user and day (as `outlay export-log` writes it), or a row per user. Rows before the start are CUPED's
covariates; the look is after the last whole week that the log has, so that every weekday counts equally.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outlay.core.campaign import Campaign
from outlay.core.errors import LogError, OutlayError
from outlay.core.progress import Progress, telling
from outlay.core.wording import singular
from outlay.experiments.analyze import analyze, promise_notes, promised_files, read_promises
from outlay.experiments.checks import check_assignment, late_outcomes, log_notes
from outlay.experiments.design import WEEK, Experiment, RampStep
from outlay.experiments.lift import needed_pairs
from outlay.experiments.log import (
    DEFAULTS,
    Roles,
    list_notes,
    read_assigned,
    refuse_ineligible,
    refuse_several_rows,
)
from outlay.experiments.moments import Metric
from outlay.experiments.results import Analysis, ArmState, LateOutcomes
from outlay.experiments.sums import DailySums, cluster_sums, read_sums
from outlay.experiments.words import ExperimentNote, NoteKind
from outlay.logs.source import Resources, open_source

ROUNDING = 1e-9  # of a budget
CAMPAIGN = "campaign.toml"  # in the folder that outlay export-log wrote
MEMORY = "1GB"  # of DuckDB: ten million rows need no more, and larger logs spill to disk


def analyze_experiment(
    log: str | Path,
    experiment: Experiment | str | Path,
    *,
    day: int | None = None,
    columns: Mapping[str, str] | None = None,
    assigned: str | Path | None = None,
    promised: Mapping[str, str | Path] | str | Path | None = None,
    campaign: Campaign | str | Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Analyze a test.

    Args:
        log: Parquet or CSV (.gz), a glob, a folder of Parquet files, or what `outlay export-log` wrote, with a row per
            user and day, or a row per user.
        experiment: the test, or its file.
        day: look after so many days; default: the last whole week that the log has.
        columns: role or metric → column or SQL expression, for `user`, `day`, `arm`, `segment`, `cost`, `redemption`,
            `eligible` and the metrics of the test; default: the column of that name, or one of `DEFAULTS` in
            `experiments/log.py`.
        assigned: what `outlay experiment assign` wrote for the last day: `user`, `arm` and `day` (of
            assignment; 0 if there is none). Then all of them count, with or without rows, and the log needs no arms.
        promised: arm → what `outlay evaluate --json` printed, or RUN/estimates.json; a file alone is for the only arm
            that gets a verdict.
        campaign: the log's campaign file, whose `[log.delays]` and `as_of` say which days are ripe, and whose
            `[labels]` what things are called; default: that of the folder that `outlay export-log` wrote, if `log` is
            one.
        threads: for DuckDB.
        progress: called with the fraction done and a description of the current step.

    Raises:
        OutlayError: if the look is after the planned end or on days that are not ripe, a file cannot be read, or a
            promise is for no arm.
        LogError: if a column is missing, the log does not assign each user to one arm (`sums.py`), or a user was not
            eligible.
    """
    report = telling(progress)
    experiment = experiment if isinstance(experiment, Experiment) else Experiment.load(experiment)
    _check_day(day, experiment)
    files = promised_files(promised, experiment)
    of_log = _campaign(Path(log), campaign)
    later = of_log is not None and (of_log.log.delays or of_log.log.as_of is not None)
    report(0.1, "reading the log")
    read = _opened(
        Path(log),
        experiment,
        columns or {},
        None if assigned is None else Path(assigned),
        of_log if later else None,
        threads,
    )
    report(0.7, "comparing the arms")
    look = _last_whole_week(read.sums, _files(Path(log))) if day is None else day
    if read.late is not None:
        read.late.refuse(look)
    analysis = _compared(read, experiment, look, files, _names(of_log, experiment), chosen=day is not None)
    segments = {} if of_log is None else of_log.labels.segments
    return replace(analysis, segment_names={name: label.label for name, label in segments.items()})


def _names(campaign: Campaign | None, experiment: Experiment) -> dict[str, str]:
    """{metric: what sentences call it}, by the `[labels]` of the log's campaign."""
    if campaign is None:
        return {}
    metric, money = experiment.meta.metric, campaign.told("budgets", campaign.budgets[campaign.money].name)
    names = {budget.name: campaign.told("budgets", budget.name) for budget in campaign.budgets}
    if money != campaign.budgets[campaign.money].name:
        names["cost"] = money
    if metric == campaign.reward_label:
        names[metric] = campaign.told("reward")
    if "cost" in names or metric in names:
        names[f"cost_per_{metric}"] = f"{names.get('cost', 'cost')} per {singular(names.get(metric, metric))}"
    return {name: label for name, label in names.items() if name != label}


def _compared(
    read: _Read,
    experiment: Experiment,
    look: int,
    files: Mapping[str, Path],
    names: Mapping[str, str],
    *,
    chosen: bool,
) -> Analysis:
    """The analysis of what was read, after so many days; `chosen`: the caller gave them."""
    money = "cost" if "cost" in read.sums.names else None
    analysis = analyze(read.sums, experiment, read.metrics, look, money=money, late=read.late, names=names)
    promises = read_promises(files, analysis, money)
    notes = [
        *_look_notes(read, experiment, look, chosen=chosen),
        *log_notes(read.sums, experiment, look, money),
        *read.notes,
        *_overspent(analysis.arms),
        *_unseen(read, experiment, look),
        *promise_notes(files, promises, read.sums, experiment),
    ]
    return replace(analysis, promised=promises, notes=tuple(notes))


@dataclass(frozen=True)
class _Read:
    """What was read of a log: its sums, the metrics that they are of, whether it says who was eligible, and notes."""

    sums: DailySums
    metrics: Sequence[Metric]
    eligible: bool
    late: LateOutcomes | None
    notes: Sequence[ExperimentNote]


def _check_day(day: int | None, experiment: Experiment) -> None:
    if day is not None and day < 1:
        raise OutlayError(f"is {day}; must be at least 1.", where="day", way_out="Days of a look are counted from 1.")
    if day is not None and day > experiment.meta.days:
        raise OutlayError(
            f"is {day}, but the test was planned for {experiment.meta.days} days; a look after its end would be one "
            "too many.",
            where="day",
            way_out=f"Look after day {experiment.meta.days} at the latest.",
        )


def _opened(
    log: Path,
    experiment: Experiment,
    columns: Mapping[str, str],
    assigned: Path | None,
    delayed: Campaign | None,
    threads: int | None,
) -> _Read:
    """What is read of the log, whose files an error names."""
    path = _files(log)
    names = (columns["user"],) if "user" in columns else DEFAULTS["user"]
    resources = Resources(threads, MEMORY, files=() if assigned is None else (assigned,))
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_source(path, Path(folder), users=names, resources=resources) as source,
    ):
        roles = Roles(source, experiment, columns, assigned is not None, _is_export(log))
        try:
            return _read(roles, assigned, delayed)
        except LogError as error:
            raise LogError(error.found, file=error.file or path, where=error.where, way_out=error.way_out) from None


def _read(roles: Roles, assigned: Path | None, delayed: Campaign | None) -> _Read:
    """Read the log once, and check it.

    Args:
        roles: of the log's columns.
        assigned: the list of assigned users.
        delayed: the campaign, if outcomes can come later.

    Raises:
        LogError: if a column is missing, or a row is wrong.
    """
    source, experiment, metrics = roles.source, roles.experiment, roles.metrics()
    columns, eligible = roles.columns(metrics), roles.eligible()
    refuse_several_rows(source, columns)
    daily = columns.day is not None
    given = None if assigned is None else read_assigned(source, assigned, daily=daily)
    late = None if delayed is None else late_outcomes(source.run, columns, experiment, delayed)
    ripe = None if late is None else late.ripe
    pairs = needed_pairs(metrics)
    sums = read_sums(source.run, "log_kept", columns, experiment, pairs, assigned=given, ripe=ripe)
    of_list = list_notes(source, given)
    if eligible is not None:
        refuse_ineligible(source, columns, eligible, experiment.meta.days, given)
    if experiment.meta.cluster is not None:
        metrics = [metric.per_user for metric in metrics]
        sums = cluster_sums(source.run, columns, experiment, needed_pairs(metrics), sums, given)
    notes = [
        *check_assignment(source.run, experiment if daily else _at_once(experiment)),
        *of_list,
        *(NoteKind.NO_REDEMPTION(column=name) for name in roles.left_out()),
        *([] if late is None else late.notes()),
        *([] if delayed is None or delayed.log.events is None else [NoteKind.EVENTS()]),
    ]
    return _Read(sums, metrics, eligible is not None, late, notes)


def _files(log: Path) -> Path:
    """A folder's Parquet files; of an export, only its log, which has a row per user and day."""
    if not log.is_dir():
        return log
    return (log / "log" if _is_export(log) else log) / "**" / "*.parquet"


def _is_export(log: Path) -> bool:
    """Whether it is the folder that `outlay export-log` wrote."""
    return (log / "log").is_dir()


def _campaign(log: Path, campaign: Campaign | str | Path | None) -> Campaign | None:
    """The campaign of the log, as given or as an export has it."""
    if campaign is None and _is_export(log) and (log / CAMPAIGN).is_file():
        campaign = log / CAMPAIGN
    return campaign if campaign is None or isinstance(campaign, Campaign) else Campaign.load(campaign)


def _unseen(read: _Read, experiment: Experiment, look: int) -> list[ExperimentNote]:
    """What the analysis does without."""
    notes = []
    if read.sums.people is not None:
        notes.append(NoteKind.BY_CLUSTER(clusters=sum(part.users for part in read.sums.until(look))))
    if experiment.meta.eligible is not None and not read.eligible:
        notes.append(NoteKind.ELIGIBLE_UNKNOWN())
    return notes


def _last_whole_week(sums: DailySums, file: Path) -> int:
    """The end of the last whole week that the log has, or of the log if it is shorter than a week.

    Raises:
        LogError: if a row is a whole user.
    """
    if not sums.daily:
        found = "is missing, and each row is a whole user: how many days of the test does it cover?"
        way_out = f"Say so: --day {len(sums.rows)} if the test is over."
        raise LogError(found, file=file, where="day", way_out=way_out)
    return sums.observed // WEEK * WEEK or sums.observed


def _at_once(experiment: Experiment) -> Experiment:
    """The test as if the ramp had ended on day 0: if a row is a user, nobody's first day is known."""
    return experiment.model_copy(update={"ramp": (RampStep(day=0, coverage=experiment.ramp[-1].coverage),)})


def _look_notes(read: _Read, experiment: Experiment, look: int, *, chosen: bool) -> list[ExperimentNote]:
    """What to know about the day of the look; `chosen`: the caller gave it."""
    sums, days, notes = read.sums, experiment.meta.days, []
    if sums.beyond:
        notes.append(NoteKind.BEYOND(rows=sums.beyond, days=days))
    if sums.observed > look and not chosen:
        some = read.late is not None and read.late.ripe < days
        later = NoteKind.LATER_RIPE_DAYS if some else NoteKind.LATER_DAYS
        notes.append(later(observed=sums.observed, day=look))
    if look % WEEK:
        notes.append(NoteKind.BROKEN_WEEK(day=look))
    if not sums.daily:
        notes.append(NoteKind.WHOLE_USERS())
    return notes


def _overspent(arms: Sequence[ArmState]) -> list[ExperimentNote]:
    return [
        NoteKind.OVERSPENT(arm=arm.name, spent=arm.spent, budget=arm.budget)
        for arm in arms
        if arm.spent is not None and arm.budget is not None and arm.spent > arm.budget * (1 + ROUNDING)
    ]
