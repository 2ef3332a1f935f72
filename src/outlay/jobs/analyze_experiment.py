"""`outlay experiment analyze`: the results of an A/B test, from any log with arms.

    result = analyze_experiment("closed/*.parquet", "experiment.toml")

A row per user and day (as `outlay export-log` writes it), or a row per user. Rows before the start are CUPED's
covariates; the look is after the last whole week that the log has, so that every weekday counts equally.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from outlay.core.campaign import Campaign
from outlay.core.errors import LogError, OutlayError
from outlay.core.progress import Progress, silent
from outlay.experiments.analyze import analyze
from outlay.experiments.by_cluster import cluster_sums, per_user
from outlay.experiments.checks import check_assignment, log_notes
from outlay.experiments.columns import DEFAULTS, Roles
from outlay.experiments.design import WEEK, Experiment, RampStep
from outlay.experiments.late import LateOutcomes, late_outcomes
from outlay.experiments.lift import needed_pairs
from outlay.experiments.promises import promise_notes, promised_files, read_promises
from outlay.experiments.results import Analysis, ArmState
from outlay.experiments.rows import list_notes, read_assigned, refuse_ineligible, refuse_several_rows
from outlay.experiments.sums import DailySums, read_sums
from outlay.experiments.words import quoted
from outlay.logs.source import open_source

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
            `experiments/columns.py`.
        assigned: what `outlay experiment assign` wrote for the last day: `user`, `arm` and `day` (of
            assignment; 0 if there is none). Then all of them count, with or without rows, and the log needs no arms.
        promised: arm → what `outlay evaluate --json` printed, or RUN/estimates.json; a file alone is for the only arm
            that gets a verdict.
        campaign: the log's campaign file, whose `[log.delays]` and `as_of` say which days are ripe; default: that of
            the folder that `outlay export-log` wrote, if `log` is one.
        threads: for DuckDB.
        progress: called with the fraction done and a description of the current step.

    Raises:
        OutlayError: if the look is after the planned end or on days that are not ripe, a file cannot be read, or a
            promise is for no arm.
        LogError: if a column is missing, the log does not assign each user to one arm (`sums.py`), or a user was not
            eligible.
    """
    report = progress or silent
    experiment = experiment if isinstance(experiment, Experiment) else Experiment.load(experiment)
    if day is not None and day < 1:
        raise OutlayError(f"is {day}; must be at least 1.", where="day", way_out="Days of a look are counted from 1.")
    if day is not None and day > experiment.meta.days:
        raise OutlayError(
            f"is {day}, but the test was planned for {experiment.meta.days} days; a look after its end would be one "
            "too many.", where="day", way_out=f"Look after day {experiment.meta.days} at the latest.",
        )  # fmt: skip
    files = promised_files(promised, experiment)
    path, delayed = _files(Path(log)), _delayed(Path(log), campaign)
    names = (columns["user"],) if columns and "user" in columns else DEFAULTS["user"]
    readable = () if assigned is None else (assigned,)
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_source(
            path, Path(folder), threads=threads, memory=MEMORY, users=names, readable=readable
        ) as source,
    ):  # fmt: skip
        report(0.1, "reading the log")
        roles = Roles(source, experiment, columns or {}, assigned is not None, _is_export(Path(log)))
        metrics = roles.metrics()
        log_columns, eligible = roles.columns(metrics), roles.eligible()
        refuse_several_rows(source, log_columns)
        daily = log_columns.day is not None
        given = None if assigned is None else read_assigned(source, Path(assigned), daily=daily)
        try:
            late = None if delayed is None else late_outcomes(source.run, log_columns, experiment, delayed)
            sums = read_sums(source.run, "log_kept", log_columns, experiment, needed_pairs(metrics), assigned=given,
                             ripe=None if late is None else late.ripe)  # fmt: skip
            notes = list_notes(source, given)
            if eligible is not None:
                refuse_ineligible(source, log_columns, eligible, experiment.meta.days, given)
            if experiment.meta.cluster is not None:
                metrics = [per_user(metric) for metric in metrics]
                pairs = needed_pairs(metrics)
                sums = cluster_sums(source.run, log_columns, experiment, pairs, sums, given)
            notes = check_assignment(source.run, experiment if daily else _at_once(experiment)) + notes
        except LogError as error:
            raise LogError(error.found, file=error.file or path, where=error.where, way_out=error.way_out) from None
        notes += [
            f"{name} is not shown: a row per user does not say on how many days money was paid. Give the days: "
            f"--column {name}=NAME."
            for name in roles.left_out()
        ]
    if day is None and not sums.daily:
        raise LogError("is missing, and each row is a whole user: how many days of the test does it cover?", file=path,
                       where="day", way_out=f"Say so: --day {experiment.meta.days} if the test is over.")  # fmt: skip
    report(0.7, "comparing the arms")
    look = day or _last_whole_week(sums)
    if late is not None:
        late.refuse(look)
        notes += [*late.notes(), *_event_notes(delayed)]
    money = "cost" if "cost" in sums.names else None
    analysis = analyze(sums, experiment, metrics, look, money=money, late=late)
    notes = [
        *_look_notes(sums, experiment, look, late, chosen=day is not None),
        *log_notes(sums, experiment, look, money),
        *notes,
        *_overspent(analysis.arms),
    ]
    if sums.people is not None:
        parts = sums.until(look)
        notes.append(
            f"Arms were drawn by cluster: errors are those of {sum(part.users for part in parts):,} clusters. "
            "Segments, users with a row and the first week are not compared."
        )
    if experiment.meta.eligible is not None and eligible is None:
        notes.append("The log lacks the columns of the test's condition, so it is not checked who was eligible.")
    promises = read_promises(files, analysis, money)
    notes += promise_notes(files, promises, sums, experiment)
    return replace(analysis, promised=promises, notes=tuple(notes))


