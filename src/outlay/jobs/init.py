"""`init`: look at a log's columns and write a campaign file with guesses, for a person to check.

What `check` would reject of the guesses is taken back before anything is written (`Draft.without`).
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from outlay.core.addresses import mistake, scheme_of
from outlay.core.campaign import Campaign
from outlay.core.errors import LogError, OutlayError
from outlay.core.files import new_file
from outlay.logs.columns import describe
from outlay.logs.findings import Finding
from outlay.logs.guess import Guess, guess_features, guess_roles
from outlay.logs.quality import inspect
from outlay.logs.reading import plain, quoted, setting, toml_value
from outlay.logs.roles import link, open_log
from outlay.logs.source import Copying, Source, open_source

ROLES = {
    "user": "who",
    "time": "when: a whole number or a date; a row per user and unit of time",
    "action": "the value given, a number",
    "reward": "what you want more of",
    "propensity": "probability with which the log's policy gave this action",
    "forced": "rows where there was no choice",
    "eligible": "list column: the actions allowed in the row",
    "terminal": "the user's story ends with this row",
}
HINTS = {
    "propensity": '# propensity = "p"         # if known: probability with which the action was given, in (0, 1]',
    "forced": '# forced = "no_choice"     # if some rows had no choice (a coupon that still ran, a holiday): mark them',
    "eligible": '# eligible = "allowed"     # if not every action was allowed in every row: a list column',
    "terminal": '# terminal = "left"        # if users leave for good: true in their last row',
}
OPTIONAL = tuple(HINTS)
NEEDED = {role: f"log.{role}" for role in ("user", "time", "action", "reward")} | {"cost": "budget.cost"}  # role → key


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


@dataclass(frozen=True)
class Draft:
    """A campaign file with guesses.

    Attributes:
        source, query: of the log, as the campaign file names them.
        rows: of the log.
        roles: role → its guess; `user`, `time`, `action`, `reward` and `cost` are there.
        categorical, numeric: features.
        left_out: column → why it is none of them.
        spent: what a row cost on average.
        lowest: the least action.
        one_step: whether every row is a user of its own.
        dropped: role → why it is not written though a column looks like it.
        kept: columns without a value in some rows, which are left out.
        gaps: that users' days have no row, in words; None where hardly any lacks one.
    """

    source: str
    query: str | None
    rows: int
    roles: dict[str, Guess]
    categorical: list[str]
    numeric: list[str]
    left_out: dict[str, str]
    spent: float
    lowest: float
    one_step: bool
    dropped: dict[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    gaps: str | None = None

    def without(self, finding: Finding) -> Draft | None:
        """The draft without what a finding rejects; None if it is about something that has to be there."""
        for role in OPTIONAL:
            if finding.key == f"log.{role}" and role in self.roles:
                roles = {name: guess for name, guess in self.roles.items() if name != role}
                return replace(self, roles=roles, dropped=self.dropped | {role: _dropped(self.roles[role], finding)})
        for name in (*self.categorical, *self.numeric):
            if (finding.key, finding.name) == ("log.features", name):
                return replace(
                    self,
                    categorical=[each for each in self.categorical if each != name],
                    numeric=[each for each in self.numeric if each != name],
                    left_out=self.left_out | {name: finding.message.rstrip(".")},
                )
        if finding.key == "log.complete" and self.gaps is None:
            return replace(self, gaps=finding.message)
        if finding.key == "log.rows" and self.roles["time"].column is None:
            numbered = f"row_number() over (partition by {self.roles['user'].text})"
            time = Guess(numbered, "CHECK: no column looks like a day, so a user's rows count in the order of the log")
            return replace(self, roles=self.roles | {"time": time})
        for role, key in NEEDED.items():
            column = self.roles[role].column
            if finding.key == key and column is not None and column not in self.kept:
                return replace(self, kept=(*self.kept, column))
        return None

    def text(self) -> str:
        """The file."""
        once, none = self.one_step, self.lowest == 0
        what = "the action that means: no incentive"
        lines = [
            f"# Written by outlay init from {self.rows:,} rows. Every line is a guess: correct it, then run outlay "
            "check.",
            "# A role is a column, or an SQL expression over the columns of a row.",
            "",
            "[campaign]",
            setting("name", _name(self.source)),
            'unit = "money"            # of the budget, for words and axes',
            f"discount = {'0.0' if once else '0.8'}            # per unit of time; 0: only the same day counts",
            f"horizon_days = {1 if once else 7}",
            f"report_days = {[1] if once else [1, 3, 7]}",
            f"none = 0.0                # {what}" if none else f"# none = 0.0              # {what}, if there is one",
            "",
            "[log]",
            setting("source", self.source),
            *([] if self.query is None else [setting("query", self.query)]),
        ]
        if self.kept:
            condition = " and ".join(f"{plain(column)} is not null" for column in self.kept)
            lines += ["# Rows without a value are left out. CHECK: why have they none?", setting("where", condition)]
        for role, meaning in ROLES.items():
            if role in self.roles:
                lines += [f"# {meaning}. Chosen {self.roles[role].why}.", setting(role, self.roles[role].text)]
            else:
                lines += [f"# {self.dropped[role]}"] if role in self.dropped else []
                lines.append(HINTS[role])
        if self.gaps is not None:
            lines.append(f"# CHECK: {_comment(self.gaps)} Else write complete = {'false' if none else 'true'}.")
            lines.append(f"complete = {'true' if none else 'false'}")
        else:
            lines.append("# complete = true           # if a day without a row means that the user did not come")
        lines += [
            "# segment = \"case when … then 'new' else 'old' end\"   # groups for tables",
            "",
            "# The state: what is known BEFORE the decision. Take out whatever is only known after it (it would leak).",
            "[log.features]",
            f"categorical = {_toml_list(self.categorical or ([] if self.numeric else ['1']))}",
            f"numeric = {_toml_list(self.numeric)}",
        ]
        lines += [f"# left out: {_comment(column)} ({_comment(reason)})" for column, reason in self.left_out.items()]
        lines += [
            "",
            "[[budget]]",
            'name = "cost"',
            f"# What a row cost. Chosen {self.roles['cost'].why}.",
            setting("cost", self.roles["cost"].text),
            f"at_most = {self.spent:.4g}          # what the log spent per row: CHECK, this is your decision",
            'per = "decision"          # or "user": total over horizon_days',
            "",
        ]
        return "\n".join(lines)


def _dropped(guess: Guess, finding: Finding) -> str:
    return f"{_comment(guess.text)} is not used: {_comment(finding.message)}"


def _name(source: str) -> str:
    stem = Path(source.partition("?")[0]).name.lower().split(".")[0]
    return re.sub(r"[^a-z0-9_-]+", "-", stem).strip("-") or "campaign"


def _toml_list(texts: Sequence[str]) -> str:
    if len(texts) <= 6:
        return f"[{', '.join(toml_value(text) for text in texts)}]"
    return "[\n" + "".join(f"    {toml_value(text)},\n" for text in texts) + "]"


def _comment(text: str) -> str:
    return " ".join(text.split())
