"""The campaign file of an exported log: the bundle's campaign, adapted to the exported columns.

User, time, action, propensity, forced and eligible refer to the exported columns, and the cost of money to the amount
paid. Reward and other costs keep their expressions, since each kind of outcome is a column of that name; what else
follows from a decision is listed under log.outcomes.
"""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outlay.core.actions import ActionNames, named
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, OutlayError
from outlay.core.files import new_file
from outlay.core.reserves import ROUNDING
from outlay.logs.reading import literal, quoted, toml_value
from outlay.logs.source import Source
from outlay.serve.user_days.campaign_history import CampaignHistory, money_budget
from outlay.serve.user_days.log_row import FEATURE, FOLDER, KIND, LogLayout

SOURCE = f"log/{FOLDER}=*/*.parquet"
FILE = "campaign.toml"
FOLLOWING = (
    "marginal",
    "reason",
    "member",
    "given",
    "refused",
    "decisions",
    "offers",
    "paid",
    "reserved_minor",
    "held_minor",
    "paid_minor",
)  # columns that come with the draw of the action, or after it
HEADER = "# The log of decisions written by outlay export-log: a row per user and day. An edited file is kept.\n"


def campaign_of(history: CampaignHistory, layout: LogLayout, source: Source, as_of: datetime.date) -> dict[str, Any]:
    """Return the content of the campaign file.

    Args:
        history: the campaign's bundles.
        layout: columns of the log.
        source: the exported log, with the view `log`.
        as_of: the last whole day of which the ledger has outcomes; written if the campaign declares delays.
    """
    content, bundle, summaries = copy.deepcopy(history.content), history.bundle, history.summaries
    log, names = content["log"], layout.names
    log["source"] = SOURCE
    for role in ("user", "time", "action", "forced"):
        log[role] = names[role]
    log.pop("where", None)  # it selected rows of another log
    log.pop("reading", None)  # it is of files of another form
    log.pop("events", None)  # the ledger has credited outcomes to their decisions
    _put(log, "as_of", as_of.isoformat() if log.get("delays") else None)
    _put(log, "once", None if log.get("once") else False)  # users of a log of days may have come once so far
    log.pop("holds", None)  # the log is read again
    called, action = ActionNames.of_file(history.content), quoted(names["action"])
    given = [value for (value,) in source.run(f"SELECT DISTINCT {action} FROM log")]
    if not called.labels:
        log["actions"] = sorted({*bundle.actions, *log.get("actions", ()), *map(float, given)})
    elif 0.0 not in called.values and called.logged(0.0) in given:  # what was refused
        _list_none(content, called)
    drew, listed = source.run(
        f"SELECT coalesce(bool_or(NOT {quoted(names['forced'])} AND {quoted(names['propensity'])} < 1), false), "
        f"count({quoted(names['eligible'])}) FROM log"
    )[0]
    _put(log, "propensity", names["propensity"] if drew else None)  # omitted if nothing was random
    _put(log, "eligible", names["eligible"] if listed else None)
    log["outcomes"] = [name for role, name in names.items() if role in FOLLOWING or role.startswith(KIND)]
    features = log["features"]
    for part, read in (("categorical", bundle.features.categorical), ("numeric", bundle.features.numeric)):
        features[part] = [names[FEATURE + name] for name in read if name not in summaries]
    money = money_budget(content)
    money["cost"] = names["paid"]
    if log.get("segment") is not None and not _is_known(source, log["segment"]):
        del log["segment"]
    if (reserve := money.get("reserve")) is not None:
        none = called.logged(called.value(content["campaign"].get("none") or 0.0) or 0.0)
        stated = _by_action(reserve, called, action) if isinstance(reserve, dict) else reserve
        if not (_is_known(source, stated) and _is_of_a_row(source, stated, _sql(none), names)):
            del money["reserve"]
    unstated = "complete" not in log and "terminal" not in log
    if unstated and content["campaign"].get("discount", 0) > 0 and _has_gaps(source, names):
        # Rows come from requests: on a day without one, nothing was given and there was no reward.
        log["complete"] = True
        if called.labels:
            _list_none(content, called)
        else:
            none = float(content["campaign"].get("none") or 0.0)
            content["campaign"]["none"] = none
            log["actions"] = sorted({*log["actions"], none})
    if summaries:
        # What decisions were made on, unless days without a row count from now on: then all of it is computed anew.
        same = bundle.campaign["log"].get("complete") == log.get("complete")
        log["history"]["recorded"] = same and all(names[FEATURE + name] == name for name in summaries)
    return content


def _list_none(content: dict[str, Any], called: ActionNames) -> None:
    """Name the action of what was refused, and of days without a row, and list it among named actions."""
    log, stated = content["log"], content["campaign"].get("none")
    label = called.given((0.0 if stated is None else called.value(stated)) or 0.0)
    content["campaign"]["none"] = label
    if label not in log["actions"]:
        log["actions"] = [label, *log["actions"]]
        if "amounts" in log:
            log["amounts"] = [0.0, *log["amounts"]]


def _by_action(table: Mapping[str, float], called: ActionNames, action: str) -> str:
    """SQL of what a table says of an action, by the SQL of the column of the log."""
    cases = (f"when {_sql(called.logged(value))} then {amount!r}" for value, amount in called.numbered(table).items())
    return f"case {action} {' '.join(cases)} else 0 end"


