"""`init`: look at a log's columns and write a campaign file with guesses, for a person to check."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

from outlay.core.addresses import mistake, scheme_of
from outlay.core.campaign import Campaign
from outlay.core.errors import LogError, OutlayError
from outlay.core.files import new_file
from outlay.jobs.draft import Draft
from outlay.logs.columns import describe
from outlay.logs.findings import Finding
from outlay.logs.guess import guess_features, guess_roles
from outlay.logs.quality import inspect
from outlay.logs.reading import quoted
from outlay.logs.roles import link, open_log
from outlay.logs.source import Copying, Source, open_source


def init(log: str | Path, out: str | Path, *, query: str | None = None) -> str:
    """Write a commented campaign file for a log, one that `check` does not reject.

    Args:
        log: Parquet or CSV (.gz), a file or a glob; or an address (`postgresql://…`, `s3://…`, `gs://…`).
        out: the campaign file; must not exist, since what was changed in it would be lost.
        query: SQL, for a database.

    Returns:
        What was written.

    Raises:
        LogError: if the log cannot be read, is empty, no column can be the action or the reward, or the log itself is
            such that `check` rejects every guess; nothing is written then.
        OutlayError: if the campaign file exists.
    """
    out = Path(out)
    if out.exists():
        raise OutlayError(
            "exists already, and what was changed in it would be lost.",
            file=out,
            where="--out",
            way_out="Give another --out, or delete it first.",
        )
    if found := mistake(str(log), query):
        raise OutlayError(f"{found}.", file=log, where="log", way_out="Fix the command.")
    with tempfile.TemporaryDirectory(prefix="outlay-") as name:
        fetched = Path(name) / "fetched"
        with open_source(log, Path(name), copying=Copying(query, fetched)) as source:
            draft = _draft(source, str(log) if scheme_of(log) else _relative(Path(log), out), query)
        with new_file(out) as temporary:
            while True:
                temporary.write_text(draft.text(), encoding="utf-8")
                findings = _errors(Campaign.load(temporary), fetched)
                if not findings:
                    return draft.text()
                draft = _better(draft, findings, log)


def _draft(source: Source, path: str, query: str | None) -> Draft:
    """The first guesses."""
    rows, columns = describe(source)
    if rows == 0:
        raise LogError(
            "the log is empty: it has no rows.", file=source.file, way_out="Give a log with a row per user and day."
        )
    try:
        roles = guess_roles(source, rows, columns)
    except LookupError as error:
        raise LogError(
            str(error),
            file=source.file,
            way_out="Write the campaign file by hand (see the README), "
            "with action as a CASE expression that makes numbers.",
        ) from None
    categorical, numeric, left_out = guess_features(rows, columns, roles)
    spent, _ = _mean_and_least(source, roles.found["cost"].text)
    _, lowest = _mean_and_least(source, roles.found["action"].text)
    return Draft(
        path, query, rows, roles.found, categorical, numeric, left_out, spent, lowest, one_step=not roles.repeats
    )


def _errors(campaign: Campaign, fetched: Path) -> tuple[Finding, ...]:
    """What `check` would reject."""
    with tempfile.TemporaryDirectory(prefix="outlay-") as name:
        try:
            with open_log(campaign, Path(name), fetched=fetched) as log:
                link(log)
                return inspect(log).errors
        except OutlayError as error:
            return (Finding("error", error.where or "log", error.found, error.way_out or "", 0),)


def _better(draft: Draft, findings: tuple[Finding, ...], log: str | Path) -> Draft:
    """The draft without what is rejected, as far as it can do without.

    Raises:
        LogError: if it needs all of that.
    """
    better = draft
    for finding in findings:
        better = better.without(finding) or better
    if better is draft:
        first = findings[0]
        raise LogError(first.message, file=log, where=first.where, way_out=first.way_out)
    return better


def _mean_and_least(source: Source, expression: str) -> tuple[float, float]:
    sql = quoted(expression) if expression in source.columns else f"({expression})"
    [(mean, least)] = source.run(f"SELECT avg(CAST({sql} AS DOUBLE)), min(CAST({sql} AS DOUBLE)) FROM log")
    return (float(mean) if mean is not None and math.isfinite(mean) else 0.0), float(least or 0)


def _relative(log: Path, out: Path) -> str:
    """The log's path as seen from the campaign file; absolute where they share no folder."""
    base, there = out.absolute().parent, log.absolute()
    try:
        path = os.path.relpath(there, base)
    except ValueError:  # another drive
        return there.as_posix()
    return there.as_posix() if path.count("..") > 1 else Path(path).as_posix()
