"""`outlay experiment analyze`: what a test has shown, from any log with arms.

    result = analyze_experiment("closed/*.parquet", "experiment.toml")

A row per user and day (as `outlay export-log` writes it), or a row per user. Rows before the start are CUPED's
covariates; the look is after the last whole week that the log has, so that every weekday counts alike.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outlay.core.errors import LogError, OutlayError
from outlay.experiments import doubts
from outlay.experiments.agreement import check_agreement
from outlay.experiments.analyse import analyse
from outlay.experiments.columns import DEFAULTS, Roles
from outlay.experiments.design import WEEK, Experiment, RampStep
from outlay.experiments.findings import Findings
from outlay.experiments.lift import needed_pairs
from outlay.experiments.promise import Promise
from outlay.experiments.promised import kept, promise_notes, promised_files
from outlay.experiments.sums import DailySums, read_sums
from outlay.experiments.users import listed, read_assigned, refuse_ineligible, refuse_rows_without_days
from outlay.experiments.words import verdict
from outlay.logs.source import open_source

Report = Callable[[float, str], None]

ROUNDING = 1e-9  # of a budget
MEMORY = "1GB"  # of DuckDB: ten million rows need no more, and larger logs spill to disk


@dataclass(frozen=True)
class AnalyzeResult:
    """A test's analysis.

    Attributes:
        experiment: the design.
        findings: the numbers.
        observed: days of the test that the log has.
        promised: arm → what an estimate said of it, beside what happened.
        verdict: what to do, in words.
        notes: what else a reader should know.
    """

    experiment: Experiment
    findings: Findings
    observed: int
    promised: dict[str, list[Promise]]
    verdict: str
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """JSON; numbers that are not finite are null."""
        meta = self.experiment.meta
        found: dict[str, Any] = _finite(asdict(self.findings))
        for comparison, told in zip(found["comparisons"], self.findings.comparisons, strict=True):
            comparison["outcome"] = told.outcome
            comparison["decided"] = told.decided.day if told.decided else None
            if told.change is not None:
                comparison["change"] |= {"side": told.change.side, "trend": told.change.trend}
            for course, by_day in zip(comparison["courses"], told.courses, strict=True):
                course |= {"now": by_day.now, "moved": by_day.moved, "seen": by_day.seen}
        return {
            "verdict": self.verdict,
            "experiment": meta.name,
            "metric": meta.metric,
            "better": meta.better,
            "unit": meta.unit,
            "confidence": meta.confidence,
            "days": meta.days,
            "observed": self.observed,
            "control": self.experiment.control.name,
            **found,
            "promised": _finite([{"arm": arm, **asdict(p)} for arm, found in self.promised.items() for p in found]),
            "notes": self.notes,
        }


def analyze_experiment(
    log: str | Path,
    experiment: Experiment | str | Path,
    *,
    day: int | None = None,
    columns: Mapping[str, str] | None = None,
    assigned: str | Path | None = None,
    promised: Mapping[str, str | Path] | str | Path | None = None,
    threads: int | None = None,
    progress: Report | None = None,
) -> AnalyzeResult:
    """Analyse a test.

    Args:
        log: Parquet or CSV (.gz), a glob, a folder of Parquet files, or what `outlay export-log` wrote; a row per user
            and day, or a row per user.
        experiment: the test, or its file.
        day: look after so many days; default: the last whole week that the log has.
        columns: role or metric → column or SQL expression, for `user`, `day`, `arm`, `segment`, `cost`, `redemption`,
            `eligible` and the metrics of the test; default: the column of that name, or as `experiment_columns.py`
            says.
        assigned: what `outlay experiment assign` wrote for the last day: `user`, `arm` and `day` (of
            assignment; 0 if there is none). Then all of them count, with or without rows, and the log needs no arms.
        promised: arm → what `outlay evaluate --json` printed, or RUN/estimates.json; a file alone is of the only arm
            that gets a verdict.
        threads: of DuckDB.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: if the look is after the planned end, a file cannot be read, or a promise is of no arm.
        LogError: if a column is absent, the log's users cannot be told apart by arm (`sums.py`), or one of them was
            not eligible.
    """
    report = progress or (lambda _fraction, _text: None)
    experiment = experiment if isinstance(experiment, Experiment) else Experiment.load(experiment)
    if day is not None and day < 1:
        raise OutlayError(f"is {day}.", where="day", way_out="Days of a look are counted from 1.")
    if day is not None and day > experiment.meta.days:
        raise OutlayError(
            f"is {day}, but the test was planned for {experiment.meta.days} days; a look after its end is one too "
            "many.", where="day", way_out=f"Look after day {experiment.meta.days} at the latest.",
        )  # fmt: skip
    files = promised_files(promised, experiment)
    path = _files(Path(log))
    names = (columns["user"],) if columns and "user" in columns else DEFAULTS["user"]
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_source(
            path,
            Path(folder),
            threads=threads,
            memory=MEMORY,
            users=names,
            readable=() if assigned is None else (assigned,),
        ) as source,
    ):
        report(0.1, "reading the log")
        roles = Roles(source, experiment, columns or {}, assigned is not None, _is_export(Path(log)))
        metrics = roles.metrics()
        columns_of_log, eligible = roles.columns(metrics), roles.eligible()
        refuse_rows_without_days(source, columns_of_log)
        daily = columns_of_log.day is not None
        given = None if assigned is None else read_assigned(source, Path(assigned), daily=daily)
        try:
            sums = read_sums(source.run, "log_kept", columns_of_log, experiment, needed_pairs(metrics), assigned=given)
            if eligible is not None:
                refuse_ineligible(source, columns_of_log, eligible, experiment.meta.days, given)
            notes = check_agreement(source.run, experiment if daily else _at_once(experiment)) + listed(source, given)
            left_out = roles.left_out()
        except LogError as error:
            raise LogError(error.found, file=error.file or path, where=error.where, way_out=error.way_out) from None
    if day is None and not sums.daily:
        raise LogError("is missing, and each row is a whole user: how many days of the test are in it?", file=path,
                       where="day", way_out=f"Say so: --day {experiment.meta.days} if the test is over.")  # fmt: skip
    report(0.7, "comparing the arms")
    look = day or _look(sums)
    money = "cost" if "cost" in sums.names else None
    findings = analyse(sums, experiment, metrics, look, money=money)
    notes = [
        *_notes(sums, experiment, look, asked=day is not None), *doubts.notes(sums, experiment, look, money), *notes
    ]  # fmt: skip
    notes += [
        f"{name} is not told: a row per user does not say on how many days money was paid. Give the days: --column "
        f"{name}=NAME."
        for name in left_out
    ]
    notes += _overspent(findings)
    if experiment.meta.eligible is not None and eligible is None:
        notes.append("The log lacks the columns of the test's condition: who was eligible is not checked.")
    beside = kept(files, findings, experiment, money)
    notes += promise_notes(beside, sums, experiment)
    return AnalyzeResult(experiment, findings, sums.observed, beside, verdict(experiment, findings), notes)


def _files(log: Path) -> Path:
    """A folder's Parquet files; of an export only its log, which has a row per user and day."""
    if not log.is_dir():
        return log
    return (log / "log" if _is_export(log) else log) / "**" / "*.parquet"


