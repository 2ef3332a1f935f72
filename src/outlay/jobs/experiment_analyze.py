"""`outlay experiment analyze`: what a test has shown, from any log with arms.

    result = analyze_experiment("closed/*.parquet", "experiment.toml")

A row per user and day (as `outlay export-log` writes it), or a row per user. Rows before the start are CUPED's
covariates; the look is after the last whole week that the log has, so that every weekday counts alike.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outlay.core.errors import LogError, OutlayError
from outlay.experiments.agreement import check_agreement
from outlay.experiments.analyse import analyse
from outlay.experiments.design import WEEK, Experiment
from outlay.experiments.findings import Findings
from outlay.experiments.lift import needed_pairs
from outlay.experiments.promise import Promise, promises
from outlay.experiments.sums import Sums, read_sums
from outlay.experiments.words import verdict
from outlay.jobs.experiment_columns import Roles, canonical_sql
from outlay.logs.reading import literal
from outlay.logs.source import Source, Term, nearest, open_source

Report = Callable[[float, str], None]

MEMORY = "1GB"  # of DuckDB: ten million rows need no more, and larger logs spill to disk


@dataclass(frozen=True)
class AnalyzeResult:
    """A test's analysis.

    Attributes:
        experiment: the design.
        findings: the numbers.
        observed: days of the test that the log has.
        promised: what an estimate said, beside what happened.
        verdict: what to do, in words.
        notes: what else a reader should know.
    """

    experiment: Experiment
    findings: Findings
    observed: int
    promised: list[Promise]
    verdict: str
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """JSON; numbers that are not finite are null."""
        meta = self.experiment.meta
        found: dict[str, Any] = _finite(asdict(self.findings))
        for comparison, told in zip(found["comparisons"], self.findings.comparisons, strict=True):
            comparison["decided"] = told.decided.day if told.decided else None
        return {
            "verdict": self.verdict,
            "experiment": meta.name,
            "metric": meta.metric,
            "confidence": meta.confidence,
            "days": meta.days,
            "observed": self.observed,
            "control": self.experiment.control.name,
            **found,
            "promised": _finite([asdict(promise) for promise in self.promised]),
            "notes": self.notes,
        }


def analyze_experiment(
    log: str | Path,
    experiment: Experiment | str | Path,
    *,
    day: int | None = None,
    columns: Mapping[str, str] | None = None,
    assigned: str | Path | None = None,
    promised: str | Path | None = None,
    threads: int | None = None,
    progress: Report | None = None,
) -> AnalyzeResult:
    """Analyse a test.

    Args:
        log: Parquet or CSV (.gz), a glob, a folder of Parquet files, or what `outlay export-log` wrote; a row per user
            and day, or a row per user.
        experiment: the test, or its file.
        day: look after so many days; default: the last whole week that the log has.
        columns: role or metric → column or SQL expression, for `user`, `day`, `arm`, `segment`, `cost`, `redemption`
            and the metrics of the test; default: the column of that name, or as
            `experiment_columns.py` says.
        assigned: what `outlay experiment assign` wrote for the last day, as Parquet: `user`, `arm` and `day` (of
            assignment; 0 if there is none). Then all of them count, with or without rows, and the log needs no arms.
        promised: what `outlay evaluate --json` printed, or RUN/estimates.json, of the first arm after the control.
        threads: of DuckDB.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: if the look is after the planned end, or a file cannot be read.
        LogError: if a column is absent, or the log's users cannot be told apart by arm (`sums.py`).
    """
    report = progress or (lambda _fraction, _text: None)
    experiment = experiment if isinstance(experiment, Experiment) else Experiment.load(experiment)
    if day is not None and not 1 <= day <= experiment.meta.days:
        raise OutlayError(
            f"is {day}, but the test was planned for {experiment.meta.days} days; a look after its end is one too "
            "many.", where="day", way_out=f"Look after day {experiment.meta.days} at the latest.",
        )  # fmt: skip
    path = _files(Path(log))
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_source(path, Path(folder), threads=threads, memory=MEMORY) as source,
    ):
        report(0.1, "reading the log")
        roles = Roles(source, experiment, columns or {}, assigned is not None, _is_export(Path(log)))
        metrics = roles.metrics()
        given = None if assigned is None else _assigned(source, Path(assigned))
        try:
            sums = read_sums(
                source.run, "log_kept", roles.columns(metrics), experiment, needed_pairs(metrics), assigned=given
            )
            notes = check_agreement(source.run, experiment) + _unlisted(source, given)
        except LogError as error:
            raise LogError(error.found, file=error.file or path, where=error.where, way_out=error.way_out) from None
    report(0.7, "comparing the arms")
    look = day or _look(sums)
    money = "cost" if "cost" in sums.names else None
    findings = analyse(sums, experiment, metrics, look, money=money)
    notes = [*_notes(sums, experiment, look), *notes]
    beside: list[Promise] = []
    if promised is not None:
        beside, more = _promised(Path(promised), findings, experiment, money)
        notes += more
    return AnalyzeResult(experiment, findings, sums.observed, beside, verdict(experiment, findings), notes)


def _files(log: Path) -> Path:
    """A folder's Parquet files; of an export only its log, which has a row per user and day."""
    if not log.is_dir():
        return log
    return (log / "log" if _is_export(log) else log) / "**" / "*.parquet"