def _sql(value: Any) -> str:
    return literal(value) if isinstance(value, str) else str(value)


def campaign_notes(file: Path, history: CampaignHistory, as_of: datetime.date, *, edited: bool) -> list[str]:
    """What to correct in the campaign file: `as_of` of an edited one, and outcomes that were events of a table."""
    notes, content, written = [], history.content, Campaign.content(file)
    listed = content["log"].get("actions") or ()
    if not edited and (
        new := [each for each in written["log"]["actions"] if isinstance(each, str) and each not in listed]
    ):
        notes.append(
            f"where nothing was given, {written['log']['action']} is {named(new[0])}, which the log before did not "
            f"have: look at what SQL in {file.name} makes of it."
        )
    events = content["log"].get("events", {}).get("outcomes", {})
    lost = [name for name in events if name != money_budget(content)["name"]]
    if lost and not edited:
        notes.append(
            f"{' and '.join(lost)} had later outcomes in a table (log.events), which the exported log does not read: "
            f"correct the expression in {file.name} to name the outcomes that the server was told."
        )
    reserve = money_budget(content).get("reserve")
    if reserve is not None and not edited and money_budget(written).get("reserve") is None:
        notes.append(
            f"reserve = {json.dumps(reserve, ensure_ascii=False)} is not in {file.name}: the log lacks its columns, "
            "or a row with several offers cost more than one of them can. Without it, the largest cost of a row is set "
            "aside. State what the offers of a day can cost, or allow one a day: decisions_per_day = 1 under [user]."
        )
    if edited and content["log"].get("delays"):
        stated = str(written.get("log", {}).get("as_of"))
        if stated != as_of.isoformat():
            notes.append(
                f"as_of is {stated if stated != 'None' else 'absent'} in {file.name}, which was edited by hand: set "
                f'as_of = "{as_of}" under [log], or days whose outcomes are known by now are left out as not ripe.'
            )
    return notes


def check_expressions(content: Mapping[str, Any], layout: LogLayout, source: Source, file: Path) -> None:
    """Check that every expression in the campaign file can be computed from the log.

    Raises:
        CampaignError: if not; it names the key and the outcomes in the log.
    """
    log = content["log"]
    expressions = {"log.reward": log["reward"], "log.terminal": log.get("terminal")}
    expressions |= {f"budget {budget['name']}.cost": budget["cost"] for budget in content["budget"]}
    for key, text in expressions.items():
        if not isinstance(text, str):
            continue
        try:
            source.term(key, text)
        except OutlayError as error:
            outcomes = ", ".join(layout.names[KIND + kind] for kind in layout.kinds) or "none"
            raise CampaignError(
                f"{text!r} cannot be computed from the exported log ({error.found}) Outcomes in the log: {outcomes}.",
                file=file,
                where=key,
                way_out="The log has been written. Each kind of outcome is a column: its values (1 if none was given), "
                "summed over the day. Correct the expression in this file; an edited file is kept.",
            ) from None


def write_campaign(file: Path, content: Mapping[str, Any]) -> str:
    """Write the campaign file, check that it can be loaded, and return its text."""
    text = HEADER + to_toml(content)
    with new_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
        Campaign.load(temporary)
    return text


def to_toml(content: Mapping[str, Any]) -> str:
    """Return TOML for nested tables, lists of tables, plain values and lists of plain values."""
    return "\n".join(_lines(content, ())) + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines = [f"{_key(name)} = {toml_value(value)}" for name, value in table.items() if not _is_table(value)]
    for name, value in table.items():
        if not _is_table(value):
            continue
        inner = (*path, _key(name))
        many = isinstance(value, list)
        for part in value if many else [value]:
            header = ".".join(inner)
            lines += ["", f"[[{header}]]" if many else f"[{header}]", *_lines(part, inner)]
    return lines


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else toml_value(name)


def _put(section: dict[str, Any], key: str, value: Any) -> None:
    section.pop(key, None)
    if value is not None:
        section[key] = value


def _is_known(source: Source, text: str) -> bool:
    try:
        source.run(f"SELECT count({source.term('', text).sql}) FROM log")
    except OutlayError:
        return False
    return True


def _is_of_a_row(source: Source, reserve: str, none: str, names: Mapping[str, str]) -> bool:
    """Return whether `reserve` may hold for rows: not if only those that sum several offers cost more.

    If a row with a single offer costs more, the statement is wrong, and it is kept: `outlay check` refuses it.
    """
    paid, offers, action = (quoted(names[role]) for role in ("paid", "offers", "action"))
    [(single, several)] = source.run(
        f"SELECT count(*) FILTER ({offers} <= 1), count(*) FILTER ({offers} > 1) FROM log "
        f"WHERE {action} <> {none} AND {paid} > ({reserve}) + {ROUNDING} * abs({reserve})"
    )
    return bool(single or not several)


def _has_gaps(source: Source, names: Mapping[str, str]) -> bool:
    user, day = quoted(names["user"]), quoted(names["time"])
    [(rows, days)] = source.run(
        f"SELECT sum(n), sum(last - first + 1) FROM (SELECT count(*) AS n, min({day}) AS first, "
        f"(SELECT max({day}) FROM log) AS last FROM log GROUP BY {user})"
    )
    return bool(rows < days)
