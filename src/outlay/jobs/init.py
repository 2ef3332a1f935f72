"""`init`: look at a log's columns and write a campaign file with guesses, for a person to check."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

from outlay.core.addresses import mistake, scheme_of
from outlay.core.campaign import Campaign
from outlay.core.errors import LogError, OutlayError
from outlay.core.files import new_file
from outlay.logs.guess import Guess, describe, guess_features, guess_roles
from outlay.logs.reading import quoted, setting
from outlay.logs.source import Source, open_source

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


def init(log: str | Path, out: str | Path, *, query: str | None = None) -> str:
    """Write a commented campaign file for a log.

    Args:
        log: Parquet or CSV (.gz), a file or a glob; or an address (`postgresql://…`, `s3://…`, `gs://…`).
        out: the campaign file; must not exist, since what was changed in it would be lost.
        query: SQL, for a database.

    Returns:
        What was written.

    Raises:
        LogError: if the log cannot be read, is empty, or no column can be the action.
        OutlayError: if the campaign file exists.
    """
    out = Path(out)
    if out.exists():
        raise OutlayError("exists already, and what was changed in it would be lost.", file=out, where="--out",
                          way_out="Give another --out, or delete it first.")  # fmt: skip
    if found := mistake(str(log), query):
        raise OutlayError(f"{found}.", file=log, where="log", way_out="Fix the command.")
    with tempfile.TemporaryDirectory(prefix="outlay-") as folder, open_source(log, Path(folder), query=query) as source:
        rows, columns = describe(source)
        if rows == 0:
            raise LogError("the log is empty: it has no rows.", file=source.file,
                           way_out="Give a log with a row per user and day.")  # fmt: skip
        try:
            roles = guess_roles(columns)
        except LookupError as error:
            raise LogError(str(error), file=source.file, way_out="Write the campaign file by hand (see the README), "
                           "with action as a CASE expression that makes numbers.") from None  # fmt: skip
        categorical, numeric, left_out = guess_features(rows, columns, roles)
        spent = _mean(source, roles["cost"].text)
        lowest = _lowest(source, roles["action"].text)
    text = _page(
        str(log) if scheme_of(log) else _relative(Path(log), out),
        query,
        rows,
        roles,
        categorical,
        numeric,
        left_out,
        spent,
        lowest,
    )
    with new_file(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
        Campaign.load(temporary)  # what init writes, prepare can read
    return text


def _page(
    source: str, query: str | None, rows: int, roles: dict[str, Guess], categorical: list[str], numeric: list[str],
    left_out: dict[str, str], spent: float, lowest: float,
) -> str:  # fmt: skip
    name = (
        re.sub(r"[^a-z0-9_-]+", "-", Path(source.partition("?")[0]).name.lower().split(".")[0]).strip("-") or "campaign"
    )
    one_step = roles["time"].text == "1"
    none = "none = 0.0                # the action that means: no incentive" if lowest == 0 else \
           "# none = 0.0              # the action that means: no incentive, if there is one"  # fmt: skip
    lines = [
        f"# Written by outlay init from {rows:,} rows. Every line is a guess: correct it, then run outlay check.",
        "# A role is a column, or an SQL expression over the columns of a row.",
        "",
        "[campaign]",
        setting("name", name),
        'unit = "money"            # of the budget, for words and axes',
        f"discount = {'0.0' if one_step else '0.8'}            # per unit of time; 0: only the same day counts",
        f"horizon_days = {1 if one_step else 7}",
        f"report_days = {[1] if one_step else [1, 3, 7]}",
        none,
        "",
        "[log]",
        setting("source", source),
        *([] if query is None else [setting("query", query)]),
    ]
    for role, meaning in ROLES.items():
        if role in roles:
            lines += [f"# {meaning}. Chosen {roles[role].why}.", setting(role, roles[role].text)]
        else:
            lines.append(HINTS[role])
    lines += [
        "# complete = true           # if a day without a row means that the user did not come",
        "# segment = \"case when … then 'new' else 'old' end\"   # groups for tables",
        "",
        "# The state: what is known BEFORE the decision. Take out whatever is only known after it (it would leak).",
        "[log.features]",
        f"categorical = {_toml_list(categorical or ([] if numeric else ['1']))}",
        f"numeric = {_toml_list(numeric)}",
    ]
    lines += [f"# left out: {_comment(column)} ({reason})" for column, reason in left_out.items()]
    lines += [
        "",
        "[[budget]]",
        'name = "cost"',
        f"# What a row cost. Chosen {roles['cost'].why}.",
        setting("cost", roles["cost"].text),
        f"at_most = {spent:.4g}          # what the log spent per row: CHECK, this is your decision",
        'per = "decision"          # or "user": total over horizon_days',
        "",
    ]
    return "\n".join(lines)


def _mean(source: Source, expression: str) -> float:
    sql = quoted(expression) if expression in source.columns else f"({expression})"
    try:
        [(mean,)] = source.run(f"SELECT avg(CAST({sql} AS DOUBLE)) FROM log")
    except OutlayError:
        return 1.0
    return float(mean or 0)


def _lowest(source: Source, action: str) -> float:
    [(low,)] = source.run(f"SELECT min(CAST({quoted(action)} AS DOUBLE)) FROM log")
    return float(low)


def _relative(log: Path, out: Path) -> str:
    """The log's path as seen from the campaign file; absolute where they share no folder."""
    base, there = out.absolute().parent, log.absolute()
    try:
        path = os.path.relpath(there, base)
    except ValueError:  # another drive
        return there.as_posix()
    return there.as_posix() if path.count("..") > 1 else Path(path).as_posix()


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _toml_list(texts: list[str]) -> str:
    if len(texts) <= 6:
        return f"[{', '.join(_toml(text) for text in texts)}]"
    return "[\n" + "".join(f"    {_toml(text)},\n" for text in texts) + "]"


def _comment(text: str) -> str:
    return " ".join(text.split())