def _is_export(log: Path) -> bool:
    """Whether it is the folder that `outlay export-log` wrote."""
    return (log / "log").is_dir()


def _assigned(source: Source, path: Path) -> str:
    """The table `assigned`: user, arm, day."""
    if not path.is_file() or path.suffix != ".parquet":
        raise LogError("is no Parquet file.", file=path, way_out="Give what outlay experiment assign wrote.")
    relation = f"read_parquet({literal(path)})"
    types = {str(row[0]): str(row[1]).split("(")[0] for row in source.run(f"DESCRIBE SELECT * FROM {relation}")}
    for name in ("user", "arm"):
        if name not in types:
            raise LogError("is missing.", file=path, where=f"column {name!r}", way_out=nearest(name, types))
    user = canonical_sql(Term("user", "user", '"user"', types["user"]))
    day = "CAST(day AS BIGINT)" if "day" in types else "0"
    source.run(
        f'CREATE TEMP TABLE assigned AS SELECT {user} AS "user", CAST(arm AS VARCHAR) AS arm, {day} AS day '
        f"FROM {relation} WHERE arm IS NOT NULL"
    )
    twice = source.run('SELECT "user", count(*) OVER () FROM assigned GROUP BY "user" HAVING count(*) > 1 LIMIT 1')
    if twice:
        raise LogError(f"holds {twice[0][1]} users more than once, as {twice[0][0]!r}.", file=path,
                       where="column 'user'", way_out="Give one row per user.")  # fmt: skip
    return "assigned"


def _unlisted(source: Source, assigned: str | None) -> list[str]:
    """A list that was written before the ramp ended lacks the users who came later."""
    if assigned is None:
        return []
    found = source.run(
        f'SELECT count(DISTINCT "user") FROM all_rows ANTI JOIN {assigned} USING ("user") '
        "WHERE arm IS NOT NULL AND day >= 0"
    )
    if not found[0][0]:
        return []
    return [
        f"{found[0][0]:,} users are in an arm in the log but not on the list of the assigned, and do not count. Write "
        "the list for the last day of the test."
    ]


def _look(sums: Sums) -> int:
    """The last whole week that the log has, or the days that it has where there is none."""
    return sums.observed // WEEK * WEEK or sums.observed


def _notes(sums: Sums, experiment: Experiment, look: int) -> list[str]:
    found = []
    if sums.beyond:
        found.append(
            f"{sums.beyond:,} rows after the planned end (day {experiment.meta.days}) are left out: looking on until "
            "something shows would not be a test."
        )
    if sums.observed > look:
        found.append(f"The log has {sums.observed} days; the look is after day {look}, the last whole week.")
    if look % WEEK:
        found.append(f"{look} days are no whole week: weekdays do not count alike.")
    if not sums.daily:
        found.append("A row is a user: nothing is known of single days, and of earlier decisions only when they were.")
    return found


def _promised(
    path: Path, findings: Findings, experiment: Experiment, money: str | None
) -> tuple[list[Promise], list[str]]:
    contestant = next(comparison for comparison in findings.comparisons if comparison.contestant)
    try:
        found = promises(
            json.loads(path.read_text(encoding="utf-8")), contestant, experiment.meta.metric, money,
            experiment.meta.confidence,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        way_out = "Give RUN/estimates.json, or what outlay evaluate --json printed."
        raise OutlayError(f"is no evaluation ({error!r}).", file=path, way_out=way_out) from None
    none = "The estimate and the test have no total in common that both can tell, so the promise is not compared."
    return found, [] if found else [none]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