def _files(log: Path) -> Path:
    """A folder's Parquet files; of an export, only its log, which has a row per user and day."""
    if not log.is_dir():
        return log
    return (log / "log" if _is_export(log) else log) / "**" / "*.parquet"


def _is_export(log: Path) -> bool:
    """Whether it is the folder that `outlay export-log` wrote."""
    return (log / "log").is_dir()


def _delayed(log: Path, campaign: Campaign | str | Path | None) -> Campaign | None:
    """The campaign of the log, if it says that outcomes can come later, or until when they were collected."""
    if campaign is None and _is_export(log) and (log / CAMPAIGN).is_file():
        campaign = log / CAMPAIGN
    if campaign is None:
        return None
    found = campaign if isinstance(campaign, Campaign) else Campaign.load(campaign)
    return found if found.log.delays or found.log.as_of is not None else None


def _event_notes(campaign: Campaign | None) -> list[str]:
    if campaign is None or campaign.log.events is None:
        return []
    return ["The campaign has later outcomes in a table of their own (log.events), which an analysis does not read: "
            "the columns of the log have to include them."]  # fmt: skip


def _last_whole_week(sums: DailySums) -> int:
    """The end of the last whole week that the log has, or of the log if it is shorter than a week."""
    return sums.observed // WEEK * WEEK or sums.observed


def _at_once(experiment: Experiment) -> Experiment:
    """The test as if the ramp had ended on day 0: if a row is a user, nobody's first day is known."""
    return experiment.model_copy(update={"ramp": (RampStep(day=0, coverage=experiment.ramp[-1].coverage),)})


def _look_notes(
    sums: DailySums, experiment: Experiment, look: int, late: LateOutcomes | None, *, chosen: bool
) -> list[str]:
    """What to know about the day of the look; `chosen`: the caller gave it."""
    notes = []
    if sums.beyond:
        notes.append(
            f"{sums.beyond:,} rows after the planned end (day {experiment.meta.days}) are left out: to go on until "
            "something shows would not be a test."
        )
    if sums.observed > look and not chosen:
        ripe = " ripe" if late is not None and late.ripe < experiment.meta.days else ""
        notes.append(f"The log has {sums.observed}{ripe} days; the look is after day {look}, the last whole week.")
    if look % WEEK:
        notes.append(f"{look} days are not whole weeks, so weekdays do not count equally.")
    if not sums.daily:
        notes.append(
            "Each row is a whole user, so there is no course by day, and of earlier decisions only the days are known."
        )
    return notes


def _overspent(arms: list[ArmState]) -> list[str]:
    return [
        f"The arm {quoted(arm.name)} spent {arm.spent:,.10g}, more than its budget of {arm.budget:,.10g}; nothing "
        "stopped it there."
        for arm in arms
        if arm.spent is not None and arm.budget is not None and arm.spent > arm.budget * (1 + ROUNDING)
    ]