def _is_export(log: Path) -> bool:
    """Whether it is the folder that `outlay export-log` wrote."""
    return (log / "log").is_dir()


def _look(sums: DailySums) -> int:
    """The last whole week that the log has, or the days that it has where there is none."""
    return sums.observed // WEEK * WEEK or sums.observed


def _at_once(experiment: Experiment) -> Experiment:
    """As if the ramp had ended on day 0: where a row is a user, nobody's first day is known."""
    return experiment.model_copy(update={"ramp": (RampStep(day=0, coverage=experiment.ramp[-1].coverage),)})


def _notes(sums: DailySums, experiment: Experiment, look: int, *, asked: bool) -> list[str]:
    found = []
    if sums.beyond:
        found.append(
            f"{sums.beyond:,} rows after the planned end (day {experiment.meta.days}) are left out: looking on until "
            "something shows would not be a test."
        )
    if sums.observed > look and not asked:
        found.append(f"The log has {sums.observed} days; the look is after day {look}, the last whole week.")
    if look % WEEK:
        found.append(f"{look} days are no whole week: weekdays do not count alike.")
    if not sums.daily:
        found.append(
            "Each row is a whole user: there is no course by day, and of earlier decisions only their days are known."
        )
    return found


def _overspent(findings: Findings) -> list[str]:
    return [
        f"The arm {arm.name!r} spent {arm.spent:,.10g}, and its budget was {arm.budget:,.10g}: nothing held it there."
        for arm in findings.arms
        if arm.spent is not None and arm.budget is not None and arm.spent > arm.budget * (1 + ROUNDING)
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
