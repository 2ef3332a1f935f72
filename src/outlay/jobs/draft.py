"""The campaign file that `init` writes: its guesses, its text, and what is taken back where `check` would reject it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from outlay.logs.findings import Finding
from outlay.logs.guess import Guess
from outlay.logs.reading import plain, setting

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
NEEDED = {"user": "log.user", "time": "log.time", "action": "log.action", "reward": "log.reward"} | {
    "cost": "budget cost.cost"
}  # role → the key that a finding about its values names


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
            if finding.where == f"log.{role}" and role in self.roles:
                roles = {name: guess for name, guess in self.roles.items() if name != role}
                return replace(self, roles=roles, dropped=self.dropped | {role: _dropped(self.roles[role], finding)})
        for name in (*self.categorical, *self.numeric):
            if finding.where == f"log.features, {name}":
                return replace(
                    self,
                    categorical=[each for each in self.categorical if each != name],
                    numeric=[each for each in self.numeric if each != name],
                    left_out=self.left_out | {name: finding.message.rstrip(".")},
                )
        if finding.where == "log.complete" and self.gaps is None:
            return replace(self, gaps=finding.message)
        if finding.where == "log.user, log.time" and self.roles["time"].column is None:
            numbered = f"row_number() over (partition by {self.roles['user'].text})"
            time = Guess(numbered, "CHECK: no column looks like a day, so a user's rows count in the order of the log")
            return replace(self, roles=self.roles | {"time": time})
        for role, key in NEEDED.items():
            column = self.roles[role].column
            if finding.where == key and column is not None and column not in self.kept:
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


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _toml_list(texts: Sequence[str]) -> str:
    if len(texts) <= 6:
        return f"[{', '.join(_toml(text) for text in texts)}]"
    return "[\n" + "".join(f"    {_toml(text)},\n" for text in texts) + "]"


def _comment(text: str) -> str:
    return " ".join(text.split())
