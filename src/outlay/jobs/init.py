"""`init`: look at a log's columns and write a campaign file with guesses, for a person to check.

What `check` would reject of the guesses is taken back before anything is written (`Draft.without`).
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from outlay.core.addresses import Place, mistake, scheme_of
from outlay.core.campaign import Campaign
from outlay.core.errors import LogError, OutlayError
from outlay.core.files import as_path, new_file
from outlay.core.wording import readable
from outlay.jobs import memory
from outlay.logs.columns import CHUNK, ScannedColumn, describe
from outlay.logs.drivers import DATE
from outlay.logs.findings import Finding
from outlay.logs.formats import Recognised
from outlay.logs.guess import GuessedRoles, guess_features, guess_roles
from outlay.logs.looked import Guess
from outlay.logs.quality import inspect
from outlay.logs.reading import literal, plain, quoted, setting, toml_value
from outlay.logs.roles import link, open_log
from outlay.logs.source import NO_CATEGORY, Copying, RememberedSource, Source, open_recognised
from outlay.logs.values import means_nothing
from outlay.logs.what import COUNTED, NoActionError
from outlay.logs.who import SumsError

ROLES = {
    "user": "who",
    "time": "when: a whole number or a date; a row per user and unit of time",
    "action": "what was given: a number, or a name",
    "reward": "what you want more of",
    "propensity": "probability with which the log's policy gave this action",
    "forced": "rows where there was no choice",
    "eligible": "list column: the actions allowed in the row",
    "terminal": "the user's story ends with this row",
    "cluster": "users who share what happens to them, as those of a household",
}
HINTS = {
    "propensity": '# propensity = "p"         # if known: probability with which the action was given, in (0, 1]',
    "forced": '# forced = "no_choice"     # if some rows had no choice (a coupon that still ran, a holiday): mark them',
    "eligible": '# eligible = "allowed"     # if not every action was allowed in every row: a list column',
    "terminal": '# terminal = "left"        # if users leave for good: true in their last row',
}
OPTIONAL = (*HINTS, "cluster")
ASKED = {"action": "What was given", "reward": "What you want more of", "user": "Who"}  # in this order, where unsure
NOT_FOR = (
    "outlay decides what each user gets, so it needs a row per user, or per user and day, with what that user was "
    "given. For totals of weeks, channels or regions use a media mix model or a test of whole regions."
)
RANDOM = "# randomised = true         # no column predicts the action: write this if chance alone decided it"
ENDS = "each user has one row, so every row is the last."
PER_DAY = (
    "discount = 0.8            # per unit of time; 0: only the same day counts",
    "horizon_days = 7",
    "report_days = [1, 3, 7]",
)
VALUE = re.compile(rf"[-+]?[\d.,]+(_\d+)?$|{DATE}")  # a number, or how a date begins
NAME = re.compile(r"\w+")
WORDS = re.compile(r"[A-Za-z][a-z]{3,}( [a-z]+)*")  # a name that can be read as it is
TOTALS = r"(grand |sub)?totals?|sum|summen?|gesamt(summe)?|insgesamt|zwischensumme|totaux|totale|somme|suma|soma|totaal"
FEW_TOTALS = 3  # rows at most, so that it is no value of a column
CALLED = {"reward": "reward", "action": "action", "budgets.cost": "cost"}  # key of [labels] → role
NEEDED = {role: f"log.{role}" for role in ("user", "time", "action", "reward")} | {"cost": "budget.cost"}  # role → key


@dataclass(frozen=True)
class Reasoned:
    """A column as the guide shows it.

    Attributes:
        column: its name, or the SQL of a role that no column has.
        role: what it was taken for: a role, `feature`, `outcome` or `left out`; `complete` of days without a row.
        why: the reason.
        sure: whether nothing else is near.
    """

    column: str
    role: str
    why: str
    sure: bool


@dataclass(frozen=True)
class OpenQuestion:
    """What the guide is unsure of.

    Attributes:
        role: which role.
        meaning: the role in words.
        guess: the column that it would take.
        others: columns that might be meant, likeliest first.
        columns: any of which may be the answer: all but lists and the like.
        looked: what was found so far, of every column.
    """

    role: str
    meaning: str
    guess: str
    others: tuple[str, ...]
    columns: tuple[str, ...]
    looked: tuple[Reasoned, ...]


Ask = Callable[[OpenQuestion], str]  # gives the name of a column


@dataclass(frozen=True)
class Guided:
    """What the guide found and wrote.

    Attributes:
        text: the campaign file.
        looked: what was found of every column.
        read: how texts were read, a sentence each.
        errors: what `check` rejects, which only other rows would put right.
    """

    text: str
    looked: tuple[Reasoned, ...]
    read: tuple[str, ...] = ()
    errors: tuple[Finding, ...] = ()


def init(log: Any, out: str | Path = "campaign.toml", *, query: str | None = None, ask: Ask | None = None) -> str:
    """Write a commented campaign file for a log, one that `check` does not reject unless rows repeat others.

    Args:
        log: Parquet, CSV (.gz) and others (`logs/formats.py`), a file or a glob, or a list of them; or an address
            (`postgresql://…`, `s3://…`, `gs://…`); or a table in memory, which is written beside the campaign file.
        out: the campaign file; must not exist, since what was changed in it would be lost.
        query: SQL, for a database or an SQLite file.
        ask: answers what the columns leave open; None: the guesses are taken.

    Returns:
        What was written.

    Raises:
        LogError: if the log cannot be read, is empty, sums over many people, no column can be the action or the
            reward, or the log itself is such that `check` rejects every guess; nothing is written then.
        OutlayError: if the campaign file exists.
    """
    return guide(log, out, query=query, ask=ask).text


def guide(log: Any, out: str | Path, *, query: str | None = None, ask: Ask | None = None) -> Guided:
    """The same, with the reason for every column."""
    out = as_path(out, "out", "the path of the campaign file to write")
    if stands := out.exists():
        ask = None  # the log is looked at, which may be wrong as well, and nothing is written
    if memory.is_table(log):
        table = out.with_suffix(".parquet")
        if table.exists():
            raise OutlayError(
                "exists already, and the table would be written there.", file=table, way_out="Give another out."
            )
        memory.write(log, table)
        try:
            return guide(table, out, query=query, ask=ask)
        except BaseException:
            table.unlink()
            raise
    paths = log if isinstance(log, list | tuple) else (log,)
    for each in (*paths, *([] if paths else [None])):
        as_path(each, "log", "the path of a file, a list of them, or a table of pandas, polars, pyarrow or DuckDB")
    if isinstance(log, (list, tuple)):
        log = tuple(map(str, log)) if len(log) != 1 else log[0]
    if found := mistake(log if isinstance(log, tuple) else str(log), query):
        named = ", ".join(log) if isinstance(log, tuple) else log
        raise OutlayError(f"{found}.", file=named, where="log", way_out="Fix the command.")
    log = tuple(map(Path, log)) if isinstance(log, tuple) else log
    with tempfile.TemporaryDirectory(prefix="outlay-") as name:
        fetched = Path(name) / "fetched"
        settle = None if ask is None else partial(_settle, ask)
        with open_recognised(log, Path(name), Copying(query, fetched), settle) as (source, recognised):
            draft, looked = _draft(source, recognised, _written(log, out), query, ask)
            if stands:
                raise OutlayError(
                    "is a folder." if out.is_dir() else "exists already, and what was changed in it would be lost.",
                    file=out,
                    where="--out",
                    way_out="Give the file to write." if out.is_dir() else "Give another --out, or delete it first.",
                )
            looked = tuple(_dated(each, recognised) for each in looked)
            with new_file(out) as temporary:
                while True:
                    temporary.write_text(draft.text(), encoding="utf-8")
                    findings = _errors(Campaign.load(temporary), fetched)
                    better = _better(draft, findings, log)
                    if (better.kept, better.roles) != (draft.kept, draft.roles):
                        better = replace(better, spent=_spent(source, better.roles, better.kept))
                    if better is draft:
                        read = recognised.words if draft.totals is None else (*recognised.words, draft.totals[1])
                        return Guided(draft.text(), draft.noted(looked), read, findings)
                    draft = better


def _settle(ask: Ask, found: tuple[str, str, str]) -> str:
    """The format of dates that the person means."""
    column, likelier, other = found
    meaning = f"Column {column}: how are its dates written"
    return ask(OpenQuestion("dates", meaning, likelier, (other,), (likelier, other), ()))


def _dated(each: Reasoned, read: Recognised) -> Reasoned:
    """A column of dates is not sure where both orders of day and month fit."""
    if read.open is None or each.column != read.open[0]:
        return each
    _, taken, other = read.open
    return replace(each, why=f"{each.why}; read as {taken}, and {other} fits every row too", sure=False)


def _draft(
    source: Source, read: Recognised, path: str | tuple[str, ...], query: str | None, ask: Ask | None
) -> tuple[Draft, tuple[Reasoned, ...]]:
    """The first guesses, with what was found of every column."""
    totals = _without_totals(source)
    rows, columns = describe(source)
    if rows == 0:
        raise LogError(
            "the log is empty: it has no rows.", file=source.file, way_out="Give a log with a row per user and day."
        )
    values = [column.name for column in columns if VALUE.match(column.name)]
    if 2 * len(values) > len(columns):
        raise LogError(
            f"its first line seems to be a row, not the names of columns: {', '.join(map(repr, values[:4]))}.",
            file=source.file,
            way_out="Write a line of names above it, such as user,day,coupon,active.",
        )
    columns = [replace(column, percent=column.name in read.percents) for column in columns]
    fixed: dict[str, str] = {}
    remembered = RememberedSource(**vars(source))  # every answer of the person makes us ask the log again
    while True:
        names = tuple(column.name for column in columns if column.type not in NO_CATEGORY)
        try:
            roles = guess_roles(remembered, rows, columns, fixed)
        except LookupError as error:
            if ask is None or not isinstance(error, NoActionError) or "action" in fixed or not error.near:
                raise _refused(source, error) from None
            fixed["action"] = ask(
                OpenQuestion("action", f"{ASKED['action']}", error.near[0], error.near[1:], names, ())
            )
            continue
        features = guess_features(rows, columns, roles)
        looked = _looked(columns, roles, features)
        role = next((role for role in ASKED if role not in fixed and not roles.found[role].sure), None)
        if ask is None or role is None:
            break
        guess = roles.found[role]
        fixed[role] = ask(OpenQuestion(role, ASKED[role], guess.column or guess.text, guess.others, names, looked))
    if roles.found["time"].column is None and read.mixed:
        column, what = next(iter(read.mixed.items()))
        raise LogError(
            f"{what}.",
            file=source.file,
            where=f"column {column}",
            way_out="Write all its dates alike, and take out rows that are none of a user's, such as totals.",
        )
    categorical, numeric, left_out = features
    action = roles.found["action"]
    lowest = None if action.labels else _mean_and_least(source, action.text)[1]
    if next((c.type for c in columns if c.name == action.column), "") == "BOOLEAN":
        lowest, words = None, read.truths.get(action.column or "", ("false", "true"))
        roles.found["action"] = replace(action, labels=words)
    draft = Draft(
        path,
        query,
        rows,
        roles.found,
        categorical,
        numeric,
        left_out,
        _spent(source, roles.found, ()),
        lowest,
        one_step=not roles.repeats,
        read=read,
        random=roles.random,
        missing={column.name: column.missing for column in columns},
        stray={column.name: column.stray for column in columns if column.stray},
        totals=totals,
    )
    if draft.one_step and "terminal" in draft.roles:
        end = draft.roles["terminal"]
        found = {role: guess for role, guess in draft.roles.items() if role != "terminal"}
        draft = replace(draft, roles=found, dropped={"terminal": f"{_comment(end.text)} is not used: {ENDS}"})
    return replace(draft, outcomes=tuple(roles.later)), looked


def _refused(source: Source, error: LookupError) -> LogError:
    """That no draft can be written, in words."""
    if isinstance(error, SumsError):
        return LogError(f"{error}: these are sums over many people.", file=source.file, way_out=NOT_FOR)
    way_out = "Write the campaign file by hand (see the README)."
    return LogError(str(error), file=source.file, way_out=way_out)


def _looked(
    columns: list[ScannedColumn], roles: GuessedRoles, features: tuple[list[str], list[str], dict[str, str]]
) -> tuple[Reasoned, ...]:
    """What each column was taken for: roles first, then outcomes, features and the rest."""
    found = [
        Reasoned(
            guess.column or _prices(roles.found, role) or guess.text,
            role,
            guess.why.replace("CHECK: ", ""),
            guess.sure and not _open(guess),
        )
        for role, guess in roles.found.items()
        if roles.repeats or role != "time" or guess.column is not None
    ]
    left_out = features[2]
    for name, why in left_out.items():
        role = "outcome" if name in roles.later else "left out"
        found.append(Reasoned(name, role, why, name not in roles.doubted))
    used = {guess.column for guess in roles.found.values()} | left_out.keys()
    for column in columns:
        if column.name not in used:
            doubted = column.name in roles.doubted
            unsaid = "it might follow from the action" if doubted else "nothing says that it follows from the action"
            found.append(Reasoned(column.name, "feature", roles.before.get(column.name, unsaid), not doubted))
    return tuple(found)


def _prices(found: Mapping[str, Guess], role: str) -> str:
    """What each named action costs, 1 where it gives something; empty where a column tells, or of another role."""
    action = found["action"]
    if role != "cost" or found["cost"].column is not None or not action.labels:
        return ""
    return f"{{ {', '.join(f'{toml_value(each)} = 1' for each in action.labels if not means_nothing(each))} }}"


def _open(guess: Guess) -> bool:
    return "CHECK" in guess.why


def _written(log: Place, out: Path) -> str | tuple[str, ...]:
    """The log as the campaign file names it."""
    if isinstance(log, tuple):
        return tuple(_relative(each, out) for each in log)
    return str(log) if scheme_of(log) else _relative(Path(log), out)


def _errors(campaign: Campaign, fetched: Path) -> tuple[Finding, ...]:
    """What `check` would reject."""
    with tempfile.TemporaryDirectory(prefix="outlay-") as name:
        try:
            with open_log(campaign, Path(name), fetched=fetched) as log:
                link(log)
                return inspect(log).errors
        except OutlayError as error:
            return (Finding("error", error.where or "log", error.found, error.way_out or "", 0),)


def _better(draft: Draft, findings: tuple[Finding, ...], log: Place) -> Draft:
    """The draft without what is rejected, as far as it can do without.

    Raises:
        LogError: if it needs all of that, and the log's rows alone would not put it right.
    """
    better = draft
    for finding in findings:
        better = better.without(finding) or better
    first = next((each for each in findings if each.key != "log.rows"), None)
    if better is draft and first is not None:
        raise LogError(first.message, file=log, where=first.where, way_out=first.way_out)
    return better


def _without_totals(source: Source) -> tuple[str, str] | None:
    """Leave out rows that add others up, as a spreadsheet has them below the table.

    Returns:
        The filter of a campaign file that does so, and what was left out, in words; None where there are none.
    """
    texts = [name for name, type_ in source.columns.items() if type_ == "VARCHAR"]
    for begin in range(0, len(texts), CHUNK):
        part = texts[begin : begin + CHUNK]
        called = [f"regexp_full_match(trim({quoted(name)}), '{TOTALS}', 'i')" for name in part]
        asked = (
            f"count(*) FILTER ({each}), min({quoted(name)}) FILTER ({each})"
            for each, name in zip(called, part, strict=True)
        )
        rows, *found = source.run(f"SELECT count(*), {', '.join(asked)} FROM log")[0]
        for name, count, text in zip(part, found[::2], found[1::2], strict=True):
            if 0 < count <= FEW_TOTALS and count < rows:
                where = f"{plain(name)} is distinct from {literal(text)}"
                source.run("ALTER VIEW log RENAME TO log_with_totals")
                source.run(f"CREATE VIEW log AS SELECT * FROM log_with_totals WHERE {where}")
                return where, f"CHECK: a row whose {name} is {text!r} seems to add up others, and is left out."
    return None


def _spent(source: Source, roles: Mapping[str, Guess], kept: Sequence[str]) -> float:
    """What a row cost on average, of those with a value in the columns `kept`."""
    action, cost = roles["action"], roles["cost"]
    given = f"case when {plain(action.column or '')} is null then 0 else ({cost.text}) end"
    return _mean_and_least(source, given if action.labels and action.column else cost.text, kept)[0]


def _mean_and_least(source: Source, expression: str, kept: Sequence[str] = ()) -> tuple[float, float]:
    sql = quoted(expression) if expression in source.columns else f"({expression})"
    where = " AND ".join(["true", *(f"{quoted(column)} IS NOT NULL" for column in kept)])
    found = source.run(f"SELECT avg(CAST({sql} AS DOUBLE)), min(CAST({sql} AS DOUBLE)) FROM log WHERE {where}")
    [(mean, least)] = found
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
        lowest: the least action; None where actions have names.
        one_step: whether every row is a user of its own.
        outcomes: columns that follow from the action and are nothing else.
        dropped: role → why it is not written though a column looks like it.
        kept: columns without a value in some rows, which are left out.
        missing: column → rows without a value.
        stray: column → which of its texts are no numbers.
        read: how the texts of its files are read.
        random: whether no column predicts the action.
        totals: what leaves out rows that add up others (`_without_totals`).
        gaps: that users' days have no row, in words; None where hardly any lacks one.
    """

    source: str | tuple[str, ...]
    query: str | None
    rows: int
    roles: dict[str, Guess]
    categorical: list[str]
    numeric: list[str]
    left_out: dict[str, str]
    spent: float
    lowest: float | None
    one_step: bool
    outcomes: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    missing: dict[str, int] = field(default_factory=dict)
    stray: dict[str, str] = field(default_factory=dict)
    gaps: str | None = None
    read: Recognised | None = None
    random: bool = False
    totals: tuple[str, str] | None = None

    def without(self, finding: Finding) -> Draft | None:
        """The draft without what a finding rejects; None if it is about something that has to be there."""
        if finding.key == "log.outcomes" and self.outcomes:
            return replace(self, outcomes=())
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
                    outcomes=(*self.outcomes, *([name] if NAME.fullmatch(name) else [])),
                )
        if finding.key == "log.complete" and self.gaps is None:
            return replace(self, gaps=finding.message)
        if finding.key in ("log.rows", "log.time") and self.roles["time"].column is None and not self.one_step:
            numbered = f"row_number() over (partition by {self.roles['user'].text})"
            time = Guess(numbered, "CHECK: no column looks like a day, so a user's rows count in the order of the log")
            return replace(self, roles=self.roles | {"time": time})
        if finding.key == "log.action" and (filled := self._filled()) is not None:
            return filled
        for role, key in NEEDED.items():
            column = self.roles[role].column
            if finding.key == key and column is not None and column not in self.kept:
                return replace(self, kept=(*self.kept, column))
        return None

    def _filled(self) -> Draft | None:
        """The draft in which a row without an action was given nothing; None if it is so already."""
        action, cost = self.roles["action"], self.roles["cost"]
        if action.column is None or action.text != plain(action.column):
            return None
        nothing = literal(action.nothing or "none") if action.labels else "0"
        text = f"coalesce({action.text}, {nothing})"
        labels = action.labels if action.nothing or not action.labels else (*action.labels, "none")
        why = f"CHECK: rows without a value are taken as {nothing}: nothing was given. {action.why}"
        filled = replace(action, text=text, labels=labels, why=why, sure=False)
        roles = self.roles | {"action": filled}
        if cost.column is None and not action.labels:  # made of the action
            roles["cost"] = replace(
                cost, text=re.sub(rf"(?<!\w){re.escape(action.text)}(?!\w)", text, cost.text, count=1)
            )
        return replace(self, roles=roles, lowest=None if self.lowest is None else min(self.lowest, 0.0))

    def noted(self, looked: Sequence[Reasoned]) -> tuple[Reasoned, ...]:
        """What was found of the columns, with what `check` had against them."""
        found = []
        for each in looked:
            if each.role == "feature" and each.column in self.left_out:
                found.append(replace(each, role="left out", why=self.left_out[each.column]))
            elif each.role == "action" and not self.roles["action"].sure and each.sure:
                found.append(replace(each, why=self.roles["action"].why.replace("CHECK: ", ""), sure=False))
            elif each.column in self.kept:
                stray = f"{self.stray[each.column]}; " if each.column in self.stray else ""
                left = f"{stray}{self.missing[each.column]:,} rows without a value are left out"
                found.append(replace(each, why=f"{left}; {each.why}", sure=False))
            elif each.role in self.dropped and each.role not in self.roles:
                found.append(replace(each, role="left out", why=self.dropped[each.role]))
            else:
                found.append(each)
        if self.gaps is not None:
            found.append(Reasoned("days without a row", "complete", self.gaps, sure=False))
        return tuple(found)

    def text(self) -> str:
        """The file."""
        none = '"none"' if self.lowest is None else "0.0"
        known = self.lowest == 0 and self.roles["cost"].text != "1"  # which every action costs that is no amount
        if (label := self.roles["action"].nothing) is not None:
            none, known = toml_value(label), True
        what = "the action that means: no incentive"
        lines = [
            f"# Written by outlay init from {self.rows:,} rows. Every line is a guess: correct it, then run outlay "
            "check.",
            "# A role is a column, or an SQL expression over the columns of a row.",
            "",
            "[campaign]",
            setting("name", _name(self.source if isinstance(self.source, str) else self.source[0])),
            f'unit = "{"actions" if self._counted else "money"}"            # of the budget, for words and axes',
            *([] if self.one_step else PER_DAY),
            f"none = {none}  # {what}" if known else f"# none = {none}  # {what}, if there is one",
            "",
            "[log]",
            setting("source", self.source) if isinstance(self.source, str) else f"source = {_toml_list(self.source)}",
            *([] if self.query is None else [setting("query", self.query)]),
        ]
        of = {guess.column: guess.text for guess in self.roles.values()}
        conditions = [f"{of[column] if column in self.stray else plain(column)} is not null" for column in self.kept]
        if self.kept:
            lines.append("# Rows without a value are left out. CHECK: why have they none?")
        if self.totals is not None:
            lines.append(f"# {_comment(self.totals[1])}")
            conditions.insert(0, self.totals[0])
        if conditions:
            lines.append(setting("where", " and ".join(conditions)))
        for role, meaning in ROLES.items():
            if role in self.roles and not (self.one_step and role in ("user", "time") and not self.roles[role].column):
                lines += [f"# {meaning}. {_because(self.roles[role].why)}.", setting(role, self.roles[role].text)]
            else:
                why = self.roles[role].why if role in self.roles else ""
                lines += [f"# {meaning}: {why}."] if "CHECK" in why else []
                lines += [f"# {self.dropped[role]}"] if role in self.dropped else []
                lines += [HINTS[role]] if role in HINTS else []
                lines += [RANDOM] if role == "propensity" and self.random else []
        if self.gaps is not None:
            lines.append(f"# CHECK: {_comment(self.gaps)} Else write complete = {'false' if known else 'true'}.")
            lines.append(f"complete = {'true' if known else 'false'}")
        elif not self.one_step:
            lines.append("# complete = true           # if a day without a row means that the user did not come")
        if self.outcomes:
            lines += [
                "# Other columns that follow from the action: neither reward nor feature.",
                f"outcomes = {_toml_list(self.outcomes)}",
            ]
        lines += [
            "# segment = \"case when … then 'new' else 'old' end\"   # groups for tables",
            "",
            "# The state: what is known BEFORE the decision. Take out whatever is only known after it (it would leak).",
            "[log.features]",
            f"categorical = {_toml_list(self.categorical or ([] if self.numeric else ['1']))}",
            f"numeric = {_toml_list(self.numeric)}",
        ]
        stray = {name: why for name, why in self.stray.items() if name not in self.left_out}
        lines += [f"# CHECK: {_comment(name)}: {_comment(why)}." for name, why in stray.items()]
        lines += [f"# left out: {_comment(column)} ({_comment(reason)})" for column, reason in self.left_out.items()]
        lines += self._reading()
        lines += [
            "",
            "[[budget]]",
            'name = "cost"',
            f"# What a row cost. {_because(self.roles['cost'].why)}.",
            *(['# If the actions cost money, write their prices, and unit = "EUR" above.'] if self._counted else []),
            f"cost = {prices}" if (prices := _prices(self.roles, "cost")) else setting("cost", self.roles["cost"].text),
            f"at_most = {self.spent:.4g}",
            "# CHECK: that is what the log spent per row. Left so, the question is: what is best for the same spend?",
            *([] if self.one_step else ['per = "decision"          # or "user": total over horizon_days']),
            *self._labels(),
            "",
        ]
        return "\n".join(lines)

    @property
    def _counted(self) -> bool:
        """Whether what is limited is how many get something, and not money."""
        return self.roles["cost"].column is None and COUNTED in self.roles["cost"].why

    def _labels(self) -> list[str]:
        """What pages could call columns whose names say little to somebody who has not seen the log."""
        named = {key: self.roles[role].column or "" for key, role in CALLED.items()}
        said = [
            f"# {setting(key, readable(name))}" for key, name in named.items() if name and not WORDS.fullmatch(name)
        ]
        return ["", "# [labels]               # what pages call these, in words for everybody", *said] if said else []

    def _reading(self) -> list[str]:
        """How texts are read, where that has to be said."""
        if self.read is None or not self.read.words:
            return []
        lines = ["", *(f"# {_comment(words)}" for words in self.read.words)]
        if self.read.reading is None:
            return lines
        if self.read.open:
            lines.append(f"# CHECK: the rows fit {self.read.open[2]} as well, but with it they lie further apart.")
        said = self.read.reading.model_dump(exclude_none=True)
        return [*lines, "[log.reading]", *(setting(key, str(value)) for key, value in said.items())]


def _dropped(guess: Guess, finding: Finding) -> str:
    return f"{_comment(guess.text)} is not used: {_comment(finding.message)}"


def _because(why: str) -> str:
    """Why a column was taken, as a sentence of a comment; what is to be looked at stands by itself."""
    return why if why.startswith("CHECK") else f"Why: {why}"


def _name(source: str) -> str:
    stem = Path(source.partition("?")[0]).name.lower().split(".")[0]
    return re.sub(r"[^a-z0-9_-]+", "-", stem).strip("-") or "campaign"


def _toml_list(texts: Sequence[str]) -> str:
    if len(texts) <= 6:
        return f"[{', '.join(toml_value(text) for text in texts)}]"
    return "[\n" + "".join(f"    {toml_value(text)},\n" for text in texts) + "]"


def _comment(text: str) -> str:
    return " ".join(text.split())
